#include "athanor/nn/activation.h"

#include <iomanip>

namespace athanor::nn {

namespace functional {

Tensor elu(Tensor input, const ELUFuncOptions& o) {
  return o.inplace() ? athanor::elu_(input, o.alpha()) : athanor::elu(input, o.alpha());
}
Tensor celu(Tensor input, const CELUFuncOptions& o) {
  return o.inplace() ? athanor::celu_(input, o.alpha()) : athanor::celu(input, o.alpha());
}
Tensor selu(Tensor input, const SELUFuncOptions& o) {
  return o.inplace() ? athanor::selu_(input) : athanor::selu(input);
}
Tensor relu(Tensor input, const ReLUFuncOptions& o) {
  return o.inplace() ? athanor::relu_(input) : athanor::relu(input);
}
Tensor relu6(Tensor input, const ReLU6FuncOptions& o) {
  return o.inplace() ? athanor::relu6_(input) : athanor::relu6(input);
}
Tensor glu(const Tensor& input, const GLUFuncOptions& o) { return athanor::glu(input, o.dim()); }
Tensor gelu(const Tensor& input, const GELUFuncOptions& o) { return athanor::gelu(input, o.approximate()); }
Tensor silu(const Tensor& input) { return athanor::silu(input); }
Tensor mish(const Tensor& input) { return athanor::mish(input); }
Tensor hardshrink(const Tensor& input, const HardshrinkFuncOptions& o) {
  return athanor::hardshrink(input, o.lambda());
}
Tensor softshrink(const Tensor& input, const SoftshrinkFuncOptions& o) {
  return athanor::softshrink(input, o.lambda());
}
Tensor hardtanh(Tensor input, const HardtanhFuncOptions& o) {
  return o.inplace() ? athanor::hardtanh_(input, o.min_val(), o.max_val())
                     : athanor::hardtanh(input, o.min_val(), o.max_val());
}
Tensor hardsigmoid(const Tensor& input) { return athanor::hardsigmoid(input); }
Tensor hardswish(const Tensor& input) { return athanor::hardswish(input); }
Tensor leaky_relu(Tensor input, const LeakyReLUFuncOptions& o) {
  return o.inplace() ? athanor::leaky_relu_(input, o.negative_slope()) : athanor::leaky_relu(input, o.negative_slope());
}
Tensor logsigmoid(const Tensor& input) { return athanor::log_sigmoid(input); }
Tensor softmax(const Tensor& input, const SoftmaxFuncOptions& o) { return athanor::softmax(input, o.dim(), o.dtype()); }
Tensor softmin(const Tensor& input, const SoftminFuncOptions& o) {
  return athanor::softmax(-input, o.dim(), o.dtype());
}
Tensor log_softmax(const Tensor& input, const LogSoftmaxFuncOptions& o) {
  return athanor::log_softmax(input, o.dim(), o.dtype());
}

Tensor gumbel_softmax(const Tensor& logits, const GumbelSoftmaxFuncOptions& o) {
  Tensor noise = empty_like(logits);
  noise.exponential_(1);
  Tensor soft = athanor::softmax((logits - noise.log()) / o.tau(), o.dim());
  if (!o.hard()) return soft;
  const Tensor top = soft.detach().argmax(o.dim(), true);
  const Tensor hard = zeros_like(soft.detach()).scatter(o.dim(), top, 1.0);
  return hard - soft.detach() + soft;  // the value is exactly one-hot up to rounding, the gradient is soft's
}

Tensor prelu(const Tensor& input, const Tensor& weight) { return athanor::prelu(input, weight); }

Tensor rrelu(Tensor input, const RReLUFuncOptions& o) {
  ATHANOR_CHECK(o.lower() <= o.upper(), "rrelu: lower (", o.lower(), ") must not exceed upper (", o.upper(), ")");
  Tensor out;
  if (o.training()) {
    Tensor slope = empty_like(input.detach());
    slope.uniform_(o.lower(), o.upper());
    out = athanor::where(input > 0, input, input * slope);
  } else {
    out = athanor::leaky_relu(input, (o.lower() + o.upper()) / 2);
  }
  return o.inplace() ? input.copy_(out) : out;
}

Tensor softplus(const Tensor& input, const SoftplusFuncOptions& o) {
  return athanor::softplus(input, o.beta(), o.threshold());
}
Tensor softsign(const Tensor& input) { return athanor::softsign(input); }
Tensor tanhshrink(const Tensor& input) { return athanor::tanhshrink(input); }
Tensor threshold(Tensor input, const ThresholdFuncOptions& o) {
  return o.inplace() ? athanor::threshold_(input, o.threshold(), o.value())
                     : athanor::threshold(input, o.threshold(), o.value());
}

}  // namespace functional

namespace {

/// ", inplace=true" or nothing; `first` leaves out the comma.
const char* inplace_text(bool inplace, bool first = false) {
  return !inplace ? "" : first ? "inplace=true" : ", inplace=true";
}

}  // namespace

#define ATHANOR_FORWARD(Name, expression)                \
  Tensor Name##Impl::forward(const Tensor& input) {      \
    return in_module(*this, [&] { return expression; }); \
  }
#define ATHANOR_PRINT(Name, expression) \
  void Name##Impl::pretty_print(std::ostream& stream) const { stream << "torch::nn::" #Name "(" << expression << ")"; }

