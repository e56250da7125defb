// Normalisations: layer, RMS, group, instance. batch_norm is in batch_norm.cpp. One fused kernel each way; under
// create_graph the gradient is composed of ops that can be differentiated again.
#include "athanor/ops/norm.h"

#include <limits>

#include "athanor/ops/batch_norm.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/kept_strides.h"
#include "athanor/ops/kernels/norm.h"
#include "athanor/ops/norm_op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/reduce_extreme.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

void check_norm_input(const char* op, const Tensor& input) {
  ATHANOR_CHECK(input.defined(), op, ": expected a tensor, got an undefined one");
  ATHANOR_CHECK_TYPE(NotImplementedError, input.is_floating_point(), op, ": not implemented for ",
                     dtype_name(input.dtype()), "; expected a floating dtype");
}

void check_norm_operand(const char* op, const char* what, const Tensor& t, IntArrayRef shape, const Tensor& input) {
  if (!t.defined()) return;
  ATHANOR_CHECK(t.sizes() == shape, op, ": expected ", what, " to be of shape ", shape, ", but got ", what,
                " of shape ", t.sizes(), "; the input is of shape ", input.sizes());
  ATHANOR_CHECK(t.dtype() == input.dtype() || t.dtype() == statistics_type(input.dtype()), op, ": ", what,
                " has dtype ", t.dtype(), ", expected ", input.dtype(), " or ", statistics_type(input.dtype()));
}

Tensor dense(const Tensor& t) { return t.defined() && !t.is_contiguous() ? contiguous(t) : t; }

namespace {

/// The rows that the last dims of `shape` make of input.
std::int64_t count_rows(const char* op, const Tensor& input, IntArrayRef shape) {
  check_norm_input(op, input);
  ATHANOR_CHECK(!shape.empty(), op, ": Expected normalized_shape to be at least 1-dimensional, i.e., containing at ",
                "least one element, but got normalized_shape = ", shape);
  const auto k = static_cast<std::int64_t>(shape.size());
  bool fits = input.dim() >= k;
  for (std::int64_t d = 0; fits && d < k; ++d)
    fits = input.size(input.dim() - k + d) == shape[static_cast<std::size_t>(d)];
  ATHANOR_CHECK(fits, op, ": Given normalized_shape=", shape, ", expected input with shape [*, ", shape,
                "], but got input of size ", input.sizes());
  std::int64_t rows = 1;
  for (std::int64_t d = 0; d < input.dim() - k; ++d) rows *= input.size(d);
  return rows;
}

/// What one row holds, which the numbers of elements and rows do not tell when there are no rows.
std::int64_t count_of(const DimVector& shape) {
  std::int64_t n = 1;
  for (const std::int64_t size : shape) n *= size;
  return n;
}

DimVector statistics_shape(IntArrayRef sizes, std::size_t normalized) {
  DimVector out(sizes);
  for (std::size_t d = sizes.size() - normalized; d < sizes.size(); ++d) out[d] = 1;
  return out;
}

/// dx of y = xhat * w with xhat = xc * rstd along dim 1 of matrices, where gw = dy * w.
Tensor normalized_gradient(const Tensor& gw, const Tensor& xhat, const Tensor& rstd, bool centered) {
  const std::int64_t one = 1;
  Tensor d = gw;
  if (centered) d = sub(d, mean(gw, one, true, std::nullopt));
  return mul(rstd, sub(d, mul(xhat, mean(mul(gw, xhat), one, true, std::nullopt))));
}

Tensor root_of(const Tensor& squares, double eps) {
  const std::int64_t one = 1;
  return rsqrt(add(mean(squares, one, true, std::nullopt), eps));
}

}  // namespace

// Layer norm.

/// Gradients of native_layer_norm with respect to input, weight and bias, those that the mask asks for (bits 0, 1, 2).
struct LayerNormBackward {
  ATHANOR_OP(
      "_layer_norm_backward(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, "
      "int rows, int mask) -> (Tensor, Tensor, Tensor) | function");
  std::int64_t rows, mask;
  std::array<Meta, 3> infer(const Tensor&, const Tensor& input, const Tensor&, const Tensor&, const Tensor& weight,
                            const Tensor& bias) {
    auto like = [&](const Tensor& t, int bit) {
      return mask >> bit & 1 ? Meta{DimVector(t.sizes()), t.dtype(), input.device(), {}} : Meta{};
    };
    return {like(input, 0), like(weight, 1), like(bias, 2)};
  }
  void run(const Tensor& dx, const Tensor& dw, const Tensor& db, const Tensor& grad, const Tensor& input,
           const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor&) {
    launch<3>(layer_norm_backward_kernel, dx, dw, db, grad, input, mean, rstd, weight, rows);
  }
};

