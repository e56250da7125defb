// Functions of one tensor, element by element. Integers give the default float dtype unless the op keeps their dtype.
#include "athanor/ops/unary.h"

#include <cmath>
#include <numbers>

#include "athanor/ops/activation_backward.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/create.h"
#include "athanor/ops/pointwise_op.h"
#include "athanor/ops/ternary.h"
#include "athanor/tensor/largest_finite.h"

namespace athanor::ops {

namespace {

constexpr double kLn2 = std::numbers::ln2, kLn10 = std::numbers::ln10, kPi = std::numbers::pi;

}  // namespace

// Those that keep an integer dtype.

/// The absolute value of each element.
struct Abs : UnaryOfInput<Abs, UnaryOp::Abs, ResultType::Promoted> {
  ATHANOR_OP("abs(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, sgn(v)); }
};

/// self * self.
struct Square : UnaryOfInput<Square, UnaryOp::Square, ResultType::Promoted> {
  ATHANOR_OP("square(Tensor self) -> Tensor | inplace out");
  static constexpr const char* grad_name = "PowBackward0";
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, mul(v, 2)); }
};

/// -1, 0 or 1; NaN stays.
struct Sign : UnaryPointwise<Sign, UnaryOp::Sign, ResultType::Promoted> {
  ATHANOR_OP("sign(Tensor self) -> Tensor | inplace out");
  void grad(GradCall& g) { g.set(0, zeros_like(g.grad())); }
};

/// sign; the name that also fits complex numbers.
struct Sgn : UnaryPointwise<Sgn, UnaryOp::Sgn, ResultType::Promoted> {
  ATHANOR_OP("sgn(Tensor self) -> Tensor | inplace out");
  void grad(GradCall& g) { g.set(0, zeros_like(g.grad())); }
};

/// The least integer that is not below each element.
struct Ceil : UnaryPointwise<Ceil, UnaryOp::Ceil, ResultType::Promoted> {
  ATHANOR_OP("ceil(Tensor self) -> Tensor | inplace out");
  void grad(GradCall& g) { g.set(0, zeros_like(g.grad())); }
};

/// The greatest integer that is not above each element.
struct Floor : UnaryPointwise<Floor, UnaryOp::Floor, ResultType::Promoted> {
  ATHANOR_OP("floor(Tensor self) -> Tensor | inplace out");
  void grad(GradCall& g) { g.set(0, zeros_like(g.grad())); }
};

/// To the nearest integer, halves to the even one.
struct Round : UnaryPointwise<Round, UnaryOp::Round, ResultType::Promoted> {
  ATHANOR_OP("round(Tensor self) -> Tensor | inplace out");
  void grad(GradCall& g) { g.set(0, zeros_like(g.grad())); }
};

/// Towards zero.
struct Trunc : UnaryPointwise<Trunc, UnaryOp::Trunc, ResultType::Promoted> {
  ATHANOR_OP("trunc(Tensor self) -> Tensor | inplace out");
  void grad(GradCall& g) { g.set(0, zeros_like(g.grad())); }
};

// Powers, exponentials, logarithms.

/// self - trunc(self).
struct Frac : UnaryPointwise<Frac, UnaryOp::Frac, ResultType::Floating> {
  ATHANOR_OP("frac(Tensor self) -> Tensor | inplace out");
  void grad(GradCall& g) { g.set(0, g.grad()); }
};

