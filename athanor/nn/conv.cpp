#include "athanor/nn/conv.h"

#include "athanor/nn/init.h"

namespace athanor::nn {

using detail::ConvGeometry;

namespace {

Tensor call_conv(std::size_t dims, const Tensor& x, const Tensor& w, const Tensor& b, const ConvGeometry& g,
                 IntArrayRef padding) {
  if (g.transposed) {
    if (dims == 1) return athanor::conv_transpose1d(x, w, b, g.stride, padding, g.output_padding, g.groups, g.dilation);
    if (dims == 2) return athanor::conv_transpose2d(x, w, b, g.stride, padding, g.output_padding, g.groups, g.dilation);
    return athanor::conv_transpose3d(x, w, b, g.stride, padding, g.output_padding, g.groups, g.dilation);
  }
  if (dims == 1) return athanor::conv1d(x, w, b, g.stride, padding, g.dilation, g.groups);
  if (dims == 2) return athanor::conv2d(x, w, b, g.stride, padding, g.dilation, g.groups);
  return athanor::conv3d(x, w, b, g.stride, padding, g.dilation, g.groups);
}

/// What "same" adds before and after each spatial dim, in the order of functional::pad.
std::vector<std::int64_t> same_padding(const Tensor& weight, const ConvGeometry& g) {
  std::vector<std::int64_t> out;
  for (std::int64_t d = weight.dim() - 1; d >= 2; --d) {
    const std::int64_t dilation = g.dilation[static_cast<std::size_t>(d - 2)];
    std::int64_t total = 0;
    ATHANOR_CHECK(!__builtin_mul_overflow(dilation, weight.size(d) - 1, &total), g.op,
                  ": no tensor can be as large as kernel_size ", weight.size(d), " and dilation ", dilation,
                  " make it");
    out.push_back(total / 2);
    out.push_back(total - total / 2);
  }
  return out;
}

Tensor convolve(std::size_t dims, const Tensor& input, const Tensor& weight, const Tensor& bias,
                const ConvGeometry& g) {
  if (!g.padding_name || std::string_view(g.padding_name) == "valid")
    return call_conv(dims, input, weight, bias, g, g.padding);
  for (const std::int64_t s : g.stride)
    ATHANOR_CHECK(s == 1, g.op, ": padding='same' is not supported for strided convolutions, got stride ", g.stride);
  ATHANOR_CHECK(weight.dim() == static_cast<std::int64_t>(dims) + 2, g.op, ": expected ", dims + 2,
                "-dimensional weight, got shape ", weight.sizes());
  std::vector<std::int64_t> pad = same_padding(weight, g), common(dims);
  bool even = true;
  for (std::size_t i = 0; i < dims; ++i) {
    common[dims - 1 - i] = pad[2 * i];
    even = even && pad[2 * i] == pad[2 * i + 1];
    pad[2 * i + 1] -= pad[2 * i];
    pad[2 * i] = 0;
  }
  // What one side needs beyond the other is padded apart.
  return call_conv(dims, even ? input : constant_pad_nd(input, pad, 0), weight, bias, g, common);
}

template <std::size_t D>
Tensor conv_with(const char* op, const Tensor& input, const Tensor& weight, const functional::ConvFuncOptions<D>& o) {
  return convolve(D, input, weight, o.bias(),
                  {op, o.stride(), o.padding().values(), o.dilation(), {}, o.padding().name(), o.groups(), false});
}
template <std::size_t D>
Tensor conv_transpose_with(const char* op, const Tensor& input, const Tensor& weight,
                           const functional::ConvTransposeFuncOptions<D>& o) {
  return convolve(D, input, weight, o.bias(),
                  {op, o.stride(), o.padding(), o.dilation(), o.output_padding(), nullptr, o.groups(), true});
}

}  // namespace

namespace functional {
Tensor conv1d(const Tensor& input, const Tensor& weight, const Conv1dFuncOptions& options) {
  return conv_with<1>("conv1d", input, weight, options);
}
Tensor conv2d(const Tensor& input, const Tensor& weight, const Conv2dFuncOptions& options) {
  return conv_with<2>("conv2d", input, weight, options);
}
Tensor conv3d(const Tensor& input, const Tensor& weight, const Conv3dFuncOptions& options) {
  return conv_with<3>("conv3d", input, weight, options);
}
Tensor conv_transpose1d(const Tensor& input, const Tensor& weight, const ConvTranspose1dFuncOptions& options) {
  return conv_transpose_with<1>("conv_transpose1d", input, weight, options);
}
Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const ConvTranspose2dFuncOptions& options) {
  return conv_transpose_with<2>("conv_transpose2d", input, weight, options);
}
Tensor conv_transpose3d(const Tensor& input, const Tensor& weight, const ConvTranspose3dFuncOptions& options) {
  return conv_transpose_with<3>("conv_transpose3d", input, weight, options);
}
}  // namespace functional

