#include "athanor/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <sstream>
#include <typeinfo>
#include <unordered_set>
#include <utility>

#include "athanor/nn/options.h"
#include "athanor/ops/factory.h"
#include "athanor/tape/autograd_meta.h"
#include "athanor/tape/grad_mode.h"
#include "athanor/tensor/generator_scope.h"

namespace athanor::nn {

namespace {

std::string class_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 ? text.get() : type.name();
}

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : name.empty() ? prefix : prefix + "." + name;
}

void check_name(const char* what, const std::string& name) {
  ATHANOR_CHECK(!name.empty(), what, " name must not be empty");
  ATHANOR_CHECK(name.find('.') == std::string::npos, what, " name must not contain a dot (got '", name, "')");
}

}  // namespace

Module::Module(std::string name) : Module() { name_ = std::move(name); }
Module::Module() : parameters_("Parameter"), buffers_("Buffer"), children_("Submodule") {}

// A copy shares parameters and children, as libtorch's does; the children stay where they were registered.
Module::Module(const Module& other)
    : std::enable_shared_from_this<Module>(other),
      parameters_(other.parameters_),
      buffers_(other.buffers_),
      children_(other.children_),
      transient_buffers_(other.transient_buffers_),
      pre_hooks_(other.pre_hooks_),
      hooks_(other.hooks_),
      reparametrizations_(other.reparametrizations_),
      name_(other.name_),
      is_training_(other.is_training_) {}

Module& Module::operator=(const Module& other) {
  if (this == &other) return *this;
  for (auto& child : children_) abandon(*child.value());
  parameters_ = other.parameters_;
  buffers_ = other.buffers_;
  children_ = other.children_;
  transient_buffers_ = other.transient_buffers_;
  pre_hooks_ = other.pre_hooks_;
  hooks_ = other.hooks_;
  reparametrizations_ = other.reparametrizations_;
  name_ = other.name_;
  is_training_ = other.is_training_;
  for (auto& child : children_) adopt(child.key(), *child.value());
  return *this;
}

Module::~Module() {
  for (auto& child : children_) abandon(*child.value());
}

const std::string& Module::name() const noexcept {
  // Not in the constructor: the class is known only once it is complete.
  if (!name_) name_ = class_name(typeid(*this));
  return *name_;
}

std::string Module::path() const { return place_ ? place_->path() : ""; }

std::shared_ptr<Module> Module::clone(const std::optional<Device>&) const {
  ATHANOR_THROW(Error, "clone() has not been implemented for ", name(), ". Subclass athanor::nn::Cloneable<", name(),
                "> instead of athanor::nn::Module to inherit the ability "
                "to clone.");
}

void Module::clone_(Module&, const std::optional<Device>&) {}

void Module::forget_registrations(Module& copy) {
  copy.parameters_.clear();
  copy.buffers_.clear();
  copy.children_.clear();
  copy.transient_buffers_.clear();
  copy.reparametrizations_.clear();
}

void Module::fail_clone_type() {
  ATHANOR_THROW(Error,
                "Attempted to clone submodule, but it is of a different type than the submodule it was to be "
                "cloned into");
}

namespace {

void copy_tensors(const char* what, const OrderedDict<std::string, Tensor>& from, OrderedDict<std::string, Tensor>& to,
                  const std::optional<Device>& device) {
  ATHANOR_CHECK(to.size() == from.size(), "The cloned module does not have the same number of ", what,
                "s as the original module after calling reset(). Are you sure you called register_", what,
                "() inside reset() and not the constructor?");
  for (const auto& item : from) {
    Tensor& target = to[item.key()];
    const Tensor& source = item.value();
    if (!source.defined()) {
      target = Tensor();
      continue;
    }
    const Tensor data = device && detail::values_come_later()     ? empty_like(source, TensorOptions(*device))
                        : device && !(source.device() == *device) ? source.to(TensorOptions(*device))
                                                                  : source.clone();
    if (target.defined()) {
      target.set_data(data.detach());
      if (source.is_floating_point()) target.set_requires_grad(source.requires_grad());
    } else {
      target = data.detach().set_requires_grad(source.requires_grad());
    }
  }
}

}  // namespace