/// (input - mean) / sqrt(var + eps) * weight + bias over the last dims; also mean and 1 / sqrt(var + eps).
struct LayerNorm {
  ATHANOR_OP(
      "native_layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> "
      "(Tensor, Tensor, Tensor) | function");
  DimVector normalized_shape;
  double eps;
  std::int64_t rows = 0;
  SavedTensor x, w, b, mean_, rstd_;
  void prepare(Tensor& input, Tensor& weight, Tensor& bias) {
    rows = count_rows("layer_norm", input, normalized_shape);
    input = dense(input);
    weight = dense(weight);
    bias = dense(bias);
  }
  std::array<Meta, 3> infer(const Tensor& input, const Tensor& weight, const Tensor& bias) {
    check_norm_operand("layer_norm", "weight", weight, normalized_shape, input);
    check_norm_operand("layer_norm", "bias", bias, normalized_shape, input);
    const Meta stats{
        statistics_shape(input.sizes(), normalized_shape.size()), statistics_type(input.dtype()), input.device(), {}};
    return {Meta{DimVector(input.sizes()), input.dtype(), input.device(), {}}, stats, stats};
  }
  void run(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& input, const Tensor& weight,
           const Tensor& bias) {
    launch<3>(layer_norm_kernel, out, mean, rstd, input, weight, bias, rows, eps);
  }
  void save(const Node&, const Tensor& input, const Tensor& weight, const Tensor& bias) {
    x.save(input);
    if (weight.defined()) w.save(weight);
    if (bias.defined()) b.save(bias);
  }
  void save_results(Node* n, const Tensor&, const Tensor& mean, const Tensor& rstd) {
    mean_.save_result(mean, n);
    rstd_.save_result(rstd, n);
  }
  void grad(GradCall& g) {
    if (!g.has(0)) return;
    const Tensor input = g.get(x), weight = w.defined() ? g.get(w) : Tensor(), bias = b.defined() ? g.get(b) : Tensor();
    if (GradMode::is_enabled()) return composed_grad(g, input, weight);
    const std::int64_t mask = g.needs(0) | g.needs(1) << 1 | g.needs(2) << 2;
    auto [dx, dw, db] =
        _layer_norm_backward(dense(g.grad()), input, g.get(mean_), g.get(rstd_), weight, bias, rows, mask);
    g.set(0, dx);
    g.set(1, dw);
    g.set(2, db);
  }
  void composed_grad(GradCall& g, const Tensor& input, const Tensor& weight) const {
    const std::int64_t one = 1, zero = 0;
    const DType t = statistics_type(input.dtype());
    const Tensor v = cast(reshape(input, {rows, count_of(normalized_shape)}), t);
    const Tensor up = cast(reshape(g.grad(), v.sizes()), t);
    const Tensor centered = sub(v, mean(v, one, true, std::nullopt));
    const Tensor rstd = root_of(mul(centered, centered), eps), xhat = mul(centered, rstd);
    if (g.needs(0)) {
      const Tensor gw = weight.defined() ? mul(up, cast(reshape(weight, {-1}), t)) : up;
      g.set(0, reshape(normalized_gradient(gw, xhat, rstd, true), input.sizes()));
    }
    if (g.needs(1)) g.set(1, reshape(sum(mul(up, xhat), zero, false, std::nullopt), normalized_shape));
    if (g.needs(2)) g.set(2, reshape(sum(up, zero, false, std::nullopt), normalized_shape));
  }
};

/// Each run of the last dims (normalized_shape) brought to mean 0 and variance 1, then times weight plus bias.
ATHANOR_FUNCTION(
    "layer_norm(Tensor input, int[] normalized_shape, Tensor? weight={}, Tensor? bias={}, float eps=1e-05, "
    "bool cudnn_enable=True) -> Tensor");
