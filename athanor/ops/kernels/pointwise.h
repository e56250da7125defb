#pragma once
/// Element-wise kernels: one entry per arity, the operation is a value.
///
/// Geometry. `out` has the result's shape. Unary: `in` has out's shape. Binary and ternary: every input *broadcasts*
/// against out's shape by the kernel (trailing dims aligned, size 1 repeats, missing dims are 1), so pass the inputs as
/// they are. All strides are allowed, including stride 0 on inputs. `out` may be exactly one of the inputs (same
/// address and strides); any other overlap with an input is the caller's mistake.
///
/// Dtypes. The inputs share one dtype (the op layer promotes) and `out` has it too, except where the group says that
/// the result is bool. A dtype an operation does not take throws NotImplementedError naming both. Half and bfloat16
/// compute in float32 and round once. Parameters are converted to the computing type (the dtype; float32 for halves).
///
/// Values follow PyTorch: NaN propagates through maximum, minimum, clamp and relu; integer division and remainder by
/// zero throw Error("ZeroDivisionError"); signed integer overflow wraps; shifts beyond the width give 0 (or -1 for
/// an arithmetic right shift of a negative value).
///
/// Accuracy: float32 and float64 functions are within 4 ulp of the true value unless said otherwise.
/// Thread-safe; parallel inside for large outputs; the result does not depend on the number of threads.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

// clang-format off
// X(enumerator, "name in errors"). The order within a group is free; kernels find operations by enumerator.

/// Floats and integers; Sign and Sgn also bool (a copy), BitwiseNot integers and bool only. Ceil, Floor, Round (half to
/// even) and Trunc of integers are copies. Clamp and Hardtanh: min(max(x, p0), p1); ClampMin: p0; ClampMax: p0; bounds
/// beyond an integer dtype's range act as that range's ends. Threshold: x <= p0 ? p1 : x.
#define ATHANOR_UNARY_ANY_OPS(X)                                                                                       \
  X(Abs, "abs") X(Neg, "neg") X(Sign, "sign") X(Sgn, "sgn") X(Square, "square") X(Ceil, "ceil") X(Floor, "floor")      \
  X(Round, "round") X(Trunc, "trunc") X(Relu, "relu") X(Relu6, "relu6") X(Hardtanh, "hardtanh") X(Clamp, "clamp")      \
  X(ClampMin, "clamp_min") X(ClampMax, "clamp_max") X(Threshold, "threshold") X(BitwiseNot, "bitwise_not")

/// Floating dtypes only.
/// Logit: p0 = eps, x is clamped to [eps, 1 - eps] if eps >= 0 (pass -1 for none). LeakyRelu: p0 = slope. Elu and Celu:
/// p0 = alpha. Softplus: p0 = beta, p1 = threshold. Hardshrink, Softshrink: p0 = lambda. Gelu uses erf, GeluTanh the
/// tanh form. PowScalar: x to the power p0. Trigamma: the derivative of digamma, Polygamma: the p0-th. Lgamma,
/// Digamma and Trigamma are computed in double; near their zeros the error is absolute (about 1e-15). Gelu in float32:
/// within 4 ulp for x > -4 with AVX-512; else the error is below 2e-7 |x|.
#define ATHANOR_UNARY_FLOAT_OPS(X)                                                                                     \
  X(Frac, "frac") X(Sqrt, "sqrt") X(Rsqrt, "rsqrt") X(Reciprocal, "reciprocal") X(Exp, "exp") X(Exp2, "exp2")          \
  X(Expm1, "expm1") X(Log, "log") X(Log2, "log2") X(Log10, "log10") X(Log1p, "log1p") X(Sin, "sin") X(Cos, "cos")      \
  X(Tan, "tan") X(Asin, "asin") X(Acos, "acos") X(Atan, "atan") X(Sinh, "sinh") X(Cosh, "cosh") X(Tanh, "tanh")        \
  X(Asinh, "asinh") X(Acosh, "acosh") X(Atanh, "atanh") X(Erf, "erf") X(Erfc, "erfc") X(Erfinv, "erfinv")              \
  X(Lgamma, "lgamma") X(Digamma, "digamma") X(Trigamma, "trigamma") X(Polygamma, "polygamma") X(Sinc, "sinc")          \
  X(Sigmoid, "sigmoid")                                                                                                \
  X(LogSigmoid, "log_sigmoid") X(Logit, "logit") X(LeakyRelu, "leaky_relu") X(Elu, "elu") X(Selu, "selu")              \
  X(Celu, "celu") X(Gelu, "gelu") X(GeluTanh, "gelu") X(Silu, "silu") X(Mish, "mish") X(Softplus, "softplus")          \
  X(Softsign, "softsign") X(Hardsigmoid, "hardsigmoid") X(Hardswish, "hardswish") X(Hardshrink, "hardshrink")          \
  X(Softshrink, "softshrink") X(Tanhshrink, "tanhshrink") X(Deg2Rad, "deg2rad") X(Rad2Deg, "rad2deg")                  \
  X(PowScalar, "pow")

