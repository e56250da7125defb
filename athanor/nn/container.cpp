#include "athanor/nn/container.h"

#include <cxxabi.h>

#include <cstdlib>

namespace athanor::nn {

void FunctionalImpl::pretty_print(std::ostream& stream) const { stream << "torch::nn::Functional()"; }

namespace detail {

std::string type_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 ? text.get() : type.name();
}

void fail_argument(std::size_t index, const std::type_info& expected, const std::type_info& got) {
  ATHANOR_THROW(Error, "Expected argument #", index, " to be of type ", type_name(expected),
                ", but received value of type ", type_name(got));
}

void fail_argument_count(const Module& module, std::size_t expected, std::size_t got) {
  ATHANOR_THROW(Error, module.name(), "'s forward() method expects ", expected, " argument(s), but received ", got,
                ". If ", module.name(),
                "'s forward() method has default arguments, please make sure the forward() method "
                "is declared with a corresponding `FORWARD_HAS_DEFAULT_ARGS` macro.");
}

void fail_argument_count(const Module& module, std::size_t least, std::size_t most, std::size_t got) {
  ATHANOR_THROW(Error, module.name(), "'s forward() method expects at least ", least, " argument(s) and at most ", most,
                " argument(s), but received ", got, ".");
}

}  // namespace detail

SequentialImpl::SequentialImpl(OrderedDict<std::string, AnyModule>&& modules) {
  for (auto& item : modules) push_back(item.key(), std::move(item.value()));
}

SequentialImpl::SequentialImpl(std::initializer_list<NamedAnyModule> modules) {
  for (const NamedAnyModule& m : modules) push_back(m.name(), m.module());
}

std::shared_ptr<Module> SequentialImpl::clone(const std::optional<Device>& device) const {
  auto copy = std::make_shared<SequentialImpl>();
  const auto names = named_children().keys();
  for (std::size_t i = 0; i < modules_.size(); ++i) copy->push_back(names[i], modules_[i].clone(device));
  copy->copy_settings(*this);
  return copy;
}

void SequentialImpl::pretty_print(std::ostream& stream) const { stream << "torch::nn::Sequential"; }

void SequentialImpl::push_back(std::string name, AnyModule module) {
  register_module(std::move(name), module.ptr());
  modules_.push_back(std::move(module));
}

std::size_t SequentialImpl::checked(std::size_t index) const {
  ATHANOR_CHECK_INDEX(index < modules_.size(), "Index out of range: ", index, " of a Sequential of ", modules_.size(),
                      " modules");
  return index;
}

void SequentialImpl::check_filled() const {
  ATHANOR_CHECK(!modules_.empty(), "Cannot call forward() on an empty Sequential");
}

Tensor SequentialImpl::forward_rest(AnyValue value) {
  for (std::size_t i = 1; i < modules_.size(); ++i) {
    if (Tensor* x = value.try_get<Tensor>())
      value = modules_[i].any_forward_tensor(*x);
    else
      value = modules_[i].any_forward(std::vector<AnyValue>{std::move(value)});
  }
  return result<Tensor>(value);
}

std::shared_ptr<Module> ModuleListImpl::clone(const std::optional<Device>& device) const {
  auto copy = std::make_shared<ModuleListImpl>();
  for (const auto& m : modules_) copy->push_back(m->clone(device));
  copy->copy_settings(*this);
  return copy;
}

void ModuleListImpl::pretty_print(std::ostream& stream) const { stream << "torch::nn::ModuleList"; }

void ModuleListImpl::push_back(std::shared_ptr<Module> module) {
  register_module(std::to_string(modules_.size()), module);
  modules_.push_back(std::move(module));
}

void ModuleListImpl::insert(std::size_t index, std::shared_ptr<Module> module) {
  ATHANOR_CHECK_INDEX(index <= modules_.size(), "Index out of range: ", index, " of a ModuleList of ", modules_.size(),
                      " modules");
  modules_.insert(modules_.begin() + static_cast<std::ptrdiff_t>(index), std::move(module));
  for (std::size_t i = index; i + 1 < modules_.size(); ++i) replace_module(std::to_string(i), modules_[i]);
  register_module(std::to_string(modules_.size() - 1), modules_.back());
}

