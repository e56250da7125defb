// Pooling over 1 to 3 spatial dimensions: max, average, and their adaptive forms.
#include "athanor/ops/pool.h"

#include "athanor/ops/autocast.h"
#include "athanor/ops/index.h"
#include "athanor/ops/kernels/pool.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/spatial.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

std::int64_t pooled_size(std::int64_t in, const PoolParams& p, std::size_t d, bool ceil_mode) {
  const std::int64_t room = in + 2 * p.padding[d] - p.dilation[d] * (p.kernel[d] - 1) - 1;
  const std::int64_t up = room + (ceil_mode ? p.stride[d] - 1 : 0);
  std::int64_t out = (up >= 0 ? up / p.stride[d] : -((-up + p.stride[d] - 1) / p.stride[d])) + 1;
  // The last window must start inside the input or its near padding.
  if (ceil_mode && (out - 1) * p.stride[d] >= in + p.padding[d]) --out;
  return out;
}

PoolParams make_params(const char* op, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                       IntArrayRef dilation) {
  PoolParams p;
  p.spatial = static_cast<int>(kernel.size());
  ATHANOR_CHECK(p.spatial >= 1 && p.spatial <= 3, op, ": expected 1 to 3 kernel sizes, got ", kernel);
  p.kernel = spatial_values(kernel, p.spatial, op, "kernel_size");
  p.stride = stride.empty() ? p.kernel : spatial_values(stride, p.spatial, op, "stride");
  p.padding = spatial_values(padding, p.spatial, op, "padding");
  p.dilation = spatial_values(dilation, p.spatial, op, "dilation");
  for (int i = 0; i < p.spatial; ++i) {
    const auto d = static_cast<std::size_t>(i);
    ATHANOR_CHECK(p.kernel[d] > 0, op, ": kernel size should be greater than zero, but got ", p.kernel[d]);
    ATHANOR_CHECK(p.stride[d] > 0, op, ": stride should be greater than zero, but got ", p.stride[d]);
    ATHANOR_CHECK(p.dilation[d] > 0, op, ": dilation should be greater than zero, but got ", p.dilation[d]);
    ATHANOR_CHECK(p.padding[d] >= 0, op, ": padding must be non-negative, but got ", p.padding[d]);
    constexpr std::int64_t kMost = std::int64_t{1} << 30;  // beyond, sizes computed from these could overflow
    ATHANOR_CHECK(p.kernel[d] < kMost && p.stride[d] < kMost && p.dilation[d] < kMost, op,
                  ": effective kernel size overflows, but got kernel_size=", p.kernel[d], ", stride=", p.stride[d],
                  " and dilation=", p.dilation[d]);
    const std::int64_t reach = (p.kernel[d] - 1) * p.dilation[d] + 1;
    ATHANOR_CHECK(p.padding[d] <= reach / 2, op,
                  ": pad should be at most half of effective kernel size, but got pad=", p.padding[d],
                  ", kernel_size=", p.kernel[d], " and dilation=", p.dilation[d]);
  }
  return p;
}

/// `input` is (batch, channels, spatial…).
Meta pooled_meta(const char* op, const Tensor& input, const PoolParams& p, bool ceil_mode, DType dtype) {
  ATHANOR_CHECK(input.dim() == p.spatial + 2, op, ": expected input (batch, channels, ", p.spatial,
                " spatial sizes), got shape ", input.sizes());
  DimVector sizes{input.size(0), input.size(1)};
  for (int i = 0; i < p.spatial; ++i)
    sizes.push_back(pooled_size(input.size(2 + i), p, static_cast<std::size_t>(i), ceil_mode));
  for (std::size_t d = 1; d < sizes.size(); ++d)
    ATHANOR_CHECK(sizes[d] > 0 && input.sizes()[d] > 0, op, ": Given input size: ", input.sizes(),
                  ". Calculated output size: ", IntArrayRef(sizes), ". Output size is too small");
  return {sizes, dtype, input.device(), layout_like(input, sizes)};
}

