// Steps of the optimizers in everyday use: one pass over flat memory for each SIMD target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/optim.cpp"
#include "athanor/device/cpu/simd_targets.h"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

#include <cmath>
#include <type_traits>

#include "athanor/device/cpu/optim_rules-inl.h"
#include "athanor/device/cpu/tensor_ranges.h"
#include "athanor/ops/kernels/optim.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace {

template <class C>
struct PlainSgd {
  static constexpr int states = 0;
  Seen<C> gradient;
  C lr;
  void operator()(C& x, C g, C&, C&, C&) const { x -= lr * gradient(g, x); }
};

template <class C, bool kNesterov, bool kFirst>
struct MomentumSgd {
  static constexpr int states = 1;
  Seen<C> gradient;
  C lr, momentum, take;
  void operator()(C& x, C g, C& buffer, C&, C&) const {
    const C d = gradient(g, x);
    buffer = settled(kFirst ? d : momentum * buffer + take * d);  // a fresh buffer may hold NaN
    x -= lr * (kNesterov ? d + momentum * buffer : buffer);
  }
};

template <class C, bool kAmsgrad>
struct AdamRule {
  static constexpr int states = kAmsgrad ? 3 : 2;
  Seen<C> gradient;
  C shrink, beta1, beta2, take1, take2, rate, scale, eps, least;
  void operator()(C& x, C g, C& average, C& square, C& most) const {
    x *= shrink;
    const C d = gradient(g, x);
    average = settled(beta1 * average + take1 * d);
    square = settled(beta2 * square + take2 * d * d, least);
    // A square that is not a number stays one.
    if (kAmsgrad) most = most >= square ? most : square;
    x -= rate * average / (std::sqrt(kAmsgrad ? most : square) * scale + eps);
  }
};

template <class C>
struct AdadeltaRule {
  static constexpr int states = 2;
  Seen<C> gradient;
  C lr, rho, take, eps, least;
  void operator()(C& x, C g, C& square, C& delta, C&) const {
    const C d = gradient(g, x);
    square = settled(rho * square + take * d * d, least);
    const C u = std::sqrt(delta + eps) / std::sqrt(square + eps) * d;
    delta = settled(rho * delta + take * u * u, least);
    x -= lr * u;
  }
};

template <class C>
struct AdagradRule {
  static constexpr int states = 1;
  Seen<C> gradient;
  C lr, eps;
  void operator()(C& x, C g, C& sum, C&, C&) const {
    const C d = gradient(g, x);
    sum += d * d;
    x -= lr * d / (std::sqrt(sum) + eps);
  }
};

/// The states that are not there come last.
template <class C, bool kCentered, bool kMomentum>
struct RmspropRule {
  static constexpr int states = 1 + kCentered + kMomentum;
  Seen<C> gradient;
  C lr, alpha, take, eps, momentum, least;
  void operator()(C& x, C g, C& square, C& second, C& third) const {
    const C d = gradient(g, x);
    square = alpha * square + take * d * d;
    if (kCentered) second = settled(second + take * (d - second));
    // Never less than the mean's square.
    square = !kCentered || second == 0 ? settled(square, least) : square;
    const C mean_square = kCentered ? square - second * second : square;
    const C direction = d / (std::sqrt(mean_square) + eps);
    if (kMomentum) {
      C& buffer = kCentered ? third : second;
      buffer = settled(momentum * buffer + direction);
      x -= lr * buffer;
    } else {
      x -= lr * direction;
    }
  }
};

}  // namespace

void multiply_out(const View& product, std::int64_t begin, std::int64_t count, float* __restrict to) {
  const std::int64_t cols = product.size(1);
  const float *column = product.ptr<float>(), *row = column + product.size(0);
  for (std::int64_t i = begin / cols, j = begin % cols; count > 0; ++i, j = 0) {
    const std::int64_t n = std::min(count, cols - j);
    const float value = column[i];
    for (std::int64_t q = 0; q < n; ++q) to[q] = value * row[j + q];
    to += n, count -= n;
  }
}

void sgd_step(const View& p, const View* state, const View& g, std::int64_t b, std::int64_t e, const SgdStep& s) {
  step_any("SGD", {p, state, g}, b, e, [&]<class C>(C) { return PlainSgd<C>{seen<C>(s), static_cast<C>(s.lr)}; });
}

void momentum_step(const View& p, const View* state, const View& g, std::int64_t b, std::int64_t e, const SgdStep& s) {
  const auto run = [&]<bool kNesterov, bool kFirst>() {
    step_any("SGD", {p, state, g}, b, e, [&]<class C>(C) {
      return MomentumSgd<C, kNesterov, kFirst>{seen<C>(s), static_cast<C>(s.lr), static_cast<C>(s.momentum),
                                               static_cast<C>(1 - s.dampening)};
    });
  };
  if (s.nesterov)
    s.first ? run.template operator()<true, true>() : run.template operator()<true, false>();
  else
    s.first ? run.template operator()<false, true>() : run.template operator()<false, false>();
}

