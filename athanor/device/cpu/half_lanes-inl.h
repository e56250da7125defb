// Vectors of float32 from half-precision numbers in memory and back. Compiled once per SIMD target; included by kernel
// files after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_HALF_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_HALF_LANES_INL_H_
#undef ATHANOR_DEVICE_CPU_HALF_LANES_INL_H_
#else
#define ATHANOR_DEVICE_CPU_HALF_LANES_INL_H_
#endif
// clang-format on

#include <cstddef>

#include "athanor/base/half.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SSE4
// What Highway emulates knows neither infinities nor NaN: the numbers are converted one by one. Not inline: it would be
// most of the code of every loop.
HWY_NOINLINE inline void read_halves(const Half* from, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}
HWY_NOINLINE inline void write_halves(const float* from, std::size_t count, Half* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] = Half(from[i]);
}
#endif

template <class D>
HWY_INLINE hn::Vec<D> load_halves(D d, const Half* p) {
#if HWY_TARGET == HWY_SSE4
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  read_halves(p, hn::Lanes(d), lanes);
  return hn::Load(d, lanes);
#else
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), reinterpret_cast<const hwy::float16_t*>(p)));
#endif
}

template <class D>
HWY_INLINE void store_halves(D d, hn::Vec<D> v, Half* p) {
#if HWY_TARGET == HWY_SSE4
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  write_halves(lanes, hn::Lanes(d), p);
#else
  const hn::Rebind<hwy::float16_t, D> dh;
  hn::StoreU(hn::DemoteTo(dh, v), dh, reinterpret_cast<hwy::float16_t*>(p));
#endif
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
