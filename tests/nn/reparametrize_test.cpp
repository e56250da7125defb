// Weights computed from other parameters, and the adaptive softmax. Expected values were computed with PyTorch 2.15.
#include "athanor/optim/algorithms.h"
#include "athanor/optim/optimizer.h"
#include "helpers.h"

namespace athanor::nn {
namespace {

using test::error_of;
using test::expect_near;
using test::ramp;
using testing::ElementsAre;
using testing::HasSubstr;
using utils::remove_spectral_norm;
using utils::remove_weight_norm;
using utils::spectral_norm;
using utils::weight_norm;

Linear small_linear(bool biased = true) {
  Linear l(LinearOptions(3, 2).bias(biased));
  const NoGradGuard off;
  l->weight.copy_(ramp({2, 3}, 0.25, -0.5));
  if (biased) l->bias.copy_(tensor({0.1F, -0.2F}));
  return l;
}

std::vector<std::string> keys(const Module::StateDict& dict) {
  std::vector<std::string> out;
  for (const auto& item : dict) out.push_back(item.key());
  return out;
}

/// A module of a program: its tensor has a name that no layer knows.
struct ScaleImpl : Module {
  ScaleImpl() : factor(register_parameter("factor", ramp({2, 2}, 1, 1))) {}
  Tensor forward(const Tensor& x) { return x.mm(factor); }
  Tensor factor;
};
ATHANOR_MODULE(Scale);

}  // namespace

TEST(WeightNorm, ComputesTheWeightFromLengthAndDirection) {
  Linear fc = weight_norm(small_linear());
  EXPECT_THAT(keys(fc->state_dict()), ElementsAre("bias", "weight_g", "weight_v"));
  EXPECT_THAT(keys(fc->named_parameters()), ElementsAre("bias", "weight_g", "weight_v"));
  auto parameters = fc->named_parameters();
  Tensor g = parameters["weight_g"], v = parameters["weight_v"];
  {
    const NoGradGuard off;
    g.mul_(tensor({2.F, 3.F}).view({2, 1}));
  }
  const Tensor y = fc(ramp({2, 3}, 1.0 / 3));
  expect_near(y, {-0.066667, 1.8, -1.566667, 6.3});
  y.square().sum().backward();
  expect_near(g.grad(), {4.690774, 31.750635});
  expect_near(v.grad(), {2.124444, -4.248889, -10.622222, 12.342861, 3.085724, -6.171429});
}

TEST(WeightNorm, NormIsTakenOverAllDimsButOneOrOverAll) {
  const auto conv = [] {
    Conv2d c(2, 3, 2);
    const NoGradGuard off;
    c->weight.copy_(ramp({3, 2, 2, 2}, 1.0 / 7).sin());
    return c;
  };
  const auto g_of = [](const Conv2d& c) { return c->named_parameters()["weight_g"]; };
  EXPECT_EQ(g_of(weight_norm(conv(), "weight", 0)).sizes(), IntArrayRef({3, 1, 1, 1}));
  expect_near(g_of(weight_norm(conv(), "weight", 0)), {1.507848, 2.676212, 1.257186});
  EXPECT_EQ(g_of(weight_norm(conv(), "weight", 1)).sizes(), IntArrayRef({1, 2, 1, 1}));
  expect_near(g_of(weight_norm(conv(), "weight", 1)), {2.337138, 2.356696});
  EXPECT_EQ(g_of(weight_norm(conv(), "weight", std::nullopt)).dim(), 0);
  expect_near(g_of(weight_norm(conv(), "weight", -1)), {3.319071});
  const Tensor x = ramp({1, 2, 4, 4}, 0.1);
  for (const std::optional<std::int64_t> dim : {std::optional<std::int64_t>(0), std::optional<std::int64_t>(1), {}}) {
    Conv2d plain = conv();
    const Tensor before = plain(x);
    EXPECT_TRUE(allclose(weight_norm(plain, "weight", dim)(x), before));
  }
}

TEST(WeightNorm, TrainsThroughContainersAndIsRemovedWithItsValue) {
  Linear fc = weight_norm(small_linear());
  Sequential net(fc, Tanh());
  optim::SGD sgd(net->parameters(), 0.1);
  const Tensor x = ramp({4, 3}, 0.1);
  double first = 0, last = 0;
  for (int i = 0; i < 20; ++i) {
    sgd.zero_grad();
    const Tensor loss = (net->forward(x) - 0.5).square().mean();
    loss.backward();
    sgd.step();
    last = loss.item<double>();
    if (i == 0) first = last;
  }
  EXPECT_LT(last, 0.5 * first);
  const Tensor before = net->forward(x);
  remove_weight_norm(fc);
  EXPECT_THAT(keys(net->state_dict()), ElementsAre("0.bias", "0.weight"));
  EXPECT_TRUE(allclose(net->forward(x), before));
  EXPECT_TRUE(fc->weight.is_leaf() && fc->weight.requires_grad());
  EXPECT_TRUE(fc->weight.is_same(fc->named_parameters()["weight"]));
}

TEST(WeightNorm, ClonesAndStateDictsCarryIt) {
  Linear fc = weight_norm(small_linear());
  const Tensor x = ramp({2, 3});
  const auto copy = std::dynamic_pointer_cast<LinearImpl>(fc->clone());
  Linear twin(copy);
  EXPECT_THAT(keys(twin->state_dict()), ElementsAre("bias", "weight_g", "weight_v"));
  EXPECT_TRUE(equal(twin(x), fc(x)));
  {
    const NoGradGuard off;
    twin->named_parameters()["weight_g"].mul_(2);
  }
  EXPECT_FALSE(equal(twin(x), fc(x)));
  EXPECT_TRUE(allclose(fc(x), small_linear()(x))) << "the original is left alone";
  Linear other = weight_norm(Linear(3, 2));
  other->load_state_dict(twin->state_dict());
  EXPECT_TRUE(equal(other(x), twin(x)));
  Sequential net(fc);
  EXPECT_TRUE(equal(std::dynamic_pointer_cast<SequentialImpl>(net->clone())->forward(x), fc(x)));
}

TEST(WeightNorm, TwoForwardsMayShareOneBackward) {
  Linear fc = weight_norm(small_linear());
  const Tensor loss = fc(ramp({2, 3})).sum() + fc(ramp({1, 3})).sum();
  loss.backward();
  EXPECT_TRUE(fc->named_parameters()["weight_g"].grad().defined());
}

TEST(WeightNorm, TakesMembersOfAProgramsOwnModule) {
  Scale scale;
  const Tensor x = ramp({1, 2}, 1, 1), before = scale(x);
  weight_norm(scale, "factor", &ScaleImpl::factor);
  EXPECT_THAT(keys(scale->state_dict()), ElementsAre("factor_g", "factor_v"));
  EXPECT_TRUE(allclose(scale(x), before));
  remove_weight_norm(scale, "factor");
  EXPECT_TRUE(allclose(scale(x), before));
}

TEST(WeightNorm, RecurrentCellsHaveOneForEachWeight) {
  LSTMCell cell(3, 4);
  const Tensor x = ramp({2, 3}, 0.1), before = std::get<0>(cell(x));
  weight_norm(weight_norm(cell, "weight_ih"), "weight_hh");
  EXPECT_TRUE(allclose(std::get<0>(cell(x)), before));
  EXPECT_THAT(keys(cell->state_dict()), testing::IsSupersetOf({"weight_ih_g", "weight_hh_v"}));
}

TEST(WeightNorm, MistakesAreNamed) {
  Linear fc = weight_norm(small_linear());
  EXPECT_THAT(error_of([&] { weight_norm(fc); }), HasSubstr("LinearImpl is computed by weight_norm already"));
  EXPECT_THAT(error_of([&] { remove_spectral_norm(fc); }), HasSubstr("spectral_norm of 'weight' not found"));
  EXPECT_THAT(error_of([&] { weight_norm(fc, "speed"); }), HasSubstr("no member tensor 'speed'"));
  EXPECT_THAT(error_of([&] { weight_norm(small_linear(), "weight", 2); }), HasSubstr("dim 2 of 'weight'"));
  EXPECT_THAT(error_of([&] { weight_norm(small_linear(false), "bias"); }), HasSubstr("has no parameter 'bias'"));
  Scale scale;
  scale->factor = ones({2, 2});
  EXPECT_THAT(error_of([&] { weight_norm(scale, "factor", &ScaleImpl::factor); }), HasSubstr("another tensor"));
  EXPECT_THROW(spectral_norm(small_linear(), "weight", 0), ValueError);
}

TEST(SpectralNorm, DividesByTheLargestSingularValueAsItIsKnown) {
  Linear fc = spectral_norm(small_linear(false));
  EXPECT_THAT(keys(fc->state_dict()), ElementsAre("weight_orig", "weight_u", "weight_v"));
  EXPECT_THAT(keys(fc->named_parameters()), ElementsAre("weight_orig"));
  Tensor u = fc->named_buffers()["weight_u"], v = fc->named_buffers()["weight_v"];
  u.copy_(tensor({0.6F, 0.8F}));
  v.copy_(tensor({1.F, 2.F, 2.F}) / 3);
  const Tensor x = ramp({2, 3}, 1.0 / 3), y = fc(x);
  expect_near(y, {-0.099618, 0.796942, -0.996178, 2.590063});
  y.square().sum().backward();
  expect_near(fc->named_parameters()["weight_orig"].grad(),
              {-2.450628, -3.082630, -3.714633, 9.225677, 1.308434, -6.608810});
  expect_near(u, {-0.022721, 0.999742});
  expect_near(v, {-0.152057, 0.380143, 0.912343});
  fc->eval();
  expect_near(fc(x), {-0.099618, 0.796942, -0.996178, 2.590063});
  expect_near(u, {-0.022721, 0.999742});
}

TEST(SpectralNorm, BoundsTheWeightAfterSomeForwards) {
  manual_seed(3);
  Conv2d conv = spectral_norm(Conv2d(3, 8, 3));
  {
    const NoGradGuard off;
    conv->named_parameters()["weight_orig"].mul_(50);
  }
  const Tensor x = randn({1, 3, 5, 5});
  for (int i = 0; i < 50; ++i) conv(x);
  // Its square's largest eigenvalue, by many more steps from another start.
  const Tensor w = conv->weight.detach().reshape({8, -1});
  Tensor v = ones({8});
  for (int i = 0; i < 500; ++i) v = w.mv(w.t().mv(v / v.norm()));
  EXPECT_NEAR(std::sqrt(v.norm().item<double>()), 1, 1e-3);
}

TEST(SpectralNorm, RowsOfTransposedConvolutionsAreTheirSecondDim) {
  ConvTranspose2d conv(2, 3, 2);
  {
    const NoGradGuard off;
    conv->weight.copy_(ramp({2, 3, 2, 2}, 1.0 / 7).sin());
    conv->bias.zero_();
  }
  spectral_norm(conv);
  Tensor u = conv->named_buffers()["weight_u"];
  EXPECT_EQ(u.numel(), 3);
  EXPECT_EQ(conv->named_buffers()["weight_v"].numel(), 8);
  u.copy_(tensor({1.F, 2.F, 2.F}) / 3);
  const Tensor y = conv(ramp({1, 2, 2, 2}, 0.2));
  expect_near(y.view({-1}).slice(0, 0, 8),
              {0.275289, 0.610933, 0.343428, 0.665853, 1.471399, 0.817865, 0.418575, 0.909993});
  expect_near(u, {0.477209, 0.641014, 0.601143});
  remove_spectral_norm(conv);
  EXPECT_THAT(keys(conv->state_dict()), ElementsAre("bias", "weight"));
}

TEST(SpectralNorm, TwoForwardsInTrainingMayShareOneBackward) {
  Linear fc = spectral_norm(small_linear());
  const Tensor a = fc(ramp({2, 3})), b = fc(ramp({2, 3}, 2));
  (a.sum() - b.sum()).backward();
  EXPECT_TRUE(fc->named_parameters()["weight_orig"].grad().defined());
}

namespace {

AdaptiveLogSoftmaxWithLoss adaptive() {
  AdaptiveLogSoftmaxWithLoss a(AdaptiveLogSoftmaxWithLossOptions(8, 10, {3, 6}).div_value(2.0).head_bias(true));
  const NoGradGuard off;
  double i = 0;
  for (Tensor& p : a->parameters()) p.copy_(ramp(p.sizes(), 0.7, i++).sin());
  return a;
}

}  // namespace

TEST(AdaptiveLogSoftmax, GivesTargetsTheirLogProbability) {
  AdaptiveLogSoftmaxWithLoss a = adaptive();
  EXPECT_THAT(keys(a->state_dict()), ElementsAre("head.weight", "head.bias", "tail.0.0.weight", "tail.0.1.weight",
                                                 "tail.1.0.weight", "tail.1.1.weight"));
  Tensor x = ramp({5, 8}, 0.3).cos().requires_grad_();
  const ASMoutput out = a(x, tensor({0, 4, 9, 2, 6}));
  expect_near(out.output, {-0.287721, -8.463102, -5.427130, -4.272640, -10.874805});
  expect_near(out.loss, {5.865080});
  out.loss.backward();
  expect_near(x.grad()[1], {0.011481, -0.445343, -0.692715, -0.614292, -0.246958, 0.236524, 0.608765, 0.694694});
  expect_near(a->named_parameters()["tail.1.0.weight"].grad(),
              {-0.366526, -0.300456, -0.207548, -0.096100, 0.023932, 0.141827, 0.247053, 0.330210, -0.245530, -0.157301,
               -0.055020, 0.052175, 0.154709, 0.243424, 0.310395, 0.349639});
  const ASMoutput one = a(x[1].detach(), tensor(4));
  EXPECT_EQ(one.output.dim(), 0);
  expect_near(one.output, {-8.463102});
}

TEST(AdaptiveLogSoftmax, KnowsAllClassesAndTheLikeliest) {
  AdaptiveLogSoftmaxWithLoss a = adaptive();
  const Tensor x = ramp({5, 8}, 0.3).cos(), all = a->log_prob(x);
  expect_near(all[1], {-2.625718, -2.462575, -1.953905, -2.293522, -8.463102, -1.797699, -4.959022, -2.033205,
                       -1.284471, -3.955767});
  EXPECT_TRUE(allclose(all.exp().sum(1), ones({5})));
  EXPECT_TRUE(equal(a->predict(x), tensor({0, 8, 2, 0, 3})));
  EXPECT_TRUE(equal(a->predict(x), all.argmax(1)));
}

TEST(AdaptiveLogSoftmax, MistakesAreNamed) {
  AdaptiveLogSoftmaxWithLoss a = adaptive();
  const Tensor x = ramp({2, 8});
  EXPECT_THAT(error_of([&] { a(x, tensor({0, 10})); }), HasSubstr("[0, 9], but values in range [0, 10]"));
  EXPECT_THAT(error_of([&] { a(x, tensor({0, -1})); }), HasSubstr("[0, 9], but values in range [-1, 0]"));
  EXPECT_THAT(error_of([&] { a(x, tensor({0})); }), HasSubstr("shapes [2, 8] and [1]"));
  for (const std::vector<std::int64_t>& cutoffs : {std::vector<std::int64_t>{}, {0}, {3, 3}, {4, 2}, {10}})
    EXPECT_THROW(AdaptiveLogSoftmaxWithLoss(8, 10, cutoffs), ValueError);
}

}  // namespace athanor::nn
