/// e^x on full Highway vectors of float and double, and what it is made of; a part of simd_math.h, which says how such
/// files are included and how exact they are.
#if defined(ATHANOR_SIMD_EXP_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_SIMD_EXP_H_
#undef ATHANOR_SIMD_EXP_H_
#else
#define ATHANOR_SIMD_EXP_H_
#endif

#include <cstdint>

#include "athanor/device/cpu/simd_math_tables.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
inline constexpr bool is_float32_v = sizeof(hn::TFromD<D>) == 4;

/// c[0] + c[1] x + ... by Estrin's scheme: Horner's chain of dependent steps would leave the units idle. With AVX2 the
/// number of instructions binds, of which Horner's has fewer.
template <class D, std::size_t N>
HWY_INLINE hn::Vec<D> polynomial(D d, hn::Vec<D> x, const hn::TFromD<D> (&c)[N]) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (is_float32_v<D>) {
    hn::Vec<D> y = hn::Set(d, c[N - 1]);
    for (std::size_t i = N - 1; i > 0; --i) y = hn::MulAdd(y, x, hn::Set(d, c[i - 1]));
    return y;
  }
#endif
  hn::Vec<D> sum[(N + 1) / 2];
  for (std::size_t i = 0; i < N / 2; ++i) sum[i] = hn::MulAdd(hn::Set(d, c[2 * i + 1]), x, hn::Set(d, c[2 * i]));
  if constexpr (N % 2 == 1) sum[N / 2] = hn::Set(d, c[N - 1]);
  for (std::size_t n = (N + 1) / 2; n > 1; n = (n + 1) / 2) {
    x = hn::Mul(x, x);
    for (std::size_t i = 0; i < n / 2; ++i) sum[i] = hn::MulAdd(sum[2 * i + 1], x, sum[2 * i]);
    if (n % 2 == 1) sum[n / 2] = sum[n - 1];
  }
  return sum[0];
}

/// 2^n * y for |n| <= 256, rounded once even when the result is subnormal.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V scale_by_power(D d, V y, V n) {
#if HWY_TARGET == HWY_AVX3
  (void)d;
  return V{_mm512_scalef_ps(y.raw, n.raw)};
#else
  const hn::RebindToSigned<D> di;
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const auto p = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto q = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  return hn::Mul(hn::Mul(y, p), q);
#endif
}

/// x * log2(e) to the nearest integer, and what x keeps: x = n ln 2 + r.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V reduce_exp(D d, V x, V& r) {
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504F)));
  // ln 2 in two parts, the first with so few bits that n times it is exact without a fused multiply, too.
  r = hn::NegMulAdd(n, hn::Set(d, 0.693359375F), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4F), r);
  return n;
}

/// e^r for |r| <= ln 2 / 2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_rest(D d, V r) {
  constexpr float kTail[] = {0.49999994F, 0.166665211F, 0.041668389F, 0.00836872403F, 0.00138145837F};
  const V one = hn::Set(d, 1.0F);
  return hn::MulAdd(hn::MulAdd(polynomial(d, r, kTail), r, one), r, one);
}

#if HWY_TARGET == HWY_AVX2
/// 2^n for n a multiple of 1/8, of which 8 n stands in the low bits of `shifted`: the last three pick 2^fraction, less
/// what they add to the mantissa when 8 n comes to the exponent.
template <class V>
HWY_INLINE V power_by_table(const std::int32_t (&table)[8], V shifted) {
  const auto bits = _mm256_castps_si256(shifted.raw);
  const auto fraction = _mm256_permutevar8x32_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(table)), bits);
  return V{_mm256_castsi256_ps(_mm256_add_epi32(fraction, _mm256_slli_epi32(bits, 20)))};
}

/// e^x for -87 <= x <= 88 by a table of eight powers of 2; anything for other x.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_by_table(D d, V x) {
  // x = n ln 2 + r with n a multiple of 1/8.
  const V magic = hn::Set(d, 0x1.8p+23F);
  const V shifted = hn::MulAdd(x, hn::Set(d, 11.541560327F), magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, 0.0866433978F), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.38081787e-10F), r);
  const V power = power_by_table(kEighths, shifted);
  V q = hn::MulAdd(hn::Set(d, 0.166681F), r, hn::Set(d, 0.50006478F));
  q = hn::Mul(r, hn::MulAdd(q, r, hn::Set(d, 1.0F)));
  return hn::MulAdd(power, q, power);
}
#endif

