/// Elementary functions on full Highway vectors of float and double, for kernel files. Included once per target
/// (after hwy/highway.h, inside a file that uses foreach_target.h), hence the unusual guard.
///
/// Errors are at most 4 units in the last place over the whole range (most are below 2), subnormal results included;
/// NaN, infinities, zeros and out-of-domain arguments give what <cmath> gives. Functions without an own float32
/// polynomial come from glibc's vector library; where that is missing, from <cmath>, lane by lane.
/// The rational approximations are minimax fits (Lawson-weighted least squares) in float32.
#if defined(ATHANOR_SIMD_MATH_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_SIMD_MATH_H_
#undef ATHANOR_SIMD_MATH_H_
#else
#define ATHANOR_SIMD_MATH_H_
#endif

#include <cmath>
#include <cstdint>
#include <limits>

#include "athanor/device/cpu/simd_exp.h"
#include "athanor/device/cpu/simd_math_tables.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// f on each lane.
template <class D, class F>
HWY_INLINE hn::Vec<D> map_lanes(D d, hn::Vec<D> x, F&& f) {
  alignas(64) hn::TFromD<D> lanes[hn::MaxLanes(d)];
  hn::Store(x, d, lanes);
  for (auto& lane : lanes) lane = static_cast<hn::TFromD<D>>(f(lane));
  return hn::Load(d, lanes);
}
template <class D, class F>
HWY_INLINE hn::Vec<D> map_lanes(D d, hn::Vec<D> x, hn::Vec<D> y, F&& f) {
  alignas(64) hn::TFromD<D> a[hn::MaxLanes(d)], b[hn::MaxLanes(d)];
  hn::Store(x, d, a);
  hn::Store(y, d, b);
  for (std::size_t i = 0; i < hn::MaxLanes(d); ++i) a[i] = static_cast<hn::TFromD<D>>(f(a[i], b[i]));
  return hn::Load(d, a);
}

// The vector library of glibc 2.35 and later has these for each x86-64 vector length, within 4 ulp.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 35)
#define ATHANOR_HAVE_LIBMVEC 1
#endif
#endif

