#include "athanor/device/cpu/conv_pointwise.h"

#include <algorithm>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/gemm.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/device/cpu/wide_vectors.h"
#include "athanor/ops/kernels/reduce.h"

namespace athanor::detail {
namespace {

/// The distance of an image's pixels if it is one and the same, else 0, as where a value stands for several pixels.
std::int64_t distance(const ConvData& d, const std::array<std::int64_t, kAxes>& size) {
  std::int64_t step = 1, count = 1;
  for (std::size_t e = kAxes; e-- > 0;) {
    if (size[e] == 1) continue;
    if (count == 1) step = d.step[e];
    if (d.step[e] != step * count) return 0;
    count *= size[e];
  }
  return step;
}

/// An activation as matrices of channels and pixels, one per image, or as one of all images' pixels: see Sides.
struct Pixels {
  void* data;
  std::int64_t images, image_step, count, step, channel_step;

  Pixels(const ConvData& d, const ConvShape& s, const std::array<std::int64_t, kAxes>& size)
      : data(d.data),
        images(s.batch),
        image_step(d.batch_step),
        count(s.y_pixels()),
        step(distance(d, size)),
        channel_step(d.channel_step) {
    if (count == 1) step = image_step;
  }
  bool joins() const { return image_step == count * step; }
  void join() {
    count *= images;
    images = 1;
  }
};

/// Images are one where those of both sides follow each other without a gap, as channels-last ones and those of a
/// pixel.
struct Sides {
  Pixels x, y;
  explicit Sides(const ConvCall& c) : x(c.x, c.shape, c.shape.x), y(c.y, c.shape, c.shape.y) {
    if (x.joins() && y.joins()) x.join(), y.join();
  }
};

/// A view of up to three dims.
struct Cube {
  std::array<std::int64_t, 3> sizes, strides;
  View view;
  Cube(void* data, DType dtype, const std::array<std::int64_t, 3>& n, const std::array<std::int64_t, 3>& s)
      : sizes(n), strides(s) {
    view.data = data;
    view.sizes = sizes.data(), view.strides = strides.data();
    view.numel = n[0] * n[1] * n[2];
    view.dtype = dtype;
    view.ndim = 3;
    view.contiguous = false;
  }
  Cube(const Cube&) = delete;
  Cube& operator=(const Cube&) = delete;
};

void sum(const Cube& out, const Cube& in, std::uint64_t dims) {
  reduce_kernel.get(DeviceType::CPU)(ReduceOp::Sum, out.view, in.view, dims, 0);
}

/// Images so many that the kernels of conv_taps-inl.h and the like share what small planes of them cost.
constexpr std::int64_t kManyImages = 16, kSmallPlane = 400;

/// Elements of a weight whose products have too few tiles for all threads.
constexpr std::int64_t kSmallWeight = 4096;

/// Images whose pixels are the inner dimension of one product of a weight's gradient: small ones would each write a
/// large result for few multiplications. Not so many that blocks of its columns would be narrow.
std::int64_t images_of_product(const ConvCall& call, const Sides& sides) {
  constexpr std::int64_t kMostSteps = 4096;
  const ConvShape& s = call.shape;
  const std::int64_t images = sides.x.images, pixels = s.y_pixels(), least = std::min(s.x_channels, s.y_channels);
  if (sides.x.step != 1 || sides.y.step != 1 || least < 20) return 1;
  if (images > kManyImages && call.dtype == DType::Double) return 1;
  // Packed in many short pieces, or for few columns.
  if (pixels <= 16 && (images > 8 * kManyImages || s.x_channels < std::min<std::int64_t>(s.y_channels, 32))) return 1;
  if (pixels >= kSmallPlane && least < 128) return 1;
  if (pixels >= 100 && images <= kManyImages && s.x_channels * s.y_channels < kSmallWeight) return 1;
  return std::clamp<std::int64_t>(kMostSteps / pixels, 1, images);
}

/// The gradient of a group's weight as the sum of parts that threads compute side by side: as many, and of the same
/// images or pixels, on any number of threads. A large one is a single part: its products use all threads.
class WeightProduct {
 public:
  WeightProduct(const ConvCall& call, const Sides& sides)
      : call_(call),
        turned_(turns(call, sides)),
        rows_(turned_ ? sides.x : sides.y),
        columns_(turned_ ? sides.y : sides.x),
        by_image_(rows_.images > 1),
        together_(images_of_product(call, sides)),
        whole_(by_image_ ? rows_.images : rows_.count) {
    const ConvShape& s = call.shape;
    const ConvWeight& w = call.w;
    g_.dtype = call.dtype;
    g_.m = turned_ ? s.x_channels : s.y_channels, g_.n = turned_ ? s.y_channels : s.x_channels;
    g_.a_row = rows_.channel_step, g_.a_col = rows_.step;
    g_.b_row = columns_.step, g_.b_col = columns_.channel_step;
    g_.c = w.data;
    g_.c_row = turned_ ? w.x_step : w.y_step, g_.c_col = turned_ ? w.y_step : w.x_step;
    constexpr std::int64_t kMostParts = 16, kLeastPixels = 256, kLeastTogether = 1024;
    const std::int64_t least = !by_image_ ? kLeastPixels : together_ > 1 ? kLeastTogether / rows_.count : 1;
    const std::int64_t parts = std::clamp<std::int64_t>(whole_ / std::max<std::int64_t>(least, 1), 1, kMostParts);
    share_ = g_.m * g_.n <= kSmallWeight ? (whole_ + parts - 1) / parts : whole_;
  }

