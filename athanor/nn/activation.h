#pragma once
/// Activation layers and their functional forms.

#include "athanor/nn/any.h"
#include "athanor/nn/cloneable.h"
#include "athanor/nn/options.h"

namespace athanor::nn {

struct ELUOptions {
  ELUOptions(double alpha = 1.0) : alpha_(alpha) {}
  ATHANOR_ARG(double, alpha);
  ATHANOR_ARG(bool, inplace) = false;
};
struct CELUOptions {
  CELUOptions(double alpha = 1.0) : alpha_(alpha) {}
  ATHANOR_ARG(double, alpha);
  ATHANOR_ARG(bool, inplace) = false;
};
struct SELUOptions {
  SELUOptions(bool inplace = false) : inplace_(inplace) {}
  ATHANOR_ARG(bool, inplace);
};
struct ReLUOptions {
  ReLUOptions(bool inplace = false) : inplace_(inplace) {}
  ATHANOR_ARG(bool, inplace);
};
struct ReLU6Options {
  ReLU6Options(bool inplace = false) : inplace_(inplace) {}
  ATHANOR_ARG(bool, inplace);
};
struct GLUOptions {
  GLUOptions(std::int64_t dim = -1) : dim_(dim) {}
  ATHANOR_ARG(std::int64_t, dim);
};
/// approximate: "none" (by erf) or "tanh".
struct GELUOptions {
  GELUOptions() = default;
  GELUOptions(std::string approximate) : approximate_(std::move(approximate)) {}
  ATHANOR_ARG(std::string, approximate) = "none";
};
struct HardshrinkOptions {
  HardshrinkOptions(double lambda = 0.5) : lambda_(lambda) {}
  ATHANOR_ARG(double, lambda);
};
struct SoftshrinkOptions {
  SoftshrinkOptions(double lambda = 0.5) : lambda_(lambda) {}
  ATHANOR_ARG(double, lambda);
};
struct HardtanhOptions {
  ATHANOR_ARG(double, min_val) = -1.0;
  ATHANOR_ARG(double, max_val) = 1.0;
  ATHANOR_ARG(bool, inplace) = false;
};
struct LeakyReLUOptions {
  LeakyReLUOptions(double negative_slope = 1e-2) : negative_slope_(negative_slope) {}
  ATHANOR_ARG(double, negative_slope);
  ATHANOR_ARG(bool, inplace) = false;
};
struct SoftmaxOptions {
  SoftmaxOptions(std::int64_t dim) : dim_(dim) {}
  ATHANOR_ARG(std::int64_t, dim);
};
struct SoftminOptions {
  SoftminOptions(std::int64_t dim) : dim_(dim) {}
  ATHANOR_ARG(std::int64_t, dim);
};
struct LogSoftmaxOptions {
  LogSoftmaxOptions(std::int64_t dim) : dim_(dim) {}
  ATHANOR_ARG(std::int64_t, dim);
};
struct PReLUOptions {
  PReLUOptions(std::int64_t num_parameters = 1) : num_parameters_(num_parameters) {}
  ATHANOR_ARG(std::int64_t, num_parameters);
  ATHANOR_ARG(double, init) = 0.25;
};
struct RReLUOptions {
  ATHANOR_ARG(double, lower) = 1.0 / 8.0;
  ATHANOR_ARG(double, upper) = 1.0 / 3.0;
  ATHANOR_ARG(bool, inplace) = false;
};
struct SoftplusOptions {
  ATHANOR_ARG(double, beta) = 1.0;
  ATHANOR_ARG(double, threshold) = 20.0;
};
struct ThresholdOptions {
  ThresholdOptions(double threshold, double value) : threshold_(threshold), value_(value) {}
  ATHANOR_ARG(double, threshold);
  ATHANOR_ARG(double, value);
  ATHANOR_ARG(bool, inplace) = false;
};

namespace functional {

using ELUFuncOptions = ELUOptions;
using CELUFuncOptions = CELUOptions;
using SELUFuncOptions = SELUOptions;
using ReLUFuncOptions = ReLUOptions;
using ReLU6FuncOptions = ReLU6Options;
using GLUFuncOptions = GLUOptions;
using GELUFuncOptions = GELUOptions;
using HardshrinkFuncOptions = HardshrinkOptions;
using SoftshrinkFuncOptions = SoftshrinkOptions;
using HardtanhFuncOptions = HardtanhOptions;
using LeakyReLUFuncOptions = LeakyReLUOptions;
using SoftplusFuncOptions = SoftplusOptions;
using ThresholdFuncOptions = ThresholdOptions;
struct SoftmaxFuncOptions {
  SoftmaxFuncOptions(std::int64_t dim) : dim_(dim) {}
  ATHANOR_ARG(std::int64_t, dim);
  ATHANOR_ARG(std::optional<DType>, dtype) = std::nullopt;
};
using SoftminFuncOptions = SoftmaxFuncOptions;
using LogSoftmaxFuncOptions = SoftmaxFuncOptions;
struct RReLUFuncOptions {
  ATHANOR_ARG(double, lower) = 1.0 / 8.0;
  ATHANOR_ARG(double, upper) = 1.0 / 3.0;
  ATHANOR_ARG(bool, training) = false;
  ATHANOR_ARG(bool, inplace) = false;
};
struct GumbelSoftmaxFuncOptions {
  ATHANOR_ARG(double, tau) = 1.0;
  ATHANOR_ARG(bool, hard) = false;
  ATHANOR_ARG(int, dim) = -1;
};

Tensor elu(Tensor input, const ELUFuncOptions& options = {});
Tensor celu(Tensor input, const CELUFuncOptions& options = {});
Tensor selu(Tensor input, const SELUFuncOptions& options = {});
Tensor relu(Tensor input, const ReLUFuncOptions& options = {});
Tensor relu6(Tensor input, const ReLU6FuncOptions& options = {});
Tensor glu(const Tensor& input, const GLUFuncOptions& options = {});
Tensor gelu(const Tensor& input, const GELUFuncOptions& options = {});
Tensor silu(const Tensor& input);
Tensor mish(const Tensor& input);
Tensor hardshrink(const Tensor& input, const HardshrinkFuncOptions& options = {});
Tensor softshrink(const Tensor& input, const SoftshrinkFuncOptions& options = {});
Tensor hardtanh(Tensor input, const HardtanhFuncOptions& options = {});
Tensor hardsigmoid(const Tensor& input);
Tensor hardswish(const Tensor& input);
Tensor leaky_relu(Tensor input, const LeakyReLUFuncOptions& options = {});
Tensor logsigmoid(const Tensor& input);
Tensor softmax(const Tensor& input, const SoftmaxFuncOptions& options);
Tensor softmin(const Tensor& input, const SoftminFuncOptions& options);
Tensor log_softmax(const Tensor& input, const LogSoftmaxFuncOptions& options);
/// Softmax of (logits + Gumbel noise) / tau; `hard` gives one-hot values with the soft gradient.
Tensor gumbel_softmax(const Tensor& logits, const GumbelSoftmaxFuncOptions& options = {});
Tensor prelu(const Tensor& input, const Tensor& weight);
Tensor rrelu(Tensor input, const RReLUFuncOptions& options = {});
Tensor softplus(const Tensor& input, const SoftplusFuncOptions& options = {});
Tensor softsign(const Tensor& input);
Tensor tanhshrink(const Tensor& input);
Tensor threshold(Tensor input, const ThresholdFuncOptions& options);

}  // namespace functional

namespace detail {
void check(const auto& /*options*/) {}
/// Throws ValueError unless min_val < max_val.
void check(const HardtanhOptions& options);
}  // namespace detail

/// A layer whose forward is functional::name(input) or functional::name(input, options).
#define ATHANOR_PLAIN_ACTIVATION(Name)                      \
  class Name##Impl : public Cloneable<Name##Impl> {         \
   public:                                                  \
    void reset() override {}                                \
    void pretty_print(std::ostream& stream) const override; \
    Tensor forward(const Tensor& input);                    \
  };                                                        \
  ATHANOR_LIBRARY_MODULE(Name)