#undef ATHANOR_VECTOR_FUNCTION
#undef ATHANOR_VECTOR_FUNCTION_2
#ifdef ATHANOR_HAVE_LIBMVEC
#undef ATHANOR_MVEC_F32
#undef ATHANOR_MVEC_F64
#if HWY_TARGET == HWY_SSE4
#define ATHANOR_MVEC_F32(kind, name) _ZGVbN4##kind##_##name
#define ATHANOR_MVEC_F64(kind, name) _ZGVbN2##kind##_##name
#elif HWY_TARGET == HWY_AVX2
#define ATHANOR_MVEC_F32(kind, name) _ZGVdN8##kind##_##name
#define ATHANOR_MVEC_F64(kind, name) _ZGVdN4##kind##_##name
#else
#define ATHANOR_MVEC_F32(kind, name) _ZGVeN16##kind##_##name
#define ATHANOR_MVEC_F64(kind, name) _ZGVeN8##kind##_##name
#endif
using RawF32 = decltype(hn::Vec<hn::ScalableTag<float>>::raw);
using RawF64 = decltype(hn::Vec<hn::ScalableTag<double>>::raw);
#define ATHANOR_VECTOR_FUNCTION(name)                         \
  extern "C" RawF32 ATHANOR_MVEC_F32(v, name##f)(RawF32);     \
  extern "C" RawF64 ATHANOR_MVEC_F64(v, name)(RawF64);        \
  template <class D>                                          \
  HWY_INLINE hn::Vec<D> library_##name(D, hn::Vec<D> x) {     \
    if constexpr (is_float32_v<D>)                            \
      return hn::Vec<D>{ATHANOR_MVEC_F32(v, name##f)(x.raw)}; \
    else                                                      \
      return hn::Vec<D>{ATHANOR_MVEC_F64(v, name)(x.raw)};    \
  }
#define ATHANOR_VECTOR_FUNCTION_2(name)                                 \
  extern "C" RawF32 ATHANOR_MVEC_F32(vv, name##f)(RawF32, RawF32);      \
  extern "C" RawF64 ATHANOR_MVEC_F64(vv, name)(RawF64, RawF64);         \
  template <class D>                                                    \
  HWY_INLINE hn::Vec<D> library_##name(D, hn::Vec<D> x, hn::Vec<D> y) { \
    if constexpr (is_float32_v<D>)                                      \
      return hn::Vec<D>{ATHANOR_MVEC_F32(vv, name##f)(x.raw, y.raw)};   \
    else                                                                \
      return hn::Vec<D>{ATHANOR_MVEC_F64(vv, name)(x.raw, y.raw)};      \
  }
#else
#define ATHANOR_VECTOR_FUNCTION(name)                            \
  template <class D>                                             \
  HWY_INLINE hn::Vec<D> library_##name(D d, hn::Vec<D> x) {      \
    return map_lanes(d, x, [](auto v) { return std::name(v); }); \
  }
#define ATHANOR_VECTOR_FUNCTION_2(name)                                        \
  template <class D>                                                           \
  HWY_INLINE hn::Vec<D> library_##name(D d, hn::Vec<D> x, hn::Vec<D> y) {      \
    return map_lanes(d, x, y, [](auto a, auto b) { return std::name(a, b); }); \
  }
#endif

ATHANOR_VECTOR_FUNCTION(exp2)
ATHANOR_VECTOR_FUNCTION(expm1)
ATHANOR_VECTOR_FUNCTION(log2)
ATHANOR_VECTOR_FUNCTION(log10)
ATHANOR_VECTOR_FUNCTION(sin)
ATHANOR_VECTOR_FUNCTION(cos)
ATHANOR_VECTOR_FUNCTION(tan)
ATHANOR_VECTOR_FUNCTION(asin)
ATHANOR_VECTOR_FUNCTION(acos)
ATHANOR_VECTOR_FUNCTION(atan)
ATHANOR_VECTOR_FUNCTION(sinh)
ATHANOR_VECTOR_FUNCTION(cosh)
ATHANOR_VECTOR_FUNCTION(tanh)
ATHANOR_VECTOR_FUNCTION(asinh)
ATHANOR_VECTOR_FUNCTION(acosh)
ATHANOR_VECTOR_FUNCTION(atanh)
ATHANOR_VECTOR_FUNCTION(erf)
ATHANOR_VECTOR_FUNCTION(erfc)
ATHANOR_VECTOR_FUNCTION_2(pow)
ATHANOR_VECTOR_FUNCTION_2(atan2)
ATHANOR_VECTOR_FUNCTION_2(hypot)

/// x with the sign bit of y.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V with_sign(D d, V x, V y) {
  return hn::Or(hn::Abs(x), hn::And(hn::SignBit(d), y));
}

#if HWY_TARGET == HWY_AVX3
/// table[N - 1][i] u^(N - 1) + … + table[0][i], i being the lowest five bits of each lane of `index`.
template <class D, std::size_t N, class V = hn::Vec<D>>
HWY_INLINE V lookup_polynomial(V u, V index, const float (&table)[N][32]) {
  const auto coefficient = [&](int k) HWY_ATTR {
    return V{_mm512_permutex2var_ps(_mm512_loadu_ps(table[k]), _mm512_castps_si512(index.raw),
                                    _mm512_loadu_ps(table[k] + 16))};
  };
  V sum = coefficient(N - 1);
  for (int k = N - 2; k >= 0; --k) sum = hn::MulAdd(sum, u, coefficient(k));
  return sum;
}

/// A piecewise polynomial for gelu (see simd_math_tables.h) at |x|. For a NaN, any number.
template <class D, std::size_t N, class V = hn::Vec<D>>
HWY_INLINE V gelu_polynomial(D d, V x, const float (&table)[N][32]) {
  static_assert(kGeluStep == 0.25F);
  const V last = hn::Set(d, 31 * kGeluStep);
  const V z{_mm512_range_ps(x.raw, last.raw, 2 << 2 | 2)};  // the lesser magnitude, without a sign
  const V r{_mm512_reduce_ps(z.raw, 2 << 4)};               // from the nearest multiple of 2^-2
  // Rounds to a whole number, left in the low bits.
  return lookup_polynomial<D>(r, hn::MulAdd(z, hn::Set(d, 1 / kGeluStep), hn::Set(d, 0x1.8p+23F)), table);
}
#endif

/// Within 4 ulp in float32, but not monotonic: with AVX-512 it may fall by 6 ulp from one number to the next.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_tanh(D d, V x) {
  if constexpr (is_float32_v<D>) {
#if HWY_TARGET == HWY_AVX3
    const V t = hn::Min(hn::Set(d, kTanhEnd), hn::Abs(x));  // a NaN stays
    const V place = hn::MulAdd(t, hn::Set(d, kTanhScale), hn::Set(d, kTanhShift));
    const V y =
        lookup_polynomial<D>(t, V{_mm512_castsi512_ps(_mm512_srli_epi32(_mm512_castps_si512(place.raw), 20))}, kTanh);
    return hn::Or(y, hn::And(hn::SignBit(d), x));
#else
    const V a = hn::Abs(x), t = hn::Mul(x, x), one = hn::Set(d, 1.0F);
    constexpr float kSmall[] = {-0.333332777F, 0.133313313F, -0.0537300073F, 0.0206061769F, -0.00566697726F};
    const V small = hn::MulAdd(hn::Mul(x, t), polynomial(d, t, kSmall), x);
    const V e = exp_of_normal(d, hn::Max(hn::Set(d, -87.0F), hn::Mul(a, hn::Set(d, -2.0F))));
    const V large = hn::Div(hn::Sub(one, e), hn::Add(one, e));
    return with_sign(d, hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.625F)), small, large), x);
