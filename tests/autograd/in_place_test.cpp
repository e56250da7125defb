/// In-place changes beside hooks, kept gradients, leaves that are views, and gradients of gradients.

#include <gtest/gtest.h>

#include <cmath>

#include "athanor/autograd/autograd.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/tensor.h"

namespace athanor {
namespace {

Tensor changed_leaf(std::vector<double> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  return from_blob(values.data(), {n}, kDouble).clone().requires_grad_();
}

std::vector<double> changed_numbers(const Tensor& t) {
  const Tensor flat = t.detach().contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

using ChangedNumbers = std::vector<double>;

TEST(InPlaceGradients, OverwrittenValuesHaveAGradientOfZero) {
  for (int how = 0; how < 4; ++how) {
    const Tensor x = changed_leaf({1, 2});
    Tensor y = x * 2;
    if (how == 0) y.zero_();
    if (how == 1) y.fill_(3);
    if (how == 2) y.copy_(ones({2}, kDouble));
    if (how == 3) y.uniform_();
    EXPECT_EQ(changed_numbers(autograd::grad({y.sum()}, {x}, {}, true)[0]), (ChangedNumbers{0, 0})) << how;
    y.sum().backward();
    ASSERT_TRUE(x.grad().defined()) << how;
    EXPECT_EQ(changed_numbers(x.grad()), (ChangedNumbers{0, 0})) << how;
  }
}

TEST(InPlaceGradients, AnOverwrittenPartHasAGradientOfZero) {
  const Tensor x = changed_leaf({1, 2, 3});
  Tensor y = x * 2;
  y[1].zero_();
  y[2].copy_(x[0]);
  y.sum().backward();
  EXPECT_EQ(changed_numbers(x.grad()), (ChangedNumbers{3, 0, 0}));
}

TEST(InPlaceGradients, TwiceThroughAResultKeptByAChangeOfAView) {
  const Tensor x = changed_leaf({0.5, 1.0});
  Tensor y = x * 1.5;
  Tensor part = y[0];
  part.exp_();
  const Tensor first = autograd::grad({y.sin().sum()}, {x}, {}, {}, true)[0];
  const Tensor second = autograd::grad({(first * first).sum()}, {x})[0];
  // f(a) = sin(exp(1.5 a)), g(b) = sin(1.5 b)
  const double u = std::exp(0.75), f1 = 1.5 * u * std::cos(u), f2 = 2.25 * (u * std::cos(u) - u * u * std::sin(u));
  const double g1 = 1.5 * std::cos(1.5), g2 = -2.25 * std::sin(1.5);
  EXPECT_NEAR(second[0].item<double>(), 2 * f1 * f2, 1e-12);
  EXPECT_NEAR(second[1].item<double>(), 2 * g1 * g2, 1e-12);
}

TEST(InPlaceGradients, ALeafThatIsAViewIsNotChangedThroughItsViews) {
  Tensor x = ones({4}, kDouble).view({2, 2});
  x.requires_grad_();
  const Tensor scale = changed_leaf({2});
  EXPECT_THROW(x[0].copy_(scale.expand({2})), Error);
  EXPECT_THROW(x.select(0, 1).select(0, 1).mul_(2), Error);
  EXPECT_EQ(changed_numbers(x), (ChangedNumbers{1, 1, 1, 1}));
  {
    const NoGradGuard off;
    x[0].mul_(3);
  }
  (x * x).sum().backward();
  EXPECT_EQ(changed_numbers(x.grad()), (ChangedNumbers{6, 6, 2, 2}));
}

TEST(InPlaceGradients, ViewsFromBeforeGetTheHistoryOfTheirBase) {
  const Tensor w = changed_leaf({1, 2, 3, 4});
  Tensor base = ones({4}, kDouble), view = base.slice(0, 0, 2), other;
  {
    const NoGradGuard off;
    other = base.slice(0, 2, 4);
  }
  EXPECT_FALSE(view.requires_grad());
  base.mul_(w);
  EXPECT_TRUE(view.requires_grad() && other.requires_grad());
  ((view * 3).sum() + (other * 5).sum()).backward();
  EXPECT_EQ(changed_numbers(w.grad()), (ChangedNumbers{3, 3, 5, 5}));
  Tensor plain = ones({4}, kDouble), part = plain.slice(0, 0, 2);
  plain.mul_(2);
  EXPECT_FALSE(part.requires_grad()) << "a change without gradients is no history";
}

TEST(RetainGrad, IsForTheNewestValue) {
  const Tensor x = changed_leaf({1, 2});
  Tensor y = x * 2;
  y.retain_grad();
  y.mul_(3);
  (y * y).sum().backward();
  EXPECT_EQ(changed_numbers(y.grad()), (ChangedNumbers{12, 24}));
}

TEST(RetainGrad, FollowsAChangeOfAView) {
  const Tensor x = changed_leaf({1, 2});
  Tensor y = x * 2;
  y.retain_grad();
  y[0].mul_(2);
  (y * y).sum().backward();
  EXPECT_EQ(changed_numbers(y.grad()), (ChangedNumbers{8, 8}));
  EXPECT_EQ(changed_numbers(x.grad()), (ChangedNumbers{32, 16}));
}

TEST(RetainGrad, OfAViewFollowsAChangeOfItsBase) {
  const Tensor x = changed_leaf({1, 2});
  Tensor y = x * 2;
  Tensor part = y.narrow(0, 0, 1);
  part.retain_grad();
  y.mul_(2);
  (y * part).sum().backward();
  EXPECT_EQ(changed_numbers(part.grad()), (ChangedNumbers{12}));
}

TEST(RetainGrad, OnlyTheTensorThatAskedMovesWithItsNode) {
  const Tensor x = changed_leaf({1, 2});
  Tensor y = x * 2;
  y.retain_grad();
  Tensor z = y * 1;
  z.retain_grad();
  z.mul_(5);
  z.sum().backward();
  EXPECT_EQ(changed_numbers(y.grad()), (ChangedNumbers{5, 5}));
  EXPECT_EQ(changed_numbers(z.grad()), (ChangedNumbers{1, 1}));
}

TEST(LeafHooks, ChangeWhatGradReturns) {
  const Tensor x = changed_leaf({1, 2});
  int calls = 0;
  x.register_hook([&](const Tensor& g) {
    ++calls;
    return g * 10;
  });
  EXPECT_EQ(changed_numbers(autograd::grad({(x * x).sum()}, {x})[0]), (ChangedNumbers{20, 40}));
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(x.grad().defined());
  const Tensor first = autograd::grad({(x * x).sum()}, {x}, {}, {}, true)[0];
  EXPECT_EQ(changed_numbers(autograd::grad({first.sum()}, {x})[0]), (ChangedNumbers{200, 200}));
  EXPECT_EQ(calls, 3);
}

TEST(LeafHooks, RunOnceInABackwardForInputs) {
  const Tensor x = changed_leaf({1, 2});
  int calls = 0;
  x.register_hook([&](const Tensor& g) {
    ++calls;
    return g * 10;
  });
  autograd::backward({(x * x).sum()}, {}, {}, false, {x});
  EXPECT_EQ(changed_numbers(x.grad()), (ChangedNumbers{20, 40}));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace athanor
