// Sampling images at the points of a grid (Jaderberg et al., "Spatial transformer networks", 2015).
#include "athanor/ops/grid_sample.h"

#include <cmath>

#include "athanor/ops/autocast.h"
#include "athanor/ops/binary.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/join.h"
#include "athanor/ops/kernels/sample.h"
#include "athanor/ops/matmul.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

// Three products of (values, taps), each the gradient of the others. An index below 0 is a tap outside the source.

/// (N, C, P): for each point the sum of its K taps, weight times the element of source (N, C, S) that index names;
/// index and weight are (N, K, P).
struct SamplePoints {
  ATHANOR_OP("_sample_points(Tensor source, Tensor index, Tensor weight) -> Tensor | function");
  static constexpr const char* grad_name = "GridSamplerBackward0";
  SavedTensor kept_source, kept_index, kept_weight;
  std::int64_t size;
  void prepare(Tensor& source, Tensor& index, Tensor& weight) {
    source = contiguous(source), index = contiguous(index), weight = contiguous(weight);
  }
  Meta infer(const Tensor& source, const Tensor& index, const Tensor&) {
    size = source.size(2);
    return {{source.size(0), source.size(1), index.size(2)}, source.dtype(), source.device(), {}};
  }
  void run(const Tensor& out, const Tensor& source, const Tensor& index, const Tensor& weight) {
    launch(sample_points_kernel, out, source, index, weight);
  }
  void save(const Node& n, const Tensor& source, const Tensor& index, const Tensor& weight) {
    kept_index.save(index);
    if (n.needs(2)) kept_source.save(source);
    if (n.needs(0)) kept_weight.save(weight);
  }
  void grad(GradCall& g) {
    const Tensor index = g.get(kept_index);
    if (g.needs(0)) g.set(0, _sample_points_scatter(g.grad(), index, g.get(kept_weight), size));
    if (g.needs(2)) g.set(2, _sample_points_weight(g.grad(), g.get(kept_source), index));
  }
};

/// (N, C, size): grad (N, C, P) times weight, added up at the places of index.
struct SamplePointsScatter {
  ATHANOR_OP("_sample_points_scatter(Tensor grad, Tensor index, Tensor weight, int size) -> Tensor | function");
  std::int64_t size;
  SavedTensor kept_grad, kept_index, kept_weight;
  void prepare(Tensor& grad, Tensor& index, Tensor& weight) {
    grad = contiguous(grad), index = contiguous(index), weight = contiguous(weight);
  }
  Meta infer(const Tensor& grad, const Tensor&, const Tensor&) {
    return {{grad.size(0), grad.size(1), size}, grad.dtype(), grad.device(), {}};
  }
  void run(const Tensor& out, const Tensor& grad, const Tensor& index, const Tensor& weight) {
    launch(sample_points_scatter_kernel, out, grad, index, weight);
  }
  void save(const Node&, const Tensor& grad, const Tensor& index, const Tensor& weight) {
    kept_grad.save(grad), kept_index.save(index), kept_weight.save(weight);
  }
  void grad(GradCall& g) {
    const Tensor index = g.get(kept_index);
    if (g.needs(0)) g.set(0, _sample_points(g.grad(), index, g.get(kept_weight)));
    if (g.needs(2)) g.set(2, _sample_points_weight(g.get(kept_grad), g.grad(), index));
  }
};