#endif
  } else {
    return library_tanh(d, x);
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_erf(D d, V x) {
  if constexpr (is_float32_v<D>) {
    const V a = hn::Min(hn::Set(d, 4.0F), hn::Abs(x)), t = hn::Mul(x, x), one = hn::Set(d, 1.0F);
    constexpr float kSmall[] = {0.128379151F,  -0.376125246F,  0.112821408F,
                                -0.026778914F, 0.00501196971F, -0.000609039038F};
    const V small = hn::MulAdd(x, polynomial(d, t, kSmall), x);
    // erfc(a) = exp(a W(a))
    constexpr float kW[] = {-1.12851679F, -0.635710418F, -0.10527157F, 0.0228958093F, -0.00321666477F, 0.000214179745F};
    const V large = hn::Sub(one, vec_exp_nonpositive(d, hn::Mul(a, polynomial(d, a, kW))));
    return hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.9F)), small, with_sign(d, large, x));
  } else {
    return library_erf(d, x);
  }
}

/// Beyond it the normal distribution function is 0 or 1 in float32.
inline constexpr float kNormalBound = 5.51F;

/// The normal distribution function minus a half, erf(z / sqrt 2) / 2, for |z| <= kNormalBound: in float32 with an
/// absolute error below 2.2e-7. At the bounds just a half if products are added without rounding.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V normal_cdf_minus_half(D d, V z) {
  const V t = hn::Mul(z, z);
  constexpr float kP[] = {0.398942262F,    0.0337357223F,   0.00466656638F,
                          0.000167124541F, 6.29310671e-06F, 2.25473524e-08F};
  constexpr float kQ[] = {1.0F, 0.251229286F, 0.0285696946F, 0.00187518122F, 7.28490268e-05F, 1.18720993e-06F};
  return hn::Div(hn::Mul(z, polynomial(d, t, kP)), polynomial(d, t, kQ));
}

/// x Phi(x), Phi being the normal distribution function. In float32 the error is below 2.2e-7 |x|; on AVX-512 also
/// within 9 ulp for x > -3, where the usual x/2 (1 + erf(x / sqrt 2)) loses most digits of a result near zero.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_gelu(D d, V x) {
  if constexpr (is_float32_v<D>) {
#if HWY_TARGET == HWY_AVX3
    return hn::Sub(hn::Max(hn::Zero(d), x), gelu_polynomial(d, x, kGeluTail));
#else
    const V half = hn::Set(d, 0.5F), bound = hn::Set(d, kNormalBound);
    const V z = hn::Max(hn::Neg(bound), x);  // with AVX2, a NaN stays
    const V cdf = hn::Add(half, normal_cdf_minus_half(d, hn::Min(bound, z)));
#if HWY_TARGET == HWY_AVX2
    return hn::Mul(z, cdf);  // at the bound, and so for all below, -0
#else
    const V y = hn::Mul(x, cdf);
    return hn::IfThenElse(hn::Lt(x, hn::Set(d, -5.5F)), hn::Set(d, -0.0F), y);
#endif
#endif
  } else {
    const V tail = library_erfc(d, hn::Mul(x, hn::Set(d, -0.70710678118654752440)));
    return hn::IfThenElse(hn::Lt(x, hn::Set(d, -40.0)), hn::Set(d, -0.0), hn::Mul(hn::Mul(x, hn::Set(d, 0.5)), tail));
  }
}

