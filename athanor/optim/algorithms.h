#pragma once
/// SGD, Adam, AdamW, Adadelta with PyTorch's formulas and defaults. Each parameter is updated in one pass over memory.

#include <tuple>

#include "athanor/optim/optimizer.h"

namespace athanor::optim {

/// CRTP: an options class lists its fields once through `visit`.
template <class Derived>
class OptionsOf : public OptimizerOptions {
 public:
  std::unique_ptr<OptimizerOptions> clone() const override;
  std::unique_ptr<OptimizerOptions> initial() const override;
  double get_lr() const override { return static_cast<const Derived&>(*this).lr(); }
  void set_lr(double lr) override { static_cast<Derived&>(*this).lr(lr); }
  std::map<std::string, double> values() const override;
  void set_values(const std::map<std::string, double>& values) override;
};

// Not inline, for the reason given in nn/cloneable.h.

template <class Derived>
std::unique_ptr<OptimizerOptions> OptionsOf<Derived>::clone() const {
  return std::make_unique<Derived>(static_cast<const Derived&>(*this));
}

template <class Derived>
std::unique_ptr<OptimizerOptions> OptionsOf<Derived>::initial() const {
  return std::make_unique<Derived>();
}

template <class Derived>
std::map<std::string, double> OptionsOf<Derived>::values() const {
  std::map<std::string, double> out;
  Derived copy(static_cast<const Derived&>(*this));
  copy.visit([&](const char* name, auto& field) { out[name] = static_cast<double>(field); });
  return out;
}

template <class Derived>
void OptionsOf<Derived>::set_values(const std::map<std::string, double>& values) {
  static_cast<Derived&>(*this).visit([&](const char* name, auto& field) {
    if (const auto it = values.find(name); it != values.end())
      field = static_cast<std::decay_t<decltype(field)>>(it->second);
  });
}

class SGDOptions : public OptionsOf<SGDOptions> {
 public:
  SGDOptions(double lr = 1e-3) : lr_(lr) {}
  template <class F>
  void visit(F f) {
    f("lr", lr_), f("momentum", momentum_), f("dampening", dampening_), f("weight_decay", weight_decay_),
        f("nesterov", nesterov_), f("maximize", maximize_);
  }
  ATHANOR_OPTIM_ARG(double, lr, 1e-3);
  ATHANOR_OPTIM_ARG(double, momentum, 0);
  ATHANOR_OPTIM_ARG(double, dampening, 0);
  ATHANOR_OPTIM_ARG(double, weight_decay, 0);
  ATHANOR_OPTIM_ARG(bool, nesterov, false);
  ATHANOR_OPTIM_ARG(bool, maximize, false);
};
extern template class OptionsOf<SGDOptions>;

class SGD : public Optimizer {
 public:
  SGD(std::vector<OptimizerParamGroup> groups, SGDOptions defaults = {});
  SGD(std::vector<Tensor> params, SGDOptions defaults = {}) : SGD(detail::one_group(std::move(params)), defaults) {}
  Tensor step(LossClosure closure = nullptr) override;

 protected:
  std::unique_ptr<OptimizerParamState> make_state() const override;
};

class AdamOptions : public OptionsOf<AdamOptions> {
 public:
  AdamOptions(double lr = 1e-3) : lr_(lr) {}
  AdamOptions& betas(std::tuple<double, double> b) {
    std::tie(beta1_, beta2_) = b;
    return *this;
  }
  std::tuple<double, double> betas() const { return {beta1_, beta2_}; }
  template <class F>
  void visit(F f) {
    f("lr", lr_), f("beta1", beta1_), f("beta2", beta2_), f("eps", eps_), f("weight_decay", weight_decay_),
        f("amsgrad", amsgrad_), f("maximize", maximize_);
  }

 private:
  double beta1_ = 0.9, beta2_ = 0.999;
  ATHANOR_OPTIM_ARG(double, lr, 1e-3);
  ATHANOR_OPTIM_ARG(double, eps, 1e-8);
  ATHANOR_OPTIM_ARG(double, weight_decay, 0);
  ATHANOR_OPTIM_ARG(bool, amsgrad, false);
  ATHANOR_OPTIM_ARG(bool, maximize, false);
};
extern template class OptionsOf<AdamOptions>;

class Adam : public Optimizer {
 public:
  Adam(std::vector<OptimizerParamGroup> groups, AdamOptions defaults = {});
  Adam(std::vector<Tensor> params, AdamOptions defaults = {}) : Adam(detail::one_group(std::move(params)), defaults) {}
  Tensor step(LossClosure closure = nullptr) override;

 protected:
  /// Of a class that derives its options from Adam's; decoupled: weights decay by themselves, not by their gradients.
  Adam(std::vector<OptimizerParamGroup> groups, std::unique_ptr<AdamOptions> defaults, bool decoupled);
  std::unique_ptr<OptimizerParamState> make_state() const override;

 private:
  bool decoupled_ = false;
};

/// As AdamOptions; weight_decay is 0.01 by default.
class AdamWOptions : public AdamOptions {
 public:
  AdamWOptions(double lr = 1e-3) : AdamOptions(lr) { weight_decay(1e-2); }
  std::unique_ptr<OptimizerOptions> clone() const override { return std::make_unique<AdamWOptions>(*this); }
  std::unique_ptr<OptimizerOptions> initial() const override { return std::make_unique<AdamWOptions>(); }
  // The setters again, so that a chain of them stays AdamWOptions.
#define ATHANOR_ADAMW_ARG(type, name) \
  using AdamOptions::name;            \
  AdamWOptions& name(const type& v) { \
    AdamOptions::name(v);             \
    return *this;                     \
  }
  ATHANOR_ADAMW_ARG(double, lr)
  ATHANOR_ADAMW_ARG(double, eps)
  ATHANOR_ADAMW_ARG(double, weight_decay)
  ATHANOR_ADAMW_ARG(bool, amsgrad)
  ATHANOR_ADAMW_ARG(bool, maximize)
#undef ATHANOR_ADAMW_ARG
  using AdamOptions::betas;
  AdamWOptions& betas(std::tuple<double, double> b) {
    AdamOptions::betas(b);
    return *this;
  }
};

class AdamW : public Adam {
 public:
  AdamW(std::vector<OptimizerParamGroup> groups, AdamWOptions defaults = {});
  AdamW(std::vector<Tensor> params, AdamWOptions defaults = {})
      : AdamW(detail::one_group(std::move(params)), defaults) {}

 protected:
  std::unique_ptr<OptimizerParamState> make_state() const override;
};

class AdadeltaOptions : public OptionsOf<AdadeltaOptions> {
 public:
  AdadeltaOptions(double lr = 1.0) : lr_(lr) {}
  template <class F>
  void visit(F f) {
    f("lr", lr_), f("rho", rho_), f("eps", eps_), f("weight_decay", weight_decay_), f("maximize", maximize_);
  }
  ATHANOR_OPTIM_ARG(double, lr, 1.0);
  ATHANOR_OPTIM_ARG(double, rho, 0.9);
  ATHANOR_OPTIM_ARG(double, eps, 1e-6);
  ATHANOR_OPTIM_ARG(double, weight_decay, 0);
  ATHANOR_OPTIM_ARG(bool, maximize, false);
};
extern template class OptionsOf<AdadeltaOptions>;

class Adadelta : public Optimizer {
 public:
  Adadelta(std::vector<OptimizerParamGroup> groups, AdadeltaOptions defaults = {});
  Adadelta(std::vector<Tensor> params, AdadeltaOptions defaults = {})
      : Adadelta(detail::one_group(std::move(params)), defaults) {}
  Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace athanor::optim
