#include "athanor/optim/adaptive.h"

#include <cmath>

#include "athanor/optim/step_batch.h"

namespace athanor::optim {

template class OptionsOf<AdagradOptions>;
template class OptionsOf<RMSpropOptions>;
template class OptionsOf<AdamaxOptions>;
template class OptionsOf<NAdamOptions>;
template class OptionsOf<RAdamOptions>;
template class OptionsOf<ASGDOptions>;
template class OptionsOf<RpropOptions>;

Adagrad::Adagrad(std::vector<OptimizerParamGroup> groups, AdagradOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<AdagradOptions>(defaults)) {
  detail::check_options(defaults.lr(), defaults.eps(), defaults.weight_decay());
  ATHANOR_CHECK_VALUE(defaults.lr_decay() >= 0, "Invalid lr_decay value: ", defaults.lr_decay());
  ATHANOR_CHECK_VALUE(defaults.initial_accumulator_value() >= 0,
                      "Invalid initial_accumulator_value value: ", defaults.initial_accumulator_value());
}

Tensor Adagrad::step(LossClosure closure) {
  Tensor loss = run_closure(closure);
  StepBatch<AdagradStep> batch(adagrad_step_kernel);
  for_each_parameter<AdagradOptions>([&](Tensor& p, const Tensor& grad, ParamState& state, const AdagradOptions& o) {
    const double t = ++state.numbers["step"];
    const AdagradStep s{o.lr() / (1 + (t - 1) * o.lr_decay()), o.weight_decay(), o.eps(), o.maximize()};
    batch.add(p, grad, state, {"sum"}, s, o.initial_accumulator_value());
  });
  const NoGradGuard off;
  batch.run();
  return loss;
}

RMSprop::RMSprop(std::vector<OptimizerParamGroup> groups, RMSpropOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<RMSpropOptions>(defaults)) {
  detail::check_options(defaults.lr(), defaults.eps(), defaults.weight_decay());
  ATHANOR_CHECK_VALUE(defaults.momentum() >= 0, "Invalid momentum value: ", defaults.momentum());
  ATHANOR_CHECK_VALUE(defaults.alpha() >= 0, "Invalid alpha value: ", defaults.alpha());
}

Tensor RMSprop::step(LossClosure closure) {
  Tensor loss = run_closure(closure);
  StepBatch<RmspropStep> batch(rmsprop_step_kernel);
  for_each_parameter<RMSpropOptions>([&](Tensor& p, const Tensor& grad, ParamState& state, const RMSpropOptions& o) {
    ++state.numbers["step"];
    const RmspropStep s{o.lr(), o.alpha(), o.eps(), o.weight_decay(), o.momentum(), o.centered(), o.maximize()};
    if (o.centered() && o.momentum() > 0)
      batch.add(p, grad, state, {"square_avg", "grad_avg", "momentum_buffer"}, s);
    else if (o.centered())
      batch.add(p, grad, state, {"square_avg", "grad_avg"}, s);
    else if (o.momentum() > 0)
      batch.add(p, grad, state, {"square_avg", "momentum_buffer"}, s);
    else
      batch.add(p, grad, state, {"square_avg"}, s);
  });
  const NoGradGuard off;
  batch.run();
  return loss;
}

Adamax::Adamax(std::vector<OptimizerParamGroup> groups, AdamaxOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<AdamaxOptions>(defaults)) {
  detail::check_options(defaults.lr(), defaults.eps(), defaults.weight_decay());
  detail::check_betas(std::get<0>(defaults.betas()), std::get<1>(defaults.betas()));
}

Tensor Adamax::step(LossClosure closure) {
  Tensor loss = run_closure(closure);
  StepBatch<AdamaxStep> batch(adamax_step_kernel);
  for_each_parameter<AdamaxOptions>([&](Tensor& p, const Tensor& grad, ParamState& state, const AdamaxOptions& o) {
    const double t = ++state.numbers["step"];
    const auto [beta1, beta2] = o.betas();
    const AdamaxStep s{o.lr() / (1 - std::pow(beta1, t)), beta1, beta2, o.eps(), o.weight_decay(), o.maximize()};
    batch.add(p, grad, state, {"exp_avg", "exp_inf"}, s);
  });
  const NoGradGuard off;
  batch.run();
  return loss;
}

NAdam::NAdam(std::vector<OptimizerParamGroup> groups, NAdamOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<NAdamOptions>(defaults)) {
  detail::check_options(defaults.lr(), defaults.eps(), defaults.weight_decay());
  detail::check_betas(std::get<0>(defaults.betas()), std::get<1>(defaults.betas()));
  ATHANOR_CHECK_VALUE(defaults.momentum_decay() >= 0, "Invalid momentum_decay value: ", defaults.momentum_decay());
}

Tensor NAdam::step(LossClosure closure) {
  Tensor loss = run_closure(closure);
  StepBatch<AdamRelativeStep> batch(adam_relative_step_kernel);
  for_each_parameter<NAdamOptions>([&](Tensor& p, const Tensor& grad, ParamState& state, const NAdamOptions& o) {
    const double t = ++state.numbers["step"];
    const auto [beta1, beta2] = o.betas();
    // The schedule of momenta and their product, in Dozat's notation.
    const double mu = beta1 * (1 - 0.5 * std::pow(0.96, t * o.momentum_decay()));
    const double next = beta1 * (1 - 0.5 * std::pow(0.96, (t + 1) * o.momentum_decay()));
    double& product = state.numbers.try_emplace("mu_product", 1.0).first->second;
    product *= mu;
    AdamRelativeStep s{};
    s.beta1 = beta1, s.beta2 = beta2, s.eps = o.eps(), s.weight_decay = o.weight_decay();
    s.average_rate = o.lr() * next / (1 - product * next);
    s.gradient_rate = o.lr() * (1 - mu) / (1 - product);
    s.bias_correction2 = 1 - std::pow(beta2, t);
    s.decoupled = o.decoupled_weight_decay(), s.maximize = o.maximize(), s.adaptive = true;
    s.shrink = s.decoupled ? 1 - o.lr() * o.weight_decay() : 1;
    batch.add(p, grad, state, {"exp_avg", "exp_avg_sq"}, s);
  });
  const NoGradGuard off;
  batch.run();
  return loss;
}

RAdam::RAdam(std::vector<OptimizerParamGroup> groups, RAdamOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<RAdamOptions>(defaults)) {
  detail::check_options(defaults.lr(), defaults.eps(), defaults.weight_decay());
  detail::check_betas(std::get<0>(defaults.betas()), std::get<1>(defaults.betas()));
}

Tensor RAdam::step(LossClosure closure) {
  Tensor loss = run_closure(closure);
  StepBatch<AdamRelativeStep> batch(adam_relative_step_kernel);
  for_each_parameter<RAdamOptions>([&](Tensor& p, const Tensor& grad, ParamState& state, const RAdamOptions& o) {
    const double t = ++state.numbers["step"];
    const auto [beta1, beta2] = o.betas();
    const double correction1 = 1 - std::pow(beta1, t), correction2 = 1 - std::pow(beta2, t);
    // Length of the simple moving average that the exponential one approximates.
    const double longest = 2 / (1 - beta2) - 1;
    const double length = longest - 2 * t * std::pow(beta2, t) / correction2;
    AdamRelativeStep s{};
    s.beta1 = beta1, s.beta2 = beta2, s.eps = o.eps(), s.weight_decay = o.weight_decay();
    s.bias_correction2 = 1;  // eps is added to the uncorrected root; the correction is part of the rate
    s.adaptive = length > 5;
    s.average_rate = o.lr() / correction1;
    if (s.adaptive)
      s.average_rate *=
          std::sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length) * correction2);
    s.decoupled = o.decoupled_weight_decay(), s.maximize = o.maximize();
    s.shrink = s.decoupled ? 1 - o.lr() * o.weight_decay() : 1;
    batch.add(p, grad, state, {"exp_avg", "exp_avg_sq"}, s);
  });
  const NoGradGuard off;
  batch.run();
  return loss;
}