template <std::size_t D, class Derived, class Options>
void ConvNdImpl<D, Derived, Options>::reset() {
  const std::int64_t in = options.in_channels(), out = options.out_channels(), groups = options.groups();
  ATHANOR_CHECK(in > 0 && groups > 0 && out > 0, "in_channels, groups and out_channels must be a positive integer, ",
                "got ", in, ", ", groups, " and ", out);
  ATHANOR_CHECK(in % groups == 0, "in_channels must be divisible by groups, got ", in, " and ", groups);
  ATHANOR_CHECK(out % groups == 0, "out_channels must be divisible by groups, got ", out, " and ", groups);
  if constexpr (kTransposed) {
    ATHANOR_CHECK_VALUE(options.padding_mode() == kZeros, "Only \"zeros\" padding mode is supported for ConvTranspose",
                        D, "d");
  } else if (options.padding().name() && std::string_view(options.padding().name()) == "same") {
    for (const std::int64_t s : *options.stride())
      ATHANOR_CHECK(s == 1, "padding='same' is not supported for strided convolutions, got stride ",
                    IntArrayRef(options.stride()));
  }
  DimVector sizes{kTransposed ? in : out, (kTransposed ? out : in) / groups};
  for (const std::int64_t k : *options.kernel_size()) sizes.push_back(k);
  weight = this->register_parameter("weight", empty(sizes));
  bias = this->register_parameter("bias", options.bias() ? empty({out}) : Tensor());
  reset_parameters();
}

template <std::size_t D, class Derived, class Options>
void ConvNdImpl<D, Derived, Options>::reset_parameters() {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  init::fan_in_uniform_(bias, weight);
}

namespace {

bool all_are(IntArrayRef values, std::int64_t v) {
  return std::all_of(values.begin(), values.end(), [v](std::int64_t x) { return x == v; });
}

}  // namespace

template <std::size_t D, class Derived, class Options>
void ConvNdImpl<D, Derived, Options>::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::Conv" << (kTransposed ? "Transpose" : "") << D << "d(" << options.in_channels() << ", "
         << options.out_channels() << ", kernel_size=" << options.kernel_size() << ", stride=" << options.stride();
  if constexpr (kTransposed) {
    if (!all_are(options.padding(), 0)) stream << ", padding=" << options.padding();
  } else if (options.padding().name()) {
    stream << ", padding='" << options.padding().name() << "'";
  } else if (!all_are(options.padding().values(), 0)) {
    stream << ", padding=" << ExpandingArray<D>(options.padding().values());
  }
  if (!all_are(options.dilation(), 1)) stream << ", dilation=" << options.dilation();
  if constexpr (kTransposed)
    if (!all_are(options.output_padding(), 0)) stream << ", output_padding=" << options.output_padding();
  if (options.groups() != 1) stream << ", groups=" << options.groups();
  if (!options.bias()) stream << ", bias=false";
  if (!(options.padding_mode() == kZeros)) stream << ", padding_mode=" << options.padding_mode().name();
  stream << ")";
}

