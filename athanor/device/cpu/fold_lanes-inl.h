// Sums over the lanes of several vectors at once: half the additions and shuffles of one vector after the other.
// Compiled once per SIMD target; included by kernel files after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_FOLD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_FOLD_LANES_INL_H_
#undef ATHANOR_DEVICE_CPU_FOLD_LANES_INL_H_
#else
#define ATHANOR_DEVICE_CPU_FOLD_LANES_INL_H_
#endif
// clang-format on

#include <cstddef>
#include <type_traits>
#include <utility>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Vectors that share one once they are folded: as many as a block of 128 bits has lanes.
template <class T>
inline constexpr int kFolded = static_cast<int>(16 / sizeof(T));
/// Vectors of the sums of a tile of n.
template <class T>
constexpr int folded_vectors(int n) {
  return (n + kFolded<T> - 1) / kFolded<T>;
}

template <class D, class V>
HWY_INLINE V fold(D d, V first, V second) {
  return hn::Add(hn::InterleaveLower(d, first, second), hn::InterleaveUpper(d, first, second));
}
template <class D, class V>
HWY_INLINE V fold(D d, V first, V second, V third, V fourth) {
  static_assert(kFolded<hn::TFromD<D>> == 4);
  const hn::Repartition<double, D> wide;
  const auto a = hn::BitCast(wide, fold(d, first, second)), b = hn::BitCast(wide, fold(d, third, fourth));
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(wide, a, b)), hn::BitCast(d, hn::InterleaveUpper(wide, a, b)));
}

/// One vector of kFolded sums of a tile from the q-th on: lane b · kFolded + j has the lanes of block b of sum q + j
/// added together, in the same order whichever sum it is; what is beyond the last counts as zero.
template <class T, int q, class V, int kRows, int kCols>
HWY_INLINE V fold_sums(const V (&sum)[kRows][kCols]) {
  const hn::ScalableTag<T> d;
  const auto at = [&]<int j>(std::integral_constant<int, j>) HWY_ATTR {
    if constexpr (q + j < kRows * kCols)
      return sum[(q + j) / kCols][(q + j) % kCols];
    else
      return hn::Zero(d);
  };
  const auto all = [&]<int... j>(std::integer_sequence<int, j...>) HWY_ATTR {
    return fold(d, at(std::integral_constant<int, j>())...);
  };
  return all(std::make_integer_sequence<int, kFolded<T>>());
}

/// Stores the sum of the blocks of v.
template <class D, class V, class T>
HWY_INLINE void store_sum_of_blocks(D d, V v, T* to) {
  if constexpr (hn::MaxLanes(d) <= static_cast<std::size_t>(kFolded<T>)) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Half<D> half;
    store_sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), to);
  }
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
