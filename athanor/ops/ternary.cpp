// where, clamp, lerp, addcmul, addcdiv.
#include "athanor/ops/ternary.h"

#include <limits>

#include "athanor/ops/compare.h"
#include "athanor/ops/create.h"
#include "athanor/ops/pointwise_op.h"
#include "athanor/ops/unary.h"

namespace athanor::ops {

namespace {

/// A number as a 0-d host tensor that counts as a number in promotion.
Tensor number(const Scalar& s) {
  NoGradGuard guard;
  Tensor t = scalar_tensor(s, s.isFloatingPoint() ? TensorOptions(DType::Double) : TensorOptions(s.type()));
  t.impl()->wrapped_number = true;
  return t;
}

template <class... T>
void promote_all(T&... t) {
  Promotion p;
  (p.add(t), ...);
  ((t = cast(t, p.type())), ...);
}

}  // namespace

struct Where {
  ATHANOR_OP("where.self(Tensor condition, Tensor self, Tensor other) -> Tensor | function out");
  SavedTensor condition;
  void prepare(Tensor& c, Tensor& a, Tensor& b) {
    if (!c.defined() || !a.defined() || !b.defined()) fail_undefined_operand(schema);
    ATHANOR_CHECK(c.dtype() == DType::Bool || c.dtype() == DType::Byte,
                  "where expected condition to be a boolean tensor, but got a tensor with dtype ", c.dtype());
    c = cast(c, DType::Bool);
    if (a.dtype() != b.dtype() || a.impl()->wrapped_number) promote_all(a, b);
  }
  Meta infer(const Tensor& c, const Tensor& a, const Tensor& b) {
    return pointwise_meta(schema, a.dtype(), {&a, &b, &c});
  }
  void run(const Tensor& out, const Tensor& c, const Tensor& a, const Tensor& b) {
    launch(ternary_kernel, TernaryOp::Where, out, c, a, b, Scalar(1));
  }
  void save(const Node&, const Tensor& c, const Tensor&, const Tensor&) { condition.save(c); }
  void grad(GradCall& g) {
    const Tensor c = g.get(condition);
    if (g.needs(1)) g.set(1, where(c, g.grad(), Scalar(0)));
    if (g.needs(2)) g.set(2, where(c, Scalar(0), g.grad()));
  }
};

/// self where the condition holds, else other.
ATHANOR_FUNCTION("where.ScalarSelf(Tensor condition, Scalar self, Tensor other) -> Tensor | function");
Tensor where(const Tensor& condition, const Scalar& self, const Tensor& other) {
  return where(condition, number(self), other);
}
ATHANOR_FUNCTION("where.ScalarOther(Tensor condition, Tensor self, Scalar other) -> Tensor | function");
Tensor where(const Tensor& condition, const Tensor& self, const Scalar& other) {
  return where(condition, self, number(other));
}
ATHANOR_FUNCTION("where.Scalar(Tensor condition, Scalar self, Scalar other) -> Tensor | function");
Tensor where(const Tensor& condition, const Scalar& self, const Scalar& other) {
  return where(condition, number(self), number(other));
}

// Clamps. Gradients pass within the bounds. On a border that is a number they stop, with one that is a tensor the two
// share them, as in PyTorch.

namespace {

DType clamp_type(const Tensor& self, const std::optional<Scalar>& min, const std::optional<Scalar>& max) {
  Promotion p;
  p.add(given("clamp", self));
  if (min) p.add(*min);
  if (max) p.add(*max);
  return p.type();
}

}  // namespace

/// min <= self <= max; max wins if min is greater. At least one bound is needed.
struct ClampScalar {
  ATHANOR_OP("clamp(Tensor self, Scalar? min, Scalar? max=None) -> Tensor | inplace out");
  std::optional<Scalar> min, max;
  SavedTensor x;
  static constexpr bool keeps_self = true;
  void prepare(Tensor& self) {
    ATHANOR_CHECK(min || max, "clamp: At least one of 'min' or 'max' must not be None");
    self = cast(self, clamp_type(self, min, max));
  }
  Meta infer(const Tensor& self) { return pointwise_meta(schema, self.dtype(), {&self}); }
  void run(const Tensor& out, const Tensor& self) {
    const UnaryOp op = !max ? UnaryOp::ClampMin : !min ? UnaryOp::ClampMax : UnaryOp::Clamp;
    launch(unary_kernel, op, out, self, min ? *min : *max, max.value_or(0));
  }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void grad(GradCall& g) {
    const Tensor v = g.get(x);
    Tensor inside = min ? gt(v, *min) : lt(v, *max);
    if (min && max) inside = logical_and(inside, lt(v, *max));
    g.set(0, where(inside, g.grad(), Scalar(0)));
  }
};

struct ClampTensors {
  ATHANOR_OP("_clamp_tensors(Tensor self, Tensor min, Tensor max) -> Tensor | function");
  static constexpr const char* grad_name = "ClampBackward1";
  SavedTensor x, low, high;
  void prepare(Tensor& self, Tensor& min, Tensor& max) { promote_all(self, min, max); }
  Meta infer(const Tensor& self, const Tensor& min, const Tensor& max) {
    return pointwise_meta("clamp", self.dtype(), {&self, &min, &max});
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& min, const Tensor& max) {
    launch(ternary_kernel, TernaryOp::Clamp, out, self, min, max, Scalar(1));
  }
  void save(const Node&, const Tensor& self, const Tensor& min, const Tensor& max) {
    x.save(self);
    low.save(min);
    high.save(max);
  }
  void grad(GradCall& g) {
    const Tensor v = g.get(x), min = g.get(low), max = g.get(high);
    const Tensor apart = lt(min, max), crossed = gt(min, max);
    const Tensor on_min = logical_and(apart, eq(v, min)), on_max = logical_and(apart, eq(v, max));
    const Tensor shared = where(logical_or(on_min, on_max), mul(g.grad(), 0.5), g.grad());
    const Tensor below = logical_and(lt(v, min), logical_not(crossed)), above = logical_or(gt(v, max), crossed);
    if (g.needs(0)) g.set(0, where(logical_or(below, above), Scalar(0), shared));
    if (g.needs(1)) g.set(1, where(logical_or(below, on_min), shared, Scalar(0)));
    if (g.needs(2)) g.set(2, where(logical_or(above, on_max), shared, Scalar(0)));
  }
};

/// One bound as a tensor: kind is Maximum for a lower bound.
template <class Derived, BinaryOp Kind>
struct ClampTensor : BinaryPointwise<Derived, Kind> {
  SavedTensor x, bound;
  static constexpr bool keeps_self = true;
  void save(const Node&, const Tensor& self, const Tensor& b) {
    x.save(self);
    bound.save(b);
  }
  void grad(GradCall& g) {
    const Tensor v = g.get(x), b = g.get(bound);
    const Tensor shared = where(eq(v, b), mul(g.grad(), 0.5), g.grad());
    const Tensor less = lt(v, b), more = gt(v, b);
    if (g.needs(0)) g.set(0, where(Kind == BinaryOp::Maximum ? less : more, Scalar(0), shared));
    if (g.needs(1)) g.set(1, where(Kind == BinaryOp::Maximum ? more : less, Scalar(0), shared));
  }
};
/// The greater of each element and min, a number or a tensor that broadcasts.
struct ClampMinTensor : ClampTensor<ClampMinTensor, BinaryOp::Maximum> {
  ATHANOR_OP("clamp_min.Tensor(Tensor self, Tensor min) -> Tensor | inplace out");
};
/// The lesser of each element and max, a number or a tensor that broadcasts.
struct ClampMaxTensor : ClampTensor<ClampMaxTensor, BinaryOp::Minimum> {
  ATHANOR_OP("clamp_max.Tensor(Tensor self, Tensor max) -> Tensor | inplace out");
};

/// Tensor bounds; one of them may be undefined.
ATHANOR_FUNCTION("clamp.Tensor(Tensor self, Tensor? min, Tensor? max={}) -> Tensor | inplace out");
Tensor clamp(const Tensor& self, const Tensor& min, const Tensor& max) {
  ATHANOR_CHECK(min.defined() || max.defined(), "clamp: At least one of 'min' or 'max' must not be None");
  if (!max.defined()) return clamp_min(self, min);
  return min.defined() ? _clamp_tensors(self, min, max) : clamp_max(self, max);
}

ATHANOR_FUNCTION("clamp_min(Tensor self, Scalar min) -> Tensor | inplace out");
Tensor clamp_min(const Tensor& self, const Scalar& min) {
  return clamp(given("clamp_min", self), std::optional<Scalar>(min), std::nullopt);
}
ATHANOR_FUNCTION("clamp_max(Tensor self, Scalar max) -> Tensor | inplace out");
Tensor clamp_max(const Tensor& self, const Scalar& max) {
  return clamp(given("clamp_max", self), std::optional<Scalar>(), std::optional<Scalar>(max));
}

// Interpolation and fused products.

/// self + weight (end - self); a weight without dims may be of another dtype, which promotes.
struct LerpScalar : BinaryPointwise<LerpScalar, BinaryOp::Lerp> {
  ATHANOR_OP("lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor | inplace out");
  Scalar weight;
  void prepare(Tensor& self, Tensor& end) {
    ATHANOR_CHECK(self.dtype() == end.dtype(), "lerp: expected dtype ", self.dtype(), " for `end` but got dtype ",
                  end.dtype());
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& end) {
    launch_elementwise(binary_kernel, BinaryOp::Lerp, out, self, end, weight, Scalar(0));
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, mul(g.grad(), 1 - weight.toDouble()));
    if (g.needs(1)) g.set(1, mul(g.grad(), weight));
  }
};

