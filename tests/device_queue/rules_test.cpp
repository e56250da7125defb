// The rules that docs/devices.md lists, as far as queue_test.cpp does not have them.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <sstream>
#include <thread>

#include "athanor/autograd/autograd.h"
#include "athanor/base/deadline.h"
#include "athanor/base/parallel.h"
#include "athanor/tensor/device_memory.h"
#include "athanor/tensor/event.h"
#include "device_queue/queued_device.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constinit Kernel<void(const View&)> team_kernel{"test_team"};
void write_team(const View& out) { *static_cast<float*>(out.data) = static_cast<float>(get_num_threads()); }
ATHANOR_REGISTER_KERNEL(team_kernel, CPU, &write_team);

/// Whether the condition holds for 50 ms: what should block has not got through by then.
bool stays(const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(50));
  while (!deadline.expired()) {
    if (!condition()) return false;
    std::this_thread::yield();
  }
  return true;
}

bool comes(const std::atomic<bool>& flag) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  while (!flag && !deadline.expired()) std::this_thread::yield();
  return flag;
}

std::string rule_error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_F(QueuedDevice, MixedDevicesAreRefusedByAnErrorThatNamesBoth) {
  const Tensor a = ones({2}, options_on(0)), b = ones({2}, options_on(1)), h = ones({2});
  EXPECT_THAT(rule_error_of([&] { a.add(b); }),
              AllOf(HasSubstr("cpu:0"), HasSubstr("cpu:1"), HasSubstr(".to(device)")));
  EXPECT_THAT(rule_error_of([&] { b.add(h); }), AllOf(HasSubstr("cpu:1 and cpu;"), HasSubstr("add")));
  EXPECT_THAT(rule_error_of([&] { a.matmul(b); }), HasSubstr("at least two devices"));
  EXPECT_THAT(rule_error_of([&] { cat({a, b}); }), AllOf(HasSubstr("cpu:0"), HasSubstr("cpu:1")));
  EXPECT_THAT(
      rule_error_of([&] { zeros({1}, options_on(2)); }),
      AllOf(HasSubstr("cpu:2 does not exist"), HasSubstr("2 virtual CPU devices"), HasSubstr("ATHANOR_CPU_DEVICES=3")));
}

TEST(QueuedDeviceTeams, QueuesShareTheThreadsAndTheHostKeepsOne) {
  const int before = get_num_threads();
  set_num_threads(6);
  detail::configure_cpu_queues(3);
  EXPECT_EQ(get_num_threads(), 1);
  for (int i = 0; i < 3; ++i) {
    const Tensor team = zeros({1}, options_on(i));
    launch(team_kernel, team);
    EXPECT_EQ(team.item<float>(), 2.0F) << i;
  }
  detail::configure_cpu_queues(0);
  EXPECT_EQ(get_num_threads(), 6);
  detail::configure_cpu_queues(16);
  EXPECT_EQ(detail::queue_of(on(15))->threads(), 1);
  detail::configure_cpu_queues(0);
  set_num_threads(before);
}

TEST_F(QueuedDevice, ShapesVersionsGraphAndRandomOffsetsAreSettledBeforeTheKernelRuns) {
  manual_seed(5);
  const Tensor expected = rand({8});
  const Tensor x = ones({2, 3}, options_on(1)).requires_grad_();
  close();
  const Tensor y = (x * 2).sum(1);
  EXPECT_EQ(y.sizes(), IntArrayRef({2}));
  EXPECT_TRUE(y.grad_fn());
  const Tensor z = zeros({8}, options_on(1));
  const auto version = z._version();
  manual_seed(5);
  z.uniform_();  // takes its numbers now
  EXPECT_GT(z._version(), version);
  rand({100});  // others take theirs meanwhile
  latch_->count_down();
  EXPECT_TRUE(z.cpu().equal(expected));
  EXPECT_EQ(y.cpu()[1].item<float>(), 6.0F);
}

TEST_F(QueuedDevice, EnqueueingFromSeveralThreadsLosesNothingAndBlocksBeyondTheBound) {
  const Tensor x = zeros({4}, options_on(1));
  synchronize(on(1));
  close();
  constexpr int kThreads = 4, kEach = 1500;  // more than the queue holds
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      const NoGradGuard off;
      const Tensor one = ones({4}, options_on(1));
      for (int i = 0; i < kEach; ++i) {
        x.add_(one);
        ++done;
      }
    });
  // It is full when as many tasks wait as it takes, beside the one that the worker has at the gate.
  const auto waiting = [] {
    const DeviceStats stats = memory_stats(on(1));
    return stats.tasks_enqueued - stats.tasks_finished;
  };
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  constexpr auto kFull = static_cast<std::int64_t>(Queue::kMaxPending) + 1;
  while (waiting() < kFull && !deadline.expired()) std::this_thread::yield();
  EXPECT_TRUE(stays([&] { return waiting() == kFull; }));
  EXPECT_LE(done, static_cast<int>(Queue::kMaxPending));
  latch_->count_down();
  for (auto& t : threads) t.join();
  EXPECT_EQ(x[3].item<float>(), static_cast<float>(kThreads * kEach));
}

