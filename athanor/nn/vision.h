#pragma once
/// Resizing, sampling and rearranging of images: Upsample, PixelShuffle, PixelUnshuffle, ChannelShuffle, Fold, Unfold,
/// and functional::interpolate, grid_sample, affine_grid.

#include "athanor/nn/any.h"
#include "athanor/nn/cloneable.h"
#include "athanor/nn/options.h"

namespace athanor::nn {

/// One of size and scale_factor must be given. align_corners (linear modes): outermost elements coincide.
struct UpsampleOptions {
  using mode_t = enumtype::OneOf<enumtype::kNearest, enumtype::kNearestExact, enumtype::kLinear, enumtype::kBilinear,
                                 enumtype::kBicubic, enumtype::kTrilinear>;
  ATHANOR_ARG(std::optional<std::vector<std::int64_t>>, size) = std::nullopt;
  ATHANOR_ARG(std::optional<std::vector<double>>, scale_factor) = std::nullopt;
  ATHANOR_ARG(mode_t, mode) = kNearest;
  ATHANOR_ARG(std::optional<bool>, align_corners) = std::nullopt;
};
struct PixelShuffleOptions {
  PixelShuffleOptions(std::int64_t upscale_factor) : upscale_factor_(upscale_factor) {}
  ATHANOR_ARG(std::int64_t, upscale_factor);
};
struct PixelUnshuffleOptions {
  PixelUnshuffleOptions(std::int64_t downscale_factor) : downscale_factor_(downscale_factor) {}
  ATHANOR_ARG(std::int64_t, downscale_factor);
};
struct ChannelShuffleOptions {
  ChannelShuffleOptions(std::int64_t groups) : groups_(groups) {}
  ATHANOR_ARG(std::int64_t, groups);
};
struct FoldOptions {
  FoldOptions(ExpandingArray<2> output_size, ExpandingArray<2> kernel_size)
      : output_size_(output_size), kernel_size_(kernel_size) {}
  ATHANOR_ARG(ExpandingArray<2>, output_size);
  ATHANOR_ARG(ExpandingArray<2>, kernel_size);
  ATHANOR_ARG(ExpandingArray<2>, dilation) = 1;
  ATHANOR_ARG(ExpandingArray<2>, padding) = 0;
  ATHANOR_ARG(ExpandingArray<2>, stride) = 1;
};
struct UnfoldOptions {
  UnfoldOptions(ExpandingArray<2> kernel_size) : kernel_size_(kernel_size) {}
  ATHANOR_ARG(ExpandingArray<2>, kernel_size);
  ATHANOR_ARG(ExpandingArray<2>, dilation) = 1;
  ATHANOR_ARG(ExpandingArray<2>, padding) = 0;
  ATHANOR_ARG(ExpandingArray<2>, stride) = 1;
};

namespace functional {

/// recompute_scale_factor: sources are placed by the sizes alone, not by scale_factor. antialias: kBilinear and
/// kBicubic take in all sources when shrinking.
struct InterpolateFuncOptions {
  using mode_t = enumtype::OneOf<enumtype::kNearest, enumtype::kNearestExact, enumtype::kLinear, enumtype::kBilinear,
                                 enumtype::kBicubic, enumtype::kTrilinear, enumtype::kArea>;
  ATHANOR_ARG(std::optional<std::vector<std::int64_t>>, size) = std::nullopt;
  ATHANOR_ARG(std::optional<std::vector<double>>, scale_factor) = std::nullopt;
  ATHANOR_ARG(mode_t, mode) = kNearest;
  ATHANOR_ARG(std::optional<bool>, align_corners) = std::nullopt;
  ATHANOR_ARG(std::optional<bool>, recompute_scale_factor) = std::nullopt;
  ATHANOR_ARG(bool, antialias) = false;
};
struct GridSampleFuncOptions {
  using mode_t = enumtype::OneOf<enumtype::kBilinear, enumtype::kNearest, enumtype::kBicubic>;
  using padding_mode_t = enumtype::OneOf<enumtype::kZeros, enumtype::kBorder, enumtype::kReflection>;
  ATHANOR_ARG(mode_t, mode) = kBilinear;
  ATHANOR_ARG(padding_mode_t, padding_mode) = kZeros;
  ATHANOR_ARG(std::optional<bool>, align_corners) = std::nullopt;
};
using PixelShuffleFuncOptions = PixelShuffleOptions;
using PixelUnshuffleFuncOptions = PixelUnshuffleOptions;
using FoldFuncOptions = FoldOptions;
using UnfoldFuncOptions = UnfoldOptions;

/// input (N, C, spatial…) resized to `size` or by `scale_factor`, each one value for all spatial dims or one per dim.
Tensor interpolate(const Tensor& input, const InterpolateFuncOptions& options = {});
/// input read at the points of grid; see athanor::grid_sampler. align_corners is false unless given.
Tensor grid_sample(const Tensor& input, const Tensor& grid, const GridSampleFuncOptions& options = {});
/// The grid that carries a result of `size` (N, C, spatial…) through the affine maps theta.
Tensor affine_grid(const Tensor& theta, IntArrayRef size, bool align_corners = false);
Tensor pixel_shuffle(const Tensor& input, const PixelShuffleFuncOptions& options);
Tensor pixel_unshuffle(const Tensor& input, const PixelUnshuffleFuncOptions& options);
Tensor channel_shuffle(const Tensor& input, std::int64_t groups);
/// Columns (N, C kh kw, windows) added up to images (N, C, H, W).
Tensor fold(const Tensor& input, const FoldFuncOptions& options);
/// The windows of images as columns.
Tensor unfold(const Tensor& input, const UnfoldFuncOptions& options);

}  // namespace functional

#define ATHANOR_VISION_LAYER(Name)                                              \
  class Name##Impl : public Cloneable<Name##Impl> {                             \
   public:                                                                      \
    explicit Name##Impl(Name##Options options) : options(std::move(options)) {} \
    void reset() override {}                                                    \
    void pretty_print(std::ostream& stream) const override;                     \
    Tensor forward(const Tensor& input);                                        \
    Name##Options options;                                                      \
  };                                                                            \
  ATHANOR_LIBRARY_MODULE(Name)

ATHANOR_VISION_LAYER(Upsample);
ATHANOR_VISION_LAYER(PixelShuffle);
ATHANOR_VISION_LAYER(PixelUnshuffle);
ATHANOR_VISION_LAYER(ChannelShuffle);
class UnfoldImpl : public Cloneable<UnfoldImpl> {
 public:
  UnfoldImpl(ExpandingArray<2> kernel_size) : options(kernel_size) {}
  explicit UnfoldImpl(const UnfoldOptions& options) : options(options) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);
  UnfoldOptions options;
};
ATHANOR_LIBRARY_MODULE(Unfold);
#undef ATHANOR_VISION_LAYER

class FoldImpl : public Cloneable<FoldImpl> {
 public:
  FoldImpl(ExpandingArray<2> output_size, ExpandingArray<2> kernel_size) : options(output_size, kernel_size) {}
  explicit FoldImpl(const FoldOptions& options) : options(options) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input);
  FoldOptions options;
};
ATHANOR_LIBRARY_MODULE(Fold);

}  // namespace athanor::nn
