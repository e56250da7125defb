// Rearrangements of images: pixel and channel shuffles, windows to columns and back.
#include "athanor/ops/image.h"

#include <algorithm>

#include "athanor/ops/copy.h"
#include "athanor/ops/kept_strides.h"
#include "athanor/ops/kernels/copy.h"
#include "athanor/ops/kernels/pointwise.h"
#include "athanor/ops/op.h"
#include "athanor/ops/promote.h"
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
  const std::int64_t square = checked_numel({r, r}, "pixel_shuffle");
  ATHANOR_CHECK(channels % square == 0, "pixel_shuffle expects its input's 'channel' dimension to be divisible by the ",
                "square of upscale_factor, but input.size(-3)=", channels, " is not divisible by ", square,
                ", in an input of shape ", self.sizes());
  DimVector split = leading(self, 3), out = split;
  append(split, {channels / square, r, r, h, w});
  append(out, {channels / square, checked_numel({h, r}, "pixel_shuffle"), checked_numel({w, r}, "pixel_shuffle")});
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
  append(out, {checked_numel({channels, r, r}, "pixel_unshuffle"), h / r, w / r});
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
                groups, " groups, in an input of shape ", self.sizes());
  return in_format_of(self, reshape(transpose(unflatten(self, 1, {groups, channels / groups}), 1, 2), self.sizes()));
}

namespace {

/// Windows of an image: sizes per axis, of two.
struct Windows {
  SpatialArray kernel, dilation, padding, stride;
  std::int64_t count[2] = {0, 0};  ///< of windows along each axis
  std::int64_t taps;               ///< elements of a window

  Windows(const char* op, IntArrayRef k, IntArrayRef d, IntArrayRef p, IntArrayRef s)
      : kernel(spatial_values(k, 2, op, "kernel_size")),
        dilation(spatial_values(d, 2, op, "dilation")),
        padding(spatial_values(p, 2, op, "padding")),
        stride(spatial_values(s, 2, op, "stride")) {
    for (std::size_t i = 0; i < 2; ++i)
      ATHANOR_CHECK(kernel[i] > 0 && dilation[i] > 0 && stride[i] > 0 && padding[i] >= 0, op,
                    ": kernel_size, dilation and stride should be greater than zero and padding not negative, got ",
                    "kernel_size=", k, ", dilation=", d, ", stride=", s, ", padding=", p);
    taps = checked_numel({kernel[0], kernel[1]}, op);
  }
  void place(const char* op, std::int64_t h, std::int64_t w) {
    const std::int64_t sizes[2] = {h, w};
    for (std::size_t i = 0; i < 2; ++i) {
      std::int64_t reach, room;
      ATHANOR_CHECK(!__builtin_mul_overflow(dilation[i], kernel[i] - 1, &reach) &&
                        !__builtin_mul_overflow(padding[i], 2, &room) && !__builtin_add_overflow(room, sizes[i], &room),
                    op, ": no image can be as large as size ", sizes[i], ", padding ", padding[i], ", kernel_size ",
                    kernel[i], " and dilation ", dilation[i], " make it");
      room -= reach + 1;
      count[i] = room < 0 ? 0 : room / stride[i] + 1;
    }
    ATHANOR_CHECK(count[0] > 0 && count[1] > 0, op, ": with spatial size (", h, ", ", w,
                  "), the windows of kernel_size=(", kernel[0], ", ", kernel[1], "), dilation=(", dilation[0], ", ",
                  dilation[1], "), padding=(", padding[0], ", ", padding[1], ") do not fit: their number is (",
                  count[0], ", ", count[1], "), and must be at least one");
    checked_numel({count[0], count[1]}, op);
  }
  /// Of the columns of n examples with these channels.
  DimVector columns(const char* op, std::int64_t n, std::int64_t channels) const {
    return {n, checked_numel({channels, taps}, op), count[0] * count[1]};
  }
};

/// Calls fn(columns' part, image's part) for each element of a window: what all windows that have it in the image read
/// there. columns (N, C kh kw, windows) is row-major, image (N, C, H, W) has any strides.
template <class F>
void each_tap(const Windows& win, const Tensor& columns, const Tensor& image, F&& fn) {
  const std::int64_t windows = columns.size(2), taps = win.taps, channels = image.size(1);
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    const std::int64_t at[2] = {tap / win.kernel[1], tap % win.kernel[1]};
    DimVector sizes{image.size(0), channels}, column_strides{channels * taps * windows, taps * windows};
    DimVector image_strides{image.stride(0), image.stride(1)};
    std::int64_t column = columns.storage_offset() + tap * windows, pixel = image.storage_offset();
    for (std::size_t i = 0; i < 2; ++i) {
      const auto d = static_cast<std::int64_t>(i) + 2;
      // Window k reads line k * step + first.
      const std::int64_t step = win.count[i] > 1 ? win.stride[i] : 1;  // a single window's stride may be of any size
      const std::int64_t first = at[i] * win.dilation[i] - win.padding[i];
      const std::int64_t begin = first < 0 ? (-first - 1) / step + 1 : 0, room = image.size(d) - 1 - first;
      const std::int64_t end = room < 0 ? 0 : std::min(win.count[i], room / step + 1);
      const std::int64_t line = i == 0 ? win.count[1] : 1;
      sizes.push_back(std::max<std::int64_t>(end - begin, 0));
      column_strides.push_back(line), image_strides.push_back(step * image.stride(d));
      column += begin * line, pixel += (begin * step + first) * image.stride(d);
    }
    if (sizes[2] > 0 && sizes[3] > 0)
      fn(detail::alias(columns, sizes, column_strides, column), detail::alias(image, sizes, image_strides, pixel));
  }
}

}  // namespace