TEST_F(QueuedDevice, ShapesThatDependOnValuesWaitForThem) {
  const Tensor x = zeros({6}, options_on(1));
  synchronize(on(1));
  for (int which = 0; which < 4; ++which) {
    x.fill_(0);
    close();
    x.slice(0, 2, 5).fill_(7);  // held
    Tensor found;
    std::atomic<bool> started{false}, ended{false};
    std::thread reader([&] {
      started = true;
      if (which == 0) found = x.nonzero();
      if (which == 1) found = x.masked_select(x > 1);
      if (which == 2) found = x.index({x > 1});
      if (which == 3) found = std::get<0>(_unique(x));
      ended = true;
    });
    EXPECT_TRUE(comes(started));
    EXPECT_TRUE(stays([&] { return !ended; })) << which;
    latch_->count_down();
    reader.join();
    EXPECT_EQ(found.size(0), which == 3 ? 2 : 3) << which;
    open();
  }
}

TEST_F(QueuedDevice, AnswersAboutHeldValuesWaitForThem) {
  const Tensor x = zeros({2}, options_on(1)), flag = zeros({}, options_on(1)), expected = full({2}, 7.0, options_on(1));
  synchronize(on(1));
  for (int which = 0; which < 4; ++which) {
    x.zero_();
    flag.zero_();
    close();
    x.fill_(7);  // held
    flag.fill_(1);
    bool answer = false;
    std::atomic<bool> started{false}, ended{false};
    std::thread reader([&] {
      started = true;
      if (which == 0) answer = flag.is_nonzero();
      if (which == 1) answer = x.equal(expected);
      if (which == 2) answer = allclose(x, expected);
      if (which == 3) answer = flag.item<bool>();
      ended = true;
    });
    EXPECT_TRUE(comes(started));
    EXPECT_TRUE(stays([&] { return !ended; })) << which;
    latch_->count_down();
    reader.join();
    EXPECT_TRUE(answer) << which;
    open();
  }
}

TEST_F(QueuedDevice, AccessorsWaitAndExposeTheMemory) {
  const Tensor x = zeros({2}, options_on(1)), unseen = zeros({2}, options_on(1));
  synchronize(on(1));
  close();
  x.fill_(7);  // held
  float value = 0;
  std::atomic<bool> started{false}, ended{false};
  std::thread reader([&] {
    started = true;
    value = x.accessor<float, 1>()[1];
    ended = true;
  });
  EXPECT_TRUE(comes(started));
  EXPECT_TRUE(stays([&] { return !ended; }));
  latch_->count_down();
  reader.join();
  EXPECT_EQ(value, 7.0F);
  EXPECT_TRUE(x.storage()->host_exposed());
  EXPECT_FALSE(unseen.storage()->host_exposed());
  const auto elements = x.accessor<float, 1>();
  for (int i = 0; i < 100; ++i) {
    x.add_(1);  // ends before it returns
    ASSERT_EQ(elements[0], 8.0F + static_cast<float>(i));
  }
}

TEST_F(QueuedDevice, AQueueThatWaitsForOneThatFailedGoesOnWithoutItsFailure) {
  const Tensor x = ones({4}, options_on(0)), y = ones({4}, options_on(1));
  close(on(0));
  launch(failing_kernel, x);
  Stream(on(1)).wait(Stream(on(0)).record_event());
  y.add_(1);
  EXPECT_TRUE(stays([&] { return !Stream(on(1)).query(); }));  // it does wait
  latch_->count_down();
  EXPECT_EQ(y.sum().item<float>(), 8.0F);
  EXPECT_NO_THROW(synchronize(on(1)));
  EXPECT_THROW(synchronize(on(0)), ValueError);
}

TEST_F(QueuedDevice, HostReadsWaitForTheLastWriteOfTheirTensorOnly) {
  const Tensor x = full({3}, 4.0, options_on(1)), scalar = full({}, 2.5, options_on(1));
  synchronize(on(1));
  close();
  const Tensor later = x * 2;
  // All of this while the queue is held.
  EXPECT_EQ(scalar.item<float>(), 2.5F);
  EXPECT_TRUE(static_cast<bool>((scalar.cpu() > 1).item<bool>()));
  EXPECT_EQ(x.cpu().sum().item<float>(), 12.0F);
  std::ostringstream text;
  text << x;
  EXPECT_THAT(text.str(), HasSubstr("4"));
  EXPECT_FALSE(Stream(on(1)).query());
  latch_->count_down();
  EXPECT_EQ(later[0].item<float>(), 8.0F);
  synchronize(on(1));
  EXPECT_TRUE(Stream(on(1)).query());
}

TEST_F(QueuedDevice, ForeignMemoryIsReleasedAfterItsLastUse) {
  std::vector<float> memory(1 << 10, 3.0F);
  bool released = false;
  Tensor copy;
  close();
  std::thread opener([&] { latch_->count_down(); });
  {
    const Tensor host = from_blob(memory.data(), {1 << 10}, [&](void* p) {
      released = true;
      static_cast<float*>(p)[5] = -1;  // as a program that reuses it
    });
    copy = host.to(on(1));
    EXPECT_FALSE(released);
  }
  opener.join();
  EXPECT_TRUE(released);
  EXPECT_EQ(copy.sum().item<float>(), 3.0F * (1 << 10));
}

