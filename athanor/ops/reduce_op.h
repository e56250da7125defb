#pragma once
/// Helpers of reductions: which dims go, what shape remains.

#include "athanor/ops/op.h"

namespace athanor::ops {

/// Bit d set: dim d is reduced. Empty or absent dims mean all. Throws IndexError for bad or repeated dims.
std::uint64_t reduce_mask(std::optional<IntArrayRef> dims, std::int64_t ndim, const char* op, bool empty_is_all = true);
/// in's sizes with reduced dims of size 1.
DimVector reduced_keepdim(IntArrayRef sizes, std::uint64_t mask);
/// in's sizes without the reduced dims.
DimVector reduced_shape(IntArrayRef sizes, std::uint64_t mask);
/// `out` (of the reduced shape) with the reduced dims put back as size 1, so that it broadcasts against the input.
Tensor restore_dims(const Tensor& out, std::uint64_t mask, std::int64_t ndim);
/// An alias of `out` in the keepdim shape, for kernels.
Tensor keepdim_alias(const Tensor& out, IntArrayRef keepdim_sizes);

}  // namespace athanor::ops
