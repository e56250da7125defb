#include "athanor/nn/vision.h"

#include <cmath>

namespace athanor::nn {

namespace functional {

namespace {

/// One value for all spatial dims, or one per dim.
template <class T>
std::vector<T> per_dim(const std::vector<T>& values, std::int64_t spatial, const char* name) {
  ATHANOR_CHECK_VALUE(values.size() == 1 || static_cast<std::int64_t>(values.size()) == spatial, "interpolate: ", name,
                      " must have one value or one per spatial dimension, ", spatial, ", got ", values.size());
  return values.size() == 1 ? std::vector<T>(static_cast<std::size_t>(spatial), values[0]) : values;
}

struct Target {
  std::vector<std::int64_t> size;
  std::array<std::optional<double>, 3> scales;
};

Target target_of(const Tensor& input, const InterpolateFuncOptions& o) {
  const std::int64_t spatial = input.dim() - 2;
  ATHANOR_CHECK_VALUE(o.size() || o.scale_factor(), "interpolate: either size or scale_factor should be defined");
  ATHANOR_CHECK_VALUE(!o.size() || !o.scale_factor(),
                      "interpolate: only one of size or scale_factor should be defined");
  Target t;
  if (o.size()) {
    ATHANOR_CHECK_VALUE(!o.recompute_scale_factor().value_or(false),
                        "interpolate: recompute_scale_factor is not meaningful with an explicit size");
    t.size = per_dim(*o.size(), spatial, "size");
    return t;
  }
  const std::vector<double> scales = per_dim(*o.scale_factor(), spatial, "scale_factor");
  for (std::size_t d = 0; d < scales.size(); ++d) {
    t.size.push_back(static_cast<std::int64_t>(
        std::floor(static_cast<double>(input.size(static_cast<std::int64_t>(d) + 2)) * scales[d])));
    if (!o.recompute_scale_factor().value_or(false)) t.scales[d] = scales[d];
  }
  return t;
}

Tensor resized(const Tensor& x, const Target& t, const InterpolateFuncOptions& o) {
  const std::int64_t dims = x.dim();
  const auto& [h, w, d] = t.scales;  // of the first, second and third spatial dim
  const bool align = o.align_corners().value_or(false);
  if (o.mode() == kNearest)
    return dims == 3   ? upsample_nearest1d(x, t.size, h)
           : dims == 4 ? upsample_nearest2d(x, t.size, h, w)
                       : upsample_nearest3d(x, t.size, h, w, d);
  if (o.mode() == kNearestExact)
    return dims == 3   ? _upsample_nearest_exact1d(x, t.size, h)
           : dims == 4 ? _upsample_nearest_exact2d(x, t.size, h, w)
                       : _upsample_nearest_exact3d(x, t.size, h, w, d);
  if (o.mode() == kArea)
    return dims == 3   ? athanor::adaptive_avg_pool1d(x, t.size)
           : dims == 4 ? athanor::adaptive_avg_pool2d(x, t.size)
                       : athanor::adaptive_avg_pool3d(x, t.size);
  if (o.mode() == kLinear && dims == 3) return upsample_linear1d(x, t.size, align, h);
  if (o.mode() == kBilinear && dims == 4)
    return o.antialias() ? _upsample_bilinear2d_aa(x, t.size, align, h, w)
                         : upsample_bilinear2d(x, t.size, align, h, w);
  if (o.mode() == kBicubic && dims == 4)
    return o.antialias() ? _upsample_bicubic2d_aa(x, t.size, align, h, w) : upsample_bicubic2d(x, t.size, align, h, w);
  if (o.mode() == kTrilinear && dims == 5) return upsample_trilinear3d(x, t.size, align, h, w, d);
  ATHANOR_THROW(NotImplementedError, "interpolate: Got ", dims, "D input, but mode ", o.mode().name(),
                " needs: kLinear 3D, kBilinear and kBicubic 4D, kTrilinear 5D; (N, C, spatial…)");
}

}  // namespace

Tensor interpolate(const Tensor& input, const InterpolateFuncOptions& o) {
  ATHANOR_CHECK_VALUE(input.dim() >= 3 && input.dim() <= 5,
                      "interpolate: expected 3D, 4D or 5D input (N, C, spatial…), got ", input.dim(), "D of shape ",
                      input.sizes());
  const bool blends = o.mode() == kLinear || o.mode() == kBilinear || o.mode() == kBicubic || o.mode() == kTrilinear;
  ATHANOR_CHECK_VALUE(blends || !o.align_corners(), "interpolate: align_corners option can only be set with the ",
                      "interpolating modes: linear | bilinear | bicubic | trilinear");
  ATHANOR_CHECK_VALUE(!o.antialias() || (input.dim() == 4 && (o.mode() == kBilinear || o.mode() == kBicubic)),
                      "interpolate: antialias option is restricted to bilinear and bicubic modes and requires a 4-D ",
                      "tensor as input");
  return resized(input, target_of(input, o), o);
}

Tensor grid_sample(const Tensor& input, const Tensor& grid, const GridSampleFuncOptions& o) {
  const std::int64_t mode = o.mode() == kBilinear ? 0 : o.mode() == kNearest ? 1 : 2;
  const std::int64_t padding = o.padding_mode() == kZeros ? 0 : o.padding_mode() == kBorder ? 1 : 2;
  return grid_sampler(input, grid, mode, padding, o.align_corners().value_or(false));
}

Tensor affine_grid(const Tensor& theta, IntArrayRef size, bool align_corners) {
  return affine_grid_generator(theta, size, align_corners);
}
Tensor pixel_shuffle(const Tensor& input, const PixelShuffleFuncOptions& o) {
  return athanor::pixel_shuffle(input, o.upscale_factor());
}
Tensor pixel_unshuffle(const Tensor& input, const PixelUnshuffleFuncOptions& o) {
  return athanor::pixel_unshuffle(input, o.downscale_factor());
}
Tensor channel_shuffle(const Tensor& input, std::int64_t groups) { return athanor::channel_shuffle(input, groups); }
Tensor fold(const Tensor& input, const FoldFuncOptions& o) {
  return col2im(input, o.output_size(), o.kernel_size(), o.dilation(), o.padding(), o.stride());
}
Tensor unfold(const Tensor& input, const UnfoldFuncOptions& o) {
  return im2col(input, o.kernel_size(), o.dilation(), o.padding(), o.stride());
}

}  // namespace functional

void UpsampleImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::Upsample(";
  if (options.scale_factor()) {
    stream << "scale_factor=[";
    for (std::size_t i = 0; i < options.scale_factor()->size(); ++i)
      stream << (i ? ", " : "") << (*options.scale_factor())[i];
    stream << "]";
  } else {
    stream << "size=";
    athanor::detail::print_list(stream, options.size() ? IntArrayRef(*options.size()) : IntArrayRef());
  }
  stream << ", mode=" << options.mode().name() << ")";
}
Tensor UpsampleImpl::forward(const Tensor& input) {
  return in_module(*this, [&] {
    auto o = functional::InterpolateFuncOptions().size(options.size()).scale_factor(options.scale_factor());
    o.align_corners(options.align_corners());
    const UpsampleOptions::mode_t& m = options.mode();
    if (m == kNearestExact) o.mode(kNearestExact);
    if (m == kLinear) o.mode(kLinear);
    if (m == kBilinear) o.mode(kBilinear);
    if (m == kBicubic) o.mode(kBicubic);
    if (m == kTrilinear) o.mode(kTrilinear);
    return functional::interpolate(input, o);
  });
}

void PixelShuffleImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::PixelShuffle(upscale_factor=" << options.upscale_factor() << ")";
}
Tensor PixelShuffleImpl::forward(const Tensor& input) {
  return in_module(*this, [&] { return functional::pixel_shuffle(input, options); });
}
void PixelUnshuffleImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::PixelUnshuffle(downscale_factor=" << options.downscale_factor() << ")";
}
Tensor PixelUnshuffleImpl::forward(const Tensor& input) {
  return in_module(*this, [&] { return functional::pixel_unshuffle(input, options); });
}
void ChannelShuffleImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::ChannelShuffle(groups=" << options.groups() << ")";
}
Tensor ChannelShuffleImpl::forward(const Tensor& input) {
  return in_module(*this, [&] { return functional::channel_shuffle(input, options.groups()); });
}

namespace {

template <class Options>
void print_windows(std::ostream& stream, const Options& o) {
  stream << "kernel_size=" << o.kernel_size() << ", dilation=" << o.dilation() << ", padding=" << o.padding()
         << ", stride=" << o.stride() << ")";
}

}  // namespace

void FoldImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::Fold(output_size=" << options.output_size() << ", ";
  print_windows(stream, options);
}
Tensor FoldImpl::forward(const Tensor& input) {
  return in_module(*this, [&] { return functional::fold(input, options); });
}
void UnfoldImpl::pretty_print(std::ostream& stream) const {
  stream << "torch::nn::Unfold(";
  print_windows(stream, options);
}
Tensor UnfoldImpl::forward(const Tensor& input) {
  return in_module(*this, [&] { return functional::unfold(input, options); });
}

}  // namespace athanor::nn