  void run(std::int64_t group) const {
    GemmProblem g = g_;
    if (g.m * g.n == 0) return;
    g.c = advance(g.c, group * call_.shape.y_channels * call_.w.y_step, g.dtype);
    const std::int64_t parts = (whole_ + share_ - 1) / share_, size = g.m * g.n;
    // Into a weight whose rows are columns here gemm would turn the product back.
    if (parts == 1 && !turned_) return part(g, group, 0);
    const cpu::HostBuffer<char> room(parts * size * static_cast<std::int64_t>(item_size(g.dtype)));
    const Cube out(g.c, g.dtype, {1, g.m, g.n}, {0, g.c_row, g.c_col});
    const Cube in(room.data(), g.dtype, {parts, g.m, g.n}, {size, g.n, 1});
    g.c_row = g.n, g.c_col = 1;
    parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
      GemmProblem mine = g;
      for (; begin < end; ++begin) {
        mine.c = advance(room.data(), begin * size, g.dtype);
        part(mine, group, begin);
      }
    });
    sum(out, in, 1);
  }

 private:
  /// Whether rows are the channels of x. As many rows as those of y, up to 16, gemm sums as dot products, which is the
  /// slower way for long ones where those channels, as columns, fill the two vectors of a tile. (As many columns gemm
  /// does not turn to rows.)
  static bool turns(const ConvCall& call, const Sides& sides) {
    const ConvShape& s = call.shape;
    const auto columns = static_cast<std::int64_t>(64 / item_size(call.dtype));
    const std::int64_t long_row = sides.y.images > 1 ? kSmallPlane / 4 : kSmallPlane;  // products of images also add
    return sides.y.step == 1 && sides.y.count >= long_row && s.x_channels > 16 && s.y_channels <= 16 &&
           s.y_channels % columns == 0;
  }

  void part(GemmProblem g, std::int64_t group, std::int64_t number) const {
    const std::int64_t begin = number * share_, end = std::min(begin + share_, whole_);
    const std::int64_t first = by_image_ ? begin : 0, last = by_image_ ? end : 1, pixel = by_image_ ? 0 : begin;
    const std::int64_t pixels = by_image_ ? rows_.count : end - begin;
    g.a_part = rows_.image_step, g.b_part = columns_.image_step;
    const auto place = [&](const Pixels& p, std::int64_t channels, std::int64_t image) {
      return advance(p.data, image * p.image_step + group * channels * p.channel_step + pixel * p.step, g.dtype);
    };
    g.bias_row = g.c_row, g.bias_col = g.c_col;
    for (std::int64_t image = first; image < last; image += together_) {
      g.k = std::min(together_, last - image) * pixels;
      g.k_part = g.k > pixels ? pixels : 0;
      g.a = place(rows_, g.m, image);
      g.b = place(columns_, g.n, image);
      gemm(g);
      g.bias = g.c;
      g.beta = 1;
    }
  }

  const ConvCall& call_;
  const bool turned_;  // rows are the channels of x
  const Pixels &rows_, &columns_;
  const bool by_image_;
  const std::int64_t together_;  // images of a product
  const std::int64_t whole_;     // images, or pixels of the only one
  std::int64_t share_ = 0;       // of a part
  GemmProblem g_;
};

