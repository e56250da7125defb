// Gamma family, computed in float64 for both floating types, and inverse error function.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/pointwise_unary_special.cpp"
#include "athanor/device/cpu/simd_targets.h"

#include "hwy/foreach_target.h"

#include "athanor/device/cpu/pointwise_loops.h"
#include "athanor/device/cpu/polygamma.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Distance to the nearest whole number: exact, so that what is periodic stays accurate near its poles.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V from_whole(D, V x) {
  return hn::Sub(x, hn::Round(x));
}

/// Raises y to at least `floor` in steps of 1. take(y) sees each y on the way where `below`, its second argument,
/// holds.
template <class D, class V, class F>
HWY_INLINE V raise(D d, V y, double floor, F&& take) {
  const V least = hn::Set(d, floor);
  for (auto below = hn::Lt(y, least); !hn::AllFalse(d, below); below = hn::Lt(y, least)) {
    take(y, below);
    y = hn::Add(y, hn::IfThenElseZero(below, hn::Set(d, 1.0)));
  }
  return y;
}

/// Stirling's series (Abramowitz and Stegun 6.1.41) from 8 on, down from there by the product of the steps, and for
/// x < 0 by gamma(x) gamma(-x) = -pi / (x sin(pi x)). The absolute error is about 1e-14: enough for float32 except
/// where a negative argument happens to lie on a zero.
struct LogGamma {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    const auto negative = hn::Lt(x, hn::Zero(d));
    const V a = hn::Abs(x);
    V product = hn::Set(d, 1.0);
    const V y = raise(
        d, a, 8, [&](V at, auto below) HWY_ATTR { product = hn::IfThenElse(below, hn::Mul(product, at), product); });
    constexpr double kSeries[] = {1.0 / 12,   -1.0 / 360,      1.0 / 1260, -1.0 / 1680,
                                  1.0 / 1188, -691.0 / 360360, 1.0 / 156};
    const V z = hn::Div(hn::Set(d, 1.0), y);
    const V series = hn::Mul(z, polynomial(d, hn::Mul(z, z), kSeries));
    // In this order infinity stays infinity.
    const V large = hn::MulAdd(hn::Sub(y, hn::Set(d, 0.5)), hn::Sub(vec_log(d, y), hn::Set(d, 1.0)),
                               hn::Add(series, hn::Set(d, 0.91893853320467274178 - 0.5)));
    const V sine = hn::Abs(library_sin(d, hn::Mul(from_whole(d, x), hn::Set(d, kPi))));
    const V reflected = hn::Div(hn::Mul(product, hn::Set(d, kPi)), hn::Mul(a, sine));
    const V less = hn::Sub(large, vec_log(d, hn::IfThenElse(negative, reflected, product)));
    const V value = hn::IfThenElse(negative, hn::Neg(less), less);
    return hn::IfThenElse(hn::Eq(a, hn::Set(d, kInf)), a, value);
  }
};

/// Reflection for x < 0, recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.7, 6.3.5, 6.3.18).
struct Digamma {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    const V one = hn::Set(d, 1.0), zero = hn::Zero(d);
    const auto negative = hn::Lt(x, zero);
    V over = zero, under = one;  // the sum of the steps' reciprocals
    const V y = raise(d, hn::IfThenElse(negative, hn::Sub(one, x), x), 10, [&](V at, auto below) HWY_ATTR {
      over = hn::IfThenElse(below, hn::MulAdd(over, at, under), over);
      under = hn::IfThenElse(below, hn::Mul(under, at), under);
    });
    constexpr double kSeries[] = {1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12};
    const V reciprocal = hn::Div(one, y), z = hn::Mul(reciprocal, reciprocal);
    const V tail = hn::MulAdd(z, polynomial(d, z, kSeries), hn::Mul(reciprocal, hn::Set(d, 0.5)));
    const V fraction = from_whole(d, x);
    V sum = hn::Sub(hn::Sub(vec_log(d, y), tail), hn::Div(over, under));
    const V cotangent = hn::Div(hn::Set(d, kPi), library_tan(d, hn::Mul(fraction, hn::Set(d, kPi))));
    sum = hn::IfThenElse(negative, hn::Sub(sum, cotangent), sum);
    // At a pole, and at -infinity, whose fraction is no number.
    const auto pole = hn::And(negative, hn::Not(hn::Ne(fraction, zero)));
    sum = hn::IfThenElse(hn::Or(pole, hn::Eq(x, hn::Set(d, -kInf))), hn::Set(d, kNaN), sum);
    return hn::IfThenElse(hn::Eq(x, zero), with_sign(d, hn::Set(d, kInf), hn::Neg(x)), sum);
  }
};

