#pragma once
/// Adagrad, RMSprop, Adamax, NAdam, RAdam, ASGD, Rprop with PyTorch's formulas, names and defaults. One pass over
/// memory updates all parameters; the sources are named in ops/kernels/optim.h.

#include "athanor/optim/algorithms.h"

namespace athanor::optim {

/// Declares the class of an algorithm whose options are named after it, and what it keeps of each parameter.
#define ATHANOR_OPTIMIZER(Name, State)                                                                     \
  extern template class OptionsOf<Name##Options>;                                                          \
  class Name : public Optimizer {                                                                          \
   public:                                                                                                 \
    Name(std::vector<OptimizerParamGroup> groups, Name##Options defaults = {});                            \
    Name(std::vector<Tensor> params, Name##Options defaults = {})                                          \
        : Name(detail::one_group(std::move(params)), std::move(defaults)) {}                               \
    Tensor step(LossClosure closure = nullptr) override;                                                   \
                                                                                                           \
   protected:                                                                                              \
    std::unique_ptr<OptimizerParamState> make_state() const override { return std::make_unique<State>(); } \
  }

/// A pair of numbers, kept as two options.
#define ATHANOR_OPTIM_PAIR(Class, name, first, second, a, b)                \
 public:                                                                    \
  Class& name(std::tuple<double, double> v) {                               \
    std::tie(first##_, second##_) = v;                                      \
    return *this;                                                           \
  }                                                                         \
  std::tuple<double, double> name() const { return {first##_, second##_}; } \
                                                                            \
 private:                                                                   \
  double first##_ = a, second##_ = b

/// The accumulator of squares starts at initial_accumulator_value; the rate falls as lr / (1 + t lr_decay).
class AdagradOptions : public OptionsOf<AdagradOptions> {
 public:
  AdagradOptions(double lr = 1e-2) : lr_(lr) {}
  template <class F>
  void visit(F f) {
    f("lr", lr_), f("lr_decay", lr_decay_), f("weight_decay", weight_decay_),
        f("initial_accumulator_value", initial_accumulator_value_), f("eps", eps_), f("maximize", maximize_);
  }
  ATHANOR_OPTIM_ARG(double, lr, 1e-2);
  ATHANOR_OPTIM_ARG(double, lr_decay, 0);
  ATHANOR_OPTIM_ARG(double, weight_decay, 0);
  ATHANOR_OPTIM_ARG(double, initial_accumulator_value, 0);
  ATHANOR_OPTIM_ARG(double, eps, 1e-10);
  ATHANOR_OPTIM_ARG(bool, maximize, false);
};
ATHANOR_OPTIMIZER(Adagrad, AdagradParamState);

class RMSpropOptions : public OptionsOf<RMSpropOptions> {
 public:
  RMSpropOptions(double lr = 1e-2) : lr_(lr) {}
  template <class F>
  void visit(F f) {
    f("lr", lr_), f("alpha", alpha_), f("eps", eps_), f("weight_decay", weight_decay_), f("momentum", momentum_),
        f("centered", centered_), f("maximize", maximize_);
  }
  ATHANOR_OPTIM_ARG(double, lr, 1e-2);
  ATHANOR_OPTIM_ARG(double, alpha, 0.99);
  ATHANOR_OPTIM_ARG(double, eps, 1e-8);
  ATHANOR_OPTIM_ARG(double, weight_decay, 0);
  ATHANOR_OPTIM_ARG(double, momentum, 0);
  ATHANOR_OPTIM_ARG(bool, centered, false);
  ATHANOR_OPTIM_ARG(bool, maximize, false);
};
ATHANOR_OPTIMIZER(RMSprop, RMSpropParamState);

class AdamaxOptions : public OptionsOf<AdamaxOptions> {
 public:
  AdamaxOptions(double lr = 2e-3) : lr_(lr) {}
  template <class F>
  void visit(F f) {
    f("lr", lr_), f("beta1", beta1_), f("beta2", beta2_), f("eps", eps_), f("weight_decay", weight_decay_),
        f("maximize", maximize_);
  }
  ATHANOR_OPTIM_PAIR(AdamaxOptions, betas, beta1, beta2, 0.9, 0.999);
  ATHANOR_OPTIM_ARG(double, lr, 2e-3);
  ATHANOR_OPTIM_ARG(double, eps, 1e-8);
  ATHANOR_OPTIM_ARG(double, weight_decay, 0);
  ATHANOR_OPTIM_ARG(bool, maximize, false);
};
ATHANOR_OPTIMIZER(Adamax, OptimizerParamState);

class NAdamOptions : public OptionsOf<NAdamOptions> {
 public:
  NAdamOptions(double lr = 2e-3) : lr_(lr) {}
  template <class F>
  void visit(F f) {
    f("lr", lr_), f("beta1", beta1_), f("beta2", beta2_), f("eps", eps_), f("weight_decay", weight_decay_),
        f("momentum_decay", momentum_decay_), f("decoupled_weight_decay", decoupled_weight_decay_),
        f("maximize", maximize_);
  }
  ATHANOR_OPTIM_PAIR(NAdamOptions, betas, beta1, beta2, 0.9, 0.999);
  ATHANOR_OPTIM_ARG(double, lr, 2e-3);
  ATHANOR_OPTIM_ARG(double, eps, 1e-8);
  ATHANOR_OPTIM_ARG(double, weight_decay, 0);
  ATHANOR_OPTIM_ARG(double, momentum_decay, 4e-3);
  ATHANOR_OPTIM_ARG(bool, decoupled_weight_decay, false);
  ATHANOR_OPTIM_ARG(bool, maximize, false);
};
ATHANOR_OPTIMIZER(NAdam, OptimizerParamState);

class RAdamOptions : public OptionsOf<RAdamOptions> {
 public:
  RAdamOptions(double lr = 1e-3) : lr_(lr) {}
  template <class F>
  void visit(F f) {
    f("lr", lr_), f("beta1", beta1_), f("beta2", beta2_), f("eps", eps_), f("weight_decay", weight_decay_),
        f("decoupled_weight_decay", decoupled_weight_decay_), f("maximize", maximize_);
  }
  ATHANOR_OPTIM_PAIR(RAdamOptions, betas, beta1, beta2, 0.9, 0.999);
  ATHANOR_OPTIM_ARG(double, lr, 1e-3);
  ATHANOR_OPTIM_ARG(double, eps, 1e-8);
  ATHANOR_OPTIM_ARG(double, weight_decay, 0);
  ATHANOR_OPTIM_ARG(bool, decoupled_weight_decay, false);
  ATHANOR_OPTIM_ARG(bool, maximize, false);
};
ATHANOR_OPTIMIZER(RAdam, OptimizerParamState);

/// Averaging starts at step t0; the average is in the state, "ax".
class ASGDOptions : public OptionsOf<ASGDOptions> {
 public:
  ASGDOptions(double lr = 1e-2) : lr_(lr) {}
  template <class F>
  void visit(F f) {
    f("lr", lr_), f("lambd", lambd_), f("alpha", alpha_), f("t0", t0_), f("weight_decay", weight_decay_),
        f("maximize", maximize_);
  }
  ATHANOR_OPTIM_ARG(double, lr, 1e-2);
  ATHANOR_OPTIM_ARG(double, lambd, 1e-4);
  ATHANOR_OPTIM_ARG(double, alpha, 0.75);
  ATHANOR_OPTIM_ARG(double, t0, 1e6);
  ATHANOR_OPTIM_ARG(double, weight_decay, 0);
  ATHANOR_OPTIM_ARG(bool, maximize, false);
};
ATHANOR_OPTIMIZER(ASGD, OptimizerParamState);

/// For whole-batch gradients: only their signs count.
class RpropOptions : public OptionsOf<RpropOptions> {
 public:
  RpropOptions(double lr = 1e-2) : lr_(lr) {}
  template <class F>
  void visit(F f) {
    f("lr", lr_), f("eta_minus", eta_minus_), f("eta_plus", eta_plus_), f("step_size_min", step_size_min_),
        f("step_size_max", step_size_max_), f("maximize", maximize_);
  }
  ATHANOR_OPTIM_PAIR(RpropOptions, etas, eta_minus, eta_plus, 0.5, 1.2);
  ATHANOR_OPTIM_PAIR(RpropOptions, step_sizes, step_size_min, step_size_max, 1e-6, 50);
  ATHANOR_OPTIM_ARG(double, lr, 1e-2);
  ATHANOR_OPTIM_ARG(bool, maximize, false);
};
ATHANOR_OPTIMIZER(Rprop, OptimizerParamState);

}  // namespace athanor::optim
