#pragma once
/// GradScaler: keeps small gradients of half-precision losses from becoming zero by scaling the loss up, and gradients
/// down again before the step. As torch.amp.GradScaler:
///
///     amp::GradScaler scaler;
///     scaler.scale(loss).backward();
///     scaler.unscale_(optimizer);  // only if gradients are looked at or clipped
///     scaler.step(optimizer);      // nothing happens if a gradient is not finite
///     scaler.update();

#include <map>
#include <string>
#include <unordered_map>

#include "athanor/optim/optimizer.h"

namespace athanor::amp {

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;
  bool enabled = true;
};

/// Not thread-safe. Disabled, it hands everything through.
class GradScaler {
 public:
  explicit GradScaler(GradScalerOptions options = {});

  /// `outputs` times the scale.
  Tensor scale(const Tensor& outputs) const;
  std::vector<Tensor> scale(const std::vector<Tensor>& outputs) const;
  /// Divides the gradients of the optimizer's parameters by the scale and notes whether any is not finite. Throws Error
  /// if called twice before update(), or after step(); ValueError for float16 gradients, which cannot be unscaled
  /// without loss.
  void unscale_(optim::Optimizer& optimizer);
  /// unscale_(), unless that was done; then the optimizer's step if every gradient is finite. Gives back what that
  /// returned, or an undefined tensor. Throws Error if called twice before update().
  Tensor step(optim::Optimizer& optimizer, const optim::Optimizer::LossClosure& closure = nullptr);
  /// Lowers the scale if any step since the last update was skipped; raises it after growth_interval updates without
  /// one. With a number, that becomes the scale.
  void update();
  void update(double new_scale);

  bool is_enabled() const { return options_.enabled; }
  double get_scale() const { return options_.enabled ? scale_ : 1; }
  /// Whether the last unscale_ of this optimizer met a gradient that is not finite.
  bool found_inf(const optim::Optimizer& optimizer) const;
  const GradScalerOptions& options() const { return options_; }

  /// "scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"; empty if disabled.
  std::map<std::string, double> state_dict() const;
  /// Throws ValueError naming an entry that is missing; nothing is changed then.
  void load_state_dict(const std::map<std::string, double>& state);

 private:
  enum class Stage { Ready, Unscaled, Stepped };
  struct Progress {
    Stage stage = Stage::Ready;
    bool found_inf = false;
  };
  GradScalerOptions options_;
  double scale_;
  std::int64_t good_updates_ = 0;
  std::unordered_map<const optim::Optimizer*, Progress> progress_;
};

}  // namespace athanor::amp
