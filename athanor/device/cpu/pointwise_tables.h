#pragma once
/// The inner loops of all element-wise operations, by operation and computing dtype; filled by the pointwise_*.cpp
/// files for the best instruction set of this CPU. A null entry: the operation does not take that dtype. The columns
/// of Half and BFloat16 are unused: halves reach a loop as float32.

#include "athanor/device/cpu/strided_loop.h"
#include "athanor/ops/kernels/pointwise.h"

namespace athanor::cpu {

struct PointwiseTables {
  LoopFn unary[static_cast<int>(UnaryOp::Count)][kNumDTypes] = {};
  LoopFn binary[static_cast<int>(BinaryOp::Count)][kNumDTypes] = {};
  LoopFn ternary[static_cast<int>(TernaryOp::Count)][kNumDTypes] = {};
  LoopFn nan_to_num[kNumDTypes] = {};

  LoopFn& at(UnaryOp op, DType t) { return unary[static_cast<int>(op)][static_cast<int>(t)]; }
  LoopFn& at(BinaryOp op, DType t) { return binary[static_cast<int>(op)][static_cast<int>(t)]; }
  LoopFn& at(TernaryOp op, DType t) { return ternary[static_cast<int>(op)][static_cast<int>(t)]; }
};

void add_unary_any(PointwiseTables& tables);
void add_unary_math(PointwiseTables& tables);
void add_unary_activations(PointwiseTables& tables);
void add_unary_special(PointwiseTables& tables);
void add_binary_float(PointwiseTables& tables);
void add_binary_math(PointwiseTables& tables);
void add_binary_integer(PointwiseTables& tables);
void add_binary_compare(PointwiseTables& tables);
void add_binary_backward(PointwiseTables& tables);
void add_ternary(PointwiseTables& tables);

/// Throws the error of an integer division by zero.
[[noreturn]] void refuse_zero_divisor();

/// Filled on first use.
const PointwiseTables& pointwise_tables();

/// For tests: kernels use the loops of the n-th best instruction set of this CPU from now on (0: the best). Returns
/// false, and changes nothing, if there are not so many. Not while kernels run.
bool use_simd_target(int n);

}  // namespace athanor::cpu
