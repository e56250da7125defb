#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/random_simd.cpp"
#include <algorithm>
#include <cmath>
#include <limits>

#include "athanor/device/cpu/random_philox.h"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {

// ---- words

/// A lane of 64 bits holds one 32-bit word of one block in its low half; the high half is whatever a product left
/// there, and the multiplication, which reads low halves only, does not mind.
struct PhiloxLanes {
  using D = hn::ScalableTag<std::uint64_t>;
  using V = hn::Vec<D>;
  V c0, c1, c2, c3;
};

HWY_INLINE PhiloxLanes::V multiply_low_halves(PhiloxLanes::V a, PhiloxLanes::V b) {
  const hn::RepartitionToNarrow<PhiloxLanes::D> narrow;
  return hn::MulEven(hn::BitCast(narrow, a), hn::BitCast(narrow, b));
}

HWY_INLINE void philox_round(PhiloxLanes& s, std::uint32_t k0, std::uint32_t k1) {
  const PhiloxLanes::D d;
  const auto p0 = multiply_low_halves(s.c0, hn::Set(d, kPhiloxMul0));
  const auto p1 = multiply_low_halves(s.c2, hn::Set(d, kPhiloxMul1));
  s.c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), s.c1), hn::Set(d, k0));
  s.c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), s.c3), hn::Set(d, k1));
  s.c1 = p1;
  s.c3 = p0;
}

void philox_words(std::uint32_t* to, PhiloxState state, std::uint64_t first, std::int64_t blocks) {
  const PhiloxLanes::D d;
  using V = PhiloxLanes::V;
  constexpr std::int64_t L = hn::MaxLanes(d);
  constexpr int kGroups = 4;  // independent chains that hide the latency of the multiplication
  // Interleaving pairs of lanes below puts lanes 0, 2, 4 … before lanes 1, 3, 5 …
  alignas(64) std::uint64_t order[L];
  for (std::int64_t i = 0; i < L; ++i) order[i] = static_cast<std::uint64_t>(i / 2 + i % 2 * (L / 2));
  const V steps = hn::Load(d, order), low = hn::Set(d, 0xffffffffU);
  auto* out = reinterpret_cast<std::uint64_t*>(to);
  for (std::int64_t b = 0; b < blocks; b += kGroups * L, out += 2 * kGroups * L) {
    PhiloxLanes s[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      const V at = hn::Add(hn::Set(d, state.offset + first + static_cast<std::uint64_t>(b + g * L)), steps);
      s[g] = {at, hn::ShiftRight<32>(at), hn::Zero(d), hn::Zero(d)};
    }
    auto k0 = static_cast<std::uint32_t>(state.seed), k1 = static_cast<std::uint32_t>(state.seed >> 32);
    for (int round = 0; round < 10; ++round, k0 += kPhiloxWeyl0, k1 += kPhiloxWeyl1)
      for (auto& group : s) philox_round(group, k0, k1);
    for (int g = 0; g < kGroups; ++g) {
      const V front = hn::Or(hn::And(s[g].c0, low), hn::ShiftLeft<32>(s[g].c1));
      const V back = hn::Or(hn::And(s[g].c2, low), hn::ShiftLeft<32>(s[g].c3));
      hn::StoreU(hn::InterleaveLower(d, front, back), d, out + g * 2 * L);
      hn::StoreU(hn::InterleaveUpper(d, front, back), d, out + g * 2 * L + L);
    }
  }
}

// ---- draws as numbers

template <class D>
using Bits = hn::Vec<hn::RebindToUnsigned<D>>;

/// x < 2^24 (float32) or 2^53 (float64) as a number, exactly.
template <class D>
HWY_INLINE hn::Vec<D> small_to_float(D d, Bits<D> x) {
  return hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<D>(), x));
}

