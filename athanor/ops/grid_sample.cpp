// Sampling images at the points of a grid (Jaderberg et al., "Spatial transformer networks", 2015).
#include "athanor/ops/grid_sample.h"

#include <limits>

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
#include "athanor/ops/reduce.h"
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

/// Places along one dim, by which the derivative of a place is multiplied where it is not 0 or 1, and that factor.
struct Places {
  Tensor at, factor;
};

/// x folded back and forth between low and high, as a light ray between mirrors.
Places reflected(const Tensor& x, double low, double high) {
  if (low == high) return {mul(x, 0), zeros_like(x)};
  const double span = high - low;
  const Tensor distance = abs(sub(x, low));
  const Tensor turns = floor(div(detach(distance), span));
  const Tensor rest = sub(distance, mul(turns, span)), even = eq(fmod(turns, 2), 0);
  return {where(even, add(rest, low), rsub(rest, high)),
          where(logical_xor(even, lt(detach(x), low)), full_like(x, 1), full_like(x, -1))};
}

/// One dim of the input.
struct Axis {
  std::int64_t size;
  GridSampling how;
  /// The derivative of place().
  double slope() const { return how.align_corners ? static_cast<double>(size - 1) / 2 : static_cast<double>(size) / 2; }
  /// -1 … 1 to places in the input: the centers of the outermost elements, or their outer edges.
  Tensor place(const Tensor& x) const {
    const auto n = static_cast<double>(size);
    return how.align_corners ? mul(add(x, 1), slope()) : mul(sub(mul(add(x, 1), n), 1), 0.5);
  }
  Places padded(const Tensor& x) const {
    const auto n = static_cast<double>(size);
    if (how.padding == GridSampling::kZeros) return {x, full_like(x, 1)};
    Places y{x, full_like(x, 1)};
    if (how.padding == GridSampling::kReflection)
      y = how.align_corners ? reflected(x, 0, n - 1) : reflected(x, -0.5, n - 0.5);
    // As PyTorch has it, the gradient is 0 at a border, not only beyond: one of the two taps lies outside there.
    const Tensor fixed = detach(y.at), inner = logical_and(gt(fixed, 0), lt(fixed, n - 1));
    return {where(inner, y.at, clamp(where(isnan(fixed), Scalar(0), fixed), 0, n - 1)),
            where(inner, y.factor, Scalar(0))};
  }
  /// Whether an integer place lies in the input.
  Tensor inside(const Tensor& at) const { return logical_and(ge(at, 0), le(at, size - 1)); }
};

/// A place along one dim that is read, how much it counts, and the derivative of that by the coordinate; neither of
/// them where only the nearest element is read.
struct Tap {
  Tensor inside, index, weight, slope;
};

Tap tap_at(const Axis& axis, const Tensor& whole, const Tensor& weight = {}, const Tensor& slope = {}) {
  // Bounds are compared as integers: size - 1 need not be a number of the dtype. NaN and what is too large for an
  // integer become the least one, which lies outside.
  const Tensor at = to_dtype(detach(whole), DType::Long);
  return {axis.inside(at), clamp(at, 0, axis.size - 1), weight, slope};
}

/// The cubic convolution weight of distance x (Keys, 1981) with a = -3/4, for |x| <= 1 and 1 < |x| < 2, and the
/// derivatives.
Tensor near_cubic(const Tensor& x) { return add(mul(mul(sub(mul(x, 1.25), 2.25), x), x), 1); }
Tensor far_cubic(const Tensor& x) { return sub(mul(add(mul(add(mul(x, -0.75), 3.75), x), -6.0), x), -3.0); }
Tensor near_slope(const Tensor& x) { return mul(sub(mul(x, 3.75), 4.5), x); }
Tensor far_slope(const Tensor& x) { return sub(mul(add(mul(x, -2.25), 7.5), x), 6.0); }