/// Any dtype in, bool out.
#define ATHANOR_UNARY_BOOL_OPS(X)                                                                                      \
  X(IsNan, "isnan") X(IsInf, "isinf") X(IsFinite, "isfinite") X(IsPosInf, "isposinf") X(IsNegInf, "isneginf")          \
  X(Signbit, "signbit") X(LogicalNot, "logical_not")

/// Every dtype but bool unless said otherwise.
/// Add: a + p0 * b, Sub: a - p0 * b (bool too: Add is "or", Sub throws). Mul (bool too: "and"). Div: floating only.
/// DivFloor, DivTrunc, Remainder (sign of the divisor), Fmod (sign of the dividend). Pow: integers raise ValueError
/// for a negative exponent only in the op layer; here x^-n of an integer is 1 for x = 1, ±1 for x = -1, else 0.
/// Maximum, Minimum (bool too) propagate NaN, Fmax, Fmin prefer the number. Bitwise: integers and bool; shifts:
/// integers. Lerp: a + p0 * (b - a), floating. Prelu: a > 0 ? a : a * b. Heaviside: b where a is 0. Floating only:
/// Atan2, Hypot, Copysign, Nextafter, Xlogy, LogAddExp, LogAddExp2, and with d = |a - b| SquaredDistance (d²), SmoothL1
/// (d < p0 ? d² / (2 p0) : d - p0 / 2) and Huber (d < p0 ? d² / 2 : p0 (d - p0 / 2)). Integers only: Gcd, Lcm.
#define ATHANOR_BINARY_VALUE_OPS(X)                                                                                    \
  X(Add, "add") X(Sub, "sub") X(Mul, "mul") X(Div, "div") X(DivFloor, "floor_divide") X(DivTrunc, "div")               \
  X(Remainder, "remainder") X(Fmod, "fmod") X(Pow, "pow") X(Maximum, "maximum") X(Minimum, "minimum")                  \
  X(Fmax, "fmax") X(Fmin, "fmin") X(Atan2, "atan2") X(Hypot, "hypot") X(Copysign, "copysign")                          \
  X(Nextafter, "nextafter") X(Xlogy, "xlogy") X(LogAddExp, "logaddexp") X(LogAddExp2, "logaddexp2") X(Lerp, "lerp")    \
  X(Prelu, "prelu") X(Heaviside, "heaviside") X(BitwiseAnd, "bitwise_and") X(BitwiseOr, "bitwise_or")                  \
  X(BitwiseXor, "bitwise_xor") X(LeftShift, "bitwise_left_shift") X(RightShift, "bitwise_right_shift") X(Gcd, "gcd")   \
  X(Lcm, "lcm") X(SquaredDistance, "mse_loss") X(SmoothL1, "smooth_l1_loss") X(Huber, "huber_loss")

/// Any dtype in, bool out.
#define ATHANOR_BINARY_BOOL_OPS(X)                                                                                     \
  X(Eq, "eq") X(Ne, "ne") X(Lt, "lt") X(Le, "le") X(Gt, "gt") X(Ge, "ge") X(LogicalAnd, "logical_and")                 \
  X(LogicalOr, "logical_or") X(LogicalXor, "logical_xor")