/// The top kBits bits of a draw as a number in [0, 1).
template <int kBits, class D>
HWY_INLINE hn::Vec<D> unit(D d, Bits<D> draw) {
  constexpr int kWidth = sizeof(hn::TFromD<D>) * 8;
  constexpr double kScale = 1.0 / static_cast<double>(std::uint64_t{1} << kBits);
  return hn::Mul(small_to_float(d, hn::ShiftRight<kWidth - kBits>(draw)),
                 hn::Set(d, static_cast<hn::TFromD<D>>(kScale)));
}

/// (draw + 1/2) 2^-width, rounded once: in (0, 1].
template <class D>
HWY_INLINE hn::Vec<D> open_unit(D d, Bits<D> draw) {
  using T = hn::TFromD<D>;
  constexpr int kHalf = sizeof(T) * 4;
  constexpr T kRadix = static_cast<T>(std::uint64_t{1} << kHalf);
  const hn::RebindToUnsigned<D> du;
  const auto high = small_to_float(d, hn::ShiftRight<kHalf>(draw));
  const auto low = small_to_float(d, hn::And(draw, hn::Set(du, (hn::TFromD<decltype(du)>{1} << kHalf) - 1)));
  const auto sum = hn::Add(hn::Mul(high, hn::Set(d, kRadix)), hn::Add(low, hn::Set(d, T(0.5))));
  return hn::Mul(sum, hn::Set(d, T(1) / kRadix / kRadix));
}

/// cos and sin of 2 pi ((draw + 1/2) 2^-width - 1/8), by their series on [-pi/4, pi/4].
template <class D, class V = hn::Vec<D>>
HWY_INLINE void cos_sin(D d, Bits<D> draw, V& cos, V& sin) {
  using T = hn::TFromD<D>;
  constexpr int kWidth = sizeof(T) * 8;
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  using U = hn::TFromD<decltype(du)>;
  constexpr U kOne = 1;
  const auto fraction = hn::And(draw, hn::Set(du, (kOne << (kWidth - 2)) - 1));
  const auto centred = hn::BitCast(di, hn::Sub(fraction, hn::Set(du, kOne << (kWidth - 3))));
  constexpr T kTurn = static_cast<T>(1.57079632679489661923 / static_cast<double>(kOne << (kWidth - 2)));
  const V x = hn::Mul(hn::Add(hn::ConvertTo(d, centred), hn::Set(d, T(0.5))), hn::Set(d, kTurn));
  const V y = hn::Mul(x, x);
  V c = hn::Set(d, T(1)), s = c;
  if constexpr (sizeof(T) == 4) {
    c = hn::Set(d, 2.48015873e-5F);
    for (const float k : {-1.38888889e-3F, 4.16666667e-2F, -0.5F, 1.0F}) c = hn::MulAdd(c, y, hn::Set(d, k));
    s = hn::Set(d, 2.75573192e-6F);
    for (const float k : {-1.98412698e-4F, 8.33333333e-3F, -1.66666667e-1F, 1.0F}) s = hn::MulAdd(s, y, hn::Set(d, k));
  } else {
    double factorial = 1;
    double coefficient[19];
    for (int i = 0; i < 19; ++i) {
      coefficient[i] = (i / 2 % 2 ? -1 : 1) / factorial;
      factorial *= i + 1;
    }
    c = hn::Set(d, coefficient[18]);
    for (int i = 16; i >= 0; i -= 2) c = hn::MulAdd(c, y, hn::Set(d, coefficient[i]));
    s = hn::Set(d, coefficient[17]);
    for (int i = 15; i >= 1; i -= 2) s = hn::MulAdd(s, y, hn::Set(d, coefficient[i]));
  }
  s = hn::Mul(s, x);
  // The top two bits are the quadrant: odd ones swap, and each changes signs.
  const auto quadrant = hn::ShiftRight<kWidth - 2>(draw);
  const auto odd = hn::RebindMask(d, hn::TestBit(quadrant, hn::Set(du, kOne)));
  const auto flip_sin = hn::ShiftLeft<kWidth - 1>(hn::ShiftRight<1>(quadrant));
  const auto flip_cos = hn::Xor(flip_sin, hn::ShiftLeft<kWidth - 1>(quadrant));
  cos = hn::Xor(hn::IfThenElse(odd, s, c), hn::BitCast(d, flip_cos));
  sin = hn::Xor(hn::IfThenElse(odd, c, s), hn::BitCast(d, flip_sin));
}

