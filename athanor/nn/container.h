#pragma once
/// Containers of modules and parameters: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict.

#include "athanor/nn/any.h"
#include "athanor/nn/cloneable.h"
#include "athanor/nn/options.h"

namespace athanor::nn {

/// A function of one tensor as a module: `Functional(relu)`, `Functional(log_softmax, 1, std::nullopt)` with what the
/// function takes besides.
class FunctionalImpl : public Cloneable<FunctionalImpl> {
 public:
  using Function = std::function<Tensor(Tensor)>;
  explicit FunctionalImpl(Function function) : function_(std::move(function)) {}
  template <class F, class... Args>
  requires(sizeof...(Args) > 0) explicit FunctionalImpl(F function, Args&&... args)
      : function_([function, more = std::make_tuple(std::decay_t<Args>(args)...)](Tensor input) -> Tensor {
          return std::apply([&](const auto&... a) -> Tensor { return function(std::move(input), a...); }, more);
        }) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(Tensor input) { return function_(std::move(input)); }

 private:
  Function function_;
};
ATHANOR_LIBRARY_MODULE(Functional);

/// Modules called one after the other; each gets what the one before returned.
class SequentialImpl : public Cloneable<SequentialImpl> {
 public:
  using Iterator = std::vector<AnyModule>::iterator;
  using ConstIterator = std::vector<AnyModule>::const_iterator;

  SequentialImpl() = default;
  template <class... Modules>
  requires(sizeof...(Modules) > 0 && !(std::is_base_of_v<SequentialImpl, std::decay_t<Modules>> || ...) &&
           !(std::is_same_v<OrderedDict<std::string, AnyModule>, std::decay_t<Modules>> ||
             ...)) explicit SequentialImpl(Modules&&... modules) {
    (push_back(std::forward<Modules>(modules)), ...);
  }
  explicit SequentialImpl(OrderedDict<std::string, AnyModule>&& modules);
  explicit SequentialImpl(std::initializer_list<NamedAnyModule> modules);

  /// Copies every module.
  std::shared_ptr<Module> clone(const std::optional<Device>& device = std::nullopt) const override;
  /// Nothing to reset: clone() replaces the modules.
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;

  /// The last result, which must be a Result. Throws Error if empty.
  template <class Result = Tensor, class... Inputs>
  Result forward(Inputs&&... inputs) {
    check_filled();
    if constexpr (std::is_same_v<Result, Tensor> && sizeof...(Inputs) == 1 &&
                  (std::is_same_v<std::decay_t<Inputs>, Tensor> && ...)) {
      if (modules_.size() == 1) return modules_[0].forward(inputs...);
      return forward_rest(modules_[0].any_forward(Tensor(inputs)...));
    } else {
      AnyValue value = modules_[0].any_forward(std::forward<Inputs>(inputs)...);
      for (std::size_t i = 1; i < modules_.size(); ++i) value = modules_[i].any_forward(std::move(value));
      return result<Result>(value);
    }
  }

  /// So that a Sequential can be part of another.
  Tensor forward_as_any(const Tensor& x) { return forward(x); }

  template <class M>
  void push_back(std::shared_ptr<M> module) {
    push_back(std::to_string(modules_.size()), std::move(module));
  }
  template <class M>
  void push_back(std::string name, std::shared_ptr<M> module) {
    push_back(std::move(name), AnyModule(std::move(module)));
  }
  template <class M>
  requires(std::is_base_of_v<Module, std::decay_t<M>>) void push_back(M&& module) {
    push_back(std::to_string(modules_.size()), std::forward<M>(module));
  }
  template <class M>
  requires(std::is_base_of_v<Module, std::decay_t<M>>) void push_back(std::string name, M&& module) {
    push_back(std::move(name), std::make_shared<std::decay_t<M>>(std::forward<M>(module)));
  }
  template <class M>
  void push_back(const ModuleHolder<M>& holder) {
    push_back(std::to_string(modules_.size()), holder);
  }
  template <class M>
  void push_back(std::string name, const ModuleHolder<M>& holder) {
    push_back(std::move(name), holder.ptr());
  }
  void push_back(AnyModule module) { push_back(std::to_string(modules_.size()), std::move(module)); }
  void push_back(std::string name, AnyModule module);
  /// Appends the modules of a vector or another container.
  template <class Container>
  void extend(const Container& container) {
    for (const auto& module : container) push_back(module);
  }

  Iterator begin() { return modules_.begin(); }
  Iterator end() { return modules_.end(); }
  ConstIterator begin() const { return modules_.begin(); }
  ConstIterator end() const { return modules_.end(); }
  /// The module at a position. Throws IndexError out of range, Error if it is not a T.
  template <class T>
  requires(!detail::is_module_holder<T>) T& at(std::size_t index) { return modules_[checked(index)].get<T>(); }
  template <class T>
  requires(!detail::is_module_holder<T>) const T& at(std::size_t index) const {
    return modules_[checked(index)].get<T>();
  }
  std::shared_ptr<Module> ptr(std::size_t index) const { return modules_[checked(index)].ptr(); }
  template <class T>
  std::shared_ptr<T> ptr(std::size_t index) const {
    return modules_[checked(index)].ptr<T>();
  }
  std::shared_ptr<Module> operator[](std::size_t index) const { return ptr(index); }
  std::size_t size() const noexcept { return modules_.size(); }
  bool is_empty() const noexcept { return modules_.empty(); }