/// e^x; `kBounded`: x <= 8 or NaN.
template <bool kBounded, class D, class V = hn::Vec<D>>
HWY_INLINE V exp_float32(D d, V x) {
  // Beyond -104 and 89 the result is 0 or infinity anyway. Min and Max return their second operand if one is NaN.
#if HWY_TARGET == HWY_AVX2
  if (HWY_LIKELY(hn::AllTrue(d, hn::Le(hn::Abs(x), hn::Set(d, 87.0F))))) return exp_by_table(d, x);
#endif
#if HWY_TARGET == HWY_AVX3
  if constexpr (kBounded) x = hn::Max(hn::Set(d, -104.0F), x);
  // x = n ln 2 + r with n a multiple of 1/16, whose fraction, left in the low bits of `shifted`, picks 2^fraction.
  const V magic = hn::Set(d, 0x1.8p+19F);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504F), magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693147182F), x);
  r = hn::NegMulAdd(n, hn::Set(d, -1.90465421e-9F), r);
  // What is left of numbers with an n that is not exact, and of the infinities, is that n: it scales what r is kept to,
  // to 0 or infinity. One instruction instead of two, the lesser magnitude with the sign of r.
  if constexpr (!kBounded) r = V{_mm512_range_ps(r.raw, hn::Set(d, 0.03125F).raw, 2)};
  const V power = V{_mm512_permutexvar_ps(_mm512_castps_si512(shifted.raw), _mm512_loadu_ps(kPowersOf2))};
  V q = hn::MulAdd(hn::Set(d, 0.166670322F), r, hn::Set(d, 0.500016212F));
  q = hn::Mul(r, hn::MulAdd(q, r, hn::Set(d, 1.0F)));
  return V{_mm512_scalef_ps(hn::MulAdd(power, q, power).raw, n.raw)};
#else
  x = hn::Max(hn::Set(d, -104.0F), x);
  if constexpr (!kBounded) x = hn::Min(hn::Set(d, 89.0F), x);
  V r;
  const V n = reduce_exp(d, x, r);
  return scale_by_power(d, exp_of_rest(d, r), n);
#endif
}

/// 2^n y for whole n, |n| <= 1100, rounded once even when the result is subnormal.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V scale_float64(D d, V y, V n) {
#if HWY_TARGET == HWY_AVX3
  (void)d;
  return V{_mm512_scalef_pd(y.raw, n.raw)};
#else
  const hn::RebindToSigned<D> di;
  const V half = hn::Floor(hn::Mul(n, hn::Set(d, 0.5)));
  // Adding 1.5 2^52 leaves a whole number in the low bits; the exponent field takes it plus its bias.
  const V magic = hn::Set(d, 0x1.8p+52);
  const auto power = [&](V e) HWY_ATTR {
    return hn::BitCast(d, hn::ShiftLeft<52>(hn::Add(hn::BitCast(di, hn::Add(e, magic)), hn::Set(di, 1023))));
  };
  return hn::Mul(hn::Mul(y, power(half)), power(hn::Sub(n, half)));
#endif
}

template <bool kBounded, class D, class V = hn::Vec<D>>
HWY_INLINE V exp_float64(D d, V x) {
  x = hn::Max(hn::Set(d, -746.0), x);
  if constexpr (!kBounded) x = hn::Min(hn::Set(d, 710.0), x);
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 1.4426950408889634074)));
  V r = hn::NegMulAdd(n, hn::Set(d, 0.69314718055989033019), x);  // 42 bits of ln 2
  r = hn::NegMulAdd(n, hn::Set(d, 5.4979230187083711747e-14), r);
  constexpr double kTail[] = {0.5,
                              0.1666666666666666745,
                              0.04166666666662412787,
                              0.008333333333330061833,
                              0.00138888889172137169,
                              0.0001984126986305361688,
                              0.00002480152129595437513,
                              2.755726845999706477e-6,
                              2.762008844540974816e-7,
                              2.510038549551031908e-8};
  const V one = hn::Set(d, 1.0);
  const V y = hn::MulAdd(hn::MulAdd(polynomial(d, r, kTail), r, one), r, one);
  return scale_float64(d, y, n);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_exp(D d, V x) {
  if constexpr (is_float32_v<D>)
    return exp_float32<false>(d, x);
  else
    return exp_float64<false>(d, x);
}

/// e^x for x <= 0, or not above 8: a little faster.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_exp_nonpositive(D d, V x) {
  if constexpr (is_float32_v<D>)
    return exp_float32<true>(d, x);
  else
    return exp_float64<true>(d, x);
}

/// e^x for float32 -87 <= x <= 88 or NaN, without a scaling instruction.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of_normal(D d, V x) {
#if HWY_TARGET == HWY_AVX2
  return exp_by_table(d, x);
#else
  // x = n ln 2 + r; the low bits of `shifted` are n + 127, the exponent field of 2^n, or for n = -127 that of 0.
  const V magic = hn::Set(d, 0x1.8p+23F + 127);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504F), magic);
  const V n = hn::Sub(shifted, magic);
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375F), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4F), r);
  const hn::RebindToSigned<D> di;
  return hn::Mul(exp_of_rest(d, r), hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
#endif
}

/// The same where what is subnormal may become 0: faster still without a scaling instruction.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vec_exp_flushing(D d, V x) {
  if constexpr (is_float32_v<D>) {
#if HWY_TARGET == HWY_AVX2
    return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0F)), exp_by_table(d, x));
#elif HWY_TARGET != HWY_AVX3
    // At -88 the exponent field is that of 0.
    return exp_of_normal(d, hn::Max(hn::Set(d, -88.0F), x));
#endif
  }
  return vec_exp_nonpositive(d, x);
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
