#include "athanor/optim/grad_scaler.h"

#include <gtest/gtest.h>

#include <limits>

#include "athanor/nn/utils.h"
#include "athanor/ops/factory.h"
#include "athanor/optim/algorithms.h"

namespace athanor::amp {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

GradScalerOptions options(double scale, std::int64_t interval = 2000) {
  GradScalerOptions o;
  o.init_scale = scale, o.growth_interval = interval;
  return o;
}

}  // namespace

TEST(GradScaler, StepIsThatOfUnscaledGradients) {
  Tensor p = ones({3}).requires_grad_();
  optim::SGD sgd({p}, optim::SGDOptions(0.1));
  GradScaler scaler(options(1024));
  scaler.scale((p * p).sum()).backward();
  EXPECT_TRUE(equal(p.grad(), full({3}, 2048.0)));
  scaler.step(sgd);
  EXPECT_TRUE(equal(p.grad(), full({3}, 2.0)));
  EXPECT_TRUE(allclose(p, full({3}, 0.8)));
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 1024);
}

TEST(GradScaler, GradientThatIsNotFiniteSkipsTheStepAndLowersTheScale) {
  for (const double bad : {kInf, -kInf, std::numeric_limits<double>::quiet_NaN()}) {
    for (const std::int64_t where : {0, 5, 36, 69999}) {
      Tensor p = ones({70000}).requires_grad_(), q = ones({2}).requires_grad_();
      optim::SGD sgd({q, p}, optim::SGDOptions(0.1));
      GradScaler scaler(options(8));
      p.mutable_grad() = ones({70000});
      q.mutable_grad() = ones({2});
      p.mutable_grad().select(0, where).fill_(bad);
      scaler.step(sgd);
      EXPECT_TRUE(scaler.found_inf(sgd));
      EXPECT_TRUE(equal(p, ones({70000}))) << bad << " at " << where;
      EXPECT_TRUE(equal(q, ones({2})));
      scaler.update();
      EXPECT_EQ(scaler.get_scale(), 4);
    }
  }
}

TEST(GradScaler, ScaleGrowsAfterAnIntervalWithoutSkippedSteps) {
  Tensor p = ones({2}).requires_grad_();
  optim::SGD sgd({p}, optim::SGDOptions(0.0));
  GradScaler scaler(options(16, 3));
  std::vector<double> scales;
  for (const double g : {1.0, 1.0, 1.0, 1.0, kInf, 1.0, 1.0, 1.0}) {
    p.mutable_grad() = full({2}, g);
    scaler.step(sgd);
    scaler.update();
    scales.push_back(scaler.get_scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{16, 16, 32, 32, 16, 16, 16, 32}));
}

TEST(GradScaler, UnscalingFirstAllowsClipping) {
  Tensor p = ones({4}).requires_grad_();
  optim::SGD sgd({p}, optim::SGDOptions(1.0));
  GradScaler scaler(options(256));
  scaler.scale((p * 3).sum()).backward();
  scaler.unscale_(sgd);
  EXPECT_NEAR(nn::utils::clip_grad_norm_({p}, 1.0), 6.0, 1e-6);
  scaler.step(sgd);
  EXPECT_TRUE(allclose(p, full({4}, 0.5)));
}

TEST(GradScaler, AnyLayoutAndDtypeOfGradientsIsUnscaled) {
  Tensor p = ones({4, 3}).requires_grad_(), q = ones({3}, kDouble).requires_grad_(),
         r = ones({3}, kBFloat16).requires_grad_();
  p.mutable_grad() = full({3, 8}, 8.0).t().slice(0, 0, 8, 2);
  q.mutable_grad() = full({3}, 8.0, kDouble);
  r.mutable_grad() = full({3}, 8.0, kBFloat16);
  optim::SGD sgd({p, q, r}, optim::SGDOptions(0.5));
  GradScaler scaler(options(4));
  scaler.step(sgd);
  EXPECT_FALSE(scaler.found_inf(sgd));
  EXPECT_TRUE(equal(p, zeros({4, 3})));
  EXPECT_TRUE(equal(q, zeros({3}, kDouble)));
  EXPECT_TRUE(equal(r, zeros({3}, kBFloat16)));
}

TEST(GradScaler, HalfPrecisionLossBecomesFloat32BeforeItIsScaled) {
  GradScaler scaler;
  const Tensor scaled = scaler.scale(full({}, 4.0, kHalf));
  EXPECT_EQ(scaled.dtype(), kFloat);
  EXPECT_EQ(scaled.item<float>(), 4 * 65536.0F);
  EXPECT_EQ(scaler.scale(ones({2, 3}, kHalf)).sizes(), IntArrayRef({2, 3}));
}

TEST(GradScaler, WrongOrderOfCallsIsRefused) {
  Tensor p = ones({2}).requires_grad_();
  p.mutable_grad() = ones({2});
  optim::SGD sgd({p}, optim::SGDOptions(0.1));
  GradScaler scaler;
  EXPECT_THROW(scaler.update(), Error);
  scaler.unscale_(sgd);
  EXPECT_THROW(scaler.unscale_(sgd), Error);
  scaler.step(sgd);
  EXPECT_THROW(scaler.step(sgd), Error);
  EXPECT_THROW(scaler.unscale_(sgd), Error);
  scaler.update();
  scaler.step(sgd);
  Tensor h = ones({2}, kHalf).requires_grad_();
  h.mutable_grad() = ones({2}, kHalf);
  optim::SGD half({h}, optim::SGDOptions(0.1));
  EXPECT_THROW(scaler.unscale_(half), ValueError);
}

TEST(GradScaler, DisabledOneHandsEverythingThrough) {
  GradScalerOptions off;
  off.enabled = false;
  GradScaler scaler(off);
  Tensor p = ones({2}).requires_grad_();
  optim::SGD sgd({p}, optim::SGDOptions(0.5));
  const Tensor loss = p.sum();
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  loss.backward();
  scaler.unscale_(sgd);
  scaler.step(sgd);
  scaler.update();
  EXPECT_TRUE(equal(p, full({2}, 0.5)));
  EXPECT_EQ(scaler.get_scale(), 1);
  EXPECT_TRUE(scaler.state_dict().empty());
}

TEST(GradScaler, StateGoesOnWhereItWasSaved) {
  Tensor p = ones({2}).requires_grad_();
  optim::SGD sgd({p}, optim::SGDOptions(0.0));
  GradScaler first(options(16, 3));
  p.mutable_grad() = ones({2});
  first.step(sgd), first.update();
  first.step(sgd), first.update();
  GradScaler second;
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(second.get_scale(), 16);
  second.step(sgd), second.update();
  EXPECT_EQ(second.get_scale(), 32) << "two good updates came from the state";
  auto broken = first.state_dict();
  broken.erase("scale");
  EXPECT_THROW(second.load_state_dict(broken), ValueError);
  EXPECT_EQ(second.get_scale(), 32);
}

}  // namespace athanor::amp
