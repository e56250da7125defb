#pragma once
/// Learning-rate schedules that rise and fall: warm restarts, cyclic rates, the one-cycle policy, and the approach to
/// the constant rate of weight averaging. Those of two kinds move the momentum the other way: option "momentum" or, in
/// Adam's relatives, "beta1".

#include <optional>
#include <string>

#include "athanor/optim/scheduler.h"

namespace athanor::optim {

/// Cosine annealing that starts again after t_0 epochs, then after t_0 * t_mult, and so on. Loshchilov & Hutter,
/// "SGDR", ICLR 2017.
class CosineAnnealingWarmRestarts : public LRScheduler {
 public:
  CosineAnnealingWarmRestarts(Optimizer& optimizer, unsigned t_0, unsigned t_mult = 1, double eta_min = 0);
  using LRScheduler::step;
  void step() override;
  /// Sets the rates for a point in time, which may lie between epochs.
  void step(double epoch);
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 private:
  std::vector<double> get_lrs() override;
  void begin() override;
  void restart() override { begin(); }
  double t_0_, t_mult_, eta_min_;
  double length_, now_ = 0;  ///< of the present cycle; time since it began
};

struct CyclicLROptions {
  unsigned step_size_up = 2000;
  std::optional<unsigned> step_size_down;  ///< as step_size_up
  std::string mode = "triangular";         ///< or "triangular2", "exp_range"
  double gamma = 1.0;                      ///< of exp_range
  std::function<double(double)> scale_fn;  ///< instead of a mode
  std::string scale_mode = "cycle";        ///< what scale_fn counts: "cycle" or "iterations"
  bool cycle_momentum = true;
  std::vector<double> base_momentum = {0.8}, max_momentum = {0.9};
};

/// Smith, "Cyclical learning rates for training neural networks", WACV 2017. One rate for all groups or one for each.
class CyclicLR : public LRScheduler {
 public:
  CyclicLR(Optimizer& optimizer, std::vector<double> base_lr, std::vector<double> max_lr, CyclicLROptions options = {});
  CyclicLR(Optimizer& optimizer, double base_lr, double max_lr, CyclicLROptions options = {})
      : CyclicLR(optimizer, std::vector<double>{base_lr}, std::vector<double>{max_lr}, std::move(options)) {}

 private:
  std::vector<double> get_lrs() override;
  double scale(double cycle) const;
  std::vector<double> max_lrs_;
  CyclicLROptions options_;
};

struct OneCycleLROptions {
  std::optional<unsigned> total_steps;  ///< or epochs and steps_per_epoch
  std::optional<unsigned> epochs, steps_per_epoch;
  double pct_start = 0.3;               ///< share of the steps in which the rate rises
  std::string anneal_strategy = "cos";  ///< or "linear"
  bool cycle_momentum = true;
  std::vector<double> base_momentum = {0.85}, max_momentum = {0.95};
  double div_factor = 25;         ///< max_lr over the first rate
  double final_div_factor = 1e4;  ///< the first rate over the last
  bool three_phase = false;       ///< down as slowly as up, then to the last rate
};

/// Smith & Topin, "Super-convergence", 2018. Throws ValueError for a step beyond the last.
class OneCycleLR : public LRScheduler {
 public:
  OneCycleLR(Optimizer& optimizer, std::vector<double> max_lr, OneCycleLROptions options);
  OneCycleLR(Optimizer& optimizer, double max_lr, OneCycleLROptions options)
      : OneCycleLR(optimizer, std::vector<double>{max_lr}, std::move(options)) {}
  OneCycleLR(Optimizer& optimizer, double max_lr, unsigned total_steps);

 private:
  struct Phase {
    double end;
    int from, to;                     ///< index into the rates: first, highest, last
    bool momentum_from, momentum_to;  ///< true for the higher momentum
  };
  std::vector<double> get_lrs() override;
  double anneal(double from, double to, double part) const;
  std::vector<double> max_lrs_;
  OneCycleLROptions options_;
  unsigned total_steps_ = 0;
  std::vector<Phase> phases_;
};

/// From the present rate to swa_lr in anneal_epochs, then constant: for averaging weights. anneal_strategy is "cos" or
/// "linear". Izmailov et al., "Averaging weights leads to wider optima", UAI 2018.
class SWALR : public LRScheduler {
 public:
  SWALR(Optimizer& optimizer, std::vector<double> swa_lr, unsigned anneal_epochs = 10,
        const std::string& anneal_strategy = "cos");
  SWALR(Optimizer& optimizer, double swa_lr, unsigned anneal_epochs = 10, const std::string& anneal_strategy = "cos")
      : SWALR(optimizer, std::vector<double>{swa_lr}, anneal_epochs, anneal_strategy) {}

 private:
  std::vector<double> get_lrs() override;
  std::vector<double> swa_lrs_;
  double anneal_epochs_;
  bool cosine_;
};

}  // namespace athanor::optim