void Module::copy_registrations(Module& copy, const std::optional<Device>& device) const {
  for (const auto& r : reparametrizations_) copy.add_reparametrization(r);
  copy_tensors("parameter", parameters_, copy.parameters_, device);
  copy_tensors("buffer", buffers_, copy.buffers_, device);
  ATHANOR_CHECK(copy.children_.size() == children_.size(),
                "The cloned module does not have the same number of child modules as the original module after "
                "calling reset(). Are you sure you called register_module() inside reset() and not the constructor?");
  for (const auto& child : children_) copy.children_[child.key()]->clone_(*child.value(), device);
  if (!detail::values_come_later()) copy.run_reparametrizations(false);
}

void Module::copy_settings(const Module& other) {
  pre_hooks_ = other.pre_hooks_;
  hooks_ = other.hooks_;
  name_ = other.name_;
  is_training_ = other.is_training_;
}

bool& detail::values_come_later() {
  static thread_local bool later = false;
  return later;
}

namespace {

/// Leaves everything as it was for whoever draws or makes modules next.
class ValuesComeLater {
 public:
  ValuesComeLater() : before_(std::exchange(detail::values_come_later(), true)) {}
  ~ValuesComeLater() { detail::values_come_later() = before_; }
  ValuesComeLater(const ValuesComeLater&) = delete;
  ValuesComeLater& operator=(const ValuesComeLater&) = delete;

 private:
  const bool before_;
  const athanor::detail::GeneratorScope own_numbers_;
};

}  // namespace

std::shared_ptr<Module> Module::replica(Device device) const {
  std::shared_ptr<Module> copy;
  {
    const ValuesComeLater later;
    const InferenceMode lasting(false);
    copy = clone(device);
  }
  record_values(*this, *copy);
  return copy;
}

void Module::record_values(const Module& from, Module& to) {
  for (const auto& item : from.parameters_)
    if (item->defined() && to.parameters_[item.key()].is_leaf()) {
      const Tensor& target = to.parameters_[item.key()];
      {
        const NoGradGuard off;
        target.detach_();
      }
      target.copy_(item.value());
    }
  {
    const NoGradGuard off;
    for (const auto& item : from.buffers_)
      if (item->defined()) to.buffers_[item.key()].copy_(item.value());
  }
  for (const auto& child : from.children_) record_values(*child.value(), *to.children_[child.key()]);
  to.run_reparametrizations(false);
}

void Module::apply(const ModuleApplyFunction& function) {
  function(*this);
  apply_below([&](const std::string&, const std::shared_ptr<Module>& m) { function(*m); }, "");
}
void Module::apply(const ConstModuleApplyFunction& function) const {
  function(*this);
  apply_below([&](const std::string&, const std::shared_ptr<Module>& m) { function(*m); }, "");
}
void Module::apply(const NamedModuleApplyFunction& function, const std::string& name_prefix) {
  function(name_prefix, *this);
  apply_below([&](const std::string& name, const std::shared_ptr<Module>& m) { function(name, *m); }, name_prefix);
}
void Module::apply(const ConstNamedModuleApplyFunction& function, const std::string& name_prefix) const {
  function(name_prefix, *this);
  apply_below([&](const std::string& name, const std::shared_ptr<Module>& m) { function(name, *m); }, name_prefix);
}
void Module::apply(const ModulePointerApplyFunction& function) const {
  function(shared_from_this_checked());
  apply_below([&](const std::string&, const std::shared_ptr<Module>& m) { function(m); }, "");
}
void Module::apply(const NamedModulePointerApplyFunction& function, const std::string& name_prefix) const {
  function(name_prefix, shared_from_this_checked());
  apply_below(function, name_prefix);
}

void Module::apply_below(const NamedModulePointerApplyFunction& function, const std::string& name_prefix) const {
  for (const auto& child : children_) {
    const std::string name = join(name_prefix, child.key());
    function(name, child.value());
    child.value()->apply_below(function, name);
  }
}

std::shared_ptr<Module> Module::shared_from_this_checked() const {
  auto self = std::const_pointer_cast<Module>(weak_from_this().lock());
  ATHANOR_CHECK(self,
                "It looks like you attempted to retrieve your top-level module as a shared_ptr, but it is not stored "
                "in a shared_ptr. Use std::make_shared<",
                name(),
                "> instead of creating your module on the stack, or alternatively do not try to access your "
                "top-level module at all by passing include_self=false to modules() or named_modules()");
  return self;
}