std::vector<Tap> taps_of(const Axis& axis, const Tensor& coordinate) {
  const Tensor at = axis.place(coordinate);
  if (axis.how.interpolation == GridSampling::kNearest) return {tap_at(axis, round(axis.padded(at).at))};
  if (axis.how.interpolation == GridSampling::kLinear) {
    const Places x = axis.padded(at);
    const Tensor low = floor(detach(x.at)), part = sub(x.at, low), slope = mul(x.factor, axis.slope());
    return {tap_at(axis, low, rsub(part, 1), neg(slope)), tap_at(axis, add(low, 1), part, slope)};
  }
  const Tensor low = floor(detach(at)), part = sub(at, low), rest = rsub(part, 1);
  const Tensor before = add(part, 1), after = add(rest, 1);
  const Tensor weights[] = {far_cubic(before), near_cubic(part), near_cubic(rest), far_cubic(after)};
  const Tensor slopes[] = {far_slope(before), near_slope(part), neg(near_slope(rest)), neg(far_slope(after))};
  std::vector<Tap> taps;
  // Each tap is padded on its own.
  for (int k = 0; k < 4; ++k)
    taps.push_back(tap_at(axis, axis.padded(add(low, k - 1)).at, weights[k], mul(slopes[k], axis.slope())));
  return taps;
}

/// The taps of all points, of which index and weight are (N, taps, points).
class Taps {
 public:
  Taps(const Tensor& input, const Tensor& grid, const GridSampling& how) : spatial_(input.dim() - 2) {
    std::int64_t count = 1;  // -1 would not tell it where there are no examples
    for (std::int64_t d = 1; d <= spatial_; ++d) count *= grid.size(d);
    points_ = reshape(grid, {grid.size(0), count, spatial_});
    for (std::int64_t d = 0; d < spatial_; ++d) {
      // The last coordinate belongs to the first spatial dim.
      const Axis axis{input.size(2 + d), how};
      dims_.push_back(taps_of(axis, select(points_, 2, spatial_ - 1 - d)));
      combinations_ *= dims_.back().size();
    }
    std::vector<Tensor> indices;
    for (std::size_t k = 0; k < combinations_; ++k) {
      Tensor inside, index;
      for (std::int64_t d = 0; d < spatial_; ++d) {
        const Tap& t = tap(k, d);
        inside = inside.defined() ? logical_and(inside, t.inside) : t.inside;
        index = index.defined() ? add(mul(index, input.size(2 + d)), t.index) : t.index;
      }
      indices.push_back(where(inside, index, Scalar(-1)));
    }
    index = stack(indices, 1);
  }
  Tensor index;
  /// Their derivative by the coordinate of one dim, or themselves.
  Tensor weight(std::int64_t by = -1) const {
    std::vector<Tensor> weights;
    for (std::size_t k = 0; k < combinations_; ++k) {
      Tensor weight;
      for (std::int64_t d = 0; d < spatial_; ++d) {
        const Tensor& factor = d == by ? tap(k, d).slope : tap(k, d).weight;
        if (factor.defined()) weight = weight.defined() ? mul(weight, factor) : factor;
      }
      // The nearest element counts once wherever the point lies, so the gradient of the grid is zeros, not absent.
      if (!weight.defined()) weight = add(mul(nan_to_num(select(points_, 2, 0), 0.0, 0.0, 0.0), 0), 1);
      weights.push_back(weight);
    }
    return stack(weights, 1);
  }

 private:
  const Tap& tap(std::size_t k, std::int64_t d) const {
    for (std::int64_t i = 0; i < d; ++i) k /= dims_[0].size();
    return dims_[static_cast<std::size_t>(d)][k % dims_[0].size()];
  }
  std::int64_t spatial_;
  std::size_t combinations_ = 1;
  Tensor points_;
  std::vector<std::vector<Tap>> dims_;
};

/// (N, C, points…) as the grid has them.
DimVector sampled_sizes(const Tensor& input, const Tensor& grid) {
  DimVector sizes{input.size(0), input.size(1)};
  for (std::int64_t d = 1; d + 1 < grid.dim(); ++d) sizes.push_back(grid.size(d));
  return sizes;
}

/// Halves have too few digits for places in an image.
Tensor wide(const Tensor& t) { return is_half(t.dtype()) ? cast(t, DType::Float) : t; }

/// The sampler in ops that have gradients of every order.
Tensor composed_sampler(const Tensor& input, const Tensor& grid, const GridSampling& how) {
  const Taps taps(input, wide(grid), how);
  const Tensor out = _sample_points(flatten(wide(input), 2, -1), taps.index, taps.weight());
  return cast(reshape(out, sampled_sizes(input, grid)), input.dtype());
}