struct LerpTensor {
  ATHANOR_OP("lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor | inplace out");
  static constexpr const char* grad_name = "LerpBackward1";
  SavedTensor from, to, by;
  static bool keeps_self(const Node& n) { return n.needs(2); }
  void prepare(Tensor& self, Tensor& end, Tensor& weight) {
    if (!self.defined() || !end.defined() || !weight.defined()) fail_undefined_operand(schema);
    ATHANOR_CHECK(self.dtype() == end.dtype() && (weight.dim() == 0 || self.dtype() == weight.dtype()),
                  "lerp: expected one dtype, got ", self.dtype(), ", ", end.dtype(), " and ", weight.dtype());
    if (self.dtype() != weight.dtype()) promote_all(self, end, weight);
  }
  Meta infer(const Tensor& self, const Tensor& end, const Tensor& weight) {
    return pointwise_meta(schema, self.dtype(), {&self, &end, &weight});
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& end, const Tensor& weight) {
    launch(ternary_kernel, TernaryOp::Lerp, out, self, end, weight, Scalar(1));
  }
  void save(const Node& n, const Tensor& self, const Tensor& end, const Tensor& weight) {
    if (n.needs(2)) {
      from.save(self);
      to.save(end);
    }
    by.save(weight);
  }
  void grad(GradCall& g) {
    const Tensor w = g.get(by);
    if (g.needs(0)) g.set(0, mul(g.grad(), rsub(w, 1)));
    if (g.needs(1)) g.set(1, mul(g.grad(), w));
    if (g.needs(2)) g.set(2, mul(g.grad(), sub(g.get(to), g.get(from))));
  }
};

