// Tensors of queued CPU devices in collectives and messages: what is still queued happens first, and results come back
// to the device.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "athanor/base/deadline.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/tensor.h"
#include "athanor/tensor/device_memory.h"
#include "athanor/tensor/fence.h"
#include "distributed/ranks.h"

namespace athanor::distributed {
namespace {

class QueuedTensors : public testing::Test {
 protected:
  void SetUp() override { athanor::detail::configure_cpu_queues(3); }
  void TearDown() override { athanor::detail::configure_cpu_queues(0); }

  // Each rank has its own device; work is queued on it before and after every call.
  static void run(const std::function<void(ProcessGroup&, TensorOptions)>& body) {
    ProcessGroupOptions options;
    options.backend = "tcp";
    run_ranks(
        2,
        [&](ProcessGroup& g) { body(g, TensorOptions(Device(DeviceType::CPU, static_cast<DeviceIndex>(g.rank())))); },
        options);
  }
  // `values` on the device, after some queued work.
  static Tensor late(const std::vector<float>& values, TensorOptions on) {
    Tensor x = tensor(values).to(on);
    for (int i = 0; i < 20; ++i) x.add_(1);
    return x.sub_(20);
  }
  static void expect_values(const Tensor& got, const std::vector<float>& values, TensorOptions on) {
    EXPECT_EQ(got.device(), on.device());
    EXPECT_TRUE(got.cpu().equal(tensor(values))) << got;
  }
};

TEST_F(QueuedTensors, AreReducedBroadcastAndGathered) {
  run([](ProcessGroup& g, TensorOptions on) {
    const auto me = static_cast<float>(g.rank());
    Tensor x = late({me, 2, 3}, on);
    g.all_reduce(x);
    expect_values(x.mul(2), {2, 8, 12}, on);

    x = late({me, me}, on);
    g.broadcast(x, 1);
    expect_values(x, {1, 1}, on);

    Tensor all = late({9, 9, 9, 9}, on);
    g.all_gather_into_tensor(all, late({me, me + 10}, on));
    expect_values(all, {0, 10, 1, 11}, on);

    Tensor part = late({9, 9}, on);
    g.reduce_scatter_tensor(part, late({me, 1, 2, 3}, on));
    expect_values(part, g.rank() == 0 ? std::vector<float>{1, 2} : std::vector<float>{4, 6}, on);
  });
}

TEST_F(QueuedTensors, AreTheProgramsAgainWhenTheCallIsWaitedFor) {
  run([](ProcessGroup& g, TensorOptions on) {
    Tensor x = late({1, 2}, on);
    const WorkPtr work = g.all_reduce(x, ReduceOp::SUM, true);
    work->wait();
    x.add_(1);
    expect_values(x, {3, 5}, on);
  });
}

/// Rank 1 comes when rank 0 has made its calls and enqueued what follows them.
class Late {
 public:
  void go() { gone_ = true; }
  void wait() const {
    const Deadline deadline = Deadline::after(std::chrono::seconds(10));
    while (!gone_ && !deadline.expired()) std::this_thread::yield();
  }