/// Where channels are last, a row of the result is a pixel: few channels, or a part of a vector, are better turned
/// over. In planes the kernels for few channels are faster from 5 to 24 and 5 to 32 channels, unless the image is a
/// single small one, and for small planes of many images; products of a few pixels of each cost more than the sums.
bool conv_pays(const ConvShape& s, const Sides& sides, bool forward) {
  const std::int64_t from = forward ? s.x_channels : s.y_channels, to = forward ? s.y_channels : s.x_channels;
  const std::int64_t pixels = s.y_pixels();
  if (sides.x.images > 1 && (pixels < 16 || pixels * from * to < 4096)) return false;
  if (sides.x.channel_step == 1) return to >= 48 || to % 16 == 0;
  if (to > 32) return true;
  if (s.batch > kManyImages && pixels < kSmallPlane) return false;
  return from < 5 || from > 24 || to < 5 || (s.batch == 1 && pixels <= 1500);
}

/// The same for the sums over all pixels. A product of each image must not be too short for its result.
bool weight_pays(const ConvCall& call, const Sides& sides) {
  const ConvShape& s = call.shape;
  const std::int64_t x = s.x_channels, y = s.y_channels, pixels = s.y_pixels();
  if (images_of_product(call, sides) > 1) return true;
  if (sides.x.images > kManyImages && pixels < kSmallPlane) return false;
  if (sides.x.channel_step == 1) return x >= 16 || x % 8 == 0;
  if (s.batch == 1) return true;
  if (x * y > kSmallWeight && pixels < 100) return false;
  return x > 4 && (x >= 16 || y < 16 || pixels <= kSmallPlane);
}

}  // namespace

bool product_fits(const ConvCall& call, ConvPass pass) {
  const ConvShape& s = call.shape;
  if (cpu::vectors_fill_lines()) return false;  // not measured there
  if (s.taps() != 1 || s.batch == 0 || s.y_pixels() == 0 || call.x.block || call.y.block) return false;
  for (std::size_t e = 0; e < kAxes; ++e)
    if (s.pad[e] != 0 || s.x[e] != s.y[e] || (s.stride[e] != 1 && s.y[e] != 1)) return false;
  if (call.dtype != DType::Float && call.dtype != DType::Double) return false;
  if (distance(call.x, s.x) == 0 || distance(call.y, s.y) == 0) return false;
  const double work = static_cast<double>(s.batch * s.y_pixels()) * static_cast<double>(s.x_channels * s.y_channels);
  if (s.groups > 1 && (s.x_channels < 16 || s.y_channels < 16 || work < 1e6)) return false;  // a call for each group
  const Sides sides(call);
  if ((sides.x.channel_step == 1) != (sides.y.channel_step == 1)) return false;  // one to be turned over
  return pass == ConvPass::Weight ? weight_pays(call, sides) : conv_pays(s, sides, pass == ConvPass::Forward);
}

void product_conv(const ConvCall& call, bool forward) {
  const ConvShape& s = call.shape;
  const Sides sides(call);
  const Pixels &from = forward ? sides.x : sides.y, &to = forward ? sides.y : sides.x;
  GemmProblem g;
  g.dtype = call.dtype;
  g.m = forward ? s.y_channels : s.x_channels, g.k = forward ? s.x_channels : s.y_channels, g.n = to.count;
  g.a_row = forward ? call.w.y_step : call.w.x_step, g.a_col = forward ? call.w.x_step : call.w.y_step;
  g.b_row = from.channel_step, g.b_col = from.step;
  g.c_row = to.channel_step, g.c_col = to.step;
  g.bias_row = call.bias_step;
  if (call.bias) g.beta = 1;
  g.epilogue = call.epilogue;
  for (std::int64_t group = 0; group < s.groups; ++group) {
    g.a = advance(call.w.data, group * s.y_channels * call.w.y_step, call.dtype);
    g.b = advance(from.data, group * g.k * from.channel_step, call.dtype);
    g.c = advance(to.data, group * g.m * to.channel_step, call.dtype);
    if (call.bias) g.bias = advance(call.bias, group * g.m * call.bias_step, call.dtype);
    gemm(g, {to.images, 0, from.image_step, to.image_step, 0});
  }
}

void product_weight(const ConvCall& call) {
  const ConvShape& s = call.shape;
  const Sides sides(call);
  const WeightProduct product(call, sides);
  for (std::int64_t group = 0; group < s.groups; ++group) product.run(group);
  if (!call.bias) return;
  const Pixels& y = sides.y;
  const std::int64_t channels = s.groups * s.y_channels;
  const Cube in(y.data, call.dtype, {y.images, channels, y.count}, {y.image_step, y.channel_step, y.step});
  const Cube out(const_cast<void*>(call.bias), call.dtype, {1, channels, 1}, {0, call.bias_step, 0});
  sum(out, in, 5);
}

}  // namespace athanor::detail
