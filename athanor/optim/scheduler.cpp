#include "athanor/optim/scheduler.h"

#include <cmath>
#include <numbers>

namespace athanor::optim {

LRScheduler::LRScheduler(Optimizer& optimizer) : optimizer_(optimizer), base_lrs_(get_current_lrs()) {}

void LRScheduler::step() {
  ++step_count_;
  const auto lrs = get_lrs();
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

StepLR::StepLR(Optimizer& optimizer, unsigned step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  ATHANOR_CHECK_VALUE(step_size > 0, "StepLR: step_size must be positive");
}

std::vector<double> StepLR::get_lrs() {
  auto lrs = get_current_lrs();
  if (step_count_ % step_size_ == 0)
    for (double& lr : lrs) lr *= gamma_;
  return lrs;
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, unsigned t_max, double eta_min)
    : LRScheduler(optimizer), t_max_(t_max), eta_min_(eta_min) {
  ATHANOR_CHECK_VALUE(t_max > 0, "CosineAnnealingLR: t_max must be positive");
}

std::vector<double> CosineAnnealingLR::get_lrs() {
  auto lrs = get_current_lrs();
  const double pi = std::numbers::pi, t = step_count_, period = t_max_;
  for (std::size_t i = 0; i < lrs.size(); ++i) {
    if ((static_cast<long>(step_count_) - 1 - static_cast<long>(t_max_)) % (2L * t_max_) == 0)
      lrs[i] += (base_lrs_[i] - eta_min_) * (1 - std::cos(pi / period)) / 2;
    else
      lrs[i] = (1 + std::cos(pi * t / period)) / (1 + std::cos(pi * (t - 1) / period)) * (lrs[i] - eta_min_) + eta_min_;
  }
  return lrs;
}

}  // namespace athanor::optim
