#pragma once
/// The inner loops of all element-wise operations, by operation and dtype; filled by the pointwise_*.cpp files for the
/// best instruction set of this CPU. Where a half dtype has no loop of its own, float32's serves it, through blocks.
/// Null there too: the operation does not take that dtype.

#include "athanor/device/cpu/strided_loop.h"
#include "athanor/ops/kernels/pointwise.h"
#include "athanor/tensor/scalar.h"

namespace athanor::cpu {

/// The parameters of an operation, ready in each computing type: what loops receive as `params`. Whole numbers that
/// come from a double saturate.
struct LoopParameters {
  float as_float[3];
  double as_double[3];
  std::int64_t as_integer[3];

  LoopParameters(const Scalar& p0, const Scalar& p1, const Scalar& p2 = Scalar()) {
    set(0, p0);
    set(1, p1);
    set(2, p2);
  }

 private:
  void set(int k, const Scalar& s) {
    as_double[k] = s.to<double>();
    as_float[k] = static_cast<float>(as_double[k]);
    as_integer[k] = s.isFloatingPoint() ? saturate(as_double[k]) : s.to<std::int64_t>();
  }
  static std::int64_t saturate(double x) {
    if (!(x >= -0x1p63)) return x == x ? INT64_MIN : 0;
    return x < 0x1p63 ? static_cast<std::int64_t>(x) : INT64_MAX;
  }
};

struct PointwiseTables {
  LoopFn unary[static_cast<int>(UnaryOp::Count)][kNumDTypes] = {};
  LoopFn binary[static_cast<int>(BinaryOp::Count)][kNumDTypes] = {};
  LoopFn rows[static_cast<int>(BinaryOp::Count)][kNumDTypes] = {};  ///< LoopSpec::row_fn, for few operations
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
void add_binary_number(PointwiseTables& tables);
void add_binary_compare(PointwiseTables& tables);
void add_binary_backward(PointwiseTables& tables);
void add_ternary(PointwiseTables& tables);

/// Throws the error of an integer division by zero.
[[noreturn]] void refuse_zero_divisor(BinaryOp op);

/// Filled on first use.
const PointwiseTables& pointwise_tables();

/// For tests: kernels use the loops of the n-th best instruction set of this CPU from now on (0: the best). Returns
/// false, and changes nothing, if there are not so many. Not while kernels run.
bool use_simd_target(int n);

}  // namespace athanor::cpu