/// self + value * tensor1 * tensor2.
struct Addcmul {
  ATHANOR_OP("addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor | inplace out");
  Scalar value;
  SavedTensor a, b;
  void prepare(Tensor& self, Tensor& x, Tensor& y) { promote_all(self, x, y); }
  Meta infer(const Tensor& self, const Tensor& x, const Tensor& y) {
    return pointwise_meta(schema, self.dtype(), {&self, &x, &y});
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& x, const Tensor& y) {
    launch(ternary_kernel, TernaryOp::Addcmul, out, self, x, y, value);
  }
  void save(const Node& n, const Tensor&, const Tensor& x, const Tensor& y) {
    if (n.needs(2)) a.save(x);
    if (n.needs(1)) b.save(y);
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, g.grad());
    if (g.needs(1)) g.set(1, mul(g.grad(), mul(g.get(b), value)));
    if (g.needs(2)) g.set(2, mul(g.grad(), mul(g.get(a), value)));
  }
};

/// self + value * tensor1 / tensor2.
struct Addcdiv {
  ATHANOR_OP("addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor | inplace out");
  Scalar value;
  SavedTensor a, b;
  void prepare(Tensor& self, Tensor& x, Tensor& y) {
    ATHANOR_CHECK(x.is_floating_point() || y.is_floating_point(),
                  "addcdiv: integer division with addcdiv is not supported; use div(..., \"trunc\") and add, got ",
                  x.dtype(), " and ", y.dtype());
    promote_all(self, x, y);
  }
  Meta infer(const Tensor& self, const Tensor& x, const Tensor& y) {
    return pointwise_meta(schema, self.dtype(), {&self, &x, &y});
  }
  void run(const Tensor& out, const Tensor& self, const Tensor& x, const Tensor& y) {
    launch(ternary_kernel, TernaryOp::Addcdiv, out, self, x, y, value);
  }
  void save(const Node& n, const Tensor&, const Tensor& x, const Tensor& y) {
    if (n.needs(2)) a.save(x);
    b.save(y);
  }
  void grad(GradCall& g) {
    const Tensor y = g.get(b);
    if (g.needs(0)) g.set(0, g.grad());
    if (g.needs(1)) g.set(1, div(mul(g.grad(), value), y));
    if (g.needs(2)) g.set(2, mul(g.grad(), div(mul(g.get(a), -value), mul(y, y))));
  }
};

}  // namespace athanor::ops

#include "athanor/ops/ternary.glue.inc"