void check_floating(const char* op, const Tensor& t) {
  ATHANOR_CHECK_TYPE(NotImplementedError, is_floating_point(t.dtype()), op, ": not implemented for '",
                     dtype_libtorch_name(t.dtype()), "'; convert the input to a floating dtype");
}

void check_not_bool(const char* op, const Tensor& t) {
  ATHANOR_CHECK_TYPE(NotImplementedError, t.dtype() != DType::Bool, op, ": not implemented for 'Bool'");
}

}  // namespace

/// What the ops of max pooling share.
struct MaxPoolBase {
  DimVector kernel_size, stride, padding, dilation;
  bool ceil_mode = false;
  PoolParams params;
  DimVector input_size;
  Meta pooled(const Tensor& self) {
    check_not_bool("max_pool", self);
    params = make_params("max_pool", kernel_size, stride, padding, dilation);
    ATHANOR_CHECK(checked_numel(spatial_ref(params.kernel, params.spatial), "max_pool") <= INT32_MAX,
                  "max_pool: a window of kernel_size=", IntArrayRef(kernel_size), " has too many elements");
    input_size = DimVector(self.sizes());
    return pooled_meta("max_pool", self, params, ceil_mode, self.dtype());
  }
};

/// Largest value of each window. Keeps one byte per result for its gradient.
struct MaxPool : MaxPoolBase {
  ATHANOR_OP(
      "_max_pool(Tensor self, int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode) -> "
      "Tensor | function");
  static constexpr const char* grad_name = "MaxPoolWithIndicesBackward0";
  Tensor indices;
  DimVector result_size, result_strides;
  Device device;
  Meta infer(const Tensor& self) {
    Meta m = pooled(self);
    result_size = m.sizes;
    result_strides = m.strides;
    return m;
  }
  void save(const Node&, const Tensor& self) {
    std::int64_t taps = 1;
    for (int i = 0; i < params.spatial; ++i) taps *= params.kernel[static_cast<std::size_t>(i)];
    indices = detail::empty_tensor(result_size, taps <= 256 ? DType::Byte : DType::Long, self.device(), result_strides);
  }
  void run(const Tensor& out, const Tensor& self) { launch<2>(max_pool_kernel, out, indices, self, params); }
  void grad(GradCall& g) {
    g.set(0, max_pool_backward(g.grad(), indices, input_size, kernel_size, stride, padding, dilation));
  }
};

/// The same with the position of each maximum in its input plane, flattened.
struct MaxPoolWithIndices : MaxPoolBase {
  ATHANOR_OP(
      "_max_pool_with_indices(Tensor self, int[] kernel_size, int[] stride, int[] padding, int[] dilation, "
      "bool ceil_mode) -> (Tensor, Tensor) | function");
  static constexpr const char* grad_name = "MaxPoolWithIndicesBackward0";
  SavedTensor indices;
  std::array<Meta, 2> infer(const Tensor& self) {
    const Meta m = pooled(self);
    Meta i = m;
    i.dtype = DType::Long;
    return {m, i};
  }
  void run(const Tensor& out, const Tensor& index, const Tensor& self) {
    launch<2>(max_pool_kernel, out, index, self, params);
  }
  void save_results(Node*, const Tensor&, const Tensor& index) { indices.save(index); }
  void grad(GradCall& g) {
    if (g.has(0))
      g.set(0, max_pool_backward(g.grad(0), g.get(indices), input_size, kernel_size, stride, padding, dilation));
  }
};

