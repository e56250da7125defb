#include "athanor/optim/schedule_cycles.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace athanor::optim {
namespace {

constexpr double kPi = std::numbers::pi;

/// The option that a cycle of the momentum changes.
const char* momentum_name(const char* schedule, const Optimizer& optimizer) {
  const char* name = nullptr;
  for (const auto& g : optimizer.param_groups()) {
    const auto values = g.options().values();
    name = values.count("momentum") ? "momentum" : values.count("beta1") ? "beta1" : nullptr;
    ATHANOR_CHECK_VALUE(name, schedule, ": the optimizer must have a momentum or beta1 for cycle_momentum; ",
                        "set cycle_momentum to false");
  }
  return name;
}

void set_momentum(OptimizerParamGroup& group, double momentum) {
  const auto values = group.options().values();
  group.options().set_values({{values.count("momentum") ? "momentum" : "beta1", momentum}});
}

void check_strategy(const char* schedule, const std::string& strategy) {
  ATHANOR_CHECK_VALUE(strategy == "cos" || strategy == "linear", schedule,
                      ": anneal_strategy must be one of 'cos' or 'linear', got '", strategy, "'");
}

}  // namespace

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(Optimizer& optimizer, unsigned t_0, unsigned t_mult,
                                                         double eta_min)
    : LRScheduler(optimizer), t_0_(t_0), t_mult_(t_mult), eta_min_(eta_min), length_(t_0) {
  ATHANOR_CHECK_VALUE(t_0 > 0, "CosineAnnealingWarmRestarts: expected a positive t_0, got ", t_0);
  ATHANOR_CHECK_VALUE(t_mult > 0, "CosineAnnealingWarmRestarts: expected t_mult >= 1, got ", t_mult);
  begin();
}

void CosineAnnealingWarmRestarts::begin() {
  now_ = 0, length_ = t_0_;
  LRScheduler::begin();
}

std::vector<double> CosineAnnealingWarmRestarts::get_lrs() {
  std::vector<double> lrs = base_lrs_;
  for (double& lr : lrs) lr = eta_min_ + (lr - eta_min_) * (1 + std::cos(kPi * now_ / length_)) / 2;
  return lrs;
}

void CosineAnnealingWarmRestarts::step() {
  if (++now_ >= length_) {
    now_ -= length_;
    length_ *= t_mult_;
  }
  LRScheduler::step();
}

void CosineAnnealingWarmRestarts::step(double epoch) {
  ATHANOR_CHECK_VALUE(epoch >= 0, "CosineAnnealingWarmRestarts: expected an epoch >= 0, got ", epoch);
  now_ = epoch, length_ = t_0_;
  if (epoch >= t_0_ && t_mult_ == 1) {
    now_ = std::fmod(epoch, t_0_);
  } else if (epoch >= t_0_) {
    // Of n whole cycles the lengths are a geometric series.
    const double n = std::floor(std::log(epoch / t_0_ * (t_mult_ - 1) + 1) / std::log(t_mult_));
    now_ = epoch - t_0_ * (std::pow(t_mult_, n) - 1) / (t_mult_ - 1);
    length_ = t_0_ * std::pow(t_mult_, n);
  }
  step_count_ = static_cast<unsigned>(std::min(epoch, 4e9));
  set_lrs(get_lrs());
}

LRScheduler::StateDict CosineAnnealingWarmRestarts::state_dict() const {
  StateDict state = LRScheduler::state_dict();
  state["T_cur"] = now_, state["T_i"] = length_;
  return state;
}

void CosineAnnealingWarmRestarts::load_state_dict(const StateDict& state) {
  const double now = detail::state_entry(state, "T_cur"), length = detail::state_entry(state, "T_i");
  ATHANOR_CHECK_VALUE(now >= 0 && length > 0, "CosineAnnealingWarmRestarts: T_cur is ", now, " and T_i ", length);
  LRScheduler::load_state_dict(state);
  now_ = now, length_ = length;
}

