#pragma once
/// Tensors whose values tell where they come from.

#include "athanor/ops/factory.h"

namespace athanor::data {

/// 0, 1, 2, … in the given shape.
inline Tensor counting(IntArrayRef sizes, DType dtype = kLong) {
  std::int64_t n = 1;
  for (const auto s : sizes) n *= s;
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(i);
  return tensor(values).reshape(sizes).to(dtype);
}

}  // namespace athanor::data
