/// Loads and stores of part of a vector that touch nothing beyond it. Included once per target.
#if defined(ATHANOR_SIMD_TAIL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_SIMD_TAIL_INL_H_
#undef ATHANOR_SIMD_TAIL_INL_H_
#else
#define ATHANOR_SIMD_TAIL_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The first n < Lanes(d) lanes.
template <class D>
HWY_INLINE auto first_lanes(D d, std::int64_t n) {
  return hn::FirstN(d, static_cast<std::size_t>(n));
}

/// The n <= Lanes(d) elements at p, followed by zeros.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_tail(D d, const T* p, std::int64_t n) {
  if constexpr (HWY_TARGET == HWY_AVX3 || (HWY_TARGET == HWY_AVX2 && sizeof(T) >= 4)) {
    return hn::MaskedLoad(first_lanes(d, n), d, p);
  } else {
    alignas(64) T lanes[hn::MaxLanes(d)] = {};
    std::memcpy(lanes, p, static_cast<std::size_t>(n) * sizeof(T));
    return hn::Load(d, lanes);
  }
}

/// Stores the first n <= Lanes(d) lanes of v.
template <class D, class T>
HWY_INLINE void store_tail(D d, hn::Vec<D> v, T* p, std::int64_t n) {
#if HWY_TARGET == HWY_AVX3
  hn::BlendedStore(v, first_lanes(d, n), d, p);
#else
  alignas(64) T lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  std::memcpy(p, lanes, static_cast<std::size_t>(n) * sizeof(T));
#endif
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
