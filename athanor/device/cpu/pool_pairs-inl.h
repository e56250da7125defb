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

#include <array>
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
  const auto part = [&](auto value, auto place, auto number)
                        HWY_ATTR { return hn::IfThenElseZero(hn::RebindMask(d, hn::Eq(place, number)), value); };
  constexpr int N = hn::MaxLanes(d);
  if constexpr (N >= 4) {
    // Each window's gradient and place twice, side by side, then kept where the place is that of the element.
    static constexpr auto twice = [] {
      std::array<std::int32_t, 2 * N> windows{};
      for (int i = 0; i < 2 * N; ++i) windows[static_cast<std::size_t>(i)] = i / 2;
      return windows;
    }();
    const auto upper = hn::OddEven(hn::Set(di, 1), hn::Zero(di)), lower = hn::OddEven(hn::Set(di, 3), hn::Set(di, 2));
    hn::Vec<D> value[2];
    hn::Vec<decltype(di)> place[2];
    for (int half = 0; half < 2; ++half) {
      value[half] = hn::TableLookupLanes(g, hn::SetTableIndices(d, twice.data() + half * N));
      place[half] = hn::TableLookupLanes(at, hn::SetTableIndices(di, twice.data() + half * N));
    }
    // The top row first, which may reach into the bottom one.
    for (int half = 0; half < 2; ++half) hn::StoreU(part(value[half], place[half], upper), d, top + half * N);
    for (int half = 0; half < 2; ++half) hn::StoreU(part(value[half], place[half], lower), d, bottom + half * N);
  } else {
    const auto of = [&](int t) HWY_ATTR { return part(g, at, hn::Set(di, t)); };
    hn::StoreInterleaved2(of(0), of(1), d, top);
    hn::StoreInterleaved2(of(2), of(3), d, bottom);
  }
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

/// As each_part; where one vector can cover [0, n), it does and may reach beyond, by less than n.
template <int kLanes = static_cast<int>(HWY_MAX_BYTES / sizeof(float)), class F>
HWY_INLINE void each_cover(std::int64_t n, F&& part) {
  if (n > kLanes) return each_part(n, part);
  if constexpr (kLanes > 1) {
    if (n <= kLanes / 2) return each_cover<kLanes / 2>(n, part);
  }
  if (n > 0) part(hn::FixedTag<float, kLanes>(), 0);
}

/// Calls row(h, each) for the rows of a plane in their order, where each(width, part) is each_cover but for the last:
/// what is written beyond a row's end, the next row overwrites.
template <class F>
HWY_INLINE void each_row(std::int64_t height, F&& row) {
  for (std::int64_t h = 0; h + 1 < height; ++h) row([](std::int64_t n, auto&& part) HWY_ATTR { each_cover(n, part); });
  if (height > 0) row([](std::int64_t n, auto&& part) HWY_ATTR { each_part(n, part); });
}

/// A plane of height × width windows from an input whose rows are `in_width` long. rank may be null.
inline void pool_pairs(const float* in, std::int64_t in_width, std::int64_t height, std::int64_t width, float* best,
                       std::uint8_t* rank) {
  each_row(height, [&](auto each) HWY_ATTR {
    each(width, [&](auto d, std::int64_t x)
                    HWY_ATTR { pool_pair(d, in + 2 * x, in + in_width + 2 * x, best + x, rank ? rank + x : nullptr); });
    in += 2 * in_width;
    best += width;
    if (rank) rank += width;
  });
}

/// The gradient of pool_pairs' input, whose planes have in_height rows.
inline void spread_pairs(const float* grad, const std::uint8_t* rank, std::int64_t height, std::int64_t width,
                         std::int64_t in_height, std::int64_t in_width, float* to) {
  each_row(height, [&](auto each) HWY_ATTR {
    each(width, [&](auto d, std::int64_t x)
                    HWY_ATTR { spread_pair(d, grad + x, rank + x, to + 2 * x, to + in_width + 2 * x); });
    for (std::int64_t x = 2 * width; x < in_width; ++x) to[x] = to[in_width + x] = 0;
    grad += width;
    rank += width;
    to += 2 * in_width;
  });
  for (std::int64_t i = 0; i < (in_height - 2 * height) * in_width; ++i) to[i] = 0;
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
