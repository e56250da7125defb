#pragma once
/// Helpers of reductions: which dims go, what shape remains.

#include "athanor/ops/kernels/reduce.h"
#include "athanor/ops/op.h"

namespace athanor::ops {

/// Bit d set: dim d is reduced. Empty or absent dims mean all. Throws IndexError for bad or repeated dims.
std::uint64_t reduce_mask(OptionalIntArrayRef dims, std::int64_t ndim, const char* op, bool empty_is_all = true);
/// in's sizes with reduced dims of size 1.
DimVector reduced_keepdim(IntArrayRef sizes, std::uint64_t mask);
/// in's sizes without the reduced dims.
DimVector reduced_shape(IntArrayRef sizes, std::uint64_t mask);
/// `out` (of the reduced shape) with the reduced dims put back as size 1, so that it broadcasts against the input.
Tensor restore_dims(const Tensor& out, std::uint64_t mask, std::int64_t ndim);
/// An alias of `out` in the keepdim shape, for kernels.
Tensor keepdim_alias(const Tensor& out, IntArrayRef keepdim_sizes);

/// What every reduction over dims keeps: which dims, the input's shape, whether reduced dims stay as size 1.
struct Reduction {
  std::uint64_t mask = 0;
  DimVector from;
  bool keep = false;

  /// Notes the dims and gives the result's Meta.
  Meta reduced(const char* schema, const Tensor& self, OptionalIntArrayRef dims, bool keepdim, DType dtype,
               bool empty_is_all = true);
  Meta reduced_all(const char* schema, const Tensor& self, DType dtype) {
    return reduced(schema, self, std::nullopt, false, dtype);
  }
  void launch_reduce(ReduceOp op, const Tensor& out, const Tensor& self, double param = 0) const {
    launch(reduce_kernel, op, keepdim_alias(out, reduced_keepdim(from, mask)), self, mask, param);
  }
  /// A result-shaped tensor made to broadcast against the input.
  Tensor restored(const Tensor& t) const {
    return keep ? t : restore_dims(t, mask, static_cast<std::int64_t>(from.size()));
  }
  /// The same repeated to the input's shape.
  Tensor spread(const Tensor& t) const;
  /// Number of elements that make one element of the result.
  std::int64_t count() const;
  /// The reduced dims, for calls of other ops; empty for a 0-d input.
  DimVector dims() const;
  /// Throws IndexError if a reduced dim is empty but the result is not.
  void check_not_empty(const char* op) const;
};

}  // namespace athanor::ops
