// Functions of two operands beyond the basic arithmetic: rounding divisions, powers, angles, logarithms of sums.
#include "athanor/ops/binary.h"

#include <cmath>
#include <numbers>

#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/pointwise_op.h"
#include "athanor/ops/reshape.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

// Divisions that round. Their results are constant between jumps: the gradient is zero.

namespace {

enum class Rounding { None, Trunc, Floor };

Rounding rounding_of(std::optional<std::string_view> mode) {
  if (!mode) return Rounding::None;
  if (*mode == "trunc") return Rounding::Trunc;
  ATHANOR_CHECK(*mode == "floor", "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '",
                *mode, "'");
  return Rounding::Floor;
}

}  // namespace

template <class Derived, BinaryOp Kind>
struct RoundingDivision : BinaryPointwise<Derived, Kind> {
  void grad(GradCall& g) {
    for (std::size_t i = 0; i < 2; ++i)
      if (g.needs(i)) g.set(i, zeros_like(g.grad()));
  }
};
template <class Derived, BinaryOp Kind>
struct RoundingDivisionScalar : ScalarPointwise<Derived, Kind> {
  void grad(GradCall& g) { g.set(0, zeros_like(g.grad())); }
};

/// input / other, rounded down. Shapes broadcast; integers divided by zero throw Error.
struct DivFloor : RoundingDivision<DivFloor, BinaryOp::DivFloor> {
  ATHANOR_OP("floor_divide(Tensor self, Tensor other) -> Tensor | inplace out");
};
struct DivFloorScalar : RoundingDivisionScalar<DivFloorScalar, BinaryOp::DivFloor> {
  ATHANOR_OP("floor_divide.Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
};
struct DivTrunc : RoundingDivision<DivTrunc, BinaryOp::DivTrunc> {
  ATHANOR_OP("_div_trunc(Tensor self, Tensor other) -> Tensor | function");
  static constexpr const char* grad_name = "DivBackward1";
};
struct DivTruncScalar : RoundingDivisionScalar<DivTruncScalar, BinaryOp::DivTrunc> {
  ATHANOR_OP("_div_trunc.Scalar(Tensor self, Scalar other) -> Tensor | function");
  static constexpr const char* grad_name = "DivBackward1";
  Scalar other;
};

/// self / other: true division, or rounded "trunc" (towards zero) or "floor", where integers stay integers.
ATHANOR_FUNCTION("div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor | inplace out");
Tensor div(const Tensor& self, const Tensor& other, std::optional<std::string_view> rounding_mode) {
  switch (rounding_of(rounding_mode)) {
    case Rounding::None:
      return div(self, other);
    case Rounding::Trunc:
      return _div_trunc(self, other);
    case Rounding::Floor:
      break;
  }
  return floor_divide(self, other);
}
ATHANOR_FUNCTION("div.Scalar_mode(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor | inplace out");
Tensor div(const Tensor& self, const Scalar& other, std::optional<std::string_view> rounding_mode) {
  switch (rounding_of(rounding_mode)) {
    case Rounding::None:
      return div(self, other);
    case Rounding::Trunc:
      return _div_trunc(self, other);
    case Rounding::Floor:
      break;
  }
  return floor_divide(self, other);
}

/// The rest of floor_divide; it has the divisor's sign.
struct Remainder : BinaryPointwise<Remainder, BinaryOp::Remainder> {
  ATHANOR_OP("remainder(Tensor self, Tensor other) -> Tensor | inplace out");
  SavedTensor a, b;
  static bool keeps_self(const Node& n) { return n.needs(1); }
  void save(const Node& n, const Tensor& x, const Tensor& y) {
    if (!n.needs(1)) return;
    a.save(x);
    b.save(y);
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, g.grad());
    if (g.needs(1)) g.set(1, neg(mul(g.grad(), floor_divide(g.get(a), g.get(b)))));
  }
};
struct RemainderScalar : ScalarPointwise<RemainderScalar, BinaryOp::Remainder> {
  ATHANOR_OP("remainder.Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
  void grad(GradCall& g) { g.set(0, g.grad()); }
};

/// The rest of a division rounded towards zero; it has self's sign.
struct Fmod : BinaryPointwise<Fmod, BinaryOp::Fmod> {
  ATHANOR_OP("fmod(Tensor self, Tensor other) -> Tensor | inplace out");
  SavedTensor a, b;
  static bool keeps_self(const Node& n) { return n.needs(1); }
  void save(const Node& n, const Tensor& x, const Tensor& y) {
    if (!n.needs(1)) return;
    a.save(x);
    b.save(y);
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, g.grad());
    if (g.needs(1)) g.set(1, neg(mul(g.grad(), _div_trunc(g.get(a), g.get(b)))));
  }
};
struct FmodScalar : ScalarPointwise<FmodScalar, BinaryOp::Fmod> {
  ATHANOR_OP("fmod.Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
  Scalar other;
  void grad(GradCall& g) { g.set(0, g.grad()); }
};

// Powers.

namespace {

/// The kernel of the exponents that have a faster one.
std::optional<UnaryOp> special_power(double exponent) {
  if (exponent == 2) return UnaryOp::Square;
  if (exponent == 0.5) return UnaryOp::Sqrt;
  if (exponent == -0.5) return UnaryOp::Rsqrt;
  if (exponent == -1) return UnaryOp::Reciprocal;
  return std::nullopt;
}

}  // namespace

struct PowTensor : BinaryPointwise<PowTensor, BinaryOp::Pow> {
  ATHANOR_OP("pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor | inplace out");
  static constexpr const char* grad_name = "PowBackward1";
  SavedTensor base, power, y;
  static constexpr bool keeps_self = true;
  void save(const Node&, const Tensor& self, const Tensor& exponent) {
    base.save(self);
    power.save(exponent);
  }
  void save_results(Node* n, const Tensor& out) {
    if (n->needs(1)) y.save_result(out, n);
  }
  void grad(GradCall& g) {
    const Tensor v = g.get(base), e = g.get(power);
    if (g.needs(0)) {
      const Tensor slope = mul(e, pow(v, sub(e, 1)));
      g.set(0, mul(g.grad(), where(eq(e, 0), Scalar(0), slope)));
    }
    if (g.needs(1)) {
      // x^e log x, which is 0 and not NaN at x = 0, e >= 0.
      const Tensor dead = logical_and(eq(v, 0), ge(e, 0));
      g.set(1, mul(g.grad(), where(dead, Scalar(0), mul(g.get(y), log(v)))));
    }
  }
};

/// self to the power exponent.
struct PowScalar {
  ATHANOR_OP("pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor | inplace out");
  Scalar exponent;
  SavedTensor x;
  static constexpr bool keeps_self = true;
  void prepare(Tensor& self) {
    if (!self.defined()) fail_undefined_operand(schema);
    self = cast(self, Promotion().add(self).add(exponent).type());
  }
  Meta infer(const Tensor& self) {
    ATHANOR_CHECK(self.is_floating_point() || exponent.toDouble() >= 0,
                  "pow: Integers to negative integer powers are not allowed, got exponent ", exponent, " for ",
                  self.dtype());
    return pointwise_meta(schema, self.dtype(), {&self});
  }
  void run(const Tensor& out, const Tensor& self) {
    if (!self.is_floating_point())
      launch(binary_scalar_kernel, BinaryOp::Pow, out, self, exponent, false, Scalar(1), Scalar(0));
    else if (const auto special = special_power(exponent.toDouble()))
      launch(unary_kernel, *special, out, self, Scalar(0), Scalar(0));
    else
      launch(unary_kernel, UnaryOp::PowScalar, out, self, exponent, Scalar(0));
  }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void grad(GradCall& g) {
    const double e = exponent.toDouble();
    if (e == 0) return g.set(0, zeros_like(g.grad()));
    const Tensor v = g.get(x);
    g.set(0, mul(g.grad(), mul(e == 2 ? v : pow(v, Scalar(e - 1)), e)));
  }
};

struct PowBase {
  ATHANOR_OP("pow.Scalar(Scalar self, Tensor exponent) -> Tensor | function out");
  static constexpr const char* grad_name = "PowBackward2";
  Scalar self;
  SavedTensor power, y;
  void prepare(Tensor& exponent) {
    if (!exponent.defined()) fail_undefined_operand(schema);
    exponent = cast(exponent, Promotion().add(exponent).add(self).type());
  }
  Meta infer(const Tensor& exponent) { return pointwise_meta(schema, exponent.dtype(), {&exponent}); }
  void run(const Tensor& out, const Tensor& exponent) {
    launch(binary_scalar_kernel, BinaryOp::Pow, out, exponent, self, true, Scalar(1), Scalar(0));
  }
  void save(const Node&, const Tensor& exponent) { power.save(exponent); }
  void save_results(Node* n, const Tensor& out) { y.save_result(out, n); }
  void grad(GradCall& g) {
    const double base = self.toDouble();
    // 0^e is constant for e >= 0 and drops from infinity below.
    const Tensor slope = base == 0 ? where(ge(g.get(power), 0), Scalar(0), full_like(g.get(y), -INFINITY))
                                   : mul(g.get(y), std::log(base));
    g.set(0, mul(g.grad(), slope));
  }
};

/// pow in float64.
ATHANOR_FUNCTION("float_power(Tensor self, Tensor exponent) -> Tensor | out own_dtype");
Tensor float_power(const Tensor& self, const Tensor& exponent) {
  return pow(cast(self, DType::Double), cast(exponent, DType::Double));
}
ATHANOR_FUNCTION("float_power.Scalar(Tensor self, Scalar exponent) -> Tensor | out own_dtype");
Tensor float_power(const Tensor& self, const Scalar& exponent) {
  return pow(cast(self, DType::Double), Scalar(exponent.toDouble()));
}

/// self * 2^other, also where 2^other alone is no number of the dtype.
ATHANOR_FUNCTION("ldexp(Tensor self, Tensor other) -> Tensor | inplace out");
Tensor ldexp(const Tensor& self, const Tensor& other) {
  ATHANOR_CHECK(self.defined() && other.defined(), "ldexp: expected two tensors, got an undefined one");
  const DType t = float_type(Promotion().add(self).add(other).type());
  // Exponents beyond these bounds give 0 or infinity as well; a third of them is a power that float64 has.
  const Tensor e = clamp(cast(other, DType::Double), -2200, 2200), third = trunc(div(e, 3));
  const Tensor factor = pow(Scalar(2.0), third), rest = pow(Scalar(2.0), sub(e, mul(third, 2)));
  return cast(mul(mul(mul(cast(self, DType::Double), rest), factor), factor), t);
}

// Angles and lengths.

/// Base of ops with two operands whose gradients are slopes(a, b) times the incoming one.
template <class Derived, BinaryOp Kind>
struct SmoothBinary : BinaryPointwise<Derived, Kind, ResultType::Float> {
  SavedTensor a, b;
  static constexpr bool keeps_self = true;
  void save(const Node&, const Tensor& x, const Tensor& y) {
    a.save(x);
    b.save(y);
  }
  void grad(GradCall& g) {
    const Tensor x = g.get(a), y = g.get(b);
    if (g.needs(0)) g.set(0, Derived::first(g.grad(), x, y));
    if (g.needs(1)) g.set(1, Derived::second(g.grad(), x, y));
  }
};

/// The angle of the point (other, self).
struct Atan2 : SmoothBinary<Atan2, BinaryOp::Atan2> {
  ATHANOR_OP("atan2(Tensor self, Tensor other) -> Tensor | inplace out");
  static Tensor over_square(const Tensor& x, const Tensor& y) {
    const Tensor length = add(mul(x, x), mul(y, y));
    return where(eq(length, 0), Scalar(0), reciprocal(length));
  }
  static Tensor first(const Tensor& g, const Tensor& x, const Tensor& y) { return mul(g, mul(y, over_square(x, y))); }
  static Tensor second(const Tensor& g, const Tensor& x, const Tensor& y) {
    return neg(mul(g, mul(x, over_square(x, y))));
  }
};

/// sqrt(self^2 + other^2) without overflow.
struct Hypot : SmoothBinary<Hypot, BinaryOp::Hypot> {
  ATHANOR_OP("hypot(Tensor self, Tensor other) -> Tensor | inplace out");
  static Tensor first(const Tensor& g, const Tensor& x, const Tensor& y) { return mul(g, div(x, hypot(x, y))); }
  static Tensor second(const Tensor& g, const Tensor& x, const Tensor& y) { return mul(g, div(y, hypot(x, y))); }
};

/// self with other's sign, -0 included.
struct CopySign : SmoothBinary<CopySign, BinaryOp::Copysign> {
  ATHANOR_OP("copysign(Tensor self, Tensor other) -> Tensor | inplace out");
  static Tensor first(const Tensor& g, const Tensor& x, const Tensor& y) {
    return mul(g, mul(sign(x), copysign(ones_like(x), y)));
  }
  static Tensor second(const Tensor& g, const Tensor&, const Tensor&) { return zeros_like(g); }
};
ATHANOR_FUNCTION("copysign.Scalar(Tensor self, Scalar other) -> Tensor | inplace out");
Tensor copysign(const Tensor& self, const Scalar& other) {
  return copysign(self, scalar_tensor(Scalar(std::copysign(1.0, other.toDouble())),
                                      cast(self, float_type(given("copysign", self).dtype())).options()));
}

namespace {

/// nextafter of numbers of 16 bits, whose neighbours in float would round back: a step of their bits as integers.
Tensor next_of_sixteen_bits(const Tensor& a, const Tensor& b) {
  const DimVector shape = broadcast_shapes(a.sizes(), b.sizes(), "nextafter");
  const Tensor x = contiguous(expand(a, shape)), y = contiguous(expand(b, shape));
  const Tensor bits = view(x, DType::Short), away = cast(eq(gt(y, x), gt(x, 0)), DType::Short);
  const Tensor least = add(mul(cast(lt(y, x), DType::Short), -32768), 1);  // of the sign of the direction
  const Tensor moved = where(eq(x, 0), least, add(bits, sub(mul(away, 2), 1)));
  const Tensor next = where(eq(x, y), y, view(moved, x.dtype()));
  return where(logical_or(isnan(x), isnan(y)), add(x, y), next);
}

}  // namespace

/// The next number after self in the direction of other.
struct NextAfter : SmoothBinary<NextAfter, BinaryOp::Nextafter> {
  ATHANOR_OP("nextafter(Tensor self, Tensor other) -> Tensor | inplace out");
  static constexpr bool accepts_hidden = false;
  void run(const Tensor& out, const Tensor& x, const Tensor& y) {
    if (out.dtype() != DType::Half && out.dtype() != DType::BFloat16) return SmoothBinary::run(out, x, y);
    const NoGradGuard off;
    copy_(out, next_of_sixteen_bits(x, y));
  }
  static Tensor first(const Tensor& g, const Tensor& x, const Tensor& y) { return where(eq(x, y), Scalar(0), g); }
  static Tensor second(const Tensor& g, const Tensor& x, const Tensor& y) { return where(eq(x, y), g, Scalar(0)); }
};

// Logarithms.

/// self * log(other), 0 where self is 0 (unless other is NaN).
struct Xlogy : SmoothBinary<Xlogy, BinaryOp::Xlogy> {
  ATHANOR_OP("xlogy(Tensor self, Tensor other) -> Tensor | inplace out");
  static Tensor first(const Tensor& g, const Tensor& x, const Tensor& y) {
    return where(logical_and(eq(x, 0), le(y, 0)), Scalar(0), mul(g, log(y)));
  }
  static Tensor second(const Tensor& g, const Tensor& x, const Tensor& y) { return mul(g, div(x, y)); }
};
namespace {

/// A number as a tensor; infinite where the dtype does not reach it.
Tensor number_of(const Scalar& s, DType t) { return cast(scalar_tensor(s, TensorOptions(DType::Double)), t); }

}  // namespace

ATHANOR_FUNCTION("xlogy.Scalar_Self(Scalar self, Tensor other) -> Tensor | function out");
Tensor xlogy(const Scalar& self, const Tensor& other) {
  return xlogy(number_of(self, float_type(given("xlogy", other).dtype())), other);
}
ATHANOR_FUNCTION("xlogy.Scalar_Other(Tensor self, Scalar other) -> Tensor | inplace out");
Tensor xlogy(const Tensor& self, const Scalar& other) {
  return xlogy(self, number_of(other, float_type(given("xlogy", self).dtype())));
}

/// log(exp(self) + exp(other)) without overflow.
struct LogAddExp : SmoothBinary<LogAddExp, BinaryOp::LogAddExp> {
  ATHANOR_OP("logaddexp(Tensor self, Tensor other) -> Tensor | out");
  static Tensor first(const Tensor& g, const Tensor& x, const Tensor& y) { return div(g, add(exp(sub(y, x)), 1)); }
  static Tensor second(const Tensor& g, const Tensor& x, const Tensor& y) { return div(g, add(exp(sub(x, y)), 1)); }
};
/// log2(2^self + 2^other) without overflow.
struct LogAddExp2 : SmoothBinary<LogAddExp2, BinaryOp::LogAddExp2> {
  ATHANOR_OP("logaddexp2(Tensor self, Tensor other) -> Tensor | out");
  static Tensor first(const Tensor& g, const Tensor& x, const Tensor& y) { return div(g, add(exp2(sub(y, x)), 1)); }
  static Tensor second(const Tensor& g, const Tensor& x, const Tensor& y) { return div(g, add(exp2(sub(x, y)), 1)); }
};

/// 0 where self is negative, 1 where positive, values where 0.
struct Heaviside : BinaryPointwise<Heaviside, BinaryOp::Heaviside> {
  ATHANOR_OP("heaviside(Tensor self, Tensor values) -> Tensor | inplace out");
  Meta infer(const Tensor& a, const Tensor& b) { return BinaryPointwise::infer(a, b); }
  void prepare(Tensor& a, Tensor& b) {  // equal dtypes skip it
    ATHANOR_CHECK(a.defined() && b.defined() && a.dtype() == b.dtype(),
                  "heaviside is not yet implemented for tensors with different dtypes.");
  }
};

// Integers.

/// The greatest common divisor, not negative.
struct Gcd : BinaryPointwise<Gcd, BinaryOp::Gcd> {
  ATHANOR_OP("gcd(Tensor self, Tensor other) -> Tensor | inplace out");
};
/// The least common multiple, not negative.
struct Lcm : BinaryPointwise<Lcm, BinaryOp::Lcm> {
  ATHANOR_OP("lcm(Tensor self, Tensor other) -> Tensor | inplace out");
};

}  // namespace athanor::ops

#include "athanor/ops/binary.glue.inc"