Tensor layer_norm(const Tensor& input, IntArrayRef normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps, bool /*cudnn_enable*/) {
  return std::get<0>(native_layer_norm(input, normalized_shape, weight, bias, eps));
}

// RMS norm.

struct RmsNormBackward {
  ATHANOR_OP(
      "_rms_norm_backward(Tensor grad_out, Tensor input, Tensor rstd, Tensor? weight, int rows, int mask) -> "
      "(Tensor, Tensor) | function");
  std::int64_t rows, mask;
  std::array<Meta, 2> infer(const Tensor&, const Tensor& input, const Tensor&, const Tensor& weight) {
    auto like = [&](const Tensor& t, int bit) {
      return mask >> bit & 1 ? Meta{DimVector(t.sizes()), t.dtype(), input.device(), {}} : Meta{};
    };
    return {like(input, 0), like(weight, 1)};
  }
  void run(const Tensor& dx, const Tensor& dw, const Tensor& grad, const Tensor& input, const Tensor& rstd,
           const Tensor& weight) {
    launch<2>(rms_norm_backward_kernel, dx, dw, grad, input, rstd, weight, rows);
  }
};

struct RmsNorm {
  ATHANOR_OP(
      "_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float eps) -> (Tensor, Tensor) | "
      "function");
  static constexpr const char* grad_name = "FusedRmsNormBackward0";
  DimVector normalized_shape;
  double eps;
  std::int64_t rows = 0;
  SavedTensor x, w, rstd_;
  void prepare(Tensor& input, Tensor& weight) {
    rows = count_rows("rms_norm", input, normalized_shape);
    input = dense(input);
    weight = dense(weight);
  }
  std::array<Meta, 2> infer(const Tensor& input, const Tensor& weight) {
    check_norm_operand("rms_norm", "weight", weight, normalized_shape, input);
    return {Meta{DimVector(input.sizes()), input.dtype(), input.device(), {}},
            Meta{statistics_shape(input.sizes(), normalized_shape.size()),
                 statistics_type(input.dtype()),
                 input.device(),
                 {}}};
  }
  void run(const Tensor& out, const Tensor& rstd, const Tensor& input, const Tensor& weight) {
    launch<2>(rms_norm_kernel, out, rstd, input, weight, rows, eps);
  }
  void save(const Node&, const Tensor& input, const Tensor& weight) {
    x.save(input);
    if (weight.defined()) w.save(weight);
  }
  void save_results(Node* n, const Tensor&, const Tensor& rstd) { rstd_.save_result(rstd, n); }
  void grad(GradCall& g) {
    if (!g.has(0)) return;
    const Tensor input = g.get(x), weight = w.defined() ? g.get(w) : Tensor();
    if (GradMode::is_enabled()) return composed_grad(g, input, weight);
    const std::int64_t mask = g.needs(0) | g.needs(1) << 1;
    auto [dx, dw] = _rms_norm_backward(dense(g.grad()), input, g.get(rstd_), weight, rows, mask);
    g.set(0, dx);
    g.set(1, dw);
  }
  void composed_grad(GradCall& g, const Tensor& input, const Tensor& weight) const {
    const std::int64_t zero = 0;
    const DType t = statistics_type(input.dtype());
    const Tensor v = cast(reshape(input, {rows, count_of(normalized_shape)}), t);
    const Tensor up = cast(reshape(g.grad(), v.sizes()), t);
    const Tensor rstd = root_of(mul(v, v), eps), xhat = mul(v, rstd);
    if (g.needs(0)) {
      const Tensor gw = weight.defined() ? mul(up, cast(reshape(weight, {-1}), t)) : up;
      g.set(0, reshape(normalized_gradient(gw, xhat, rstd, false), input.sizes()));
    }
    if (g.needs(1)) g.set(1, reshape(sum(mul(up, xhat), zero, false, std::nullopt), normalized_shape));
  }
};

/// input / sqrt(mean(input^2) + eps) * weight over the last dims; eps defaults to the machine epsilon of the
/// dtype it is computed in, float32 for the 16-bit ones.
ATHANOR_FUNCTION(
    "rms_norm(Tensor input, int[] normalized_shape, Tensor? weight={}, float? eps=None) -> Tensor | function");
