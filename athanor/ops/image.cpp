// Rearrangements of images: pixel and channel shuffles, windows to columns and back.
#include "athanor/ops/image.h"

#include "athanor/ops/copy.h"
#include "athanor/ops/kept_strides.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pad.h"
#include "athanor/ops/reshape.h"
#include "athanor/ops/spatial.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

DimVector leading(const Tensor& t, std::int64_t last) {
  return DimVector(t.sizes().slice(0, static_cast<std::size_t>(t.dim() - last)));
}

void append(DimVector& to, std::initializer_list<std::int64_t> values) {
  for (const std::int64_t v : values) to.push_back(v);
}

/// The dims 0 … n - 1, then n + each of `last`.
Tensor permute_last(const Tensor& t, std::int64_t n, std::initializer_list<std::int64_t> last) {
  DimVector order;
  for (std::int64_t d = 0; d < n; ++d) order.push_back(d);
  for (const std::int64_t d : last) order.push_back(n + d);
  return permute(t, order);
}

}  // namespace

/// (…, C r², H, W) to (…, C, H r, W r): sub-pixel convolution's last step (Shi et al., CVPR 2016).
ATHANOR_FUNCTION("pixel_shuffle(Tensor self, int upscale_factor) -> Tensor");
Tensor pixel_shuffle(const Tensor& self, std::int64_t upscale_factor) {
  const std::int64_t r = upscale_factor;
  ATHANOR_CHECK(self.defined() && self.dim() >= 3,
                "pixel_shuffle expects input to have at least 3 dimensions, but got ", "input with ",
                self.defined() ? self.dim() : 0, " dimension(s)");
  ATHANOR_CHECK(r > 0, "pixel_shuffle expects a positive upscale_factor, but got ", r);
  const std::int64_t channels = self.size(-3), h = self.size(-2), w = self.size(-1);
  ATHANOR_CHECK(channels % (r * r) == 0,
                "pixel_shuffle expects its input's 'channel' dimension to be divisible by the ",
                "square of upscale_factor, but input.size(-3)=", channels, " is not divisible by ", r * r);
  DimVector split = leading(self, 3), out = split;
  append(split, {channels / (r * r), r, r, h, w});
  append(out, {channels / (r * r), h * r, w * r});
  return reshape(permute_last(reshape(self, split), self.dim() - 3, {0, 3, 1, 4, 2}), out);
}

/// The inverse of pixel_shuffle.
ATHANOR_FUNCTION("pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor");
Tensor pixel_unshuffle(const Tensor& self, std::int64_t downscale_factor) {
  const std::int64_t r = downscale_factor;
  ATHANOR_CHECK(self.defined() && self.dim() >= 3, "pixel_unshuffle expects input to have at least 3 dimensions, but ",
                "got input with ", self.defined() ? self.dim() : 0, " dimension(s)");
  ATHANOR_CHECK(r > 0, "pixel_unshuffle expects a positive downscale_factor, but got ", r);
  const std::int64_t channels = self.size(-3), h = self.size(-2), w = self.size(-1);
  ATHANOR_CHECK(h % r == 0 && w % r == 0, "pixel_unshuffle expects height and width to be divisible by ",
                "downscale_factor, but input of shape ", self.sizes(), " is not divisible by ", r);
  DimVector split = leading(self, 3), out = split;
  append(split, {channels, h / r, r, w / r, r});
  append(out, {channels * r * r, h / r, w / r});
  return in_format_of(self, reshape(permute_last(reshape(self, split), self.dim() - 3, {0, 2, 4, 1, 3}), out));
}

/// Channels (dim 1), seen as (groups, n), become (n, groups).
ATHANOR_FUNCTION("channel_shuffle(Tensor self, int groups) -> Tensor | function");
Tensor channel_shuffle(const Tensor& self, std::int64_t groups) {
  ATHANOR_CHECK(self.defined() && self.dim() > 2, "channel_shuffle expects input with > 2 dims, but got input with ",
                self.defined() ? self.dim() : 0, " dimension(s)");
  const std::int64_t channels = self.size(1);
  ATHANOR_CHECK(groups > 0 && channels % groups == 0,
                "channel_shuffle: number of channels must be divisible by groups. ", "Got ", channels, " channels and ",
                groups, " groups.");
  return in_format_of(self, reshape(transpose(unflatten(self, 1, {groups, channels / groups}), 1, 2), self.sizes()));
}

namespace {

/// Windows of an image: sizes per axis, of two.
struct Windows {
  SpatialArray kernel, dilation, padding, stride;
  std::int64_t count[2] = {0, 0};  ///< of windows along each axis

  Windows(const char* op, IntArrayRef k, IntArrayRef d, IntArrayRef p, IntArrayRef s)
      : kernel(spatial_values(k, 2, op, "kernel_size")),
        dilation(spatial_values(d, 2, op, "dilation")),
        padding(spatial_values(p, 2, op, "padding")),
        stride(spatial_values(s, 2, op, "stride")) {
    for (std::size_t i = 0; i < 2; ++i)
      ATHANOR_CHECK(kernel[i] > 0 && dilation[i] > 0 && stride[i] > 0 && padding[i] >= 0, op,
                    ": kernel_size, dilation and stride should be greater than zero and padding not negative, got ",
                    "kernel_size=", k, ", dilation=", d, ", stride=", s, ", padding=", p);
  }
  std::int64_t reach(std::size_t i) const { return dilation[i] * (kernel[i] - 1) + 1; }
  void place(const char* op, std::int64_t h, std::int64_t w) {
    const std::int64_t sizes[2] = {h, w};
    for (std::size_t i = 0; i < 2; ++i) {
      const std::int64_t room = sizes[i] + 2 * padding[i] - reach(i);
      count[i] = room < 0 ? 0 : room / stride[i] + 1;
    }
    ATHANOR_CHECK(count[0] > 0 && count[1] > 0, op, ": with spatial size (", h, ", ", w,
                  "), the windows of kernel_size=(", kernel[0], ", ", kernel[1], "), dilation=(", dilation[0], ", ",
                  dilation[1], "), padding=(", padding[0], ", ", padding[1], ") do not fit: their number is (",
                  count[0], ", ", count[1], "), and must be at least one");
  }
};

}  // namespace

