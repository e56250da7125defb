#pragma once
/// What the files of linear algebra ask of their operands. Throw Error (a dtype: NotImplementedError) naming `op`.

#include "athanor/base/error.h"
#include "athanor/ops/view.h"
#include "athanor/tensor/tensor_base.h"

namespace athanor::ops::linalg {

/// Batches of matrices in float32 or float64.
inline void check_matrix(const char* op, const TensorBase& a) {
  ATHANOR_CHECK(a.defined(), op, ": expected a tensor, got an undefined one");
  ATHANOR_CHECK(a.dim() >= 2, op, ": The input tensor A must have at least 2 dimensions, got shape ", a.sizes());
  ATHANOR_CHECK_TYPE(NotImplementedError, a.dtype() == DType::Float || a.dtype() == DType::Double, op,
                     ": Expected a float32 or float64 tensor, got ", a.dtype(), "; convert it with .to()");
}
/// The same, square.
inline void check_square(const char* op, const TensorBase& a) {
  check_matrix(op, a);
  ATHANOR_CHECK(a.size(-1) == a.size(-2), op, ": A must be batches of square matrices, but they are ", a.size(-2),
                " by ", a.size(-1), " matrices");
}
inline void check_same_dtype(const char* op, const TensorBase& a, const TensorBase& b) {
  ATHANOR_CHECK(b.defined() && b.dtype() == a.dtype(), op, ": expected A and B to have the same dtype, got ", a.dtype(),
                " and ", b.defined() ? b.dtype() : DType::Undefined);
}

inline DimVector batch_sizes(const TensorBase& a) { return DimVector(a.sizes().slice(0, a.sizes().size() - 2)); }
inline TensorBase swapped(const TensorBase& a) { return transpose(a, -2, -1); }

}  // namespace athanor::ops::linalg