Tensor rms_norm(const Tensor& input, IntArrayRef normalized_shape, const Tensor& weight, std::optional<double> eps) {
  check_norm_input("rms_norm", input);
  const double epsilon = input.dtype() == DType::Double ? 0x1p-52 : 0x1p-23;
  return std::get<0>(_fused_rms_norm(input, normalized_shape, weight, eps.value_or(epsilon)));
}

// Group norm.

struct GroupNormBackward {
  ATHANOR_OP(
      "_group_norm_backward(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, "
      "int num_groups, int mask) -> (Tensor, Tensor, Tensor) | function");
  std::int64_t num_groups, mask;
  std::array<Meta, 3> infer(const Tensor&, const Tensor& input, const Tensor&, const Tensor&, const Tensor& weight,
                            const Tensor& bias) {
    auto like = [&](const Tensor& t, int bit) {
      return mask >> bit & 1 ? Meta{DimVector(t.sizes()), t.dtype(), input.device(), {}} : Meta{};
    };
    return {like(input, 0), like(weight, 1), like(bias, 2)};
  }
  void run(const Tensor& dx, const Tensor& dw, const Tensor& db, const Tensor& grad, const Tensor& input,
           const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor&) {
    launch<3>(group_norm_backward_kernel, dx, dw, db, grad, input, mean, rstd, weight, num_groups);
  }
};

struct GroupNorm {
  ATHANOR_OP(
      "_group_norm(Tensor input, Tensor? weight, Tensor? bias, int num_groups, float eps) -> (Tensor, Tensor, Tensor) "
      "| function");
  static constexpr const char* grad_name = "NativeGroupNormBackward0";
  std::int64_t num_groups;
  double eps;
  SavedTensor x, w, b, mean_, rstd_;
  void prepare(Tensor& input, Tensor& weight, Tensor& bias) {
    check_norm_input("group_norm", input);
    ATHANOR_CHECK(num_groups > 0, "group_norm: Expected num groups to be greater than 0, got ", num_groups);
    ATHANOR_CHECK(input.dim() >= 2, "group_norm: Expected at least 2 dimensions for input tensor but received ",
                  input.dim());
    ATHANOR_CHECK(input.size(1) > 0,
                  "group_norm: Expected number of channels to be greater than 0, got input of shape ", input.sizes());
    ATHANOR_CHECK(input.size(1) % num_groups == 0, "group_norm: Expected number of channels in input to be divisible ",
                  "by num_groups, but got input of shape ", input.sizes(), " and num_groups=", num_groups);
    input = dense(input);
    weight = dense(weight);
    bias = dense(bias);
  }
  std::array<Meta, 3> infer(const Tensor& input, const Tensor& weight, const Tensor& bias) {
    const std::int64_t channels = input.size(1);
    check_norm_operand("group_norm", "weight", weight, channels, input);
    check_norm_operand("group_norm", "bias", bias, channels, input);
    const Meta stats{{input.size(0), num_groups}, statistics_type(input.dtype()), input.device(), {}};
    return {Meta{DimVector(input.sizes()), input.dtype(), input.device(), {}}, stats, stats};
  }
  void run(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& input, const Tensor& weight,
           const Tensor& bias) {
    launch<3>(group_norm_kernel, out, mean, rstd, input, weight, bias, num_groups, eps);
  }
  void save(const Node&, const Tensor& input, const Tensor& weight, const Tensor& bias) {
    x.save(input);
    if (weight.defined()) w.save(weight);
    if (bias.defined()) b.save(bias);
  }
  void save_results(Node* n, const Tensor&, const Tensor& mean, const Tensor& rstd) {
    mean_.save_result(mean, n);
    rstd_.save_result(rstd, n);
  }
  void grad(GradCall& g) {
    if (!g.has(0)) return;
    const Tensor input = g.get(x), weight = w.defined() ? g.get(w) : Tensor(), bias = b.defined() ? g.get(b) : Tensor();
    if (GradMode::is_enabled()) return composed_grad(g, input, weight);
    const std::int64_t mask = g.needs(0) | g.needs(1) << 1 | g.needs(2) << 2;
    auto [dx, dw, db] =
        _group_norm_backward(dense(g.grad()), input, g.get(mean_), g.get(rstd_), weight, bias, num_groups, mask);
    g.set(0, dx);
    g.set(1, dw);
    g.set(2, db);
  }
  void composed_grad(GradCall& g, const Tensor& input, const Tensor& weight) const {
    const std::int64_t one = 1, n = input.size(0), channels = input.size(1);
    const std::int64_t inner = input.numel() / std::max<std::int64_t>(n * channels, 1);
    const DType t = statistics_type(input.dtype());
    const Tensor v = cast(reshape(input, {n * num_groups, channels / num_groups * inner}), t);
    const Tensor up = cast(reshape(g.grad(), {n, channels, inner}), t);
    const Tensor centered = sub(v, mean(v, one, true, std::nullopt));
    const Tensor rstd = root_of(mul(centered, centered), eps), xhat = mul(centered, rstd);
    if (g.needs(0)) {
      const Tensor gw = weight.defined() ? mul(up, cast(reshape(weight, {channels, 1}), t)) : up;
      g.set(0, reshape(normalized_gradient(reshape(gw, v.sizes()), xhat, rstd, true), input.sizes()));
    }
    if (g.needs(1)) g.set(1, sum(mul(up, reshape(xhat, up.sizes())), IntArrayRef{0, 2}, false, std::nullopt));
    if (g.needs(2)) g.set(2, sum(up, IntArrayRef{0, 2}, false, std::nullopt));
  }
};

