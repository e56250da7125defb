// Tensors of queued CPU devices in collectives and messages: what is still queued happens first, and results come back
// to the device.
#include <gtest/gtest.h>

#include "athanor/ops/factory.h"
#include "athanor/ops/tensor.h"
#include "distributed/ranks.h"

namespace athanor::distributed {
namespace {

class QueuedTensors : public testing::Test {
 protected:
  void SetUp() override { athanor::detail::configure_cpu_queues(2); }
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

TEST_F(QueuedTensors, AreReadWhenAnAsyncCallIsMadeAndWrittenWhenItIsWaitedFor) {
  run([](ProcessGroup& g, TensorOptions on) {
    Tensor x = late({1, 2}, on);
    const WorkPtr work = g.all_reduce(x, ReduceOp::SUM, true);
    work->wait();
    x.add_(1);
    expect_values(x, {3, 5}, on);
  });
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