 private:
  std::size_t checked(std::size_t index) const;
  void check_filled() const;
  Tensor forward_rest(AnyValue value);
  template <class Result>
  static Result result(AnyValue& value) {
    if (auto* v = value.try_get<Result>()) return std::move(*v);
    ATHANOR_THROW(Error, "The type of the return value is ", detail::type_name(value.type_info()),
                  ", but you asked for type ", detail::type_name(typeid(Result)));
  }

  std::vector<AnyModule> modules_;
};

ATHANOR_CLONEABLE_OF(SequentialImpl);
class Sequential : public ModuleHolder<SequentialImpl> {
 public:
  using Impl = SequentialImpl;
  using ModuleHolder<SequentialImpl>::ModuleHolder;
  Sequential() = default;
  Sequential(std::initializer_list<NamedAnyModule> modules) : ModuleHolder(std::make_shared<SequentialImpl>(modules)) {}
  template <class... Inputs>
  Tensor operator()(Inputs&&... inputs) {
    return detail::call_module(*ptr(), std::forward<Inputs>(inputs)...);
  }
};

/// Modules by position, registered under "0", "1", …; not called as one.
class ModuleListImpl : public Cloneable<ModuleListImpl> {
 public:
  using Iterator = std::vector<std::shared_ptr<Module>>::iterator;
  using ConstIterator = std::vector<std::shared_ptr<Module>>::const_iterator;

  ModuleListImpl() = default;
  template <class... Modules>
  requires(sizeof...(Modules) > 0 && !(std::is_base_of_v<ModuleListImpl, std::decay_t<Modules>> ||
                                       ...)) explicit ModuleListImpl(Modules&&... modules) {
    (push_back(std::forward<Modules>(modules)), ...);
  }
  std::shared_ptr<Module> clone(const std::optional<Device>& device = std::nullopt) const override;
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;

  void push_back(std::shared_ptr<Module> module);
  template <class M>
  requires(std::is_base_of_v<Module, std::decay_t<M>>) void push_back(M&& module) {
    push_back(std::shared_ptr<Module>(std::make_shared<std::decay_t<M>>(std::forward<M>(module))));
  }
  template <class M>
  void push_back(const ModuleHolder<M>& holder) {
    push_back(std::shared_ptr<Module>(holder.ptr()));
  }
  template <class Container>
  void extend(const Container& container) {
    for (const auto& module : container) push_back(module);
  }
  /// Puts the module before position `index` (0 … size). Throws IndexError out of range.
  void insert(std::size_t index, std::shared_ptr<Module> module);
  template <class M>
  requires(std::is_base_of_v<Module, std::decay_t<M>>) void insert(std::size_t index, M&& module) {
    insert(index, std::shared_ptr<Module>(std::make_shared<std::decay_t<M>>(std::forward<M>(module))));
  }
  template <class M>
  void insert(std::size_t index, const ModuleHolder<M>& holder) {
    insert(index, std::shared_ptr<Module>(holder.ptr()));
  }

  Iterator begin() { return modules_.begin(); }
  Iterator end() { return modules_.end(); }
  ConstIterator begin() const { return modules_.begin(); }
  ConstIterator end() const { return modules_.end(); }
  template <class T>
  T& at(std::size_t index) {
    return *ptr<T>(index);
  }
  template <class T>
  const T& at(std::size_t index) const {
    return *ptr<T>(index);
  }
  std::shared_ptr<Module> ptr(std::size_t index) const;
  template <class T>
  std::shared_ptr<T> ptr(std::size_t index) const {
    auto module = std::dynamic_pointer_cast<T>(ptr(index));
    ATHANOR_CHECK(module, "Unable to cast module[", index, "] to ", detail::type_name(typeid(T)));
    return module;
  }
  std::shared_ptr<Module> operator[](std::size_t index) const { return ptr(index); }
  std::size_t size() const noexcept { return modules_.size(); }
  bool is_empty() const noexcept { return modules_.empty(); }

 private:
  std::vector<std::shared_ptr<Module>> modules_;
};
ATHANOR_LIBRARY_MODULE(ModuleList);

/// Modules by name, in order of insertion.
class ModuleDictImpl : public Cloneable<ModuleDictImpl> {
 public:
  using Iterator = OrderedDict<std::string, std::shared_ptr<Module>>::Iterator;
  using ConstIterator = OrderedDict<std::string, std::shared_ptr<Module>>::ConstIterator;

