#include "athanor/optim/algorithms.h"

#include <cmath>

#include "athanor/ops/kernels/optim.h"
#include "athanor/ops/launch.h"

namespace athanor::optim {

template class OptionsOf<SGDOptions>;
template class OptionsOf<AdamOptions>;
template class OptionsOf<AdadeltaOptions>;
namespace {

void check_lr(double lr) { ATHANOR_CHECK_VALUE(lr >= 0, "Invalid learning rate: ", lr); }

/// Runs `step` on flat memory; a parameter that is not dense goes through a dense copy.
template <class F>
void on_dense(Tensor& p, F&& step) {
  if (p.is_non_overlapping_and_dense()) {
    step(p);
    p.impl()->bump_version();
    return;
  }
  Tensor dense = p.clone(MemoryFormat::Contiguous);
  step(dense);
  p.copy_(dense);
}

Tensor& state_like(ParamState& s, const char* name, const Tensor& p) {
  Tensor& t = s.tensors[name];
  if (!t.defined())
    t = zeros_like(p);
  else if (!detail::same_dense_layout(p, {&t}))
    t = detail::like_layout(t, p);
  return t;
}

}  // namespace

SGD::SGD(std::vector<OptimizerParamGroup> groups, SGDOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<SGDOptions>(defaults)) {
  check_lr(defaults.lr());
  ATHANOR_CHECK_VALUE(defaults.momentum() >= 0, "Invalid momentum value: ", defaults.momentum());
  ATHANOR_CHECK_VALUE(defaults.weight_decay() >= 0, "Invalid weight_decay value: ", defaults.weight_decay());
  ATHANOR_CHECK_VALUE(!defaults.nesterov() || (defaults.momentum() > 0 && defaults.dampening() == 0),
                      "Nesterov momentum requires a momentum and zero dampening");
}

Tensor SGD::step(LossClosure closure) {
  Tensor loss = run_closure(closure);
  for_each_parameter<SGDOptions>([](Tensor& p, const Tensor& grad, ParamState& state, const SGDOptions& o) {
    on_dense(p, [&](Tensor& dense) {
      SgdStep s{o.lr(), o.momentum(), o.dampening(), o.weight_decay(), o.nesterov(), o.maximize(), false};
      Tensor buffer;
      if (o.momentum() != 0) {
        Tensor& b = state.tensors["momentum_buffer"];
        s.first = !b.defined();
        if (s.first)
          b = empty_like(dense);
        else
          b = detail::like_layout(b, dense);
        buffer = b;
      }
      launch<2>(sgd_step_kernel, dense, buffer, detail::like_layout(grad, dense), s);
    });
  });
  return loss;
}

Adam::Adam(std::vector<OptimizerParamGroup> groups, AdamOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<AdamOptions>(defaults)) {
  const auto [beta1, beta2] = defaults.betas();
  check_lr(defaults.lr());
  ATHANOR_CHECK_VALUE(defaults.eps() >= 0, "Invalid epsilon value: ", defaults.eps());
  ATHANOR_CHECK_VALUE(beta1 >= 0 && beta1 < 1, "Invalid beta parameter at index 0: ", beta1);
  ATHANOR_CHECK_VALUE(beta2 >= 0 && beta2 < 1, "Invalid beta parameter at index 1: ", beta2);
  ATHANOR_CHECK_VALUE(defaults.weight_decay() >= 0, "Invalid weight_decay value: ", defaults.weight_decay());
}

Tensor Adam::step(LossClosure closure) {
  Tensor loss = run_closure(closure);
  for_each_parameter<AdamOptions>([this](Tensor& p, const Tensor& grad, ParamState& state, const AdamOptions& o) {
    const double t = ++state.numbers["step"];
    const auto [beta1, beta2] = o.betas();
    on_dense(p, [&](Tensor& dense) {
      Tensor top;
      if (o.amsgrad()) top = state_like(state, "max_exp_avg_sq", dense);
      const AdamStep s{
          o.lr(),     beta1,       beta2, o.eps(), o.weight_decay(), 1 - std::pow(beta1, t), 1 - std::pow(beta2, t),
          decoupled_, o.maximize()};
      launch<4>(adam_step_kernel, dense, state_like(state, "exp_avg", dense), state_like(state, "exp_avg_sq", dense),
                top, detail::like_layout(grad, dense), s);
    });
  });
  return loss;
}

Adadelta::Adadelta(std::vector<OptimizerParamGroup> groups, AdadeltaOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<AdadeltaOptions>(defaults)) {
  check_lr(defaults.lr());
  ATHANOR_CHECK_VALUE(defaults.rho() >= 0 && defaults.rho() <= 1, "Invalid rho value: ", defaults.rho());
  ATHANOR_CHECK_VALUE(defaults.eps() >= 0, "Invalid epsilon value: ", defaults.eps());
  ATHANOR_CHECK_VALUE(defaults.weight_decay() >= 0, "Invalid weight_decay value: ", defaults.weight_decay());
}

Tensor Adadelta::step(LossClosure closure) {
  Tensor loss = run_closure(closure);
  for_each_parameter<AdadeltaOptions>([](Tensor& p, const Tensor& grad, ParamState& state, const AdadeltaOptions& o) {
    on_dense(p, [&](Tensor& dense) {
      const AdadeltaStep s{o.lr(), o.rho(), o.eps(), o.weight_decay(), o.maximize()};
      launch<3>(adadelta_step_kernel, dense, state_like(state, "square_avg", dense),
                state_like(state, "acc_delta", dense), detail::like_layout(grad, dense), s);
    });
  });
  return loss;
}

}  // namespace athanor::optim