CyclicLR::CyclicLR(Optimizer& optimizer, std::vector<double> base_lr, std::vector<double> max_lr,
                   CyclicLROptions options)
    : LRScheduler(optimizer), options_(std::move(options)) {
  auto& o = options_;
  ATHANOR_CHECK_VALUE(o.step_size_up > 0 && o.step_size_down.value_or(1) > 0,
                      "CyclicLR: step_size_up and step_size_down must be positive");
  ATHANOR_CHECK_VALUE(o.scale_fn || o.mode == "triangular" || o.mode == "triangular2" || o.mode == "exp_range",
                      "CyclicLR: mode is invalid and scale_fn is not given; got mode '", o.mode, "'");
  ATHANOR_CHECK_VALUE(o.scale_mode == "cycle" || o.scale_mode == "iterations",
                      "CyclicLR: expected scale_mode 'cycle' or 'iterations', got '", o.scale_mode, "'");
  if (!o.scale_fn) o.scale_mode = o.mode == "exp_range" ? "iterations" : "cycle";
  max_lrs_ = detail::per_group("CyclicLR: max_lr", optimizer, std::move(max_lr));
  base_lrs_ = detail::per_group("CyclicLR: base_lr", optimizer, std::move(base_lr));
  if (o.cycle_momentum) {
    momentum_name("CyclicLR", optimizer);
    o.base_momentum = detail::per_group("CyclicLR: base_momentum", optimizer, std::move(o.base_momentum));
    o.max_momentum = detail::per_group("CyclicLR: max_momentum", optimizer, std::move(o.max_momentum));
  }
  begin();
}

double CyclicLR::scale(double cycle) const {
  const double x = options_.scale_mode == "cycle" ? cycle : step_count_;
  if (options_.scale_fn) return options_.scale_fn(x);
  if (options_.mode == "triangular2") return std::pow(2.0, 1 - x);
  return options_.mode == "exp_range" ? std::pow(options_.gamma, x) : 1.0;
}

std::vector<double> CyclicLR::get_lrs() {
  const double up = options_.step_size_up, down = options_.step_size_down.value_or(options_.step_size_up);
  const double total = up + down, share = up / total, t = step_count_;
  const double cycle = std::floor(1 + t / total), x = 1.0 + t / total - cycle;
  const double height = x <= share ? x / share : (x - 1) / (share - 1), factor = scale(cycle);
  std::vector<double> lrs = base_lrs_;
  for (std::size_t i = 0; i < lrs.size(); ++i) {
    lrs[i] += (max_lrs_[i] - base_lrs_[i]) * height * factor;
    if (!options_.cycle_momentum) continue;
    const double low = options_.base_momentum[i], high = options_.max_momentum[i];
    set_momentum(optimizer_.param_groups()[i], high - (high - low) * height * factor);
  }
  return lrs;
}

namespace {
OneCycleLROptions with_total(unsigned total_steps) {
  OneCycleLROptions options;
  options.total_steps = total_steps;
  return options;
}
}  // namespace

OneCycleLR::OneCycleLR(Optimizer& optimizer, double max_lr, unsigned total_steps)
    : OneCycleLR(optimizer, std::vector<double>{max_lr}, with_total(total_steps)) {}