namespace {

/// Places in the window, as the one-byte form keeps them, turned into places in the input plane.
Tensor plane_indices(const Tensor& in_window, IntArrayRef plane, const PoolParams& p) {
  const int n = p.spatial;
  SpatialArray step{1, 1, 1};  // of the input plane, row-major
  for (int d = n - 2; d >= 0; --d) {
    const auto u = static_cast<std::size_t>(d);
    step[u] = step[u + 1] * plane[u + 1];
  }
  // Row-major over `counts`, the sum of scale_d (i_d · factor_d - shift_d).
  auto table = [&](IntArrayRef counts, const SpatialArray& factor, const SpatialArray& shift) {
    std::vector<std::int64_t> values{0};
    for (std::size_t d = 0; d < counts.size(); ++d) {
      std::vector<std::int64_t> next;
      for (const std::int64_t v : values)
        for (std::int64_t i = 0; i < counts[d]; ++i) next.push_back(v + (i * factor[d] - shift[d]) * step[d]);
      values = std::move(next);
    }
    return values;
  };
  const std::vector<std::int64_t> taps = table(spatial_ref(p.kernel, n), p.dilation, {0, 0, 0});
  const IntArrayRef out_plane = in_window.sizes().slice(2);
  const std::vector<std::int64_t> corners = table(out_plane, p.stride, p.padding);
  const Device device = in_window.device();
  const Tensor which = reshape(to_dtype(in_window, DType::Long), {-1});
  const Tensor offset = reshape(
      index_select(index_tensor(taps, {static_cast<std::int64_t>(taps.size())}, device), 0, which), in_window.sizes());
  return add(offset, index_tensor(corners, out_plane, device));
}

/// Which windows hold elements of the input, (out plane); undefined if all do. A step between taps that is longer than
/// the input may leave none.
Tensor windows_inside(const Tensor& in_window, IntArrayRef plane, const PoolParams& p) {
  const IntArrayRef out_plane = in_window.sizes().slice(2);
  std::vector<std::int64_t> inside{1};
  bool all = true;
  for (std::size_t d = 0; d < plane.size(); ++d) all = all && (p.padding[d] == 0 || p.dilation[d] <= plane[d]);
  if (all) return {};
  for (std::size_t d = 0; d < plane.size(); ++d) {
    std::vector<std::int64_t> next;
    for (const std::int64_t others : inside)
      for (std::int64_t o = 0; o < out_plane[d]; ++o) {
        const std::int64_t start = o * p.stride[d] - p.padding[d], step = p.dilation[d];
        next.push_back(others && (start < 0 ? start + (step - 1 - start) / step * step : start) < plane[d]);
      }
    inside = std::move(next);
  }
  return to_dtype(index_tensor(inside, out_plane, in_window.device()), DType::Bool);
}

}  // namespace

/// grad_output added where `indices` (int64: in the input plane; uint8: in the window) says, zero elsewhere.
struct MaxPoolBackward : MaxPoolBase {
  ATHANOR_OP(
      "max_pool_backward(Tensor grad_output, Tensor indices, int[] input_size, int[] kernel_size, int[] stride, "
      "int[] padding, int[] dilation) -> Tensor");
  Tensor places;
  Meta infer(const Tensor& grad_output, const Tensor& indices) {
    ATHANOR_CHECK(indices.dtype() == DType::Byte || indices.dtype() == DType::Long,
                  "max_pool_backward: indices must be int64 or uint8, got ", indices.dtype());
    ATHANOR_CHECK(grad_output.sizes() == indices.sizes(), "max_pool_backward: grad_output of shape ",
                  grad_output.sizes(), " does not fit indices of shape ", indices.sizes());
    if (!kernel_size.empty()) params = make_params("max_pool_backward", kernel_size, stride, padding, dilation);
    params.spatial = static_cast<int>(input_size.size()) - 2;
    ATHANOR_CHECK(params.spatial >= 1 && params.spatial <= 3 && grad_output.dim() == params.spatial + 2,
                  "max_pool_backward: grad_output of shape ", grad_output.sizes(), " does not fit input_size ",
                  IntArrayRef(input_size));
    return {input_size, grad_output.dtype(), grad_output.device(), layout_like(grad_output, input_size)};
  }
  void run(const Tensor& out, const Tensor& grad_output, const Tensor& indices) {
    const IntArrayRef plane = out.sizes().slice(2);
    const Tensor inside = windows_inside(indices, plane, params);
    if (!inside.defined()) return launch(max_pool_backward_kernel, out, grad_output, indices, params);
    const NoGradGuard guard;
    const Tensor all = indices.dtype() == DType::Byte ? plane_indices(indices, plane, params) : indices;
    launch(max_pool_backward_kernel, out, where(inside, grad_output, Scalar(0)), where(inside, all, Scalar(0)), params);
  }
  void save(const Node&, const Tensor&, const Tensor& indices) { places = indices; }
  void grad(GradCall& g) {
    if (g.needs(0)) g.set(0, max_pool_gather(g.grad(), places, kernel_size, stride, padding, dilation));
  }
};

