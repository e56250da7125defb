// What forking and ending the process mean for queues. The processes that end are programs of their own: this one, run
// again by the "threadsafe" style of death tests.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "athanor/base/parallel.h"
#include "athanor/nn/nn.h"
#include "device_queue/queued_device.h"
#include "tests/fork_guard.h"

namespace athanor {
namespace {

/// The child's exit status: 0 if `act` held. It ends without the parent's exit handlers, killed if it hangs.
int in_child(const std::function<bool()>& act) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(60);
    bool good = false;
    try {
      good = act();
    } catch (...) {
    }
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

template <class F>
bool refuses(F&& act) {
  try {
    act();
  } catch (const Error& e) {
    return std::string(e.what()).find("forked") != std::string::npos;
  }
  return false;
}

Tensor kept_beyond_main;  // given back after the queues ended

/// A minute's work that nobody waits for.
void enqueue_much(int devices) {
  detail::configure_cpu_queues(devices);
  for (int i = 0; i < devices; ++i) {
    Tensor x = ones({1024, 1024}, options_on(i));
    for (int k = 0; k < 2000; ++k) x = x.matmul(x) * 1e-3;
    kept_beyond_main = x;
  }
}

}  // namespace

TEST_F(QueuedDevice, AForkedChildIsRefusedTheParentsQueues) {
  Tensor x = ones({4}, options_on(1));
  x.add_(1);
  EXPECT_EQ(in_child([&] {
              bool good = refuses([&] { x.add_(1); }) && refuses([&] { (void)x.sum().item(); });
              good = good && refuses([&] { x.cpu(); }) && refuses([&] { synchronize(on(1)); });
              good = good && refuses([&] { zeros({2}, options_on(1)); });
              x.reset();  // giving memory back is all right
              return good;
            }),
            0);
  EXPECT_EQ(x.sum().item<float>(), 8.0F);  // the parent's go on
}

TEST_F(QueuedDevice, AForkedChildMayHaveQueuesOfItsOwn) {
  ATHANOR_SKIP_IF_FORKS_ARE_UNSEEN();
  const Tensor x = ones({4}, options_on(1));
  synchronize(on(1));
  EXPECT_EQ(in_child([] {
              detail::configure_cpu_queues(3);
              return (ones({5}, options_on(2)) + 1).sum().item<float>() == 10;
            }),
            0);
}

TEST_F(QueuedDevice, HostOpsOfAForkedChildRunOnOneThread) {
  detail::configure_cpu_queues(0);
  const int before = get_num_threads();
  set_num_threads(2);
  const Tensor a = randn({300, 300}), b = a.matmul(a), c = exp(randn({200'000}));  // the pool is up
  EXPECT_EQ(in_child([&] {
              nn::Linear layer(300, 300);
              return get_num_threads() == 1 && a.matmul(a).allclose(b) && exp(c).numel() == 200'000 &&
                     layer(a).sum().isfinite().item<bool>();
            }),
            0);
  EXPECT_EQ(in_child([&] {
              int team = 0;  // a thread of the child's own has a pool of its own
              std::thread([&] {
                team = get_num_threads();
                exp(c);
              }).join();
              return team == 2;
            }),
            0);
  set_num_threads(before);
}

TEST_F(QueuedDevice, ForkingWhileQueuesAllocateAndRunLeavesNoLockBehind) {
  ATHANOR_SKIP_IF_FORKS_ARE_UNSEEN();
  ATHANOR_SKIP_IF_FORKS_KEEP_LOCKS();
  std::atomic<bool> stop{false};
  std::vector<std::thread> busy;
  for (int i = 0; i < 2; ++i)
    busy.emplace_back([&, i] {
      while (!stop) {
        Tensor x = ones({64, 64}, options_on(i));
        for (int k = 0; k < 20; ++k) x = x.matmul(x).to(on(1 - i)).to(on(i));
        x.cpu();
      }
    });
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(in_child([] {
                const Tensor x = randn({64, 64}), y = x.matmul(x);  // the allocator's and the primitives' locks
                detail::configure_cpu_queues(2);                    // the registry's
                return (ones({64, 64}, options_on(1)).matmul(y.to(on(1)))).cpu().isfinite().all().item<bool>();
              }),
              0)
        << i;
  stop = true;
  for (auto& t : busy) t.join();
}

class ExitWithWorkQueued : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(ExitWithWorkQueued, EndsAtOnceAndWell) {
  EXPECT_EXIT(
      {
        ::alarm(60);
        enqueue_much(2);
        std::exit(7);
      },
      ::testing::ExitedWithCode(7), "^$");
}

TEST_F(ExitWithWorkQueued, DropsFailuresNobodyAskedFor) {
  EXPECT_EXIT(
      {
        ::alarm(60);
        detail::configure_cpu_queues(2);
        kept_beyond_main = ones({4}, options_on(1));
        launch(failing_kernel, kept_beyond_main);
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(ExitWithWorkQueued, LetsThreadsEnqueueOrWaitMeanwhile) {
  EXPECT_EXIT(
      {
        ::alarm(60);
        enqueue_much(2);
        for (int i = 0; i < 2; ++i)
          std::thread([i] {
            Tensor x = ones({64, 64}, options_on(i));
            for (;;) x = x.matmul(x);
          }).detach();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

}  // namespace athanor
