// Steps of the optimizers that few programs use: the same loops, compiled for the lowest SIMD target only.
#include <algorithm>
#include <cmath>

#include "athanor/device/cpu/optim_rules-inl.h"
#include "athanor/device/cpu/tensor_ranges.h"
#include "athanor/ops/kernels/optim.h"

namespace athanor::cpu {
namespace {

using namespace HWY_NAMESPACE;  // step_any and what it needs

template <class C>
struct AdamaxRule {
  static constexpr int states = 2;
  Seen<C> gradient;
  C lr, take, beta2, eps;
  void operator()(C& x, C g, C& average, C& largest, C&) const {
    const C d = gradient(g, x);
    average = settled(average + take * (d - average));
    const C decayed = beta2 * largest, now = std::abs(d) + eps;
    largest = decayed > now || decayed != decayed ? decayed : now;
    x -= lr * average / largest;
  }
};

template <class C>
struct AdamRelativeRule {
  static constexpr int states = 2;
  Seen<C> gradient;
  C shrink, take1, beta2, take2, average_rate, gradient_rate, scale, eps, least;
  bool adaptive;
  void operator()(C& x, C g, C& average, C& square, C&) const {
    x *= shrink;
    const C d = gradient(g, x);
    average = settled(average + take1 * (d - average));
    square = settled(beta2 * square + take2 * d * d, least);
    const C direction = average_rate * average + gradient_rate * d;
    x -= adaptive ? direction / (std::sqrt(square) * scale + eps) : direction;
  }
};

template <class C>
struct AsgdRule {
  static constexpr int states = 1;
  Seen<C> gradient;
  C eta, shrink, mu;
  void operator()(C& x, C g, C& mean, C&, C&) const {
    const C d = gradient(g, x);
    x = x * shrink - eta * d;
    mean = mu == 1 ? x : mean + mu * (x - mean);
  }
};

template <class C>
struct RpropRule {
  static constexpr int states = 2;
  C sign, eta_minus, eta_plus, smallest, largest;
  void operator()(C& x, C g, C& previous, C& size, C&) const {
    C d = sign * g;
    const C agreement = d * previous;
    const C factor = agreement > 0 ? eta_plus : agreement < 0 ? eta_minus : C(1);
    size = std::min(std::max(size * factor, smallest), largest);
    if (agreement < 0) d = 0;
    x -= d > 0 ? size : d < 0 ? -size : d;  // d is 0 or not a number
    previous = d;
  }
};

void adamax(ArrayRef<View> params, ArrayRef<View> state, ArrayRef<View> grads, AdamaxStep s) {
  for_steps(params, state, grads, [&](auto& p, auto* own, auto& g, std::int64_t b, std::int64_t e) {
    step_any("Adamax", {p, own, g}, b, e, [&]<class C>(C) {
      return AdamaxRule<C>{seen<C>(s), static_cast<C>(s.lr), static_cast<C>(1 - s.beta1), static_cast<C>(s.beta2),
                           static_cast<C>(s.eps)};
    });
  });
}

void adam_relative(ArrayRef<View> params, ArrayRef<View> state, ArrayRef<View> grads, AdamRelativeStep s) {
  for_steps(params, state, grads, [&](auto& p, auto* own, auto& g, std::int64_t b, std::int64_t e) {
    step_any("NAdam", {p, own, g}, b, e, [&]<class C>(C) {
      AdamRelativeRule<C> rule{};
      rule.gradient = seen<C>(s.maximize, s.decoupled ? 0 : s.weight_decay);
      rule.shrink = static_cast<C>(s.shrink);
      rule.take1 = static_cast<C>(1 - s.beta1);
      rule.beta2 = static_cast<C>(s.beta2), rule.take2 = static_cast<C>(1 - s.beta2);
      rule.average_rate = static_cast<C>(s.average_rate), rule.gradient_rate = static_cast<C>(s.gradient_rate);
      rule.scale = static_cast<C>(1 / std::sqrt(s.bias_correction2));
      rule.eps = static_cast<C>(s.eps);
      rule.least = least_square<C>(s.eps, 1 - s.beta2, rule.scale);
      rule.adaptive = s.adaptive;
      return rule;
    });
  });
}

void asgd(ArrayRef<View> params, ArrayRef<View> state, ArrayRef<View> grads, AsgdStep s) {
  for_steps(params, state, grads, [&](auto& p, auto* own, auto& g, std::int64_t b, std::int64_t e) {
    step_any("ASGD", {p, own, g}, b, e, [&]<class C>(C) {
      return AsgdRule<C>{seen<C>(s), static_cast<C>(s.eta), static_cast<C>(1 - s.lambd * s.eta), static_cast<C>(s.mu)};
    });
  });
}

void rprop(ArrayRef<View> params, ArrayRef<View> state, ArrayRef<View> grads, RpropStep s) {
  for_steps(params, state, grads, [&](auto& p, auto* own, auto& g, std::int64_t b, std::int64_t e) {
    step_any("Rprop", {p, own, g}, b, e, [&]<class C>(C) {
      return RpropRule<C>{s.maximize ? C(-1) : C(1), static_cast<C>(s.eta_minus), static_cast<C>(s.eta_plus),
                          static_cast<C>(s.smallest), static_cast<C>(s.largest)};
    });
  });
}

ATHANOR_REGISTER_KERNEL(adamax_step_kernel, CPU, &adamax);
ATHANOR_REGISTER_KERNEL(adam_relative_step_kernel, CPU, &adam_relative);
ATHANOR_REGISTER_KERNEL(asgd_step_kernel, CPU, &asgd);
ATHANOR_REGISTER_KERNEL(rprop_step_kernel, CPU, &rprop);

}  // namespace
}  // namespace athanor::cpu