/// The values of self (batch, channels, spatial…) at the places that max pooling found: the gradient of its gradient.
ATHANOR_FUNCTION(
    "max_pool_gather(Tensor self, Tensor indices, int[] kernel_size, int[] stride, int[] padding, int[] dilation) -> "
    "Tensor | function internal");
Tensor max_pool_gather(const Tensor& self, const Tensor& indices, IntArrayRef kernel_size, IntArrayRef stride,
                       IntArrayRef padding, IntArrayRef dilation) {
  Tensor places = indices, inside;
  if (!kernel_size.empty()) {
    const PoolParams p = make_params("max_pool_gather", kernel_size, stride, padding, dilation);
    if (indices.dtype() == DType::Byte) places = plane_indices(indices, self.sizes().slice(2), p);
    inside = windows_inside(indices, self.sizes().slice(2), p);
    if (inside.defined()) places = where(inside, places, Scalar(0));
  }
  const Tensor read = reshape(gather(flatten(self, 2, -1), 2, flatten(places, 2, -1), false), indices.sizes());
  return inside.defined() ? where(inside, read, Scalar(0)) : read;
}

/// Mean of each window.
struct AvgPool {
  ATHANOR_OP(
      "_avg_pool(Tensor self, int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, bool count_include_pad, "
      "int? divisor_override) -> Tensor | function");
  DimVector kernel_size, stride, padding;
  bool ceil_mode, count_include_pad;
  std::optional<std::int64_t> divisor_override;
  PoolParams params;
  DimVector input_size;
  Meta infer(const Tensor& self) {
    check_floating("avg_pool", self);
    ATHANOR_CHECK(!divisor_override || *divisor_override != 0, "avg_pool: divisor must be not zero");
    params = make_params("avg_pool", kernel_size, stride, padding, 1);
    params.count_include_pad = count_include_pad;
    params.divisor_override = divisor_override.value_or(0);
    input_size = DimVector(self.sizes());
    return pooled_meta("avg_pool", self, params, ceil_mode, self.dtype());
  }
  void run(const Tensor& out, const Tensor& self) { launch(avg_pool_kernel, out, self, params); }
  void grad(GradCall& g) {
    g.set(0, avg_pool_backward(g.grad(), input_size, kernel_size, stride, padding, ceil_mode, count_include_pad,
                               divisor_override));
  }
};

struct AvgPoolBackward {
  ATHANOR_OP(
      "avg_pool_backward(Tensor grad_output, int[] input_size, int[] kernel_size, int[] stride, int[] padding, "
      "bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor");
  DimVector input_size, kernel_size, stride, padding;
  bool ceil_mode, count_include_pad;
  std::optional<std::int64_t> divisor_override;
  PoolParams params;
  Meta infer(const Tensor& grad_output) {
    check_floating("avg_pool_backward", grad_output);
    params = make_params("avg_pool_backward", kernel_size, stride, padding, 1);
    params.count_include_pad = count_include_pad;
    params.divisor_override = divisor_override.value_or(0);
    bool fits = grad_output.dim() == params.spatial + 2 && input_size.size() == grad_output.sizes().size() &&
                input_size[0] == grad_output.size(0) && input_size[1] == grad_output.size(1);
    for (std::size_t d = 0; fits && d + 2 < input_size.size(); ++d)
      fits = grad_output.sizes()[d + 2] == pooled_size(input_size[d + 2], params, d, ceil_mode);
    ATHANOR_CHECK(fits, "avg_pool_backward: grad_output of shape ", grad_output.sizes(), " does not fit input_size ",
                  IntArrayRef(input_size));
    return {input_size, grad_output.dtype(), grad_output.device(), layout_like(grad_output, input_size)};
  }
  void run(const Tensor& out, const Tensor& grad_output) { launch(avg_pool_backward_kernel, out, grad_output, params); }
  void grad(GradCall& g) {
    g.set(0, _avg_pool(g.grad(), kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override));
  }
};

