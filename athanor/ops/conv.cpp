// Convolutions over 1 to 3 spatial dimensions, plain and transposed. Each gradient is an op of this file, so that
// gradients of gradients are convolutions too.
#include "athanor/ops/conv.h"

#include "athanor/ops/autocast.h"
#include "athanor/ops/direct_gradient.h"
#include "athanor/ops/kernels/conv.h"
#include "athanor/ops/kernels/kernels_of.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/spatial.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

/// What the ops below carry between each other: the geometry without its shapes.
struct ConvArguments {
  DimVector stride, padding, dilation, output_padding;
  bool transposed = false;
  std::int64_t groups = 1;
};

ConvParams make_params(const ConvArguments& a, int spatial) {
  ConvParams p;
  p.spatial = spatial;
  p.stride = spatial_values(a.stride, spatial, "convolution", "stride");
  p.padding = spatial_values(a.padding, spatial, "convolution", "padding");
  p.dilation = spatial_values(a.dilation, spatial, "convolution", "dilation");
  p.output_padding = spatial_values(a.output_padding, spatial, "convolution", "output_padding");
  if (!a.transposed) p.output_padding = {0, 0, 0};
  p.groups = a.groups;
  p.transposed = a.transposed;
  for (int d = 0; d < spatial; ++d) {
    const auto u = static_cast<std::size_t>(d);
    ATHANOR_CHECK(p.stride[u] > 0, "convolution: non-positive stride is not supported, got ", p.stride[u]);
    ATHANOR_CHECK(p.padding[u] >= 0, "convolution: negative padding is not supported, got ", p.padding[u]);
    ATHANOR_CHECK(p.dilation[u] > 0, "convolution: dilation should be greater than zero, got ", p.dilation[u]);
    ATHANOR_CHECK(p.output_padding[u] >= 0, "convolution: negative output_padding is not supported, got ",
                  p.output_padding[u]);
    ATHANOR_CHECK(!p.transposed || p.output_padding[u] < std::max(p.stride[u], p.dilation[u]),
                  "convolution: output padding must be smaller than either stride or dilation, but got output_padding ",
                  p.output_padding[u], ", stride ", p.stride[u], ", dilation ", p.dilation[u]);
  }
  ATHANOR_CHECK(p.groups > 0, "convolution: non-positive groups is not supported, got ", p.groups);
  return p;
}

void check_channels(const Tensor& input, const Tensor& weight, const Tensor& bias, const ConvParams& p) {
  const std::int64_t in_channels = input.size(1), g = p.groups;
  if (!p.transposed) {
    ATHANOR_CHECK(weight.size(0) >= g, "convolution: Given groups=", g, ", expected weight to be at least ", g,
                  " at dimension 0, but got weight of size ", weight.sizes(), " instead");
    ATHANOR_CHECK(weight.size(0) % g == 0, "convolution: Given groups=", g, ", expected weight to be divisible by ", g,
                  " at dimension 0, but got weight of size ", weight.sizes(), " instead");
    ATHANOR_CHECK(in_channels == weight.size(1) * g, "convolution: Given groups=", g, ", weight of size ",
                  weight.sizes(), ", expected input", input.sizes(), " to have ", weight.size(1) * g,
                  " channels, but got ", in_channels, " channels instead");
  } else {
    ATHANOR_CHECK(weight.size(0) % g == 0, "convolution: Given transposed=1 and groups=", g,
                  ", expected weight of size ", weight.sizes(), " to be divisible by ", g, " at dimension 0");
    ATHANOR_CHECK(in_channels == weight.size(0), "convolution: Given transposed=1, weight of size ", weight.sizes(),
                  ", expected input", input.sizes(), " to have ", weight.size(0), " channels, but got ", in_channels,
                  " channels instead");
  }
  const std::int64_t out_channels = p.transposed ? weight.size(1) * g : weight.size(0);
  if (bias.defined()) {
    ATHANOR_CHECK(bias.dim() == 1 && bias.size(0) == out_channels, "convolution: Given ",
                  p.transposed ? "transposed=1, " : "", "weight of size ", weight.sizes(),
                  ", expected bias to be 1-dimensional with ", out_channels, " elements, but got bias of size ",
                  bias.sizes(), " instead");
    ATHANOR_CHECK(bias.dtype() == input.dtype(), "convolution: Input type (", input.dtype(), ") and bias type (",
                  bias.dtype(), ") should be the same");
  }
}