#define ATHANOR_ACTIVATION(Name)                                                                        \
  class Name##Impl : public Cloneable<Name##Impl> {                                                     \
   public:                                                                                              \
    explicit Name##Impl(const Name##Options& options) : options(options) { detail::check(options); }    \
    template <class... Args>                                                                            \
    requires(std::is_constructible_v<Name##Options, Args...> &&                                         \
             !(std::is_base_of_v<Module, std::decay_t<Args>> || ...)) explicit Name##Impl(Args... args) \
        : Name##Impl(Name##Options(args...)) {}                                                         \
    void reset() override {}                                                                            \
    void pretty_print(std::ostream& stream) const override;                                             \
    Tensor forward(const Tensor& input);                                                                \
    Name##Options options;                                                                              \
  };                                                                                                    \
  ATHANOR_LIBRARY_MODULE(Name)

ATHANOR_ACTIVATION(ELU);
ATHANOR_ACTIVATION(CELU);
ATHANOR_ACTIVATION(SELU);
ATHANOR_ACTIVATION(ReLU);
ATHANOR_ACTIVATION(ReLU6);
ATHANOR_ACTIVATION(GLU);
ATHANOR_ACTIVATION(GELU);
ATHANOR_ACTIVATION(Hardshrink);
ATHANOR_ACTIVATION(Softshrink);
ATHANOR_ACTIVATION(Hardtanh);
ATHANOR_ACTIVATION(LeakyReLU);
ATHANOR_ACTIVATION(Softmax);
ATHANOR_ACTIVATION(Softmin);
ATHANOR_ACTIVATION(LogSoftmax);
ATHANOR_ACTIVATION(RReLU);
ATHANOR_ACTIVATION(Softplus);
ATHANOR_ACTIVATION(Threshold);
ATHANOR_PLAIN_ACTIVATION(SiLU);
ATHANOR_PLAIN_ACTIVATION(Mish);
ATHANOR_PLAIN_ACTIVATION(Sigmoid);
ATHANOR_PLAIN_ACTIVATION(Tanh);
ATHANOR_PLAIN_ACTIVATION(LogSigmoid);
ATHANOR_PLAIN_ACTIVATION(Softsign);
ATHANOR_PLAIN_ACTIVATION(Tanhshrink);
ATHANOR_PLAIN_ACTIVATION(Hardsigmoid);
ATHANOR_PLAIN_ACTIVATION(Hardswish);
ATHANOR_PLAIN_ACTIVATION(Softmax2d);
#undef ATHANOR_ACTIVATION
#undef ATHANOR_PLAIN_ACTIVATION

/// max(0, x) + weight min(0, x), with one weight or one per channel.
class PReLUImpl : public Cloneable<PReLUImpl> {
 public:
  explicit PReLUImpl(const PReLUOptions& options = {});
  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);

  PReLUOptions options;
  Tensor weight;
};
ATHANOR_LIBRARY_MODULE(PReLU);

}  // namespace athanor::nn
