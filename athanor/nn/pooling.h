#pragma once
/// Pooling layers over 1 to 3 spatial dimensions and their functional forms.

#include "athanor/nn/any.h"
#include "athanor/nn/cloneable.h"
#include "athanor/nn/options.h"

namespace athanor::nn {

/// stride: the kernel size if not given.
template <std::size_t D>
struct MaxPoolOptions {
  MaxPoolOptions(ExpandingArray<D> kernel_size) : kernel_size_(kernel_size), stride_(kernel_size) {}
  ATHANOR_ARG(ExpandingArray<D>, kernel_size);
  ATHANOR_ARG(ExpandingArray<D>, stride);
  ATHANOR_ARG(ExpandingArray<D>, padding) = 0;
  ATHANOR_ARG(ExpandingArray<D>, dilation) = 1;
  ATHANOR_ARG(bool, ceil_mode) = false;
};
template <std::size_t D>
struct AvgPoolOptions {
  AvgPoolOptions(ExpandingArray<D> kernel_size) : kernel_size_(kernel_size), stride_(kernel_size) {}
  ATHANOR_ARG(ExpandingArray<D>, kernel_size);
  ATHANOR_ARG(ExpandingArray<D>, stride);
  ATHANOR_ARG(ExpandingArray<D>, padding) = 0;
  ATHANOR_ARG(bool, ceil_mode) = false;
  ATHANOR_ARG(bool, count_include_pad) = true;
  ATHANOR_ARG(std::optional<std::int64_t>, divisor_override) = std::nullopt;
};
template <std::size_t D>
struct LPPoolOptions {
  LPPoolOptions(double norm_type, ExpandingArray<D> kernel_size)
      : norm_type_(norm_type), kernel_size_(kernel_size), stride_(kernel_size) {}
  ATHANOR_ARG(double, norm_type);
  ATHANOR_ARG(ExpandingArray<D>, kernel_size);
  ATHANOR_ARG(ExpandingArray<D>, stride);
  ATHANOR_ARG(bool, ceil_mode) = false;
};
template <class OutputSize>
struct AdaptiveMaxPoolOptions {
  AdaptiveMaxPoolOptions(OutputSize output_size) : output_size_(output_size) {}
  ATHANOR_ARG(OutputSize, output_size);
};
template <class OutputSize>
struct AdaptiveAvgPoolOptions {
  AdaptiveAvgPoolOptions(OutputSize output_size) : output_size_(output_size) {}
  ATHANOR_ARG(OutputSize, output_size);
};

namespace detail {
template <std::size_t D>
using AdaptiveSize = std::conditional_t<D == 1, ExpandingArray<1>, ExpandingArrayWithOptionalElem<D>>;
void print_pool(std::ostream& stream, const char* name, std::size_t dims, IntArrayRef kernel, IntArrayRef stride,
                IntArrayRef padding);
void print_lp_pool(std::ostream& stream, std::size_t dims, double norm_type, IntArrayRef kernel, IntArrayRef stride,
                   bool ceil_mode);
void print_max_pool(std::ostream& stream, IntArrayRef dilation, bool ceil_mode);
}  // namespace detail

#define ATHANOR_POOL_OPTIONS(D)                                                                                     \
  using MaxPool##D##dOptions = MaxPoolOptions<D>;                                                                   \
  using AvgPool##D##dOptions = AvgPoolOptions<D>;                                                                   \
  using LPPool##D##dOptions = LPPoolOptions<D>;                                                                     \
  using AdaptiveMaxPool##D##dOptions = AdaptiveMaxPoolOptions<detail::AdaptiveSize<D>>;                             \
  using AdaptiveAvgPool##D##dOptions = AdaptiveAvgPoolOptions<detail::AdaptiveSize<D>>;                             \
  namespace functional {                                                                                            \
  using MaxPool##D##dFuncOptions = MaxPool##D##dOptions;                                                            \
  using AvgPool##D##dFuncOptions = AvgPool##D##dOptions;                                                            \
  using LPPool##D##dFuncOptions = LPPool##D##dOptions;                                                              \
  using AdaptiveMaxPool##D##dFuncOptions = AdaptiveMaxPool##D##dOptions;                                            \
  using AdaptiveAvgPool##D##dFuncOptions = AdaptiveAvgPool##D##dOptions;                                            \
  Tensor max_pool##D##d(const Tensor& input, const MaxPool##D##dFuncOptions& options);                              \
  std::tuple<Tensor, Tensor> max_pool##D##d_with_indices(const Tensor& input,                                       \
                                                         const MaxPool##D##dFuncOptions& options);                  \
  Tensor avg_pool##D##d(const Tensor& input, const AvgPool##D##dFuncOptions& options);                              \
  Tensor lp_pool##D##d(const Tensor& input, const LPPool##D##dFuncOptions& options);                                \
  Tensor adaptive_max_pool##D##d(const Tensor& input, const AdaptiveMaxPool##D##dFuncOptions& options);             \
  std::tuple<Tensor, Tensor> adaptive_max_pool##D##d_with_indices(const Tensor& input,                              \
                                                                  const AdaptiveMaxPool##D##dFuncOptions& options); \
  Tensor adaptive_avg_pool##D##d(const Tensor& input, const AdaptiveAvgPool##D##dFuncOptions& options);             \
  }

ATHANOR_POOL_OPTIONS(1)
ATHANOR_POOL_OPTIONS(2)
ATHANOR_POOL_OPTIONS(3)
#undef ATHANOR_POOL_OPTIONS

#define ATHANOR_POOL_LAYER(Name, name, D, Argument, members)                           \
  class Name##D##dImpl : public Cloneable<Name##D##dImpl> {                            \
   public:                                                                             \
    Name##D##dImpl(Argument size) : options(size) {}                                   \
    explicit Name##D##dImpl(const Name##D##dOptions& options) : options(options) {}    \
    void reset() override {}                                                           \
    void pretty_print(std::ostream& stream) const override;                            \
    Tensor forward(const Tensor& input) {                                              \
      return in_module(*this, [&] { return functional::name##D##d(input, options); }); \
    }                                                                                  \
    members Name##D##dOptions options;                                                 \
  };                                                                                   \
  ATHANOR_LIBRARY_MODULE(Name##D##d)
#define ATHANOR_WITH_INDICES(name, D)                                                             \
  /** The result and the place of each maximum in its input plane. */                             \
  std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& input) {                          \
    return in_module(*this, [&] { return functional::name##D##d_with_indices(input, options); }); \
  }

#define ATHANOR_POOL_LAYERS(D)                                                                             \
  ATHANOR_POOL_LAYER(MaxPool, max_pool, D, ExpandingArray<D>, ATHANOR_WITH_INDICES(max_pool, D));          \
  ATHANOR_POOL_LAYER(AvgPool, avg_pool, D, ExpandingArray<D>, );                                           \
  ATHANOR_POOL_LAYER(AdaptiveMaxPool, adaptive_max_pool, D, detail::AdaptiveSize<D>,                       \
                     ATHANOR_WITH_INDICES(adaptive_max_pool, D));                                          \
  ATHANOR_POOL_LAYER(AdaptiveAvgPool, adaptive_avg_pool, D, detail::AdaptiveSize<D>, );                    \
  class LPPool##D##dImpl : public Cloneable<LPPool##D##dImpl> {                                            \
   public:                                                                                                 \
    LPPool##D##dImpl(double norm_type, ExpandingArray<D> kernel_size) : options(norm_type, kernel_size) {} \
    explicit LPPool##D##dImpl(const LPPool##D##dOptions& options) : options(options) {}                    \
    void reset() override {}                                                                               \
    void pretty_print(std::ostream& stream) const override;                                                \
    Tensor forward(const Tensor& input) {                                                                  \
      return in_module(*this, [&] { return functional::lp_pool##D##d(input, options); });                  \
    }                                                                                                      \
    LPPool##D##dOptions options;                                                                           \
  };                                                                                                       \
  ATHANOR_LIBRARY_MODULE(LPPool##D##d)

ATHANOR_POOL_LAYERS(1);
ATHANOR_POOL_LAYERS(2);
ATHANOR_POOL_LAYERS(3);
#undef ATHANOR_POOL_LAYERS
#undef ATHANOR_WITH_INDICES
#undef ATHANOR_POOL_LAYER

}  // namespace athanor::nn
