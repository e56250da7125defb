#include "athanor/optim/optimizer.h"

#include <typeinfo>

#include "athanor/ops/hidden.h"

namespace athanor::optim {

Optimizer::Optimizer(std::vector<OptimizerParamGroup> groups, std::unique_ptr<OptimizerOptions> defaults)
    : defaults_(std::move(defaults)) {
  ATHANOR_CHECK_VALUE(!groups.empty(), "optimizer got an empty parameter list");
  for (auto& g : groups) add_param_group(std::move(g));
}

Optimizer::Optimizer(std::vector<Tensor> params, std::unique_ptr<OptimizerOptions> defaults)
    : Optimizer(detail::one_group(std::move(params)), std::move(defaults)) {}

namespace {

/// Options of two names that are one pair to the user, who sets both or none.
constexpr const char* kPairs[][2] = {{"beta1", "beta2"}, {"eta_minus", "eta_plus"}, {"step_size_min", "step_size_max"}};

/// Values of `given` as they were set; those that were not, from `defaults`.
void inherit(OptimizerOptions& given, const OptimizerOptions& defaults) {
  const auto initial = given.initial();
  if (!initial || typeid(given) != typeid(defaults)) return;
  const auto own = given.values(), untouched = initial->values(), inherited = defaults.values();
  const auto was_set = [&](const std::string& name) { return own.at(name) != untouched.at(name); };
  auto values = own;
  for (auto& [name, value] : values) {
    bool keep = was_set(name);
    for (const auto& [first, second] : kPairs)
      if (name == first || name == second) keep = was_set(first) || was_set(second);
    if (!keep) value = inherited.at(name);
  }
  given.set_values(values);
}

}  // namespace

bool operator==(const OptimizerOptions& a, const OptimizerOptions& b) {
  return typeid(a) == typeid(b) && a.values() == b.values();
}

void Optimizer::add_param_group(OptimizerParamGroup group) {
  ATHANOR_CHECK_VALUE(!group.params().empty() || !param_groups_.empty(), "optimizer got an empty parameter list");
  for (const Tensor& p : group.params()) {
    ATHANOR_CHECK_VALUE(p.defined() && p.is_leaf(), "can't optimize a non-leaf Tensor");
    ATHANOR_CHECK_VALUE(p.is_floating_point(), "optimizer: expected floating parameters, got ", p);
    for (const auto& other : param_groups_)
      for (const Tensor& q : other.params())
        ATHANOR_CHECK_VALUE(!p.is_same(q), "some parameters appear in more than one parameter group");
  }
  if (!group.has_options())
    group.set_options(defaults_->clone());
  else
    inherit(group.options(), *defaults_);
  param_groups_.push_back(std::move(group));
}

void Optimizer::zero_grad(bool set_to_none) {
  for (auto& group : param_groups_)
    for (Tensor& p : group.params()) {
      Tensor& g = p.mutable_grad();
      if (!g.defined()) continue;
      if (set_to_none) {
        g.reset();
      } else {
        g.detach_();
        g.zero_();
      }
    }
}

std::vector<Tensor> Optimizer::parameters() const {
  std::vector<Tensor> all;
  for (const auto& group : param_groups_) all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

void Optimizer::add_parameters(const std::vector<Tensor>& parameters) {
  if (param_groups_.empty()) return add_param_group(OptimizerParamGroup(parameters));
  add_param_group(OptimizerParamGroup(parameters));  // checks them
  param_groups_.pop_back();
  auto& first = param_groups_.front().params();
  first.insert(first.end(), parameters.begin(), parameters.end());
}

std::size_t Optimizer::size() const {
  std::size_t n = 0;
  for (const auto& g : param_groups_) n += g.params().size();
  return n;
}

Tensor Optimizer::run_closure(const LossClosure& closure) {
  if (!closure) return {};
  const AutoGradMode on(true);
  return closure();
}

std::unique_ptr<OptimizerParamState> Optimizer::make_state() const { return std::make_unique<OptimizerParamState>(); }

OptimizerParamState& Optimizer::state_of(const Tensor& p) {
  auto& state = state_[p.impl()];
  if (!state) state = make_state();
  return *state;
}

bool Optimizer::state_fits(const Tensor& state, const Tensor& p) const {
  return state.dim() == 0 || state.sizes() == p.sizes();
}

OptimizerStateDict Optimizer::state_dict() const {
  OptimizerStateDict dict;
  for (const auto& group : param_groups_) {
    dict.groups.push_back(group.options().values());
    if (group.initial_lr()) dict.groups.back()["initial_lr"] = *group.initial_lr();
    for (const Tensor& p : group.params()) {
      const auto it = state_.find(p.impl());
      dict.state.push_back(it == state_.end() ? ParamState{} : static_cast<const ParamState&>(*it->second));
      std::erase_if(dict.state.back().tensors, [](const auto& entry) { return !entry.second.defined(); });
    }
  }
  return dict;
}

void Optimizer::load_state_dict(const OptimizerStateDict& dict) {
  ATHANOR_CHECK_VALUE(dict.groups.size() == param_groups_.size(), "loaded state dict has ", dict.groups.size(),
                      " parameter groups, the optimizer has ", param_groups_.size());
  ATHANOR_CHECK_VALUE(dict.state.size() == size(), "loaded state dict has state for ", dict.state.size(),
                      " parameters, the optimizer has ", size());
  std::size_t i = 0;
  for (const auto& group : param_groups_)
    for (const Tensor& p : group.params())
      for (const auto& [name, t] : dict.state[i++].tensors)
        ATHANOR_CHECK_VALUE(!t.defined() || state_fits(t, p), "loaded state '", name, "' of parameter ", i - 1,
                            " has shape ", t.sizes(), ", expected ", p.sizes());
  const NoGradGuard off;
  i = 0;
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    param_groups_[g].options().set_values(dict.groups[g]);
    const auto initial = dict.groups[g].find("initial_lr");
    if (initial != dict.groups[g].end()) param_groups_[g].set_initial_lr(initial->second);
    for (Tensor& p : param_groups_[g].params()) {
      ParamState copy = dict.state[i++];
      for (auto& [name, t] : copy.tensors)
        if (t.defined()) t = t.to(p.options().dtype(t.dtype()), false, true);
      auto& state = state_of(p);
      state.tensors = std::move(copy.tensors), state.numbers = std::move(copy.numbers);
    }
  }
}

namespace detail {

bool same_dense_layout(const Tensor& p, std::initializer_list<const Tensor*> others) {
  if (!p.is_non_overlapping_and_dense()) return false;
  for (const Tensor* t : others)
    if (t->defined() && (t->strides() != p.strides() || t->sizes() != p.sizes() || t->dtype() != p.dtype()))
      return false;
  return true;
}

Tensor like_layout(const Tensor& g, const Tensor& p) {
  if (same_dense_layout(p, {&g})) return g;
  Tensor out = empty_strided(p.sizes(), p.strides(), p.options());
  out.copy_(g);
  return out;
}

athanor::detail::Stored step_gradient(const Tensor& grad, const Tensor& p) {
  p.storage()->data();  // it may be a gradient itself, and others then read what this step makes of it
  return athanor::detail::Stored(like_layout(grad, p), athanor::detail::HiddenForm::OuterProduct);
}

std::vector<OptimizerParamGroup> one_group(std::vector<Tensor> params) {
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::move(params));
  return groups;
}

}  // namespace detail
}  // namespace athanor::optim
