#pragma once
/// Bases of element-wise ops: promotion, shape and kernel call. An op adds its schema and its gradient.

#include "athanor/ops/kernels/pointwise.h"
#include "athanor/ops/promote.h"

namespace athanor::ops {

[[noreturn]] void fail_undefined_operand(const char* schema);

/// Result dtype of a binary op.
enum class ResultType { Promoted, Float, Bool };

/// `Derived` supplies schema. Both operands are tensors.
template <class Derived, BinaryOp Kind, ResultType Result = ResultType::Promoted>
struct BinaryPointwise {
  void prepare(Tensor& a, Tensor& b) {
    if (__builtin_expect(!a.defined() || !b.defined(), 0)) fail_undefined_operand(Derived::schema);
    if (__builtin_expect(a.impl()->dtype != b.impl()->dtype || Result == ResultType::Float, 0)) promote(a, b);
  }
  Meta infer(const Tensor& a, const Tensor& b) {
    return pointwise_meta(Derived::schema, Result == ResultType::Bool ? DType::Bool : a.impl()->dtype, {&a, &b});
  }
  void run(const Tensor& out, const Tensor& a, const Tensor& b) {
    launch(binary_kernel, Kind, out, a, b, Scalar(1), Scalar(0));
  }
  static void promote(Tensor& a, Tensor& b) {
    DType t = Promotion().add(a).add(b).type();
    if (Result == ResultType::Float) t = float_type(t);
    a = cast(a, t);
    b = cast(b, t);
  }
};

/// One operand is a number.
template <class Derived, BinaryOp Kind, ResultType Result = ResultType::Promoted>
struct ScalarPointwise {
  void prepare(Tensor& a) {
    if (__builtin_expect(!a.defined(), 0)) fail_undefined_operand(Derived::schema);
    DType t = a.impl()->dtype;
    if (__builtin_expect(t != DType::Float || Result == ResultType::Float, 0)) {
      t = Promotion().add(a).add(static_cast<Derived*>(this)->other).type();
      if (Result == ResultType::Float) t = float_type(t);
      a = cast(a, t);
    }
  }
  Meta infer(const Tensor& a) {
    return pointwise_meta(Derived::schema, Result == ResultType::Bool ? DType::Bool : a.impl()->dtype, {&a});
  }
  void run(const Tensor& out, const Tensor& a) {
    launch(binary_scalar_kernel, Kind, out, a, static_cast<Derived*>(this)->other, false, Scalar(1), Scalar(0));
  }
};

/// One tensor in, one out. Float: integers are computed in the default dtype.
template <class Derived, UnaryOp Kind, ResultType Result = ResultType::Float>
struct UnaryPointwise {
  void prepare(Tensor& a) {
    if (__builtin_expect(!a.defined(), 0)) fail_undefined_operand(Derived::schema);
    if (Result == ResultType::Float && !is_floating_point(a.impl()->dtype)) a = cast(a, get_default_dtype());
  }
  Meta infer(const Tensor& a) {
    return pointwise_meta(Derived::schema, Result == ResultType::Bool ? DType::Bool : a.impl()->dtype, {&a});
  }
  void run(const Tensor& out, const Tensor& a) { launch(unary_kernel, Kind, out, a, Scalar(0), Scalar(0)); }
};

}  // namespace athanor::ops
