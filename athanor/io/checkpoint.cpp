#include "athanor/io/checkpoint.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "athanor/io/pt.h"
#include "athanor/io/safetensors.h"
#include "athanor/io/tensor_io.h"

namespace athanor::io {
namespace {

/// Exact and readable: C's hexadecimal floating point.
std::string exact(double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%a", value);
  return buffer;
}

std::map<std::string, Tensor> read_tensors(const SafetensorsFile& file) {
  std::map<std::string, Tensor> out;
  for (const auto& e : file.entries()) out[e.name] = to_tensor(file.get(e)).clone();
  return out;
}

NamedTensors as_list(const std::map<std::string, Tensor>& tensors) { return {tensors.begin(), tensors.end()}; }

nn::Module::StateDict state_of(const std::map<std::string, Tensor>& tensors, const std::string& prefix) {
  nn::Module::StateDict state;
  for (auto it = tensors.lower_bound(prefix); it != tensors.end() && it->first.starts_with(prefix); ++it)
    state.insert(it->first.substr(prefix.size()), it->second);
  return state;
}

}  // namespace

void save_module(const std::string& path, const nn::Module& module) {
  std::map<std::string, Tensor> tensors;
  for (const auto& item : module.state_dict()) tensors[item.key()] = item.value();
  save_safetensors(path, as_list(tensors), {{"format", "pt"}});
}

void load_module(const std::string& path, nn::Module& module) {
  if (is_pt(path))
    module.load_state_dict(to_state_dict(load_pt(path)));
  else
    module.load_state_dict(state_of(read_tensors(SafetensorsFile(path)), ""));
}

Checkpoint Checkpoint::load(const std::string& path) {
  const SafetensorsFile file(path);
  Checkpoint c;
  c.tensors_ = read_tensors(file);
  c.texts_ = file.metadata();
  return c;
}

Checkpoint Checkpoint::parse(std::span<std::byte> content) {
  const SafetensorsFile file(content, nullptr, "checkpoint");
  Checkpoint c;
  c.tensors_ = read_tensors(file);
  c.texts_ = file.metadata();
  return c;
}

std::vector<std::byte> Checkpoint::bytes() const {
  std::vector<std::pair<std::string, Array>> arrays;
  for (const auto& [name, tensor] : tensors_) arrays.emplace_back(name, to_array(tensor, "checkpoint"));
  return safetensors_bytes(arrays, texts_);
}

void Checkpoint::to(Device device) {
  for (auto& [name, tensor] : tensors_) tensor = tensor.to(TensorOptions(device));
}

void Checkpoint::save(const std::string& path) const { save_safetensors(path, as_list(tensors_), texts_); }

void Checkpoint::set(const std::string& name, double value) { texts_[name] = exact(value); }
void Checkpoint::set(const std::string& name, std::int64_t value) { texts_[name] = std::to_string(value); }

Tensor Checkpoint::tensor(const std::string& name) const {
  const auto it = tensors_.find(name);
  ATHANOR_CHECK_VALUE(it != tensors_.end(), "checkpoint: there is no tensor '", name, "'");
  return it->second;
}

std::string Checkpoint::text(const std::string& name) const {
  const auto it = texts_.find(name);
  ATHANOR_CHECK_VALUE(it != texts_.end(), "checkpoint: there is no entry '", name,
                      "'; was the file written by this program?");
  return it->second;
}

double Checkpoint::number(const std::string& name) const {
  const std::string t = text(name);
  char* end = nullptr;
  const double value = std::strtod(t.c_str(), &end);
  ATHANOR_CHECK_VALUE(end && *end == 0 && !t.empty(), "checkpoint: '", name, "' is not a number: ", t);
  return value;
}

std::int64_t Checkpoint::integer(const std::string& name) const {
  const std::string t = text(name);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), value);
  ATHANOR_CHECK_VALUE(error == std::errc() && end == t.data() + t.size(), "checkpoint: '", name,
                      "' is not an integer: ", t);
  return value;
}

