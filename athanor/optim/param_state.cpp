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
