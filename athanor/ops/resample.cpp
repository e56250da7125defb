// Resizing by interpolation. Every mode is a linear map along each spatial dim, so it is done one dim after another.
#include "athanor/ops/resample.h"

#include <algorithm>
#include <cmath>

#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/index.h"
#include "athanor/ops/kept_strides.h"
#include "athanor/ops/kernels/resample.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/spatial.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"

namespace athanor::ops {

namespace {

/// The interpolation to make a table for: `mode` as the op's schema has it.
struct Filter {
  enum Kind { Linear = 0, Cubic = 1, LinearAntialias = 2, CubicAntialias = 3 };
  /// Added to a kind: weights of as many bits as PyTorch's for bytes.
  static constexpr std::int64_t kOfBytes = 4;
};

/// Catmull-Rom-like cubic of Keys, "Cubic convolution interpolation", 1981, with parameter a.
double cubic(double x, double a) {
  x = std::abs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

void add_entry(ResampleTable& t, std::int64_t at, double weight) {
  t.at.push_back(at);
  t.weight.push_back(weight);
}

/// Weights spread over all sources that a source-sized step of the result covers.
void add_antialiased(ResampleTable& t, std::int64_t o, double step, bool is_cubic) {
  const double width = (is_cubic ? 2 : 1) * std::max(step, 1.0), inverse = 1 / std::max(step, 1.0);
  const double center = step * (static_cast<double>(o) + 0.5);
  const double begin = center - width + 0.5, end = center + width + 0.5;  // PyTorch cuts off what follows the point
  const auto first = std::max<std::int64_t>(static_cast<std::int64_t>(begin), 0);
  const auto last = std::min<std::int64_t>(static_cast<std::int64_t>(end), t.sources);
  double total = 0;
  const std::size_t start = t.weight.size();
  for (std::int64_t i = first; i < last; ++i) {
    const double x = (static_cast<double>(i) - center + 0.5) * inverse;
    const double w = is_cubic ? cubic(x, -0.5) : std::max(0.0, 1 - std::abs(x));
    add_entry(t, i, w);
    total += w;
  }
  if (total != 0)
    for (std::size_t k = start; k < t.weight.size(); ++k) t.weight[k] /= total;
}

/// The table with the weights that fall on one source added up, as multiples of a power of two of which the greatest is
/// a number of 16 bits.
ResampleTable rounded_to_bits(const ResampleTable& exact) {
  ResampleTable t;
  t.sources = exact.sources;
  for (std::size_t r = 0; r + 1 < exact.begin.size(); ++r) {
    for (auto k = static_cast<std::size_t>(exact.begin[r]); k < static_cast<std::size_t>(exact.begin[r + 1]); ++k)
      if (k > static_cast<std::size_t>(exact.begin[r]) && exact.at[k] == t.at.back())
        t.weight.back() += exact.weight[k];
      else
        add_entry(t, exact.at[k], exact.weight[k]);
    t.begin.push_back(static_cast<std::int64_t>(t.at.size()));
  }
  const double greatest = *std::max_element(t.weight.begin(), t.weight.end());
  int precision = 0;
  while (precision < 22 && std::floor(0.5 + std::ldexp(greatest, precision + 1)) < 1 << 15) ++precision;
  for (double& w : t.weight) w = std::ldexp(std::round(std::ldexp(w, precision)), -precision);
  return t;
}

ResampleTable make_table(std::int64_t in, std::int64_t out, std::int64_t filter, bool align_corners, double scale) {
  if (filter >= Filter::kOfBytes)
    return rounded_to_bits(make_table(in, out, filter - Filter::kOfBytes, align_corners, scale));
  ResampleTable t;
  t.sources = in;
  // Distance in the source from one result to the next.
  const double step = align_corners ? (out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0)
                      : scale > 0   ? 1 / scale
                                    : static_cast<double>(in) / static_cast<double>(out);
  for (std::int64_t o = 0; o < out; ++o) {
    const double at = static_cast<double>(o);
    if (filter >= Filter::LinearAntialias) {
      add_antialiased(t, o, step, filter == Filter::CubicAntialias);
    } else {
      double x = align_corners ? step * at : step * (at + 0.5) - 0.5;
      if (filter == Filter::Linear) {
        x = std::max(x, 0.0);
        const std::int64_t low = std::min(static_cast<std::int64_t>(x), in - 1), high = std::min(low + 1, in - 1);
        const double part = std::min(x - static_cast<double>(low), 1.0);
        add_entry(t, low, 1 - part);
        add_entry(t, high, part);
      } else {
        const double low = std::floor(x);
        for (std::int64_t k = -1; k <= 2; ++k)
          add_entry(t, std::clamp<std::int64_t>(static_cast<std::int64_t>(low) + k, 0, in - 1),
                    cubic(x - low - static_cast<double>(k), -0.75));
      }
    }
    t.begin.push_back(static_cast<std::int64_t>(t.at.size()));
  }
  return t;
}

}  // namespace

/// One dim resized to output_size; scale 0: as the sizes say. `transposed` applies the gradient of that map: from
/// output_size back to input_size.
struct ResampleDim {
  ATHANOR_OP(
      "_resample_dim(Tensor self, int dim, int input_size, int output_size, int filter, bool align_corners, float "
      "scale, "
      "bool transposed) -> Tensor | function");
  static constexpr const char* grad_name = "UpsampleBackward0";
  std::int64_t dim, input_size, output_size, filter;
  bool align_corners;
  double scale;
  bool transposed;
  ResampleTableRef table;
  void prepare(Tensor& self) {
    if (self.is_contiguous()) return;
    if (self.dim() == 4 && self.is_contiguous(MemoryFormat::ChannelsLast)) return;
    if (self.dim() == 5 && self.is_contiguous(MemoryFormat::ChannelsLast3d)) return;
    self = contiguous(self);
  }
  Meta infer(const Tensor& self) {
    ResampleTable t = make_table(input_size, output_size, filter, align_corners, scale);
    table = std::make_shared<const ResampleTable>(transposed ? t.transposed() : std::move(t));
    DimVector sizes(self.sizes());
    sizes[static_cast<std::size_t>(dim)] = transposed ? input_size : output_size;
    return {sizes, self.dtype(), self.device(), layout_like(self, sizes)};
  }
  void run(const Tensor& out, const Tensor& self) {
    std::int64_t inner = self.is_contiguous() ? 1 : self.size(1);
    for (std::int64_t d = dim + 1; d < self.dim(); ++d) inner *= self.size(d);
    launch(resample_kernel, out, self, inner, table);
  }
  void grad(GradCall& g) {
    g.set(0, _resample_dim(g.grad(), dim, input_size, output_size, filter, align_corners, scale, !transposed));
  }
};

namespace {

using Scales = std::array<std::optional<double>, 3>;

void check_input(const char* op, const Tensor& self, IntArrayRef output_size, std::size_t spatial) {
  ATHANOR_CHECK(self.defined(), op, ": expected a tensor, got an undefined one");
  ATHANOR_CHECK(output_size.size() == spatial, op, ": It is expected output_size equals to ", spatial,
                ", but got size ", output_size.size());
  bool sound = self.dim() == static_cast<std::int64_t>(spatial) + 2;
  for (std::int64_t d = 1; sound && d < self.dim(); ++d) sound = self.size(d) > 0;
  ATHANOR_CHECK(sound, op, ": Non-empty ", spatial + 2, "D data tensor expected but got a tensor with sizes ",
                self.sizes());
  for (const std::int64_t o : output_size)
    ATHANOR_CHECK(o > 0, op, ": Input and output sizes should be greater than 0, but got input ", self.sizes(),
                  " and output size ", output_size);
  // What memory cannot hold is refused before tables of that size are made.
  constexpr std::int64_t kLarge = std::int64_t{1} << 26;
  if (std::none_of(output_size.begin(), output_size.end(), [](std::int64_t o) { return o > kLarge; })) return;
  DimVector sizes(self.sizes());
  std::copy(output_size.begin(), output_size.end(), sizes.begin() + 2);
  static_cast<void>(empty(sizes, self.options()));
}

/// The dims in the order that makes the intermediate results small: those that shrink most first. last_first: of those
/// that grow alike the last, whose elements move one by one where others' move in rows.
DimVector cheapest_order(const Tensor& self, IntArrayRef output_size, bool last_first = false) {
  DimVector order;
  for (std::size_t d = 0; d < output_size.size(); ++d) order.push_back(static_cast<std::int64_t>(d));
  if (last_first) std::reverse(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
    return output_size[x] * self.sizes()[y + 2] < output_size[y] * self.sizes()[x + 2];
  });
  return order;
}

/// Bytes are rounded after each dim, columns first, as PyTorch does: sums of them and of weights of 16 bits are exact.
Tensor interpolated_bytes(Tensor x, IntArrayRef output_size, std::int64_t filter, bool align_corners,
                          const Scales& scales) {
  for (const std::int64_t d : {1, 0}) {
    const auto u = static_cast<std::size_t>(d);
    const std::int64_t n = x.size(d + 2), m = output_size[u];
    if (n == m) continue;
    const Tensor sums = _resample_dim(cast(x, DType::Float), d + 2, n, m, filter + Filter::kOfBytes, align_corners,
                                      scales[u].value_or(0), false);
    x = cast(clamp(floor(add(sums, 0.5)), 0, 255), DType::Byte);
  }
  return x;
}

Tensor interpolated(const char* op, const Tensor& self, IntArrayRef output_size, std::size_t spatial,
                    std::int64_t filter, bool align_corners, const Scales& scales) {
  check_input(op, self, output_size, spatial);
  if (self.dtype() == DType::Byte && spatial == 2) {
    const Tensor x = interpolated_bytes(self, output_size, filter, align_corners, scales);
    return x.is_same(self) ? clone(x) : x;
  }
  ATHANOR_CHECK_TYPE(NotImplementedError, is_floating_point(self.dtype()), op, ": not implemented for '",
                     dtype_libtorch_name(self.dtype()), "'; convert the input to a floating dtype");
  // Half types are rounded once.
  Tensor x = self.dtype() == DType::Double ? self : cast(self, DType::Float);
  for (const std::int64_t d : cheapest_order(self, output_size)) {
    const auto u = static_cast<std::size_t>(d);
    const std::int64_t n = x.size(d + 2), m = output_size[u];
    // As in PyTorch: a filter against aliasing leaves a dim that keeps its size alone, whatever its scale.
    if (n == m && (filter >= Filter::LinearAntialias || scales[u].value_or(1) == 1)) continue;
    x = _resample_dim(x, d + 2, n, m, filter, align_corners, scales[u].value_or(0), false);
  }
  x = cast(x, self.dtype());
  return x.is_same(self) ? clone(x) : x;
}

/// The nearest source of each result, computed in float32 as PyTorch does: floor(o step), `exact` floor((o + 1/2)
/// step).
Tensor nearest(const char* op, const Tensor& self, IntArrayRef output_size, std::size_t spatial, const Scales& scales,
               bool exact) {
  check_input(op, self, output_size, spatial);
  Tensor x = self;
  for (const std::int64_t d : cheapest_order(self, output_size, true)) {
    const auto u = static_cast<std::size_t>(d);
    const std::int64_t n = x.size(d + 2), m = output_size[u];
    const auto scale = static_cast<float>(scales[u].value_or(0));
    const float step =
        scale > 0 ? static_cast<float>(1.0 / scales[u].value()) : static_cast<float>(n) / static_cast<float>(m);
    std::vector<std::int64_t> from;
    for (std::int64_t o = 0; o < m; ++o)
      from.push_back(
          std::min(static_cast<std::int64_t>(std::floor((static_cast<float>(o) + (exact ? 0.5F : 0)) * step)), n - 1));
    bool same = n == m;
    for (std::int64_t o = 0; same && o < m; ++o) same = from[static_cast<std::size_t>(o)] == o;
    if (!same) x = index_select(x, d + 2, index_tensor(from, {m}, self.device()));
  }
  return x.is_same(self) ? clone(x) : in_format_of(self, x);
}

}  // namespace

// Inputs are (batch, channels, spatial…). Where a scale is given, sources are at multiples of 1 / scale instead of
// input size / output size. align_corners: the first and last elements of input and result coincide.
/// input, (N, C, L), resized to output_size by the nearest element; scales say how places are mapped instead of the
/// sizes' ratio.
ATHANOR_FUNCTION("upsample_nearest1d(Tensor self, int[] output_size, float? scales=None) -> Tensor | function out");
Tensor upsample_nearest1d(const Tensor& self, IntArrayRef output_size, std::optional<double> scales) {
  return nearest("upsample_nearest1d", self, output_size, 1, {scales}, false);
}
/// input, (N, C, H, W), resized to output_size by the nearest element; scales say how places are mapped instead of the
/// sizes' ratio.
ATHANOR_FUNCTION(
    "upsample_nearest2d(Tensor self, int[] output_size, float? scales_h=None, float? scales_w=None) -> Tensor | "
    "function out");
Tensor upsample_nearest2d(const Tensor& self, IntArrayRef output_size, std::optional<double> scales_h,
                          std::optional<double> scales_w) {
  return nearest("upsample_nearest2d", self, output_size, 2, {scales_h, scales_w}, false);
}
/// input, (N, C, D, H, W), resized to output_size by the nearest element; scales say how places are mapped instead of
/// the sizes' ratio.
ATHANOR_FUNCTION(
    "upsample_nearest3d(Tensor self, int[] output_size, float? scales_d=None, float? scales_h=None, "
    "float? scales_w=None) -> Tensor | function out");
Tensor upsample_nearest3d(const Tensor& self, IntArrayRef output_size, std::optional<double> scales_d,
                          std::optional<double> scales_h, std::optional<double> scales_w) {
  return nearest("upsample_nearest3d", self, output_size, 3, {scales_d, scales_h, scales_w}, false);
}
ATHANOR_FUNCTION("_upsample_nearest_exact1d(Tensor self, int[] output_size, float? scales=None) -> Tensor | function");
Tensor _upsample_nearest_exact1d(const Tensor& self, IntArrayRef output_size, std::optional<double> scales) {
  return nearest("upsample_nearest_exact1d", self, output_size, 1, {scales}, true);
}
ATHANOR_FUNCTION(
    "_upsample_nearest_exact2d(Tensor self, int[] output_size, float? scales_h=None, float? scales_w=None) -> Tensor | "
    "function");
Tensor _upsample_nearest_exact2d(const Tensor& self, IntArrayRef output_size, std::optional<double> scales_h,
                                 std::optional<double> scales_w) {
  return nearest("upsample_nearest_exact2d", self, output_size, 2, {scales_h, scales_w}, true);
}
ATHANOR_FUNCTION(
    "_upsample_nearest_exact3d(Tensor self, int[] output_size, float? scales_d=None, float? scales_h=None, "
    "float? scales_w=None) -> Tensor | function");
Tensor _upsample_nearest_exact3d(const Tensor& self, IntArrayRef output_size, std::optional<double> scales_d,
                                 std::optional<double> scales_h, std::optional<double> scales_w) {
  return nearest("upsample_nearest_exact3d", self, output_size, 3, {scales_d, scales_h, scales_w}, true);
}
/// input, (N, C, L), resized to output_size linearly; scales say how places are mapped instead of the sizes' ratio.
ATHANOR_FUNCTION(
    "upsample_linear1d(Tensor self, int[] output_size, bool align_corners, float? scales=None) -> Tensor | function "
    "out");
Tensor upsample_linear1d(const Tensor& self, IntArrayRef output_size, bool align_corners,
                         std::optional<double> scales) {
  return interpolated("upsample_linear1d", self, output_size, 1, Filter::Linear, align_corners, {scales});
}
/// input, (N, C, H, W), resized to output_size bilinearly; scales say how places are mapped instead of the sizes'
/// ratio.
ATHANOR_FUNCTION(
    "upsample_bilinear2d(Tensor self, int[] output_size, bool align_corners, float? scales_h=None, "
    "float? scales_w=None) -> Tensor | function out");
Tensor upsample_bilinear2d(const Tensor& self, IntArrayRef output_size, bool align_corners,
                           std::optional<double> scales_h, std::optional<double> scales_w) {
  return interpolated("upsample_bilinear2d", self, output_size, 2, Filter::Linear, align_corners, {scales_h, scales_w});
}
/// input, (N, C, D, H, W), resized to output_size trilinearly; scales say how places are mapped instead of the sizes'
/// ratio.
ATHANOR_FUNCTION(
    "upsample_trilinear3d(Tensor self, int[] output_size, bool align_corners, float? scales_d=None, "
    "float? scales_h=None, float? scales_w=None) -> Tensor | function out");
Tensor upsample_trilinear3d(const Tensor& self, IntArrayRef output_size, bool align_corners,
                            std::optional<double> scales_d, std::optional<double> scales_h,
                            std::optional<double> scales_w) {
  return interpolated("upsample_trilinear3d", self, output_size, 3, Filter::Linear, align_corners,
                      {scales_d, scales_h, scales_w});
}
/// input, (N, C, H, W), resized to output_size by cubic convolution; scales say how places are mapped instead of the
/// sizes' ratio.
ATHANOR_FUNCTION(
    "upsample_bicubic2d(Tensor self, int[] output_size, bool align_corners, float? scales_h=None, "
    "float? scales_w=None) -> Tensor | function out");
Tensor upsample_bicubic2d(const Tensor& self, IntArrayRef output_size, bool align_corners,
                          std::optional<double> scales_h, std::optional<double> scales_w) {
  return interpolated("upsample_bicubic2d", self, output_size, 2, Filter::Cubic, align_corners, {scales_h, scales_w});
}
/// With a filter as wide as the step between results, so that shrinking loses no source.
ATHANOR_FUNCTION(
    "_upsample_bilinear2d_aa(Tensor self, int[] output_size, bool align_corners, float? scales_h=None, "
    "float? scales_w=None) -> Tensor | function");
Tensor _upsample_bilinear2d_aa(const Tensor& self, IntArrayRef output_size, bool align_corners,
                               std::optional<double> scales_h, std::optional<double> scales_w) {
  return interpolated("upsample_bilinear2d_aa", self, output_size, 2, Filter::LinearAntialias, align_corners,
                      {scales_h, scales_w});
}
ATHANOR_FUNCTION(
    "_upsample_bicubic2d_aa(Tensor self, int[] output_size, bool align_corners, float? scales_h=None, "
    "float? scales_w=None) -> Tensor | function");
Tensor _upsample_bicubic2d_aa(const Tensor& self, IntArrayRef output_size, bool align_corners,
                              std::optional<double> scales_h, std::optional<double> scales_w) {
  return interpolated("upsample_bicubic2d_aa", self, output_size, 2, Filter::CubicAntialias, align_corners,
                      {scales_h, scales_w});
}

}  // namespace athanor::ops

#include "athanor/ops/resample.glue.inc"