/// The derivative of x Phi(x): Phi(x) + x phi(x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_gelu_slope(D d, V x) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (is_float32_v<D>) {
    const V tail = gelu_polynomial(d, x, kGeluSlopeTail);
    const V y = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0F), tail));
    return hn::IfThenElse(hn::IsNaN(x), x, y);
  }
#endif
  using T = hn::TFromD<D>;
  const V z = hn::Min(hn::Set(d, T{40}), hn::Max(hn::Set(d, T{-40}), x));
  const V density = hn::Mul(hn::Set(d, static_cast<T>(0.39894228040143267794)),
                            vec_exp_nonpositive(d, hn::Mul(hn::Mul(z, z), hn::Set(d, static_cast<T>(-0.5)))));
  if constexpr (is_float32_v<D>) {
    const V bound = hn::Set(d, kNormalBound);
    const V near = hn::Min(bound, hn::Max(hn::Neg(bound), x));
    return hn::MulAdd(z, density, hn::Add(hn::Set(d, 0.5F), normal_cdf_minus_half(d, near)));
  } else {
    const V cdf = hn::Mul(hn::Set(d, 0.5), library_erfc(d, hn::Mul(z, hn::Set(d, -0.70710678118654752440))));
    return hn::MulAdd(z, density, cdf);
  }
}

/// a^b. The library is asked for positive finite bases only: it leaves others to scalar code, lane by lane.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_pow(D d, V a, V b) {
  using T = hn::TFromD<D>;
  const V zero = hn::Zero(d), one = hn::Set(d, T{1}), infinity = hn::Set(d, std::numeric_limits<T>::infinity());
  const V m = hn::Abs(a), half = hn::Mul(b, hn::Set(d, static_cast<T>(0.5)));
  const auto finite = hn::And(hn::Lt(m, infinity), hn::Lt(hn::Abs(b), infinity));
  if (HWY_UNLIKELY(!hn::AllTrue(d, finite))) return map_lanes(d, a, b, [](T x, T y) { return std::pow(x, y); });
  const auto is_zero = hn::Eq(m, zero);
  V y = library_pow(d, hn::IfThenElse(is_zero, one, m), b);
  const V of_zero = hn::IfThenElse(hn::Lt(b, zero), infinity, hn::IfThenElse(hn::Eq(b, zero), one, zero));
  y = hn::IfThenElse(is_zero, of_zero, y);
  const auto whole = hn::Eq(hn::Trunc(b), b);
  const auto odd = hn::And(whole, hn::Ne(hn::Trunc(half), half));
  y = hn::IfThenElse(odd, with_sign(d, y, a), y);
  const auto defined = hn::Or(whole, hn::Ge(a, zero));
  return hn::IfThenElse(defined, y, hn::Set(d, std::numeric_limits<T>::quiet_NaN()));
}

#if HWY_TARGET == HWY_AVX2
/// 1 / (1 + e^-x) in float32, which needs no branch for rare x: fewer instructions than e^-x by itself.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid_by_table(D d, V x) {
  // Where e^-x is infinity, and where 1 takes no notice of it.
  const V y = hn::Min(hn::Set(d, 60.0F), hn::Max(hn::Set(d, -88.7228394F), x));
  // As in exp_by_table: -y = n ln 2 + r. The polynomial's first coefficient is in the table, which saves an
  // instruction.
  const V magic = hn::Set(d, 0x1.8p+23F), one = hn::Set(d, 1.0F);
  const V shifted = hn::MulAdd(y, hn::Set(d, -11.541560327F), magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulSub(n, hn::Set(d, 0.0866433978F), y);
  r = hn::MulAdd(n, hn::Set(d, 2.38081787e-10F), r);
  V e = hn::MulAdd(hn::Add(r, hn::Set(d, 2.997128F)), r, hn::Set(d, 5.99342F));
  e = hn::MulAdd(e, r, hn::Set(d, 5.9934206F));
  return hn::Div(one, hn::MulAdd(e, power_by_table(kSixthsOfEighths, shifted), one));
}
#endif

