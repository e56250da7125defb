#include "athanor/optim/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace athanor::optim {

LRScheduler::LRScheduler(Optimizer& optimizer) : optimizer_(optimizer) {
  for (auto& g : optimizer_.param_groups()) {
    // Of several schedules the first one sees the rate that the program set.
    if (!g.initial_lr()) g.set_initial_lr(g.options().get_lr());
    base_lrs_.push_back(*g.initial_lr());
  }
}

void LRScheduler::step() {
  ++step_count_;
  set_lrs(get_lrs());
}

void LRScheduler::begin() {
  step_count_ = 0;
  set_lrs(get_lrs());
}

void LRScheduler::restart() {
  step_count_ = 0;
  set_lrs(closed_form());
}

void LRScheduler::set_lrs(const std::vector<double>& lrs) {
  auto& groups = optimizer_.param_groups();
  ATHANOR_CHECK(lrs.size() == groups.size(), "LRScheduler: a schedule of ", lrs.size(), " groups got an optimizer of ",
                groups.size());
  for (std::size_t i = 0; i < lrs.size(); ++i) groups[i].options().set_lr(lrs[i]);
}

std::vector<double> LRScheduler::get_current_lrs() const {
  std::vector<double> lrs;
  for (const auto& g : optimizer_.param_groups()) lrs.push_back(g.options().get_lr());
  return lrs;
}

void LRScheduler::set_base_lrs(std::vector<double> lrs) {
  ATHANOR_CHECK_VALUE(lrs.size() == base_lrs_.size(), "LRScheduler: expected ", base_lrs_.size(),
                      " base learning rates, got ", lrs.size());
  base_lrs_ = std::move(lrs);
}

LRScheduler::StateDict LRScheduler::state_dict() const {
  StateDict state{{"step_count", static_cast<double>(step_count_)}};
  for (std::size_t i = 0; i < base_lrs_.size(); ++i) state["base_lr." + std::to_string(i)] = base_lrs_[i];
  return state;
}

void LRScheduler::load_state_dict(const StateDict& state) {
  std::vector<double> lrs;
  for (std::size_t i = 0; i < base_lrs_.size(); ++i)
    lrs.push_back(detail::state_entry(state, "base_lr." + std::to_string(i)));
  const double steps = detail::state_entry(state, "step_count");
  ATHANOR_CHECK_VALUE(steps >= 0 && steps <= std::numeric_limits<unsigned>::max() && steps == std::floor(steps),
                      "LRScheduler: step_count is ", steps, ", expected a count");
  base_lrs_ = std::move(lrs);
  step_count_ = static_cast<unsigned>(steps);
}

namespace detail {

double state_entry(const LRScheduler::StateDict& state, const std::string& name) {
  const auto it = state.find(name);
  ATHANOR_CHECK_VALUE(it != state.end(), "LRScheduler: the state has no entry '", name,
                      "'; is it of another kind of schedule?");
  return it->second;
}

std::vector<double> per_group(const char* what, const Optimizer& optimizer, std::vector<double> values) {
  const std::size_t groups = optimizer.param_groups().size();
  if (values.size() == 1) values.resize(groups, values[0]);
  ATHANOR_CHECK_VALUE(values.size() == groups, what, ": expected one value or ", groups, ", one per group, got ",
                      values.size());
  return values;
}

namespace {

template <class F>
std::vector<double> mapped(std::vector<double> values, F&& f) {
  for (double& v : values) v = f(v);
  return values;
}

template <class Function>
std::vector<Function> function_per_group(const char* name, const Optimizer& optimizer,
                                         std::vector<Function> functions) {
  const std::size_t groups = optimizer.param_groups().size();
  if (functions.size() == 1) functions.resize(groups, functions[0]);
  ATHANOR_CHECK_VALUE(functions.size() == groups, name, ": expected ", groups, " functions, got ", functions.size());
  for (const auto& f : functions) ATHANOR_CHECK_VALUE(f, name, ": got an empty function");
  return functions;
}

}  // namespace
}  // namespace detail

using detail::mapped;

StepLR::StepLR(Optimizer& optimizer, unsigned step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  ATHANOR_CHECK_VALUE(step_size > 0, "StepLR: step_size must be positive");
}

std::vector<double> StepLR::get_lrs() {
  const bool now = step_count_ > 0 && step_count_ % step_size_ == 0;
  return mapped(get_current_lrs(), [&](double lr) { return now ? lr * gamma_ : lr; });
}

std::vector<double> StepLR::closed_form() {
  return mapped(base_lrs_, [&](double lr) { return lr * std::pow(gamma_, step_count_ / step_size_); });
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<unsigned> milestones, double gamma)
    : LRScheduler(optimizer), milestones_(std::move(milestones)), gamma_(gamma) {
  std::sort(milestones_.begin(), milestones_.end());
  begin();
}

std::vector<double> MultiStepLR::get_lrs() {
  const auto [from, to] = std::equal_range(milestones_.begin(), milestones_.end(), step_count_);
  const double factor = std::pow(gamma_, static_cast<double>(to - from));
  return mapped(get_current_lrs(), [&](double lr) { return lr * factor; });
}

std::vector<double> MultiStepLR::closed_form() {
  const auto passed = std::upper_bound(milestones_.begin(), milestones_.end(), step_count_) - milestones_.begin();
  return mapped(base_lrs_, [&](double lr) { return lr * std::pow(gamma_, static_cast<double>(passed)); });
}