/// The square root of each element. Integers give floating results. NaN below zero.
struct Sqrt : UnaryOfResult<Sqrt, UnaryOp::Sqrt> {
  ATHANOR_OP("sqrt(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return sqrt_backward(g, v); }
};

/// 1 / sqrt(self).
struct Rsqrt : UnaryOfResult<Rsqrt, UnaryOp::Rsqrt> {
  ATHANOR_OP("rsqrt(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return rsqrt_backward(g, v); }
};

/// 1 / self.
struct Reciprocal : UnaryOfResult<Reciprocal, UnaryOp::Reciprocal> {
  ATHANOR_OP("reciprocal(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return reciprocal_backward(g, v); }
};

/// e to the power of each element. Integers give floating results.
struct Exp : UnaryOfResult<Exp, UnaryOp::Exp> {
  ATHANOR_OP("exp(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, v); }
};

/// Two to the power of each element. Integers give floating results.
struct Exp2 : UnaryOfResult<Exp2, UnaryOp::Exp2> {
  ATHANOR_OP("exp2(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, mul(v, kLn2)); }
};

/// exp(x) - 1, exact near zero, of each element. Integers give floating results.
struct Expm1 : UnaryOfResult<Expm1, UnaryOp::Expm1> {
  ATHANOR_OP("expm1(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, add(v, 1)); }
};

/// The natural logarithm of each element. Integers give floating results. NaN below zero.
struct Log : UnaryOfInput<Log, UnaryOp::Log> {
  ATHANOR_OP("log(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return div(g, v); }
};

/// The logarithm to base 2 of each element. Integers give floating results. NaN below zero.
struct Log2 : UnaryOfInput<Log2, UnaryOp::Log2> {
  ATHANOR_OP("log2(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return div(g, mul(v, kLn2)); }
};

/// The logarithm to base 10 of each element. Integers give floating results. NaN below zero.
struct Log10 : UnaryOfInput<Log10, UnaryOp::Log10> {
  ATHANOR_OP("log10(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return div(g, mul(v, kLn10)); }
};

/// log(1 + x), exact near zero, of each element. Integers give floating results.
struct Log1p : UnaryOfInput<Log1p, UnaryOp::Log1p> {
  ATHANOR_OP("log1p(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return div(g, add(v, 1)); }
};

// Trigonometry.

/// The sine of each element. Integers give floating results.
struct Sin : UnaryOfInput<Sin, UnaryOp::Sin> {
  ATHANOR_OP("sin(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, cos(v)); }
};

/// The cosine of each element. Integers give floating results.
struct Cos : UnaryOfInput<Cos, UnaryOp::Cos> {
  ATHANOR_OP("cos(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return neg(mul(g, sin(v))); }
};

/// The tangent of each element. Integers give floating results.
struct Tan : UnaryOfResult<Tan, UnaryOp::Tan> {
  ATHANOR_OP("tan(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, add(mul(v, v), 1)); }
};

/// The arcsine of each element, in radians. NaN outside [-1, 1].
struct Asin : UnaryOfInput<Asin, UnaryOp::Asin> {
  ATHANOR_OP("asin(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, rsqrt(rsub(mul(v, v), 1))); }
};

/// The arccosine of each element, in radians. NaN outside [-1, 1].
struct Acos : UnaryOfInput<Acos, UnaryOp::Acos> {
  ATHANOR_OP("acos(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return neg(mul(g, rsqrt(rsub(mul(v, v), 1)))); }
};

/// The arctangent of each element, in radians.
struct Atan : UnaryOfInput<Atan, UnaryOp::Atan> {
  ATHANOR_OP("atan(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return div(g, add(mul(v, v), 1)); }
};

/// The hyperbolic sine of each element. Integers give floating results.
struct Sinh : UnaryOfInput<Sinh, UnaryOp::Sinh> {
  ATHANOR_OP("sinh(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, cosh(v)); }
};

/// The hyperbolic cosine of each element. Integers give floating results.
struct Cosh : UnaryOfInput<Cosh, UnaryOp::Cosh> {
  ATHANOR_OP("cosh(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, sinh(v)); }
};

/// The hyperbolic tangent of each element. Integers give floating results.
struct Tanh : UnaryOfResult<Tanh, UnaryOp::Tanh> {
  ATHANOR_OP("tanh(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return tanh_backward(g, v); }
};

/// The inverse hyperbolic sine of each element. Integers give floating results.
struct Asinh : UnaryOfInput<Asinh, UnaryOp::Asinh> {
  ATHANOR_OP("asinh(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, rsqrt(add(mul(v, v), 1))); }
};

/// The inverse hyperbolic cosine of each element. Integers give floating results. NaN below 1.
struct Acosh : UnaryOfInput<Acosh, UnaryOp::Acosh> {
  ATHANOR_OP("acosh(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, rsqrt(sub(mul(v, v), 1))); }
};

/// The inverse hyperbolic tangent of each element. Integers give floating results. NaN outside [-1, 1].
struct Atanh : UnaryOfInput<Atanh, UnaryOp::Atanh> {
  ATHANOR_OP("atanh(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return div(g, rsub(mul(v, v), 1)); }
};

/// sin(pi self) / (pi self), 1 at 0.
struct Sinc : UnaryOfInput<Sinc, UnaryOp::Sinc> {
  ATHANOR_OP("sinc(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const {
    // The quotient is 0/0 where v^2 is 0: there the divisor is replaced, and the quotient's gradient with it.
    const Tensor at_zero = eq(mul(v, v), 0);
    const Tensor safe = where(at_zero, Scalar(1), v), angle = mul(safe, kPi);
    const Tensor slope = div(sub(mul(angle, cos(angle)), sin(angle)), mul(mul(safe, safe), kPi));
    // Near 0 the derivative is -pi^2/3 v, which the branch at 0 keeps for derivatives of higher order.
    return mul(g, where(at_zero, mul(v, -kPi * kPi / 3), slope));
  }
};

// Special functions.

/// The error function of each element. Integers give floating results.
struct Erf : UnaryOfInput<Erf, UnaryOp::Erf> {
  ATHANOR_OP("erf(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const {
    return mul(g, mul(exp(neg(mul(v, v))), 2 * std::numbers::inv_sqrtpi));
  }
};

/// 1 - erf(self).
struct Erfc : UnaryOfInput<Erfc, UnaryOp::Erfc> {
  ATHANOR_OP("erfc(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const {
    return mul(g, mul(exp(neg(mul(v, v))), -2 * std::numbers::inv_sqrtpi));
  }
};

/// The inverse of erf.
struct Erfinv : UnaryOfResult<Erfinv, UnaryOp::Erfinv> {
  ATHANOR_OP("erfinv(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const {
    return mul(g, mul(exp(mul(v, v)), 0.5 / std::numbers::inv_sqrtpi));
  }
};

/// log |gamma(self)|.
struct Lgamma : UnaryOfInput<Lgamma, UnaryOp::Lgamma> {
  ATHANOR_OP("lgamma(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, digamma(v)); }
};

/// The derivative of lgamma.
struct Digamma : UnaryOfInput<Digamma, UnaryOp::Digamma> {
  ATHANOR_OP("digamma(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, trigamma(v)); }
};

/// The derivative of digamma; polygamma(1, self).
struct TrigammaOp : UnaryOfInput<TrigammaOp, UnaryOp::Trigamma> {
  ATHANOR_OP("trigamma(Tensor self) -> Tensor | function internal");
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, polygamma(2, v)); }
};

/// polygamma(n, self) for n >= 1.
struct PolygammaOrder : UnaryOfInput<PolygammaOrder, UnaryOp::Polygamma> {
  ATHANOR_OP("polygamma_order(Tensor self, int n) -> Tensor | function internal");
  std::int64_t n = 0;
  Meta infer(const Tensor& self) {
    ATHANOR_CHECK(n >= 1, "polygamma_order: expected n of at least 1, got ", n);
    return UnaryPointwise::infer(self);
  }
  Scalar p0() const { return n; }
  Tensor slope(const Tensor& g, const Tensor& v) const { return mul(g, polygamma(n + 1, v)); }
};

/// The n-th derivative of digamma.
ATHANOR_FUNCTION("polygamma(int n, Tensor self) -> Tensor | function out");
Tensor polygamma(std::int64_t n, const Tensor& self) {
  ATHANOR_CHECK(n >= 0, "polygamma(n, x) does not support negative n, got ", n);
  return n == 0 ? digamma(self) : n == 1 ? trigamma(self) : polygamma_order(self, n);
}

/// 1 / (1 + exp(-self)).
struct Sigmoid : UnaryOfResult<Sigmoid, UnaryOp::Sigmoid> {
  ATHANOR_OP("sigmoid(Tensor self) -> Tensor | inplace out");
  Tensor slope(const Tensor& g, const Tensor& v) const { return sigmoid_backward(g, v); }
};

/// log(self / (1 - self)); with eps, self is clamped to [eps, 1 - eps] first.
struct Logit : UnaryOfInput<Logit, UnaryOp::Logit> {
  ATHANOR_OP("logit(Tensor self, float? eps=None) -> Tensor | inplace out");
  std::optional<double> eps;
  Scalar p0() const { return eps.value_or(-1.0); }
  Tensor slope(const Tensor& g, const Tensor& v) const { return logit_backward(g, v, eps); }
};

/// Degrees to radians.
struct Deg2Rad : UnaryPointwise<Deg2Rad, UnaryOp::Deg2Rad> {
  ATHANOR_OP("deg2rad(Tensor self) -> Tensor | inplace out");
  void grad(GradCall& g) { g.set(0, mul(g.grad(), kPi / 180)); }
};

/// Radians to degrees.
struct Rad2Deg : UnaryPointwise<Rad2Deg, UnaryOp::Rad2Deg> {
  ATHANOR_OP("rad2deg(Tensor self) -> Tensor | inplace out");
  void grad(GradCall& g) { g.set(0, mul(g.grad(), 180 / kPi)); }
};

// Tests and bits.

/// Whether each element is NaN.
struct IsNan : UnaryPointwise<IsNan, UnaryOp::IsNan, ResultType::Bool> {
  ATHANOR_OP("isnan(Tensor self) -> Tensor");
};

/// Whether each element is infinite.
struct IsInf : UnaryPointwise<IsInf, UnaryOp::IsInf, ResultType::Bool> {
  ATHANOR_OP("isinf(Tensor self) -> Tensor");
};

/// Whether each element is neither infinite nor NaN.
struct IsFinite : UnaryPointwise<IsFinite, UnaryOp::IsFinite, ResultType::Bool> {
  ATHANOR_OP("isfinite(Tensor self) -> Tensor");
};

/// Whether each element is +inf.
struct IsPosInf : UnaryPointwise<IsPosInf, UnaryOp::IsPosInf, ResultType::Bool> {
  ATHANOR_OP("isposinf(Tensor self) -> Tensor | out");
};

/// Whether each element is -inf.
struct IsNegInf : UnaryPointwise<IsNegInf, UnaryOp::IsNegInf, ResultType::Bool> {
  ATHANOR_OP("isneginf(Tensor self) -> Tensor | out");
};

/// The sign bit is set: negative numbers and -0.
struct Signbit : UnaryPointwise<Signbit, UnaryOp::Signbit, ResultType::Bool> {
  ATHANOR_OP("signbit(Tensor self) -> Tensor | out");
};

/// Whether each element is zero, as bools.
struct LogicalNot : UnaryPointwise<LogicalNot, UnaryOp::LogicalNot, ResultType::Bool> {
  ATHANOR_OP("logical_not(Tensor self) -> Tensor | inplace out");
};

/// Every bit inverted; of bool, the opposite.
struct BitwiseNot : UnaryPointwise<BitwiseNot, UnaryOp::BitwiseNot, ResultType::Promoted> {
  ATHANOR_OP("bitwise_not(Tensor self) -> Tensor | inplace out");
  Meta infer(const Tensor& a) {
    ATHANOR_CHECK_TYPE(TypeError, !a.is_floating_point(), "bitwise_not: expected an integer or bool tensor, got ",
                       dtype_name(a.dtype()));
    return UnaryPointwise::infer(a);
  }
};

/// NaN and the infinities replaced: by 0, the largest and the lowest number of the dtype unless given.
struct NanToNum {
  ATHANOR_OP(
      "nan_to_num(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor | inplace out");
  std::optional<double> nan, posinf, neginf;
  SavedTensor x;
  static constexpr bool keeps_self = true;
  Meta infer(const Tensor& self) { return pointwise_meta(schema, given(schema, self).dtype(), {&self}); }
  void run(const Tensor& out, const Tensor& self) {
    const double most = largest_finite(self.dtype());
    launch(nan_to_num_kernel, out, self, nan.value_or(0), posinf.value_or(most), neginf.value_or(-most));
  }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void grad(GradCall& g) { g.set(0, where(isfinite(g.get(x)), g.grad(), Scalar(0))); }
};

/// To `decimals` places after the point (before it, if negative), halves to even.
ATHANOR_FUNCTION("round.decimals(Tensor self, *, int decimals) -> Tensor | inplace out");
Tensor round(const Tensor& self, std::int64_t decimals) {
  if (decimals == 0 || !self.is_floating_point()) return round(self);
  const double scale = std::pow(10.0, static_cast<double>(decimals < 0 ? -decimals : decimals));
  // In 16 bits the scaled values would soon be infinite.
  const Tensor wide = is_half(self.dtype()) ? cast(self, DType::Float) : self;
  return cast(decimals > 0 ? div(round(mul(wide, scale)), scale) : mul(round(div(wide, scale)), scale), self.dtype());
}

/// self itself; bool is refused.
ATHANOR_FUNCTION("positive(Tensor self) -> Tensor");
Tensor positive(const Tensor& self) {
  ATHANOR_CHECK(self.dtype() != DType::Bool, "positive: The `+` operator, on a bool tensor is not supported.");
  return self;
}

}  // namespace athanor::ops

#include "athanor/ops/unary.glue.inc"
