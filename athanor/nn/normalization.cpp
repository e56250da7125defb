#include "athanor/nn/normalization.h"

#include "athanor/nn/init.h"

namespace athanor::nn {

namespace functional {

Tensor batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                  const BatchNormFuncOptions& o) {
  if (o.training()) {
    std::int64_t per_channel = input.size(0);
    for (std::int64_t d = 2; d < input.dim(); ++d) per_channel *= input.size(d);
    ATHANOR_CHECK_VALUE(per_channel != 1, "Expected more than 1 value per channel when training, got input size ",
                        input.sizes());
  }
  return athanor::batch_norm(input, o.weight(), o.bias(), running_mean, running_var, o.training(), o.momentum(),
                             o.eps(), true);
}

Tensor layer_norm(const Tensor& input, const LayerNormFuncOptions& o) {
  return athanor::layer_norm(input, o.normalized_shape(), o.weight(), o.bias(), o.eps());
}

Tensor rms_norm(const Tensor& input, const RMSNormFuncOptions& o) {
  return athanor::rms_norm(input, o.normalized_shape(), o.weight(), o.eps());
}

namespace {

/// running = (1 - momentum) running + momentum · the batch's mean of each channel's statistic.
void update_running_stats(const Tensor& input, const InstanceNormFuncOptions& o) {
  const NoGradGuard guard;
  const Tensor flat = input.detach().flatten(2);
  const auto blend = [&](Tensor running, const Tensor& now) {
    if (running.defined()) running.mul_(1 - o.momentum()).add_(now.mean(0).to(running.dtype()), o.momentum());
  };
  blend(o.running_mean(), flat.mean(2));
  blend(o.running_var(), flat.var(IntArrayRef{2}, true));
}

}  // namespace

Tensor instance_norm(const Tensor& input, const InstanceNormFuncOptions& o) {
  ATHANOR_CHECK(input.dim() >= 2, "instance_norm: expected an input (batch, channels, ...), got shape ", input.sizes());
  if (!o.use_input_stats()) {
    ATHANOR_CHECK(o.running_mean().defined() && o.running_var().defined(),
                  "Expected running_mean and running_var to be defined when use_input_stats is false");
    return athanor::batch_norm(input, o.weight(), o.bias(), o.running_mean(), o.running_var(), false, o.momentum(),
                               o.eps(), true);
  }
  std::int64_t spatial = 1;
  for (std::int64_t d = 2; d < input.dim(); ++d) spatial *= input.size(d);
  ATHANOR_CHECK_VALUE(spatial != 1, "Expected more than 1 spatial element when training, got input size ",
                      input.sizes());
  if (o.running_mean().defined() || o.running_var().defined()) update_running_stats(input, o);
  // Groups of one channel each.
  return athanor::group_norm(input, input.size(1), o.weight(), o.bias(), o.eps());
}

Tensor group_norm(const Tensor& input, const GroupNormFuncOptions& o) {
  return athanor::group_norm(input, o.num_groups(), o.weight(), o.bias(), o.eps());
}

Tensor normalize(const Tensor& input, const NormalizeFuncOptions& o) {
  const Tensor length = input.norm(o.p(), o.dim(), true).clamp_min(o.eps()).expand_as(input);
  if (!o.out()) return input / length;
  Tensor out = *o.out();
  return div_out(out, input, length);
}

}  // namespace functional

namespace {

// What batch and instance norm have in common: a scale and a shift, and running statistics, each if the options say so.
template <class M>
void reset_running_norm(M& m) {
  const std::int64_t n = m.options.num_features();
  m.weight = m.register_parameter("weight", m.options.affine() ? empty({n}) : Tensor());
  m.bias = m.register_parameter("bias", m.options.affine() ? empty({n}) : Tensor());
  const bool track = m.options.track_running_stats();
  m.running_mean = m.register_buffer("running_mean", track ? zeros({n}) : Tensor());
  m.running_var = m.register_buffer("running_var", track ? ones({n}) : Tensor());
  m.num_batches_tracked = m.register_buffer("num_batches_tracked", track ? zeros({}, kLong) : Tensor());
  m.reset_parameters();
}

template <class M>
void reset_statistics(M& m) {
  if (!m.options.track_running_stats()) return;
  init::zeros_(m.running_mean);
  init::ones_(m.running_var);
  init::zeros_(m.num_batches_tracked);
}

template <class M>
void reset_scale_and_shift(M& m) {
  m.reset_running_stats();
  if (!m.options.affine()) return;
  init::ones_(m.weight);
  init::zeros_(m.bias);
}

}  // namespace