/// 1 / (1 + e^-x), accurate for both signs. What is subnormal in float32 may become 0, as in PyTorch.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_sigmoid(D d, V x) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (is_float32_v<D>) return sigmoid_by_table(d, x);
#elif HWY_TARGET == HWY_AVX3
  const V unit = hn::Set(d, hn::TFromD<D>{1});
  if constexpr (is_float32_v<D>) return hn::Div(unit, hn::Add(unit, vec_exp(d, hn::Neg(x))));
#endif
  const V e = vec_exp_nonpositive(d, hn::Neg(hn::Abs(x)));
  const V one = hn::Set(d, hn::TFromD<D>{1});
  const V numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
  return hn::Div(numerator, hn::Add(one, e));
}

/// x > 0 finite as m 2^e with m in [sqrt 1/2, sqrt 2); subnormals allowed. Anything for other x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V split_exponent(D d, V x, V& e) {
  using T = hn::TFromD<D>;
  const hn::RebindToSigned<D> di;
  using I = hn::TFromD<decltype(di)>;
  constexpr int kMantissa = std::numeric_limits<T>::digits - 1;
  constexpr I kRootHalf = static_cast<I>(is_float32_v<D> ? 0x3f3504f3 : 0x3fe6a09e667f3bcd);
  const auto tiny = hn::Lt(x, hn::Set(d, std::numeric_limits<T>::min()));
  const V scaled = hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, static_cast<T>(I{1} << kMantissa))), x);
  const auto base = hn::Set(di, kRootHalf);
  const auto above = hn::Sub(hn::BitCast(di, scaled), base);
  e = hn::ConvertTo(d, hn::ShiftRight<kMantissa>(above));
  e = hn::Sub(e, hn::IfThenElseZero(tiny, hn::Set(d, T{kMantissa})));
  return hn::BitCast(d, hn::Add(hn::And(above, hn::Set(di, (I{1} << kMantissa) - 1)), base));
}

/// log(1 + f) - f for 1 + f in [sqrt 1/2, sqrt 2).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log1p_tail(D d, V f) {
  constexpr float kR[] = {-0.499999881F, 0.333333254F,  -0.250015825F, 0.200019762F,  -0.166090772F,
                          0.141817793F,  -0.132429764F, 0.129046902F,  -0.0762210861F};
  return hn::Mul(hn::Mul(f, f), polynomial(d, f, kR));
}

/// `y` for x > 0 finite, else what a logarithm gives there.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V finish_log(D d, V x, V y) {
#if HWY_TARGET == HWY_AVX3
  // By class of x, from the highest digit: positive keeps y, negative NaN, inf, -inf NaN, one keeps y, zero -inf, NaN.
  if constexpr (is_float32_v<D>)
    return V{_mm512_fixupimm_ps(y.raw, x.raw, _mm512_set1_epi32(0x03530422), 0)};
  else
    return V{_mm512_fixupimm_pd(y.raw, x.raw, _mm512_set1_epi64(0x03530422), 0)};
#endif
  using T = hn::TFromD<D>;
  const V infinity = hn::Set(d, std::numeric_limits<T>::infinity());
  y = hn::IfThenElse(hn::Eq(x, infinity), infinity, y);
  y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), y);
  return hn::IfThenElse(hn::Ge(x, hn::Zero(d)), y, hn::Set(d, std::numeric_limits<T>::quiet_NaN()));
}

/// 1 in place of what is not positive and finite: the library's slow path is very slow.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V positive_or_one(D d, V x) {
  using T = hn::TFromD<D>;
  const auto usual = hn::And(hn::Gt(x, hn::Zero(d)), hn::Lt(x, hn::Set(d, std::numeric_limits<T>::infinity())));
  return hn::IfThenElse(usual, x, hn::Set(d, T{1}));
}

