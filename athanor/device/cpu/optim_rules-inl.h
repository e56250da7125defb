// How optimizer steps are run: a rule changes one element of a parameter and of its state; the loops around it are
// here, vectorized by the compiler for the target that includes this file.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_OPTIM_RULES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_OPTIM_RULES_INL_H_
#undef ATHANOR_DEVICE_CPU_OPTIM_RULES_INL_H_
#else
#define ATHANOR_DEVICE_CPU_OPTIM_RULES_INL_H_
#endif
// clang-format on

#include <cmath>
#include <limits>
#include <type_traits>

#include "athanor/ops/kernels/optim.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace {

template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// The tensors of one parameter that a step touches.
struct StepViews {
  const View& param;
  const View* state;
  const View& grad;
};

template <class T, class Rule>
void step_range(const StepViews& v, std::int64_t begin, std::int64_t end, Rule rule) {
  using C = Compute<T>;
  constexpr int states = Rule::states;
  T* __restrict p = v.param.ptr<T>();
  const T* __restrict g = v.grad.ptr<T>();
  T* __restrict s0 = states > 0 ? v.state[0].ptr<T>() : nullptr;
  T* __restrict s1 = states > 1 ? v.state[1].ptr<T>() : nullptr;
  T* __restrict s2 = states > 2 ? v.state[2].ptr<T>() : nullptr;
  for (std::int64_t i = begin; i < end; ++i) {
    C x = p[i], d = g[i], a{}, b{}, c{};
    if constexpr (states > 0) a = s0[i];
    if constexpr (states > 1) b = s1[i];
    if constexpr (states > 2) c = s2[i];
    rule(x, d, a, b, c);
    p[i] = T(x);
    if constexpr (states > 0) s0[i] = T(a);
    if constexpr (states > 1) s1[i] = T(b);
    if constexpr (states > 2) s2[i] = T(c);
  }
}

/// Runs step_range for the parameter's dtype with the rule that make(C{}) gives for its compute type.
template <class Make>
void step_any(const char* name, const StepViews& v, std::int64_t begin, std::int64_t end, Make&& make) {
  dispatch_floating(v.param.dtype, name, [&](auto tag) {
    using T = typename decltype(tag)::type;
    step_range<T>(v, begin, end, make(Compute<T>{}));
  });
}

/// The gradient as the step sees it: sign and weight decay. Without decay an infinite parameter adds nothing, not NaN.
template <class C>
struct Seen {
  C sign, decay, most;  ///< most: what counts of a parameter, 0 without decay
  C operator()(C g, C x) const {
    x = x > most ? most : x;
    return sign * g + decay * (x < -most ? -most : x);
  }
};
template <class C>
Seen<C> seen(bool maximize, double decay) {
  return {maximize ? C(-1) : C(1), static_cast<C>(decay), decay == 0 ? C(0) : std::numeric_limits<C>::infinity()};
}
template <class C, class Step>
Seen<C> seen(const Step& s) {
  return seen<C>(s.maximize, s.weight_decay);
}

/// An average that decays, as it is kept: 0 from where numbers lose digits (below 1.2e-38 in float32, `least`).
/// Multiplying such takes a hundred cycles and more, and rounding would keep the average of a weight without gradient
/// there for good, as of dead units and of embeddings that do not occur.
template <class C>
C settled(C average, C least = std::numeric_limits<C>::min()) {
  return std::abs(average) < least ? C(0) : average;
}
/// `least` for an average of squares that takes in `take` of each and whose root times `scale` has `eps` added: none
/// where what is dropped would change that sum by more than a rounding.
template <class C>
C least_square(double eps, double take, double scale = 1) {
  constexpr double least = std::numeric_limits<C>::min();
  return eps * (std::numeric_limits<C>::epsilon() / 4) > std::sqrt(least / take) * scale ? C(least) : C(0);
}

}  // namespace
}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