template <class Derived>
void BatchNormImplBase<Derived>::reset() {
  reset_running_norm(*this);
}

template <class Derived>
void BatchNormImplBase<Derived>::reset_running_stats() {
  reset_statistics(*this);
}

template <class Derived>
void BatchNormImplBase<Derived>::reset_parameters() {
  reset_scale_and_shift(*this);
}

template <class Derived>
void BatchNormImplBase<Derived>::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "torch::nn::BatchNorm" << Derived::kSpatial << "d(" << options.num_features()
         << ", eps=" << options.eps() << ", momentum=";
  if (options.momentum())
    stream << *options.momentum();
  else
    stream << "None";
  stream << ", affine=" << options.affine() << ", track_running_stats=" << options.track_running_stats() << ")";
}

template <class Derived>
Tensor BatchNormImplBase<Derived>::forward(const Tensor& input) {
  return run(input, Tensor(), false);
}

template <class Derived>
Tensor BatchNormImplBase<Derived>::forward_relu(const Tensor& input, const Tensor& residual) {
  return run(input, residual, true);
}

template <class Derived>
Tensor BatchNormImplBase<Derived>::run(const Tensor& input, const Tensor& residual, bool relu) {
  return in_module(*this, [&] {
    constexpr std::int64_t full = Derived::kSpatial + 2;
    const bool fits = input.dim() == full || (full == 3 && input.dim() == 2);
    ATHANOR_CHECK_VALUE(fits, "BatchNorm", Derived::kSpatial, "d: expected ",
                        full == 3   ? "2D or 3D"
                        : full == 4 ? "4D"
                                    : "5D",
                        " input (got ", input.dim(), "D input), its shape is ", input.sizes());
    double factor = options.momentum().value_or(0.0);
    const bool training = this->is_training();
    if (training && options.track_running_stats() && num_batches_tracked.defined()) {
      const NoGradGuard guard;
      num_batches_tracked.add_(1);
      if (!options.momentum()) factor = 1.0 / static_cast<double>(num_batches_tracked.template item<std::int64_t>());
    }
    const bool use_batch = training || !running_mean.defined();
    const bool pass_running = !training || options.track_running_stats();
    const auto how =
        functional::BatchNormFuncOptions().weight(weight).bias(bias).training(use_batch).momentum(factor).eps(
            options.eps());
    const Tensor mean = pass_running ? running_mean : Tensor(), var = pass_running ? running_var : Tensor();
    if (relu && !(normalize && training)) {
      if (!residual.defined()) return batch_norm_relu(input, weight, bias, mean, var, use_batch, factor, options.eps());
      return batch_norm_add_relu(input, residual, weight, bias, mean, var, use_batch, factor, options.eps());
    }
    Tensor y = normalize && training ? normalize(input, mean, var, how) : functional::batch_norm(input, mean, var, how);
    if (residual.defined()) y = y + residual;
    return relu ? y.relu_() : y;
  });
}

template class BatchNormImplBase<BatchNorm1dImpl>;
template class BatchNormImplBase<BatchNorm2dImpl>;
template class BatchNormImplBase<BatchNorm3dImpl>;

template <class Derived>
void InstanceNormImplBase<Derived>::reset() {
  reset_running_norm(*this);
}

template <class Derived>
void InstanceNormImplBase<Derived>::reset_running_stats() {
  reset_statistics(*this);
}

template <class Derived>
void InstanceNormImplBase<Derived>::reset_parameters() {
  reset_scale_and_shift(*this);
}

template <class Derived>
void InstanceNormImplBase<Derived>::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "torch::nn::InstanceNorm" << Derived::kSpatial << "d(" << options.num_features()
         << ", eps=" << options.eps() << ", momentum=" << options.momentum() << ", affine=" << options.affine()
         << ", track_running_stats=" << options.track_running_stats() << ")";
}

