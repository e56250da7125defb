// Arithmetic on tensors and numbers.
#include "athanor/ops/pointwise.h"

#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/pointwise_op.h"
#include "athanor/ops/scaled.h"

namespace athanor::ops {

void fail_not_floating(const char* schema, DType t) {
  ATHANOR_THROW(NotImplementedError, '"', op_name(schema), "\" not implemented for '", dtype_libtorch_name(t),
                "'; expected a floating dtype");
}

namespace {

void check_alpha(const char* op, DType result, const Scalar& alpha) {
  if (is_one(alpha) && !alpha.isBoolean() && !alpha.isFloatingPoint()) return;
  ATHANOR_CHECK(!alpha.isFloatingPoint() || is_floating_point(result), op,
                ": For integral input tensors, argument alpha must not be a floating point number, got ", alpha);
  ATHANOR_CHECK(!alpha.isBoolean() || result == DType::Bool, op, ": Boolean alpha only supported for Boolean results.");
}

/// PyTorch's refusal: what a difference of truth values should be is anyone's guess.
void check_subtractable(bool self_is_bool, bool other_is_bool) {
  ATHANOR_CHECK_TYPE(NotImplementedError, !(self_is_bool && other_is_bool),
                     "sub: Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
                     "`logical_xor()` operator instead.");
  ATHANOR_CHECK_TYPE(
      NotImplementedError, !self_is_bool && !other_is_bool,
      "sub: Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert "
      "a mask, use the `~` or `logical_not()` operator instead.");
}

/// A difference with a number, either way round.
template <class Derived>
struct Difference : ScalarPointwise<Derived, BinaryOp::Sub> {
  using Base = ScalarPointwise<Derived, BinaryOp::Sub>;
  bool ready(const Tensor& a) const { return Base::ready(a) && !static_cast<const Derived*>(this)->other.isBoolean(); }
  void prepare(Tensor& a) {
    if (a.defined()) check_subtractable(a.dtype() == DType::Bool, static_cast<Derived*>(this)->other.isBoolean());
    Base::prepare(a);
  }
};

}  // namespace

/// self + alpha * other.
struct Add : BinaryPointwise<Add, BinaryOp::Add> {
  ATHANOR_OP("add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor | inplace out");
  Scalar alpha;
  void run(const Tensor& out, const Tensor& a, const Tensor& b) {
    check_alpha("add", out.dtype(), alpha);
    // Bools: a or (alpha and b); the kernel knows "or" and "and" alone.
    if (out.dtype() == DType::Bool && !alpha.toBool())
      launch_elementwise(binary_kernel, BinaryOp::Mul, out, a, a, Scalar(0), Scalar(0));
    else
      launch_elementwise(binary_kernel, BinaryOp::Add, out, a, b, alpha, Scalar(0));
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, g.grad());
    if (g.needs(1)) g.set(1, scaled(g.grad(), alpha));
  }
};

struct AddScalar : ScalarPointwise<AddScalar, BinaryOp::Add> {
  ATHANOR_OP("add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor | inplace out");
  Scalar other, alpha;
  void run(const Tensor& out, const Tensor& a) {
    check_alpha("add", out.dtype(), alpha);
    const Scalar added = out.dtype() == DType::Bool && !alpha.toBool() ? Scalar(false) : other;
    launch_elementwise(binary_scalar_kernel, BinaryOp::Add, out, a, added, false, alpha, Scalar(0));
  }
  void grad(GradCall& g) { g.set(0, g.grad()); }
};

/// self - alpha * other. Throws NotImplementedError for bools.
struct Sub : BinaryPointwise<Sub, BinaryOp::Sub> {
  ATHANOR_OP("sub(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor | inplace out");
  Scalar alpha;
  bool ready(const Tensor& a, const Tensor& b) const {
    return BinaryPointwise::ready(a, b) && a.impl()->dtype != DType::Bool;
  }
  void prepare(Tensor& a, Tensor& b) {
    if (a.defined() && b.defined()) check_subtractable(a.dtype() == DType::Bool, b.dtype() == DType::Bool);
    BinaryPointwise::prepare(a, b);
  }
  void run(const Tensor& out, const Tensor& a, const Tensor& b) {
    check_alpha("sub", out.dtype(), alpha);
    launch_elementwise(binary_kernel, BinaryOp::Sub, out, a, b, alpha, Scalar(0));
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, g.grad());
    if (g.needs(1)) g.set(1, mul(g.grad(), -alpha));
  }
};