void Module::list_tensors(bool buffers, bool recurse, bool every_name, const std::string& prefix,
                          StateDict& out) const {
  std::unordered_set<const TensorImpl*> seen;
  std::unordered_set<const Module*> visited;
  const std::function<void(const Module&, const std::string&)> visit = [&](const Module& m, const std::string& path) {
    if (!every_name && !visited.insert(&m).second) return;
    for (const auto& item : buffers ? m.buffers_ : m.parameters_)
      if (item->defined() && (every_name || seen.insert(item->impl()).second))
        out.insert(join(path, item.key()), item.value());
    if (recurse)
      for (const auto& child : m.children_) visit(*child.value(), join(path, child.key()));
  };
  visit(*this, prefix);
}

OrderedDict<std::string, Tensor> Module::named_parameters(bool recurse) const {
  OrderedDict<std::string, Tensor> out("Parameter");
  list_tensors(false, recurse, false, "", out);
  return out;
}
std::vector<Tensor> Module::parameters(bool recurse) const { return named_parameters(recurse).values(); }

OrderedDict<std::string, Tensor> Module::named_buffers(bool recurse) const {
  OrderedDict<std::string, Tensor> out("Buffer");
  list_tensors(true, recurse, false, "", out);
  return out;
}
std::vector<Tensor> Module::buffers(bool recurse) const { return named_buffers(recurse).values(); }

OrderedDict<std::string, std::shared_ptr<Module>> Module::named_modules(const std::string& name_prefix,
                                                                        bool include_self) const {
  OrderedDict<std::string, std::shared_ptr<Module>> out("Module");
  std::unordered_set<const Module*> seen{this};
  if (include_self) out.insert(name_prefix, shared_from_this_checked());
  apply_below(
      [&](const std::string& name, const std::shared_ptr<Module>& m) {
        if (seen.insert(m.get()).second) out.insert(name, m);
      },
      name_prefix);
  return out;
}
std::vector<std::shared_ptr<Module>> Module::modules(bool include_self) const {
  return named_modules("", include_self).values();
}
std::vector<std::shared_ptr<Module>> Module::children() const { return children_.values(); }
OrderedDict<std::string, std::shared_ptr<Module>> Module::named_children() const { return children_; }

void Module::train(bool on) {
  for (auto& child : children_) child.value()->train(on);
  is_training_ = on;
}

void Module::move_tensors(const std::function<Tensor(const Tensor&)>& convert) {
  const NoGradGuard guard;
  for (auto* dict : {&parameters_, &buffers_})
    for (auto& item : *dict) {
      Tensor& t = item.value();
      if (!t.defined()) continue;
      if (const Tensor grad = t.grad(); grad.defined()) {
        const Tensor moved = convert(grad);
        t.set_data(convert(t));
        t.mutable_grad() = moved;
      } else {
        t.set_data(convert(t));
      }
    }
}

void Module::to(Device device, DType dtype, bool non_blocking) {
  to(TensorOptions(dtype).device(device), non_blocking);
}
void Module::to(DType dtype, bool non_blocking) { to(TensorOptions(dtype), non_blocking); }
void Module::to(Device device, bool non_blocking) { to(TensorOptions(device), non_blocking); }

void Module::to(const TensorOptions& options, bool non_blocking) {
  if (const auto t = options.dtype_opt())
    ATHANOR_CHECK_TYPE(TypeError, is_floating_point(*t),
                       "Module::to only accepts floating point dtypes, but got desired ", "dtype=", *t);
  TensorOptions place;
  if (const auto d = options.device_opt()) place = place.device(*d);
  for (auto& child : children_) child.value()->to(options, non_blocking);
  move_tensors([&](const Tensor& t) { return t.to(t.is_floating_point() ? options : place, non_blocking); });
}

void Module::zero_grad(bool set_to_none) {
  for (Tensor& p : parameters()) {
    Tensor& grad = p.mutable_grad();
    if (!grad.defined()) continue;
    if (set_to_none) {
      grad = Tensor();
    } else {
      grad.detach_();
      grad.zero_();
    }
  }
}

void Module::requires_grad_(bool on) {
  for (Tensor& p : parameters()) p.requires_grad_(on);
}

