// Activations. Gradients go through the fused kernels of activation_backward.cpp.
#include "athanor/ops/activation.h"

#include "athanor/ops/activation_backward.h"
#include "athanor/ops/autocast.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/create.h"
#include "athanor/ops/join.h"
#include "athanor/ops/pointwise_op.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

void refuse_bool(const char* schema, const Tensor& a) {
  if (a.defined() && a.dtype() == DType::Bool) fail_not_floating(schema, DType::Bool);
}

}  // namespace

/// max(self, 0); NaN stays.
struct Relu : UnaryOfResult<Relu, UnaryOp::Relu, ResultType::Promoted> {
  ATHANOR_OP("relu(Tensor self) -> Tensor | inplace");
  Tensor slope(const Tensor& g, const Tensor& y) const { return threshold_backward(g, y, 0); }
};

/// self clamped to [0, 6].
struct Relu6 : UnaryOfEither<Relu6, UnaryOp::Relu6, ResultType::Promoted> {
  ATHANOR_OP("relu6(Tensor self) -> Tensor | inplace function");
  static constexpr const char* grad_name = "HardtanhBackward0";
  Tensor slope(const Tensor& g, const Tensor& v) const { return hardtanh_backward(g, v, 0, 6); }
};

/// self clamped to [min_val, max_val].
struct Hardtanh : UnaryOfEither<Hardtanh, UnaryOp::Hardtanh, ResultType::Promoted> {
  ATHANOR_OP("hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor | inplace function out");
  Scalar min_val, max_val;
  Scalar p0() const { return min_val; }
  Scalar p1() const { return max_val; }
  Meta infer(const Tensor& a) {
    ATHANOR_CHECK_VALUE(min_val.toDouble() <= max_val.toDouble(), "hardtanh: min_val (", min_val,
                        ") must not be greater than max_val (", max_val, ")");
    return UnaryPointwise::infer(a);
  }
  Tensor slope(const Tensor& g, const Tensor& v) const { return hardtanh_backward(g, v, min_val, max_val); }
};

/// self where it is greater than threshold, else value.
struct ThresholdOp : UnaryOfInput<ThresholdOp, UnaryOp::Threshold, ResultType::Promoted> {
  ATHANOR_OP("threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor | inplace function out");
  Scalar threshold, value;
  Scalar p0() const { return threshold; }
  Scalar p1() const { return value; }
  Tensor slope(const Tensor& g, const Tensor& in) const { return threshold_backward(g, in, threshold); }
};

/// self where positive, else negative_slope * self.
struct LeakyRelu : UnaryPointwise<LeakyRelu, UnaryOp::LeakyRelu, ResultType::Floating> {
  ATHANOR_OP("leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor | inplace function out");
  Scalar negative_slope;
  SavedTensor value;
  bool in_place = false;
  Scalar p0() const { return negative_slope; }
  // The result has the input's sign unless the slope is negative: it serves the in-place form, as in UnaryOfEither.
  bool from_input() const { return !in_place || negative_slope.toDouble() < 0; }
  bool keeps_self(const Node&) const { return from_input(); }
  void save(const Node&, const Tensor& a) {
    if (from_input()) value.save(a);
  }
  void save_results(Node* n, const Tensor& out) {
    if (!from_input()) value.save_result(out, n);
  }
  void grad(GradCall& g) { g.set(0, leaky_relu_backward(g.grad(), g.get(value), negative_slope)); }
};

/// self where positive, else alpha (exp(self) - 1).
struct Elu : UnaryOfInput<Elu, UnaryOp::Elu, ResultType::Floating> {
  ATHANOR_OP("elu(Tensor self, Scalar alpha=1) -> Tensor | inplace function out");
  Scalar alpha;
  Scalar p0() const { return alpha; }
  Tensor slope(const Tensor& g, const Tensor& in) const { return elu_backward(g, in, alpha); }
};

/// 1.0507 · (max(0, x) + min(0, 1.67326 · (exp(x) - 1))) of each element.
struct Selu : UnaryOfInput<Selu, UnaryOp::Selu, ResultType::Floating> {
  ATHANOR_OP("selu(Tensor self) -> Tensor | inplace function");
  static constexpr const char* grad_name = "EluBackward0";
  Tensor slope(const Tensor& g, const Tensor& in) const { return selu_backward(g, in); }
};

/// max(0, self) + min(0, alpha (exp(self / alpha) - 1)).
struct Celu : UnaryOfInput<Celu, UnaryOp::Celu, ResultType::Floating> {
  ATHANOR_OP("celu(Tensor self, Scalar alpha=1) -> Tensor | inplace function");
  static constexpr const char* grad_name = "EluBackward0";
  Scalar alpha;
  Scalar p0() const { return alpha; }
  Meta infer(const Tensor& a) {
    ATHANOR_CHECK_VALUE(alpha.toDouble() != 0, "celu: alpha cannot be 0 for CELU");
    return UnaryPointwise::infer(a);
  }
  Tensor slope(const Tensor& g, const Tensor& in) const { return celu_backward(g, in, alpha); }
};