/// Likewise (Abramowitz and Stegun 6.4.7, 6.4.6, 6.4.12).
struct Trigamma {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V x) {
    const V one = hn::Set(d, 1.0), zero = hn::Zero(d), infinity = hn::Set(d, kInf);
    const auto reflect = hn::Le(x, zero);
    V over = zero, under = one;
    const V y = raise(d, hn::IfThenElse(reflect, hn::Sub(one, x), x), 10, [&](V at, auto below) HWY_ATTR {
      const V square = hn::Mul(at, at);
      over = hn::IfThenElse(below, hn::MulAdd(over, square, under), over);
      under = hn::IfThenElse(below, hn::Mul(under, square), under);
    });
    constexpr double kSeries[] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6};
    const V reciprocal = hn::Div(one, y), z = hn::Mul(reciprocal, reciprocal);
    const V tail = hn::Mul(hn::Mul(z, reciprocal), polynomial(d, z, kSeries));
    V sum = hn::Add(hn::Div(over, under), hn::Add(hn::MulAdd(z, hn::Set(d, 0.5), reciprocal), tail));
    const V fraction = from_whole(d, x);
    const V sine = library_sin(d, hn::Mul(fraction, hn::Set(d, kPi)));
    const V reflected = hn::Sub(hn::Div(hn::Set(d, kPi * kPi), hn::Mul(sine, sine)), sum);
    sum = hn::IfThenElse(reflect, reflected, sum);
    sum = hn::IfThenElse(hn::And(reflect, hn::Eq(fraction, zero)), infinity, sum);
    return hn::IfThenElse(hn::Eq(x, hn::Neg(infinity)), hn::Set(d, kNaN), sum);
  }
};

/// The highest coefficient first.
template <class D, std::size_t N, class V = hn::Vec<D>>
HWY_INLINE V horner(D d, V x, const hn::TFromD<D> (&c)[N]) {
  V sum = hn::Set(d, c[0]);
  for (std::size_t i = 1; i < N; ++i) sum = hn::MulAdd(sum, x, hn::Set(d, c[i]));
  return sum;
}

/// x times a polynomial in w = -log(1 - x^2) or in its root, as M. Giles has it ("Approximating the erfinv function").
/// In float32 with coefficients of our own, minimax in the relative error; in float64 with his for single precision and
/// one step of Halley's method.
struct Erfinv {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V x, const P&) {
    using T = hn::TFromD<D>;
    const V a = hn::Abs(x), one = hn::Set(d, T{1}), rest = hn::Sub(one, a);
    const V w = hn::Neg(vec_log(d, hn::Mul(rest, hn::Add(one, a))));
    const V centre = hn::Sub(w, hn::Set(d, T{2.5}));
    const V tail = hn::Sub(hn::Sqrt(hn::Max(hn::Zero(d), w)), hn::Set(d, T{3}));
    const auto inner = hn::Lt(w, hn::Set(d, T{5}));
    V y;
    if constexpr (is_float32_v<D>)
      y = single(d, a, centre, tail, inner);
    else
      y = refined(d, a, rest, centre, tail, inner);
    y = hn::IfThenElse(hn::Eq(a, one), hn::Set(d, std::numeric_limits<T>::infinity()), y);
    y = hn::IfThenElse(hn::Le(a, one), with_sign(d, y, x), hn::Set(d, std::numeric_limits<T>::quiet_NaN()));
    return hn::IfThenElse(hn::Eq(a, hn::Zero(d)), x, y);
  }

 private:
  template <class D, class V, class M>
  static HWY_INLINE V single(D d, V a, V centre, V tail, M inner) {
    using T = hn::TFromD<D>;
    constexpr T kCentre[] = {T(-8.29427371e-09), T(2.80303531e-08),  T(4.60474155e-07),
                             T(-3.52216193e-06), T(-4.94480355e-06), T(0.000218573186),
                             T(-0.00125275482),  T(-0.00417766534),  T(0.24664028)};
    constexpr T kTail[] = {T(-0.0002067319), T(0.000101736892), T(0.00136184646), T(-0.00367393391),
                           T(0.00573159056), T(-0.00762261683), T(0.00944067072), T(1.00167418)};
    const V z = hn::IfThenElse(inner, centre, tail);
    const V higher = hn::IfThenElse(inner, horner(d, centre, kCentre), horner(d, tail, kTail));
    const V lowest = hn::IfThenElse(inner, hn::Set(d, T(1.50140941)), hn::Set(d, T(2.83297682)));
    return hn::MulAdd(a, lowest, hn::Mul(hn::Mul(a, z), higher));  // rounds less than a (lowest + z higher)
  }

  template <class D, class V, class M>
  static HWY_INLINE V refined(D d, V a, V rest, V centre, V tail, M inner) {
    using T = hn::TFromD<D>;
    constexpr T kCentre[] = {T(2.81022636e-08),  T(3.43273939e-07), T(-3.5233877e-06),
                             T(-4.39150654e-06), T(0.00021858087),  T(-0.00125372503),
                             T(-0.00417768164),  T(0.246640727),    T(1.50140941)};
    constexpr T kTail[] = {T(-0.000200214257), T(0.000100950558), T(0.00134934322), T(-0.00367342844), T(0.00573950773),
                           T(-0.0076224613),   T(0.00943887047),  T(1.00167406),    T(2.83297682)};
    const V one = hn::Set(d, T{1});
    const V y = hn::Mul(a, hn::IfThenElse(inner, horner(d, centre, kCentre), horner(d, tail, kTail)));
    const auto small = hn::Lt(a, hn::Set(d, T(0.5)));
    const V excess = hn::IfThenElse(small, hn::Sub(library_erf(d, y), a), hn::Sub(rest, library_erfc(d, y)));
    const V density = hn::Mul(hn::Set(d, T(1.12837916709551257390)), vec_exp_nonpositive(d, hn::Neg(hn::Mul(y, y))));
    const V step = hn::Div(excess, density);
    return hn::Sub(y, hn::Div(step, hn::MulAdd(y, step, one)));
  }
};