/// The gradient of its grid: likewise.
Tensor composed_grid_gradient(const Tensor& g, const Tensor& input, const Tensor& grid, const GridSampling& how) {
  const Taps taps(input, wide(grid), how);
  const Tensor of_weight = _sample_points_weight(flatten(wide(g), 2, -1), flatten(wide(input), 2, -1), taps.index);
  std::vector<Tensor> coordinates;
  for (std::int64_t d = input.dim() - 2; d-- > 0;) coordinates.push_back(sum(mul(of_weight, taps.weight(d)), {1}));
  return cast(reshape(stack(coordinates, -1), grid.sizes()), grid.dtype());
}

/// The gradient of the grid where output's is g: composed of other ops where it has to be differentiated in turn.
Tensor grid_gradient(const Tensor& g, const Tensor& input, const Tensor& grid, const GridSampling& how) {
  if (how.interpolation == GridSampling::kNearest) return zeros_like(grid);
  if (GradMode::is_enabled() && (wants_grad(g) || wants_grad(input) || wants_grad(grid)))
    return composed_grid_gradient(g, input, grid, how);
  Tensor out = detail::empty_tensor(grid.sizes(), grid.dtype(), grid.device());
  launch(grid_sample_grid_kernel, out, contiguous(g), contiguous(input), contiguous(grid), how);
  return out;
}

}  // namespace

/// grid_sampler of operands that were checked.
struct SampleGrid {
  ATHANOR_OP(
      "_sample_grid(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor "
      "| function");
  static constexpr const char* grad_name = "GridSamplerBackward0";
  std::int64_t interpolation_mode, padding_mode;
  bool align_corners;
  SavedTensor kept_input, kept_grid;
  DimVector sizes;
  GridSampling how() const { return {interpolation_mode, padding_mode, align_corners}; }
  void prepare(Tensor& input, Tensor& grid) { input = contiguous(input), grid = contiguous(grid); }
  Meta infer(const Tensor& input, const Tensor& grid) {
    sizes = DimVector(input.sizes());
    return {sampled_sizes(input, grid), input.dtype(), input.device(), {}};
  }
  void run(const Tensor& out, const Tensor& input, const Tensor& grid) {
    launch(grid_sample_kernel, out, input, grid, how());
  }
  void save(const Node& n, const Tensor& input, const Tensor& grid) {
    kept_grid.save(grid);
    if (n.needs(1)) kept_input.save(input);
  }
  void grad(GradCall& g) {
    const Tensor grid = g.get(kept_grid);
    if (g.needs(0))
      g.set(0, _sample_grid_input_backward(g.grad(), grid, sizes, interpolation_mode, padding_mode, align_corners));
    if (g.needs(1)) g.set(1, grid_gradient(g.grad(), g.get(kept_input), grid, how()));
  }
};

/// The gradient of its input, which has `size`.
struct SampleGridInputBackward {
  ATHANOR_OP(
      "_sample_grid_input_backward(Tensor grad, Tensor grid, int[] size, int interpolation_mode, int padding_mode, "
      "bool "
      "align_corners) -> Tensor | function");
  DimVector size;
  std::int64_t interpolation_mode, padding_mode;
  bool align_corners;
  SavedTensor kept_grad, kept_grid;
  GridSampling how() const { return {interpolation_mode, padding_mode, align_corners}; }
  void prepare(Tensor& grad, Tensor& grid) { grad = contiguous(grad), grid = contiguous(grid); }
  Meta infer(const Tensor& grad, const Tensor&) { return {size, grad.dtype(), grad.device(), {}}; }
  void run(const Tensor& out, const Tensor& grad, const Tensor& grid) {
    launch(grid_sample_source_kernel, out, grad, grid, how());
  }
  void save(const Node& n, const Tensor& grad, const Tensor& grid) {
    kept_grid.save(grid);
    if (n.needs(1)) kept_grad.save(grad);
  }
  void grad(GradCall& g) {
    const Tensor grid = g.get(kept_grid);
    if (g.needs(0)) g.set(0, _sample_grid(g.grad(), grid, interpolation_mode, padding_mode, align_corners));
    // What it is multiplied by is linear in the two alike.
    if (g.needs(1)) g.set(1, grid_gradient(g.get(kept_grad), g.grad(), grid, how()));
  }
};

namespace {

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
  std::int64_t plane = 1;
  for (const std::int64_t s : input.sizes().slice(2)) plane *= s;
  if (plane > std::numeric_limits<std::int32_t>::max())
    return composed_sampler(input, grid, {interpolation_mode, padding_mode, align_corners});
  return _sample_grid(input, grid, interpolation_mode, padding_mode, align_corners);
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
