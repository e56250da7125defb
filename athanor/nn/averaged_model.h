#pragma once
/// Averages of a model's weights over the steps of its training: the plain mean (SWA) or one that forgets (EMA).
/// torch.optim.swa_utils; its schedule, SWALR, is in optim/schedule_cycles.h.

#include <memory>
#include <optional>

#include "athanor/nn/module.h"

namespace athanor::nn {

struct AveragedModelOptions {
  /// EMA: average = decay * average + (1 - decay) * model. None: the mean of all updates. Polyak & Juditsky, 1992;
  /// Izmailov et al., "Averaging weights leads to wider optima and better generalization", UAI 2018.
  std::optional<double> ema_decay;
  /// Averages floating buffers too; otherwise, and for other dtypes, they are copied.
  bool use_buffers = false;
};

/// Its state_dict has PyTorch's names: "module." before the model's, and "n_averaged". Not thread-safe.
class AveragedModel : public Module {
 public:
  /// Averages into a clone of `model`, which must be Cloneable. Throws ValueError for a decay outside [0, 1].
  explicit AveragedModel(const Module& model, AveragedModelOptions options = {});
  /// Averages into `target`, for models that cannot be cloned: one made like the model to come.
  explicit AveragedModel(std::shared_ptr<Module> target, AveragedModelOptions options = {});

  /// Takes in the present weights of `model`; the first call copies them. Throws ValueError if parameters or buffers
  /// differ in number or shape.
  void update_parameters(const Module& model);
  std::int64_t n_averaged() const;
  const std::shared_ptr<Module>& module() const { return module_; }
  /// The averaged model as what it is; throws Error if it is of another class.
  template <class M>
  M& as_model() const {
    auto* m = dynamic_cast<M*>(module_.get());
    ATHANOR_CHECK(m != nullptr, "AveragedModel: the model is a ", module_->name());
    return *m;
  }

 private:
  AveragedModelOptions options_;
  std::shared_ptr<Module> module_;
  Tensor count_;
};

/// While it lives the model is in training mode and its BatchNorm layers start their statistics afresh, as plain means.
class BatchNormStatisticsUpdate {
 public:
  explicit BatchNormStatisticsUpdate(Module& model);
  ~BatchNormStatisticsUpdate();
  BatchNormStatisticsUpdate(const BatchNormStatisticsUpdate&) = delete;
  BatchNormStatisticsUpdate& operator=(const BatchNormStatisticsUpdate&) = delete;

 private:
  Module& model_;
  bool was_training_;
  std::vector<std::pair<std::optional<double>*, std::optional<double>>> momenta_;
};

/// Computes the running statistics of the model's BatchNorm layers from one pass over the data:
/// update_bn(*loader, *averaged.module(), [&](auto& batch) { net->forward(batch.data); }).
template <class Loader, class Forward>
void update_bn(Loader&& loader, Module& model, Forward&& forward) {
  const NoGradGuard off;
  const BatchNormStatisticsUpdate update(model);
  for (auto&& batch : loader) forward(batch);
}

}  // namespace athanor::nn
