// Calls that write lists of tensors, on queues: order, several devices in one optimizer, and failures.
#include <gtest/gtest.h>

#include "athanor/nn/utils.h"
#include "athanor/ops/factory.h"
#include "athanor/optim/adaptive.h"
#include "athanor/optim/grad_scaler.h"
#include "athanor/tensor/stream.h"

namespace athanor::optim {
namespace {

class OptimizersOnQueues : public ::testing::Test {
 protected:
  void SetUp() override { athanor::detail::configure_cpu_queues(2); }
  void TearDown() override { athanor::detail::configure_cpu_queues(0); }
  static TensorOptions on(int index) { return TensorOptions(Device(DeviceType::CPU, static_cast<std::int8_t>(index))); }

  /// The parameters after five steps, on the host; the devices they lie on should not matter.
  static std::vector<Tensor> train(std::initializer_list<TensorOptions> where) {
    std::vector<Tensor> params;
    for (const TensorOptions& o : where)
      params.push_back(arange(50, TensorOptions(kFloat)).sin().to(o).requires_grad_());
    NAdam optimizer(params, NAdamOptions(0.05));
    amp::GradScaler scaler;
    for (int step = 0; step < 5; ++step) {
      for (Tensor& p : params) p.mutable_grad() = (p.detach() * 3 + step).cos() * scaler.get_scale();
      scaler.unscale_(optimizer);
      EXPECT_GT(nn::utils::clip_grad_norm_(params, 1.5), 1.5);
      scaler.step(optimizer);
      scaler.update();
    }
    std::vector<Tensor> out;
    for (const Tensor& p : params) out.push_back(p.detach().cpu());
    return out;
  }
};

}  // namespace

TEST_F(OptimizersOnQueues, GiveTheSameBitsAsOnTheHost) {
  const auto host = train({TensorOptions(), TensorOptions(), TensorOptions(), TensorOptions()});
  const auto queued = train({on(0), on(0), on(0), on(0)}), mixed = train({on(0), on(1), TensorOptions(), on(0)});
  for (std::size_t i = 0; i < host.size(); ++i) {
    EXPECT_TRUE(equal(host[i], queued[i])) << i;
    EXPECT_TRUE(allclose(host[i], mixed[i], 1e-6, 1e-6)) << i << ": norms of several devices are added up otherwise";
  }
}

TEST_F(OptimizersOnQueues, ReadersOfAnotherQueueAreWaitedFor) {
  Tensor p = ones({100000}, on(0)).requires_grad_();
  SGD sgd({p}, SGDOptions(1.0));
  for (int i = 0; i < 20; ++i) {
    p.mutable_grad() = ones({100000}, on(0));
    const Tensor before = p.detach().to(on(1));
    sgd.step();
    EXPECT_TRUE(equal(before.cpu(), full({100000}, 1.0 - i))) << i;
  }
  EXPECT_TRUE(equal(p.detach().cpu(), full({100000}, -19.0)));
}

}  // namespace athanor::optim
