#include "athanor/optim/param_state.h"

namespace athanor::optim {

const Tensor& OptimizerParamState::tensor_or_none(const char* name) const {
  static const Tensor& none = *new Tensor;
  const auto found = tensors.find(name);
  return found == tensors.end() ? none : found->second;
}

double OptimizerParamState::number_or_zero(const char* name) const {
  const auto found = numbers.find(name);
  return found == numbers.end() ? 0 : found->second;
}

std::deque<Tensor> OptimizerParamState::numbered(const char* name) const {
  std::deque<Tensor> out;
  for (auto at = tensors.find(name + std::string(".0")); at != tensors.end();
       at = tensors.find(name + std::string(".") + std::to_string(out.size())))
    out.push_back(at->second);
  return out;
}

LBFGSParamState& LBFGSParamState::set_numbered(const char* name, const std::deque<Tensor>& v) {
  const std::string prefix = name + std::string(".");
  std::erase_if(tensors, [&](const auto& entry) { return entry.first.starts_with(prefix); });
  for (std::size_t i = 0; i < v.size(); ++i) tensors[prefix + std::to_string(i)] = v[i];
  return *this;
}

std::deque<Tensor> LBFGSParamState::ro() const {
  std::deque<Tensor> out;
  for (auto at = numbers.find("ro.0"); at != numbers.end(); at = numbers.find("ro." + std::to_string(out.size())))
    out.push_back(scalar_tensor(at->second, TensorOptions(d().defined() ? d().dtype() : DType::Double)));
  return out;
}

LBFGSParamState& LBFGSParamState::ro(const std::deque<Tensor>& v) {
  std::erase_if(numbers, [](const auto& entry) { return entry.first.starts_with("ro."); });
  for (std::size_t i = 0; i < v.size(); ++i) numbers["ro." + std::to_string(i)] = v[i].item<double>();
  numbers["history"] = static_cast<double>(v.size());
  return *this;
}

std::optional<std::vector<Tensor>> LBFGSParamState::al() const {
  const std::deque<Tensor> kept = numbered("al");
  if (kept.empty()) return std::nullopt;
  return std::vector<Tensor>(kept.begin(), kept.end());
}

LBFGSParamState& LBFGSParamState::al(const std::optional<std::vector<Tensor>>& v) {
  return set_numbered("al", v ? std::deque<Tensor>(v->begin(), v->end()) : std::deque<Tensor>());
}

bool operator==(const OptimizerParamState& a, const OptimizerParamState& b) {
  const auto covers = [](const OptimizerParamState& one, const OptimizerParamState& other) {
    for (const auto& [name, t] : one.tensors) {
      const auto found = other.tensors.find(name);
      const bool there = found != other.tensors.end() && found->second.defined();
      if (t.defined() != there || (there && !equal(t, found->second))) return false;
    }
    return true;
  };
  return a.numbers == b.numbers && covers(a, b) && covers(b, a);
}

}  // namespace athanor::optim
