// fork and wait: values, gradients, modes, errors, nesting, forked processes.
#include "athanor/autograd/fork.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "athanor/autograd/autograd.h"
#include "athanor/base/deadline.h"
#include "athanor/base/parallel.h"
#include "athanor/ops/autocast.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/tensor.h"
#include "athanor/tensor/cuda.h"
#include "tests/fork_guard.h"
#include "tests/thread_count.h"

namespace athanor {
namespace {

TEST(Fork, GivesTheResultAndItsGradient) {
  const Tensor x = tensor({1.0, 2.0}).requires_grad_();
  const auto square = fork([](const Tensor& t) { return t * t; }, x);
  const Tensor cube = x * x * x;
  const Tensor y = wait(square) + cube;
  y.sum().backward();
  EXPECT_TRUE(allclose(x.grad(), tensor({2.0 + 3.0, 4.0 + 12.0})));
  EXPECT_TRUE(square.done());
  EXPECT_TRUE(wait(square).equal(square.wait()));
}

TEST(Fork, RunsAtOnceWithWhoForkedIt) {
  std::atomic<int> here{0};
  const auto meet = [&] {
    ++here;
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (here < 2 && !deadline.expired()) std::this_thread::yield();
    return here.load();
  };
  set_num_threads(2);
  const auto other = fork(meet);
  EXPECT_EQ(meet(), 2);
  EXPECT_EQ(wait(other), 2);
}

std::int64_t fibonacci(int n) {
  if (n < 2) return n;
  const auto a = fork(fibonacci, n - 1);
  const auto b = fork(fibonacci, n - 2);
  return wait(a) + wait(b);
}

TEST(Fork, NestsToAnyDepthOnFewThreads) { EXPECT_EQ(fibonacci(14), 377); }

TEST(Fork, HasTheModesOfWhereItWasForked) {
  const auto recorded = [] { return GradMode::is_enabled(); };
  const auto lowered = [] { return autocast::is_autocast_enabled(); };
  {
    const NoGradGuard off;
    const autocast::AutocastGuard half;
    EXPECT_FALSE(wait(fork(recorded)));
    EXPECT_TRUE(wait(fork(lowered)));
  }
  EXPECT_TRUE(wait(fork(recorded)));
  EXPECT_FALSE(wait(fork(lowered)));
  const InferenceMode inference;
  EXPECT_TRUE(wait(fork([] { return InferenceMode::is_enabled(); })));
}

TEST(Fork, CarriesExceptionsOfTheirTypeToEveryWaiter) {
  const auto bad = fork([]() -> Tensor { return ones({2}).reshape({3}); });
  const auto worse = fork([] { throw std::out_of_range("far away"); });
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(wait(bad), Error);
    EXPECT_THROW(wait(worse), std::out_of_range);
  }
  EXPECT_TRUE(bad.done());
}

TEST(Fork, ManyTasksShareTheGraph) {
  const Tensor w = full({8}, 2.0).requires_grad_();
  std::vector<Future<Tensor>> parts;
  for (int i = 0; i < 200; ++i) parts.push_back(fork([w, i] { return (w * i).sum(); }));
  Tensor sum = zeros({}, kDouble);
  for (const auto& part : parts) sum = sum + wait(part);
  sum.backward();
  EXPECT_EQ(w.grad()[0].item<double>(), 199.0 * 200 / 2);
}

TEST(Fork, RunsEvenIfNobodyWaits) {
  std::atomic<bool> ran{false};
  {
    const auto dropped = fork([&] { ran = true; });
  }
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (!ran && !deadline.expired()) std::this_thread::yield();
  EXPECT_TRUE(ran);
}

TEST(Fork, TheNumberOfThreadsIsFixedOnceTheyRun) {
  wait(fork([] {}));
  EXPECT_GE(get_num_interop_threads(), 1);
  EXPECT_THROW(set_num_interop_threads(0), ValueError);
  EXPECT_THROW(set_num_interop_threads(3), Error);
}

/// `n` tasks that go on only when all of them run; nobody who could run one waits.
bool all_meet(int n) {
  std::mutex mutex;
  std::condition_variable changed;
  int here = 0, over = 0;
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  const auto meet = [&] {
    std::unique_lock lock(mutex);
    ++here;
    changed.notify_all();
    const bool met = changed.wait_until(lock, deadline.at(), [&] { return here == n; });
    ++over;
    changed.notify_all();
    return met;
  };
  std::vector<Future<bool>> tasks;
  for (int i = 0; i < n; ++i) tasks.push_back(fork(meet));
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return over == n; });
  lock.unlock();
  return std::all_of(tasks.begin(), tasks.end(), [](const auto& task) { return task.wait(); });
}

