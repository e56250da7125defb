#pragma once
/// Normalization over neighbouring channels: LocalResponseNorm, CrossMapLRN2d.

#include "athanor/nn/any.h"
#include "athanor/nn/cloneable.h"
#include "athanor/nn/options.h"

namespace athanor::nn {

/// size: how many channels a window has.
struct LocalResponseNormOptions {
  LocalResponseNormOptions(std::int64_t size) : size_(size) {}
  ATHANOR_ARG(std::int64_t, size);
  ATHANOR_ARG(double, alpha) = 1e-4;
  ATHANOR_ARG(double, beta) = 0.75;
  ATHANOR_ARG(double, k) = 1.;
};
using CrossMapLRN2dOptions = LocalResponseNormOptions;

namespace functional {

using LocalResponseNormFuncOptions = LocalResponseNormOptions;
/// input (N, C, spatial…) divided by (k + alpha mean(input² of `size` channels around))^beta (Krizhevsky et al., 2012).
Tensor local_response_norm(const Tensor& input, const LocalResponseNormFuncOptions& options);

}  // namespace functional

#define ATHANOR_LOCAL_NORM(Name)                                            \
  class Name##Impl : public Cloneable<Name##Impl> {                         \
   public:                                                                  \
    Name##Impl(std::int64_t size) : options(size) {}                        \
    explicit Name##Impl(const Name##Options& options) : options(options) {} \
    void reset() override {}                                                \
    void pretty_print(std::ostream& stream) const override;                 \
    Tensor forward(const Tensor& input);                                    \
    Name##Options options;                                                  \
  };                                                                        \
  ATHANOR_LIBRARY_MODULE(Name)
ATHANOR_LOCAL_NORM(LocalResponseNorm);
/// For images (N, C, H, W), over the channels that PyTorch's layer of this name sums (see local_norm.cpp).
ATHANOR_LOCAL_NORM(CrossMapLRN2d);
#undef ATHANOR_LOCAL_NORM

}  // namespace athanor::nn
