#pragma once
/// L-BFGS, a quasi-Newton method for losses that are the same at every call: whole batches, no dropout.

#include <optional>
#include <string>

#include "athanor/optim/optimizer.h"

namespace athanor::optim {

/// max_eval is max_iter * 5 / 4 unless given; line_search_fn is nothing or "strong_wolfe".
class LBFGSOptions : public OptimizerOptions {
 public:
  LBFGSOptions(double lr = 1) : lr_(lr) {}
  ATHANOR_OPTIM_ARG(double, lr, 1);
  ATHANOR_OPTIM_ARG(std::int64_t, max_iter, 20);
  ATHANOR_OPTIM_ARG(std::optional<std::int64_t>, max_eval, std::nullopt);
  ATHANOR_OPTIM_ARG(double, tolerance_grad, 1e-7);
  ATHANOR_OPTIM_ARG(double, tolerance_change, 1e-9);
  ATHANOR_OPTIM_ARG(std::int64_t, history_size, 100);
  ATHANOR_OPTIM_ARG(std::optional<std::string>, line_search_fn, std::nullopt);
  ATHANOR_OPTIM_ARG(bool, maximize, false);

 public:
  std::unique_ptr<OptimizerOptions> clone() const override;
  std::unique_ptr<OptimizerOptions> initial() const override;
  double get_lr() const override { return lr_; }
  void set_lr(double lr) override { lr_ = lr; }
  std::map<std::string, double> values() const override;
  void set_values(const std::map<std::string, double>& values) override;
};

/// Liu & Nocedal, "On the limited memory BFGS method", 1989; line search: Nocedal & Wright, "Numerical optimization",
/// algorithms 3.5 and 3.6 with cubic interpolation. One parameter group only. All vectors are kept on the device and in
/// the dtype of the first parameter, as state of that parameter.
class LBFGS : public Optimizer {
 public:
  LBFGS(std::vector<OptimizerParamGroup> groups, LBFGSOptions defaults = {});
  LBFGS(std::vector<Tensor> params, LBFGSOptions defaults = {})
      : LBFGS(detail::one_group(std::move(params)), std::move(defaults)) {}
  /// Up to max_iter iterations, each of which calls the closure at least once: it clears the gradients, computes the
  /// loss, calls backward and returns the loss. Gives back the first loss. Throws ValueError without a closure.
  Tensor step(LossClosure closure) override;

 protected:
  std::unique_ptr<OptimizerParamState> make_state() const override;
  bool state_fits(const Tensor& state, const Tensor& p) const override;

 private:
  const std::vector<Tensor>& params() const { return param_groups_[0].params(); }
  Tensor flat_gradient() const;
  void move(double length, const Tensor& direction);
  double evaluate(const LossClosure& closure);
};

}  // namespace athanor::optim