template <class Derived>
Tensor InstanceNormImplBase<Derived>::forward(const Tensor& input) {
  return in_module(*this, [&] {
    constexpr std::int64_t full = Derived::kSpatial + 2;
    ATHANOR_CHECK_VALUE(input.dim() == full || input.dim() == full - 1, "InstanceNorm", Derived::kSpatial,
                        "d: expected ", full - 1, "D or ", full, "D input (got ", input.dim(),
                        "D input), its shape is ", input.sizes());
    const bool alone = input.dim() == full - 1;
    const std::int64_t channels = input.size(alone ? 0 : 1);
    ATHANOR_CHECK_VALUE(channels == options.num_features() || !options.affine(), "InstanceNorm", Derived::kSpatial,
                        "d: expected input's size at dim=", alone ? 0 : 1, " to match num_features (",
                        options.num_features(), "), but got: ", channels, ", its shape is ", input.sizes());
    const auto o = functional::InstanceNormFuncOptions()
                       .running_mean(running_mean)
                       .running_var(running_var)
                       .weight(weight)
                       .bias(bias)
                       .use_input_stats(this->is_training() || !options.track_running_stats())
                       .momentum(options.momentum())
                       .eps(options.eps());
    return alone ? functional::instance_norm(input.unsqueeze(0), o).squeeze(0) : functional::instance_norm(input, o);
  });
}

template class InstanceNormImplBase<InstanceNorm1dImpl>;
template class InstanceNormImplBase<InstanceNorm2dImpl>;
template class InstanceNormImplBase<InstanceNorm3dImpl>;

RMSNormImpl::RMSNormImpl(RMSNormOptions options) : options(std::move(options)) { reset(); }

void RMSNormImpl::reset() {
  const bool affine = options.elementwise_affine();
  weight = register_parameter("weight", affine ? athanor::empty(options.normalized_shape()) : Tensor());
  reset_parameters();
}

void RMSNormImpl::reset_parameters() {
  if (weight.defined()) init::ones_(weight);
}

void RMSNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "torch::nn::RMSNorm(";
  athanor::detail::print_list(stream, options.normalized_shape());
  stream << ", eps=";
  if (options.eps())
    stream << *options.eps();
  else
    stream << "None";
  stream << ", elementwise_affine=" << options.elementwise_affine() << ")";
}

Tensor RMSNormImpl::forward(const Tensor& input) {
  return in_module(*this, [&] { return athanor::rms_norm(input, options.normalized_shape(), weight, options.eps()); });
}

LayerNormImpl::LayerNormImpl(LayerNormOptions options) : options(std::move(options)) { reset(); }

void LayerNormImpl::reset() {
  const bool affine = options.elementwise_affine();
  weight = register_parameter("weight", affine ? athanor::empty(options.normalized_shape()) : Tensor());
  bias = register_parameter("bias", affine ? athanor::empty(options.normalized_shape()) : Tensor());
  reset_parameters();
}

void LayerNormImpl::reset_parameters() {
  if (!options.elementwise_affine()) return;
  init::ones_(weight);
  init::zeros_(bias);
}

void LayerNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "torch::nn::LayerNorm(";
  athanor::detail::print_list(stream, options.normalized_shape());
  stream << ", eps=" << options.eps() << ", elementwise_affine=" << options.elementwise_affine() << ")";
}

Tensor LayerNormImpl::forward(const Tensor& input) {
  return in_module(*this,
                   [&] { return athanor::layer_norm(input, options.normalized_shape(), weight, bias, options.eps()); });
}

GroupNormImpl::GroupNormImpl(const GroupNormOptions& options) : options(options) { reset(); }

void GroupNormImpl::reset() {
  ATHANOR_CHECK_VALUE(options.num_groups() > 0 && options.num_channels() % options.num_groups() == 0,
                      "num_channels must be divisible by num_groups, got ", options.num_channels(), " and ",
                      options.num_groups());
  weight = register_parameter("weight", options.affine() ? empty({options.num_channels()}) : Tensor());
  bias = register_parameter("bias", options.affine() ? empty({options.num_channels()}) : Tensor());
  reset_parameters();
}

void GroupNormImpl::reset_parameters() {
  if (!options.affine()) return;
  init::ones_(weight);
  init::zeros_(bias);
}

void GroupNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "torch::nn::GroupNorm(" << options.num_groups() << ", " << options.num_channels()
         << ", eps=" << options.eps() << ", affine=" << options.affine() << ")";
}

Tensor GroupNormImpl::forward(const Tensor& input) {
  return in_module(*this,
                   [&] { return athanor::group_norm(input, options.num_groups(), weight, bias, options.eps()); });
}

}  // namespace athanor::nn
