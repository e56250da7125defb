#pragma once
/// Module: a layer or a network of layers; owns parameters, buffers and submodules by name. libtorch's interface, with
/// Python's state_dict, hooks and de-duplication of what is registered twice.

#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "athanor/nn/ordered_dict.h"
#include "athanor/ops/tensor.h"
#include "athanor/tensor/place.h"

namespace athanor::serialize {
class OutputArchive;
class InputArchive;
}  // namespace athanor::serialize

namespace athanor::nn {

template <class Contained>
class ModuleHolder;
template <class Derived>
class Cloneable;

class Reparametrization;

namespace detail {
/// Marks ModuleHolder among template arguments.
struct ModuleHolderIndicator {};
template <class T>
inline constexpr bool is_module_holder = std::is_base_of_v<ModuleHolderIndicator, std::decay_t<T>>;
}  // namespace detail

/// What load_state_dict did not match, where it was not strict.
struct IncompatibleKeys {
  std::vector<std::string> missing_keys, unexpected_keys;
};

/// Parameters are trained, buffers are state that is not. Not thread-safe while it is being changed; several threads
/// may run forward.
class Module : public std::enable_shared_from_this<Module> {
 public:
  using ModuleApplyFunction = std::function<void(Module&)>;
  using ConstModuleApplyFunction = std::function<void(const Module&)>;
  using NamedModuleApplyFunction = std::function<void(const std::string&, Module&)>;
  using ConstNamedModuleApplyFunction = std::function<void(const std::string&, const Module&)>;
  using ModulePointerApplyFunction = std::function<void(const std::shared_ptr<Module>&)>;
  using NamedModulePointerApplyFunction = std::function<void(const std::string&, const std::shared_ptr<Module>&)>;
  using StateDict = OrderedDict<std::string, Tensor>;
  /// Called before forward with the module and its tensor arguments, which it may replace.
  using ForwardPreHook = std::function<void(Module&, std::vector<Tensor>&)>;
  /// Called after forward; a defined result replaces the output.
  using ForwardHook = std::function<Tensor(Module&, const std::vector<Tensor>&, const Tensor&)>;

  /// `name` is what name() returns; without it, the class's name.
  explicit Module(std::string name);
  Module();
  Module(const Module& other);
  Module& operator=(const Module& other);
  virtual ~Module();

  const std::string& name() const noexcept;
  /// Where it is registered: "net.conv2", empty for a root. For error messages.
  std::string path() const;
  /// The same for the queues; null for a module that was never registered and has no submodules.
  Place* place() const noexcept { return place_.get(); }

  /// A deep copy, optionally on another device. Defined by Cloneable; throws Error for other modules.
  virtual std::shared_ptr<Module> clone(const std::optional<Device>& device = std::nullopt) const;
  /// A clone on a device whose parameters are copies that autograd records, so that their gradients end on this
  /// module's. Options, plain members, hooks and modes are those of now. Made to be cheap: random functions of nn::init
  /// leave values as they are while reset() runs, and the default generator is afterwards where it was before; no other
  /// thread should draw from it meanwhile. Throws as clone().
  std::shared_ptr<Module> replica(Device device) const;

  /// Calls the function with this module and every module below it, parents first. The forms that take a pointer need
  /// this module to be held by a shared_ptr.
  void apply(const ModuleApplyFunction& function);
  void apply(const ConstModuleApplyFunction& function) const;
  void apply(const NamedModuleApplyFunction& function, const std::string& name_prefix = {});
  void apply(const ConstNamedModuleApplyFunction& function, const std::string& name_prefix = {}) const;
  void apply(const ModulePointerApplyFunction& function) const;
  void apply(const NamedModulePointerApplyFunction& function, const std::string& name_prefix = {}) const;

