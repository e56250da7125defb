#include "athanor/nn/dropout.h"

namespace athanor::nn {

namespace functional {

namespace {

void check_probability(double p) {
  ATHANOR_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
}

Tensor drop_channels(const char* name, Tensor input, const DropoutFuncOptions& o, std::int64_t batched_dims) {
  check_probability(o.p());
  ATHANOR_CHECK(input.dim() >= batched_dims - 1, name, ": Expected ", batched_dims - 1, "D (unbatched) or ",
                batched_dims, "D (batched) input, but got ", input.dim(), "D, its shape is ", input.sizes());
  const bool alone = input.dim() == batched_dims - 1;
  if (o.inplace()) {
    Tensor view = alone ? input.unsqueeze(0) : input;
    athanor::feature_dropout_(view, o.p(), o.training());
    return input;
  }
  const Tensor out = athanor::feature_dropout(alone ? input.unsqueeze(0) : input, o.p(), o.training());
  return alone ? out.squeeze(0) : out;
}

}  // namespace

Tensor dropout(Tensor input, const DropoutFuncOptions& o) {
  check_probability(o.p());
  return o.inplace() ? athanor::dropout_(input, o.p(), o.training()) : athanor::dropout(input, o.p(), o.training());
}
Tensor dropout1d(Tensor input, const Dropout1dFuncOptions& o) {
  return drop_channels("dropout1d", std::move(input), o, 3);
}
Tensor dropout2d(Tensor input, const Dropout2dFuncOptions& o) {
  return drop_channels("dropout2d", std::move(input), o, 4);
}
Tensor dropout3d(Tensor input, const Dropout3dFuncOptions& o) {
  return drop_channels("dropout3d", std::move(input), o, 5);
}
Tensor alpha_dropout(Tensor input, const AlphaDropoutFuncOptions& o) {
  check_probability(o.p());
  return o.inplace() ? athanor::alpha_dropout_(input, o.p(), o.training())
                     : athanor::alpha_dropout(input, o.p(), o.training());
}
Tensor feature_alpha_dropout(Tensor input, const FeatureAlphaDropoutFuncOptions& o) {
  check_probability(o.p());
  return o.inplace() ? athanor::feature_alpha_dropout_(input, o.p(), o.training())
                     : athanor::feature_alpha_dropout(input, o.p(), o.training());
}

}  // namespace functional

#define ATHANOR_DROPOUT_LAYER(Name, name, FuncOptions)                                                             \
  Name##Impl::Name##Impl(const Name##Options& options) : options(options) { reset(); }                             \
  void Name##Impl::reset() {                                                                                       \
    ATHANOR_CHECK(options.p() >= 0 && options.p() <= 1, "dropout probability has to be between 0 and 1, but got ", \
                  options.p());                                                                                    \
  }                                                                                                                \
  void Name##Impl::pretty_print(std::ostream& stream) const {                                                      \
    stream << "torch::nn::" #Name "(p=" << options.p() << ", inplace=" << (options.inplace() ? "true" : "false")   \
           << ")";                                                                                                 \
  }                                                                                                                \
  Tensor Name##Impl::forward(Tensor input) {                                                                       \
    return in_module(*this, [&] {                                                                                  \
      return functional::name(                                                                                     \
          input, functional::FuncOptions().p(options.p()).training(is_training()).inplace(options.inplace()));     \
    });                                                                                                            \
  }

ATHANOR_DROPOUT_LAYER(Dropout, dropout, DropoutFuncOptions)
ATHANOR_DROPOUT_LAYER(Dropout1d, dropout1d, Dropout1dFuncOptions)
ATHANOR_DROPOUT_LAYER(Dropout2d, dropout2d, Dropout2dFuncOptions)
ATHANOR_DROPOUT_LAYER(Dropout3d, dropout3d, Dropout3dFuncOptions)
ATHANOR_DROPOUT_LAYER(AlphaDropout, alpha_dropout, AlphaDropoutFuncOptions)
ATHANOR_DROPOUT_LAYER(FeatureAlphaDropout, feature_alpha_dropout, FeatureAlphaDropoutFuncOptions)
#undef ATHANOR_DROPOUT_LAYER

}  // namespace athanor::nn