/// One spatial dim of a convolution: the padded input, the kernel and the result. Throws Error for what overflows.
struct Extent {
  std::int64_t padded, reach, out;
};
Extent extent_of(std::int64_t in, std::int64_t kernel, const ConvParams& p, std::size_t d) {
  __extension__ using Wide = __int128;
  const Wide padded = in + Wide{2} * p.padding[d], reach = Wide{p.dilation[d]} * (kernel - 1) + 1;
  const Wide out = p.transposed ? Wide{in - 1} * p.stride[d] - Wide{2} * p.padding[d] + reach + p.output_padding[d]
                                : (padded - reach) / p.stride[d] + 1;
  ATHANOR_CHECK(padded <= INT64_MAX && reach <= INT64_MAX && out <= INT64_MAX && out >= INT64_MIN,
                "convolution: no tensor can be as large as size ", in, ", kernel_size ", kernel, ", stride ",
                p.stride[d], ", padding ", p.padding[d], " and dilation ", p.dilation[d], " make it");
  return {static_cast<std::int64_t>(padded), static_cast<std::int64_t>(reach), static_cast<std::int64_t>(out)};
}

DimVector output_shape(const Tensor& input, const Tensor& weight, const ConvParams& p) {
  DimVector out{input.size(0), p.transposed ? weight.size(1) * p.groups : weight.size(0)};
  DimVector padded, reach;
  bool fits = true;
  // Kernels work on padded copies, cut by the stride.
  double elements = static_cast<double>(std::max<std::int64_t>(input.size(0) * input.size(1), 1));
  for (int i = 0; i < p.spatial; ++i) {
    const auto d = static_cast<std::size_t>(i);
    const std::int64_t in = input.size(2 + i), kernel = weight.size(2 + i);
    ATHANOR_CHECK(kernel > 0, "convolution: kernel size should be greater than zero, but got weight of size ",
                  weight.sizes());
    const Extent e = extent_of(in, kernel, p, d);
    const double step = e.out > 1 ? static_cast<double>(p.stride[d]) : 0;  // that of a single window is none
    elements *= static_cast<double>(e.padded) + static_cast<double>(e.reach) + 2 * step;
    padded.push_back(e.padded);
    reach.push_back(e.reach);
    fits = fits && (p.transposed || e.padded >= e.reach);
    out.push_back(e.out);
  }
  ATHANOR_CHECK(fits, "convolution: Calculated padded input size per channel: ", IntArrayRef(padded),
                ". Kernel size: ", IntArrayRef(reach), ". Kernel size can't be greater than actual input size");
  for (int i = 0; i < p.spatial; ++i)
    // Of a batch of none PyTorch makes a result of no size, of others an error.
    ATHANOR_CHECK(out[static_cast<std::size_t>(2 + i)] >= (p.transposed && input.size(0) > 0 ? 1 : 0),
                  "convolution: given input of size ", input.sizes(), " and weight of size ", weight.sizes(),
                  ", calculated output size ", IntArrayRef(out), " is too small");
  ATHANOR_CHECK(elements < 0x1p56, "convolution: no memory holds a padded copy of the input ", input.sizes(),
                ", with padding ", IntArrayRef(p.padding.data(), padded.size()), " and stride ",
                IntArrayRef(p.stride.data(), padded.size()));
  return out;
}

Tensor input_gradient(const Tensor& grad_output, const Tensor& weight, IntArrayRef input_size, const ConvArguments& a) {
  return convolution_backward_input(grad_output, weight, input_size, a.stride, a.padding, a.dilation, a.transposed,
                                    a.output_padding, a.groups);
}