ConstantLR::ConstantLR(Optimizer& optimizer, double factor, unsigned total_iters)
    : LRScheduler(optimizer), factor_(factor), total_iters_(total_iters) {
  ATHANOR_CHECK_VALUE(factor > 0 && factor <= 1, "ConstantLR: expected a factor in (0, 1], got ", factor);
  begin();
}

std::vector<double> ConstantLR::get_lrs() {
  const double factor = step_count_ == 0 ? factor_ : step_count_ == total_iters_ ? 1.0 / factor_ : 1.0;
  return mapped(get_current_lrs(), [&](double lr) { return lr * factor; });
}

std::vector<double> ConstantLR::closed_form() {
  const double factor = step_count_ >= total_iters_ ? 1.0 : factor_;
  return mapped(base_lrs_, [&](double lr) { return lr * factor; });
}

LinearLR::LinearLR(Optimizer& optimizer, double start_factor, double end_factor, unsigned total_iters)
    : LRScheduler(optimizer), start_(start_factor), end_(end_factor), total_iters_(total_iters) {
  ATHANOR_CHECK_VALUE(start_ > 0 && start_ <= 1, "LinearLR: expected a start_factor in (0, 1], got ", start_);
  ATHANOR_CHECK_VALUE(end_ >= 0 && end_ <= 1, "LinearLR: expected an end_factor in [0, 1], got ", end_);
  begin();
}

std::vector<double> LinearLR::get_lrs() {
  double factor = 1;
  if (step_count_ == 0)
    factor = start_;
  else if (step_count_ <= total_iters_)
    factor = 1.0 + (end_ - start_) / (total_iters_ * start_ + (step_count_ - 1.0) * (end_ - start_));
  return mapped(get_current_lrs(), [&](double lr) { return lr * factor; });
}

std::vector<double> LinearLR::closed_form() {
  const double part = total_iters_ == 0 ? 1.0 : static_cast<double>(std::min(total_iters_, step_count_)) / total_iters_;
  return mapped(base_lrs_, [&](double lr) { return lr * (start_ + (end_ - start_) * part); });
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma) : LRScheduler(optimizer), gamma_(gamma) {}

std::vector<double> ExponentialLR::get_lrs() {
  return mapped(get_current_lrs(), [&](double lr) { return step_count_ == 0 ? lr : lr * gamma_; });
}

std::vector<double> ExponentialLR::closed_form() {
  return mapped(base_lrs_, [&](double lr) { return lr * std::pow(gamma_, step_count_); });
}

PolynomialLR::PolynomialLR(Optimizer& optimizer, unsigned total_iters, double power)
    : LRScheduler(optimizer), total_iters_(total_iters), power_(power) {
  ATHANOR_CHECK_VALUE(total_iters > 0, "PolynomialLR: total_iters must be positive");
}

std::vector<double> PolynomialLR::get_lrs() {
  if (step_count_ == 0 || step_count_ > total_iters_) return get_current_lrs();
  const double total = total_iters_, t = step_count_;
  const double factor = std::pow((1.0 - t / total) / (1.0 - (t - 1) / total), power_);
  return mapped(get_current_lrs(), [&](double lr) { return lr * factor; });
}

std::vector<double> PolynomialLR::closed_form() {
  const double left = 1.0 - static_cast<double>(std::min(total_iters_, step_count_)) / total_iters_;
  return mapped(base_lrs_, [&](double lr) { return lr * std::pow(left, power_); });
}

LambdaLR::LambdaLR(Optimizer& optimizer, std::vector<Function> functions)
    : LRScheduler(optimizer), functions_(detail::function_per_group("LambdaLR", optimizer, std::move(functions))) {
  begin();
}

std::vector<double> LambdaLR::get_lrs() {
  std::vector<double> lrs = base_lrs_;
  for (std::size_t i = 0; i < lrs.size(); ++i) lrs[i] *= functions_[i](step_count_);
  return lrs;
}

MultiplicativeLR::MultiplicativeLR(Optimizer& optimizer, std::vector<Function> functions)
    : LRScheduler(optimizer),
      functions_(detail::function_per_group("MultiplicativeLR", optimizer, std::move(functions))) {}

std::vector<double> MultiplicativeLR::get_lrs() {
  std::vector<double> lrs = get_current_lrs();
  if (step_count_ > 0)
    for (std::size_t i = 0; i < lrs.size(); ++i) lrs[i] *= functions_[i](step_count_);
  return lrs;
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, unsigned t_max, double eta_min)
    : LRScheduler(optimizer), t_max_(t_max), eta_min_(eta_min) {
  ATHANOR_CHECK_VALUE(t_max > 0, "CosineAnnealingLR: t_max must be positive");
}

std::vector<double> CosineAnnealingLR::get_lrs() {
  auto lrs = get_current_lrs();
  if (step_count_ == 0) return lrs;
  const double pi = std::numbers::pi, t = step_count_, period = t_max_;
  for (std::size_t i = 0; i < lrs.size(); ++i) {
    if ((static_cast<long>(step_count_) - 1 - static_cast<long>(t_max_)) % (2L * t_max_) == 0)
      lrs[i] += (base_lrs_[i] - eta_min_) * (1 - std::cos(pi / period)) / 2;
    else
      lrs[i] = (1 + std::cos(pi * t / period)) / (1 + std::cos(pi * (t - 1) / period)) * (lrs[i] - eta_min_) + eta_min_;
  }
  return lrs;
}

std::vector<double> CosineAnnealingLR::closed_form() {
  const double swing = (1 + std::cos(std::numbers::pi * step_count_ / t_max_)) / 2;
  return mapped(base_lrs_, [&](double lr) { return eta_min_ + (lr - eta_min_) * swing; });
}

}  // namespace athanor::optim