void Checkpoint::set_module(const std::string& name, const nn::Module& module) {
  for (const auto& item : module.state_dict()) tensors_[name + "." + item.key()] = item.value();
}

void Checkpoint::load_module(const std::string& name, nn::Module& module) const {
  module.load_state_dict(state_of(tensors_, name + "."));
}

void Checkpoint::set_optimizer(const std::string& name, const optim::Optimizer& optimizer) {
  const auto dict = optimizer.state_dict();
  set(name + ".groups", static_cast<std::int64_t>(dict.groups.size()));
  set(name + ".params", static_cast<std::int64_t>(dict.state.size()));
  for (std::size_t g = 0; g < dict.groups.size(); ++g) {
    const std::string at = name + ".group." + std::to_string(g) + ".";
    for (const auto& [key, value] : dict.groups[g]) set(at + key, value);
  }
  for (std::size_t p = 0; p < dict.state.size(); ++p) {
    const std::string at = name + ".state." + std::to_string(p) + ".";
    for (const auto& [key, t] : dict.state[p].tensors)
      if (t.defined()) set(at + key, t);
    for (const auto& [key, value] : dict.state[p].numbers) set(at + key, value);
  }
}

void Checkpoint::load_optimizer(const std::string& name, optim::Optimizer& optimizer) const {
  optim::OptimizerStateDict dict;
  const std::int64_t groups = integer(name + ".groups"), params = integer(name + ".params");
  ATHANOR_CHECK_VALUE(groups == static_cast<std::int64_t>(optimizer.param_groups().size()) &&
                          params == static_cast<std::int64_t>(optimizer.size()),
                      "checkpoint: '", name, "' is of an optimizer with ", groups, " groups and ", params,
                      " parameters, this one has ", optimizer.param_groups().size(), " and ", optimizer.size());
  dict.groups.resize(static_cast<std::size_t>(groups));
  dict.state.resize(static_cast<std::size_t>(params));
  auto each = [](const auto& entries, const std::string& prefix, auto&& take) {
    for (auto it = entries.lower_bound(prefix); it != entries.end() && it->first.starts_with(prefix); ++it)
      take(it->first, it->first.substr(prefix.size()));
  };
  for (std::size_t g = 0; g < dict.groups.size(); ++g)
    each(texts_, name + ".group." + std::to_string(g) + ".",
         [&](const std::string& full, const std::string& key) { dict.groups[g][key] = number(full); });
  for (std::size_t p = 0; p < dict.state.size(); ++p) {
    const std::string at = name + ".state." + std::to_string(p) + ".";
    each(tensors_, at,
         [&](const std::string& full, const std::string& key) { dict.state[p].tensors[key] = tensor(full); });
    each(texts_, at,
         [&](const std::string& full, const std::string& key) { dict.state[p].numbers[key] = number(full); });
  }
  optimizer.load_state_dict(dict);
}

void Checkpoint::set_scheduler(const std::string& name, const optim::LRScheduler& scheduler) {
  const std::string prefix = name + ".";
  for (const auto& [key, value] : scheduler.state_dict()) set(prefix + key, value);
}

void Checkpoint::load_scheduler(const std::string& name, optim::LRScheduler& scheduler) const {
  optim::LRScheduler::StateDict state = scheduler.state_dict();
  const std::string prefix = name + ".";
  for (auto& [key, value] : state) value = number(prefix + key);
  scheduler.load_state_dict(state);
}

void Checkpoint::set_generator(const std::string& name, const Generator& generator) {
  const PhiloxState s = generator.state();
  texts_[name + ".seed"] = std::to_string(static_cast<std::int64_t>(s.seed));
  texts_[name + ".offset"] = std::to_string(static_cast<std::int64_t>(s.offset));
}

void Checkpoint::load_generator(const std::string& name, Generator& generator) const {
  generator.set_state(
      {static_cast<std::uint64_t>(integer(name + ".seed")), static_cast<std::uint64_t>(integer(name + ".offset"))});
}

}  // namespace athanor::io