TEST(Fork, TasksAtOnceDoNotShareAnIdleThread) {
  const pid_t child = ::fork();  // for a pool without threads
  if (child == 0) {
    ::alarm(60);
    set_num_interop_threads(6);
    bool all = true;
    for (int n = 1; n <= 6; ++n) {
      all = all && all_meet(n);
      for (int i = 0; i < 10; ++i) std::this_thread::yield();  // the round's threads may go to sleep, or not
    }
    ::_exit(all ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

/// Whether `body`, in a process of its own whose pool has `turns` turns, ends in time and returns true.
bool holds_in_a_new_pool(int turns, const std::function<bool()>& body) {
  skip_if_forks_are_unseen();
  std::fflush(nullptr);  // what the child would write once more
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    set_num_interop_threads(turns);
    const int status = body() ? 0 : 1;
#ifdef __SANITIZE_THREAD__
    std::exit(status);  // joins the pool's threads: one that has ended without is a leak to this sanitizer
#else
    ::_exit(status);
#endif
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

void spin_until(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::yield();
}

TEST(Fork, AWaiterDoesNotRunWhatWaitsForItself) {
  EXPECT_TRUE(holds_in_a_new_pool(2, [] {
    std::atomic<bool> inner_runs{false}, late_runs{false}, go{false};
    const auto outer = fork([&] {
      const auto inner = fork([&] {
        inner_runs = true;
        spin_until(go);
        return 1;
      });
      spin_until(inner_runs);  // on the other thread
      return wait(inner);
    });
    spin_until(inner_runs);
    const auto late = fork([&] {
      late_runs = true;
      return wait(outer);
    });
    spin_until(late_runs);
    go = true;
    return wait(late) == 1;
  }));
}

TEST(Fork, QueuedTasksGoOnWhileThreadsWaitAndNeverOnTheirStacks) {
  EXPECT_TRUE(holds_in_a_new_pool(2, [] {
    static thread_local int on_stack = 0;
    std::atomic<bool> first_runs{false}, go{false}, nested{false};
    const auto first = fork([&] {
      first_runs = true;
      spin_until(go);
      return 1;
    });
    spin_until(first_runs);
    std::vector<Future<int>> waiters;
    for (int i = 0; i < 40; ++i)
      waiters.push_back(fork([&] {
        if (++on_stack > 1) nested = true;
        const int result = wait(first);
        --on_stack;
        return result;
      }));
    const auto last = fork([&] { go = true; });
    spin_until(go);
    bool all = true;
    for (const auto& waiter : waiters) all = all && wait(waiter) == 1;
    wait(last);
    return all && !nested;
  }));
}

TEST(Fork, SpareThreadsEnd) {
  EXPECT_TRUE(holds_in_a_new_pool(2, [] {
    const int before = number_of_threads();
    std::atomic<bool> first_runs{false}, go{false};
    const auto first = fork([&] {
      first_runs = true;
      spin_until(go);
    });
    spin_until(first_runs);
    std::atomic<int> begun{0};
    std::vector<Future<void>> waiters;
    for (int i = 0; i < 30; ++i)
      waiters.push_back(fork([&] {
        ++begun;
        wait(first);
      }));
    while (begun < 30) std::this_thread::yield();
    const int most = number_of_threads() - before;
    go = true;
    for (const auto& waiter : waiters) wait(waiter);
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (number_of_threads() - before > 4 && !deadline.expired()) std::this_thread::yield();
    return most >= 30 && number_of_threads() - before <= 4 && wait(fork([] { return 5; })) == 5;
  }));
}

/// Forks a task and waits for it when the last of its copies goes.
struct ForksAtItsEnd {
  std::shared_ptr<std::atomic<int>> ended;
  std::shared_ptr<void> last;
  explicit ForksAtItsEnd(std::shared_ptr<std::atomic<int>> count)
      : ended(std::move(count)), last(nullptr, [n = ended](void*) {
          wait(fork([] {}));
          ++*n;
        }) {}
};

TEST(Fork, WhatATaskHoldsMayForkWhenItGoes) {
  EXPECT_TRUE(holds_in_a_new_pool(2, [] {
    constexpr int kTasks = 50;
    const auto ended = std::make_shared<std::atomic<int>>(0);
    for (int i = 0; i < kTasks; ++i) fork([ended] { return ForksAtItsEnd(ended); });
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (*ended < kTasks && !deadline.expired()) std::this_thread::yield();
    return *ended == kTasks;
  }));
}

/// While it lives std::thread throws std::system_error: no memory holds the stack that a thread would have.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_getattr_default_np(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << 50);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoMoreThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_;
};

TEST(Fork, WithoutMoreThreadsTasksRunOnThoseThatAreThere) {
  for (const bool first_works : {true, false})
    EXPECT_TRUE(holds_in_a_new_pool(4, [&] {
      if (first_works) wait(fork([] {}));
      std::atomic<bool> go{false};
      std::vector<Future<int>> tasks;
      {
        const NoMoreThreads none;
        try {
          std::thread([] {}).join();
          return false;
        } catch (const std::system_error&) {
        }
        // The pool's only thread is busy, so that each of the others asks for one.
        if (first_works)
          tasks.push_back(fork([&] {
            spin_until(go);
            return 0;
          }));
        while (tasks.size() < 5) tasks.push_back(fork([i = static_cast<int>(tasks.size())] { return i; }));
        go = true;
      }
      int sum = 0;
      for (const auto& task : tasks) sum += wait(task);
      return sum == 10;
    }));
}

TEST(Fork, AFutureWithoutATaskSaysSo) {
  const Future<Tensor> none;
  EXPECT_FALSE(none.valid());
  for (const auto& use : {std::function<void()>([&] { (void)none.wait(); }), {[&] { (void)none.done(); }}}) {
    try {
      use();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("this Future has no task"));
    }
  }
}

TEST(Fork, HasTheCurrentCudaDeviceOfWhereItWasForked) {
  detail::configure_cuda_queues(2);
  {
    const cuda::CUDAGuard second(1);
    const auto inner = fork([] { return wait(fork([] { return cuda::current_device(); })); });
    EXPECT_EQ(wait(fork([] { return ones({2}, kCUDA).device().index(); })), 1);
    EXPECT_EQ(wait(inner), 1);
    wait(fork([] { cuda::set_device(0); }));
    EXPECT_EQ(cuda::current_device(), 1);
  }
  EXPECT_EQ(wait(fork([] { return cuda::current_device(); })), 0);
  detail::configure_cuda_queues(0);
}

std::atomic<bool> begun{false}, main_has_ended{false}, ran_at_once{false};

TEST(ForkAtExit, TasksForkTheirOwnInTheirOwnThread) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::alarm(60);
        std::atexit([] { ::_exit(ran_at_once ? 7 : 3); });  // after the pool's end
        set_num_interop_threads(2);
        wait(fork([] {}));
        std::atexit([] { main_has_ended = true; });  // before it
        fork([] {
          begun = true;
          const Deadline deadline = Deadline::after(std::chrono::seconds(20));
          while (!main_has_ended) std::this_thread::yield();
          // The pool ends when it likes; what it has not begun by then is dropped.
          while (!ran_at_once && !deadline.expired()) {
            const auto id = fork([] { return std::this_thread::get_id(); });
            const Deadline soon = Deadline::after(std::chrono::milliseconds(50));
            while (!id.done() && !soon.expired()) std::this_thread::yield();
            ran_at_once = id.done() && id.wait() == std::this_thread::get_id();
          }
        });
        while (!begun) std::this_thread::yield();
        std::exit(0);
      },
      ::testing::ExitedWithCode(7), "^$");
}

TEST(Fork, AForkedProcessHasAPoolOfItsOwn) {
  ATHANOR_SKIP_IF_FORKS_ARE_UNSEEN();
  std::atomic<bool> go{false};
  const auto pending = fork([&] {
    while (!go) std::this_thread::yield();
    return 1;
  });
  const pid_t child = ::fork();
  if (child == 0) {
    bool refused = false;
    try {
      wait(pending);
    } catch (const Error&) {
      refused = true;
    }
    ::_exit(refused && wait(athanor::fork([] { return 5; })) == 5 ? 0 : 1);
  }
  go = true;
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(wait(pending), 1);
}

}  // namespace
}  // namespace athanor