 private:
  std::atomic<bool> gone_{false};
};

TEST_F(QueuedTensors, ResultsAreThereForLaterWorkThatDoesNotWait) {
  for (const bool contiguous : {true, false}) {
    Late late_rank;
    run([&](ProcessGroup& g, TensorOptions on) {
      if (g.rank() == 1) late_rank.wait();
      Tensor x = late({1, 2, 3, 4}, on).view({2, 2});
      if (!contiguous) x = x.t();
      const WorkPtr work = g.all_reduce(x, ReduceOp::SUM, true);
      const Tensor doubled = x * 2;
      const Tensor elsewhere = x.to(Device(DeviceType::CPU, 2));
      x.zero_();
      if (g.rank() == 0) {
        EXPECT_FALSE(work->is_completed());
        late_rank.go();
      }
      expect_values((contiguous ? doubled : doubled.t()).reshape({4}), {4, 8, 12, 16}, on);
      EXPECT_TRUE(elsewhere.cpu().equal(doubled.cpu() / 2));
      expect_values(x.reshape({4}), {0, 0, 0, 0}, on);
      work->wait();
      expect_values(x.reshape({4}), {0, 0, 0, 0}, on);
    });
  }
}

TEST_F(QueuedTensors, ReadsOfTheHostWaitForTheCall) {
  Late late_rank;
  run([&](ProcessGroup& g, TensorOptions on) {
    if (g.rank() == 1) late_rank.wait();
    const Tensor x = late({1, 2}, on), y = late({3}, on), z = late({4}, on);
    const WorkPtr first = g.all_reduce(x, ReduceOp::SUM, true);
    const WorkPtr second = g.all_reduce(y, ReduceOp::SUM, true), third = g.all_reduce(z, ReduceOp::SUM, true);
    late_rank.go();
    EXPECT_EQ(y.item<float>(), 6);
    EXPECT_EQ(*z.data_ptr<float>(), 8);
    expect_values(x, {2, 4}, on);
    third->wait();
  });
}

TEST_F(QueuedTensors, ArgumentsMayBeOverwrittenAfterTheCall) {
  for (const bool contiguous : {true, false}) {
    Late late_rank;
    run([&](ProcessGroup& g, TensorOptions on) {
      if (g.rank() == 1) late_rank.wait();
      const auto me = static_cast<float>(g.rank());
      Tensor in = late({me, 10 + me, 20 + me, 30 + me}, on).view({2, 2});
      if (!contiguous) in = in.t();
      const Tensor all = empty({2, 2, 2}, on), sent = late({me, 5}, on), root_has = empty({2}, on);
      // The group's thread is in this one until rank 1 comes.
      const WorkPtr before = g.barrier(true);
      const WorkPtr gathered = g.all_gather_into_tensor(all, in, true);
      in.fill_(99);
      const WorkPtr summed = g.reduce(sent, 1, ReduceOp::SUM, true);
      sent.fill_(7);
      late_rank.go();
      const std::vector<float> expected = contiguous ? std::vector<float>{0, 10, 20, 30, 1, 11, 21, 31}
                                                     : std::vector<float>{0, 20, 10, 30, 1, 21, 11, 31};
      expect_values(all.reshape({8}), expected, on);
      expect_values(in.reshape({4}), {99, 99, 99, 99}, on);
      expect_values(sent, {7, 7}, on);
      summed->wait();
    });
  }
}

TEST_F(QueuedTensors, TheCacheIsEmptiedWhileCallsFreeMemoryOfTheirDevice) {
  Late late_rank;
  run([&](ProcessGroup& g, TensorOptions on) {
    if (g.rank() == 1) late_rank.wait();
    const auto me = static_cast<float>(g.rank());
    const Tensor in = late({me, 10 + me, 20 + me, 30 + me}, on).view({2, 2}).t();
    const Tensor all = empty({2, 2, 2}, on), x = late({me, 5}, on);
    // The copy that the first call sends goes on the group's thread before the second call lifts its fence.
    const WorkPtr gathered = g.all_gather_into_tensor(all, in, true);
    const WorkPtr summed = g.all_reduce(x, ReduceOp::SUM, true);
    x.zero_();
    late_rank.go();
    empty_cache(on.device());
    expect_values(all.reshape({8}), {0, 20, 10, 30, 1, 21, 11, 31}, on);
    expect_values(x, {0, 0}, on);
    summed->wait();
  });
}

TEST_F(QueuedTensors, PartsOfOneStorageMayBeArgumentAndResults) {
  run([](ProcessGroup& g, TensorOptions on) {
    const auto me = static_cast<float>(g.rank());
    const Tensor all = late({me, me, me, me}, on);
    const WorkPtr work = g.all_gather(all.chunk(2), all.chunk(2)[static_cast<std::size_t>(g.rank())], true);
    all.add_(1);
    expect_values(all, {1, 1, 2, 2}, on);
    work->wait();
  });
}

TEST_F(QueuedTensors, OtherWorkOfTheirDeviceGoesOnDuringTheCall) {
  Late late_rank;
  run([&](ProcessGroup& g, TensorOptions on) {
    if (g.rank() == 1) late_rank.wait();
    const Tensor x = late({1}, on), other = late({5}, on);
    const WorkPtr work = g.all_reduce(x, ReduceOp::SUM, true);
    EXPECT_EQ(other.mul(3).item<float>(), 15);
    late_rank.go();
    EXPECT_EQ(x.mul(3).item<float>(), 6);
    work->wait();
  });
}

// Groups have a deadline for their set-up, too: it is the other rank that ends the call.
TEST_F(QueuedTensors, WhatAFailedCallWasToWriteCannotBeRead) {
  ProcessGroupOptions options;
  options.backend = "tcp";
  run_ranks(
      2,
      [](ProcessGroup& g) {
        g.barrier();
        if (g.rank() == 1) return g.abort("it never calls");
        const TensorOptions on(Device(DeviceType::CPU, 0));
        Tensor x = late({1, 2}, on), other = late({3}, on);
        const WorkPtr work = g.all_reduce(x, ReduceOp::SUM, true);
        const Tensor derived = x + 1;
        EXPECT_THROW(work->wait(), Error);
        EXPECT_THROW(derived.cpu(), Error);
        EXPECT_THROW(x.cpu(), Error);
        EXPECT_EQ(other.mul(2).item<float>(), 6);
        x.fill_(4);
        expect_values(x, {4, 4}, on);
      },
      options);
}

TEST_F(QueuedTensors, WhatACallBehindAFailedOneWasToWriteCannotBeRead) {
  Late failure;
  ProcessGroupOptions options;
  options.backend = "tcp";
  run_ranks(
      2,
      [&](ProcessGroup& g) {
        g.barrier();
        if (g.rank() == 1) {
          failure.wait();
          return g.abort("it never calls");
        }
        const TensorOptions on(Device(DeviceType::CPU, 0));
        const Tensor x = late({1, 2}, on), y = late({3, 4}, on), all = late({5, 6, 7, 8}, on);
        const WorkPtr first = g.all_reduce(x, ReduceOp::SUM, true), second = g.all_reduce(y, ReduceOp::SUM, true);
        const WorkPtr third = g.all_gather_into_tensor(all, y, true);
        const Tensor derived = y + 1;
        failure.go();
        for (const WorkPtr& work : {first, second, third}) EXPECT_THROW(work->wait(), Error);
        EXPECT_THROW(derived.cpu(), Error);
        EXPECT_THROW(y.cpu(), Error);
        EXPECT_THROW(all.cpu(), Error);
        EXPECT_THROW(g.all_reduce(x.fill_(1)), Error);
        expect_values(x, {1, 1}, on);
      },
      options);
}

// Work that waits for what nobody gives before the end of the scope.
class HeldUp {
 public:
  explicit HeldUp(const Tensor& x) {
    athanor::detail::note_foreign_write(*x.storage(), fence_);
    x.add_(1);
  }