struct SubScalar : Difference<SubScalar> {
  ATHANOR_OP("sub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor | inplace out");
  Scalar other, alpha;
  void run(const Tensor& out, const Tensor& a) {
    check_alpha("sub", out.dtype(), alpha);
    launch_elementwise(binary_scalar_kernel, BinaryOp::Sub, out, a, other, false, alpha, Scalar(0));
  }
  void grad(GradCall& g) { g.set(0, g.grad()); }
};

/// other - alpha * self.
ATHANOR_FUNCTION("rsub(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor | function");
Tensor rsub(const Tensor& self, const Tensor& other, const Scalar& alpha) { return sub(other, self, alpha); }

struct RsubScalar : Difference<RsubScalar> {
  ATHANOR_OP("rsub.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor | function");
  static constexpr const char* grad_name = "RsubBackward1";
  Scalar other, alpha;
  void run(const Tensor& out, const Tensor& a) {
    launch_elementwise(binary_scalar_kernel, BinaryOp::Sub, out, a, other, true, alpha, Scalar(0));
  }
  void grad(GradCall& g) { g.set(0, mul(g.grad(), -alpha)); }
};

/// Element-wise product.
struct Mul : BinaryPointwise<Mul, BinaryOp::Mul> {
  ATHANOR_OP("mul(Tensor self, Tensor other) -> Tensor | inplace out");
  SavedTensor a, b;
  static bool keeps_self(const Node& n) { return n.needs(1); }
  void save(const Node& n, const Tensor& x, const Tensor& y) {
    if (n.needs(1)) a.save(x);
    if (n.needs(0)) b.save(y);
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, mul(g.grad(), g.get(b)));
    if (g.needs(1)) g.set(1, mul(g.grad(), g.get(a)));
  }
};

struct MulScalar : ScalarPointwise<MulScalar, BinaryOp::Mul> {
  ATHANOR_OP("mul.Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
  void grad(GradCall& g) { g.set(0, mul(g.grad(), other)); }
};

/// True division: integers give the default float dtype.
struct Div : BinaryPointwise<Div, BinaryOp::Div, ResultType::Float> {
  ATHANOR_OP("div(Tensor self, Tensor other) -> Tensor | inplace out");
  SavedTensor a, b;
  static bool keeps_self(const Node& n) { return n.needs(1); }
  void save(const Node& n, const Tensor& x, const Tensor& y) {
    if (n.needs(1)) a.save(x);
    b.save(y);
  }
  void grad(GradCall& g) {
    const Tensor y = g.get(b);
    if (g.needs(0)) g.set(0, div(g.grad(), y));
    if (g.needs(1)) g.set(1, mul(neg(g.grad()), div(div(g.get(a), y), y)));
  }
};

struct DivScalar : ScalarPointwise<DivScalar, BinaryOp::Div, ResultType::Float> {
  ATHANOR_OP("div.Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
  void grad(GradCall& g) { g.set(0, div(g.grad(), other)); }
};

/// other / self.
struct RdivScalar : ScalarPointwise<RdivScalar, BinaryOp::Div, ResultType::Float> {
  ATHANOR_OP("rdiv(Tensor self, Scalar other) -> Tensor | function internal");
  static constexpr const char* grad_name = "DivBackward0";
  Scalar other;
  SavedTensor a;
  void run(const Tensor& out, const Tensor& x) {
    launch_elementwise(binary_scalar_kernel, BinaryOp::Div, out, x, other, true, Scalar(1), Scalar(0));
  }
  void save(const Node&, const Tensor& x) { a.save(x); }
  void grad(GradCall& g) {
    const Tensor x = g.get(a);
    g.set(0, mul(g.grad(), div(rdiv(x, -other), x)));
  }
};

/// -self; bool is refused.
struct Neg : UnaryPointwise<Neg, UnaryOp::Neg, ResultType::Promoted> {
  ATHANOR_OP("neg(Tensor self) -> Tensor | inplace out");
  Meta infer(const Tensor& a) {
    ATHANOR_CHECK_TYPE(
        NotImplementedError, a.dtype() != DType::Bool,
        "neg: Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a "
        "mask, use the `~` or `logical_not()` operator instead.");
    return UnaryPointwise::infer(a);
  }
  void grad(GradCall& g) { g.set(0, neg(g.grad())); }
};

}  // namespace athanor::ops

#include "athanor/ops/pointwise.glue.inc"