namespace {

Meta adaptive_meta(const char* op, const Tensor& self, IntArrayRef output_size) {
  check_floating(op, self);
  ATHANOR_CHECK(self.dim() >= 3 && self.dim() <= 5 && static_cast<std::int64_t>(output_size.size()) == self.dim() - 2,
                op, ": expected input (batch, channels, ", output_size.size(), " spatial sizes), got shape ",
                self.sizes());
  DimVector sizes{self.size(0), self.size(1)};
  for (std::size_t d = 0; d < output_size.size(); ++d) {
    ATHANOR_CHECK(output_size[d] >= 0, op, ": elements of output_size must be greater than or equal to 0, got ",
                  output_size);
    ATHANOR_CHECK(self.sizes()[d + 2] > 0, op, ": Expected input to have non-zero size for non-batch dimensions, but ",
                  "input has sizes ", self.sizes(), " with dimension ", d + 2, " being empty");
    sizes.push_back(output_size[d]);
  }
  return {sizes, self.dtype(), self.device(), layout_like(self, sizes)};
}

}  // namespace

/// Mean over windows chosen so that the result has the given size.
struct AdaptiveAvgPool {
  ATHANOR_OP("_adaptive_avg_pool(Tensor self, int[] output_size) -> Tensor | function");
  DimVector output_size;
  DimVector input_size;
  Meta infer(const Tensor& self) {
    input_size = DimVector(self.sizes());
    return adaptive_meta("adaptive_avg_pool", self, output_size);
  }
  void run(const Tensor& out, const Tensor& self) { launch(adaptive_avg_pool_kernel, out, self); }
  void grad(GradCall& g) { g.set(0, adaptive_avg_pool_backward(g.grad(), input_size)); }
};

struct AdaptiveAvgPoolBackward {
  ATHANOR_OP("adaptive_avg_pool_backward(Tensor grad_output, int[] input_size) -> Tensor");
  DimVector input_size;
  DimVector output_size;
  Meta infer(const Tensor& grad_output) {
    check_floating("adaptive_avg_pool_backward", grad_output);
    ATHANOR_CHECK(grad_output.dim() >= 3 && grad_output.dim() <= 5 && input_size.size() == grad_output.sizes().size() &&
                      input_size[0] == grad_output.size(0) && input_size[1] == grad_output.size(1),
                  "adaptive_avg_pool_backward: grad_output of shape ", grad_output.sizes(), " does not fit input_size ",
                  IntArrayRef(input_size));
    output_size = DimVector(grad_output.sizes().slice(2));
    return {input_size, grad_output.dtype(), grad_output.device(), layout_like(grad_output, input_size)};
  }
  void run(const Tensor& out, const Tensor& grad_output) {
    launch(adaptive_avg_pool_backward_kernel, out, grad_output);
  }
  void grad(GradCall& g) { g.set(0, _adaptive_avg_pool(g.grad(), output_size)); }
};

struct AdaptiveMaxPool {
  ATHANOR_OP("_adaptive_max_pool(Tensor self, int[] output_size) -> (Tensor, Tensor) | function");
  DimVector output_size;
  DimVector input_size;
  SavedTensor indices;
  std::array<Meta, 2> infer(const Tensor& self) {
    input_size = DimVector(self.sizes());
    const Meta m = adaptive_meta("adaptive_max_pool", self, output_size);
    Meta i = m;
    i.dtype = DType::Long;
    return {m, i};
  }
  void run(const Tensor& out, const Tensor& index, const Tensor& self) {
    launch<2>(adaptive_max_pool_kernel, out, index, self);
  }
  void save_results(Node*, const Tensor&, const Tensor& index) { indices.save(index); }
  void grad(GradCall& g) {
    const IntArrayRef none;
    if (g.has(0)) g.set(0, max_pool_backward(g.grad(0), g.get(indices), input_size, none, none, none, none));
  }
};

