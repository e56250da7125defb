#include "athanor/nn/pooling.h"

#include <cmath>

namespace athanor::nn {

namespace {

template <std::size_t D>
DimVector sizes_for(const Tensor&, const ExpandingArray<D>& wanted) {
  return DimVector(IntArrayRef(wanted));
}
/// The input's own size where none is asked for.
template <std::size_t D>
DimVector sizes_for(const Tensor& input, const ExpandingArrayWithOptionalElem<D>& wanted) {
  DimVector out;
  for (std::size_t d = 0; d < D; ++d)
    out.push_back((*wanted)[d] ? *(*wanted)[d]
                               : input.size(static_cast<std::int64_t>(d) - static_cast<std::int64_t>(D)));
  return out;
}

Tensor average(const Tensor& x, const AvgPoolOptions<1>& o) {
  return athanor::avg_pool1d(x, o.kernel_size(), o.stride(), o.padding(), o.ceil_mode(), o.count_include_pad());
}
Tensor average(const Tensor& x, const AvgPoolOptions<2>& o) {
  return athanor::avg_pool2d(x, o.kernel_size(), o.stride(), o.padding(), o.ceil_mode(), o.count_include_pad(),
                             o.divisor_override());
}
Tensor average(const Tensor& x, const AvgPoolOptions<3>& o) {
  return athanor::avg_pool3d(x, o.kernel_size(), o.stride(), o.padding(), o.ceil_mode(), o.count_include_pad(),
                             o.divisor_override());
}

Tensor greatest(const Tensor& x, const LPPoolOptions<1>& o) {
  return athanor::max_pool1d(x, o.kernel_size(), o.stride(), 0, 1, o.ceil_mode());
}
Tensor greatest(const Tensor& x, const LPPoolOptions<2>& o) {
  return athanor::max_pool2d(x, o.kernel_size(), o.stride(), 0, 1, o.ceil_mode());
}
Tensor greatest(const Tensor& x, const LPPoolOptions<3>& o) {
  return athanor::max_pool3d(x, o.kernel_size(), o.stride(), 0, 1, o.ceil_mode());
}

/// (sum |x|^p)^(1/p), as the mean over the window times its size; the greatest (least) |x| of order inf (-inf).
template <std::size_t D>
Tensor lp_pool(const Tensor& input, const LPPoolOptions<D>& o) {
  ATHANOR_CHECK_VALUE(o.norm_type() != 0, "lp_pool", D, "d: norm_type must be a non-zero value, but got 0");
  if (std::isinf(o.norm_type())) {
    const double sign = o.norm_type() > 0 ? 1 : -1;
    return greatest(athanor::abs(input) * sign, o) * sign;
  }
  double taps = 1;
  for (const auto k : *o.kernel_size()) taps *= static_cast<double>(k);
  const Tensor mean =
      average(input.pow(o.norm_type()), AvgPoolOptions<D>(o.kernel_size()).stride(o.stride()).ceil_mode(o.ceil_mode()));
  return (athanor::sign(mean) * athanor::relu(athanor::abs(mean)) * taps).pow(1.0 / o.norm_type());
}

}  // namespace

void detail::print_pool(std::ostream& stream, const char* name, std::size_t dims, IntArrayRef kernel,
                        IntArrayRef stride, IntArrayRef padding) {
  stream << "torch::nn::" << name << dims << "d(kernel_size=";
  athanor::detail::print_expanded(stream, kernel);
  stream << ", stride=";
  athanor::detail::print_expanded(stream, stride);
  stream << ", padding=";
  athanor::detail::print_expanded(stream, padding);
}
void detail::print_max_pool(std::ostream& stream, IntArrayRef dilation, bool ceil_mode) {
  stream << ", dilation=";
  athanor::detail::print_expanded(stream, dilation);
  stream << ", ceil_mode=" << (ceil_mode ? "true" : "false") << ")";
}
void detail::print_lp_pool(std::ostream& stream, std::size_t dims, double norm_type, IntArrayRef kernel,
                           IntArrayRef stride, bool ceil_mode) {
  stream << "torch::nn::LPPool" << dims << "d(norm_type=" << norm_type << ", kernel_size=";
  athanor::detail::print_expanded(stream, kernel);
  stream << ", stride=";
  athanor::detail::print_expanded(stream, stride);
  stream << ", ceil_mode=" << (ceil_mode ? "true" : "false") << ")";
}

#define ATHANOR_POOL(D)                                                                                        \
  namespace functional {                                                                                       \
  Tensor max_pool##D##d(const Tensor& x, const MaxPool##D##dFuncOptions& o) {                                  \
    return athanor::max_pool##D##d(x, o.kernel_size(), o.stride(), o.padding(), o.dilation(), o.ceil_mode());  \
  }                                                                                                            \
  std::tuple<Tensor, Tensor> max_pool##D##d_with_indices(const Tensor& x, const MaxPool##D##dFuncOptions& o) { \
    return athanor::max_pool##D##d_with_indices(x, o.kernel_size(), o.stride(), o.padding(), o.dilation(),     \
                                                o.ceil_mode());                                                \
  }                                                                                                            \
  Tensor avg_pool##D##d(const Tensor& x, const AvgPool##D##dFuncOptions& o) { return average(x, o); }          \
  Tensor lp_pool##D##d(const Tensor& x, const LPPool##D##dFuncOptions& o) { return lp_pool<D>(x, o); }         \
  Tensor adaptive_max_pool##D##d(const Tensor& x, const AdaptiveMaxPool##D##dFuncOptions& o) {                 \
    return std::get<0>(adaptive_max_pool##D##d_with_indices(x, o));                                            \
  }                                                                                                            \
  std::tuple<Tensor, Tensor> adaptive_max_pool##D##d_with_indices(const Tensor& x,                             \
                                                                  const AdaptiveMaxPool##D##dFuncOptions& o) { \
    return athanor::adaptive_max_pool##D##d(x, sizes_for(x, o.output_size()));                                 \
  }                                                                                                            \
  Tensor adaptive_avg_pool##D##d(const Tensor& x, const AdaptiveAvgPool##D##dFuncOptions& o) {                 \
    return athanor::adaptive_avg_pool##D##d(x, sizes_for(x, o.output_size()));                                 \
  }                                                                                                            \
  }                                                                                                            \
  void MaxPool##D##dImpl::pretty_print(std::ostream& stream) const {                                           \
    detail::print_pool(stream, "MaxPool", D, options.kernel_size(), options.stride(), options.padding());      \
    detail::print_max_pool(stream, options.dilation(), options.ceil_mode());                                   \
  }                                                                                                            \
  void AvgPool##D##dImpl::pretty_print(std::ostream& stream) const {                                           \
    detail::print_pool(stream, "AvgPool", D, options.kernel_size(), options.stride(), options.padding());      \
    stream << ")";                                                                                             \
  }                                                                                                            \
  void LPPool##D##dImpl::pretty_print(std::ostream& stream) const {                                            \
    detail::print_lp_pool(stream, D, options.norm_type(), options.kernel_size(), options.stride(),             \
                          options.ceil_mode());                                                                \
  }                                                                                                            \
  void AdaptiveMaxPool##D##dImpl::pretty_print(std::ostream& stream) const {                                   \
    stream << "torch::nn::AdaptiveMaxPool" #D "d(output_size=" << options.output_size() << ")";                \
  }                                                                                                            \
  void AdaptiveAvgPool##D##dImpl::pretty_print(std::ostream& stream) const {                                   \
    stream << "torch::nn::AdaptiveAvgPool" #D "d(output_size=" << options.output_size() << ")";                \
  }

ATHANOR_POOL(1)
ATHANOR_POOL(2)
ATHANOR_POOL(3)
#undef ATHANOR_POOL

}  // namespace athanor::nn
