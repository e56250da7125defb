#include "athanor/optim/algorithms.h"

#include <cmath>

#include "athanor/optim/step_batch.h"

namespace athanor::optim {

template class OptionsOf<SGDOptions>;
template class OptionsOf<AdamOptions>;
template class OptionsOf<AdadeltaOptions>;

SGD::SGD(std::vector<OptimizerParamGroup> groups, SGDOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<SGDOptions>(defaults)) {
  detail::check_options(defaults.lr(), 0, defaults.weight_decay());
  ATHANOR_CHECK_VALUE(defaults.momentum() >= 0, "Invalid momentum value: ", defaults.momentum());
  ATHANOR_CHECK_VALUE(!defaults.nesterov() || (defaults.momentum() > 0 && defaults.dampening() == 0),
                      "Nesterov momentum requires a momentum and zero dampening");
}

Tensor SGD::step(LossClosure closure) {
  Tensor loss = run_closure(closure);
  StepBatch<SgdStep> plain(sgd_step_kernel), moving(sgd_step_kernel);
  for_each_parameter<SGDOptions>([&](Tensor& p, const Tensor& grad, ParamState& state, const SGDOptions& o) {
    SgdStep s{o.lr(), o.momentum(), o.dampening(), o.weight_decay(), o.nesterov(), o.maximize(), false};
    if (o.momentum() == 0) {
      plain.add(p, grad, state, {}, s);
    } else {
      s.first = !state.tensors["momentum_buffer"].defined();
      moving.add(p, grad, state, {"momentum_buffer"}, s);
    }
  });
  const NoGradGuard off;
  plain.run();
  moving.run();
  return loss;
}

std::unique_ptr<OptimizerParamState> SGD::make_state() const { return std::make_unique<SGDParamState>(); }

Adam::Adam(std::vector<OptimizerParamGroup> groups, AdamOptions defaults)
    : Adam(std::move(groups), std::make_unique<AdamOptions>(defaults), false) {}

Adam::Adam(std::vector<OptimizerParamGroup> groups, std::unique_ptr<AdamOptions> defaults, bool decoupled)
    : Optimizer(std::move(groups), std::move(defaults)), decoupled_(decoupled) {
  const auto& o = static_cast<const AdamOptions&>(*defaults_);
  detail::check_options(o.lr(), o.eps(), o.weight_decay());
  detail::check_betas(std::get<0>(o.betas()), std::get<1>(o.betas()));
}

std::unique_ptr<OptimizerParamState> Adam::make_state() const { return std::make_unique<AdamParamState>(); }

AdamW::AdamW(std::vector<OptimizerParamGroup> groups, AdamWOptions defaults)
    : Adam(std::move(groups), std::make_unique<AdamWOptions>(defaults), true) {}

std::unique_ptr<OptimizerParamState> AdamW::make_state() const { return std::make_unique<AdamWParamState>(); }

Tensor Adam::step(LossClosure closure) {
  Tensor loss = run_closure(closure);
  StepBatch<AdamStep> batch(adam_step_kernel);
  for_each_parameter<AdamOptions>([&](Tensor& p, const Tensor& grad, ParamState& state, const AdamOptions& o) {
    const double t = ++state.numbers["step"];
    const auto [beta1, beta2] = o.betas();
    const AdamStep s{
        o.lr(),      beta1,      beta2,       o.eps(), o.weight_decay(), 1 - std::pow(beta1, t), 1 - std::pow(beta2, t),
        o.amsgrad(), decoupled_, o.maximize()};
    if (o.amsgrad())
      batch.add(p, grad, state, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, s);
    else
      batch.add(p, grad, state, {"exp_avg", "exp_avg_sq"}, s);
  });
  const NoGradGuard off;
  batch.run();
  return loss;
}

Adadelta::Adadelta(std::vector<OptimizerParamGroup> groups, AdadeltaOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<AdadeltaOptions>(defaults)) {
  detail::check_options(defaults.lr(), defaults.eps(), defaults.weight_decay());
  ATHANOR_CHECK_VALUE(defaults.rho() >= 0 && defaults.rho() <= 1, "Invalid rho value: ", defaults.rho());
}

Tensor Adadelta::step(LossClosure closure) {
  Tensor loss = run_closure(closure);
  StepBatch<AdadeltaStep> batch(adadelta_step_kernel);
  for_each_parameter<AdadeltaOptions>([&](Tensor& p, const Tensor& grad, ParamState& state, const AdadeltaOptions& o) {
    const AdadeltaStep s{o.lr(), o.rho(), o.eps(), o.weight_decay(), o.maximize()};
    batch.add(p, grad, state, {"square_avg", "acc_delta"}, s);
  });
  const NoGradGuard off;
  batch.run();
  return loss;
}

}  // namespace athanor::optim