Module::StateDict Module::state_dict(const std::string& prefix) const {
  StateDict out("Key");
  const std::function<void(const Module&, const std::string&)> visit = [&](const Module& m, const std::string& path) {
    for (const auto& item : m.parameters_)
      if (item->defined()) out.insert(join(path, item.key()), item->detach());
    for (const auto& item : m.buffers_) {
      const auto& skip = m.transient_buffers_;
      if (item->defined() && std::find(skip.begin(), skip.end(), item.key()) == skip.end())
        out.insert(join(path, item.key()), item->detach());
    }
    for (const auto& child : m.children_) visit(*child.value(), join(path, child.key()));
  };
  visit(*this, prefix);
  return out;
}

namespace {

std::string quoted(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& n : names) out += (out.empty() ? "\"" : ", \"") + n + "\"";
  return out;
}

std::string shape_text(const Tensor& t) {
  std::string out = "torch.Size(";
  append(out, t.sizes());
  return out + ")";
}

}  // namespace

IncompatibleKeys Module::load_state_dict(const StateDict& state, bool strict) {
  const StateDict own = state_dict();
  IncompatibleKeys keys;
  std::string problems;
  for (const auto& item : state)
    if (!own.contains(item.key())) keys.unexpected_keys.push_back(item.key());
  for (const auto& item : own)
    if (!state.contains(item.key())) keys.missing_keys.push_back(item.key());
  if (strict && !keys.unexpected_keys.empty())
    problems += "\n\tUnexpected key(s) in state_dict: " + quoted(keys.unexpected_keys) + ". ";
  if (strict && !keys.missing_keys.empty())
    problems = "\n\tMissing key(s) in state_dict: " + quoted(keys.missing_keys) + ". " + problems;
  for (const auto& item : own)
    if (const Tensor* given = state.find(item.key())) {
      if (!given->defined())
        problems += "\n\tWhile copying the parameter named \"" + item.key() +
                    "\", expected a tensor but received an "
                    "undefined one.";
      else if (given->sizes() != item->sizes())
        problems += "\n\tsize mismatch for " + item.key() + ": copying a param with shape " + shape_text(*given) +
                    " from checkpoint, the shape in current model is " + shape_text(item.value()) + ".";
    }
  ATHANOR_CHECK(problems.empty(), "Error(s) in loading state_dict for ", name(), ":", problems);
  const NoGradGuard guard;
  for (const auto& item : own)
    if (const Tensor* given = state.find(item.key())) item->copy_(*given);
  return keys;
}

void Module::pretty_print(std::ostream& stream) const { stream << name(); }

void Module::print_recursive(std::ostream& stream, const std::string& indentation) const {
  pretty_print(stream);
  if (children_.is_empty()) return;
  stream << "(\n";
  const std::string deeper = indentation + "  ";
  for (const auto& child : children_) {
    stream << deeper << "(" << child.key() << "): ";
    child.value()->print_recursive(stream, deeper);
    stream << "\n";
  }
  stream << indentation << ")";
}

std::ostream& operator<<(std::ostream& stream, const Module& module) {
  module.print_recursive(stream, "");
  return stream;
}

Tensor& Module::register_parameter(std::string name, Tensor tensor, bool requires_grad) {
  check_name("Parameter", name);
  ATHANOR_CHECK(!buffers_.contains(name) && !children_.contains(name), "attribute '", name, "' already exists");
  if (tensor.defined()) {
    ATHANOR_CHECK(!requires_grad || tensor.is_floating_point(), "register_parameter: '", name, "' of dtype ",
                  tensor.dtype(), " cannot require gradients; only floating dtypes can, pass requires_grad=false");
    ATHANOR_CHECK(tensor.is_leaf(), "register_parameter: cannot assign non-leaf Tensor to parameter '", name,
                  "'; a parameter must be made explicitly, for instance with detach()");
    tensor.set_requires_grad(requires_grad);
  }
  return parameters_.insert(std::move(name), std::move(tensor));
}

Tensor& Module::register_buffer(std::string name, Tensor tensor, bool persistent) {
  check_name("Buffer", name);
  ATHANOR_CHECK(!parameters_.contains(name) && !children_.contains(name), "attribute '", name, "' already exists");
  if (!persistent) transient_buffers_.push_back(name);
  return buffers_.insert(std::move(name), std::move(tensor));
}

