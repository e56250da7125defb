#include "athanor/optim/grad_scaler.h"

#include <cmath>

#include "athanor/ops/factory.h"
#include "athanor/ops/kernels/optim.h"
#include "athanor/ops/launch.h"

namespace athanor::amp {
namespace {

/// Gradients of one device and the mark that their kernel sets.
struct DeviceGradients {
  std::vector<TensorBase> dense;
  Tensor found;
};

/// Multiplies all gradients by `factor`; true if any result is not finite.
bool scale_gradients(optim::Optimizer& optimizer, double factor) {
  const NoGradGuard off;
  std::map<std::string, DeviceGradients> devices;
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (auto& group : optimizer.param_groups())
    for (Tensor& p : group.params()) {
      const Tensor& g = p.grad();
      if (!g.defined()) continue;
      ATHANOR_CHECK_VALUE(g.dtype() != kHalf,
                          "GradScaler: attempting to unscale float16 gradients; keep parameters in "
                          "float32 and use autocast");
      Tensor dense = g;
      if (!g.is_non_overlapping_and_dense()) copies.emplace_back(g, dense = g.clone(MemoryFormat::Contiguous));
      devices[detail::str(g.device())].dense.push_back(dense);
    }
  for (auto& [name, d] : devices) {
    d.found = zeros({}, TensorOptions(d.dense[0].device()).dtype(kFloat));
    launch<2>(scale_all_kernel, d.dense, d.found, factor);
    for (const TensorBase& g : d.dense) g.impl()->bump_version();
  }
  for (auto& [g, dense] : copies) g.copy_(dense);
  bool found = false;
  for (auto& [name, d] : devices) found = d.found.item<float>() != 0 || found;
  return found;
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options) : options_(options), scale_(options.init_scale) {
  ATHANOR_CHECK_VALUE(options.growth_factor > 1, "GradScaler: the growth factor must be > 1.0, got ",
                      options.growth_factor);
  ATHANOR_CHECK_VALUE(options.backoff_factor < 1 && options.backoff_factor > 0,
                      "GradScaler: the backoff factor must be in (0, 1), got ", options.backoff_factor);
  ATHANOR_CHECK_VALUE(options.growth_interval > 0, "GradScaler: growth_interval must be positive, got ",
                      options.growth_interval);
}

Tensor GradScaler::scale(const Tensor& outputs) const {
  if (!options_.enabled) return outputs;
  // A float32 factor with dimensions, not a plain number: the product of a half-precision loss is float32.
  const std::vector<std::int64_t> ones_shape(static_cast<std::size_t>(outputs.dim()), 1);
  return outputs * full(ones_shape, scale_, TensorOptions(outputs.device()).dtype(kFloat));
}

std::vector<Tensor> GradScaler::scale(const std::vector<Tensor>& outputs) const {
  std::vector<Tensor> out;
  for (const Tensor& t : outputs) out.push_back(scale(t));
  return out;
}

void GradScaler::unscale_(optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  Progress& progress = progress_[&optimizer];
  ATHANOR_CHECK(progress.stage != Stage::Unscaled,
                "unscale_() has already been called on this optimizer since the last update().");
  ATHANOR_CHECK(progress.stage != Stage::Stepped, "unscale_() is being called after step().");
  progress.found_inf = scale_gradients(optimizer, 1 / scale_);
  progress.stage = Stage::Unscaled;
}

Tensor GradScaler::step(optim::Optimizer& optimizer, const optim::Optimizer::LossClosure& closure) {
  if (!options_.enabled) return optimizer.step(closure);
  ATHANOR_CHECK(!closure, "GradScaler: closure use is not currently supported if GradScaler is enabled.");
  ATHANOR_CHECK(progress_[&optimizer].stage != Stage::Stepped,
                "step() has already been called since the last update().");
  if (progress_[&optimizer].stage == Stage::Ready) unscale_(optimizer);
  Progress& progress = progress_[&optimizer];
  progress.stage = Stage::Stepped;
  return progress.found_inf ? Tensor() : optimizer.step();
}

void GradScaler::update() {
  if (!options_.enabled) return;
  bool looked = false, found = false;
  for (const auto& [optimizer, progress] : progress_) {
    looked = looked || progress.stage != Stage::Ready;
    found = found || progress.found_inf;
  }
  ATHANOR_CHECK(looked, "GradScaler: no gradients were checked before update(); call step() first");
  progress_.clear();
  if (found) {
    scale_ *= options_.backoff_factor;
    good_updates_ = 0;
  } else if (++good_updates_ == options_.growth_interval) {
    // A scale that no float32 can hold would make every step fail.
    if (std::isfinite(static_cast<float>(scale_ * options_.growth_factor))) scale_ *= options_.growth_factor;
    good_updates_ = 0;
  }
}

void GradScaler::update(double new_scale) {
  if (!options_.enabled) return;
  ATHANOR_CHECK_VALUE(new_scale > 0 && std::isfinite(new_scale), "GradScaler: expected a positive scale, got ",
                      new_scale);
  progress_.clear();
  scale_ = new_scale;
}

bool GradScaler::found_inf(const optim::Optimizer& optimizer) const {
  const auto it = progress_.find(&optimizer);
  return it != progress_.end() && it->second.found_inf;
}

std::map<std::string, double> GradScaler::state_dict() const {
  if (!options_.enabled) return {};
  return {{"scale", scale_},
          {"growth_factor", options_.growth_factor},
          {"backoff_factor", options_.backoff_factor},
          {"growth_interval", static_cast<double>(options_.growth_interval)},
          {"_growth_tracker", static_cast<double>(good_updates_)}};
}

void GradScaler::load_state_dict(const std::map<std::string, double>& state) {
  if (!options_.enabled) return;
  const auto entry = [&](const char* name, double least) {
    const auto it = state.find(name);
    ATHANOR_CHECK_VALUE(it != state.end(), "GradScaler: the state has no entry '", name,
                        "'; was it saved by a scaler that was disabled?");
    ATHANOR_CHECK_VALUE(it->second >= least && it->second < 1e300, "GradScaler: entry '", name, "' is ", it->second);
    return it->second;
  };
  GradScalerOptions options = options_;
  const double scale = entry("scale", 0), good = entry("_growth_tracker", 0);
  options.growth_factor = entry("growth_factor", 1), options.backoff_factor = entry("backoff_factor", 0);
  options.growth_interval = static_cast<std::int64_t>(std::min(entry("growth_interval", 1), 1e15));
  options_ = options, scale_ = scale, good_updates_ = static_cast<std::int64_t>(std::min(good, 1e15));
}

}  // namespace athanor::amp
