#pragma once
/// What the files of linear algebra ask of their operands. Throw Error (a dtype: NotImplementedError) naming `op`.

#include "athanor/ops/view.h"
#include "athanor/tensor/tensor_base.h"

namespace athanor::ops::linalg {

/// Batches of matrices in float32 or float64.
void check_matrix(const char* op, const TensorBase& a);
/// The same, square.
void check_square(const char* op, const TensorBase& a);
void check_same_dtype(const char* op, const TensorBase& a, const TensorBase& b);

/// All but the last two.
DimVector batch_sizes(const TensorBase& a);
/// The transposes.
inline TensorBase swapped(const TensorBase& a) { return transpose(a, -2, -1); }

}  // namespace athanor::ops::linalg
