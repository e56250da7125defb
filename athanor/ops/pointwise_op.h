#pragma once
/// Bases of element-wise ops: promotion, shape and kernel call. An op adds its schema and its gradient.

#include "athanor/ops/kernels/pointwise.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"

namespace athanor::ops {

[[noreturn]] void fail_undefined_operand(const char* schema);

/// The plain numbers that a kernel gets: p0() and p1() of the op, if it has them.
template <class Op>
Scalar first_parameter(const Op& op) {
  if constexpr (requires { op.p0(); })
    return op.p0();
  else
    return 0;
}
template <class Op>
Scalar second_parameter(const Op& op) {
  if constexpr (requires { op.p1(); })
    return op.p1();
  else
    return 0;
}

/// dtype of the result: that of the promoted operands; the same, where only floating operands are taken; that or, for
/// integers, the default float dtype; bool.
enum class ResultType { Promoted, Floating, Float, Bool };

[[noreturn]] void fail_not_floating(const char* schema, DType t);

/// `Derived` supplies schema. Both operands are tensors.
template <class Derived, BinaryOp Kind, ResultType Result = ResultType::Promoted>
struct BinaryPointwise {
  bool ready(const Tensor& a, const Tensor& b) const {
    return a.impl() && b.impl() && a.impl()->dtype == b.impl()->dtype &&
           (Result != ResultType::Float || is_floating_point(a.impl()->dtype));
  }
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
  bool ready(const Tensor& a) const {
    return a.impl() && (a.impl()->dtype == DType::Float || a.impl()->dtype == DType::Double) && a.impl()->ndim > 0;
  }
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
  bool ready(const Tensor& a) const {
    return a.impl() && (Result != ResultType::Float || is_floating_point(a.impl()->dtype));
  }
  void prepare(Tensor& a) {
    if (__builtin_expect(!a.defined(), 0)) fail_undefined_operand(Derived::schema);
    if (Result == ResultType::Float && !is_floating_point(a.impl()->dtype)) a = cast(a, get_default_dtype());
  }
  Meta infer(const Tensor& a) {
    const DType t = a.impl()->dtype;
    if (Result == ResultType::Floating && __builtin_expect(!is_floating_point(t), 0))
      fail_not_floating(Derived::schema, t);
    return pointwise_meta(Derived::schema, Result == ResultType::Bool ? DType::Bool : t, {&a});
  }
  void run(const Tensor& out, const Tensor& a) {
    auto& op = static_cast<Derived&>(*this);
    launch(unary_kernel, Kind, out, a, first_parameter(op), second_parameter(op));
  }
};

/// Its gradient is Derived::slope(grad, input).
template <class Derived, UnaryOp Kind, ResultType Result = ResultType::Float>
struct UnaryOfInput : UnaryPointwise<Derived, Kind, Result> {
  SavedTensor x;
  static constexpr bool keeps_self = true;
  void save(const Node&, const Tensor& a) { x.save(a); }
  void grad(GradCall& g) { g.set(0, static_cast<Derived*>(this)->slope(g.grad(), g.get(x))); }
};

/// Its gradient is Derived::slope(grad, result).
template <class Derived, UnaryOp Kind, ResultType Result = ResultType::Float>
struct UnaryOfResult : UnaryPointwise<Derived, Kind, Result> {
  SavedTensor y;
  void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
  void grad(GradCall& g) { g.set(0, static_cast<Derived*>(this)->slope(g.grad(), g.get(y))); }
};

/// A fused backward kernel of (gradient of the result, value), where value is the forward op's input or result.
/// Derived has again(grad, value), the op itself, and slope(value), the derivative with respect to value of what the
/// gradient is multiplied by; an undefined slope is zero.
template <class Derived, BinaryOp Kind>
struct FusedBackward : BinaryPointwise<Derived, Kind> {
  SavedTensor incoming, value;
  void run(const Tensor& out, const Tensor& grad, const Tensor& v) {
    auto& op = static_cast<Derived&>(*this);
    launch(binary_kernel, Kind, out, grad, v, first_parameter(op), second_parameter(op));
  }
  void save(const Node& n, const Tensor& grad, const Tensor& v) {
    if (n.needs(1)) incoming.save(grad);
    value.save(v);
  }
  void grad(GradCall& g) {
    auto& op = static_cast<Derived&>(*this);
    const Tensor v = g.get(value);
    if (g.needs(0)) g.set(0, op.again(g.grad(), v));
    if (!g.needs(1)) return;
    const Tensor slope = op.slope(v);
    if (slope.defined()) g.set(1, mul(mul(g.grad(), g.get(incoming)), slope));
  }
};

}  // namespace athanor::ops