/// self times the normal distribution's probability of less; approximate is "none" (erf) or "tanh".
struct Gelu : UnaryOfInput<Gelu, UnaryOp::Gelu, ResultType::Floating> {
  ATHANOR_OP("gelu(Tensor self, *, str approximate='none') -> Tensor | inplace function out");
  std::string approximate;
  Meta infer(const Tensor& a) {
    ATHANOR_CHECK(approximate == "none" || approximate == "tanh",
                  "gelu: approximate argument must be either none or tanh, got ", approximate);
    return UnaryPointwise::infer(a);
  }
  void run(const Tensor& out, const Tensor& a) {
    launch_elementwise(unary_kernel, approximate == "tanh" ? UnaryOp::GeluTanh : UnaryOp::Gelu, out, a, Scalar(0),
                       Scalar(0));
  }
  Tensor slope(const Tensor& g, const Tensor& in) const { return gelu_backward(g, in, approximate); }
};

/// self * sigmoid(self).
struct Silu : UnaryOfInput<Silu, UnaryOp::Silu, ResultType::Floating> {
  ATHANOR_OP("silu(Tensor self) -> Tensor | inplace function out");
  Tensor slope(const Tensor& g, const Tensor& in) const { return silu_backward(g, in); }
};

/// self * tanh(softplus(self)).
struct Mish : UnaryOfInput<Mish, UnaryOp::Mish, ResultType::Floating> {
  ATHANOR_OP("mish(Tensor self) -> Tensor | inplace function out");
  Tensor slope(const Tensor& g, const Tensor& in) const { return mish_backward(g, in); }
};

/// log(1 + exp(beta self)) / beta; self itself where beta self > threshold.
struct Softplus : UnaryOfInput<Softplus, UnaryOp::Softplus, ResultType::Floating> {
  ATHANOR_OP("softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor | function out");
  Scalar beta, threshold;
  Scalar p0() const { return beta; }
  Scalar p1() const { return threshold; }
  Tensor slope(const Tensor& g, const Tensor& in) const { return softplus_backward(g, in, beta, threshold); }
};

/// log(sigmoid(self)).
struct LogSigmoid : UnaryOfInput<LogSigmoid, UnaryOp::LogSigmoid, ResultType::Floating> {
  ATHANOR_OP("log_sigmoid(Tensor self) -> Tensor | function internal out");
  static constexpr const char* grad_name = "LogSigmoidBackward0";
  Tensor slope(const Tensor& g, const Tensor& in) const { return log_sigmoid_backward(g, in); }
};

/// self / (1 + |self|). Integers give the default float dtype.
struct Softsign : UnaryOfInput<Softsign, UnaryOp::Softsign> {
  ATHANOR_OP("softsign(Tensor self) -> Tensor | function");
  void prepare(Tensor& a) {
    refuse_bool(schema, a);
    UnaryPointwise::prepare(a);
  }
  Tensor slope(const Tensor& g, const Tensor& in) const { return softsign_backward(g, in); }
};

/// self - tanh(self). Integers give the default float dtype.
struct Tanhshrink : UnaryOfInput<Tanhshrink, UnaryOp::Tanhshrink> {
  ATHANOR_OP("tanhshrink(Tensor self) -> Tensor | function");
  void prepare(Tensor& a) {
    refuse_bool(schema, a);
    UnaryPointwise::prepare(a);
  }
  Tensor slope(const Tensor& g, const Tensor& in) const {
    const Tensor t = tanh(in);
    return mul(g, mul(t, t));
  }
};

/// clamp(self + 3, 0, 6) / 6.
struct Hardsigmoid : UnaryOfInput<Hardsigmoid, UnaryOp::Hardsigmoid, ResultType::Floating> {
  ATHANOR_OP("hardsigmoid(Tensor self) -> Tensor | inplace function out");
  Tensor slope(const Tensor& g, const Tensor& in) const { return hardsigmoid_backward(g, in); }
};

/// self * clamp(self + 3, 0, 6) / 6.
struct Hardswish : UnaryOfInput<Hardswish, UnaryOp::Hardswish, ResultType::Floating> {
  ATHANOR_OP("hardswish(Tensor self) -> Tensor | inplace function out");
  Tensor slope(const Tensor& g, const Tensor& in) const { return hardswish_backward(g, in); }
};

/// self where |self| > lambd, else 0.
struct Hardshrink : UnaryOfInput<Hardshrink, UnaryOp::Hardshrink, ResultType::Floating> {
  ATHANOR_OP("hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor | out");
  Scalar lambd;
  Scalar p0() const { return lambd; }
  Tensor slope(const Tensor& g, const Tensor& in) const { return hardshrink_backward(g, in, lambd); }
};