template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, const float* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), from));
}
template <class D>
HWY_INLINE hn::Vec<D> load_wide(D d, const double* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE void store_wide(D, hn::Vec<D> v, float* to) {
  const hn::Rebind<float, D> narrow;
  hn::StoreU(hn::DemoteTo(narrow, v), narrow, to);
}
template <class D>
HWY_INLINE void store_wide(D d, hn::Vec<D> v, double* to) {
  hn::StoreU(v, d, to);
}

template <class T, class Op>
void special_loop(char* const* ptrs, const std::int64_t*, std::int64_t n, const void*) {
  const hn::ScalableTag<double> d;
  constexpr auto L = static_cast<std::int64_t>(hn::MaxLanes(d));
  T* out = reinterpret_cast<T*>(ptrs[0]);
  const T* in = reinterpret_cast<const T*>(ptrs[1]);
  for (std::int64_t i = 0; i < n; i += L) {
    if (i + L <= n) {
      store_wide(d, Op::apply(d, load_wide(d, in + i)), out + i);
    } else {
      T lanes[L] = {};
      std::copy(in + i, in + n, lanes);
      store_wide(d, Op::apply(d, load_wide(d, lanes)), lanes);
      std::copy(lanes, lanes + (n - i), out + i);
    }
  }
}

/// log |gamma(x)| in float64, scalar: the vectors' error would show near its zeros. std::lgamma writes a global and is
/// no choice for several threads.
void log_gamma_loop(char* const* ptrs, const std::int64_t*, std::int64_t n, const void*) {
  double* out = reinterpret_cast<double*>(ptrs[0]);
  const double* in = reinterpret_cast<const double*>(ptrs[1]);
  int sign = 0;
  for (std::int64_t i = 0; i < n; ++i) out[i] = ::lgamma_r(in[i], &sign);
}

template <class T>
void polygamma_loop(char* const* ptrs, const std::int64_t*, std::int64_t n, const void* params) {
  T* out = reinterpret_cast<T*>(ptrs[0]);
  const T* in = reinterpret_cast<const T*>(ptrs[1]);
  const auto order = static_cast<std::int64_t>(Parameters<double>(params).p0);
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(polygamma(order, static_cast<double>(in[i])));
}

template <class T>
void add(PointwiseTables& t, DType dtype) {
  t.at(UnaryOp::Polygamma, dtype) = &polygamma_loop<T>;
  t.at(UnaryOp::Digamma, dtype) = &special_loop<T, Digamma>;
  t.at(UnaryOp::Trigamma, dtype) = &special_loop<T, Trigamma>;
  t.at(UnaryOp::Erfinv, dtype) = &unary_vectors<T, Erfinv>;
}

void unary_special(PointwiseTables& t) {
  add<float>(t, DType::Float);
  add<double>(t, DType::Double);
  t.at(UnaryOp::Lgamma, DType::Float) = &special_loop<float, LogGamma>;
  t.at(UnaryOp::Lgamma, DType::Double) = &log_gamma_loop;
}

}  // namespace
}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(unary_special);
void add_unary_special(PointwiseTables& tables) { HWY_DYNAMIC_DISPATCH(unary_special)(tables); }
}  // namespace athanor::cpu
#endif