TEST_F(QueuedDevice, WritesToTheSourceOfACopyWaitForTheCopy) {
  const Tensor a = full({1 << 10}, 1.0, options_on(0));
  synchronize(on(0));
  close();                          // cpu:1 is held
  const Tensor copy = a.to(on(1));  // so the copy waits
  a.fill_(9);                       // on cpu:0, which is free
  EXPECT_FALSE(Stream(on(0)).query());
  latch_->count_down();
  EXPECT_EQ(copy.sum().item<float>(), 1.0F * (1 << 10));
  EXPECT_EQ(a.sum().item<float>(), 9.0F * (1 << 10));
}

TEST_F(QueuedDevice, CopiesWaitForTheLastWriteOfTheirSourceOnly) {
  const Tensor x = full({1 << 10}, 3.0, options_on(1));
  synchronize(on(1));
  close();
  const Tensor later = x * 2;
  EXPECT_EQ(x.to(on(0)).sum().item<float>(), 3.0F * (1 << 10));  // while cpu:1 is held
  EXPECT_FALSE(Stream(on(1)).query());
  const Tensor copy = later.to(on(0));  // of what is still to be made
  EXPECT_FALSE(Stream(on(0)).query());
  latch_->count_down();
  EXPECT_EQ(copy.sum().item<float>(), 6.0F * (1 << 10));
}

TEST_F(QueuedDevice, FailureFollowsCopiesToOtherQueuesAndLeavesTheirOtherWorkAlone) {
  const Tensor x = ones({4}, options_on(0)), other = ones({4}, options_on(1));
  launch(failing_kernel, x);
  const Tensor copy = x.to(on(1)), derived = copy + 1, unharmed = other + 1;
  EXPECT_EQ(unharmed.sum().item<float>(), 8.0F);
  EXPECT_NO_THROW(synchronize(on(1)));  // cpu:1 itself has not failed
  EXPECT_THAT(
      rule_error_of([&] { (void)derived.sum().item(); }),
      AllOf(HasSubstr("on cpu:1"), HasSubstr("failed on purpose"), HasSubstr("test_failing, enqueued on cpu:0")));
  EXPECT_THROW(synchronize(on(0)), ValueError);
  EXPECT_NO_THROW(synchronize(on(0)));
  EXPECT_THROW(x.cpu(), Error);
  x.slice(0, 0, 2).fill_(1);  // a part of it
  EXPECT_THROW(x.cpu(), Error);
  x.fill_(2);
  EXPECT_EQ(x.sum().item<float>(), 8.0F);
}

TEST_F(QueuedDevice, EventsFireAfterAFailureAndCarryIt) {
  const Tensor x = ones({4}, options_on(1));
  launch(failing_kernel, x);
  const Event event = Stream(on(1)).record_event();
  EXPECT_THROW(event.synchronize(), ValueError);
  EXPECT_TRUE(event.query());
  EXPECT_NO_THROW(event.synchronize());
}

TEST_F(QueuedDevice, AHundredFailuresAreReportedOnceAndNothingHangs) {
  const Tensor x = ones({4}, options_on(1)), y = ones({4}, options_on(0));
  for (int i = 0; i < 100; ++i) {
    launch(failing_kernel, x);
    y.add_(1);
  }
  EXPECT_THROW(synchronize(on(1)), ValueError);
  EXPECT_NO_THROW(synchronize(on(1)));
  EXPECT_EQ(y.sum().item<float>(), 404.0F);
}

TEST_F(QueuedDevice, HooksRunOnTheThreadThatCalledBackward) {
  Tensor x = ones({4}, options_on(1));
  x.requires_grad_();
  std::thread::id seen;
  float value = 0;
  x.register_hook([&](const Tensor& g) {
    seen = std::this_thread::get_id();
    value = g[2].item<float>();  // reading waits
  });
  (x * 3).sum().backward();
  EXPECT_EQ(seen, std::this_thread::get_id());
  EXPECT_EQ(value, 3.0F);
}

TEST(QueuedDeviceRandom, NumbersDependOnNeitherTheDeviceNorTheNumberOfQueues) {
  const auto draw = [](const TensorOptions& options) {
    manual_seed(11);
    std::vector<Tensor> all;
    all.push_back(randn({1000}, options));
    all.push_back(randint(0, 1 << 20, {1000}, options));
    all.push_back(dropout(ones({5000}, options), 0.4, true));
    all.push_back(randperm(500, options));
    for (Tensor& t : all) t = t.cpu();
    return all;
  };
  const auto expected = draw({});
  for (const int n : {2, 3, 5}) {
    detail::configure_cpu_queues(n);
    for (const int i : {0, n - 1}) {
      const auto got = draw(options_on(i));
      for (std::size_t k = 0; k < got.size(); ++k) EXPECT_TRUE(got[k].equal(expected[k])) << n << " queues, draw " << k;
    }
    detail::configure_cpu_queues(0);
  }
}

}  // namespace athanor
