// Max pooling over 2 × 2 windows side by side in float32 planes, and its gradient: the commonest pooling, vectorized
// whatever the width. Compiled once per SIMD target; included after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_POOL_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_POOL_PAIRS_INL_H_
#undef ATHANOR_DEVICE_CPU_POOL_PAIRS_INL_H_
#else
#define ATHANOR_DEVICE_CPU_POOL_PAIRS_INL_H_
#endif
// clang-format on

#include <cstdint>
#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Windows [x, x + Lanes(d)) of a row: two rows of values, `rank` the number of the largest (the last NaN, else the
/// first of equals). rank may be null.
template <class D>
HWY_INLINE void pool_pair(D d, const float* top, const float* bottom, float* best, std::uint8_t* rank) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::uint8_t, D> d8;
  hn::Vec<D> v[4];
  hn::LoadInterleaved2(d, top, v[0], v[1]);
  hn::LoadInterleaved2(d, bottom, v[2], v[3]);
  auto most = v[0];
  auto at = hn::Zero(di);
  for (int t = 1; t < 4; ++t) {
    const auto take = hn::Or(hn::Gt(v[t], most), hn::IsNaN(v[t]));
    most = hn::IfThenElse(take, v[t], most);
    at = hn::IfThenElse(hn::RebindMask(di, take), hn::Set(di, t), at);
  }
  hn::StoreU(most, d, best);
  if (rank) hn::StoreU(hn::DemoteTo(d8, at), d8, rank);
}

/// Two rows of the gradient from windows [x, x + Lanes(d)).
template <class D>
HWY_INLINE void spread_pair(D d, const float* grad, const std::uint8_t* rank, float* top, float* bottom) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::uint8_t, D> d8;
  const auto g = hn::LoadU(d, grad);
  const auto at = hn::PromoteTo(di, hn::LoadU(d8, rank));
  const auto part = [&](int t) { return hn::IfThenElseZero(hn::RebindMask(d, hn::Eq(at, hn::Set(di, t))), g); };
  hn::StoreInterleaved2(part(0), part(1), d, top);
  hn::StoreInterleaved2(part(2), part(3), d, bottom);
}

/// Calls part(tag, x) over [0, n): whole vectors, then ever smaller ones.
template <int kLanes = static_cast<int>(HWY_MAX_BYTES / sizeof(float)), class F>
HWY_INLINE void each_part(std::int64_t n, F&& part, std::int64_t x = 0) {
  const hn::FixedTag<float, kLanes> d;
  for (; x + kLanes <= n; x += kLanes) part(d, x);
  if constexpr (kLanes > 1) {
    if (x < n) each_part<kLanes / 2>(n, part, x);
  }
}

/// A plane of height × width windows from an input whose rows are `in_width` long. rank may be null.
inline void pool_pairs(const float* in, std::int64_t in_width, std::int64_t height, std::int64_t width, float* best,
                       std::uint8_t* rank) {
  for (std::int64_t h = 0; h < height; ++h, in += 2 * in_width, best += width) {
    each_part(width, [&](auto d, std::int64_t x) HWY_ATTR {
      pool_pair(d, in + 2 * x, in + in_width + 2 * x, best + x, rank ? rank + x : nullptr);
    });
    if (rank) rank += width;
  }
}

/// The gradient of pool_pairs' input, whose planes have in_height rows.
inline void spread_pairs(const float* grad, const std::uint8_t* rank, std::int64_t height, std::int64_t width,
                         std::int64_t in_height, std::int64_t in_width, float* to) {
  for (std::int64_t h = 0; h < height; ++h, grad += width, rank += width, to += 2 * in_width) {
    each_part(width, [&](auto d, std::int64_t x)
                         HWY_ATTR { spread_pair(d, grad + x, rank + x, to + 2 * x, to + in_width + 2 * x); });
    for (std::int64_t x = 2 * width; x < in_width; ++x) to[x] = to[in_width + x] = 0;
  }
  for (std::int64_t i = 0; i < (in_height - 2 * height) * in_width; ++i) to[i] = 0;
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
