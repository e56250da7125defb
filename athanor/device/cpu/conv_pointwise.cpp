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

/// An activation as matrices of channels and pixels, one per image; images that follow each other without a gap, as
/// channels-last ones do, are one.
struct Pixels {
  void* data;
  std::int64_t images, image_step, count, step, channel_step;

  Pixels(const ConvData& d, const ConvShape& s, const std::array<std::int64_t, kAxes>& size)
      : data(d.data),
        images(s.batch),
        image_step(d.batch_step),
        count(s.y_pixels()),
        step(distance(d, size)),
        channel_step(d.channel_step) {}
  bool joins() const { return image_step == count * step; }
  void join() {
    count *= images;
    images = 1;
  }
};

struct Sides {
  Pixels x, y;
  explicit Sides(const ConvCall& c) : x(c.x, c.shape, c.shape.x), y(c.y, c.shape, c.shape.y) {
    if (x.joins() && y.joins()) x.join(), y.join();
  }
};

const void* at(const void* data, std::int64_t elements, DType dtype) {
  return static_cast<const char*>(data) + elements * static_cast<std::int64_t>(item_size(dtype));
}
void* at(void* data, std::int64_t elements, DType dtype) {
  return static_cast<char*>(data) + elements * static_cast<std::int64_t>(item_size(dtype));
}

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

/// Elements of a weight whose products have too few tiles for all threads.
constexpr std::int64_t kSmallWeight = 4096;

/// The gradient of a group's weight as the sum of parts that threads compute side by side: as many, and of the same
/// images and pixels, on any number of threads. A large one is a single part: its products use all threads.
class WeightProduct {
 public:
  WeightProduct(const ConvCall& call, const Sides& sides) : call_(call), x_(sides.x), y_(sides.y) {
    const ConvShape& s = call.shape;
    // What has up to 16 rows is summed as dot products, the faster way for up to 4 only.
    turned_ = s.y_channels > 4 && s.y_channels <= 16 && s.x_channels > 16;
    const Pixels &rows = turned_ ? x_ : y_, &columns = turned_ ? y_ : x_;
    g_.dtype = call.dtype;
    g_.m = turned_ ? s.x_channels : s.y_channels, g_.n = turned_ ? s.y_channels : s.x_channels;
    g_.a_row = rows.channel_step, g_.a_col = rows.step;
    g_.b_row = columns.step, g_.b_col = columns.channel_step;
    g_.c_row = g_.n, g_.c_col = 1;
    constexpr std::int64_t kMostParts = 16, kLeastPixels = 256;
    if (g_.m * g_.n > kSmallWeight) return;
    if (x_.images > 1) {
      parts_ = std::min(x_.images, kMostParts);
      images_ = (x_.images + parts_ - 1) / parts_;
      parts_ = (x_.images + images_ - 1) / images_;
    } else {
      parts_ = std::clamp<std::int64_t>(x_.count / kLeastPixels, 1, kMostParts);
      pixels_ = (x_.count + parts_ - 1) / parts_;
      parts_ = (x_.count + pixels_ - 1) / pixels_;
    }
  }

  void run(std::int64_t group) {
    const ConvWeight& w = call_.w;
    void* const to = at(w.data, group * call_.shape.y_channels * w.y_step, call_.dtype);
    const std::int64_t row = turned_ ? w.x_step : w.y_step, column = turned_ ? w.y_step : w.x_step;
    GemmProblem g = g_;
    if (parts_ == 1 && !turned_) {
      g.c_row = row, g.c_col = column;
      return part(g, group, 0, to);
    }
    const std::int64_t size = g.m * g.n;
    if (size == 0) return;
    const cpu::HostBuffer<char> room(parts_ * size * static_cast<std::int64_t>(item_size(call_.dtype)));
    parallel_for(0, parts_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (; begin < end; ++begin) part(g, group, begin, at(room.data(), begin * size, call_.dtype));
    });
    const Cube in(room.data(), call_.dtype, {parts_, g.m, g.n}, {size, g.n, 1});
    const Cube out(to, call_.dtype, {1, g.m, g.n}, {0, row, column});
    sum(out, in, 1);
  }

 private:
  void part(GemmProblem g, std::int64_t group, std::int64_t number, void* to) const {
    g.c = to;
    g.bias_row = g.c_row, g.bias_col = g.c_col;
    const bool by_image = x_.images > 1;
    const std::int64_t first = by_image ? number * images_ : 0, pixel = by_image ? 0 : number * pixels_;
    g.k = std::min(pixels_, x_.count - pixel);
    const auto of_group = [&](const Pixels& p, std::int64_t channels, std::int64_t image) {
      return at(p.data, image * p.image_step + group * channels * p.channel_step + pixel * p.step, g.dtype);
    };
    const Pixels &rows = turned_ ? x_ : y_, &columns = turned_ ? y_ : x_;
    for (std::int64_t i = first; i < std::min(first + images_, x_.images); ++i) {
      g.a = of_group(rows, g.m, i);
      g.b = of_group(columns, g.n, i);
      g.bias = i > first ? to : nullptr;
      g.beta = i > first ? 1 : 0;
      gemm(g);
    }
  }

  const ConvCall& call_;
  const Pixels &x_, &y_;
  GemmProblem g_;
  bool turned_ = false;                                              ///< rows are the channels of x
  std::int64_t parts_ = 1, images_ = x_.images, pixels_ = x_.count;  ///< of a part, unless the images are several
};

