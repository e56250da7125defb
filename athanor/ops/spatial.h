#pragma once
/// Checks shared by convolution and pooling: lists of one number per spatial dimension, shapes with and without batch.

#include <array>

#include "athanor/ops/copy.h"
#include "athanor/ops/op.h"

namespace athanor::ops {

using SpatialArray = std::array<std::int64_t, 3>;

/// `values` with one entry per spatial dimension: a single value counts for all. Throws Error naming op and argument.
inline SpatialArray spatial_values(IntArrayRef values, int spatial, const char* op, const char* argument) {
  const auto n = static_cast<std::size_t>(spatial);
  ATHANOR_CHECK(values.size() == 1 || values.size() == n, op, ": expected ", argument,
                " to be a single integer value or a list of ", n, " values, but got ", argument, "=", values);
  SpatialArray out{1, 1, 1};
  for (std::size_t d = 0; d < n; ++d) out[d] = values[values.size() == 1 ? 0 : d];
  return out;
}

inline IntArrayRef spatial_ref(const SpatialArray& values, int spatial) {
  return {values.data(), static_cast<std::size_t>(spatial)};
}

/// Strides of a result of `sizes` that follows its operand's layout: channels-last stays channels-last.
inline DimVector layout_like(const Tensor& t, IntArrayRef sizes) {
  if (t.is_contiguous()) return {};
  if (t.dim() == 4 && t.is_contiguous(MemoryFormat::ChannelsLast))
    return detail::strides_for(sizes, MemoryFormat::ChannelsLast);
  if (t.dim() == 5 && t.is_contiguous(MemoryFormat::ChannelsLast3d))
    return detail::strides_for(sizes, MemoryFormat::ChannelsLast3d);
  return {};
}

/// An int64 tensor of these values on `device`.
inline Tensor index_tensor(const std::vector<std::int64_t>& values, IntArrayRef shape, Device device) {
  Tensor t = detail::empty_tensor(shape, DType::Long, Device());
  if (!values.empty()) std::copy(values.begin(), values.end(), static_cast<std::int64_t*>(t.data_ptr()));
  return device.is_host() ? t : to_device(t, device);
}

}  // namespace athanor::ops
