#include "athanor/nn/averaged_model.h"

#include <gtest/gtest.h>

#include "athanor/nn/nn.h"
#include "athanor/ops/factory.h"

namespace athanor::nn {
namespace {

struct Net : Cloneable<Net> {
  Net() { reset(); }
  void reset() override {
    fc = register_module("fc", Linear(3, 4));
    norm = register_module("norm", BatchNorm1d(4));
  }
  Tensor forward(const Tensor& x) { return norm(fc(x)); }
  Linear fc = nullptr;
  BatchNorm1d norm = nullptr;
};

void set_all(Net& net, double value) {
  const NoGradGuard off;
  for (Tensor& p : net.parameters()) p.fill_(value);
  net.norm->running_mean.fill_(10 * value);
  net.norm->num_batches_tracked.fill_(static_cast<std::int64_t>(value));
}

}  // namespace

TEST(AveragedModel, IsTheMeanOfAllUpdates) {
  Net net;
  AveragedModel average(net);
  for (const double v : {1.0, 2.0, 6.0, 7.0}) {
    set_all(net, v);
    average.update_parameters(net);
  }
  EXPECT_EQ(average.n_averaged(), 4);
  const Net& mean = average.as_model<Net>();
  for (const Tensor& p : mean.parameters()) EXPECT_TRUE(allclose(p, full_like(p, 4.0)));
  EXPECT_TRUE(equal(mean.norm->running_mean, full({4}, 70.0))) << "buffers follow the model";
  EXPECT_TRUE(equal(net.fc->weight, full({4, 3}, 7.0))) << "the model is left alone";
}

TEST(AveragedModel, ForgetsWithADecay) {
  Net net;
  AveragedModelOptions options;
  options.ema_decay = 0.75, options.use_buffers = true;
  AveragedModel average(net, options);
  double want = 0;
  for (const double v : {4.0, 8.0, 0.0, 3.0}) {
    set_all(net, v);
    average.update_parameters(net);
    want = average.n_averaged() == 1 ? v : 0.75 * want + 0.25 * v;
  }
  const Net& mean = average.as_model<Net>();
  EXPECT_TRUE(allclose(mean.fc->bias, full({4}, want)));
  EXPECT_TRUE(allclose(mean.norm->running_mean, full({4}, 10 * want)));
  EXPECT_EQ(mean.norm->num_batches_tracked.item<std::int64_t>(), 3) << "integers are copied";
}

TEST(AveragedModel, StateHasPyTorchsNamesAndGoesOn) {
  Net net;
  AveragedModel first(net), second(net);
  EXPECT_EQ(first.state_dict().keys(),
            (std::vector<std::string>{"n_averaged", "module.fc.weight", "module.fc.bias", "module.norm.weight",
                                      "module.norm.bias", "module.norm.running_mean", "module.norm.running_var",
                                      "module.norm.num_batches_tracked"}));
  set_all(net, 2);
  first.update_parameters(net);
  second.load_state_dict(first.state_dict());
  set_all(net, 4);
  second.update_parameters(net);
  EXPECT_TRUE(allclose(second.as_model<Net>().fc->weight, full({4, 3}, 3.0)));
}

TEST(AveragedModel, TakesModelsThatCannotBeCloned) {
  struct Plain : Module {
    Plain() { w = register_parameter("w", ones({2})); }
    Tensor w;
  };
  Plain plain;
  EXPECT_THROW(AveragedModel{plain}, Error);
  AveragedModel average(std::make_shared<Plain>());
  average.update_parameters(plain);
  EXPECT_TRUE(equal(average.as_model<Plain>().w, ones({2})));
}

TEST(AveragedModel, OtherModelsAreRefused) {
  Net net;
  AveragedModel average(net);
  Sequential other(Linear(3, 4));
  EXPECT_THROW(average.update_parameters(*other), ValueError);
  Sequential wider(Linear(3, 5), BatchNorm1d(5));
  EXPECT_THROW(average.update_parameters(*wider), ValueError);
  AveragedModelOptions bad;
  bad.ema_decay = 1.5;
  EXPECT_THROW(AveragedModel(net, bad), ValueError);
}

TEST(UpdateBn, StatisticsAreThoseOfAllBatchesTogether) {
  manual_seed(1);
  Net net;
  net.eval();
  std::vector<Tensor> batches;
  for (int i = 0; i < 5; ++i) batches.push_back(randn({8, 3}) + i);
  update_bn(batches, net, [&](const Tensor& batch) { net.forward(batch); });
  Tensor mean = zeros({4});
  for (const Tensor& b : batches) mean += net.fc(b).detach().mean(0) / 5;
  EXPECT_TRUE(allclose(net.norm->running_mean, mean, 1e-4, 1e-5));
  EXPECT_EQ(net.norm->num_batches_tracked.item<std::int64_t>(), 5);
  EXPECT_FALSE(net.is_training());
  EXPECT_EQ(net.norm->options.momentum(), std::optional<double>(0.1));
}

}  // namespace athanor::nn
