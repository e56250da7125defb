#pragma once
/// Helpers that the normalisations share.

#include "athanor/ops/op.h"

namespace athanor::ops {

/// The dtype in which statistics are kept: float32, or float64 for it.
inline DType statistics_type(DType t) { return t == DType::Double ? DType::Double : DType::Float; }
/// Throws unless `input` is defined and floating.
void check_norm_input(const char* op, const Tensor& input);
/// Throws unless `t` is undefined or has `shape` and a dtype that goes with the input's.
void check_norm_operand(const char* op, const char* what, const Tensor& t, IntArrayRef shape, const Tensor& input);
/// `t`, row-major without gaps.
Tensor dense(const Tensor& t);

}  // namespace athanor::ops