OneCycleLR::OneCycleLR(Optimizer& optimizer, std::vector<double> max_lr, OneCycleLROptions options)
    : LRScheduler(optimizer), options_(std::move(options)) {
  auto& o = options_;
  ATHANOR_CHECK_VALUE(o.total_steps || (o.epochs && o.steps_per_epoch),
                      "OneCycleLR: define either total_steps or epochs and steps_per_epoch");
  total_steps_ = o.total_steps ? *o.total_steps : *o.epochs * *o.steps_per_epoch;
  ATHANOR_CHECK_VALUE(total_steps_ > 0, "OneCycleLR: expected a positive number of steps, got 0");
  ATHANOR_CHECK_VALUE(o.pct_start >= 0 && o.pct_start <= 1, "OneCycleLR: expected pct_start between 0 and 1, got ",
                      o.pct_start);
  check_strategy("OneCycleLR", o.anneal_strategy);
  max_lrs_ = detail::per_group("OneCycleLR: max_lr", optimizer, std::move(max_lr));
  for (std::size_t i = 0; i < max_lrs_.size(); ++i) {
    base_lrs_[i] = max_lrs_[i] / o.div_factor;
    optimizer.param_groups()[i].set_initial_lr(base_lrs_[i]);
  }
  if (o.cycle_momentum) {
    momentum_name("OneCycleLR", optimizer);
    o.base_momentum = detail::per_group("OneCycleLR: base_momentum", optimizer, std::move(o.base_momentum));
    o.max_momentum = detail::per_group("OneCycleLR: max_momentum", optimizer, std::move(o.max_momentum));
  }
  const double last = total_steps_ - 1.0, peak = o.pct_start * total_steps_ - 1;
  if (o.three_phase)
    phases_ = {
        {peak, 0, 1, true, false}, {2 * o.pct_start * total_steps_ - 2, 1, 0, false, true}, {last, 0, 2, true, true}};
  else
    phases_ = {{peak, 0, 1, true, false}, {last, 1, 2, false, true}};
  begin();
}

double OneCycleLR::anneal(double from, double to, double part) const {
  if (options_.anneal_strategy == "linear") return (to - from) * part + from;
  return to + (from - to) / 2 * (1 + std::cos(kPi * part));
}

std::vector<double> OneCycleLR::get_lrs() {
  const double t = step_count_;
  ATHANOR_CHECK_VALUE(step_count_ <= total_steps_, "OneCycleLR: tried to step ", step_count_,
                      " times; the number of total steps is ", total_steps_);
  double start = 0;
  std::size_t k = 0;
  for (; k + 1 < phases_.size() && t > phases_[k].end; ++k) start = phases_[k].end;
  const Phase& phase = phases_[k];
  const double part = (t - start) / (phase.end - start);
  std::vector<double> lrs;
  for (std::size_t i = 0; i < max_lrs_.size(); ++i) {
    const double rates[] = {base_lrs_[i], max_lrs_[i], base_lrs_[i] / options_.final_div_factor};
    lrs.push_back(anneal(rates[phase.from], rates[phase.to], part));
    if (!options_.cycle_momentum) continue;
    const double momenta[] = {options_.base_momentum[i], options_.max_momentum[i]};
    set_momentum(optimizer_.param_groups()[i], anneal(momenta[phase.momentum_from], momenta[phase.momentum_to], part));
  }
  return lrs;
}

SWALR::SWALR(Optimizer& optimizer, std::vector<double> swa_lr, unsigned anneal_epochs,
             const std::string& anneal_strategy)
    : LRScheduler(optimizer),
      swa_lrs_(detail::per_group("SWALR: swa_lr", optimizer, std::move(swa_lr))),
      anneal_epochs_(anneal_epochs),
      cosine_(anneal_strategy == "cos") {
  check_strategy("SWALR", anneal_strategy);
  begin();
}

std::vector<double> SWALR::get_lrs() {
  const double t = anneal_epochs_ == 0 ? std::max(1U, step_count_) : step_count_;
  const auto weight = [&](double time) {
    const double part = std::clamp(time / std::max(1.0, anneal_epochs_), 0.0, 1.0);
    return cosine_ ? (1 - std::cos(kPi * part)) / 2 : part;
  };
  const double before = weight(t - 1), now = weight(t);
  std::vector<double> lrs = get_current_lrs();
  for (std::size_t i = 0; i < lrs.size(); ++i) {
    // The rate without averaging, which other schedules may have changed.
    const double own = before == 1 ? swa_lrs_[i] : (lrs[i] - before * swa_lrs_[i]) / (1 - before);
    lrs[i] = swa_lrs_[i] * now + own * (1 - now);
  }
  return lrs;
}

}  // namespace athanor::optim