/// (N, K, P): grad (N, C, P) times the elements of source (N, C, S) that index names, added up over channels.
struct SamplePointsWeight {
  ATHANOR_OP("_sample_points_weight(Tensor grad, Tensor source, Tensor index) -> Tensor | function");
  SavedTensor kept_grad, kept_source, kept_index;
  std::int64_t size;
  void prepare(Tensor& grad, Tensor& source, Tensor& index) {
    grad = contiguous(grad), source = contiguous(source), index = contiguous(index);
  }
  Meta infer(const Tensor& grad, const Tensor& source, const Tensor& index) {
    size = source.size(2);
    return {DimVector(index.sizes()), grad.dtype(), grad.device(), {}};
  }
  void run(const Tensor& out, const Tensor& grad, const Tensor& source, const Tensor& index) {
    launch(sample_points_weight_kernel, out, grad, source, index);
  }
  void save(const Node&, const Tensor& grad, const Tensor& source, const Tensor& index) {
    kept_grad.save(grad), kept_source.save(source), kept_index.save(index);
  }
  void grad(GradCall& g) {
    const Tensor index = g.get(kept_index);
    if (g.needs(0)) g.set(0, _sample_points(g.get(kept_source), index, g.grad()));
    if (g.needs(1)) g.set(1, _sample_points_scatter(g.get(kept_grad), index, g.grad(), size));
  }
};

namespace {

enum Interpolation { kBilinear = 0, kNearest = 1, kBicubic = 2 };
enum Padding { kZeros = 0, kBorder = 1, kReflection = 2 };

/// x folded back and forth between low and high, as a light ray between mirrors.
Tensor reflected(const Tensor& x, double low, double high) {
  if (low == high) return mul(x, 0);
  const double span = high - low;
  const Tensor distance = abs(sub(x, low));
  const Tensor turns = floor(div(detach(distance), span));
  const Tensor rest = sub(distance, mul(turns, span));
  return where(eq(fmod(turns, 2), 0), add(rest, low), rsub(rest, high));
}

/// One axis of the input.
struct Axis {
  std::int64_t size;
  bool align_corners;
  std::int64_t padding;
  /// -1 … 1 to places in the input: the centers of the outermost elements, or their outer edges.
  Tensor place(const Tensor& x) const {
    const auto n = static_cast<double>(size);
    return align_corners ? mul(add(x, 1), (n - 1) / 2) : mul(sub(mul(add(x, 1), n), 1), 0.5);
  }
  Tensor padded(Tensor x) const {
    const auto n = static_cast<double>(size);
    if (padding == kZeros) return x;
    if (padding == kReflection) x = align_corners ? reflected(x, 0, n - 1) : reflected(x, -0.5, n - 0.5);
    return clamp(where(isnan(x), Scalar(0), x), 0, n - 1);
  }
  /// Whether an integer place lies in the input.
  Tensor inside(const Tensor& at) const { return logical_and(ge(at, 0), le(at, size - 1)); }
};

/// A place along one axis that is read, and how much it counts.
struct Tap {
  Tensor inside, index, weight;
};

Tap tap_at(const Axis& axis, const Tensor& whole, const Tensor& weight) {
  // Bounds are compared as integers: size - 1 need not be a number of the dtype. NaN and what is too large for an
  // integer become the least one, which lies outside.
  const Tensor at = to_dtype(detach(whole), DType::Long);
  return {axis.inside(at), clamp(at, 0, axis.size - 1), weight};
}

/// The cubic convolution weight of distance x (Keys, 1981) with a = -3/4, for |x| <= 1 and 1 < |x| < 2.
Tensor near_cubic(const Tensor& x) { return add(mul(mul(sub(mul(x, 1.25), 2.25), x), x), 1); }
Tensor far_cubic(const Tensor& x) { return sub(mul(add(mul(add(mul(x, -0.75), 3.75), x), -6.0), x), -3.0); }

std::vector<Tap> taps_of(const Axis& axis, const Tensor& coordinate, std::int64_t interpolation) {
  const Tensor at = axis.place(coordinate);
  if (interpolation == kNearest) return {tap_at(axis, round(axis.padded(at)), Tensor())};
  if (interpolation == kBilinear) {
    const Tensor x = axis.padded(at), low = floor(detach(x));
    const Tensor part = sub(x, low);
    return {tap_at(axis, low, rsub(part, 1)), tap_at(axis, add(low, 1), part)};
  }
  const Tensor low = floor(detach(at)), part = sub(at, low), rest = rsub(part, 1);
  const Tensor weights[] = {far_cubic(add(part, 1)), near_cubic(part), near_cubic(rest), far_cubic(add(rest, 1))};
  std::vector<Tap> taps;
  // Each tap is padded on its own.
  for (int k = 0; k < 4; ++k) taps.push_back(tap_at(axis, axis.padded(add(low, k - 1)), weights[k]));
  return taps;
}

void check_sampler(const char* op, const Tensor& input, const Tensor& grid, std::int64_t interpolation,
                   std::int64_t padding) {
  ATHANOR_CHECK(input.defined() && grid.defined(), op, ": expected tensors, got an undefined one");
  ATHANOR_CHECK(is_floating_point(input.dtype()) && input.dtype() == grid.dtype(), op,
                ": expected input and grid of one floating dtype, but input has ", input.dtype(), " and grid has ",
                grid.dtype());
  ATHANOR_CHECK((input.dim() == 4 || input.dim() == 5) && grid.dim() == input.dim(), op,
                ": expected 4D or 5D input and grid with same number of dimensions, but got input with sizes ",
                input.sizes(), " and grid with sizes ", grid.sizes());
  ATHANOR_CHECK(grid.size(0) == input.size(0), op, ": expected grid and input to have same batch size, but got input ",
                "with sizes ", input.sizes(), " and grid with sizes ", grid.sizes());
  ATHANOR_CHECK(grid.size(-1) == input.dim() - 2, op, ": expected grid to have size ", input.dim() - 2,
                " in last dimension, but got grid with sizes ", grid.sizes());
  for (std::int64_t d = 2; d < input.dim(); ++d)
    ATHANOR_CHECK(input.size(d) > 0, op, ": expected input to have non-empty spatial dimensions, but input has sizes ",
                  input.sizes(), " with dimension ", d, " being empty");
  ATHANOR_CHECK(interpolation >= 0 && interpolation <= 2 && padding >= 0 && padding <= 2, op,
                ": expected interpolation ", "and padding modes 0 to 2, got ", interpolation, " and ", padding);
}

}  // namespace

