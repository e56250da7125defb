// Every combination of options against plain loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "athanor/nn/utils.h"
#include "athanor/ops/factory.h"
#include "athanor/optim/algorithms.h"
#include "athanor/optim/scheduler.h"

namespace athanor::optim {
namespace {

constexpr int kSteps = 6;
constexpr std::size_t kCount = 37;  // no multiple of a vector

double gradient_of(double p, std::size_t i, int step) { return std::sin(static_cast<double>(i) + step) + 0.3 * p; }

/// Runs an optimizer of the library on the gradients above.
std::vector<double> run(Optimizer& optimizer, Tensor& p) {
  for (int step = 0; step < kSteps; ++step) {
    Tensor g = empty({static_cast<std::int64_t>(kCount)}, kDouble);
    for (std::size_t i = 0; i < kCount; ++i)
      g.data_ptr<double>()[i] = gradient_of(p.detach().data_ptr<double>()[i], i, step);
    p.mutable_grad() = g;
    optimizer.step();
  }
  const auto* values = p.detach().data_ptr<double>();
  return {values, values + kCount};
}

Tensor parameter() {
  std::vector<double> values;
  for (std::size_t i = 0; i < kCount; ++i) values.push_back(-1 + 2.0 * static_cast<double>(i) / (kCount - 1));
  return tensor(values, kDouble).requires_grad_();
}

template <class Update>
std::vector<double> reference(Update update) {
  std::vector<double> out;
  for (std::size_t i = 0; i < kCount; ++i) {
    double p = parameter().detach().data_ptr<double>()[i];
    update.start();
    for (int step = 0; step < kSteps; ++step) p = update(p, gradient_of(p, i, step), step + 1);
    out.push_back(p);
  }
  return out;
}

void expect_equal(const std::vector<double>& got, const std::vector<double>& want, const std::string& what) {
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_NEAR(got[i], want[i], 1e-12) << what << ", element " << i;
}

struct SgdReference {
  SGDOptions o;
  double buffer = 0;
  bool first = true;
  void start() { buffer = 0, first = true; }
  double operator()(double p, double g, int) {
    if (o.maximize()) g = -g;
    g += o.weight_decay() * p;
    if (o.momentum() != 0) {
      buffer = first ? g : o.momentum() * buffer + (1 - o.dampening()) * g;
      first = false;
      g = o.nesterov() ? g + o.momentum() * buffer : buffer;
    }
    return p - o.lr() * g;
  }
};

struct AdamReference {
  AdamOptions o;
  bool decoupled;
  double m = 0, v = 0, top = 0;
  void start() { m = v = top = 0; }
  double operator()(double p, double g, int t) {
    const auto [b1, b2] = o.betas();
    if (o.maximize()) g = -g;
    if (decoupled)
      p *= 1 - o.lr() * o.weight_decay();
    else
      g += o.weight_decay() * p;
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    top = std::max(top, v);
    const double second = (o.amsgrad() ? top : v) / (1 - std::pow(b2, t));
    return p - o.lr() * (m / (1 - std::pow(b1, t))) / (std::sqrt(second) + o.eps());
  }
};

struct AdadeltaReference {
  AdadeltaOptions o;
  double square = 0, delta = 0;
  void start() { square = delta = 0; }
  double operator()(double p, double g, int) {
    if (o.maximize()) g = -g;
    g += o.weight_decay() * p;
    square = o.rho() * square + (1 - o.rho()) * g * g;
    const double d = std::sqrt(delta + o.eps()) / std::sqrt(square + o.eps()) * g;
    delta = o.rho() * delta + (1 - o.rho()) * d * d;
    return p - o.lr() * d;
  }
};

}  // namespace

TEST(OptimizerOptions, EveryCombinationOfSgdFollowsItsFormula) {
  for (int bits = 0; bits < 32; ++bits) {
    SGDOptions o(0.1);
    o.momentum(bits & 1 ? 0.9 : 0).dampening(bits & 2 ? 0.2 : 0).weight_decay(bits & 4 ? 0.05 : 0);
    o.nesterov((bits & 8) != 0).maximize((bits & 16) != 0);
    if (o.nesterov() && (o.momentum() == 0 || o.dampening() != 0)) {
      EXPECT_THROW(SGD({parameter()}, o), ValueError);
      continue;
    }
    Tensor p = parameter();
    SGD optimizer({p}, o);
    expect_equal(run(optimizer, p), reference(SgdReference{o}), "bits " + std::to_string(bits));
  }
}

TEST(OptimizerOptions, EveryCombinationOfAdamFollowsItsFormula) {
  for (int bits = 0; bits < 8; ++bits) {
    AdamOptions o(0.05);
    o.amsgrad((bits & 1) != 0).maximize((bits & 2) != 0).weight_decay(bits & 4 ? 0.1 : 0).betas({0.8, 0.9});
    Tensor p = parameter();
    Adam adam({p}, o);
    expect_equal(run(adam, p), reference(AdamReference{o, false}), "adam " + std::to_string(bits));
    AdamWOptions w(0.05);
    w.amsgrad(o.amsgrad()).maximize(o.maximize()).weight_decay(o.weight_decay()).betas({0.8, 0.9});
    Tensor q = parameter();
    AdamW adamw({q}, w);
    expect_equal(run(adamw, q), reference(AdamReference{w, true}), "adamw " + std::to_string(bits));
  }
}

TEST(OptimizerOptions, EveryCombinationOfAdadeltaFollowsItsFormula) {
  for (int bits = 0; bits < 4; ++bits) {
    AdadeltaOptions o(0.7);
    o.rho(0.8).maximize((bits & 1) != 0).weight_decay(bits & 2 ? 0.1 : 0);
    Tensor p = parameter();
    Adadelta optimizer({p}, o);
    expect_equal(run(optimizer, p), reference(AdadeltaReference{o}), "bits " + std::to_string(bits));
  }
}

TEST(OptimizerOptions, ParametersWithoutGradientOrElementsAreLeftAlone) {
  Tensor used = ones({2}).requires_grad_(), unused = ones({2}).requires_grad_(), nothing = ones({0}).requires_grad_();
  Adam adam({used, unused, nothing}, AdamOptions(0.1));
  used.mutable_grad() = ones({2});
  nothing.mutable_grad() = ones({0});
  adam.step();
  EXPECT_TRUE(equal(unused, ones({2})));
  EXPECT_FALSE(equal(used, ones({2})));
}

TEST(Schedulers, TwoOnOneOptimizerMultiply) {
  // PyTorch's chained StepLR(2, 0.5) and CosineAnnealingLR(6): the cosine goes on from the halved rate.
  Tensor p = zeros({1}).requires_grad_();
  SGD sgd({p}, SGDOptions(0.4));
  StepLR steps(sgd, 2, 0.5);
  CosineAnnealingLR cosine(sgd, 6);
  double expected = 0.4;
  const double pi = std::acos(-1.0);
  for (int t = 1; t <= 6; ++t) {
    steps.step();
    cosine.step();
    if (t % 2 == 0) expected *= 0.5;
    expected *= (1 + std::cos(pi * t / 6)) / (1 + std::cos(pi * (t - 1) / 6));
    EXPECT_NEAR(sgd.param_groups()[0].options().get_lr(), expected, 1e-15) << t;
  }
}

TEST(Schedulers, CosineEqualsItsClosedForm) {
  Tensor p = zeros({1}).requires_grad_();
  SGD sgd({p}, SGDOptions(0.3));
  CosineAnnealingLR cosine(sgd, 25, 0.02);
  const double pi = std::acos(-1.0);
  for (int t = 1; t <= 100; ++t) {  // two periods up and down
    cosine.step();
    EXPECT_NEAR(sgd.param_groups()[0].options().get_lr(), 0.02 + 0.28 * (1 + std::cos(pi * t / 25)) / 2, 1e-12) << t;
  }
}

TEST(ClipGradNorm, ScalesAllGradientsByOneFactor) {
  Tensor a = zeros({3}).requires_grad_(), b = zeros({2, 2}).requires_grad_(), c = zeros({1}).requires_grad_();
  const auto fill = [&] {
    a.mutable_grad() = full({3}, 2.0);
    b.mutable_grad() = full({2, 2}, -1.0).t();
  };
  fill();
  EXPECT_FLOAT_EQ(static_cast<float>(nn::utils::clip_grad_norm_({a, b, c}, 2.0)), 4.0F);
  EXPECT_TRUE(allclose(a.grad(), full({3}, 1.0)));
  EXPECT_TRUE(allclose(b.grad(), full({2, 2}, -0.5)));
  fill();
  EXPECT_FLOAT_EQ(static_cast<float>(nn::utils::clip_grad_norm_({a, b, c}, 100.0)), 4.0F);
  EXPECT_TRUE(equal(a.grad(), full({3}, 2.0)));
  EXPECT_FLOAT_EQ(static_cast<float>(nn::utils::clip_grad_norm_({a, b}, 1.0, std::numeric_limits<double>::infinity())),
                  2.0F);
  EXPECT_TRUE(allclose(a.grad(), ones({3})));
  nn::utils::clip_grad_value_({a, b, c}, 0.25);
  EXPECT_TRUE(equal(a.grad(), full({3}, 0.25)));
  EXPECT_TRUE(equal(b.grad(), full({2, 2}, -0.25)));
  EXPECT_EQ(nn::utils::clip_grad_norm_({c}, 1.0), 0.0);
  // Of order 0: how many gradients are not all zero.
  const Tensor zero = zeros({2}).requires_grad_();
  zero.mutable_grad() = zeros({2});
  EXPECT_EQ(nn::utils::clip_grad_norm_({a, b, zero, c}, 100.0, 0.0), 2.0);
  a.mutable_grad() = full({3}, std::numeric_limits<double>::quiet_NaN());
  EXPECT_THROW(nn::utils::clip_grad_norm_({a}, 1.0, 2.0, true), Error);
}

}  // namespace athanor::optim