  /// In order of registration, parents first, each tensor once however often it is registered.
  std::vector<Tensor> parameters(bool recurse = true) const;
  OrderedDict<std::string, Tensor> named_parameters(bool recurse = true) const;
  std::vector<Tensor> buffers(bool recurse = true) const;
  OrderedDict<std::string, Tensor> named_buffers(bool recurse = true) const;
  /// Each module once. With `include_self`, this module must be held by a shared_ptr.
  std::vector<std::shared_ptr<Module>> modules(bool include_self = true) const;
  OrderedDict<std::string, std::shared_ptr<Module>> named_modules(const std::string& name_prefix = {},
                                                                  bool include_self = true) const;
  std::vector<std::shared_ptr<Module>> children() const;
  OrderedDict<std::string, std::shared_ptr<Module>> named_children() const;

  /// Switches layers such as Dropout and BatchNorm between training and evaluation.
  virtual void train(bool on = true);
  void eval() { train(false); }
  virtual bool is_training() const noexcept { return is_training_; }

  /// Moves parameters, buffers and gradients. A dtype applies to floating tensors only and must be floating.
  virtual void to(Device device, DType dtype, bool non_blocking = false);
  virtual void to(DType dtype, bool non_blocking = false);
  virtual void to(Device device, bool non_blocking = false);
  virtual void to(const TensorOptions& options, bool non_blocking = false);
  void to(DeviceType device, bool non_blocking = false) { to(Device(device), non_blocking); }
  void to(const char* device, bool non_blocking = false) { to(Device(device), non_blocking); }
  void to(const std::string& device, bool non_blocking = false) { to(Device(device), non_blocking); }
  void cpu() { to(Device()); }
  /// To the current cuda device, or to `device`: module->cuda(1).
  void cuda() { to(Device(DeviceType::CUDA)); }
  void cuda(Device device) { to(device); }

  virtual void zero_grad(bool set_to_none = true);
  /// Sets requires_grad of every parameter.
  void requires_grad_(bool on = true);

  /// Parameters and persistent buffers by their paths, detached but sharing memory. What is registered under two names
  /// appears under both.
  StateDict state_dict(const std::string& prefix = {}) const;
  /// Copies the values of `state` into parameters and buffers of the same name. Throws Error listing all missing and
  /// unexpected names (if `strict`) and all wrong shapes; nothing is changed then.
  IncompatibleKeys load_state_dict(const StateDict& state, bool strict = true);

  /// The state_dict into an archive and back; for whole files see save and load in io/archive.h, where these are
  /// defined.
  void save(serialize::OutputArchive& archive) const;
  void load(serialize::InputArchive& archive);

  template <class ModuleType>
  requires(detail::is_module_holder<ModuleType>) typename ModuleType::ContainedType* as() noexcept {
    return dynamic_cast<typename ModuleType::ContainedType*>(this);
  }
  template <class ModuleType>
  requires(detail::is_module_holder<ModuleType>) const typename ModuleType::ContainedType* as() const noexcept {
    return dynamic_cast<const typename ModuleType::ContainedType*>(this);
  }
  template <class ModuleType>
  requires(!detail::is_module_holder<ModuleType>) ModuleType* as() noexcept { return dynamic_cast<ModuleType*>(this); }
  template <class ModuleType>
  requires(!detail::is_module_holder<ModuleType>) const ModuleType* as() const noexcept {
    return dynamic_cast<const ModuleType*>(this);
  }

  /// One line about this module; operator<< adds the modules below it.
  virtual void pretty_print(std::ostream& stream) const;

  /// The name must be new, not empty and without a dot. An undefined tensor is allowed: it is listed nowhere.
  Tensor& register_parameter(std::string name, Tensor tensor, bool requires_grad = true);
  /// A buffer that is not persistent is left out of state_dict.
  Tensor& register_buffer(std::string name, Tensor tensor, bool persistent = true);
  /// Takes a parameter or buffer out of the module's lists and gives it back; members that hold it are left alone.
  /// Throws Error if there is none of this name.
  Tensor unregister_parameter(const std::string& name);
  Tensor unregister_buffer(const std::string& name);
  template <class ModuleType>
  std::shared_ptr<ModuleType> register_module(std::string name, std::shared_ptr<ModuleType> module) {
    add_child(std::move(name), module);
    return module;
  }
  template <class ModuleType>
  std::shared_ptr<ModuleType> register_module(std::string name, ModuleHolder<ModuleType> holder) {
    return register_module(std::move(name), holder.ptr());
  }
  /// Puts another module in the place of `name`, which must exist.
  template <class ModuleType>
  std::shared_ptr<ModuleType> replace_module(const std::string& name, std::shared_ptr<ModuleType> module) {
    swap_child(name, module);
    return module;
  }
  template <class ModuleType>
  std::shared_ptr<ModuleType> replace_module(const std::string& name, ModuleHolder<ModuleType> holder) {
    return replace_module(name, holder.ptr());
  }
  void unregister_module(const std::string& name);

