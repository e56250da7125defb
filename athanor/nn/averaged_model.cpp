#include "athanor/nn/averaged_model.h"

#include "athanor/nn/normalization.h"
#include "athanor/ops/kernels/optim.h"
#include "athanor/ops/launch.h"

namespace athanor::nn {
namespace {

/// to += weight * (from - to) for all pairs; those of one device and dtype in one call.
void average(const std::vector<Tensor>& to, const std::vector<Tensor>& from, double weight) {
  std::vector<TensorBase> a, b;
  const auto run = [&] {
    if (a.empty()) return;
    launch<1>(lerp_all_kernel, a, b, weight);
    for (const TensorBase& t : a) t.impl()->bump_version();
    a.clear(), b.clear();
  };
  for (std::size_t i = 0; i < to.size(); ++i) {
    const Tensor own = to[i].detach(), other = from[i].detach().to(TensorOptions(own.device()).dtype(own.dtype()));
    if (!own.is_non_overlapping_and_dense() || own.strides() != other.strides()) {
      own.lerp_(other, weight);
      continue;
    }
    if (!a.empty() && (a[0].device() != own.device() || a[0].dtype() != own.dtype())) run();
    a.push_back(own);
    b.push_back(other);
  }
  run();
}

void check_same(const char* what, const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ATHANOR_CHECK_VALUE(a.size() == b.size(), "AveragedModel: the average has ", a.size(), " ", what, ", the model ",
                      b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    ATHANOR_CHECK_VALUE(a[i].sizes() == b[i].sizes(), "AveragedModel: number ", i, " of the ", what, " has shape ",
                        a[i].sizes(), " in the average and ", b[i].sizes(), " in the model");
}

}  // namespace

AveragedModel::AveragedModel(const Module& model, AveragedModelOptions options)
    : AveragedModel(model.clone(), options) {}

AveragedModel::AveragedModel(std::shared_ptr<Module> target, AveragedModelOptions options)
    : Module("AveragedModel"), options_(options), module_(std::move(target)) {
  ATHANOR_CHECK_VALUE(module_, "AveragedModel: got no module");
  ATHANOR_CHECK_VALUE(!options.ema_decay || (*options.ema_decay >= 0 && *options.ema_decay <= 1),
                      "AveragedModel: expected a decay in [0, 1], got ", options.ema_decay.value_or(0));
  register_module("module", module_);
  count_ = register_buffer("n_averaged", zeros({}, TensorOptions(kLong)));
}

std::int64_t AveragedModel::n_averaged() const { return count_.item<std::int64_t>(); }

void AveragedModel::update_parameters(const Module& model) {
  const NoGradGuard off;
  std::vector<Tensor> own = module_->parameters(), other = model.parameters();
  check_same("parameters", own, other);
  const std::vector<Tensor> own_buffers = module_->buffers(), buffers = model.buffers();
  check_same("buffers", own_buffers, buffers);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (options_.use_buffers && own_buffers[i].is_floating_point()) {
      own.push_back(own_buffers[i]);
      other.push_back(buffers[i]);
    } else {
      own_buffers[i].copy_(buffers[i]);
    }
  }
  const std::int64_t n = n_averaged();
  if (n == 0)
    for (std::size_t i = 0; i < own.size(); ++i) own[i].copy_(other[i]);
  else
    average(own, other, options_.ema_decay ? 1 - *options_.ema_decay : 1.0 / static_cast<double>(n + 1));
  count_.add_(1);
}

BatchNormStatisticsUpdate::BatchNormStatisticsUpdate(Module& model)
    : model_(model), was_training_(model.is_training()) {
  model_.apply([&](Module& m) {
    const auto prepare = [&](auto* layer) {
      if (!layer) return;
      layer->reset_running_stats();
      auto& momentum = layer->options.momentum();
      momenta_.emplace_back(&momentum, momentum);
      momentum = std::nullopt;
    };
    prepare(dynamic_cast<BatchNorm1dImpl*>(&m));
    prepare(dynamic_cast<BatchNorm2dImpl*>(&m));
    prepare(dynamic_cast<BatchNorm3dImpl*>(&m));
  });
  model_.train();
}

BatchNormStatisticsUpdate::~BatchNormStatisticsUpdate() {
  for (auto& [momentum, before] : momenta_) *momentum = before;
  model_.train(was_training_);
}

}  // namespace athanor::nn