/// im2col of a batch; the windows fit.
struct Im2Col {
  ATHANOR_OP(
      "_im2col(Tensor self, int[] kernel_size, int[] dilation, int[] padding, int[] stride) -> Tensor | function");
  static constexpr const char* grad_name = "Im2ColBackward0";
  DimVector kernel_size, dilation, padding, stride, size;
  Meta infer(const Tensor& self) {
    const Windows win = windows(self);
    size = DimVector(self.sizes().slice(2));
    return {win.columns("im2col", self.size(0), self.size(1)), self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self) {
    const Windows win = windows(self);
    if (win.padding[0] > 0 || win.padding[1] > 0) launch(fill_kernel, out, Scalar(0));
    each_tap(win, out, self, [](const Tensor& columns, const Tensor& image) { launch(copy_kernel, columns, image); });
  }
  void grad(GradCall& g) { g.set(0, col2im(g.grad(), size, kernel_size, dilation, padding, stride)); }

 private:
  Windows windows(const Tensor& self) const {
    Windows win("im2col", kernel_size, dilation, padding, stride);
    win.place("im2col", self.size(2), self.size(3));
    return win;
  }
};

/// col2im of a batch; the windows fit.
struct Col2Im {
  ATHANOR_OP(
      "_col2im(Tensor self, int[] output_size, int[] kernel_size, int[] dilation, int[] padding, int[] stride) -> "
      "Tensor | function");
  static constexpr const char* grad_name = "Col2ImBackward0";
  DimVector output_size, kernel_size, dilation, padding, stride;
  void prepare(Tensor& self) { self = contiguous(self); }
  Meta infer(const Tensor& self) {
    const Windows win = windows();
    return {{self.size(0), self.size(1) / win.taps, output_size[0], output_size[1]}, self.dtype(), self.device(), {}};
  }
  void run(const Tensor& out, const Tensor& self) {
    launch(fill_kernel, out, Scalar(0));
    each_tap(windows(), self, out, [](const Tensor& columns, const Tensor& image) {
      launch(binary_kernel, BinaryOp::Add, image, image, columns, Scalar(1), Scalar(0));
    });
  }
  void grad(GradCall& g) { g.set(0, im2col(g.grad(), kernel_size, dilation, padding, stride)); }

 private:
  Windows windows() const {
    Windows win("col2im", kernel_size, dilation, padding, stride);
    win.place("col2im", output_size[0], output_size[1]);
    return win;
  }
};

/// Every window of an image (N, C, H, W) as a column: (N, C kh kw, windows). Without batch likewise.
ATHANOR_FUNCTION(
    "im2col(Tensor self, int[] kernel_size, int[] dilation, int[] padding, int[] stride) -> Tensor | function out");
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
  return _im2col(self, kernel_size, dilation, padding, stride);
}

/// The sum of the columns (N, C kh kw, windows), each put back where im2col would read it, as (N, C, H, W) with
/// output_size (H, W). Without batch likewise.
ATHANOR_FUNCTION(
    "col2im(Tensor self, int[] output_size, int[] kernel_size, int[] dilation, int[] padding, int[] stride) -> Tensor "
    "| "
    "function out");
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
  ATHANOR_CHECK(self.size(1) % win.taps == 0,
                "col2im: Expected size of input's dimension 1 to be divisible by the product ",
                "of kernel_size, but got input.size(1)=", self.size(1), " and kernel_size=", kernel_size,
                " for an input of shape ", self.sizes());
  ATHANOR_CHECK(self.size(2) == win.count[0] * win.count[1], "col2im: Given output_size=", output_size,
                ", kernel_size=", kernel_size, ", dilation=", dilation, ", padding=", padding, ", stride=", stride,
                ", expected size of input's dimension 2 to match the calculated number of sliding blocks ",
                win.count[0], " * ", win.count[1], " = ", win.count[0] * win.count[1],
                ", but got input.size(2)=", self.size(2), ".");
  // Halves are rounded once.
  const Tensor x = is_half(self.dtype()) ? cast(self, DType::Float) : self;
  return cast(_col2im(x, spatial_ref(size, 2), kernel_size, dilation, padding, stride), self.dtype());
}

}  // namespace athanor::ops

#include "athanor/ops/image.glue.inc"