namespace {

/// Runs `pool` on (batch, channels, spatial…), adding and removing a batch of one if the input has none.
template <class Pool>
auto with_batch(const char* op, int spatial, const Tensor& input, Pool pool) {
  const Tensor self = spatial == 3 ? autocast_to_float(input) : input;  // PyTorch's list has volumes alone
  ATHANOR_CHECK(self.defined(), op, ": expected a tensor, got an undefined one");
  ATHANOR_CHECK(self.dim() == spatial + 1 || self.dim() == spatial + 2, op, ": Expected ", spatial + 1, "D or ",
                spatial + 2, "D (batch mode) tensor with optional 0 dim batch size for input, but got: ", self.sizes());
  const bool batched = self.dim() == spatial + 2;
  auto out = pool(batched ? self : unsqueeze(self, 0));
  if constexpr (std::is_same_v<decltype(out), Tensor>)
    return batched ? out : squeeze(out, 0);
  else
    return batched ? out : std::tuple<Tensor, Tensor>(squeeze(std::get<0>(out), 0), squeeze(std::get<1>(out), 0));
}

DimVector spatial_list(IntArrayRef values, int spatial, const char* op, const char* argument) {
  return DimVector(spatial_ref(spatial_values(values, spatial, op, argument), spatial));
}

Tensor max_pool(const char* op, int spatial, const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  const DimVector k = spatial_list(kernel, spatial, op, "kernel_size");
  return with_batch(op, spatial, self,
                    [&](const Tensor& x) { return _max_pool(x, k, stride, padding, dilation, ceil_mode); });
}

std::tuple<Tensor, Tensor> max_pool_indices(const char* op, int spatial, const Tensor& self, IntArrayRef kernel,
                                            IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                                            bool ceil_mode) {
  const DimVector k = spatial_list(kernel, spatial, op, "kernel_size");
  return with_batch(op, spatial, self, [&](const Tensor& x) {
    return _max_pool_with_indices(x, k, stride, padding, dilation, ceil_mode);
  });
}

Tensor avg_pool(const char* op, int spatial, const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                IntArrayRef padding, bool ceil_mode, bool count_include_pad, std::optional<std::int64_t> divisor) {
  const DimVector k = spatial_list(kernel, spatial, op, "kernel_size");
  if (self.defined() && self.dtype() == DType::Long)  // exact below 2**53, rounded towards zero
    return to_dtype(avg_pool(op, spatial, to_dtype(self, DType::Double), kernel, stride, padding, ceil_mode,
                             count_include_pad, divisor),
                    DType::Long);
  return with_batch(op, spatial, self, [&](const Tensor& x) {
    return _avg_pool(x, k, stride, padding, ceil_mode, count_include_pad, divisor);
  });
}

Tensor adaptive_avg(const char* op, int spatial, const Tensor& self, IntArrayRef output_size) {
  const DimVector size = spatial_list(output_size, spatial, op, "output_size");
  return with_batch(op, spatial, self, [&](const Tensor& x) { return _adaptive_avg_pool(x, size); });
}

std::tuple<Tensor, Tensor> adaptive_max(const char* op, int spatial, const Tensor& self, IntArrayRef output_size) {
  const DimVector size = spatial_list(output_size, spatial, op, "output_size");
  return with_batch(op, spatial, self, [&](const Tensor& x) { return _adaptive_max_pool(x, size); });
}

}  // namespace

// The public names. Inputs are (batch, channels, spatial…) or without batch; a single number counts for every spatial
// dimension; an empty stride is the kernel size.

/// The greatest element of windows of input, (N, C, L) or (C, L). stride is the kernel's size unless given; padding is
/// at most half the kernel.
ATHANOR_FUNCTION(
    "max_pool1d(Tensor self, int[] kernel_size, int[] stride=[], int[] padding=0, int[] dilation=1, "
    "bool ceil_mode=False) -> Tensor | function");
