#pragma once
/// Bases of element-wise ops: promotion, shape and kernel call. An op adds its schema and its gradient.

#include "athanor/ops/kernels/pointwise.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"

namespace athanor::ops {

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

/// Whether an operand can be brought into the blocks of `out`. Numbers are in every layout.
inline bool fits_blocks(const Tensor& out, const Tensor& t) {
  return t.sizes() == out.sizes() && t.dtype() == out.dtype() && t.device() == out.device();
}
template <class T>
bool fits_blocks(const Tensor&, const T&) {
  return true;
}
inline detail::Stored in_blocks(const Tensor& t, int block) { return detail::Stored(t, block); }
template <class T>
const T& in_blocks(const T& number, int) {
  return number;
}

/// launch() of an element-wise kernel. The order of the elements is nothing to it: if `out` is in blocks of channels,
/// the operands are brought into the same and it works on the bytes as they are stored.
template <class K, class Kind, class... Args>
inline void launch_elementwise(const K& kernel, Kind kind, const Tensor& out, const Args&... args) {
  const int block = detail::hidden_block(out);
  if (__builtin_expect(block > 0, 0) && (fits_blocks(out, args) && ...))
    launch(kernel, kind, detail::Stored(out), in_blocks(args, block)...);
  else
    launch(kernel, kind, out, args...);
}

/// dtype of the result: that of the promoted operands; the same, where only floating operands are taken; that or, for
/// integers, the default float dtype; bool.
enum class ResultType { Promoted, Floating, Float, Bool };

[[noreturn]] void fail_not_floating(const char* schema, DType t);

/// `Derived` supplies schema. Both operands are tensors.
template <class Derived, BinaryOp Kind, ResultType Result = ResultType::Promoted>
struct BinaryPointwise {
  static constexpr bool accepts_hidden = Result != ResultType::Bool;
  bool ready(const Tensor& a, const Tensor& b) const {
    return a.impl() && b.impl() && a.impl()->dtype == b.impl()->dtype &&
           (Result != ResultType::Float || is_floating_point(a.impl()->dtype));
  }
  void prepare(Tensor& a, Tensor& b) {
    if (__builtin_expect(!a.defined() || !b.defined(), 0)) fail_undefined_operand(Derived::schema);
    if (__builtin_expect(a.impl()->dtype != b.impl()->dtype || Result == ResultType::Float, 0)) promote(a, b);
  }
  Meta infer(const Tensor& a, const Tensor& b) {
    DType t = a.impl()->dtype;
    if (kTakesNumbers && is_half(b.impl()->dtype)) t = b.impl()->dtype;
    return pointwise_meta(Derived::schema, Result == ResultType::Bool ? DType::Bool : t, {&a, &b});
  }
  void run(const Tensor& out, const Tensor& a, const Tensor& b) {
    launch_elementwise(binary_kernel, Kind, out, a, b, Scalar(1), Scalar(0));
  }
  static void promote(Tensor& a, Tensor& b) {
    DType t = Promotion().add(a).add(b).type();
    if (Result == ResultType::Float) t = float_type(t);
    a = cast(a, type_of(a, b, t));
    b = cast(b, type_of(b, a, t));
  }

 private:
  /// Beside a half, a number of another dtype stays one of float32: what it is rounded to is the result alone.
  static constexpr bool kTakesNumbers = Kind == BinaryOp::Mul || Kind == BinaryOp::Div;
  static DType type_of(const Tensor& x, const Tensor& other, DType t) {
    return kTakesNumbers && is_half(t) && x.dim() == 0 && other.dim() > 0 && x.dtype() != t ? DType::Float : t;
  }
};

/// One operand is a number.
template <class Derived, BinaryOp Kind, ResultType Result = ResultType::Promoted>
struct ScalarPointwise {
  static constexpr bool accepts_hidden = Result != ResultType::Bool;
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
    launch_elementwise(binary_scalar_kernel, Kind, out, a, static_cast<Derived*>(this)->other, false, Scalar(1),
                       Scalar(0));
  }
};

/// One tensor in, one out. Float: integers are computed in the default dtype.
template <class Derived, UnaryOp Kind, ResultType Result = ResultType::Float>
struct UnaryPointwise {
  static constexpr bool accepts_hidden = Result != ResultType::Bool;
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
    launch_elementwise(unary_kernel, Kind, out, a, first_parameter(op), second_parameter(op));
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

/// Its gradient is Derived::slope(grad, input or result), the same for both: the input's, which leaves the result free
/// to be changed, but for the in-place form, which need not copy what it overwrites.
template <class Derived, UnaryOp Kind, ResultType Result = ResultType::Float>
struct UnaryOfEither : UnaryPointwise<Derived, Kind, Result> {
  SavedTensor value;
  bool in_place = false;
  void save(const Node&, const Tensor& a) {
    if (!in_place) value.save(a);
  }
  void save_results(Node* n, const Tensor& out) {
    if (in_place) value.save_result(out, n);
  }
  void grad(GradCall& g) { g.set(0, static_cast<Derived*>(this)->slope(g.grad(), g.get(value))); }
};

/// A fused backward kernel of (gradient of the result, value), where value is the forward op's input or result.
/// Derived has again(grad, value), the op itself, and slope(value), the derivative with respect to value of what the
/// gradient is multiplied by; an undefined slope is zero.
template <class Derived, BinaryOp Kind>
struct FusedBackward : BinaryPointwise<Derived, Kind> {
  SavedTensor incoming, value;
  /// The gradient follows the activation, which the next backward op has in the same layout.
  Meta infer(const Tensor& grad, const Tensor& v) {
    Meta m = BinaryPointwise<Derived, Kind>::infer(grad, v);
    const int block = detail::hidden_block(v);
    m.block = static_cast<std::int16_t>(grad.sizes() == v.sizes() ? block : 0);
    if (m.block) m.strides.clear();
    return m;
  }
  void run(const Tensor& out, const Tensor& grad, const Tensor& v) {
    auto& op = static_cast<Derived&>(*this);
    launch_elementwise(binary_kernel, Kind, out, grad, v, first_parameter(op), second_parameter(op));
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
