#include "athanor/optim/schedule_compose.h"

#include <algorithm>
#include <cmath>

namespace athanor::optim {
namespace {

Optimizer& checked(const char* name, const std::vector<std::shared_ptr<LRScheduler>>& schedulers) {
  ATHANOR_CHECK_VALUE(!schedulers.empty(), name, ": expects at least one scheduler, got none");
  for (std::size_t i = 0; i < schedulers.size(); ++i) {
    ATHANOR_CHECK_VALUE(schedulers[i], name, ": scheduler ", i, " is null");
    ATHANOR_CHECK_VALUE(!dynamic_cast<ReduceLROnPlateau*>(schedulers[i].get()), name,
                        ": does not support ReduceLROnPlateau, whose step() needs a metric; got one at index ", i);
    ATHANOR_CHECK_VALUE(&schedulers[i]->optimizer() == &schedulers[0]->optimizer(), name,
                        ": expects all schedulers to belong to the same optimizer; the one at index ", i, " does not");
  }
  return schedulers[0]->optimizer();
}

void add_nested(LRScheduler::StateDict& out, const std::vector<std::shared_ptr<LRScheduler>>& schedulers) {
  for (std::size_t i = 0; i < schedulers.size(); ++i)
    for (const auto& [name, value] : schedulers[i]->state_dict()) out[std::to_string(i) + "." + name] = value;
}

void load_nested(const LRScheduler::StateDict& state, const std::vector<std::shared_ptr<LRScheduler>>& schedulers) {
  // All or nothing: what is loaded before one fails is taken back.
  std::vector<LRScheduler::StateDict> before;
  for (const auto& s : schedulers) before.push_back(s->state_dict());
  try {
    for (std::size_t i = 0; i < schedulers.size(); ++i) {
      const std::string prefix = std::to_string(i) + ".";
      LRScheduler::StateDict own;
      for (const auto& [name, value] : state)
        if (name.starts_with(prefix)) own[name.substr(prefix.size())] = value;
      schedulers[i]->load_state_dict(own);
    }
  } catch (...) {
    for (std::size_t i = 0; i < schedulers.size(); ++i) schedulers[i]->load_state_dict(before[i]);
    throw;
  }
}

}  // namespace

ChainedScheduler::ChainedScheduler(std::vector<std::shared_ptr<LRScheduler>> schedulers)
    : LRScheduler(checked("ChainedScheduler", schedulers)), schedulers_(std::move(schedulers)) {}

void ChainedScheduler::step() {
  ++step_count_;
  for (const auto& s : schedulers_) s->step();
}

void ChainedScheduler::begin() {
  step_count_ = 0;
  for (const auto& s : schedulers_) s->begin();
}

void ChainedScheduler::restart() {
  set_lrs(base_lrs_);
  begin();
}

LRScheduler::StateDict ChainedScheduler::state_dict() const {
  StateDict state = LRScheduler::state_dict();
  add_nested(state, schedulers_);
  return state;
}

void ChainedScheduler::load_state_dict(const StateDict& state) {
  load_nested(state, schedulers_);
  LRScheduler::load_state_dict(state);
}

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<std::shared_ptr<LRScheduler>> schedulers,
                           std::vector<unsigned> milestones)
    : LRScheduler(optimizer), schedulers_(std::move(schedulers)), milestones_(std::move(milestones)) {
  ATHANOR_CHECK_VALUE(&checked("SequentialLR", schedulers_) == &optimizer,
                      "SequentialLR: its schedulers belong to another optimizer");
  ATHANOR_CHECK_VALUE(milestones_.size() + 1 == schedulers_.size(), "SequentialLR: expects one milestone fewer than ",
                      "schedulers, got ", milestones_.size(), " milestones and ", schedulers_.size(), " schedulers");
  ATHANOR_CHECK_VALUE(std::is_sorted(milestones_.begin(), milestones_.end()), "SequentialLR: milestones must not fall");
  begin();
}

