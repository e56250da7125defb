#pragma once
/// Learning-rate schedules: call step() once per epoch, after the optimizer's. PyTorch's names, formulas and defaults.
/// More of them are in schedule_cycles.h and schedule_compose.h. Schedules of one optimizer may be combined: most go on
/// from the present rate. The optimizer must outlive its schedules. Not thread-safe.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "athanor/optim/optimizer.h"

namespace athanor::optim {

class LRScheduler {
 public:
  /// What a schedule needs to go on, beside the optimizer's state.
  using StateDict = std::map<std::string, double>;

  explicit LRScheduler(Optimizer& optimizer);
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = default;
  LRScheduler& operator=(const LRScheduler&) = delete;
  /// Sets the learning rates of the next epoch.
  virtual void step();
  std::vector<double> get_current_lrs() const;
  std::vector<double> get_last_lr() const { return get_current_lrs(); }
  /// Number of calls of step().
  unsigned step_count() const { return step_count_; }
  void set_step_count(unsigned n) { step_count_ = n; }
  const std::vector<double>& base_lrs() const { return base_lrs_; }
  void set_base_lrs(std::vector<double> lrs);
  Optimizer& optimizer() const { return optimizer_; }

  virtual StateDict state_dict() const;
  /// Throws ValueError naming an entry that is missing or impossible; nothing is changed then.
  virtual void load_state_dict(const StateDict& state);

 protected:
  friend class SequentialLR;
  friend class ChainedScheduler;
  /// The learning rates for the present step_count_; may read the present rates.
  virtual std::vector<double> get_lrs() = 0;
  /// The same from the base rates alone; by default get_lrs().
  virtual std::vector<double> closed_form() { return get_lrs(); }
  /// Sets the rates of the first epoch from the present ones. Constructors of schedules that change them call it.
  virtual void begin();
  /// Sets the rates of the first epoch whatever the present ones are.
  virtual void restart();
  void set_lrs(const std::vector<double>& lrs);

  Optimizer& optimizer_;
  unsigned step_count_ = 0;
  std::vector<double> base_lrs_;
};

namespace detail {
/// Entry `name`; throws ValueError if it is missing.
double state_entry(const LRScheduler::StateDict& state, const std::string& name);
/// One value per group from one value or from one per group.
std::vector<double> per_group(const char* what, const Optimizer& optimizer, std::vector<double> values);
}  // namespace detail

/// lr is multiplied by gamma every step_size epochs.
class StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, unsigned step_size, double gamma = 0.1);

 private:
  std::vector<double> get_lrs() override;
  std::vector<double> closed_form() override;
  unsigned step_size_;
  double gamma_;
};

/// lr is multiplied by gamma at every milestone; one listed twice counts twice.
class MultiStepLR : public LRScheduler {
 public:
  MultiStepLR(Optimizer& optimizer, std::vector<unsigned> milestones, double gamma = 0.1);

 private:
  std::vector<double> get_lrs() override;
  std::vector<double> closed_form() override;
  std::vector<unsigned> milestones_;
  double gamma_;
};

/// lr is multiplied by factor until epoch total_iters.
class ConstantLR : public LRScheduler {
 public:
  ConstantLR(Optimizer& optimizer, double factor = 1.0 / 3, unsigned total_iters = 5);

 private:
  std::vector<double> get_lrs() override;
  std::vector<double> closed_form() override;
  double factor_;
  unsigned total_iters_;
};

/// lr is multiplied by a factor that goes from start_factor to end_factor in total_iters epochs.
class LinearLR : public LRScheduler {
 public:
  LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1.0, unsigned total_iters = 5);

 private:
  std::vector<double> get_lrs() override;
  std::vector<double> closed_form() override;
  double start_, end_;
  unsigned total_iters_;
};

/// lr is multiplied by gamma every epoch.
class ExponentialLR : public LRScheduler {
 public:
  ExponentialLR(Optimizer& optimizer, double gamma);

 private:
  std::vector<double> get_lrs() override;
  std::vector<double> closed_form() override;
  double gamma_;
};

/// lr = base (1 - t / total_iters)^power, then 0.
class PolynomialLR : public LRScheduler {
 public:
  PolynomialLR(Optimizer& optimizer, unsigned total_iters = 5, double power = 1.0);

 private:
  std::vector<double> get_lrs() override;
  std::vector<double> closed_form() override;
  unsigned total_iters_;
  double power_;
};

/// lr = base * f(epoch), with one function for all groups or one for each.
class LambdaLR : public LRScheduler {
 public:
  using Function = std::function<double(unsigned)>;
  LambdaLR(Optimizer& optimizer, Function f) : LambdaLR(optimizer, std::vector<Function>{std::move(f)}) {}
  LambdaLR(Optimizer& optimizer, std::vector<Function> functions);

 private:
  std::vector<double> get_lrs() override;
  std::vector<Function> functions_;
};

/// lr is multiplied by f(epoch) every epoch.
class MultiplicativeLR : public LRScheduler {
 public:
  using Function = std::function<double(unsigned)>;
  MultiplicativeLR(Optimizer& optimizer, Function f)
      : MultiplicativeLR(optimizer, std::vector<Function>{std::move(f)}) {}
  MultiplicativeLR(Optimizer& optimizer, std::vector<Function> functions);

 private:
  std::vector<double> get_lrs() override;
  std::vector<Function> functions_;
};

/// lr = eta_min + (base - eta_min) (1 + cos(pi t / t_max)) / 2, in PyTorch's recursive form. Loshchilov & Hutter,
/// "SGDR", ICLR 2017, without restarts.
class CosineAnnealingLR : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, unsigned t_max, double eta_min = 0);

 private:
  std::vector<double> get_lrs() override;
  std::vector<double> closed_form() override;
  unsigned t_max_;
  double eta_min_;
};

}  // namespace athanor::optim
