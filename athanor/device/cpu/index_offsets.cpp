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
bool offsets_loop(std::int64_t* HWY_RESTRICT offsets, std::int64_t n, const char* HWY_RESTRICT data,
                  std::int64_t data_stride, std::int64_t size, std::int64_t stride, std::int64_t start,
                  std::int64_t step) {
  std::uint64_t bad = 0;
  if constexpr (kDense) data_stride = sizeof(Index);
  for (std::int64_t j = 0; j < n; ++j) {
    std::int64_t v = load<Index>(data + j * data_stride);
    if constexpr (kWrap) v += v < 0 ? size : 0;
    bad |= static_cast<std::uint64_t>(v) | (static_cast<std::uint64_t>(size - 1) - static_cast<std::uint64_t>(v));
    if constexpr (kAdd)
      offsets[j] += static_cast<std::int64_t>(static_cast<std::uint64_t>(v) * static_cast<std::uint64_t>(stride));
    else
      offsets[j] = static_cast<std::int64_t>(static_cast<std::uint64_t>(v) * static_cast<std::uint64_t>(stride)) +
                   start + j * step;
  }
  return static_cast<std::int64_t>(bad) < 0;
}

template <class Index, bool kWrap>
bool offsets_of(std::int64_t* offsets, std::int64_t n, const IndexOperand& o, const char* data,
                std::int64_t data_stride, std::int64_t start, std::int64_t step, bool add) {
  const bool dense = data_stride == sizeof(Index);
  const auto loop = add ? (dense ? offsets_loop<Index, kWrap, true, true> : offsets_loop<Index, kWrap, false, true>)
                        : (dense ? offsets_loop<Index, kWrap, true, false> : offsets_loop<Index, kWrap, false, false>);
  return loop(offsets, n, data, data_stride, o.size, o.stride, start, step);
}

bool offsets(std::int64_t* offsets, std::int64_t n, const IndexOperand& o, const char* data, std::int64_t data_stride,
             std::int64_t start, std::int64_t step, bool add) {
  if (o.is_long)
    return o.wrap ? offsets_of<std::int64_t, true>(offsets, n, o, data, data_stride, start, step, add)
                  : offsets_of<std::int64_t, false>(offsets, n, o, data, data_stride, start, step, add);
  return o.wrap ? offsets_of<std::int32_t, true>(offsets, n, o, data, data_stride, start, step, add)
                : offsets_of<std::int32_t, false>(offsets, n, o, data, data_stride, start, step, add);
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {

HWY_EXPORT(offsets);

bool index_offsets(std::int64_t* out, std::int64_t n, const IndexOperand& operand, const char* data,
                   std::int64_t data_stride, std::int64_t start, std::int64_t step, bool add) {
  if (operand.shape == nullptr)
    return HWY_DYNAMIC_DISPATCH(offsets)(out, n, operand, data, data_stride, start, step, add);
  // A flat index into strided memory: its coordinates decide.
  std::int64_t flat[kIndexBlock];
  if (HWY_DYNAMIC_DISPATCH(offsets)(flat, n, operand, data, data_stride, 0, 0, false)) return true;
  const View& v = *operand.shape;
  const auto item = static_cast<std::int64_t>(v.item_size());
  for (std::int64_t j = 0; j < n; ++j) {
    std::int64_t rest = flat[j], offset = 0;
    for (int d = v.ndim - 1; d >= 0; --d) {
      offset += rest % v.sizes[d] * v.strides[d];
      rest /= v.sizes[d];
    }
    out[j] = offset * item + start + j * step;
  }
  return false;
}

}  // namespace athanor::cpu
#endif
