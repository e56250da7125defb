#pragma once
/// Convolution layers over 1 to 3 spatial dimensions, plain and transposed, and their functional forms.

#include "athanor/nn/padding.h"

namespace athanor::nn {

namespace detail {

using conv_padding_mode_t =
    enumtype::OneOf<enumtype::kZeros, enumtype::kReflect, enumtype::kReplicate, enumtype::kCircular>;

/// Zeros on both sides per dimension, or "same" (the output has the input's size; stride 1) or "valid" (none).
template <std::size_t D>
class conv_padding_t {
 public:
  conv_padding_t(std::int64_t single) : values_(single) {}
  conv_padding_t(ExpandingArray<D> values) : values_(values) {}
  conv_padding_t(std::initializer_list<std::int64_t> values) : values_(values) {}
  conv_padding_t(const std::vector<std::int64_t>& values) : values_(values) {}
  conv_padding_t(enumtype::kValid) : values_(0), name_("valid") {}
  conv_padding_t(enumtype::kSame) : values_(0), name_("same") {}
  IntArrayRef values() const { return values_; }
  /// "same", "valid", or null for numbers.
  const char* name() const { return name_; }

 private:
  ExpandingArray<D> values_;
  const char* name_ = nullptr;
};

/// The geometry of a convolution without its dimension count, for code shared by all.
struct ConvGeometry {
  const char* op;
  IntArrayRef stride, padding, dilation, output_padding;
  const char* padding_name = nullptr;
  std::int64_t groups = 1;
  bool transposed = false;
};

}  // namespace detail

template <std::size_t D>
struct ConvOptions {
  using padding_mode_t = detail::conv_padding_mode_t;
  using padding_t = detail::conv_padding_t<D>;
  ConvOptions(std::int64_t in_channels, std::int64_t out_channels, ExpandingArray<D> kernel_size)
      : in_channels_(in_channels), out_channels_(out_channels), kernel_size_(kernel_size) {}
  ATHANOR_ARG(std::int64_t, in_channels);
  ATHANOR_ARG(std::int64_t, out_channels);
  ATHANOR_ARG(ExpandingArray<D>, kernel_size);
  ATHANOR_ARG(ExpandingArray<D>, stride) = 1;
  ATHANOR_ARG(padding_t, padding) = 0;
  ATHANOR_ARG(ExpandingArray<D>, dilation) = 1;
  ATHANOR_ARG(std::int64_t, groups) = 1;
  ATHANOR_ARG(bool, bias) = true;
  ATHANOR_ARG(padding_mode_t, padding_mode) = kZeros;
};
using Conv1dOptions = ConvOptions<1>;
using Conv2dOptions = ConvOptions<2>;
using Conv3dOptions = ConvOptions<3>;

template <std::size_t D>
struct ConvTransposeOptions {
  using padding_mode_t = detail::conv_padding_mode_t;
  ConvTransposeOptions(std::int64_t in_channels, std::int64_t out_channels, ExpandingArray<D> kernel_size)
      : in_channels_(in_channels), out_channels_(out_channels), kernel_size_(kernel_size) {}
  ATHANOR_ARG(std::int64_t, in_channels);
  ATHANOR_ARG(std::int64_t, out_channels);
  ATHANOR_ARG(ExpandingArray<D>, kernel_size);
  ATHANOR_ARG(ExpandingArray<D>, stride) = 1;
  ATHANOR_ARG(ExpandingArray<D>, padding) = 0;
  ATHANOR_ARG(ExpandingArray<D>, output_padding) = 0;
  ATHANOR_ARG(std::int64_t, groups) = 1;
  ATHANOR_ARG(bool, bias) = true;
  ATHANOR_ARG(ExpandingArray<D>, dilation) = 1;
  ATHANOR_ARG(padding_mode_t, padding_mode) = kZeros;
};
using ConvTranspose1dOptions = ConvTransposeOptions<1>;
using ConvTranspose2dOptions = ConvTransposeOptions<2>;
using ConvTranspose3dOptions = ConvTransposeOptions<3>;

namespace functional {

template <std::size_t D>
struct ConvFuncOptions {
  using padding_t = nn::detail::conv_padding_t<D>;
  ATHANOR_ARG(Tensor, bias);
  ATHANOR_ARG(ExpandingArray<D>, stride) = 1;
  ATHANOR_ARG(padding_t, padding) = 0;
  ATHANOR_ARG(ExpandingArray<D>, dilation) = 1;
  ATHANOR_ARG(std::int64_t, groups) = 1;
};
using Conv1dFuncOptions = ConvFuncOptions<1>;
using Conv2dFuncOptions = ConvFuncOptions<2>;
using Conv3dFuncOptions = ConvFuncOptions<3>;

template <std::size_t D>
struct ConvTransposeFuncOptions {
  ATHANOR_ARG(Tensor, bias);
  ATHANOR_ARG(ExpandingArray<D>, stride) = 1;
  ATHANOR_ARG(ExpandingArray<D>, padding) = 0;
  ATHANOR_ARG(ExpandingArray<D>, output_padding) = 0;
  ATHANOR_ARG(std::int64_t, groups) = 1;
  ATHANOR_ARG(ExpandingArray<D>, dilation) = 1;
};
using ConvTranspose1dFuncOptions = ConvTransposeFuncOptions<1>;
using ConvTranspose2dFuncOptions = ConvTransposeFuncOptions<2>;
using ConvTranspose3dFuncOptions = ConvTransposeFuncOptions<3>;

Tensor conv1d(const Tensor& input, const Tensor& weight, const Conv1dFuncOptions& options = {});
Tensor conv2d(const Tensor& input, const Tensor& weight, const Conv2dFuncOptions& options = {});
Tensor conv3d(const Tensor& input, const Tensor& weight, const Conv3dFuncOptions& options = {});
Tensor conv_transpose1d(const Tensor& input, const Tensor& weight, const ConvTranspose1dFuncOptions& options = {});
Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const ConvTranspose2dFuncOptions& options = {});
Tensor conv_transpose3d(const Tensor& input, const Tensor& weight, const ConvTranspose3dFuncOptions& options = {});

}  // namespace functional