/// self moved towards 0 by lambd, 0 in between.
struct Softshrink : UnaryOfInput<Softshrink, UnaryOp::Softshrink, ResultType::Floating> {
  ATHANOR_OP("softshrink(Tensor self, Scalar lambd=0.5) -> Tensor | function out");
  Scalar lambd;
  Scalar p0() const { return lambd; }
  Meta infer(const Tensor& a) {
    ATHANOR_CHECK(lambd.toDouble() >= 0, "softshrink: lambda must be greater or equal to 0, but found to be ", lambd);
    return UnaryPointwise::infer(a);
  }
  Tensor slope(const Tensor& g, const Tensor& in) const { return hardshrink_backward(g, in, lambd); }
};

struct PreluKernel : BinaryPointwise<PreluKernel, BinaryOp::Prelu> {
  ATHANOR_OP("_prelu_kernel(Tensor self, Tensor weight) -> Tensor | function");
  static constexpr const char* grad_name = "PreluKernelBackward0";
  SavedTensor x, w;
  void save(const Node& n, const Tensor& self, const Tensor& weight) {
    x.save(self);
    if (n.needs(0)) w.save(weight);
  }
  void grad(GradCall& g) {
    const Tensor in = g.get(x);
    const Tensor positive = gt(in, 0);
    if (g.needs(0)) g.set(0, where(positive, g.grad(), mul(g.grad(), g.get(w))));
    if (g.needs(1)) g.set(1, where(positive, Scalar(0), mul(g.grad(), in)));
  }
};

/// self where positive, else weight * self; weight has one element or one per channel (dim 1).
ATHANOR_FUNCTION("prelu(Tensor self, Tensor weight) -> Tensor");
Tensor prelu(const Tensor& self_, const Tensor& weight_) {
  Tensor self = self_, weight = weight_;  // NOLINT(performance-unnecessary-copy-initialization)
  Autocast<AutocastTo::Lower>::prepare(self, weight);
  if (!is_floating_point(self.dtype())) fail_not_floating("prelu", self.dtype());
  if (weight.numel() == 1 && weight.dim() <= 1) return _prelu_kernel(self, reshape(weight, {}));
  const std::int64_t channels = self.dim() < 2 ? 1 : self.size(1);
  ATHANOR_CHECK(weight.dim() == 1 && weight.numel() == channels,
                "prelu: Mismatch of parameter numbers and input channel size. Found weight of shape ", weight.sizes(),
                " for ", channels, " channels of an input of shape ", self.sizes());
  DimVector shape(static_cast<std::size_t>(self.dim()), 1);
  shape[1] = channels;
  return _prelu_kernel(self, reshape(weight, shape));
}

/// self[:n] * sigmoid(self[n:]), the halves of dim.
struct Glu {
  ATHANOR_OP("glu(Tensor self, int dim=-1) -> Tensor | function out");
  std::int64_t dim;
  SavedTensor x;
  Meta infer(const Tensor& self) {
    ATHANOR_CHECK(self.defined(), "glu: expected a tensor, got an undefined one");
    ATHANOR_CHECK(self.dim() > 0, "glu does not support 0-dimensional tensors");
    if (!is_floating_point(self.dtype())) fail_not_floating("glu", self.dtype());
    dim = wrap_dim(dim, self.dim(), "glu");
    DimVector shape(self.sizes());
    std::int64_t& n = shape[static_cast<std::size_t>(dim)];
    ATHANOR_CHECK(n % 2 == 0, "glu: Halving dimension must be even, but dimension ", dim, " is size ", n,
                  " in an input of shape ", self.sizes());
    n /= 2;
    return {shape, self.dtype(), self.device(), {}};
  }
  /// The values, or the gates' arguments.
  Tensor half(const Tensor& t, int which) const {
    const std::int64_t n = t.size(dim) / 2;
    return narrow(t, dim, which * n, n);
  }
  void run(const Tensor& out, const Tensor& self) {
    const NoGradGuard guard;
    launch(binary_kernel, BinaryOp::SigmoidGate, out, half(self, 0), half(self, 1), Scalar(0), Scalar(0));
  }
  void save(const Node&, const Tensor& self) { x.save(self); }
  void grad(GradCall& g) {
    const Tensor self = g.get(x), up = g.grad(), value = half(self, 0), gate = half(self, 1);
    if (GradMode::is_enabled()) {
      const Tensor s = sigmoid(gate), into_value = mul(up, s);
      return g.set(0, cat(TensorList({into_value, mul(mul(into_value, value), rsub(s, 1))}), dim));
    }
    const Tensor out = empty(self.sizes(), self.options()), into_value = half(out, 0), into_gate = half(out, 1);
    launch(binary_kernel, BinaryOp::SigmoidGate, into_value, up, gate, Scalar(0), Scalar(0));
    launch(binary_kernel, BinaryOp::Mul, into_gate, into_value, value, Scalar(1), Scalar(0));
    launch(binary_kernel, BinaryOp::LogSigmoidBackward, into_gate, into_gate, gate, Scalar(0), Scalar(0));
    g.set(0, out);
  }
};

}  // namespace athanor::ops

#include "athanor/ops/activation.glue.inc"
