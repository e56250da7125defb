// Comparisons, logic, bits, and the larger and smaller of two.
#include "athanor/ops/compare.h"

#include "athanor/ops/create.h"
#include "athanor/ops/pointwise_op.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"

namespace athanor::ops {

// Comparisons give bool; NaN is unequal to everything.

/// Whether each element of input is equal to that of other, as bools. Shapes broadcast.
struct Eq : BinaryPointwise<Eq, BinaryOp::Eq, ResultType::Bool> {
  ATHANOR_OP("eq(Tensor self, Tensor other) -> Tensor | inplace out");
};
struct EqScalar : ScalarPointwise<EqScalar, BinaryOp::Eq, ResultType::Bool> {
  ATHANOR_OP("eq.Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
};

/// Whether each element of input is not equal to that of other, as bools. Shapes broadcast.
struct Ne : BinaryPointwise<Ne, BinaryOp::Ne, ResultType::Bool> {
  ATHANOR_OP("ne(Tensor self, Tensor other) -> Tensor | inplace out");
};
struct NeScalar : ScalarPointwise<NeScalar, BinaryOp::Ne, ResultType::Bool> {
  ATHANOR_OP("ne.Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
};

/// Whether each element of input is less than that of other, as bools. Shapes broadcast.
struct Lt : BinaryPointwise<Lt, BinaryOp::Lt, ResultType::Bool> {
  ATHANOR_OP("lt(Tensor self, Tensor other) -> Tensor | inplace out");
};
struct LtScalar : ScalarPointwise<LtScalar, BinaryOp::Lt, ResultType::Bool> {
  ATHANOR_OP("lt.Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
};

/// Whether each element of input is at most that of other, as bools. Shapes broadcast.
struct Le : BinaryPointwise<Le, BinaryOp::Le, ResultType::Bool> {
  ATHANOR_OP("le(Tensor self, Tensor other) -> Tensor | inplace out");
};
struct LeScalar : ScalarPointwise<LeScalar, BinaryOp::Le, ResultType::Bool> {
  ATHANOR_OP("le.Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
};

/// Whether each element of input is greater than that of other, as bools. Shapes broadcast.
struct Gt : BinaryPointwise<Gt, BinaryOp::Gt, ResultType::Bool> {
  ATHANOR_OP("gt(Tensor self, Tensor other) -> Tensor | inplace out");
};
struct GtScalar : ScalarPointwise<GtScalar, BinaryOp::Gt, ResultType::Bool> {
  ATHANOR_OP("gt.Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
};

/// Whether each element of input is at least that of other, as bools. Shapes broadcast.
struct Ge : BinaryPointwise<Ge, BinaryOp::Ge, ResultType::Bool> {
  ATHANOR_OP("ge(Tensor self, Tensor other) -> Tensor | inplace out");
};
struct GeScalar : ScalarPointwise<GeScalar, BinaryOp::Ge, ResultType::Bool> {
  ATHANOR_OP("ge.Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
};

// Logic: anything but 0 counts as true.

/// Whether both elements are nonzero, as bools. Shapes broadcast.
struct LogicalAnd : BinaryPointwise<LogicalAnd, BinaryOp::LogicalAnd, ResultType::Bool> {
  ATHANOR_OP("logical_and(Tensor self, Tensor other) -> Tensor | inplace out");
};

/// Whether at least one element is nonzero, as bools. Shapes broadcast.
struct LogicalOr : BinaryPointwise<LogicalOr, BinaryOp::LogicalOr, ResultType::Bool> {
  ATHANOR_OP("logical_or(Tensor self, Tensor other) -> Tensor | inplace out");
};

/// Whether just one of both elements is nonzero, as bools. Shapes broadcast.
struct LogicalXor : BinaryPointwise<LogicalXor, BinaryOp::LogicalXor, ResultType::Bool> {
  ATHANOR_OP("logical_xor(Tensor self, Tensor other) -> Tensor | inplace out");
};

// Bits of integers and bools.

namespace {

Meta bitwise_meta(const char* schema, Meta m) {
  ATHANOR_CHECK_TYPE(NotImplementedError, !is_floating_point(m.dtype), op_name(schema),
                     ": expected integer or bool operands, got a result type of ", dtype_name(m.dtype));
  return m;
}

}  // namespace

template <class Derived, BinaryOp Kind>
struct BitwisePointwise : BinaryPointwise<Derived, Kind> {
  Meta infer(const Tensor& a, const Tensor& b) {
    return bitwise_meta(Derived::schema, BinaryPointwise<Derived, Kind>::infer(a, b));
  }
};
template <class Derived, BinaryOp Kind>
struct BitwiseScalarPointwise : ScalarPointwise<Derived, Kind> {
  Meta infer(const Tensor& a) { return bitwise_meta(Derived::schema, ScalarPointwise<Derived, Kind>::infer(a)); }
};

/// Bit by bit, whether both are set, of integers or bools. Shapes broadcast. Throws NotImplementedError for floating
/// ones.
struct BitwiseAnd : BitwisePointwise<BitwiseAnd, BinaryOp::BitwiseAnd> {
  ATHANOR_OP("bitwise_and(Tensor self, Tensor other) -> Tensor | inplace out");
};
struct BitwiseAndScalar : BitwiseScalarPointwise<BitwiseAndScalar, BinaryOp::BitwiseAnd> {
  ATHANOR_OP("bitwise_and.Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
};

/// Bit by bit, whether one is set, of integers or bools. Shapes broadcast. Throws NotImplementedError for floating
/// ones.
struct BitwiseOr : BitwisePointwise<BitwiseOr, BinaryOp::BitwiseOr> {
  ATHANOR_OP("bitwise_or(Tensor self, Tensor other) -> Tensor | inplace out");
};
struct BitwiseOrScalar : BitwiseScalarPointwise<BitwiseOrScalar, BinaryOp::BitwiseOr> {
  ATHANOR_OP("bitwise_or.Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
};

/// Bit by bit, whether they differ, of integers or bools. Shapes broadcast. Throws NotImplementedError for floating
/// ones.
struct BitwiseXor : BitwisePointwise<BitwiseXor, BinaryOp::BitwiseXor> {
  ATHANOR_OP("bitwise_xor(Tensor self, Tensor other) -> Tensor | inplace out");
};
struct BitwiseXorScalar : BitwiseScalarPointwise<BitwiseXorScalar, BinaryOp::BitwiseXor> {
  ATHANOR_OP("bitwise_xor.Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
};

/// Integers shifted to higher bits by other places. Shapes broadcast.
struct LeftShift : BitwisePointwise<LeftShift, BinaryOp::LeftShift> {
  ATHANOR_OP("bitwise_left_shift(Tensor self, Tensor other) -> Tensor | inplace out");
};
struct LeftShiftScalar : BitwiseScalarPointwise<LeftShiftScalar, BinaryOp::LeftShift> {
  ATHANOR_OP("bitwise_left_shift.Tensor_Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
};

/// Integers shifted to lower bits by other places, keeping the sign. Shapes broadcast.
struct RightShift : BitwisePointwise<RightShift, BinaryOp::RightShift> {
  ATHANOR_OP("bitwise_right_shift(Tensor self, Tensor other) -> Tensor | inplace out");
};
struct RightShiftScalar : BitwiseScalarPointwise<RightShiftScalar, BinaryOp::RightShift> {
  ATHANOR_OP("bitwise_right_shift.Tensor_Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
};

// The larger and the smaller. Where both are equal, each gets half of the gradient.

/// Backward of maximum and its kin: Derived::wins(a, b) is true where a was taken and nothing else decides.
template <class Derived, BinaryOp Kind>
struct Extremum : BinaryPointwise<Derived, Kind> {
  SavedTensor a, b;
  static constexpr bool keeps_self = true;
  void save(const Node&, const Tensor& x, const Tensor& y) {
    a.save(x);
    b.save(y);
  }
  void grad(GradCall& g) {
    const Tensor x = g.get(a), y = g.get(b);
    const Tensor shared = where(eq(x, y), mul(g.grad(), 0.5), g.grad());
    if (g.needs(0)) g.set(0, where(Derived::loses(x, y), Scalar(0), shared));
    if (g.needs(1)) g.set(1, where(Derived::loses(y, x), Scalar(0), shared));
  }
};

/// The larger of the two; NaN if either is.
struct Maximum : Extremum<Maximum, BinaryOp::Maximum> {
  ATHANOR_OP("maximum(Tensor self, Tensor other) -> Tensor | out");
  static Tensor loses(const Tensor& x, const Tensor& y) { return lt(x, y); }
};
/// The smaller of the two; NaN if either is.
struct Minimum : Extremum<Minimum, BinaryOp::Minimum> {
  ATHANOR_OP("minimum(Tensor self, Tensor other) -> Tensor | out");
  static Tensor loses(const Tensor& x, const Tensor& y) { return gt(x, y); }
};

/// Backward of fmax and fmin.
template <class Derived, BinaryOp Kind>
struct NumberExtremum : BinaryPointwise<Derived, Kind> {
  SavedTensor a, b;
  void save(const Node&, const Tensor& x, const Tensor& y) {
    a.save(x);
    b.save(y);
  }
  void grad(GradCall& g) {
    const Tensor x = g.get(a), y = g.get(b);
    const Tensor equal = eq(x, y), first = logical_or(Derived::wins(x, y), isnan(y));
    const Tensor shared = where(equal, mul(g.grad(), 0.5), g.grad());
    if (g.needs(0)) g.set(0, where(logical_or(first, equal), shared, Scalar(0)));
    if (g.needs(1)) g.set(1, where(first, Scalar(0), shared));
  }
};

/// The larger of the two; a number wins over NaN.
struct Fmax : NumberExtremum<Fmax, BinaryOp::Fmax> {
  ATHANOR_OP("fmax(Tensor self, Tensor other) -> Tensor | out");
  static Tensor wins(const Tensor& x, const Tensor& y) { return gt(x, y); }
};
/// The smaller of the two; a number wins over NaN.
struct Fmin : NumberExtremum<Fmin, BinaryOp::Fmin> {
  ATHANOR_OP("fmin(Tensor self, Tensor other) -> Tensor | out");
  static Tensor wins(const Tensor& x, const Tensor& y) { return lt(x, y); }
};

ATHANOR_FUNCTION("max.other(Tensor self, Tensor other) -> Tensor | out");
Tensor max(const Tensor& self, const Tensor& other) { return maximum(self, other); }
ATHANOR_FUNCTION("min.other(Tensor self, Tensor other) -> Tensor | out");
Tensor min(const Tensor& self, const Tensor& other) { return minimum(self, other); }

// Closeness.

/// |self - other| <= atol + rtol |other|, element by element; infinities equal themselves.
ATHANOR_FUNCTION(
    "isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor");
Tensor isclose(const Tensor& self, const Tensor& other, double rtol, double atol, bool equal_nan) {
  ATHANOR_CHECK(self.dtype() == other.dtype(), "isclose: ", self.dtype(), " did not match ", other.dtype());
  ATHANOR_CHECK(rtol >= 0, "isclose: rtol must be greater than or equal to zero, but got ", rtol);
  ATHANOR_CHECK(atol >= 0, "isclose: atol must be greater than or equal to zero, but got ", atol);
  Tensor close = eq(self, other);
  if (equal_nan && self.is_floating_point()) close = logical_or(close, logical_and(isnan(self), isnan(other)));
  if (rtol == 0 && atol == 0) return close;
  const Tensor a = self.is_floating_point() ? self : cast(self, DType::Double);
  const Tensor b = cast(other, a.dtype());
  const Tensor error = abs(sub(a, b));
  return logical_or(close, logical_and(isfinite(error), le(error, add(mul(abs(b), rtol), atol))));
}

}  // namespace athanor::ops

#include "athanor/ops/compare.glue.inc"