  ModuleDictImpl() = default;
  explicit ModuleDictImpl(const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& modules);
  explicit ModuleDictImpl(const OrderedDict<std::string, std::shared_ptr<Module>>& modules);
  std::shared_ptr<Module> clone(const std::optional<Device>& device = std::nullopt) const override;
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;

  std::vector<std::pair<std::string, std::shared_ptr<Module>>> items() const { return modules_.pairs(); }
  std::vector<std::string> keys() const { return modules_.keys(); }
  std::vector<std::shared_ptr<Module>> values() const { return modules_.values(); }
  Iterator begin() { return modules_.begin(); }
  Iterator end() { return modules_.end(); }
  ConstIterator begin() const { return modules_.begin(); }
  ConstIterator end() const { return modules_.end(); }
  std::size_t size() const noexcept { return modules_.size(); }
  bool empty() const noexcept { return modules_.is_empty(); }
  bool contains(const std::string& key) const noexcept { return modules_.contains(key); }
  void clear();
  /// Adds a module, or replaces the one of that name.
  void insert(const std::string& key, std::shared_ptr<Module> module);
  template <class M>
  void insert(const std::string& key, const ModuleHolder<M>& holder) {
    insert(key, std::shared_ptr<Module>(holder.ptr()));
  }
  /// Removes and returns the module. Throws Error if there is none of that name.
  std::shared_ptr<Module> pop(const std::string& key);
  void update(const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& modules);
  void update(const OrderedDict<std::string, std::shared_ptr<Module>>& modules) { update(modules.pairs()); }
  void update(const ModuleDictImpl& other) { update(other.modules_); }
  std::shared_ptr<Module> operator[](const std::string& key) const { return modules_[key]; }
  template <class T>
  T& at(const std::string& key) {
    auto* module = modules_[key]->as<T>();
    ATHANOR_CHECK(module, "Unable to cast module[", key, "] to ", detail::type_name(typeid(T)));
    return *module;
  }

 private:
  OrderedDict<std::string, std::shared_ptr<Module>> modules_{"Module"};
};
ATHANOR_LIBRARY_MODULE(ModuleDict);

/// Parameters by position, registered under "0", "1", …
class ParameterListImpl : public Cloneable<ParameterListImpl> {
 public:
  ParameterListImpl() = default;
  template <class... Tensors>
  requires(sizeof...(Tensors) > 0 &&
           (std::is_convertible_v<Tensors, Tensor> && ...)) explicit ParameterListImpl(Tensors&&... tensors) {
    (append(tensors), ...);
  }
  std::shared_ptr<Module> clone(const std::optional<Device>& device = std::nullopt) const override;
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;
  void append(Tensor parameter);
  template <class Container>
  void extend(const Container& container) {
    for (const auto& t : container) append(t);
  }
  void append(const OrderedDict<std::string, Tensor>::Item& item) { append(item.value()); }
  /// Appends the other list's parameters.
  ParameterListImpl& operator+=(const ParameterListImpl& other) {
    for (const auto& t : other.parameters_.values()) append(t);
    return *this;
  }
  Tensor& operator[](std::size_t index) { return parameters_[index].value(); }
  const Tensor& at(std::size_t index) const { return parameters_[index].value(); }
  std::size_t size() const noexcept { return parameters_.size(); }
  bool is_empty() const noexcept { return parameters_.is_empty(); }
  auto begin() { return parameters_.begin(); }
  auto end() { return parameters_.end(); }
  auto begin() const { return parameters_.begin(); }
  auto end() const { return parameters_.end(); }
};
ATHANOR_LIBRARY_MODULE(ParameterList);

/// Parameters by name.
class ParameterDictImpl : public Cloneable<ParameterDictImpl> {
 public:
  ParameterDictImpl() = default;
  explicit ParameterDictImpl(const OrderedDict<std::string, Tensor>& parameters);
  std::shared_ptr<Module> clone(const std::optional<Device>& device = std::nullopt) const override;
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;
  /// Adds a parameter. Throws Error if the name is taken.
  Tensor& insert(const std::string& key, Tensor parameter);
  Tensor pop(const std::string& key);
  /// Adds the other dict's parameters; one whose name is taken replaces the old one.
  void update(const ParameterDictImpl& other);
  Tensor& operator[](const std::string& key) { return parameters_[key]; }
  const Tensor& get(const std::string& key) const { return parameters_[key]; }
  bool contains(const std::string& key) const noexcept { return parameters_.contains(key); }
  std::vector<std::string> keys() const { return parameters_.keys(); }
  std::vector<Tensor> values() const { return parameters_.values(); }
  std::size_t size() const noexcept { return parameters_.size(); }
  bool empty() const noexcept { return parameters_.is_empty(); }
  void clear() { parameters_.clear(); }
  auto begin() { return parameters_.begin(); }
  auto end() { return parameters_.end(); }
};
ATHANOR_LIBRARY_MODULE(ParameterDict);

}  // namespace athanor::nn
