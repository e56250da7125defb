// Batch norm, alone and with the relu that often follows. Activations are contiguous or channels-last.
#include "athanor/ops/batch_norm.h"

#include "athanor/ops/activation.h"
#include "athanor/ops/activation_backward.h"
#include "athanor/ops/copy.h"
#include "athanor/ops/create.h"
#include "athanor/ops/kernels/norm.h"
#include "athanor/ops/norm_op.h"
#include "athanor/ops/pointwise.h"
#include "athanor/ops/promote.h"
#include "athanor/ops/reduce.h"
#include "athanor/ops/unary.h"
#include "athanor/ops/view.h"

namespace athanor::ops {

namespace {

bool is_channels_last(const Tensor& t) {
  return (t.dim() == 4 && t.is_contiguous(MemoryFormat::ChannelsLast)) ||
         (t.dim() == 5 && t.is_contiguous(MemoryFormat::ChannelsLast3d));
}

/// A layout that the kernels take.
Tensor activations(const Tensor& t) { return t.is_contiguous() || is_channels_last(t) ? t : contiguous(t); }

/// `t` in the layout of `like`.
Tensor in_layout_of(const Tensor& t, const Tensor& like) {
  if (t.strides() == like.strides()) return t;
  Tensor out = empty_like(like, {});
  copy_(out, t);
  return out;
}

void check_batch_norm(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  check_norm_input("batch_norm", input);
  ATHANOR_CHECK(input.dim() >= 2, "batch_norm: expected input with at least 2 dims (N, C, ...), got shape ",
                input.sizes());
  const std::int64_t channels = input.size(1);
  check_norm_operand("batch_norm", "weight", weight, channels, input);
  check_norm_operand("batch_norm", "bias", bias, channels, input);
}

Meta like(const Tensor& t) {
  return {DimVector(t.sizes()), t.dtype(), t.device(), t.is_contiguous() ? DimVector{} : DimVector(t.strides())};
}

using detail::Stored;

/// The same in the blocks of a hidden `t`.
Meta like_stored(const Tensor& t) {
  Meta m = like(t);
  m.block = static_cast<std::int16_t>(detail::hidden_block(t));
  return m;
}

/// An activation for a kernel that works in blocks.
Stored stored_in_blocks(const Tensor& t, int block) { return t.defined() ? Stored(t, block) : Stored(t); }

/// All dims but the channels.
DimVector batch_dims(const Tensor& input) {
  DimVector dims{0};
  for (std::int64_t d = 2; d < input.dim(); ++d) dims.push_back(d);
  return dims;
}

/// Per-channel values made to broadcast against the input.
Tensor per_channel(const Tensor& t, const Tensor& input, DType dtype) {
  DimVector shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = input.size(1);
  return cast(reshape(t, shape), dtype);
}

/// The gradients of batch norm in ops that can be differentiated again; `mean` and `var` undefined in training.
void compose_gradients(GradCall& g, const Tensor& up_, const Tensor& input, const Tensor& weight, const Tensor& mean,
                       const Tensor& var, double eps) {
  const DType t = statistics_type(input.dtype());
  const Tensor v = cast(input, t), up = cast(up_, t);
  const DimVector dims = batch_dims(input);
  auto average = [&](const Tensor& x) { return ops::mean(x, dims, true, std::nullopt); };
  const bool training = !mean.defined();
  const Tensor centered = sub(v, training ? average(v) : per_channel(mean, input, t));
  const Tensor spread = training ? average(mul(centered, centered)) : per_channel(var, input, t);
  const Tensor invstd = rsqrt(add(spread, eps)), xhat = mul(centered, invstd);
  if (g.needs(0)) {
    const Tensor gw = weight.defined() ? mul(up, per_channel(weight, input, t)) : up;
    const Tensor inner = training ? sub(sub(gw, average(gw)), mul(xhat, average(mul(gw, xhat)))) : gw;
    g.set(0, mul(invstd, inner));
  }
  if (g.needs(1)) g.set(1, sum(mul(up, xhat), dims, false, std::nullopt));
  if (g.needs(2)) g.set(2, sum(up, dims, false, std::nullopt));
}

}  // namespace

/// Gradients with respect to input, weight and bias, those that the mask asks for (bits 0, 1, 2).
struct BatchNormBackward {
  ATHANOR_OP(
      "_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? out, Tensor mean, Tensor invstd, Tensor? weight, "
      "Tensor? bias, bool training, int mask) -> (Tensor, Tensor, Tensor) | function");
  static constexpr bool accepts_hidden = true;
  bool training;
  std::int64_t mask;
  std::array<Meta, 3> infer(const Tensor&, const Tensor& input, const Tensor&, const Tensor&, const Tensor&,
                            const Tensor& weight, const Tensor& bias) {
    auto wanted = [&](const Tensor& t, int bit) { return mask >> bit & 1 ? like_stored(t) : Meta{}; };
    return {wanted(input, 0), wanted(weight, 1), wanted(bias, 2)};
  }
  void run(const Tensor& dx, const Tensor& dw, const Tensor& db, const Tensor& grad, const Tensor& input,
           const Tensor& out, const Tensor& mean, const Tensor& invstd, const Tensor& weight, const Tensor&) {
    // The gradient follows the activation.
    if (const int block = detail::hidden_block(dx.defined() ? dx : input))
      launch<3>(batch_norm_backward_kernel, Stored(dx), dw, db, stored_in_blocks(grad, block),
                stored_in_blocks(input, block), stored_in_blocks(out, block), mean, invstd, weight, training);
    else
      launch<3>(batch_norm_backward_kernel, dx, dw, db, grad, input, out, mean, invstd, weight, training);
  }
};

/// Training: normalised by the batch's own statistics, which also update the running ones (statistics dtype).
struct BatchNormTrain {
  ATHANOR_OP(
      "_batch_norm_train(Tensor input, Tensor? weight, Tensor? bias, Tensor? residual, Tensor? running_mean, "
      "Tensor? running_var, float momentum, float eps, bool relu) -> (Tensor, Tensor, Tensor) | function");
  static constexpr const char* grad_name = "NativeBatchNormBackward0";
  static constexpr bool accepts_hidden = true;
  double momentum, eps;
  bool relu;
  SavedTensor x, w, b, y, mean_, invstd_;
  void prepare(Tensor& input, Tensor& weight, Tensor& bias, Tensor& residual, Tensor&, Tensor&) {
    check_batch_norm(input, weight, bias);
    input = activations(input);
    if (residual.defined()) residual = in_layout_of(residual, input);
    weight = dense(weight);
    bias = dense(bias);
  }
  std::array<Meta, 3> infer(const Tensor& input, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                            const Tensor&) {
    const std::int64_t channels = input.size(1);
    ATHANOR_CHECK_VALUE(channels == 0 || input.numel() / channels != 1,
                        "batch_norm: Expected more than 1 value per channel when training, got input size ",
                        input.sizes());
    const Meta stats{{channels}, statistics_type(input.dtype()), input.device(), {}};
    return {like_stored(input), stats, stats};
  }
  void run(const Tensor& out, const Tensor& mean, const Tensor& invstd, const Tensor& input, const Tensor& weight,
           const Tensor& bias, const Tensor& residual, const Tensor& running_mean, const Tensor& running_var) {
    if (const int block = detail::hidden_block(out))
      launch<5>(batch_norm_kernel, Stored(out), mean, invstd, running_mean, running_var, Stored(input, block), weight,
                bias, momentum, eps, relu, stored_in_blocks(residual, block));
    else
      launch<5>(batch_norm_kernel, out, mean, invstd, running_mean, running_var, input, weight, bias, momentum, eps,
                relu, residual);
    if (running_mean.defined()) running_mean.impl()->bump_version();
    if (running_var.defined()) running_var.impl()->bump_version();
  }
  void save(const Node&, const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor&, const Tensor&,
            const Tensor&) {
    x.save(input);
    if (weight.defined()) w.save(weight);
    if (bias.defined()) b.save(bias);
  }
  void save_results(Node* n, const Tensor& out, const Tensor& mean, const Tensor& invstd) {
    if (relu) y.save_result(out, n);
    mean_.save_result(mean, n);
    invstd_.save_result(invstd, n);
  }
  void grad(GradCall& g) {
    if (!g.has(0)) return;
    const Tensor input = g.get(x), weight = w.defined() ? g.get(w) : Tensor(), bias = b.defined() ? g.get(b) : Tensor();
    Tensor out = relu ? g.get(y) : Tensor(), up = g.grad();
    if (relu && (GradMode::is_enabled() || g.needs(3))) {
      up = threshold_backward(up, out, 0);
      out = Tensor();
    }
    if (g.needs(3)) g.set(3, up);
    if (GradMode::is_enabled()) return compose_gradients(g, up, input, weight, {}, {}, eps);
    const std::int64_t mask = g.needs(0) | g.needs(1) << 1 | g.needs(2) << 2;
    auto [dx, dw, db] = _batch_norm_backward(in_layout_of(up, input), input, out, g.get(mean_), g.get(invstd_), weight,
                                             bias, true, mask);
    g.set(0, dx);
    g.set(1, dw);
    g.set(2, db);
  }
};

/// Inference: normalised by given statistics.
struct BatchNormEval {
  ATHANOR_OP(
      "_batch_norm_eval(Tensor input, Tensor? weight, Tensor? bias, Tensor? residual, Tensor running_mean, "
      "Tensor running_var, float eps, bool relu) -> Tensor | function");
  static constexpr const char* grad_name = "NativeBatchNormBackward0";
  static constexpr bool accepts_hidden = true;
  double eps;
  bool relu;
  SavedTensor x, w, b, y, mean_, var_;
  void prepare(Tensor& input, Tensor& weight, Tensor& bias, Tensor& residual, Tensor& mean, Tensor& var) {
    check_batch_norm(input, weight, bias);
    input = activations(input);
    if (residual.defined()) residual = in_layout_of(residual, input);
    weight = dense(weight);
    bias = dense(bias);
    mean = dense(mean);
    var = dense(var);
  }
  Meta infer(const Tensor& input, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
    return like_stored(input);
  }
  void run(const Tensor& out, const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& residual,
           const Tensor& mean, const Tensor& var) {
    if (const int block = detail::hidden_block(out))
      launch(batch_norm_eval_kernel, Stored(out), Stored(input, block), weight, bias, mean, var, eps, relu,
             stored_in_blocks(residual, block));
    else
      launch(batch_norm_eval_kernel, out, input, weight, bias, mean, var, eps, relu, residual);
  }
  void save(const Node&, const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor&,
            const Tensor& mean, const Tensor& var) {
    x.save(input);
    if (weight.defined()) w.save(weight);
    if (bias.defined()) b.save(bias);
    mean_.save(mean);
    var_.save(var);
  }
  void save_results(Node* n, const Tensor& out) {
    if (relu) y.save_result(out, n);
  }
  void grad(GradCall& g) {
    const Tensor input = g.get(x), weight = w.defined() ? g.get(w) : Tensor(), bias = b.defined() ? g.get(b) : Tensor();
    Tensor out = relu ? g.get(y) : Tensor(), up = g.grad();
    const Tensor mean = g.get(mean_), var = g.get(var_);
    if (relu && (GradMode::is_enabled() || g.needs(3))) {
      up = threshold_backward(up, out, 0);
      out = Tensor();
    }
    if (g.needs(3)) g.set(3, up);
    if (GradMode::is_enabled()) return compose_gradients(g, up, input, weight, mean, var, eps);
    const std::int64_t mask = g.needs(0) | g.needs(1) << 1 | g.needs(2) << 2;
    auto [dx, dw, db] = _batch_norm_backward(in_layout_of(up, input), input, out, mean, rsqrt(add(var, eps)), weight,
                                             bias, false, mask);
    g.set(0, dx);
    g.set(1, dw);
    g.set(2, db);
  }
};

namespace {

/// The kernels keep statistics in float32 or float64; running ones of another dtype are converted there and back.
class RunningStatistic {
 public:
  RunningStatistic(const char* what, const Tensor& t, const Tensor& input) : original_(t) {
    if (!t.defined()) return;
    const std::int64_t channels = input.size(1);
    ATHANOR_CHECK(t.dim() == 1 && t.size(0) == channels, "batch_norm: ", what, " should contain ", channels,
                  " elements not ", t.numel());
    ATHANOR_CHECK(!t.requires_grad(), "batch_norm: ", what, " must not require grad");
    used_ = cast(dense(t), statistics_type(input.dtype()));
  }
  const Tensor& used() const { return used_; }
  void write_back() const {
    if (original_.defined() && !used_.is_same(original_)) copy_(original_, used_);
  }