bool is_last(const ConvData& d, const ConvShape& s) { return d.channel_step == 1 && s.y_pixels() > 1; }

/// Where channels are last, a row of the result is a pixel: few channels, or a part of a vector, are better turned
/// over. In planes the kernels for few channels are faster from 5 to 24 and 5 to 32 channels, unless the image is a
/// single small one; with AVX-512, where none of this was measured, all that is theirs stays theirs.
bool conv_pays(const ConvCall& call, bool forward) {
  const ConvShape& s = call.shape;
  const std::int64_t from = forward ? s.x_channels : s.y_channels, to = forward ? s.y_channels : s.x_channels;
  if (is_last(forward ? call.y : call.x, s)) return to >= 48 || to % 16 == 0;
  if (cpu::vectors_fill_lines()) return to > 32;
  return from < 5 || from > 24 || to < 5 || to > 32 || (s.batch == 1 && s.y_pixels() <= 1500);
}

/// The same for the sums over all pixels. A product of each image must not be too short for its large result.
bool weight_pays(const ConvCall& call) {
  const ConvShape& s = call.shape;
  const std::int64_t x = s.x_channels, y = s.y_channels, pixels = s.y_pixels();
  if (is_last(call.x, s)) return x >= 16 || x % 8 == 0;
  if (s.batch > 1 && x * y > kSmallWeight && pixels < 100) return false;
  if (cpu::vectors_fill_lines()) return x * y > 8192;  // what kernels for few weights take
  return s.batch == 1 || (x > 4 && (x >= 16 || y < 16 || pixels <= 400));
}

}  // namespace

bool is_product(const ConvCall& call, ConvPass pass) {
  const ConvShape& s = call.shape;
  if (s.taps() != 1 || s.batch == 0 || s.y_pixels() == 0 || call.x.block || call.y.block) return false;
  for (std::size_t e = 0; e < kAxes; ++e)
    if (s.pad[e] != 0 || s.x[e] != s.y[e] || (s.stride[e] != 1 && s.y[e] != 1)) return false;
  if (call.dtype != DType::Float && call.dtype != DType::Double) return false;
  if (distance(call.x, s.x) == 0 || distance(call.y, s.y) == 0) return false;
  const double work = static_cast<double>(s.batch * s.y_pixels()) * static_cast<double>(s.x_channels * s.y_channels);
  if (s.groups > 1 && (s.x_channels < 16 || s.y_channels < 16 || work < 1e6)) return false;  // a call for each group
  return pass == ConvPass::Weight ? weight_pays(call) : conv_pays(call, pass == ConvPass::Forward);
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
    g.a = at(call.w.data, group * s.y_channels * call.w.y_step, call.dtype);
    g.b = at(from.data, group * g.k * from.channel_step, call.dtype);
    g.c = at(to.data, group * g.m * to.channel_step, call.dtype);
    if (call.bias) g.bias = at(call.bias, group * g.m * call.bias_step, call.dtype);
    gemm(g, {to.images, 0, from.image_step, to.image_step, 0});
  }
}

void product_weight(const ConvCall& call) {
  const ConvShape& s = call.shape;
  const Sides sides(call);
  WeightProduct product(call, sides);
  for (std::int64_t group = 0; group < s.groups; ++group) product.run(group);
  if (!call.bias) return;
  const Pixels& y = sides.y;
  const std::int64_t channels = s.groups * s.y_channels;
  const Cube in(y.data, call.dtype, {y.images, channels, y.count}, {y.image_step, y.channel_step, y.step});
  const Cube out(const_cast<void*>(call.bias), call.dtype, {1, channels, 1}, {0, call.bias_step, 0});
  sum(out, in, 5);
}

}  // namespace athanor::detail