void adam_step(const View& p, const View* state, const View& g, std::int64_t b, std::int64_t e, const AdamStep& s) {
  const auto run = [&]<bool kAmsgrad>() {
    step_any("Adam", {p, state, g}, b, e, [&]<class C>(C) {
      AdamRule<C, kAmsgrad> rule{};
      rule.gradient = seen<C>(s.maximize, s.decoupled ? 0 : s.weight_decay);
      rule.shrink = static_cast<C>(s.decoupled ? 1 - s.lr * s.weight_decay : 1);
      rule.beta1 = static_cast<C>(s.beta1), rule.take1 = static_cast<C>(1 - s.beta1);
      rule.beta2 = static_cast<C>(s.beta2), rule.take2 = static_cast<C>(1 - s.beta2);
      rule.rate = static_cast<C>(s.lr / s.bias_correction1);
      rule.scale = static_cast<C>(1 / std::sqrt(s.bias_correction2));
      rule.eps = static_cast<C>(s.eps);
      rule.least = least_square<C>(s.eps, 1 - s.beta2, rule.scale);
      return rule;
    });
  };
  s.amsgrad ? run.template operator()<true>() : run.template operator()<false>();
}

void adadelta_step(const View& p, const View* state, const View& g, std::int64_t b, std::int64_t e,
                   const AdadeltaStep& s) {
  step_any("Adadelta", {p, state, g}, b, e, [&]<class C>(C) {
    return AdadeltaRule<C>{seen<C>(s),
                           static_cast<C>(s.lr),
                           static_cast<C>(s.rho),
                           static_cast<C>(1 - s.rho),
                           static_cast<C>(s.eps),
                           least_square<C>(std::sqrt(s.eps), 1 - s.rho)};
  });
}

void adagrad_step(const View& p, const View* state, const View& g, std::int64_t b, std::int64_t e,
                  const AdagradStep& s) {
  step_any("Adagrad", {p, state, g}, b, e, [&]<class C>(C) {
    return AdagradRule<C>{seen<C>(s), static_cast<C>(s.lr), static_cast<C>(s.eps)};
  });
}

void rmsprop_step(const View& p, const View* state, const View& g, std::int64_t b, std::int64_t e,
                  const RmspropStep& s) {
  const auto run = [&]<bool kCentered, bool kMomentum>() {
    step_any("RMSprop", {p, state, g}, b, e, [&]<class C>(C) {
      return RmspropRule<C, kCentered, kMomentum>{seen<C>(s),
                                                  static_cast<C>(s.lr),
                                                  static_cast<C>(s.alpha),
                                                  static_cast<C>(1 - s.alpha),
                                                  static_cast<C>(s.eps),
                                                  static_cast<C>(s.momentum),
                                                  least_square<C>(s.eps, 1 - s.alpha)};
    });
  };
  if (s.centered)
    s.momentum > 0 ? run.template operator()<true, true>() : run.template operator()<true, false>();
  else
    s.momentum > 0 ? run.template operator()<false, true>() : run.template operator()<false, false>();
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {

HWY_EXPORT(multiply_out);
void multiply_out(const View& product, std::int64_t begin, std::int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(multiply_out)(product, begin, count, to);
}

namespace {

HWY_EXPORT(sgd_step);
HWY_EXPORT(momentum_step);
HWY_EXPORT(adam_step);
HWY_EXPORT(adadelta_step);
HWY_EXPORT(adagrad_step);
HWY_EXPORT(rmsprop_step);

void sgd(ArrayRef<View> params, ArrayRef<View> state, ArrayRef<View> grads, SgdStep s) {
  if (state.empty())
    for_steps(params, state, grads, [&](auto&&... a) { HWY_DYNAMIC_DISPATCH(sgd_step)(a..., s); });
  else
    for_steps(params, state, grads, [&](auto&&... a) { HWY_DYNAMIC_DISPATCH(momentum_step)(a..., s); });
}

#define ATHANOR_STEP(name, Step)                                                                       \
  void name(ArrayRef<View> params, ArrayRef<View> state, ArrayRef<View> grads, Step s) {               \
    for_steps(params, state, grads, [&](auto&&... a) { HWY_DYNAMIC_DISPATCH(name##_step)(a..., s); }); \
  }                                                                                                    \
  ATHANOR_REGISTER_KERNEL(name##_step_kernel, CPU, &name)
ATHANOR_STEP(adam, AdamStep);
ATHANOR_STEP(adadelta, AdadeltaStep);
ATHANOR_STEP(adagrad, AdagradStep);
ATHANOR_STEP(rmsprop, RmspropStep);
#undef ATHANOR_STEP
ATHANOR_REGISTER_KERNEL(sgd_step_kernel, CPU, &sgd);

}  // namespace
}  // namespace athanor::cpu
#endif