Tensor Module::unregister_parameter(const std::string& name) {
  ATHANOR_CHECK(parameters_.contains(name), "No Parameter with name `", name, "` is registered");
  Tensor out = parameters_[name];
  parameters_.erase(name);
  return out;
}
Tensor Module::unregister_buffer(const std::string& name) {
  ATHANOR_CHECK(buffers_.contains(name), "No Buffer with name `", name, "` is registered");
  Tensor out = buffers_[name];
  buffers_.erase(name);
  std::erase(transient_buffers_, name);
  return out;
}

void Module::adopt(const std::string& name, Module& child) {
  if (!place_) place_ = IntrusivePtr<Place>(new Place);
  if (!child.place_) child.place_ = IntrusivePtr<Place>(new Place);
  child.place_->enter(place_, name);
}

void Module::abandon(Module& child) {
  if (child.place_ && child.place_->is_in(place_.get())) child.place_->leave();
}

void Module::add_child(std::string name, std::shared_ptr<Module> module) {
  check_name("Submodule", name);
  ATHANOR_CHECK(module, "register_module: the module for '", name, "' is empty");
  ATHANOR_CHECK(module.get() != this, "register_module: a module cannot be registered in itself");
  ATHANOR_CHECK(!parameters_.contains(name) && !buffers_.contains(name), "attribute '", name, "' already exists");
  const auto& child = children_.insert(name, std::move(module));
  adopt(name, *child);
}

void Module::swap_child(const std::string& name, std::shared_ptr<Module> module) {
  ATHANOR_CHECK(module, "replace_module: the module for '", name, "' is empty");
  std::shared_ptr<Module>& slot = children_[name];
  abandon(*slot);
  slot = std::move(module);
  adopt(name, *slot);
}

void Module::unregister_module(const std::string& name) {
  ATHANOR_CHECK(children_.contains(name), "No Module with name `", name, "` is registered");
  abandon(*children_[name]);
  children_.erase(name);
}

std::uint64_t Module::register_forward_pre_hook(ForwardPreHook hook) {
  pre_hooks_.emplace_back(athanor::detail::next_hook_id(), std::move(hook));
  return pre_hooks_.back().first;
}
std::uint64_t Module::register_forward_hook(ForwardHook hook) {
  hooks_.emplace_back(athanor::detail::next_hook_id(), std::move(hook));
  return hooks_.back().first;
}
void Module::remove_hook(std::uint64_t id) {
  std::erase_if(pre_hooks_, [id](const auto& h) { return h.first == id; });
  std::erase_if(hooks_, [id](const auto& h) { return h.first == id; });
}
void Module::run_pre_hooks(std::vector<Tensor>& inputs) {
  run_reparametrizations(is_training());
  const auto hooks = pre_hooks_;  // a hook may remove itself
  for (const auto& [id, hook] : hooks) hook(*this, inputs);
}
Tensor Module::run_hooks(const std::vector<Tensor>& inputs, Tensor output) {
  const auto hooks = hooks_;
  for (const auto& [id, hook] : hooks)
    if (Tensor changed = hook(*this, inputs, output); changed.defined()) output = changed;
  return output;
}

void detail::add_module_path(Error& error, const Module& module) {
  const std::string path = module.path();
  if (path.empty() || std::string_view(error.what()).find("\nin ") != std::string_view::npos) return;
  error.add_context("in " + path);
}

}  // namespace athanor::nn

namespace athanor::detail {
void print_list(std::ostream& out, IntArrayRef values) {
  out << "[";
  for (std::size_t i = 0; i < values.size(); ++i) out << (i ? ", " : "") << values[i];
  out << "]";
}
void print_expanded(std::ostream& out, IntArrayRef values) {
  if (values.size() == 1)
    out << values[0];
  else
    print_list(out, values);
}
void print_optional_list(std::ostream& out, const std::optional<std::int64_t>* values, std::size_t count) {
  out << "[";
  for (std::size_t i = 0; i < count; ++i) {
    out << (i ? ", " : "");
    if (values[i])
      out << *values[i];
    else
      out << "None";
  }
  out << "]";
}
}  // namespace athanor::detail
