// Max unpooling and fractional max pooling.
#include "athanor/ops/pool_more.h"

#include "athanor/ops/autocast.h"
#include "athanor/ops/compare.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/index.h"
#include "athanor/ops/op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce_extreme.h"
#include "athanor/ops/spatial.h"
#include "athanor/ops/ternary.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

Tensor unpool(const char* op, const Tensor& self_, const Tensor& indices, IntArrayRef output_size,
              std::size_t spatial) {
  const Tensor self = autocast_to_float(self_);
  ATHANOR_CHECK(self.defined() && indices.defined(), op, ": expected tensors, got an undefined one");
  ATHANOR_CHECK(output_size.size() == spatial, op, ": There should be exactly ", spatial,
                " elements in output_size, but ", "got ", output_size.size());
  const auto n = static_cast<std::int64_t>(spatial);
  ATHANOR_CHECK(self.dim() == n + 1 || self.dim() == n + 2, op, ": Input should be a ", n + 1, "d or ", n + 2,
                "d Tensor, but got shape ", self.sizes());
  ATHANOR_CHECK(indices.dtype() == DType::Long, op,
                ": elements in indices should be type int64 but got: ", indices.dtype());
  ATHANOR_CHECK(self.sizes() == indices.sizes(), op,
                ": Expected shape of indices to be same as that of the input tensor (", self.sizes(),
                ") but got indices tensor with shape: ", indices.sizes());
  DimVector sizes(self.sizes().slice(0, self.sizes().size() - spatial)), flat(sizes);
  for (const std::int64_t s : output_size) {
    ATHANOR_CHECK(s > 0, op, ": output sizes should be positive, got ", output_size);
    sizes.push_back(s);
  }
  flat.push_back(checked_numel(output_size, op));
  const std::int64_t lead = self.dim() - n;
  const Tensor none = zeros(flat, self.options());
  return reshape(scatter(none, lead, flatten(indices, lead, -1), flatten(self, lead, -1)), sizes);
}

}  // namespace

/// Puts self's elements back where max pooling found them (indices in the plane of output_size), zeros elsewhere.
ATHANOR_FUNCTION("max_unpool2d(Tensor self, Tensor indices, int[] output_size) -> Tensor | function out");
Tensor max_unpool2d(const Tensor& self, const Tensor& indices, IntArrayRef output_size) {
  return unpool("max_unpool2d", self, indices, output_size, 2);
}
/// stride and padding are not needed; they are there as in PyTorch.
ATHANOR_FUNCTION(
    "max_unpool3d(Tensor self, Tensor indices, int[] output_size, int[] stride, int[] padding) -> Tensor | function "
    "out");
Tensor max_unpool3d(const Tensor& self, const Tensor& indices, IntArrayRef output_size, IntArrayRef stride,
                    IntArrayRef padding) {
  for (const std::int64_t step : spatial_values(stride, 3, "max_unpool3d", "stride"))
    ATHANOR_CHECK(step > 0, "max_unpool3d: strides should be greater than zero, but got stride: ", stride);
  spatial_values(padding, 3, "max_unpool3d", "padding");
  return unpool("max_unpool3d", self, indices, output_size, 3);
}