namespace {

template <std::size_t D>
Tensor forward_conv(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias,
                    const ConvOptions<D>& o) {
  ConvGeometry g{op, o.stride(), o.padding().values(), o.dilation(), {}, o.padding().name(), o.groups(), false};
  if (o.padding_mode() == kZeros) return convolve(D, input, weight, bias, g);
  std::vector<std::int64_t> pad;
  if (o.padding().name() && std::string_view(o.padding().name()) == "same") {
    pad = same_padding(weight, g);
  } else {
    for (std::size_t d = D; d-- > 0;) pad.insert(pad.end(), 2, o.padding().values()[d]);
  }
  using Mode = functional::PadFuncOptions::mode_t;
  const Mode mode = o.padding_mode() == kReflect     ? Mode(kReflect)
                    : o.padding_mode() == kReplicate ? Mode(kReplicate)
                                                     : Mode(kCircular);
  const std::vector<std::int64_t> none(D, 0);
  g.padding = none;
  g.padding_name = nullptr;
  return convolve(D, functional::pad(input, functional::PadFuncOptions(std::move(pad)).mode(mode)), weight, bias, g);
}

/// The output_padding that makes the result `output_size`.
template <std::size_t D>
std::array<std::int64_t, D> output_padding_for(const Tensor& input, IntArrayRef output_size,
                                               const ConvTransposeOptions<D>& o) {
  const std::size_t extra = output_size.size() == D + 2 ? 2 : output_size.size() == D + 1 ? 1 : 0;
  ATHANOR_CHECK_VALUE(output_size.size() == D + extra, "output_size must have ", D, " or ", D + 2, " elements (got ",
                      output_size.size(), ")");
  std::array<std::int64_t, D> out{};
  for (std::size_t d = 0; d < D; ++d) {
    const std::int64_t in = input.size(static_cast<std::int64_t>(d) - static_cast<std::int64_t>(D));
    const std::int64_t least =
        (in - 1) * (*o.stride())[d] - 2 * (*o.padding())[d] + (*o.dilation())[d] * ((*o.kernel_size())[d] - 1) + 1;
    out[d] = output_size[d + extra] - least;
    ATHANOR_CHECK_VALUE(out[d] >= 0 && out[d] < (*o.stride())[d], "requested an output size of ", output_size,
                        ", but valid sizes of dimension ", d, " range from ", least, " to ",
                        least + (*o.stride())[d] - 1, " (for an input of ", input.sizes(), ")");
  }
  return out;
}

template <std::size_t D>
Tensor forward_transpose(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias,
                         const ConvTransposeOptions<D>& o, std::optional<IntArrayRef> output_size) {
  const std::array<std::int64_t, D> output_padding =
      output_size ? output_padding_for<D>(input, *output_size, o) : *o.output_padding();
  return convolve(D, input, weight, bias,
                  {op, o.stride(), o.padding(), o.dilation(), output_padding, nullptr, o.groups(), true});
}

}  // namespace

#define ATHANOR_CONV_LAYER(D)                                                                              \
  template class ConvNdImpl<D, Conv##D##dImpl, Conv##D##dOptions>;                                         \
  template class ConvNdImpl<D, ConvTranspose##D##dImpl, ConvTranspose##D##dOptions>;                       \
  Tensor Conv##D##dImpl::forward(const Tensor& input) {                                                    \
    return in_module(*this, [&] { return forward_conv<D>("conv" #D "d", input, weight, bias, options); }); \
  }                                                                                                        \
  Tensor ConvTranspose##D##dImpl::forward(const Tensor& input, std::optional<IntArrayRef> output_size) {   \
    return in_module(*this, [&] {                                                                          \
      return forward_transpose<D>("conv_transpose" #D "d", input, weight, bias, options, output_size);     \
    });                                                                                                    \
  }

ATHANOR_CONV_LAYER(1)
ATHANOR_CONV_LAYER(2)
ATHANOR_CONV_LAYER(3)

}  // namespace athanor::nn

namespace athanor {

Tensor detail::conv_by_name(std::size_t dims, const Tensor& input, const Tensor& weight, const Tensor& bias,
                            IntArrayRef stride, std::string_view padding, IntArrayRef dilation, std::int64_t groups) {
  static constexpr const char* kNames[] = {"conv1d", "conv2d", "conv3d"};
  const char* op = kNames[dims - 1];
  ATHANOR_CHECK_VALUE(padding == "same" || padding == "valid", op, ": padding is '", padding,
                      "', expected 'same', 'valid' or numbers");
  const std::vector<std::int64_t> strides = stride.size() == 1 ? std::vector(dims, stride[0]) : stride.vec();
  const std::vector<std::int64_t> dilations = dilation.size() == 1 ? std::vector(dims, dilation[0]) : dilation.vec();
  ATHANOR_CHECK(strides.size() == dims && dilations.size() == dims, op, ": expected stride and dilation of one or ",
                dims, " numbers, got ", stride, " and ", dilation);
  const std::vector<std::int64_t> none(dims, 0);
  return nn::convolve(dims, input, weight, bias,
                      {op, strides, none, dilations, {}, padding == "same" ? "same" : "valid", groups, false});
}
#undef ATHANOR_CONV_LAYER

}  // namespace athanor