std::shared_ptr<Module> ModuleListImpl::ptr(std::size_t index) const {
  ATHANOR_CHECK_INDEX(index < modules_.size(), "Index out of range: ", index, " of a ModuleList of ", modules_.size(),
                      " modules");
  return modules_[index];
}

ModuleDictImpl::ModuleDictImpl(const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& modules) {
  update(modules);
}
ModuleDictImpl::ModuleDictImpl(const OrderedDict<std::string, std::shared_ptr<Module>>& modules) { update(modules); }

std::shared_ptr<Module> ModuleDictImpl::clone(const std::optional<Device>& device) const {
  auto copy = std::make_shared<ModuleDictImpl>();
  for (const auto& m : modules_) copy->insert(m.key(), m.value()->clone(device));
  copy->copy_settings(*this);
  return copy;
}

void ModuleDictImpl::pretty_print(std::ostream& stream) const { stream << "torch::nn::ModuleDict"; }

void ModuleDictImpl::clear() {
  for (const auto& key : modules_.keys()) unregister_module(key);
  modules_.clear();
}

void ModuleDictImpl::insert(const std::string& key, std::shared_ptr<Module> module) {
  if (auto* slot = modules_.find(key)) {
    replace_module(key, module);
    *slot = std::move(module);
    return;
  }
  register_module(key, module);
  modules_.insert(key, std::move(module));
}

std::shared_ptr<Module> ModuleDictImpl::pop(const std::string& key) {
  auto module = modules_[key];
  unregister_module(key);
  modules_.erase(key);
  return module;
}

void ModuleDictImpl::update(const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& modules) {
  for (const auto& [key, module] : modules) insert(key, module);
}

std::shared_ptr<Module> ParameterListImpl::clone(const std::optional<Device>& device) const {
  auto copy = std::make_shared<ParameterListImpl>();
  for (const auto& p : parameters_) {
    const Tensor data = device ? p->detach().to(TensorOptions(*device), false, true) : p->detach().clone();
    copy->append(data.set_requires_grad(p->requires_grad()));
  }
  copy->copy_settings(*this);
  return copy;
}

namespace {

void print_parameters(std::ostream& stream, const char* name, const OrderedDict<std::string, Tensor>& parameters) {
  stream << name << "(\n";
  for (const auto& p : parameters) {
    stream << "(" << p.key() << "): Parameter containing: [" << dtype_libtorch_name(p->dtype()) << " of size ";
    athanor::detail::print_list(stream, p->sizes());
    stream << "]\n";
  }
  stream << ")";
}

}  // namespace

void ParameterListImpl::pretty_print(std::ostream& stream) const {
  print_parameters(stream, "torch::nn::ParameterList", parameters_);
}

void ParameterListImpl::append(Tensor parameter) {
  const bool requires_grad = parameter.requires_grad();
  register_parameter(std::to_string(parameters_.size()), std::move(parameter), requires_grad);
}

ParameterDictImpl::ParameterDictImpl(const OrderedDict<std::string, Tensor>& parameters) {
  for (const auto& p : parameters) insert(p.key(), p.value());
}

std::shared_ptr<Module> ParameterDictImpl::clone(const std::optional<Device>& device) const {
  auto copy = std::make_shared<ParameterDictImpl>();
  for (const auto& p : parameters_) {
    const Tensor data = device ? p->detach().to(TensorOptions(*device), false, true) : p->detach().clone();
    copy->insert(p.key(), data.set_requires_grad(p->requires_grad()));
  }
  copy->copy_settings(*this);
  return copy;
}

void ParameterDictImpl::pretty_print(std::ostream& stream) const {
  print_parameters(stream, "torch::nn::ParameterDict", parameters_);
}

Tensor& ParameterDictImpl::insert(const std::string& key, Tensor parameter) {
  const bool requires_grad = parameter.requires_grad();
  return register_parameter(key, std::move(parameter), requires_grad);
}

void ParameterDictImpl::update(const ParameterDictImpl& other) {
  const auto items = other.parameters_.pairs();  // a copy: `other` may be this
  for (const auto& [key, parameter] : items) {
    if (contains(key))
      parameters_[key] = parameter;
    else
      insert(key, parameter);
  }
}

Tensor ParameterDictImpl::pop(const std::string& key) {
  Tensor parameter = parameters_[key];
  parameters_.erase(key);
  return parameter;
}

}  // namespace athanor::nn