ASGD::ASGD(std::vector<OptimizerParamGroup> groups, ASGDOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<ASGDOptions>(defaults)) {
  detail::check_options(defaults.lr(), 0, defaults.weight_decay());
  ATHANOR_CHECK_VALUE(defaults.lambd() >= 0, "Invalid lambd value: ", defaults.lambd());
  ATHANOR_CHECK_VALUE(defaults.alpha() >= 0, "Invalid alpha value: ", defaults.alpha());
}

Tensor ASGD::step(LossClosure closure) {
  Tensor loss = run_closure(closure);
  StepBatch<AsgdStep> batch(asgd_step_kernel);
  for_each_parameter<ASGDOptions>([&](Tensor& p, const Tensor& grad, ParamState& state, const ASGDOptions& o) {
    const double t = ++state.numbers["step"];
    double& eta = state.numbers.try_emplace("eta", o.lr()).first->second;
    double& mu = state.numbers.try_emplace("mu", 1.0).first->second;
    batch.add(p, grad, state, {"ax"}, {eta, o.lambd(), mu, o.weight_decay(), o.maximize()});
    eta = o.lr() / std::pow(1 + o.lambd() * o.lr() * t, o.alpha());
    mu = 1 / std::max(1.0, t - o.t0());
  });
  const NoGradGuard off;
  batch.run();
  return loss;
}

Rprop::Rprop(std::vector<OptimizerParamGroup> groups, RpropOptions defaults)
    : Optimizer(std::move(groups), std::make_unique<RpropOptions>(defaults)) {
  detail::check_options(defaults.lr(), 0, 0);
  const auto [minus, plus] = defaults.etas();
  ATHANOR_CHECK_VALUE(minus > 0 && minus < 1 && plus > 1, "Invalid eta values: ", minus, ", ", plus);
}

Tensor Rprop::step(LossClosure closure) {
  Tensor loss = run_closure(closure);
  StepBatch<RpropStep> batch(rprop_step_kernel);
  for_each_parameter<RpropOptions>([&](Tensor& p, const Tensor& grad, ParamState& state, const RpropOptions& o) {
    ++state.numbers["step"];
    const auto [minus, plus] = o.etas();
    const auto [smallest, largest] = o.step_sizes();
    if (Tensor& sizes = state.tensors["step_size"]; !sizes.defined()) sizes = full_like(p, o.lr());
    batch.add(p, grad, state, {"prev", "step_size"}, {minus, plus, smallest, largest, o.maximize()});
  });
  const NoGradGuard off;
  batch.run();
  return loss;
}

}  // namespace athanor::optim