Tensor max_pool1d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  return max_pool("max_pool1d", 1, self, kernel_size, stride, padding, dilation, ceil_mode);
}

/// The greatest element of windows of input, (N, C, H, W) or (C, H, W). stride is the kernel's size unless given;
/// padding is at most half the kernel.
ATHANOR_FUNCTION(
    "max_pool2d(Tensor self, int[] kernel_size, int[] stride=[], int[] padding=0, int[] dilation=1, "
    "bool ceil_mode=False) -> Tensor | function");
Tensor max_pool2d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  return max_pool("max_pool2d", 2, self, kernel_size, stride, padding, dilation, ceil_mode);
}

/// The greatest element of windows of input, (N, C, D, H, W) or (C, D, H, W). stride is the kernel's size unless given;
/// padding is at most half the kernel.
ATHANOR_FUNCTION(
    "max_pool3d(Tensor self, int[] kernel_size, int[] stride=[], int[] padding=0, int[] dilation=1, "
    "bool ceil_mode=False) -> Tensor | function");
Tensor max_pool3d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  return max_pool("max_pool3d", 3, self, kernel_size, stride, padding, dilation, ceil_mode);
}

/// The greatest element of windows of input, (N, C, L) or (C, L). stride is the kernel's size unless given; padding is
/// at most half the kernel. Also returns where each came from, as a place within its channel.
ATHANOR_FUNCTION(
    "max_pool1d_with_indices(Tensor self, int[] kernel_size, int[] stride=[], int[] padding=0, int[] dilation=1, "
    "bool ceil_mode=False) -> (Tensor, Tensor) | function");
std::tuple<Tensor, Tensor> max_pool1d_with_indices(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
                                                   IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  return max_pool_indices("max_pool1d_with_indices", 1, self, kernel_size, stride, padding, dilation, ceil_mode);
}

/// The greatest element of windows of input, (N, C, H, W) or (C, H, W). stride is the kernel's size unless given;
/// padding is at most half the kernel. Also returns where each came from, as a place within its channel.
ATHANOR_FUNCTION(
    "max_pool2d_with_indices(Tensor self, int[] kernel_size, int[] stride=[], int[] padding=0, int[] dilation=1, "
    "bool ceil_mode=False) -> (Tensor, Tensor) | function out");
std::tuple<Tensor, Tensor> max_pool2d_with_indices(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
                                                   IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  return max_pool_indices("max_pool2d_with_indices", 2, self, kernel_size, stride, padding, dilation, ceil_mode);
}

/// The greatest element of windows of input, (N, C, D, H, W) or (C, D, H, W). stride is the kernel's size unless given;
/// padding is at most half the kernel. Also returns where each came from, as a place within its channel.
ATHANOR_FUNCTION(
    "max_pool3d_with_indices(Tensor self, int[] kernel_size, int[] stride=[], int[] padding=0, int[] dilation=1, "
    "bool ceil_mode=False) -> (Tensor, Tensor) | function out");
std::tuple<Tensor, Tensor> max_pool3d_with_indices(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
                                                   IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  return max_pool_indices("max_pool3d_with_indices", 3, self, kernel_size, stride, padding, dilation, ceil_mode);
}

/// The mean of windows of input, (N, C, L) or (C, L). stride is the kernel's size unless given; padding is at most half
/// the kernel. count_include_pad: padding counts as zeros.
ATHANOR_FUNCTION(
    "avg_pool1d(Tensor self, int[] kernel_size, int[] stride=[], int[] padding=0, bool ceil_mode=False, "
    "bool count_include_pad=True) -> Tensor | function");
Tensor avg_pool1d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding, bool ceil_mode,
                  bool count_include_pad) {
  return avg_pool("avg_pool1d", 1, self, kernel_size, stride, padding, ceil_mode, count_include_pad, std::nullopt);
}

/// The mean of windows of input, (N, C, H, W) or (C, H, W). stride is the kernel's size unless given; padding is at
/// most half the kernel. count_include_pad: padding counts as zeros.
ATHANOR_FUNCTION(
    "avg_pool2d(Tensor self, int[] kernel_size, int[] stride=[], int[] padding=0, bool ceil_mode=False, "
    "bool count_include_pad=True, int? divisor_override=None) -> Tensor | function out");