 private:
  athanor::detail::Fence fence_;
};

TEST_F(QueuedTensors, ThatAreStillBeingMadeAtTheDeadlineAreThisRanksFault) {
  ProcessGroupOptions options;
  options.backend = "tcp";
  options.timeout = std::chrono::milliseconds(1500);
  const Deadline limit = Deadline::after(std::chrono::seconds(50));
  std::atomic<bool> over{false};
  const RankErrors errors = errors_of_ranks(
      2,
      [&](ProcessGroup& g) {
        const TensorOptions on(Device(DeviceType::CPU, static_cast<DeviceIndex>(g.rank())));
        const Tensor x = late({1, 2}, on), y = late({3, 4}, on);
        g.barrier();
        const auto held_up = g.rank() == 0 ? std::make_unique<HeldUp>(y) : nullptr;
        if (g.rank() == 0) x.add_(1);
        // Rank 1 would reach its deadline at the same moment, and the first reason counts.
        while (g.rank() == 1 && !over && !limit.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        try {
          g.all_reduce(x);
        } catch (...) {
          over = true;
          throw;
        }
      },
      options);
  EXPECT_NE(errors[0].find("the work that this rank enqueued on cpu:0"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1], "");
}

TEST_F(QueuedTensors, ThatAreStillBeingMadeDoNotHideTheEndOfTheGroup) {
  ProcessGroupOptions options;
  options.backend = "tcp";
  options.timeout = std::chrono::seconds(100);
  const Deadline limit = Deadline::after(std::chrono::seconds(50));
  const RankErrors errors = errors_of_ranks(
      2,
      [](ProcessGroup& g) {
        g.barrier();
        if (g.rank() == 1) return g.abort("the other one's reason");
        const TensorOptions on(Device(DeviceType::CPU, 0));
        const Tensor x = late({1, 2}, on);
        const HeldUp held_up(x);
        g.all_reduce(x);
      },
      options);
  EXPECT_NE(errors[0].find("the other one's reason"), std::string::npos) << errors[0];
  EXPECT_FALSE(limit.expired());
}

TEST_F(QueuedTensors, TravelAsMessages) {
  run([](ProcessGroup& g, TensorOptions on) {
    const auto me = static_cast<float>(g.rank()), other = 1 - me;
    Tensor in = late({0, 0, 0}, on);
    const WorkPtr sent = g.isend(late({me, 5, 6}, on), 1 - g.rank());
    const WorkPtr came = g.irecv(in, 1 - g.rank());
    came->wait();
    sent->wait();
    expect_values(in.neg(), {-other, -5, -6}, on);
  });
}

TEST_F(QueuedTensors, NeedNotLieOnTheSameDeviceNorBeContiguous) {
  run([](ProcessGroup& g, TensorOptions on) {
    // Rank 0's tensor is the host's.
    if (g.rank() == 0) on = TensorOptions(Device());
    Tensor x = late({1, 2, 3, 4}, on).view({2, 2}).t();
    g.all_reduce(x);
    expect_values(x.reshape({4}), {2, 6, 4, 8}, on);
  });
}

}  // namespace
}  // namespace athanor::distributed