/// input (N, C, H, W) or (N, C, D, H, W) read at the points of grid (N, H', W', 2) or (N, D', H', W', 3), coordinates
/// (x, y[, z]) of which -1 … 1 spans the input. interpolation_mode: 0 linear, 1 nearest, 2 cubic; padding_mode: 0
/// zeros, 1 border, 2 reflection. A coordinate that is NaN counts as -1 with border and reflection; with zeros its
/// point is NaN in two dims (nearest, and three dims: 0), as it is with bicubic.
ATHANOR_FUNCTION(
    "grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor");
Tensor grid_sampler(const Tensor& input_, const Tensor& grid_, std::int64_t interpolation_mode,
                    std::int64_t padding_mode, bool align_corners) {
  const Tensor input = autocast_to_float(input_), grid = autocast_to_float(grid_);
  check_sampler("grid_sampler", input, grid, interpolation_mode, padding_mode);
  const std::int64_t spatial = input.dim() - 2, n = input.size(0), channels = input.size(1);
  std::int64_t count = 1;  // -1 would not tell it where there are no examples
  for (std::int64_t d = 1; d <= spatial; ++d) count *= grid.size(d);
  // Halves have too few digits for places in an image.
  const Tensor points = reshape(is_half(grid.dtype()) ? cast(grid, DType::Float) : grid, {n, count, spatial});
  const Tensor source = flatten(input, 2, -1);
  std::vector<std::vector<Tap>> taps;
  for (std::int64_t d = 0; d < spatial; ++d) {
    // The last coordinate belongs to the first spatial dim.
    const Axis axis{input.size(2 + d), align_corners, padding_mode};
    taps.push_back(taps_of(axis, select(points, 2, spatial - 1 - d), interpolation_mode));
  }
  const std::size_t each = taps[0].size();
  std::size_t combinations = 1;
  for (std::int64_t d = 0; d < spatial; ++d) combinations *= each;
  std::vector<Tensor> indices, weights;
  for (std::size_t k = 0; k < combinations; ++k) {
    Tensor inside, index, weight;
    std::size_t rest = k;
    for (std::int64_t d = 0; d < spatial; ++d, rest /= each) {
      const Tap& tap = taps[static_cast<std::size_t>(d)][rest % each];
      inside = inside.defined() ? logical_and(inside, tap.inside) : tap.inside;
      index = index.defined() ? add(mul(index, input.size(2 + d)), tap.index) : tap.index;
      if (tap.weight.defined()) weight = weight.defined() ? mul(weight, tap.weight) : tap.weight;
    }
    indices.push_back(where(inside, index, Scalar(-1)));
    // The nearest element counts once wherever the point lies, so the gradient of the grid is zeros, not absent.
    if (!weight.defined()) weight = add(mul(nan_to_num(select(points, 2, 0), 0.0, 0.0, 0.0), 0), 1);
    weights.push_back(weight);
  }
  const Tensor out = _sample_points(source, stack(indices, 1), cast(stack(weights, 1), input.dtype()));
  DimVector sizes{n, channels};
  for (std::int64_t d = 1; d <= spatial; ++d) sizes.push_back(grid.size(d));
  return reshape(out, sizes);
}