std::tuple<Tensor, Tensor> weight_gradient(const Tensor& grad_output, const Tensor& input, IntArrayRef weight_size,
                                           const ConvArguments& a, bool with_bias) {
  return convolution_backward_weight(grad_output, input, weight_size, a.stride, a.padding, a.dilation, a.transposed,
                                     a.output_padding, a.groups, with_bias);
}

Tensor forward(const Tensor& input, const Tensor& weight, const ConvArguments& a) {
  return convolution(input, weight, Tensor(), a.stride, a.padding, a.dilation, a.transposed, a.output_padding,
                     a.groups);
}

void check_dtypes(const Tensor& input, const Tensor& weight) {
  ATHANOR_CHECK(input.defined() && weight.defined(), "convolution: expected tensors, got an undefined one");
  ATHANOR_CHECK(input.dtype() == weight.dtype(), "convolution: Input type (", input.dtype(), ") and weight type (",
                weight.dtype(), ") should be the same; convert one with .to(dtype)");
  ATHANOR_CHECK_TYPE(NotImplementedError, input.dtype() != DType::Bool, "convolution: not implemented for 'Bool'");
}

/// For the gradient ops: the three shapes must belong to one convolution.
void check_shapes(const char* op, IntArrayRef grad_output, IntArrayRef input, IntArrayRef weight, const ConvParams& p) {
  bool fits = input.size() == weight.size() && grad_output.size() == input.size() && grad_output[0] == input[0] &&
              input[1] == (p.transposed ? weight[0] : weight[1] * p.groups) && weight[0] % p.groups == 0 &&
              grad_output[1] == (p.transposed ? weight[1] * p.groups : weight[0]);
  for (std::size_t d = 0; fits && d + 2 < input.size(); ++d)
    fits = grad_output[d + 2] == extent_of(input[d + 2], weight[d + 2], p, d).out;
  ATHANOR_CHECK(fits, op, ": grad_output of size ", grad_output, ", input of size ", input, " and weight of size ",
                weight, " do not belong to one convolution with these arguments");
}

int spatial_dims(const char* op, const Tensor& t) {
  ATHANOR_CHECK(t.dim() >= 3 && t.dim() <= 5, op, ": expected (batch, channels, spatial...) with 1 to 3 spatial ",
                "dimensions, got shape ", t.sizes());
  return static_cast<int>(t.dim()) - 2;
}

/// Channels-last if an operand is.
DimVector result_strides(const Tensor& input, const Tensor& weight, IntArrayRef sizes) {
  DimVector s = layout_like(input, sizes);
  return s.empty() && input.dim() == weight.dim() && input.numel() != 0 ? layout_like(weight, sizes) : s;
}

using detail::Stored;

/// For kernels that read the weight in an order of their own; small ones are not worth it.
KeptValues kept_values(const Tensor& weight) {
  Storage& s = *weight.storage();
  if (weight.numel() < 4096 || !s.is_followed()) return {};
  return {IntrusivePtr<KeptForms>(&s.kept_forms()), s.changes()};
}

/// Channels per block in which a call takes its activations; 0: plain. The first two are its operands.
int block_for(ConvPass pass, const Tensor& input, const Tensor& other, IntArrayRef x, IntArrayRef weight, IntArrayRef y,
              const ConvParams& params) {
  if (params.spatial != 2 || params.transposed || !input.is_contiguous() || !other.is_contiguous()) return 0;
  int block = std::max(detail::hidden_block(input), detail::hidden_block(other));
  conv_layout_kernel.get(kernels_of(input.device()))(block, pass, input.dtype(), x, weight, y, params);
  return block;
}

Meta made_in_blocks(Meta m, int block) {
  if (hidden_layouts_enabled()) m.block = static_cast<std::int16_t>(block);
  return m;
}

}  // namespace

