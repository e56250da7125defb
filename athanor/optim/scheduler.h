#pragma once
/// Learning-rate schedules: call step() once per epoch, after the optimizer's.

#include <vector>

#include "athanor/optim/optimizer.h"

namespace athanor::optim {

class LRScheduler {
 public:
  explicit LRScheduler(Optimizer& optimizer);
  virtual ~LRScheduler() = default;
  /// Sets the learning rates of the next epoch.
  void step();
  std::vector<double> get_current_lrs() const;
  std::vector<double> get_last_lr() const { return get_current_lrs(); }
  /// Number of calls of step(); with the optimizer's state it is all that continuation needs.
  unsigned step_count() const { return step_count_; }
  void set_step_count(unsigned n) { step_count_ = n; }
  const std::vector<double>& base_lrs() const { return base_lrs_; }
  void set_base_lrs(std::vector<double> lrs);

 protected:
  /// The learning rates for the present step_count_.
  virtual std::vector<double> get_lrs() = 0;
  Optimizer& optimizer_;
  unsigned step_count_ = 0;
  std::vector<double> base_lrs_;
};

/// lr is multiplied by gamma every step_size epochs.
class StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, unsigned step_size, double gamma = 0.1);

 private:
  std::vector<double> get_lrs() override;
  unsigned step_size_;
  double gamma_;
};

/// lr = eta_min + (base - eta_min) (1 + cos(pi t / t_max)) / 2, in PyTorch's recursive form. Loshchilov & Hutter,
/// "SGDR", ICLR 2017, without restarts.
class CosineAnnealingLR : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, unsigned t_max, double eta_min = 0);

 private:
  std::vector<double> get_lrs() override;
  unsigned t_max_;
  double eta_min_;
};

}  // namespace athanor::optim
