#pragma once
/// Dropout layers and their functional forms. In evaluation they give back their input.

#include "athanor/nn/any.h"
#include "athanor/nn/cloneable.h"
#include "athanor/nn/options.h"

namespace athanor::nn {

/// p: the probability that an element (or channel) becomes zero.
struct DropoutOptions {
  DropoutOptions(double p = 0.5) : p_(p) {}
  ATHANOR_ARG(double, p);
  ATHANOR_ARG(bool, inplace) = false;
};
using Dropout1dOptions = DropoutOptions;
using Dropout2dOptions = DropoutOptions;
using Dropout3dOptions = DropoutOptions;
using AlphaDropoutOptions = DropoutOptions;
using FeatureAlphaDropoutOptions = DropoutOptions;

namespace functional {

struct DropoutFuncOptions {
  ATHANOR_ARG(double, p) = 0.5;
  ATHANOR_ARG(bool, training) = true;
  ATHANOR_ARG(bool, inplace) = false;
};
using Dropout1dFuncOptions = DropoutFuncOptions;
using Dropout2dFuncOptions = DropoutFuncOptions;
using Dropout3dFuncOptions = DropoutFuncOptions;
struct AlphaDropoutFuncOptions {
  ATHANOR_ARG(double, p) = 0.5;
  ATHANOR_ARG(bool, training) = false;
  ATHANOR_ARG(bool, inplace) = false;
};
using FeatureAlphaDropoutFuncOptions = AlphaDropoutFuncOptions;

/// Elements kept are divided by 1 - p.
Tensor dropout(Tensor input, const DropoutFuncOptions& options = {});
/// Whole channels (dim 1; dim 0 without a batch) are kept or zeroed.
Tensor dropout1d(Tensor input, const Dropout1dFuncOptions& options = {});
Tensor dropout2d(Tensor input, const Dropout2dFuncOptions& options = {});
Tensor dropout3d(Tensor input, const Dropout3dFuncOptions& options = {});
/// Keeps mean and variance of self-normalizing networks (Klambauer et al., 2017).
Tensor alpha_dropout(Tensor input, const AlphaDropoutFuncOptions& options = {});
Tensor feature_alpha_dropout(Tensor input, const FeatureAlphaDropoutFuncOptions& options = {});

}  // namespace functional

#define ATHANOR_DROPOUT_LAYER(Name)                                 \
  class Name##Impl : public Cloneable<Name##Impl> {                 \
   public:                                                          \
    explicit Name##Impl(double p) : Name##Impl(Name##Options(p)) {} \
    explicit Name##Impl(const Name##Options& options = {});         \
    void reset() override;                                          \
    void pretty_print(std::ostream& stream) const override;         \
    Tensor forward(Tensor input);                                   \
    Name##Options options;                                          \
  };                                                                \
  ATHANOR_LIBRARY_MODULE(Name)

ATHANOR_DROPOUT_LAYER(Dropout);
ATHANOR_DROPOUT_LAYER(Dropout1d);
ATHANOR_DROPOUT_LAYER(Dropout2d);
ATHANOR_DROPOUT_LAYER(Dropout3d);
ATHANOR_DROPOUT_LAYER(AlphaDropout);
ATHANOR_DROPOUT_LAYER(FeatureAlphaDropout);
#undef ATHANOR_DROPOUT_LAYER

}  // namespace athanor::nn