namespace {

/// Where the windows of one axis begin, (planes, out), from a random number in [0, 1) per plane (Graham, "Fractional
/// max-pooling", 2014): floor((i + u) a) - floor(u a), the last flush with the end.
Tensor window_starts(const Tensor& u, std::int64_t in, std::int64_t out, std::int64_t kernel) {
  const TensorOptions whole = TensorOptions(DType::Long).device(u.device());
  Tensor last = full({u.size(0), 1}, in - kernel, whole);
  if (out == 1) return last;
  const double a = static_cast<double>(in - kernel) / static_cast<double>(out - 1);
  const Tensor i = arange(out, TensorOptions(u.dtype()).device(u.device()));
  const Tensor column = unsqueeze(u, 1);
  Tensor begin = sub(trunc(mul(add(column, i), a)), trunc(mul(column, a)));
  begin = to_dtype(begin, DType::Long);
  copy_(slice(begin, 1, out - 1), last);
  return begin;
}

std::tuple<Tensor, Tensor> fractional(const char* op, const Tensor& self_, IntArrayRef kernel_size,
                                      IntArrayRef output_size, const Tensor& samples_, int spatial) {
  const Tensor self = autocast_to_float(self_), samples = autocast_to_float(samples_);
  ATHANOR_CHECK(self.defined() && samples.defined(), op, ": expected tensors, got an undefined one");
  ATHANOR_CHECK_TYPE(NotImplementedError, is_floating_point(self.dtype()), op, ": not implemented for '",
                     dtype_libtorch_name(self.dtype()), "'; convert the input to a floating dtype");
  const auto n = static_cast<std::int64_t>(spatial);
  ATHANOR_CHECK(self.dim() == n + 1 || self.dim() == n + 2, op, ": Expected ", n + 1, "D or ", n + 2,
                "D tensor, but got: ", self.sizes());
  const bool single = self.dim() == n + 1;
  const Tensor x = single ? unsqueeze(self, 0) : self;
  const SpatialArray kernel = spatial_values(kernel_size, spatial, op, "kernel_size");
  const SpatialArray size = spatial_values(output_size, spatial, op, "output_size");
  ATHANOR_CHECK(
      samples.dim() == 3 && samples.size(0) == x.size(0) && samples.size(1) == x.size(1) && samples.size(2) == n, op,
      ": Expected random_samples of shape (batch, channels, ", n, "), got ", samples.sizes());
  ATHANOR_CHECK(samples.dtype() == self.dtype(), op, ": Expect _random_samples to have the same dtype as input, got ",
                samples.dtype());
  const std::int64_t planes = x.size(0) * x.size(1);
  Tensor chosen;  // (planes, windows): where each maximum lies
  const Tensor flat = reshape(x, {planes, checked_numel(x.sizes().slice(2), op)});
  const TensorOptions whole = TensorOptions(DType::Long).device(self.device());
  DimVector result{x.size(0), x.size(1)};
  {
    const NoGradGuard guard;
    // The place in its plane of every tap of every window: (planes, out…, taps…), built one axis at a time.
    Tensor places;
    for (int d = 0; d < spatial; ++d) {
      const auto u = static_cast<std::size_t>(d);
      const std::int64_t in = x.size(2 + d);
      ATHANOR_CHECK(size[u] > 0 && size[u] <= in && kernel[u] > 0 && kernel[u] - 1 <= in - size[u], op, ": pool size ",
                    kernel[u], " and output size ", size[u], " too large relative to input size ", in);
      // PyTorch's samples begin with the width in two dimensions, with the depth in three.
      const Tensor sample = reshape(select(samples, 2, spatial == 2 ? 1 - d : d), {planes});
      const Tensor begin = window_starts(sample, in, size[u], kernel[u]);
      Tensor taps = add(unsqueeze(begin, 2), arange(kernel[u], whole));  // (planes, out, taps)
      if (!places.defined()) {
        places = taps;
      } else {
        // (planes, outs, taps) with one more axis of each.
        const std::int64_t o = places.size(1), k = places.size(2);
        const Tensor left = reshape(mul(places, in), {planes, o, 1, k, 1});
        places =
            reshape(add(left, reshape(taps, {planes, 1, size[u], 1, kernel[u]})), {planes, o * size[u], k * kernel[u]});
      }
      result.push_back(size[u]);
    }
    const std::int64_t windows = places.size(1), taps = places.size(2);
    const Tensor values =
        reshape(gather(detach(flat), 1, reshape(places, {planes, windows * taps})), {planes, windows, taps});
    const Tensor best = std::get<1>(max(values, 2, true));
    chosen = squeeze(gather(places, 2, best), 2);
  }
  const Tensor out = reshape(gather(flat, 1, chosen), result), indices = reshape(chosen, result);
  if (single) return {squeeze(out, 0), squeeze(indices, 0)};
  return {out, indices};
}

}  // namespace

/// Max pooling over windows whose places depend on random_samples (batch, channels, 2) in [0, 1), so that the result
/// has output_size; also the place of each maximum in its plane.
ATHANOR_FUNCTION(
    "fractional_max_pool2d(Tensor self, int[] kernel_size, int[] output_size, Tensor random_samples) -> (Tensor, "
    "Tensor) "
    "| function out");
std::tuple<Tensor, Tensor> fractional_max_pool2d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef output_size,
                                                 const Tensor& random_samples) {
  return fractional("fractional_max_pool2d", self, kernel_size, output_size, random_samples, 2);
}
/// The greatest element of windows of kernel_size whose places random_samples, (N, C, 3), choose so that there are
/// output_size of them. Also returns where each came from, as a place within its channel.
ATHANOR_FUNCTION(
    "fractional_max_pool3d(Tensor self, int[] kernel_size, int[] output_size, Tensor random_samples) -> (Tensor, "
    "Tensor) "
    "| function out");
std::tuple<Tensor, Tensor> fractional_max_pool3d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef output_size,
                                                 const Tensor& random_samples) {
  return fractional("fractional_max_pool3d", self, kernel_size, output_size, random_samples, 3);
}

}  // namespace athanor::ops

#include "athanor/ops/pool_more.glue.inc"
