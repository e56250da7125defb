/// Mean and squared deviations of a stretch of memory in one pass. Included once per target.
#if defined(ATHANOR_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_MOMENTS_INL_H_
#undef ATHANOR_MOMENTS_INL_H_
#else
#define ATHANOR_MOMENTS_INL_H_
#endif

#include <algorithm>

#include "athanor/device/cpu/reduce_core.h"
#include "athanor/device/cpu/reduce_fold-inl.h"
#include "athanor/device/cpu/simd_tail-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// From the sums of n deviations from `center` and of their squares; `share` is 1 / n.
HWY_INLINE MomentsState moments_from_sums(double n, double share, double center, double s1, double s2) {
  // The difference is at least 0 but for rounding; written so that NaN stays NaN.
  const double m2 = s2 - s1 * s1 * share;
  return {n, center + s1 * share, m2 < 0 ? 0 : m2};
}

/// What stretches of n elements, or of a piece if that is less, have in common: quotients, which a row's statistics
/// would wait for.
template <class T>
struct MomentsShares {
  std::int64_t head;  ///< elements whose mean is the center
  T of_head;
  double of_all;
  explicit MomentsShares(std::int64_t n) {
    n = std::min(n, kFoldPiece<T>);
    constexpr std::int64_t L = hn::MaxLanes(hn::ScalableTag<T>());
    head = n <= 8 * L ? n : (n / 8 + L - 1) / L * L;
    of_head = T{1} / static_cast<T>(head);
    of_all = 1 / static_cast<double>(n);
  }
};

template <class T>
HWY_INLINE T sum_of(const T* HWY_RESTRICT p, std::int64_t n) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = hn::MaxLanes(d);
  auto a = hn::Zero(d), b = a;
  std::int64_t i = 0;
  for (; i + 2 * L <= n; i += 2 * L) {
    a = hn::Add(a, hn::LoadU(d, p + i));
    b = hn::Add(b, hn::LoadU(d, p + i + L));
  }
  for (; i + L <= n; i += L) a = hn::Add(a, hn::LoadU(d, p + i));
  if (i < n) b = hn::Add(b, load_tail(d, p + i, n - i));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
}

/// Deviations are taken from the mean of an eighth of the elements: close enough to the true one that subtracting the
/// square of their sum loses no more than three bits, and no second pass is needed.
template <class T>
HWY_INLINE MomentsState moments_of(const T* HWY_RESTRICT p, std::int64_t n, const MomentsShares<T>& shares) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = hn::MaxLanes(d);
  using V = hn::Vec<decltype(d)>;
  const T center = sum_of(p, shares.head) * shares.of_head;
  const V c = hn::Set(d, center), one = hn::Set(d, T{1});
  V a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  // Deviations, and their sums, have the other sign: then the difference takes x from memory.
  const auto take = [&](V& a, V& b, V x) HWY_ATTR {
    const V e = hn::Sub(c, x);
    a = hn::Add(a, e);
    b = hn::MulAdd(e, e, b);
  };
  // The same sum from the units that multiply: those that add have the differences to do as well.
  const auto take_by_product = [&](V& a, V& b, V x) HWY_ATTR {
    const V e = hn::Sub(c, x);
    a = hn::MulAdd(e, one, a);
    b = hn::MulAdd(e, e, b);
  };
  std::int64_t i = 0;
  for (; i + 4 * L <= n; i += 4 * L) {
    take(a0, b0, hn::LoadU(d, p + i));
    take_by_product(a1, b1, hn::LoadU(d, p + i + L));
    take(a2, b2, hn::LoadU(d, p + i + 2 * L));
    take_by_product(a3, b3, hn::LoadU(d, p + i + 3 * L));
  }
  for (; i + L <= n; i += L) take(a0, b0, hn::LoadU(d, p + i));
  if (i < n) take(a1, b1, hn::IfThenElse(first_lanes(d, n - i), load_tail(d, p + i, n - i), c));
  a0 = hn::Add(hn::Add(a0, a1), hn::Add(a2, a3));
  b0 = hn::Add(hn::Add(b0, b1), hn::Add(b2, b3));
  return moments_from_sums(static_cast<double>(n), shares.of_all, center, -hn::GetLane(hn::SumOfLanes(d, a0)),
                           hn::GetLane(hn::SumOfLanes(d, b0)));
}

/// The same of n elements in pieces whose sums stay accurate.
template <class T>
HWY_INLINE MomentsState moments_of_row(const T* p, std::int64_t n, const MomentsShares<T>& shares) {
  if (n <= kFoldPiece<T>) return moments_of(p, n, shares);
  MomentsState s{0, 0, 0};
  std::int64_t i = 0;
  for (; i + kFoldPiece<T> <= n; i += kFoldPiece<T>) join_moments(s, moments_of(p + i, kFoldPiece<T>, shares));
  if (i < n) join_moments(s, moments_of(p + i, n - i, MomentsShares<T>(n - i)));
  return s;
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