 private:
  Tensor original_, used_;
};

Tensor run_batch_norm(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                      const Tensor& running_var, bool training, double momentum, double eps, bool relu,
                      const Tensor& residual = {}) {
  check_batch_norm(input, weight, bias);
  const RunningStatistic mean("running_mean", running_mean, input), var("running_var", running_var, input);
  if (training) {
    Tensor out =
        std::get<0>(_batch_norm_train(input, weight, bias, residual, mean.used(), var.used(), momentum, eps, relu));
    mean.write_back();
    var.write_back();
    return out;
  }
  ATHANOR_CHECK(running_mean.defined() && running_var.defined(),
                "batch_norm: running_mean and running_var must be defined in evaluation mode");
  return _batch_norm_eval(input, weight, bias, residual, mean.used(), var.used(), eps, relu);
}

}  // namespace

/// Each channel (dim 1) normalised over the batch (training) or by the running statistics, then times weight plus bias.
/// Training updates running = (1 - momentum) running + momentum batch, with the unbiased variance.
ATHANOR_FUNCTION(
    "batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, "
    "float momentum, float eps, bool cudnn_enabled=True) -> Tensor");
Tensor batch_norm(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, bool training, double momentum, double eps, bool /*cudnn_enabled*/) {
  return run_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, false);
}

/// relu(batch_norm(...)) in one pass.
ATHANOR_FUNCTION(
    "batch_norm_relu(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, "
    "bool training, float momentum, float eps) -> Tensor | internal");
Tensor batch_norm_relu(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                       const Tensor& running_var, bool training, double momentum, double eps) {
  return run_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, true);
}

/// relu(batch_norm(...) + residual) in one pass where input and residual have one shape and dtype.
ATHANOR_FUNCTION(
    "batch_norm_add_relu(Tensor input, Tensor residual, Tensor? weight, Tensor? bias, Tensor? running_mean, "
    "Tensor? running_var, bool training, float momentum, float eps) -> Tensor | internal");
Tensor batch_norm_add_relu(const Tensor& input, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                           const Tensor& running_mean, const Tensor& running_var, bool training, double momentum,
                           double eps) {
  ATHANOR_CHECK(residual.defined(), "batch_norm_add_relu: expected a residual, got an undefined tensor");
  if (input.defined() && input.sizes() == residual.sizes() && input.dtype() == residual.dtype())
    return run_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, true, residual);
  return relu(
      add(run_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, false), residual));
}

}  // namespace athanor::ops

#include "athanor/ops/batch_norm.glue.inc"