/// The general convolution over a batch (batch, channels, spatial…); a transposed one is conv_transpose.
struct Convolution : ConvArguments, Autocast<AutocastTo::Lower> {
  ATHANOR_OP(
      "convolution(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, "
      "bool transposed, int[] output_padding, int groups) -> Tensor");
  static constexpr bool accepts_hidden = true;
  SavedTensor x, w;
  ConvParams params;
  DimVector input_size, weight_size;
  int block = 0;
  Meta infer(const Tensor& input, const Tensor& weight, const Tensor& bias) {
    check_dtypes(input, weight);
    const int spatial = spatial_dims("convolution", input);
    ATHANOR_CHECK(weight.dim() == input.dim(), "Expected ", weight.dim(), "-dimensional input for ", weight.dim(),
                  "-dimensional weight ", weight.sizes(), ", but got ", input.dim(), "-dimensional input of size ",
                  input.sizes(), " instead");
    params = make_params(*this, spatial);
    check_channels(input, weight, bias, params);
    input_size = DimVector(input.sizes());
    weight_size = DimVector(weight.sizes());
    const DimVector sizes = output_shape(input, weight, params);
    block = block_for(ConvPass::Forward, input, weight, input_size, weight_size, sizes, params);
    return made_in_blocks({sizes, input.dtype(), input.device(), result_strides(input, weight, sizes)}, block);
  }
  void run(const Tensor& out, const Tensor& input, const Tensor& weight, const Tensor& bias) {
    params.kept = kept_values(weight);
    if (block)
      launch(conv_forward_kernel, Stored(out), Stored(input), weight, bias, params, Epilogue::None);
    else
      launch(conv_forward_kernel, out, input, weight, bias, params, Epilogue::None);
  }
  void save(const Node& n, const Tensor& input, const Tensor& weight, const Tensor&) {
    if (n.needs(1)) x.save(input);
    if (n.needs(0)) w.save(weight);
  }
  bool add_weight_gradient(GradCall& g);
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, input_gradient(g.grad(), g.get(w), input_size, *this));
    if (g.needs(1) && !g.needs(2) && add_weight_gradient(g)) return;
    if (g.needs(1)) {
      auto [dw, db] = weight_gradient(g.grad(), g.get(x), weight_size, *this, g.needs(2));
      g.set(1, std::move(dw));
      if (g.needs(2)) g.set(2, std::move(db));
    } else if (g.needs(2)) {
      DimVector dims{0};
      for (std::int64_t d = 2; d < g.grad().dim(); ++d) dims.push_back(d);
      g.set(2, sum(g.grad(), IntArrayRef(dims), false, std::nullopt));
    }
  }
};

/// The gradient of convolution with respect to its input. Linear in both tensors.
struct ConvolutionBackwardInput : ConvArguments {
  ATHANOR_OP(
      "convolution_backward_input(Tensor grad_output, Tensor weight, int[] input_size, int[] stride, int[] padding, "
      "int[] dilation, bool transposed, int[] output_padding, int groups) -> Tensor");
  static constexpr const char* grad_name = "ConvolutionBackwardBackward0";
  static constexpr bool accepts_hidden = true;
  DimVector input_size;
  SavedTensor dy, w;
  ConvParams params;
  DimVector weight_size;
  int block = 0;
  Meta infer(const Tensor& grad_output, const Tensor& weight) {
    check_dtypes(grad_output, weight);
    params = make_params(*this, spatial_dims("convolution_backward_input", weight));
    check_shapes("convolution_backward_input", grad_output.sizes(), input_size, weight.sizes(), params);
    weight_size = DimVector(weight.sizes());
    block = block_for(ConvPass::Input, grad_output, weight, input_size, weight_size, grad_output.sizes(), params);
    return made_in_blocks(
        {input_size, weight.dtype(), weight.device(), result_strides(grad_output, weight, input_size)}, block);
  }
  void run(const Tensor& out, const Tensor& grad_output, const Tensor& weight) {
    params.kept = kept_values(weight);
    if (block)
      launch(conv_backward_input_kernel, Stored(out), Stored(grad_output), weight, params);
    else
      launch(conv_backward_input_kernel, out, grad_output, weight, params);
  }
  void save(const Node& n, const Tensor& grad_output, const Tensor& weight) {
    if (n.needs(1)) dy.save(grad_output);
    if (n.needs(0)) w.save(weight);
  }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, forward(g.grad(), g.get(w), *this));
    if (g.needs(1)) g.set(1, std::get<0>(weight_gradient(g.get(dy), g.grad(), weight_size, *this, false)));
  }
};