// ---- distributions

template <class T, class F>
HWY_INLINE void each_draw(void* to, const std::uint32_t* words, std::int64_t n, F&& fn) {
  const hn::ScalableTag<T> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr std::int64_t L = hn::MaxLanes(d);
  const auto* draws = reinterpret_cast<const hn::TFromD<decltype(du)>*>(words);
  for (std::int64_t i = 0; i < n; i += L) hn::Store(fn(d, hn::Load(du, draws + i)), d, static_cast<T*>(to) + i);
}

/// v, which the compiler may not fuse into a following addition.
template <class V>
HWY_INLINE V rounded(V v) {
#if defined(__x86_64__)
  asm("" : "+v"(v.raw));
#elif defined(__aarch64__)
  asm("" : "+w"(v.raw));
#endif
  return v;
}

template <class T, int kBits>
void uniform(void* to, const std::uint32_t* words, std::int64_t n, double a, double b) {
  const auto from = static_cast<T>(a), width = static_cast<T>(static_cast<T>(b) - from);
  each_draw<T>(to, words, n, [&](auto d, auto draw) HWY_ATTR {
    // Rounded twice on every device, so that all give the same bits.
    return hn::Add(rounded(hn::Mul(unit<kBits>(d, draw), hn::Set(d, width))), hn::Set(d, from));
  });
}

template <class T, bool kExp>
void normal(void* to, const std::uint32_t* words, std::int64_t n, double a, double b) {
  const hn::ScalableTag<T> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  constexpr std::int64_t L = hn::MaxLanes(d);
  const auto* draws = reinterpret_cast<const hn::TFromD<decltype(du)>*>(words);
  auto* out = static_cast<T*>(to);
  const auto mean = hn::Set(d, static_cast<T>(a)), std = hn::Set(d, static_cast<T>(b));
  for (std::int64_t i = 0; i < n; i += 2 * L) {
    // Even places are radii, odd ones angles; the two vectors share out the lanes.
    const auto v0 = hn::Load(du, draws + i), v1 = hn::Load(du, draws + i + L);
    const auto radius_draw = hn::OddEven(hn::DupEven(v1), v0), angle_draw = hn::OddEven(v1, hn::DupOdd(v0));
    const auto log = vec_log(d, open_unit(d, radius_draw));
    const auto radius = hn::Sqrt(hn::Mul(log, hn::Set(d, T(-2))));
    auto cos = mean, sin = mean;
    cos_sin(d, angle_draw, cos, sin);
    auto x = hn::MulAdd(hn::Mul(radius, cos), std, mean), y = hn::MulAdd(hn::Mul(radius, sin), std, mean);
    if constexpr (kExp) {
      x = vec_exp(d, x);
      y = vec_exp(d, y);
    }
    hn::Store(hn::OddEven(hn::DupEven(y), x), d, out + i);
    hn::Store(hn::OddEven(y, hn::DupOdd(x)), d, out + i + L);
  }
}

template <class T>
void exponential(void* to, const std::uint32_t* words, std::int64_t n, double a, double) {
  const auto scale = static_cast<T>(-1 / a);
  each_draw<T>(to, words, n, [&](auto d, auto draw) HWY_ATTR {
    const auto x = hn::Mul(vec_log(d, open_unit(d, draw)), hn::Set(d, scale));
    return hn::Max(x, hn::Set(d, std::numeric_limits<T>::min()));  // never 0
  });
}

template <class T>
void cauchy(void* to, const std::uint32_t* words, std::int64_t n, double a, double b) {
  each_draw<T>(to, words, n, [&](auto d, auto draw) HWY_ATTR {
    constexpr T kPi = static_cast<T>(3.14159265358979323846);
    const auto angle = hn::Mul(hn::Sub(open_unit(d, draw), hn::Set(d, T(0.5))), hn::Set(d, kPi));
    return hn::MulAdd(library_tan(d, angle), hn::Set(d, static_cast<T>(b)), hn::Set(d, static_cast<T>(a)));
  });
}

