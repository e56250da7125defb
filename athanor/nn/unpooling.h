#pragma once
/// MaxUnpool and FractionalMaxPool layers and their functional forms.

#include "athanor/nn/any.h"
#include "athanor/nn/cloneable.h"
#include "athanor/nn/options.h"

namespace athanor::nn {

/// Those of the max pooling that is undone; stride: the kernel size if not given.
template <std::size_t D>
struct MaxUnpoolOptions {
  MaxUnpoolOptions(ExpandingArray<D> kernel_size) : kernel_size_(kernel_size), stride_(kernel_size) {}
  ATHANOR_ARG(ExpandingArray<D>, kernel_size);
  ATHANOR_ARG(ExpandingArray<D>, stride);
  ATHANOR_ARG(ExpandingArray<D>, padding) = 0;
};
/// One of output_size and output_ratio (in (0, 1)) must be given. _random_samples: (batch, channels, D) numbers in
/// [0, 1) that choose the windows, drawn anew unless given.
template <std::size_t D>
struct FractionalMaxPoolOptions {
  FractionalMaxPoolOptions(ExpandingArray<D> kernel_size) : kernel_size_(kernel_size) {}
  ATHANOR_ARG(ExpandingArray<D>, kernel_size);
  ATHANOR_ARG(std::optional<ExpandingArray<D>>, output_size) = std::nullopt;
  using ExpandingArrayDouble = ExpandingArray<D, double>;
  ATHANOR_ARG(std::optional<ExpandingArrayDouble>, output_ratio) = std::nullopt;
  ATHANOR_ARG(Tensor, _random_samples);
};
using MaxUnpool1dOptions = MaxUnpoolOptions<1>;
using MaxUnpool2dOptions = MaxUnpoolOptions<2>;
using MaxUnpool3dOptions = MaxUnpoolOptions<3>;
using FractionalMaxPool2dOptions = FractionalMaxPoolOptions<2>;
using FractionalMaxPool3dOptions = FractionalMaxPoolOptions<3>;

namespace functional {

template <std::size_t D>
struct MaxUnpoolFuncOptions {
  MaxUnpoolFuncOptions(ExpandingArray<D> kernel_size) : kernel_size_(kernel_size), stride_(kernel_size) {}
  ATHANOR_ARG(ExpandingArray<D>, kernel_size);
  ATHANOR_ARG(ExpandingArray<D>, stride);
  ATHANOR_ARG(ExpandingArray<D>, padding) = 0;
  ATHANOR_ARG(std::optional<std::vector<std::int64_t>>, output_size) = std::nullopt;
};
using MaxUnpool1dFuncOptions = MaxUnpoolFuncOptions<1>;
using MaxUnpool2dFuncOptions = MaxUnpoolFuncOptions<2>;
using MaxUnpool3dFuncOptions = MaxUnpoolFuncOptions<3>;
using FractionalMaxPool2dFuncOptions = FractionalMaxPool2dOptions;
using FractionalMaxPool3dFuncOptions = FractionalMaxPool3dOptions;

/// input's elements where max pooling found them (`indices`), zeros elsewhere.
Tensor max_unpool1d(const Tensor& input, const Tensor& indices, const MaxUnpool1dFuncOptions& options);
Tensor max_unpool2d(const Tensor& input, const Tensor& indices, const MaxUnpool2dFuncOptions& options);
Tensor max_unpool3d(const Tensor& input, const Tensor& indices, const MaxUnpool3dFuncOptions& options);
Tensor fractional_max_pool2d(const Tensor& input, const FractionalMaxPool2dFuncOptions& options);
Tensor fractional_max_pool3d(const Tensor& input, const FractionalMaxPool3dFuncOptions& options);
std::tuple<Tensor, Tensor> fractional_max_pool2d_with_indices(const Tensor& input,
                                                              const FractionalMaxPool2dFuncOptions& options);
std::tuple<Tensor, Tensor> fractional_max_pool3d_with_indices(const Tensor& input,
                                                              const FractionalMaxPool3dFuncOptions& options);

}  // namespace functional

#define ATHANOR_UNPOOL_LAYER(D)                                                                 \
  class MaxUnpool##D##dImpl : public Cloneable<MaxUnpool##D##dImpl> {                           \
   public:                                                                                      \
    MaxUnpool##D##dImpl(ExpandingArray<D> kernel_size) : options(kernel_size) {}                \
    explicit MaxUnpool##D##dImpl(const MaxUnpool##D##dOptions& options) : options(options) {}   \
    void reset() override {}                                                                    \
    void pretty_print(std::ostream& stream) const override;                                     \
    Tensor forward(const Tensor& input, const Tensor& indices,                                  \
                   const std::optional<std::vector<std::int64_t>>& output_size = std::nullopt); \
    MaxUnpool##D##dOptions options;                                                             \
  };                                                                                            \
  ATHANOR_LIBRARY_MODULE(MaxUnpool##D##d)
ATHANOR_UNPOOL_LAYER(1);
ATHANOR_UNPOOL_LAYER(2);
ATHANOR_UNPOOL_LAYER(3);
#undef ATHANOR_UNPOOL_LAYER

#define ATHANOR_FRACTIONAL_LAYER(D)                                                   \
  class FractionalMaxPool##D##dImpl : public Cloneable<FractionalMaxPool##D##dImpl> { \
   public:                                                                            \
    FractionalMaxPool##D##dImpl(ExpandingArray<D> kernel_size)                        \
        : FractionalMaxPool##D##dImpl(FractionalMaxPool##D##dOptions(kernel_size)) {} \
    explicit FractionalMaxPool##D##dImpl(FractionalMaxPool##D##dOptions options);     \
    void reset() override;                                                            \
    void pretty_print(std::ostream& stream) const override;                           \
    Tensor forward(const Tensor& input);                                              \
    /** The result and the place of each maximum in its input plane. */               \
    std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& input);             \
    FractionalMaxPool##D##dOptions options;                                           \
    Tensor _random_samples;                                                           \
  };                                                                                  \
  ATHANOR_LIBRARY_MODULE(FractionalMaxPool##D##d)
ATHANOR_FRACTIONAL_LAYER(2);
ATHANOR_FRACTIONAL_LAYER(3);
#undef ATHANOR_FRACTIONAL_LAYER

}  // namespace athanor::nn