/// e ln 2 + log(1 + f) for 1 + f in [sqrt 1/2, sqrt 2).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_of_parts(D d, V f, V e) {
  if constexpr (is_float32_v<D>) {
    const V low = hn::MulAdd(e, hn::Set(d, -2.12194440e-4F), log1p_tail(d, f));
    return hn::MulAdd(e, hn::Set(d, 0.693359375F), hn::Add(low, f));
  } else {
    // log(1 + f) = 2 atanh(s) = f - (f^2/2 - s (f^2/2 + R)), s = f / (2 + f).
    constexpr double kR[] = {0.6666666666666669688, 0.3999999999989944323, 0.2857142862600326874, 0.2222221113025987703,
                             0.1818288945567494604, 0.1533171061821077157, 0.1461658542488862199};
    const V s = hn::Div(f, hn::Add(f, hn::Set(d, 2.0)));
    const V z = hn::Mul(s, s);
    const V half_square = hn::Mul(hn::Mul(f, f), hn::Set(d, 0.5));
    const V inner = hn::MulAdd(z, polynomial(d, z, kR), half_square);
    const V low = hn::MulAdd(s, inner, hn::Mul(e, hn::Set(d, 5.4979230187083711747e-14)));
    return hn::MulAdd(e, hn::Set(d, 0.69314718055989033019), hn::Sub(f, hn::Sub(half_square, low)));
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_log(D d, V x) {
  V e;
  const V f = hn::Sub(split_exponent(d, x, e), hn::Set(d, hn::TFromD<D>{1}));
  return finish_log(d, x, log_of_parts(d, f, e));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_log2(D d, V x) {
  if constexpr (is_float32_v<D>) {
    V e;
    const V f = hn::Sub(split_exponent(d, x, e), hn::Set(d, 1.0F));
    // log2(e) = 1.4375 + 0.0051950...: the products with the short part hardly round.
    const V tail = log1p_tail(d, f), rest = hn::Set(d, 0.00519504089F);
    V y = hn::MulAdd(tail, hn::Set(d, 1.4375F), hn::Mul(hn::Add(f, tail), rest));
    y = hn::MulAdd(f, hn::Set(d, 1.4375F), y);
    return finish_log(d, x, hn::Add(y, e));
  } else {
    return finish_log(d, x, library_log2(d, positive_or_one(d, x)));
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_log10(D d, V x) {
  if constexpr (is_float32_v<D>) {
    V e;
    const V f = hn::Sub(split_exponent(d, x, e), hn::Set(d, 1.0F));
    const V tail = log1p_tail(d, f);
    // log10(e) = 0.4375 - 0.0032055..., log10(2) = 0.30078125 + 0.0002487...
    V y = hn::Mul(hn::Add(f, tail), hn::Set(d, -0.00320551810F));
    y = hn::MulAdd(e, hn::Set(d, 0.000248745637F), y);
    y = hn::MulAdd(tail, hn::Set(d, 0.4375F), y);
    y = hn::MulAdd(f, hn::Set(d, 0.4375F), y);
    return finish_log(d, x, hn::MulAdd(e, hn::Set(d, 0.30078125F), y));
  } else {
    return finish_log(d, x, library_log10(d, positive_or_one(d, x)));
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_log1p(D d, V x) {
  using T = hn::TFromD<D>;
  const hn::RebindToSigned<D> di;
  using I = hn::TFromD<decltype(di)>;
  constexpr int kMantissa = std::numeric_limits<T>::digits - 1;
  [[maybe_unused]] constexpr int kBias = std::numeric_limits<T>::max_exponent - 1;
  const V one = hn::Set(d, T{1});
  const V u = hn::Add(x, one);
  V e;
  const V m = split_exponent(d, u, e);
  // What the sum 1 + x lost, brought to m's scale.
  const auto moderate = hn::Lt(hn::Abs(x), hn::Set(d, static_cast<T>(I{1} << (kMantissa + 1))));
  const V lost = hn::IfThenElseZero(moderate, hn::Sub(x, hn::Sub(u, one)));
  V scaled;
#if HWY_TARGET == HWY_AVX3
  if constexpr (is_float32_v<D>)
    scaled = V{_mm512_scalef_ps(lost.raw, hn::Neg(e).raw)};
  else
    scaled = V{_mm512_scalef_pd(lost.raw, hn::Neg(e).raw)};
#else
  const auto whole = hn::ConvertTo(di, hn::Min(e, hn::Set(d, T{kBias - 1})));
  scaled = hn::Mul(lost, hn::BitCast(d, hn::ShiftLeft<kMantissa>(hn::Sub(hn::Set(di, I{kBias}), whole))));
#endif
  const V f = hn::Add(scaled, hn::Sub(m, one));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, finish_log(d, u, log_of_parts(d, f, e)));
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