  /// Hooks run when the module is called by its holder (`net(x)`), in a container or as an AnyModule; `forward` called
  /// directly runs none, as in Python. Return an id for remove_hook.
  std::uint64_t register_forward_pre_hook(ForwardPreHook hook);
  std::uint64_t register_forward_hook(ForwardHook hook);
  void remove_hook(std::uint64_t id);
  bool has_hooks() const noexcept { return !pre_hooks_.empty() || !hooks_.empty() || !reparametrizations_.empty(); }
  /// For nn/reparametrize.h: from now on a parameter is computed from others where forward pre-hooks run, before these.
  void add_reparametrization(std::shared_ptr<const Reparametrization> r);
  void remove_reparametrization(const std::string& name, const char* kind);
  void run_pre_hooks(std::vector<Tensor>& inputs);
  Tensor run_hooks(const std::vector<Tensor>& inputs, Tensor output);

 protected:
  /// For a clone() that does not copy the object: mode, hooks and name of `other`, whose modules are left alone.
  void copy_settings(const Module& other);

  OrderedDict<std::string, Tensor> parameters_;

 private:
  template <class Derived>
  friend class Cloneable;
  friend std::ostream& operator<<(std::ostream& stream, const Module& module);

  virtual void clone_(Module& other, const std::optional<Device>& device);
  static void forget_registrations(Module& copy);
  /// Gives `copy`, just reset, this module's values.
  void copy_registrations(Module& copy, const std::optional<Device>& device) const;
  [[noreturn]] static void fail_clone_type();
  void add_child(std::string name, std::shared_ptr<Module> module);
  void swap_child(const std::string& name, std::shared_ptr<Module> module);
  void adopt(const std::string& name, Module& child);
  void abandon(Module& child);
  void print_recursive(std::ostream& stream, const std::string& indentation) const;
  void move_tensors(const std::function<Tensor(const Tensor&)>& convert);
  void list_tensors(bool buffers, bool recurse, bool every_name, const std::string& prefix, StateDict& out) const;
  void apply_below(const NamedModulePointerApplyFunction& function, const std::string& name_prefix) const;
  std::shared_ptr<Module> shared_from_this_checked() const;
  void run_reparametrizations(bool step);
  static void record_values(const Module& from, Module& to);

  OrderedDict<std::string, Tensor> buffers_;
  OrderedDict<std::string, std::shared_ptr<Module>> children_;
  std::vector<std::string> transient_buffers_;
  std::vector<std::pair<std::uint64_t, ForwardPreHook>> pre_hooks_;
  std::vector<std::pair<std::uint64_t, ForwardHook>> hooks_;
  std::vector<std::shared_ptr<const Reparametrization>> reparametrizations_;
  mutable std::optional<std::string> name_;
  IntrusivePtr<Place> place_;  ///< where it was registered last, until that module goes; made with the first child
  bool is_training_ = true;
};

std::ostream& operator<<(std::ostream& stream, const Module& module);

namespace detail {
/// Whether this thread makes a clone that gets its values afterwards.
bool& values_come_later();
/// Adds "in net.conv2" to an error that passes through `module`, once.
void add_module_path(Error& error, const Module& module);
}  // namespace detail

/// Runs a layer's forward so that errors name where the layer is, those of kernels that fail later as well.
template <class F>
decltype(auto) in_module(const Module& module, F&& forward) {
  const athanor::detail::AtPlace here(module.place());
  try {
    return forward();
  } catch (Error& error) {
    detail::add_module_path(error, module);
    throw;
  }
}

}  // namespace athanor::nn