template <class T>
void geometric(void* to, const std::uint32_t* words, std::int64_t n, double p, double) {
  const auto scale = static_cast<T>(1 / std::log1p(-p));
  each_draw<T>(to, words, n, [&](auto d, auto draw) HWY_ATTR {
    const auto trials = hn::Ceil(hn::Mul(vec_log(d, open_unit(d, draw)), hn::Set(d, scale)));
    return hn::Max(trials, hn::Set(d, T(1)));
  });
}

// ---- integers and choices: plain loops that the compiler vectorises

bool integers(std::int64_t* HWY_RESTRICT to, const std::uint32_t* HWY_RESTRICT words, std::int64_t n, std::int64_t low,
              std::uint32_t range, std::uint32_t threshold) {
  std::uint64_t bad = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t product = std::uint64_t{words[i]} * range;
    to[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + (product >> 32));
    bad |= (product & 0xffffffffU) < threshold;
  }
  return bad != 0;
}

/// word < limit as word <= last, for 0 < limit.
HWY_INLINE std::uint32_t last_below(std::uint64_t limit) { return static_cast<std::uint32_t>(limit - 1); }

void below(std::uint8_t* HWY_RESTRICT to, const std::uint32_t* HWY_RESTRICT words, std::int64_t n,
           std::uint64_t limit) {
  const std::uint32_t last = last_below(limit);
  for (std::int64_t i = 0; i < n; ++i) to[i] = words[i] <= last;
  if (limit == 0) std::fill_n(to, n, std::uint8_t{0});
}

void below_float(float* HWY_RESTRICT to, const std::uint32_t* HWY_RESTRICT words, std::int64_t n, std::uint64_t limit) {
  const std::uint32_t last = last_below(limit);
  for (std::int64_t i = 0; i < n; ++i) to[i] = words[i] <= last ? 1.0F : 0.0F;
  if (limit == 0) std::fill_n(to, n, 0.0F);
}

template <class T>
void dropout(T* to, std::uint8_t* HWY_RESTRICT keep, const T* from, const std::uint32_t* HWY_RESTRICT words,
             std::int64_t n, std::uint64_t limit, T scale) {
  const std::uint32_t last = last_below(limit);
  const bool all = limit == 0;
#pragma GCC ivdep  // `from` may be `to`
  for (std::int64_t i = 0; i < n; ++i) to[i] = from[i] * (((words[i] > last) | all) ? scale : T(0));
  if (keep)
    for (std::int64_t i = 0; i < n; ++i) keep[i] = (words[i] > last) | all;
}

void fill_random(RandomFns& f) {
  f.words = &philox_words;
  f.uniform24 = &uniform<float, 24>;
  f.uniform11 = &uniform<float, 11>;
  f.uniform8 = &uniform<float, 8>;
  f.uniform53 = &uniform<double, 53>;
  f.normal = &normal<float, false>;
  f.log_normal = &normal<float, true>;
  f.exponential = &exponential<float>;
  f.cauchy = &cauchy<float>;
  f.geometric = &geometric<float>;
  f.normal64 = &normal<double, false>;
  f.log_normal64 = &normal<double, true>;
  f.exponential64 = &exponential<double>;
  f.cauchy64 = &cauchy<double>;
  f.geometric64 = &geometric<double>;
  f.integers = &integers;
  f.below = &below;
  f.below_float = &below_float;
  f.dropout = &dropout<float>;
  f.dropout64 = &dropout<double>;
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(fill_random);

const RandomFns& random_fns() {
  static const RandomFns fns = [] {
    RandomFns f{};
    HWY_DYNAMIC_DISPATCH(fill_random)(f);
    return f;
  }();
  return fns;
}
}  // namespace athanor::cpu
#endif