/// The gradients of convolution with respect to weight and, if asked for, bias. Linear in both tensors.
struct ConvolutionBackwardWeight : ConvArguments {
  ATHANOR_OP(
      "convolution_backward_weight(Tensor grad_output, Tensor input, int[] weight_size, int[] stride, int[] padding, "
      "int[] dilation, bool transposed, int[] output_padding, int groups, bool with_bias) -> (Tensor, Tensor)");
  static constexpr const char* grad_name = "ConvolutionBackwardBackward0";
  static constexpr bool accepts_hidden = true;
  DimVector weight_size;
  bool with_bias = false;
  SavedTensor dy, x;
  ConvParams params;
  DimVector input_size, output_size;
  int block = 0;
  std::array<Meta, 2> infer(const Tensor& grad_output, const Tensor& input) {
    check_dtypes(grad_output, input);
    params = make_params(*this, spatial_dims("convolution_backward_weight", input));
    check_shapes("convolution_backward_weight", grad_output.sizes(), input.sizes(), weight_size, params);
    input_size = DimVector(input.sizes());
    output_size = DimVector(grad_output.sizes());
    block = block_for(ConvPass::Weight, grad_output, input, input_size, weight_size, output_size, params);
    std::array<Meta, 2> m;
    m[0] = {weight_size, input.dtype(), input.device(), {}};
    if (with_bias) m[1] = {{grad_output.size(1)}, input.dtype(), input.device(), {}};
    return m;
  }
  void run(const Tensor& dw, const Tensor& db, const Tensor& grad_output, const Tensor& input) {
    if (block)
      launch<2>(conv_backward_weight_kernel, dw, db, Stored(grad_output), Stored(input), params, Tensor());
    else
      launch<2>(conv_backward_weight_kernel, dw, db, grad_output, input, params, Tensor());
  }
  /// Adds the weight's gradient to `sum` without making a tensor of it.
  void add_to(const Tensor& sum, const Tensor& grad_output, const Tensor& input) {
    infer(grad_output, input);
    if (block)
      launch<2>(conv_backward_weight_kernel, sum, Tensor(), Stored(grad_output), Stored(input), params, sum);
    else
      launch<2>(conv_backward_weight_kernel, sum, Tensor(), grad_output, input, params, sum);
    sum.impl()->bump_version();
  }
  void save(const Node& n, const Tensor& grad_output, const Tensor& input) {
    if (n.needs(1)) dy.save(grad_output);
    if (n.needs(0)) x.save(input);
  }
  void grad(GradCall& g) {
    if (g.needs(1) && g.has(0)) g.set(1, input_gradient(g.get(dy), g.grad(0), input_size, *this));
    if (!g.needs(0)) return;
    Tensor d;
    if (g.has(0)) d = forward(g.get(x), g.grad(0), *this);
    if (g.has(1)) {
      DimVector shape(output_size.size(), 1);
      shape[1] = output_size[1];
      const Tensor per_channel = expand(reshape(g.grad(1), shape), output_size);
      d = d.defined() ? add(d, per_channel) : per_channel;
    }
    g.set(0, std::move(d));
  }
};

/// Adds to the weight's .grad, if that may be done here: true, and nothing is left to do.
bool Convolution::add_weight_gradient(GradCall& g) {
  const DirectGradient to = direct_gradient(*g.node(), 1);
  const Tensor input = g.get(x);
  if (!to || g.grad().device() != to.grad.device() || input.dtype() != to.grad.dtype()) return false;
  ConvolutionBackwardWeight op;
  static_cast<ConvArguments&>(op) = static_cast<const ConvArguments&>(*this);
  op.weight_size = weight_size;
  op.add_to(to.grad, g.grad(), input);
  return true;
}

