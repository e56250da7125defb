#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/index_offsets.cpp"
#include <cstdint>

#include "athanor/device/cpu/index_space.h"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {

// Plain loops: the compiler vectorizes them for each target (multiplication of int64 needs AVX-512).
template <class Index, bool kWrap, bool kDense, bool kAdd>
std::uint64_t offsets_row(std::int64_t* HWY_RESTRICT offsets, std::int64_t n, const char* HWY_RESTRICT data,
                          std::int64_t data_stride, std::int64_t size, std::int64_t stride, std::int64_t start,
                          std::int64_t step) {
  std::uint64_t bad = 0;
  if constexpr (kDense) data_stride = sizeof(Index);
  for (std::int64_t j = 0; j < n; ++j) {
    std::int64_t v = load<Index>(data + j * data_stride);
    if constexpr (kWrap) v += v < 0 ? size : 0;
    // The sign bit tells.
    bad |= static_cast<std::uint64_t>(v) | (static_cast<std::uint64_t>(size - 1) - static_cast<std::uint64_t>(v));
    const auto scaled = static_cast<std::int64_t>(static_cast<std::uint64_t>(v) * static_cast<std::uint64_t>(stride));
    offsets[j] = scaled + (kAdd ? offsets[j] : start + j * step);
  }
  return bad;
}

template <class Index, bool kWrap, bool kDense, bool kAdd>
bool offsets_grid(std::int64_t* offsets, const IndexGrid& g, const IndexOperand& o) {
  std::uint64_t bad = 0;
  for (std::int64_t r = 0; r < g.rows; ++r)
    bad |= offsets_row<Index, kWrap, kDense, kAdd>(offsets + r * g.columns, g.columns, g.data + r * g.data_row_stride,
                                                   g.data_stride, o.size, o.stride, g.start + r * g.row_step, g.step);
  return static_cast<std::int64_t>(bad) < 0;
}

template <class Index, bool kWrap>
bool offsets_of(std::int64_t* offsets, const IndexGrid& g, const IndexOperand& o, bool add) {
  const bool dense = g.data_stride == sizeof(Index);
  const auto grid = add ? (dense ? offsets_grid<Index, kWrap, true, true> : offsets_grid<Index, kWrap, false, true>)
                        : (dense ? offsets_grid<Index, kWrap, true, false> : offsets_grid<Index, kWrap, false, false>);
  return grid(offsets, g, o);
}

bool offsets(std::int64_t* offsets, const IndexGrid& g, const IndexOperand& o, bool add) {
  if (o.is_long)
    return o.wrap ? offsets_of<std::int64_t, true>(offsets, g, o, add)
                  : offsets_of<std::int64_t, false>(offsets, g, o, add);
  return o.wrap ? offsets_of<std::int32_t, true>(offsets, g, o, add)
                : offsets_of<std::int32_t, false>(offsets, g, o, add);
}

template <class Index, bool kWrap>
bool outside_of(const char* HWY_RESTRICT data, std::int64_t data_stride, std::int64_t n, std::int64_t size) {
  std::uint64_t bad = 0;
  const auto test = [&](std::int64_t stride) {
    for (std::int64_t j = 0; j < n; ++j) {
      std::int64_t v = load<Index>(data + j * stride);
      if constexpr (kWrap) v += v < 0 ? size : 0;
      bad |= static_cast<std::uint64_t>(v) | (static_cast<std::uint64_t>(size - 1) - static_cast<std::uint64_t>(v));
    }
  };
  data_stride == sizeof(Index) ? test(sizeof(Index)) : test(data_stride);
  return static_cast<std::int64_t>(bad) < 0;
}

bool outside(const IndexOperand& o, const char* data, std::int64_t data_stride, std::int64_t n) {
  if (o.is_long)
    return o.wrap ? outside_of<std::int64_t, true>(data, data_stride, n, o.size)
                  : outside_of<std::int64_t, false>(data, data_stride, n, o.size);
  return o.wrap ? outside_of<std::int32_t, true>(data, data_stride, n, o.size)
                : outside_of<std::int32_t, false>(data, data_stride, n, o.size);
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {

HWY_EXPORT(offsets);
HWY_EXPORT(outside);

bool index_outside(const IndexOperand& operand, const char* data, std::int64_t data_stride, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(outside)(operand, data, data_stride, n);
}

bool index_offsets(std::int64_t* out, const IndexGrid& g, const IndexOperand& operand, bool add) {
  if (operand.shape == nullptr) return HWY_DYNAMIC_DISPATCH(offsets)(out, g, operand, add);
  // A flat index into strided memory: its coordinates decide. There are no linear dims then.
  if (HWY_DYNAMIC_DISPATCH(offsets)(out, g, operand, false)) return true;
  const View& v = *operand.shape;
  const auto item = static_cast<std::int64_t>(v.item_size());
  for (std::int64_t j = 0; j < g.rows * g.columns; ++j) {
    std::int64_t rest = out[j], offset = 0;
    for (int d = v.ndim - 1; d >= 0; --d) {
      offset += rest % v.sizes[d] * v.strides[d];
      rest /= v.sizes[d];
    }
    out[j] = offset * item;
  }
  return false;
}

}  // namespace athanor::cpu
#endif