/// Each of num_groups equal groups of channels (dim 1) of each sample normalised, then times weight plus bias of the
/// channel.
ATHANOR_FUNCTION(
    "group_norm(Tensor input, int num_groups, Tensor? weight={}, Tensor? bias={}, float eps=1e-05, "
    "bool cudnn_enabled=True) -> Tensor");
Tensor group_norm(const Tensor& input, std::int64_t num_groups, const Tensor& weight, const Tensor& bias, double eps,
                  bool /*cudnn_enabled*/) {
  return in_format_of(input, std::get<0>(_group_norm(input, weight, bias, num_groups, eps)));
}

/// Each channel of each sample normalised on its own. With running statistics, these are updated by the samples' mean
/// (use_input_stats) or used instead.
ATHANOR_FUNCTION(
    "instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
    "bool use_input_stats, float momentum, float eps, bool cudnn_enabled=True) -> Tensor");
Tensor instance_norm(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                     const Tensor& running_var, bool use_input_stats, double momentum, double eps,
                     bool /*cudnn_enabled*/) {
  check_norm_input("instance_norm", input);
  ATHANOR_CHECK(input.dim() >= 2, "instance_norm: expected at least 2 dims, got shape ", input.sizes());
  ATHANOR_CHECK(use_input_stats || (running_mean.defined() && running_var.defined()),
                "instance_norm: Expected running_mean and running_var to be defined when use_input_stats is false");
  if (!use_input_stats) return batch_norm(input, weight, bias, running_mean, running_var, false, momentum, eps, true);
  const std::int64_t n = input.size(0), channels = input.size(1);
  if (!running_mean.defined() && !running_var.defined())
    return std::get<0>(_group_norm(input, weight, bias, channels, eps));
  // The samples' channels as channels of one sample: batch_norm updates a copy of the statistics per sample.
  DimVector merged(input.sizes());
  merged[0] = 1;
  merged[1] = n * channels;
  auto repeated = [&](const Tensor& t) {
    return t.defined() ? clone(reshape(expand(t, {n, channels}), {-1}), MemoryFormat::Contiguous) : t;
  };
  const Tensor mean_copies = repeated(running_mean), var_copies = repeated(running_var);
  const Tensor out = batch_norm(reshape(input, merged), repeated(weight), repeated(bias), mean_copies, var_copies, true,
                                momentum, eps, true);
  const std::int64_t zero = 0;
  if (running_mean.defined()) copy_(running_mean, mean(reshape(mean_copies, {n, channels}), zero, false, std::nullopt));
  if (running_var.defined()) copy_(running_var, mean(reshape(var_copies, {n, channels}), zero, false, std::nullopt));
  return reshape(out, input.sizes());
}

}  // namespace athanor::ops

#include "athanor/ops/norm.glue.inc"
