#pragma once
/// Learning-rate schedules made of others, and the one that watches a metric.

#include <limits>
#include <memory>
#include <string>

#include "athanor/optim/scheduler.h"

namespace athanor::optim {

/// Several schedules of one optimizer that step together, each going on from the rate that the one before it set.
class ChainedScheduler : public LRScheduler {
 public:
  explicit ChainedScheduler(std::vector<std::shared_ptr<LRScheduler>> schedulers);
  void step() override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 private:
  std::vector<double> get_lrs() override { return get_current_lrs(); }
  void begin() override;
  void restart() override;
  std::vector<std::shared_ptr<LRScheduler>> schedulers_;
};

/// Schedules one after the other: the next begins at each milestone, from the rates it would begin with on its own.
class SequentialLR : public LRScheduler {
 public:
  SequentialLR(Optimizer& optimizer, std::vector<std::shared_ptr<LRScheduler>> schedulers,
               std::vector<unsigned> milestones);
  void step() override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 private:
  std::vector<double> get_lrs() override { return get_current_lrs(); }
  void begin() override;
  void restart() override { begin(); }
  std::vector<std::shared_ptr<LRScheduler>> schedulers_;
  std::vector<unsigned> milestones_;
};

/// Multiplies the rate by factor after more than `patience` epochs without a better metric.
class ReduceLROnPlateau : public LRScheduler {
 public:
  enum SchedulerMode { min, max };
  enum ThresholdMode { rel, abs };
  /// min_lr: one for all groups or one for each. Throws ValueError for a factor of 1 or more.
  explicit ReduceLROnPlateau(Optimizer& optimizer, SchedulerMode mode = min, double factor = 0.1, int patience = 10,
                             double threshold = 1e-4, ThresholdMode threshold_mode = rel, int cooldown = 0,
                             std::vector<double> min_lr = {0}, double eps = 1e-8);
  void step(double metric);
  /// Throws Error: this schedule needs the metric.
  void step() override;
  double best() const { return best_; }
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 private:
  std::vector<double> get_lrs() override { return get_current_lrs(); }
  bool is_better(double metric) const;
  SchedulerMode mode_;
  ThresholdMode threshold_mode_;
  double factor_, threshold_, eps_;
  int patience_, cooldown_;
  std::vector<double> min_lrs_;
  double best_;
  int bad_epochs_ = 0, cooldown_left_ = 0;
};
/// libtorch's name.
using ReduceLROnPlateauScheduler = ReduceLROnPlateau;

}  // namespace athanor::optim