/// What all convolution layers share. weight: (out, in / groups, kernel…), transposed (in, out / groups, kernel…).
/// First values: uniform within ±1/sqrt(fan_in).
template <std::size_t D, class Derived, class Options>
class ConvNdImpl : public Cloneable<Derived> {
 public:
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  Options options;
  Tensor weight, bias;

 protected:
  static constexpr bool kTransposed = std::is_same_v<Options, ConvTransposeOptions<D>>;
  explicit ConvNdImpl(const Options& options) : options(options) { reset(); }
};

#define ATHANOR_CONV_LAYER(D)                                                                                   \
  class Conv##D##dImpl : public ConvNdImpl<D, Conv##D##dImpl, Conv##D##dOptions> {                              \
   public:                                                                                                      \
    Conv##D##dImpl(std::int64_t in_channels, std::int64_t out_channels, ExpandingArray<D> kernel_size)          \
        : Conv##D##dImpl(Conv##D##dOptions(in_channels, out_channels, kernel_size)) {}                          \
    explicit Conv##D##dImpl(const Conv##D##dOptions& options) : ConvNdImpl(options) {}                          \
    Tensor forward(const Tensor& input);                                                                        \
  };                                                                                                            \
  ATHANOR_LIBRARY_MODULE(Conv##D##d);                                                                           \
  class ConvTranspose##D##dImpl : public ConvNdImpl<D, ConvTranspose##D##dImpl, ConvTranspose##D##dOptions> {   \
   public:                                                                                                      \
    ConvTranspose##D##dImpl(std::int64_t in_channels, std::int64_t out_channels, ExpandingArray<D> kernel_size) \
        : ConvTranspose##D##dImpl(ConvTranspose##D##dOptions(in_channels, out_channels, kernel_size)) {}        \
    explicit ConvTranspose##D##dImpl(const ConvTranspose##D##dOptions& options) : ConvNdImpl(options) {}        \
    /** `output_size`: the spatial sizes wanted, among those that the stride leaves open. */                    \
    Tensor forward(const Tensor& input, std::optional<IntArrayRef> output_size = std::nullopt);                 \
    Tensor forward_as_any(const Tensor& input) { return forward(input); }                                       \
  };                                                                                                            \
  ATHANOR_LIBRARY_MODULE(ConvTranspose##D##d)

ATHANOR_CONV_LAYER(1);
ATHANOR_CONV_LAYER(2);
ATHANOR_CONV_LAYER(3);
#undef ATHANOR_CONV_LAYER

// Compiled once, in conv.cpp.
#define ATHANOR_CONV_BASE(D)                                              \
  extern template class ConvNdImpl<D, Conv##D##dImpl, Conv##D##dOptions>; \
  extern template class ConvNdImpl<D, ConvTranspose##D##dImpl, ConvTranspose##D##dOptions>
ATHANOR_CONV_BASE(1);
ATHANOR_CONV_BASE(2);
ATHANOR_CONV_BASE(3);
#undef ATHANOR_CONV_BASE

}  // namespace athanor::nn

namespace athanor {

namespace detail {
/// padding: "same" (the result has the input's size) or "valid". Throws ValueError for another word.
Tensor conv_by_name(std::size_t dims, const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride,
                    std::string_view padding, IntArrayRef dilation, std::int64_t groups);
}  // namespace detail

#define ATHANOR_NAMED_PADDING(D)                                                                                \
  /** With padding "same" or "valid". */                                                                        \
  template <class Name>                                                                                         \
  requires(std::is_convertible_v<Name, std::string_view>)                                                       \
      Tensor conv##D##d(const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride,      \
                        const Name& padding, IntArrayRef dilation = std::int64_t{1}, std::int64_t groups = 1) { \
    return detail::conv_by_name(D, input, weight, bias, stride, padding, dilation, groups);                     \
  }
ATHANOR_NAMED_PADDING(1)
ATHANOR_NAMED_PADDING(2)
ATHANOR_NAMED_PADDING(3)
#undef ATHANOR_NAMED_PADDING

}  // namespace athanor