void SequentialLR::begin() {
  step_count_ = 0;
  // Making the schedules changed the rates: back to what the program set.
  auto& groups = optimizer_.param_groups();
  for (auto& g : groups)
    if (g.initial_lr()) g.options().set_lr(*g.initial_lr());
  const auto first = std::upper_bound(milestones_.begin(), milestones_.end(), 0U) - milestones_.begin();
  schedulers_[static_cast<std::size_t>(first)]->begin();
}

void SequentialLR::step() {
  ++step_count_;
  const auto i = static_cast<std::size_t>(std::upper_bound(milestones_.begin(), milestones_.end(), step_count_) -
                                          milestones_.begin());
  if (i > 0 && milestones_[i - 1] == step_count_)
    schedulers_[i]->restart();
  else
    schedulers_[i]->step();
}

LRScheduler::StateDict SequentialLR::state_dict() const {
  StateDict state = LRScheduler::state_dict();
  add_nested(state, schedulers_);
  return state;
}

void SequentialLR::load_state_dict(const StateDict& state) {
  load_nested(state, schedulers_);
  LRScheduler::load_state_dict(state);
}

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, SchedulerMode mode, double factor, int patience,
                                     double threshold, ThresholdMode threshold_mode, int cooldown,
                                     std::vector<double> min_lr, double eps)
    : LRScheduler(optimizer),
      mode_(mode),
      threshold_mode_(threshold_mode),
      factor_(factor),
      threshold_(threshold),
      eps_(eps),
      patience_(patience),
      cooldown_(cooldown),
      min_lrs_(detail::per_group("ReduceLROnPlateau: min_lr", optimizer, std::move(min_lr))),
      best_(mode == min ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity()) {
  ATHANOR_CHECK_VALUE(factor < 1, "ReduceLROnPlateau: factor should be < 1.0, got ", factor);
}

bool ReduceLROnPlateau::is_better(double metric) const {
  if (threshold_mode_ == rel)
    return mode_ == min ? metric < best_ * (1 - threshold_) : metric > best_ * (1 + threshold_);
  return mode_ == min ? metric < best_ - threshold_ : metric > best_ + threshold_;
}

void ReduceLROnPlateau::step(double metric) {
  ++step_count_;
  if (is_better(metric)) {
    best_ = metric;
    bad_epochs_ = 0;
  } else {
    ++bad_epochs_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    bad_epochs_ = 0;
  }
  if (bad_epochs_ <= patience_) return;
  std::vector<double> lrs = get_current_lrs();
  ATHANOR_CHECK_VALUE(lrs.size() == min_lrs_.size(), "ReduceLROnPlateau: the optimizer has ", lrs.size(),
                      " parameter groups, this schedule was made for ", min_lrs_.size());
  for (std::size_t i = 0; i < lrs.size(); ++i) {
    const double lower = std::max(lrs[i] * factor_, min_lrs_[i]);
    if (lrs[i] - lower > eps_) lrs[i] = lower;
  }
  set_lrs(lrs);
  cooldown_left_ = cooldown_;
  bad_epochs_ = 0;
}

void ReduceLROnPlateau::step() {
  ATHANOR_THROW(Error, "ReduceLROnPlateau: step() needs the metric; call step(metric)");
}

LRScheduler::StateDict ReduceLROnPlateau::state_dict() const {
  StateDict state = LRScheduler::state_dict();
  state["best"] = best_;
  state["num_bad_epochs"] = bad_epochs_;
  state["cooldown_counter"] = cooldown_left_;
  return state;
}

void ReduceLROnPlateau::load_state_dict(const StateDict& state) {
  const double best = detail::state_entry(state, "best"), bad = detail::state_entry(state, "num_bad_epochs"),
               left = detail::state_entry(state, "cooldown_counter");
  ATHANOR_CHECK_VALUE(bad >= 0 && bad < 1e9 && left >= 0 && left < 1e9, "ReduceLROnPlateau: num_bad_epochs is ", bad,
                      " and cooldown_counter ", left);
  LRScheduler::load_state_dict(state);
  best_ = best, bad_epochs_ = static_cast<int>(bad), cooldown_left_ = static_cast<int>(left);
}

}  // namespace athanor::optim