namespace {

Tensor convolve(const char* op, int spatial, const Tensor& input, const Tensor& weight, const Tensor& bias,
                IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
                IntArrayRef output_padding, std::int64_t groups) {
  ATHANOR_CHECK(input.defined() && weight.defined(), op, ": expected tensors, got an undefined one");
  ATHANOR_CHECK(input.dim() == spatial + 1 || input.dim() == spatial + 2, "Expected ", spatial + 1, "D (unbatched) or ",
                spatial + 2, "D (batched) input to ", op, ", but got input of size: ", input.sizes());
  ATHANOR_CHECK(weight.dim() == spatial + 2, op, ": expected ", spatial + 2, "-dimensional weight, got shape ",
                weight.sizes());
  for (auto [values, name] : {std::pair(stride, "stride"), std::pair(padding, "padding"),
                              std::pair(dilation, "dilation"), std::pair(output_padding, "output_padding")})
    spatial_values(values, spatial, op, name);
  const bool batched = input.dim() == spatial + 2;
  const Tensor out = convolution(batched ? input : unsqueeze(input, 0), weight, bias, stride, padding, dilation,
                                 transposed, output_padding, groups);
  return batched ? out : squeeze(out, 0);
}

}  // namespace

/// input (batch, in_channels, length) or without batch; weight (out_channels, in_channels / groups, kernel).
ATHANOR_FUNCTION(
    "conv1d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, int[] dilation=1, "
    "int groups=1) -> Tensor");
Tensor conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride, IntArrayRef padding,
              IntArrayRef dilation, std::int64_t groups) {
  return convolve("conv1d", 1, input, weight, bias, stride, padding, dilation, false, 0, groups);
}

/// input (batch, in_channels, height, width) or without batch; weight (out_channels, in_channels / groups, kh, kw).
ATHANOR_FUNCTION(
    "conv2d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, int[] dilation=1, "
    "int groups=1) -> Tensor");
Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride, IntArrayRef padding,
              IntArrayRef dilation, std::int64_t groups) {
  return convolve("conv2d", 2, input, weight, bias, stride, padding, dilation, false, 0, groups);
}

/// Cross-correlation of input, (N, C, D, H, W) or without N, with weight, (out, C / groups, kD, kH, kW).
ATHANOR_FUNCTION(
    "conv3d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, int[] dilation=1, "
    "int groups=1) -> Tensor");
Tensor conv3d(const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride, IntArrayRef padding,
              IntArrayRef dilation, std::int64_t groups) {
  return convolve("conv3d", 3, input, weight, bias, stride, padding, dilation, false, 0, groups);
}

/// weight (in_channels, out_channels / groups, kernel).
ATHANOR_FUNCTION(
    "conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, "
    "int[] output_padding=0, int groups=1, int[] dilation=1) -> Tensor");
Tensor conv_transpose1d(const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride,
                        IntArrayRef padding, IntArrayRef output_padding, std::int64_t groups, IntArrayRef dilation) {
  return convolve("conv_transpose1d", 1, input, weight, bias, stride, padding, dilation, true, output_padding, groups);
}

/// The gradient of conv2d as a layer: input, (N, C, H, W) or without N, weight, (C, out / groups, kH, kW).
ATHANOR_FUNCTION(
    "conv_transpose2d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, "
    "int[] output_padding=0, int groups=1, int[] dilation=1) -> Tensor");
Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride,
                        IntArrayRef padding, IntArrayRef output_padding, std::int64_t groups, IntArrayRef dilation) {
  return convolve("conv_transpose2d", 2, input, weight, bias, stride, padding, dilation, true, output_padding, groups);
}

/// The gradient of conv3d as a layer: input, (N, C, D, H, W) or without N, weight, (C, out / groups, kD, kH, kW).
ATHANOR_FUNCTION(
    "conv_transpose3d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, "
    "int[] output_padding=0, int groups=1, int[] dilation=1) -> Tensor");
Tensor conv_transpose3d(const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride,
                        IntArrayRef padding, IntArrayRef output_padding, std::int64_t groups, IntArrayRef dilation) {
  return convolve("conv_transpose3d", 3, input, weight, bias, stride, padding, dilation, true, output_padding, groups);
}

}  // namespace athanor::ops

#include "athanor/ops/conv.glue.inc"