namespace {

/// n values from -1 to 1: the centers of the outermost elements, or of n equal cells.
Tensor cell_centers(std::int64_t n, bool align_corners, const TensorOptions& options) {
  if (n <= 1) return zeros({n}, options);
  const Tensor ends = linspace(-1, 1, n, options);
  return align_corners ? ends : mul(ends, static_cast<double>(n - 1) / static_cast<double>(n));
}

}  // namespace

/// The grid for grid_sampler that carries the points of a result of `size` (N, C, spatial…) through the affine maps
/// theta (N, 2, 3) or (N, 3, 4).
ATHANOR_FUNCTION("affine_grid_generator(Tensor theta, int[] size, bool align_corners) -> Tensor");
Tensor affine_grid_generator(const Tensor& theta, IntArrayRef size, bool align_corners) {
  const auto spatial = static_cast<std::int64_t>(size.size()) - 2;
  ATHANOR_CHECK(spatial == 2 || spatial == 3, "affine_grid_generator: AffineGridGenerator needs 4d (spatial) or 5d ",
                "(volumetric) inputs, got size ", size);
  ATHANOR_CHECK(theta.defined() && is_floating_point(theta.dtype()) && theta.dim() == 3 && theta.size(0) == size[0] &&
                    theta.size(1) == spatial && theta.size(2) == spatial + 1,
                "affine_grid_generator: Expected a batch of ", spatial, "D affine matrices of shape ", size[0], "x",
                spatial, "x", spatial + 1, " for size ", size, ". Got ", theta.sizes());
  const IntArrayRef plane = size.slice(2);
  std::vector<Tensor> coordinates;
  DimVector full{1};
  for (const std::int64_t s : plane) full.push_back(s);
  for (std::int64_t d = spatial; d-- > 0;) {
    DimVector line(static_cast<std::size_t>(spatial) + 1, 1);
    line[static_cast<std::size_t>(d) + 1] = size[static_cast<std::size_t>(d) + 2];
    coordinates.push_back(expand(
        reshape(cell_centers(size[static_cast<std::size_t>(d) + 2], align_corners, theta.options()), line), full));
  }
  coordinates.push_back(ones(full, theta.options()));
  const Tensor base = reshape(stack(coordinates, -1), {1, -1, spatial + 1});
  DimVector sizes{size[0]};
  for (const std::int64_t s : plane) sizes.push_back(s);
  sizes.push_back(spatial);
  return reshape(matmul(expand(base, {size[0], base.size(1), spatial + 1}), transpose(theta, 1, 2)), sizes);
}

}  // namespace athanor::ops

#include "athanor/ops/grid_sample.glue.inc"
