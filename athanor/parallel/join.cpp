#include "athanor/parallel/join.h"

#include "athanor/ops/factory.h"
#include "athanor/parallel/agreement.h"

namespace athanor::nn::parallel {

Join::Join(const std::vector<Joinable*>& joinables, const JoinOptions& options)
    : joinables_(joinables), options_(options) {
  ATHANOR_CHECK_VALUE(!joinables.empty(), "Join: expected at least one joinable");
  group_ = joinables[0]->join_process_group();
  for (Joinable* j : joinables) {
    ATHANOR_CHECK_VALUE(j->join_process_group() == group_, "Join: the joinables belong to different process groups, '",
                        group_->name(), "' and '", j->join_process_group()->name(), "'; they should be of one");
    ATHANOR_CHECK(!j->join_, "Join: a joinable is in another join already");
  }
  for (Joinable* j : joinables_) j->join_ = this;
}

Join::~Join() {
  for (Joinable* j : joinables_) j->join_ = nullptr;
}

// Every rank says whether it goes on.
void Join::count(bool active) {
  const NoGradGuard off;
  Tensor flags = zeros({group_->size()}, kByte);
  flags.data_ptr<std::uint8_t>()[group_->rank()] = active;
  group_->all_reduce(flags, distributed::ReduceOp::SUM, false, call_for("Join: which ranks have inputs left"));
  active_.clear();
  for (int r = 0; r < group_->size(); ++r)
    if (flags.data_ptr<std::uint8_t>()[r] != 0) active_.push_back(r);
  if (!active_.empty()) last_joiner_ = active_.back();
  if (!options_.throw_on_early_termination || static_cast<int>(active_.size()) == group_->size() || active_.empty())
    return;
  std::string ended;
  for (int r = 0, i = 0; r < group_->size(); ++r) {
    if (i < static_cast<int>(active_.size()) && active_[static_cast<std::size_t>(i)] == r)
      ++i;
    else
      ended += athanor::detail::str(ended.empty() ? "" : ", ", r);
  }
  ATHANOR_THROW(Error, "Join: rank ", ended,
                " ran out of inputs before the others, and throw_on_early_termination is "
                "set");
}

void Join::notify(Joinable& joinable) {
  if (Join* join = joinable.join_; join && &joinable == join->joinables_[0]) join->count(true);
}

std::vector<int> Join::active_ranks(const Joinable& joinable) {
  return joinable.join_ ? joinable.join_->active_ : std::vector<int>();
}

int Join::divisor(const Joinable& joinable) {
  const Join* join = joinable.join_;
  return !join || join->options_.divide_by_initial_world_size ? 0 : static_cast<int>(join->active_.size());
}

void Join::answer() {
  std::vector<std::unique_ptr<JoinHook>> hooks;
  for (Joinable* j : joinables_) hooks.push_back(j->join_hook(options_));
  for (count(false); !active_.empty(); count(false))
    for (const auto& hook : hooks) hook->main_hook();
  for (const auto& hook : hooks) hook->post_hook(last_joiner_);
}

void Join::run(const std::vector<Joinable*>& joinables, const std::function<void()>& body, const JoinOptions& options) {
  if (!options.enable) return body();
  Join join(joinables, options);
  body();
  join.answer();
}

}  // namespace athanor::nn::parallel
