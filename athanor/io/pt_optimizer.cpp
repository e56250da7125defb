#include "athanor/io/pt.h"
#include "athanor/optim/optimizer.h"

namespace athanor::io {

namespace {

// Options that are one number each here and a pair in Python.
struct PairName {
  const char* python;
  const char* first;
  const char* second;
};
constexpr PairName kPairs[] = {
    {"betas", "beta1", "beta2"}, {"etas", "eta_minus", "eta_plus"}, {"step_sizes", "step_size_min", "step_size_max"}};

double number_of(const IValue& v) { return v.isBool() ? static_cast<double>(v.toBool()) : v.toDouble(); }

bool is_number(const IValue& v) { return v.isBool() || v.isInt() || v.isDouble(); }

std::map<std::string, double> read_group(const GenericDict& group) {
  std::map<std::string, double> options;
  for (const auto& e : group) {
    if (!e.key().isString()) continue;
    const std::string& name = e.key().toStringRef();
    if (is_number(e.value())) options[name] = number_of(e.value());
    // A learning rate may be a tensor.
    if (e.value().isTensor() && e.value().toTensor().numel() == 1) options[name] = e.value().toTensor().item<double>();
    for (const PairName& pair : kPairs)
      if (name == pair.python && (e.value().isTuple() || e.value().isList()) && e.value().elements().size() == 2) {
        options[pair.first] = number_of(e.value()[0]);
        options[pair.second] = number_of(e.value()[1]);
      }
  }
  return options;
}

optim::ParamState read_state(const GenericDict& entries) {
  optim::ParamState state;
  for (const auto& e : entries) {
    if (!e.key().isString()) continue;
    const std::string& name = e.key().toStringRef();
    if (is_number(e.value()))
      state.numbers[name] = number_of(e.value());
    else if (e.value().isTensor() && name == "step" && e.value().toTensor().numel() == 1)
      state.numbers[name] = e.value().toTensor().item<double>();
    else if (e.value().isTensor())
      state.tensors[name] = e.value().toTensor();
  }
  return state;
}

}  // namespace

optim::OptimizerStateDict to_optimizer_state(const IValue& value) {
  const auto part = [&](const char* name) {
    const IValue* found = value.isGenericDict() ? value.toGenericDict().find(name) : nullptr;
    ATHANOR_CHECK_VALUE(found,
                        "to_optimizer_state: expected a dict with 'state' and 'param_groups', as Python's "
                        "optimizer.state_dict() gives it; there is no '",
                        name, "'");
    return *found;
  };
  const IValue groups = part("param_groups"), states = part("state");
  ATHANOR_CHECK_VALUE(groups.isList() && states.isGenericDict(), "to_optimizer_state: 'param_groups' is ",
                      groups.tagKind(), " and 'state' ", states.tagKind(), ", expected List and GenericDict");
  optim::OptimizerStateDict dict;
  for (const IValue& group : groups.toListRef()) {
    dict.groups.push_back(read_group(group.toGenericDict()));
    for (const IValue& number : group["params"].elements()) {
      const IValue* state = states.toGenericDict().find(number);
      dict.state.push_back(state ? read_state(state->toGenericDict()) : optim::ParamState());
    }
  }
  return dict;
}

IValue to_ivalue(const optim::Optimizer& optimizer) {
  const optim::OptimizerStateDict dict = optimizer.state_dict();
  GenericDict states, result;
  std::vector<IValue> groups;
  std::int64_t number = 0;
  for (std::size_t g = 0; g < dict.groups.size(); ++g) {
    std::map<std::string, double> options = dict.groups[g];
    GenericDict group;
    for (const PairName& pair : kPairs) {
      const auto first = options.find(pair.first), second = options.find(pair.second);
      if (first == options.end() || second == options.end()) continue;
      group.insert_or_assign(pair.python, IValue::tuple({first->second, second->second}));
      options.erase(first);
      options.erase(second);
    }
    for (const auto& [name, option] : options) {
      // Switches are kept as numbers here.
      const bool is_switch = name == "amsgrad" || name == "maximize" || name == "nesterov" || name == "centered";
      group.insert_or_assign(name, is_switch ? IValue(option != 0) : IValue(option));
    }
    std::vector<IValue> params;
    for (std::size_t p = 0; p < optimizer.param_groups()[g].params().size(); ++p, ++number) {
      const optim::ParamState& from = dict.state[static_cast<std::size_t>(number)];
      GenericDict state;
      for (const auto& [name, n] : from.numbers)
        state.insert_or_assign(name, name == "step" ? IValue(full({}, n, TensorOptions(kFloat))) : IValue(n));
      for (const auto& [name, t] : from.tensors)
        if (t.defined()) state.insert_or_assign(name, t);
      if (!state.empty()) states.insert_or_assign(number, state);
      params.emplace_back(number);
    }
    group.insert_or_assign("params", std::move(params));
    groups.emplace_back(group);
  }
  result.insert_or_assign("state", states);
  result.insert_or_assign("param_groups", std::move(groups));
  return result;
}

}  // namespace athanor::io