/// Floating only; a is the gradient of the result. With b = the input x of the forward op: ThresholdBackward
/// (x > p0 ? grad : 0, NaN passes; relu is p0 = 0), HardtanhBackward(p0 = min, p1 = max), LeakyReluBackward(slope),
/// EluBackward(alpha), SeluBackward, CeluBackward(alpha), GeluBackward, GeluTanhBackward, SiluBackward, MishBackward,
/// SoftplusBackward(beta, threshold), LogSigmoidBackward, HardsigmoidBackward, HardswishBackward,
/// ShrinkBackward(lambda; hardshrink and softshrink), SoftsignBackward, LogitBackward(eps, or -1 for none). With b = the
/// result y: SigmoidBackward, TanhBackward, SqrtBackward (grad / 2y), RsqrtBackward (-grad y^3 / 2), ReciprocalBackward
/// (-grad y^2). And no gradient: SigmoidGate, a sigmoid(b).
#define ATHANOR_BINARY_BACKWARD_OPS(X)                                                                                 \
  X(ThresholdBackward, "threshold_backward") X(HardtanhBackward, "hardtanh_backward")                                  \
  X(LeakyReluBackward, "leaky_relu_backward") X(EluBackward, "elu_backward") X(SeluBackward, "selu_backward")          \
  X(CeluBackward, "celu_backward") X(GeluBackward, "gelu_backward") X(GeluTanhBackward, "gelu_backward")               \
  X(SiluBackward, "silu_backward") X(MishBackward, "mish_backward") X(SoftplusBackward, "softplus_backward")           \
  X(LogSigmoidBackward, "log_sigmoid_backward") X(HardsigmoidBackward, "hardsigmoid_backward")                         \
  X(HardswishBackward, "hardswish_backward") X(ShrinkBackward, "hardshrink_backward")                                  \
  X(SoftsignBackward, "softsign_backward") X(SigmoidBackward, "sigmoid_backward") X(TanhBackward, "tanh_backward")     \
  X(SqrtBackward, "sqrt_backward") X(RsqrtBackward, "rsqrt_backward") X(ReciprocalBackward, "reciprocal_backward")     \
  X(LogitBackward, "logit_backward") X(SigmoidGate, "glu")

/// Where: a is a bool condition, b and c any dtype. Lerp: a + c * (b - a), floating. Addcmul: a + p0 * b * c. Addcdiv:
/// a + p0 * b / c, floating. Clamp: a within [b, c] (c wins if b > c), NaN propagates. Floating only: ScaledDifference,
/// p0 a (b - c); CrossEntropyBackward, a (b - c) / max(b (1 - b), p0).
#define ATHANOR_TERNARY_OPS(X)                                                                                         \
  X(Where, "where") X(Lerp, "lerp") X(Addcmul, "addcmul") X(Addcdiv, "addcdiv") X(Clamp, "clamp") \
  X(ScaledDifference, "mse_loss_backward") X(CrossEntropyBackward, "binary_cross_entropy_backward")

// clang-format on

#define ATHANOR_ENUMERATOR(id, name) id,
enum class UnaryOp : std::int16_t {
  ATHANOR_UNARY_ANY_OPS(ATHANOR_ENUMERATOR) ATHANOR_UNARY_FLOAT_OPS(ATHANOR_ENUMERATOR)
      ATHANOR_UNARY_BOOL_OPS(ATHANOR_ENUMERATOR) Count
};
enum class BinaryOp : std::int16_t {
  ATHANOR_BINARY_VALUE_OPS(ATHANOR_ENUMERATOR) ATHANOR_BINARY_BOOL_OPS(ATHANOR_ENUMERATOR)
      ATHANOR_BINARY_BACKWARD_OPS(ATHANOR_ENUMERATOR) Count
};
enum class TernaryOp : std::int16_t { ATHANOR_TERNARY_OPS(ATHANOR_ENUMERATOR) Count };
#undef ATHANOR_ENUMERATOR

/// The name shown in errors, such as "leaky_relu".
const char* name(UnaryOp op);
const char* name(BinaryOp op);
const char* name(TernaryOp op);

/// True if the result of `op` is bool whatever the input.
constexpr bool gives_bool(UnaryOp op) { return op >= UnaryOp::IsNan && op <= UnaryOp::LogicalNot; }
constexpr bool gives_bool(BinaryOp op) { return op >= BinaryOp::Eq && op <= BinaryOp::LogicalXor; }

extern Kernel<void(UnaryOp op, const View& out, const View& in, Scalar p0, Scalar p1)> unary_kernel;

/// Add and Sub take p0 (alpha): pass 1. Mul and Div take a number of one element in float32 beside a half.
extern Kernel<void(BinaryOp op, const View& out, const View& a, const View& b, Scalar p0, Scalar p1)> binary_kernel;

/// The same with one operand a number, converted to the tensor's dtype (Mul and Div of halves: float32): op(x, s), or
/// op(s, x) if `scalar_first`.
/// Spares a 0-d tensor for `x + 1`, `2 / x`, `x > 0`.
extern Kernel<void(BinaryOp op, const View& out, const View& x, Scalar s, bool scalar_first, Scalar p0, Scalar p1)>
    binary_scalar_kernel;

extern Kernel<void(TernaryOp op, const View& out, const View& a, const View& b, const View& c, Scalar p0)>
    ternary_kernel;

/// out = in with NaN, +inf and -inf replaced. Any dtype (a copy for integers and bool); `in` has out's shape.
extern Kernel<void(const View& out, const View& in, double nan, double posinf, double neginf)> nan_to_num_kernel;

}  // namespace athanor