Tensor avg_pool2d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding, bool ceil_mode,
                  bool count_include_pad, std::optional<std::int64_t> divisor_override) {
  return avg_pool("avg_pool2d", 2, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
}

/// The mean of windows of input, (N, C, D, H, W) or (C, D, H, W). stride is the kernel's size unless given; padding is
/// at most half the kernel. count_include_pad: padding counts as zeros.
ATHANOR_FUNCTION(
    "avg_pool3d(Tensor self, int[] kernel_size, int[] stride=[], int[] padding=0, bool ceil_mode=False, "
    "bool count_include_pad=True, int? divisor_override=None) -> Tensor | function out");
Tensor avg_pool3d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding, bool ceil_mode,
                  bool count_include_pad, std::optional<std::int64_t> divisor_override) {
  return avg_pool("avg_pool3d", 3, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
}

/// The mean of windows that cut the last dim of input, (N, C, …) or (C, …), into output_size parts; None keeps a
/// size.
ATHANOR_FUNCTION("adaptive_avg_pool1d(Tensor self, int[] output_size) -> Tensor | function");
Tensor adaptive_avg_pool1d(const Tensor& self, IntArrayRef output_size) {
  return adaptive_avg("adaptive_avg_pool1d", 1, self, output_size);
}

/// The mean of windows that cut the last 2 dims of input, (N, C, …) or (C, …), into output_size parts; None keeps a
/// size.
ATHANOR_FUNCTION("adaptive_avg_pool2d(Tensor self, int[] output_size) -> Tensor | function out");
Tensor adaptive_avg_pool2d(const Tensor& self, IntArrayRef output_size) {
  return adaptive_avg("adaptive_avg_pool2d", 2, self, output_size);
}

/// The mean of windows that cut the last 3 dims of input, (N, C, …) or (C, …), into output_size parts; None keeps a
/// size.
ATHANOR_FUNCTION("adaptive_avg_pool3d(Tensor self, int[] output_size) -> Tensor | function out");
Tensor adaptive_avg_pool3d(const Tensor& self, IntArrayRef output_size) {
  return adaptive_avg("adaptive_avg_pool3d", 3, self, output_size);
}

/// The greatest element of windows that cut the last dim of input, (N, C, …) or (C, …), into output_size parts; None
/// keeps a size. Also returns where each came from, as a place within its channel.
ATHANOR_FUNCTION("adaptive_max_pool1d(Tensor self, int[] output_size) -> (Tensor, Tensor) | function");
std::tuple<Tensor, Tensor> adaptive_max_pool1d(const Tensor& self, IntArrayRef output_size) {
  return adaptive_max("adaptive_max_pool1d", 1, self, output_size);
}

/// The greatest element of windows that cut the last 2 dims of input, (N, C, …) or (C, …), into output_size parts; None
/// keeps a size. Also returns where each came from, as a place within its channel.
ATHANOR_FUNCTION("adaptive_max_pool2d(Tensor self, int[] output_size) -> (Tensor, Tensor) | function out");
std::tuple<Tensor, Tensor> adaptive_max_pool2d(const Tensor& self, IntArrayRef output_size) {
  return adaptive_max("adaptive_max_pool2d", 2, self, output_size);
}

/// The greatest element of windows that cut the last 3 dims of input, (N, C, …) or (C, …), into output_size parts; None
/// keeps a size. Also returns where each came from, as a place within its channel.
ATHANOR_FUNCTION("adaptive_max_pool3d(Tensor self, int[] output_size) -> (Tensor, Tensor) | function out");
std::tuple<Tensor, Tensor> adaptive_max_pool3d(const Tensor& self, IntArrayRef output_size) {
  return adaptive_max("adaptive_max_pool3d", 3, self, output_size);
}

}  // namespace athanor::ops

#include "athanor/ops/pool.glue.inc"