ATHANOR_FORWARD(ELU, functional::elu(input, options))
ATHANOR_PRINT(ELU, "alpha=" << options.alpha() << inplace_text(options.inplace()))
ATHANOR_FORWARD(CELU, functional::celu(input, options))
ATHANOR_PRINT(CELU, "alpha=" << options.alpha() << inplace_text(options.inplace()))
ATHANOR_FORWARD(SELU, functional::selu(input, options))
ATHANOR_PRINT(SELU, inplace_text(options.inplace(), true))
ATHANOR_FORWARD(ReLU, functional::relu(input, options))
ATHANOR_PRINT(ReLU, inplace_text(options.inplace(), true))
ATHANOR_FORWARD(ReLU6, functional::relu6(input, options))
ATHANOR_PRINT(ReLU6, inplace_text(options.inplace(), true))
ATHANOR_FORWARD(GLU, functional::glu(input, options))
ATHANOR_PRINT(GLU, "dim=" << options.dim())
ATHANOR_FORWARD(GELU, functional::gelu(input, options))
ATHANOR_PRINT(GELU, "")
ATHANOR_FORWARD(Hardshrink, functional::hardshrink(input, options))
ATHANOR_PRINT(Hardshrink, options.lambda())
ATHANOR_FORWARD(Softshrink, functional::softshrink(input, options))
ATHANOR_PRINT(Softshrink, options.lambda())
void detail::check(const HardtanhOptions& o) {
  ATHANOR_CHECK_VALUE(o.min_val() < o.max_val(), "Hardtanh: max_val must be greater than min_val, got ", o.max_val(),
                      " and ", o.min_val());
}
ATHANOR_FORWARD(Hardtanh, functional::hardtanh(input, options))
ATHANOR_PRINT(Hardtanh,
              "min_val=" << options.min_val() << ", max_val=" << options.max_val() << inplace_text(options.inplace()))
ATHANOR_FORWARD(LeakyReLU, functional::leaky_relu(input, options))
ATHANOR_PRINT(LeakyReLU, "negative_slope=" << options.negative_slope() << inplace_text(options.inplace()))
ATHANOR_FORWARD(Softmax, functional::softmax(input, options.dim()))
ATHANOR_PRINT(Softmax, "dim=" << options.dim())
ATHANOR_FORWARD(Softmin, functional::softmin(input, options.dim()))
ATHANOR_PRINT(Softmin, "dim=" << options.dim())
ATHANOR_FORWARD(LogSoftmax, functional::log_softmax(input, options.dim()))
ATHANOR_PRINT(LogSoftmax, "dim=" << options.dim())
ATHANOR_FORWARD(RReLU, functional::rrelu(input, functional::RReLUFuncOptions()
                                                    .lower(options.lower())
                                                    .upper(options.upper())
                                                    .training(is_training())
                                                    .inplace(options.inplace())))
ATHANOR_PRINT(RReLU, "lower=" << options.lower() << ", upper=" << options.upper() << inplace_text(options.inplace()))
ATHANOR_FORWARD(Softplus, functional::softplus(input, options))
ATHANOR_PRINT(Softplus, "beta=" << options.beta() << ", threshold=" << options.threshold())
ATHANOR_FORWARD(Threshold, functional::threshold(input, options))
ATHANOR_PRINT(Threshold,
              "threshold=" << options.threshold() << ", value=" << options.value() << inplace_text(options.inplace()))
ATHANOR_FORWARD(SiLU, functional::silu(input))
ATHANOR_PRINT(SiLU, "")
ATHANOR_FORWARD(Mish, functional::mish(input))
ATHANOR_PRINT(Mish, "")
ATHANOR_FORWARD(Sigmoid, athanor::sigmoid(input))
ATHANOR_PRINT(Sigmoid, "")
ATHANOR_FORWARD(Tanh, athanor::tanh(input))
ATHANOR_PRINT(Tanh, "")
ATHANOR_FORWARD(LogSigmoid, functional::logsigmoid(input))
ATHANOR_PRINT(LogSigmoid, "")
ATHANOR_FORWARD(Softsign, functional::softsign(input))
ATHANOR_PRINT(Softsign, "")
ATHANOR_FORWARD(Tanhshrink, functional::tanhshrink(input))
ATHANOR_PRINT(Tanhshrink, "")
ATHANOR_FORWARD(Hardsigmoid, functional::hardsigmoid(input))
ATHANOR_PRINT(Hardsigmoid, "")
ATHANOR_FORWARD(Hardswish, functional::hardswish(input))
ATHANOR_PRINT(Hardswish, "")
ATHANOR_PRINT(Softmax2d, "")

Tensor Softmax2dImpl::forward(const Tensor& input) {
  return in_module(*this, [&] {
    ATHANOR_CHECK(input.dim() == 4 || input.dim() == 3, "Softmax2d requires a 3D or 4D tensor as input, got shape ",
                  input.sizes());
    return athanor::softmax(input, -3);
  });
}

PReLUImpl::PReLUImpl(const PReLUOptions& options) : options(options) { reset(); }
void PReLUImpl::reset() { weight = register_parameter("weight", full({options.num_parameters()}, options.init())); }
ATHANOR_FORWARD(PReLU, functional::prelu(input, weight))
ATHANOR_PRINT(PReLU, "num_parameters=" << options.num_parameters())
#undef ATHANOR_FORWARD
#undef ATHANOR_PRINT

}  // namespace athanor::nn
