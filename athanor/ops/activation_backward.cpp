// Fused gradients of the activations: one kernel on (gradient, input or result), differentiable again.
#include "athanor/ops/activation_backward.h"

#include <numbers>

#include "athanor/ops/activation.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/create.h"
#include "athanor/ops/pointwise_op.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"

namespace athanor::ops {

namespace {

/// `value` where `condition` holds, else 0.
Tensor only_where(const Tensor& condition, const Tensor& value) { return where(condition, value, Scalar(0)); }

}  // namespace

/// grad where self > threshold (or is NaN), else 0.
struct ThresholdBackward : FusedBackward<ThresholdBackward, BinaryOp::ThresholdBackward> {
  ATHANOR_OP("threshold_backward(Tensor grad_output, Tensor self, Scalar threshold) -> Tensor | function");
  Scalar threshold;
  Scalar p0() const { return threshold; }
  Tensor again(const Tensor& g, const Tensor& x) const { return threshold_backward(g, x, threshold); }
  Tensor slope(const Tensor&) const { return {}; }
};

struct HardtanhBackward : FusedBackward<HardtanhBackward, BinaryOp::HardtanhBackward> {
  ATHANOR_OP("hardtanh_backward(Tensor grad_output, Tensor self, Scalar min_val, Scalar max_val) -> Tensor | function");
  Scalar min_val, max_val;
  Scalar p0() const { return min_val; }
  Scalar p1() const { return max_val; }
  Tensor again(const Tensor& g, const Tensor& x) const { return hardtanh_backward(g, x, min_val, max_val); }
  Tensor slope(const Tensor&) const { return {}; }
};

struct LeakyReluBackward : FusedBackward<LeakyReluBackward, BinaryOp::LeakyReluBackward> {
  ATHANOR_OP("leaky_relu_backward(Tensor grad_output, Tensor self, Scalar negative_slope) -> Tensor | function");
  Scalar negative_slope;
  Scalar p0() const { return negative_slope; }
  Tensor again(const Tensor& g, const Tensor& x) const { return leaky_relu_backward(g, x, negative_slope); }
  Tensor slope(const Tensor&) const { return {}; }
};

struct EluBackward : FusedBackward<EluBackward, BinaryOp::EluBackward> {
  ATHANOR_OP("elu_backward(Tensor grad_output, Tensor self, Scalar alpha) -> Tensor | function");
  Scalar alpha;
  Scalar p0() const { return alpha; }
  Tensor again(const Tensor& g, const Tensor& x) const { return elu_backward(g, x, alpha); }
  Tensor slope(const Tensor& x) const { return only_where(le(x, 0), mul(exp(clamp_max(x, 0)), alpha)); }
};

struct SeluBackward : FusedBackward<SeluBackward, BinaryOp::SeluBackward> {
  ATHANOR_OP("selu_backward(Tensor grad_output, Tensor self) -> Tensor | function");
  static constexpr double kScaleAlpha = 1.0507009873554804934193349852946 * 1.6732632423543772848170429916717;
  Tensor again(const Tensor& g, const Tensor& x) const { return selu_backward(g, x); }
  Tensor slope(const Tensor& x) const { return only_where(le(x, 0), mul(exp(clamp_max(x, 0)), kScaleAlpha)); }
};

struct CeluBackward : FusedBackward<CeluBackward, BinaryOp::CeluBackward> {
  ATHANOR_OP("celu_backward(Tensor grad_output, Tensor self, Scalar alpha) -> Tensor | function");
  Scalar alpha;
  Scalar p0() const { return alpha; }
  Tensor again(const Tensor& g, const Tensor& x) const { return celu_backward(g, x, alpha); }
  Tensor slope(const Tensor& x) const {
    const Scalar over = 1 / alpha.toDouble();
    return only_where(le(x, 0), mul(exp(mul(clamp_max(x, 0), over)), over));
  }
};

/// approximate: "none" (erf) or "tanh".
struct GeluBackward : FusedBackward<GeluBackward, BinaryOp::GeluBackward> {
  ATHANOR_OP("gelu_backward(Tensor grad_output, Tensor self, *, str approximate='none') -> Tensor | function");
  std::string approximate;
  void run(const Tensor& out, const Tensor& g, const Tensor& x) {
    const BinaryOp kind = approximate == "tanh" ? BinaryOp::GeluTanhBackward : BinaryOp::GeluBackward;
    launch_elementwise(binary_kernel, kind, out, g, x, Scalar(0), Scalar(0));
  }
  Tensor again(const Tensor& g, const Tensor& x) const { return gelu_backward(g, x, approximate); }
  Tensor slope(const Tensor& x) const {
    const Tensor x2 = mul(x, x);
    if (approximate != "tanh") {  // (2 - x^2) pdf(x)
      constexpr double kPdf0 = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
      return mul(mul(exp(mul(x2, -0.5)), kPdf0), rsub(x2, 2));
    }
    // y = x (1 + t) / 2, t = tanh(u), u = c (x + k x^3).
    constexpr double kC = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kK = 0.044715;
    const Tensor t = tanh(mul(mul(x, add(mul(x2, kK), 1)), kC));
    const Tensor du = mul(add(mul(x2, 3 * kK), 1), kC);
    const Tensor dt = mul(rsub(mul(t, t), 1), du);
    // y'' = t' + x t'' / 2, t'' = (1 - t^2) u'' - 2 t t' u'.
    const Tensor ddt = sub(mul(rsub(mul(t, t), 1), mul(x, 6 * kK * kC)), mul(mul(mul(t, dt), du), 2));
    return add(dt, mul(mul(x, ddt), 0.5));
  }
};

struct SiluBackward : FusedBackward<SiluBackward, BinaryOp::SiluBackward> {
  ATHANOR_OP("silu_backward(Tensor grad_output, Tensor self) -> Tensor | function");
  Tensor again(const Tensor& g, const Tensor& x) const { return silu_backward(g, x); }
  Tensor slope(const Tensor& x) const {
    const Tensor s = sigmoid(x);
    return mul(mul(s, rsub(s, 1)), add(mul(x, rsub(mul(s, 2), 1)), 2));
  }
};

struct MishBackward : FusedBackward<MishBackward, BinaryOp::MishBackward> {
  ATHANOR_OP("mish_backward(Tensor grad_output, Tensor self) -> Tensor | function");
  Tensor again(const Tensor& g, const Tensor& x) const { return mish_backward(g, x); }
  Tensor slope(const Tensor& x) const {
    // t = tanh(softplus(x)), s = sigmoid(x): (1 - t^2) s (2 + x (1 - s - 2 t s)).
    const Tensor s = sigmoid(x), t = tanh(neg(log_sigmoid(neg(x))));
    const Tensor inner = sub(rsub(s, 1), mul(mul(t, s), 2));
    return mul(mul(rsub(mul(t, t), 1), s), add(mul(x, inner), 2));
  }
};

struct SoftplusBackward : FusedBackward<SoftplusBackward, BinaryOp::SoftplusBackward> {
  ATHANOR_OP("softplus_backward(Tensor grad_output, Tensor self, Scalar beta, Scalar threshold) -> Tensor | function");
  Scalar beta, threshold;
  Scalar p0() const { return beta; }
  Scalar p1() const { return threshold; }
  Tensor again(const Tensor& g, const Tensor& x) const { return softplus_backward(g, x, beta, threshold); }
  Tensor slope(const Tensor& x) const {
    const Tensor scaled = mul(x, beta), s = sigmoid(scaled);
    return only_where(le(scaled, threshold), mul(mul(s, rsub(s, 1)), beta));
  }
};

struct LogSigmoidBackward : FusedBackward<LogSigmoidBackward, BinaryOp::LogSigmoidBackward> {
  ATHANOR_OP("log_sigmoid_backward(Tensor grad_output, Tensor self) -> Tensor | function");
  Tensor again(const Tensor& g, const Tensor& x) const { return log_sigmoid_backward(g, x); }
  Tensor slope(const Tensor& x) const {
    const Tensor s = sigmoid(x);
    return mul(s, sub(s, 1));
  }
};

struct HardsigmoidBackward : FusedBackward<HardsigmoidBackward, BinaryOp::HardsigmoidBackward> {
  ATHANOR_OP("hardsigmoid_backward(Tensor grad_output, Tensor self) -> Tensor | function");
  Tensor again(const Tensor& g, const Tensor& x) const { return hardsigmoid_backward(g, x); }
  Tensor slope(const Tensor&) const { return {}; }
};

struct HardswishBackward : FusedBackward<HardswishBackward, BinaryOp::HardswishBackward> {
  ATHANOR_OP("hardswish_backward(Tensor grad_output, Tensor self) -> Tensor | function");
  Tensor again(const Tensor& g, const Tensor& x) const { return hardswish_backward(g, x); }
  Tensor slope(const Tensor& x) const { return cast(mul(lt(abs(x), 3), 1.0 / 3), x.dtype()); }
};

/// The gradient of hardshrink and softshrink.
struct ShrinkBackward : FusedBackward<ShrinkBackward, BinaryOp::ShrinkBackward> {
  ATHANOR_OP("hardshrink_backward(Tensor grad_output, Tensor self, Scalar lambd) -> Tensor | function");
  Scalar lambd;
  Scalar p0() const { return lambd; }
  Tensor again(const Tensor& g, const Tensor& x) const { return hardshrink_backward(g, x, lambd); }
  Tensor slope(const Tensor&) const { return {}; }
};

struct SoftsignBackward : FusedBackward<SoftsignBackward, BinaryOp::SoftsignBackward> {
  ATHANOR_OP("softsign_backward(Tensor grad_output, Tensor self) -> Tensor | function");
  Tensor again(const Tensor& g, const Tensor& x) const { return softsign_backward(g, x); }
  Tensor slope(const Tensor& x) const {
    const Tensor over = reciprocal(add(abs(x), 1));
    return mul(mul(sign(x), mul(over, mul(over, over))), -2);
  }
};

/// eps: as logit's.
struct LogitBackward : FusedBackward<LogitBackward, BinaryOp::LogitBackward> {
  ATHANOR_OP("logit_backward(Tensor grad_output, Tensor self, float? eps=None) -> Tensor | function");
  std::optional<double> eps;
  Scalar p0() const { return eps.value_or(-1.0); }
  Tensor again(const Tensor& g, const Tensor& x) const { return logit_backward(g, x, eps); }
  Tensor slope(const Tensor& x) const {
    const Tensor over = logit_backward(ones(x.sizes(), x.options()), x, eps);
    return mul(sub(mul(x, 2), 1), mul(over, over));
  }
};

// Of the result:

struct SigmoidBackward : FusedBackward<SigmoidBackward, BinaryOp::SigmoidBackward> {
  ATHANOR_OP("sigmoid_backward(Tensor grad_output, Tensor output) -> Tensor | function");
  Tensor again(const Tensor& g, const Tensor& y) const { return sigmoid_backward(g, y); }
  Tensor slope(const Tensor& y) const { return rsub(mul(y, 2), 1); }
};

struct TanhBackward : FusedBackward<TanhBackward, BinaryOp::TanhBackward> {
  ATHANOR_OP("tanh_backward(Tensor grad_output, Tensor output) -> Tensor | function");
  Tensor again(const Tensor& g, const Tensor& y) const { return tanh_backward(g, y); }
  Tensor slope(const Tensor& y) const { return mul(y, -2); }
};

/// grad / (2 output).
struct SqrtBackward : FusedBackward<SqrtBackward, BinaryOp::SqrtBackward> {
  ATHANOR_OP("sqrt_backward(Tensor grad_output, Tensor output) -> Tensor | function");
  Tensor again(const Tensor& g, const Tensor& y) const { return sqrt_backward(g, y); }
  Tensor slope(const Tensor& y) const { return rdiv(mul(y, y), -0.5); }
};

/// -grad output^3 / 2.
struct RsqrtBackward : FusedBackward<RsqrtBackward, BinaryOp::RsqrtBackward> {
  ATHANOR_OP("rsqrt_backward(Tensor grad_output, Tensor output) -> Tensor | function");
  Tensor again(const Tensor& g, const Tensor& y) const { return rsqrt_backward(g, y); }
  Tensor slope(const Tensor& y) const { return mul(mul(y, y), -1.5); }
};

/// -grad output^2.
struct ReciprocalBackward : FusedBackward<ReciprocalBackward, BinaryOp::ReciprocalBackward> {
  ATHANOR_OP("reciprocal_backward(Tensor grad_output, Tensor output) -> Tensor | function");
  Tensor again(const Tensor& g, const Tensor& y) const { return reciprocal_backward(g, y); }
  Tensor slope(const Tensor& y) const { return mul(y, -2); }
};

}  // namespace athanor::ops

#include "athanor/ops/activation_backward.glue.inc"
