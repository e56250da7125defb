#pragma once
/// The one loop of single-index element access, in the forms that IndexAction::direct needs.

#include "athanor/device/cpu/index_space.h"

namespace athanor::cpu {

/// Calls point(base address, flat address) for the points of `grid`; false as soon as an index is out of range.
template <class Index, bool kWrap, std::int64_t kItem, bool kDense, class F>
inline bool direct_row(char* base, const char* data, std::int64_t data_stride, std::int64_t n, std::int64_t step,
                       std::int64_t size, std::int64_t stride, char* flat, std::int64_t flat_stride, F&& point) {
  if constexpr (kDense) {
    data_stride = sizeof(Index);
    flat_stride = kItem;
    stride = kItem;
  }
  for (std::int64_t j = 0; j < n; ++j) {
    std::int64_t v = load<Index>(data + j * data_stride);
    if constexpr (kWrap) v += v < 0 ? size : 0;
    if (static_cast<std::uint64_t>(v) >= static_cast<std::uint64_t>(size)) [[unlikely]]
      return false;
    point(base + v * stride + (kDense ? 0 : j * step), flat + j * flat_stride);
  }
  return true;
}

template <class Index, bool kWrap, std::int64_t kItem, class F>
bool direct_grid(char* base, const IndexGrid& g, const IndexOperand& o, char* flat, std::int64_t flat_stride,
                 std::int64_t flat_row_stride, F&& point) {
  const bool dense = g.data_stride == sizeof(Index) && flat_stride == kItem && g.step == 0 && o.stride == kItem;
  for (std::int64_t r = 0; r < g.rows; ++r) {
    char* b = base + g.start + r * g.row_step;
    const char* d = g.data + r * g.data_row_stride;
    char* f = flat + r * flat_row_stride;
    const bool ok = dense ? direct_row<Index, kWrap, kItem, true>(b, d, g.data_stride, g.columns, g.step, o.size,
                                                                  o.stride, f, flat_stride, point)
                          : direct_row<Index, kWrap, kItem, false>(b, d, g.data_stride, g.columns, g.step, o.size,
                                                                   o.stride, f, flat_stride, point);
    if (!ok) return false;
  }
  return true;
}

template <std::int64_t kItem, class F>
bool direct_loop(char* base, const IndexGrid& g, const IndexOperand& o, char* flat, std::int64_t flat_stride,
                 std::int64_t flat_row_stride, F&& point) {
  if (o.is_long)
    return o.wrap ? direct_grid<std::int64_t, true, kItem>(base, g, o, flat, flat_stride, flat_row_stride, point)
                  : direct_grid<std::int64_t, false, kItem>(base, g, o, flat, flat_stride, flat_row_stride, point);
  return o.wrap ? direct_grid<std::int32_t, true, kItem>(base, g, o, flat, flat_stride, flat_row_stride, point)
                : direct_grid<std::int32_t, false, kItem>(base, g, o, flat, flat_stride, flat_row_stride, point);
}

}  // namespace athanor::cpu