/// Every window of an image (N, C, H, W) as a column: (N, C kh kw, windows). Without batch likewise.
ATHANOR_FUNCTION(
    "im2col(Tensor self, int[] kernel_size, int[] dilation, int[] padding, int[] stride) -> Tensor | function");
Tensor im2col(const Tensor& self, IntArrayRef kernel_size, IntArrayRef dilation, IntArrayRef padding,
              IntArrayRef stride) {
  Windows win("im2col", kernel_size, dilation, padding, stride);
  ATHANOR_CHECK(
      self.defined() && (self.dim() == 3 || self.dim() == 4) && self.size(-3) > 0 && self.size(-2) > 0 &&
          self.size(-1) > 0,
      "im2col: Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions ",
      "for input, but got: ", self.sizes());
  if (self.dim() == 3) return squeeze(im2col(unsqueeze(self, 0), kernel_size, dilation, padding, stride), 0);
  win.place("im2col", self.size(2), self.size(3));
  Tensor x = self;
  if (win.padding[0] > 0 || win.padding[1] > 0)
    x = constant_pad_nd(x, {win.padding[1], win.padding[1], win.padding[0], win.padding[0]}, 0);
  // (N, C, oh, ow, kh, kw): windows as views, then one copy.
  for (std::size_t i = 0; i < 2; ++i) {
    x = unfold(x, 2 + static_cast<std::int64_t>(i), win.reach(i), win.stride[i]);
    if (win.dilation[i] > 1) x = slice(x, -1, std::nullopt, std::nullopt, win.dilation[i]);
  }
  const std::int64_t rows = self.size(1) * win.kernel[0] * win.kernel[1];
  return reshape(permute(x, {0, 1, 4, 5, 2, 3}), {self.size(0), rows, win.count[0] * win.count[1]});
}

/// The sum of the columns (N, C kh kw, windows), each put back where im2col would read it, as (N, C, H, W) with
/// output_size (H, W). Without batch likewise.
ATHANOR_FUNCTION(
    "col2im(Tensor self, int[] output_size, int[] kernel_size, int[] dilation, int[] padding, int[] stride) -> Tensor "
    "| "
    "function");
Tensor col2im(const Tensor& self, IntArrayRef output_size, IntArrayRef kernel_size, IntArrayRef dilation,
              IntArrayRef padding, IntArrayRef stride) {
  Windows win("col2im", kernel_size, dilation, padding, stride);
  const SpatialArray size = spatial_values(output_size, 2, "col2im", "output_size");
  ATHANOR_CHECK(self.defined() && (self.dim() == 2 || self.dim() == 3) && self.size(-2) > 0 && self.size(-1) > 0,
                "col2im: Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero ",
                "dimensions, but got: ", self.sizes());
  if (self.dim() == 2)
    return squeeze(col2im(unsqueeze(self, 0), output_size, kernel_size, dilation, padding, stride), 0);
  win.place("col2im", size[0], size[1]);
  const std::int64_t taps = win.kernel[0] * win.kernel[1], n = self.size(0), channels = self.size(1) / taps;
  ATHANOR_CHECK(self.size(1) % taps == 0,
                "col2im: Expected size of input's dimension 1 to be divisible by the product ",
                "of kernel_size, but got input.size(1)=", self.size(1), " and kernel_size=", kernel_size);
  ATHANOR_CHECK(self.size(2) == win.count[0] * win.count[1], "col2im: Given output_size=", output_size,
                ", kernel_size=", kernel_size, ", dilation=", dilation, ", padding=", padding, ", stride=", stride,
                ", expected size of input's dimension 2 to match the calculated number of sliding blocks ",
                win.count[0], " * ", win.count[1], " = ", win.count[0] * win.count[1],
                ", but got input.size(2)=", self.size(2), ".");
  Tensor x = reshape(self, {n, channels, win.kernel[0], win.kernel[1], win.count[0], win.count[1]});
  x = permute(x, {0, 1, 4, 5, 2, 3});  // (N, C, oh, ow, kh, kw)
  for (std::size_t i = 2; i-- > 0;) {
    if (win.dilation[i] > 1) {
      DimVector sizes(x.sizes());
      sizes.back() = win.reach(i);
      x = slice_backward(x, sizes, static_cast<std::int64_t>(sizes.size()) - 1, 0, win.reach(i), win.dilation[i]);
    }
    // Windows along this axis are added up: the last dim goes, the axis gets its padded size.
    DimVector sizes(x.sizes());
    sizes.pop_back();
    sizes[2 + i] = size[i] + 2 * win.padding[i];
    x = unfold_backward(x, sizes, 2 + static_cast<std::int64_t>(i), win.reach(i), win.stride[i]);
  }
  return contiguous(narrow(narrow(x, 2, win.padding[0], size[0]), 3, win.padding[1], size[1]));
}

}  // namespace athanor::ops

#include "athanor/ops/image.glue.inc"
