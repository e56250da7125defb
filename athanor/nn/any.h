#pragma once
/// AnyModule: any module with a forward, its types forgotten; AnyValue: any result of one. Containers hold these.

#include <any>
#include <cstring>
#include <typeinfo>

#include "athanor/nn/pimpl.h"

namespace athanor::nn {

namespace detail {
std::string type_name(const std::type_info& type);
}

/// A value of any type, asked for by its exact type.
class AnyValue {
 public:
  AnyValue() = default;
  template <class T>
  requires(!std::is_same_v<std::decay_t<T>, AnyValue>) explicit AnyValue(T&& value) : value_(std::forward<T>(value)) {}

  /// The value if it is a T, else null.
  template <class T>
  T* try_get() {
    return std::any_cast<T>(&value_);
  }
  /// The value. Throws Error if it is not a T.
  template <class T>
  T get() {
    if (T* v = try_get<T>()) return *v;
    ATHANOR_THROW(Error, "Attempted to cast AnyValue to ", detail::type_name(typeid(T)), ", but its actual type is ",
                  detail::type_name(value_.type()));
  }
  const std::type_info& type_info() const noexcept { return value_.type(); }

 private:
  std::any value_;
};

namespace detail {

class AnyModulePlaceholder {
 public:
  virtual ~AnyModulePlaceholder() = default;
  virtual AnyValue forward(std::vector<AnyValue>&& arguments) = 0;
  /// The common case without detours; only if takes_one_tensor().
  virtual Tensor forward_tensor(const Tensor& x) = 0;
  virtual bool takes_one_tensor() const = 0;
  virtual std::shared_ptr<Module> ptr() const = 0;
  virtual const std::type_info& type() const = 0;
  virtual std::unique_ptr<AnyModulePlaceholder> copy() const = 0;
  virtual std::unique_ptr<AnyModulePlaceholder> clone_module(const std::optional<Device>& device) const = 0;
};

[[noreturn]] void fail_argument(std::size_t index, const std::type_info& expected, const std::type_info& got);
[[noreturn]] void fail_argument_count(const Module& module, std::size_t expected, std::size_t got);
[[noreturn]] void fail_argument_count(const Module& module, std::size_t least, std::size_t most, std::size_t got);

template <class M, class Result, class... Args>
class AnyModuleHolder final : public AnyModulePlaceholder {
 public:
  explicit AnyModuleHolder(std::shared_ptr<M> module) : module_(std::move(module)) {}

  AnyValue forward(std::vector<AnyValue>&& arguments) override {
    return forward_all(std::move(arguments), std::index_sequence_for<Args...>());
  }
  Tensor forward_tensor(const Tensor& x) override {
    if constexpr (kOneTensor) return call_module(*module_, x);
    (void)x;
    return {};
  }
  bool takes_one_tensor() const override { return kOneTensor; }
  std::shared_ptr<Module> ptr() const override { return module_; }
  const std::type_info& type() const override { return typeid(M); }
  std::unique_ptr<AnyModulePlaceholder> copy() const override { return std::make_unique<AnyModuleHolder>(module_); }
  std::unique_ptr<AnyModulePlaceholder> clone_module(const std::optional<Device>& device) const override {
    return std::make_unique<AnyModuleHolder>(std::dynamic_pointer_cast<M>(module_->clone(device)));
  }

 private:
  template <class... A>
  static constexpr bool one_tensor() {
    if constexpr (sizeof...(A) == 1)
      return (std::is_same_v<std::decay_t<A>, Tensor> && ...) && (std::is_convertible_v<const Tensor&, A> && ...);
    else
      return false;
  }
  static constexpr bool kOneTensor = std::is_same_v<std::decay_t<Result>, Tensor> && one_tensor<Args...>();

  template <class A>
  static std::decay_t<A>& checked(std::vector<AnyValue>& arguments, std::size_t i) {
    if (auto* v = arguments[i].try_get<std::decay_t<A>>()) return *v;
    fail_argument(i, typeid(std::decay_t<A>), arguments[i].type_info());
  }
  template <std::size_t... I>
  AnyValue forward_all(std::vector<AnyValue>&& arguments, std::index_sequence<I...>) {
    if (arguments.size() != sizeof...(Args)) {
      if constexpr (requires { module_->_forward_populate_default_args(std::move(arguments)); }) {
        const std::size_t required = module_->_forward_num_required_args();
        if (arguments.size() >= required && arguments.size() < sizeof...(Args))
          return forward_all(module_->_forward_populate_default_args(std::move(arguments)),
                             std::index_sequence_for<Args...>());
        fail_argument_count(*module_, required, sizeof...(Args), arguments.size());
      }
      fail_argument_count(*module_, sizeof...(Args), arguments.size());
    }
    if constexpr (std::is_void_v<Result>) {
      call_module(*module_, static_cast<Args>(checked<Args>(arguments, I))...);
      return AnyValue();
    } else {
      return AnyValue(std::decay_t<Result>(call_module(*module_, static_cast<Args>(checked<Args>(arguments, I))...)));
    }
  }

  std::shared_ptr<M> module_;
};

template <class M, class Class, class Result, class... Args>
std::unique_ptr<AnyModulePlaceholder> make_holder(std::shared_ptr<M> module, Result (Class::*)(Args...)) {
  return std::make_unique<AnyModuleHolder<M, Result, Args...>>(std::move(module));
}
template <class M, class Class, class Result, class... Args>
std::unique_ptr<AnyModulePlaceholder> make_holder(std::shared_ptr<M> module, Result (Class::*)(Args...) const) {
  return std::make_unique<AnyModuleHolder<M, Result, Args...>>(std::move(module));
}

/// Modules whose forward is a template name the signature to be held by.
template <class M>
std::unique_ptr<AnyModulePlaceholder> hold(std::shared_ptr<M> module) {
  ATHANOR_CHECK(module, "AnyModule: the module is empty");
  if constexpr (requires { &M::forward_as_any; })
    return make_holder(std::move(module), &M::forward_as_any);
  else
    return make_holder(std::move(module), &M::forward);
}

}  // namespace detail

/// Holds a module of any class that has one non-template forward. Copies share the module.
class AnyModule {
 public:
  AnyModule() = default;
  template <class M>
  requires(std::is_base_of_v<Module, M>) explicit AnyModule(std::shared_ptr<M> module)
      : content_(detail::hold(std::move(module))) {}
  template <class M>
  requires(std::is_base_of_v<Module, std::decay_t<M>>) explicit AnyModule(M&& module)
      : AnyModule(std::make_shared<std::decay_t<M>>(std::forward<M>(module))) {}
  template <class M>
  explicit AnyModule(const ModuleHolder<M>& holder) : AnyModule(holder.ptr()) {}

  AnyModule(AnyModule&&) = default;
  AnyModule& operator=(AnyModule&&) = default;
  AnyModule(const AnyModule& other) : content_(other.content_ ? other.content_->copy() : nullptr) {}
  AnyModule& operator=(const AnyModule& other) {
    content_ = other.content_ ? other.content_->copy() : nullptr;
    return *this;
  }
  template <class M>
  requires(std::is_base_of_v<Module, M>) AnyModule& operator=(std::shared_ptr<M> module) {
    return *this = AnyModule(std::move(module));
  }

  AnyModule clone(std::optional<Device> device = std::nullopt) const {
    AnyModule out;
    if (content_) out.content_ = content_->clone_module(device);
    return out;
  }

  /// Calls the module. The arguments' types must be exactly those of its forward (Tensor for const Tensor&).
  template <class... Args>
  AnyValue any_forward(Args&&... args) {
    check();
    std::vector<AnyValue> list;
    list.reserve(sizeof...(Args));
    (list.push_back(AnyValue(std::forward<Args>(args))), ...);
    return content_->forward(std::move(list));
  }
  AnyValue any_forward(std::vector<AnyValue> arguments) {
    check();
    return content_->forward(std::move(arguments));
  }
  /// The same for one tensor, without a list.
  AnyValue any_forward_tensor(const Tensor& x) {
    check();
    if (content_->takes_one_tensor()) return AnyValue(content_->forward_tensor(x));
    return any_forward(x);
  }
  template <class Result = Tensor, class... Args>
  Result forward(Args&&... args) {
    check();
    if constexpr (std::is_same_v<Result, Tensor> && sizeof...(Args) == 1 &&
                  (std::is_same_v<std::decay_t<Args>, Tensor> && ...))
      if (content_->takes_one_tensor()) return content_->forward_tensor(args...);
    return any_forward(std::forward<Args>(args)...).template get<Result>();
  }

  /// The module as what it is: a holder or module class. Throws Error if it is something else.
  template <class T>
  requires(detail::is_module_holder<T>) T get()
  const {
    check("get");
    return T(ptr<typename T::ContainedType>());
  }
  template <class T>
  requires(!detail::is_module_holder<T>) T& get() const {
    check("get");
    return *ptr<T>();
  }
  std::shared_ptr<Module> ptr() const {
    check("ptr");
    return content_->ptr();
  }
  template <class T>
  requires(!detail::is_module_holder<T>) std::shared_ptr<T> ptr()
  const {
    check("ptr");
    if (auto module = std::dynamic_pointer_cast<T>(content_->ptr())) return module;
    ATHANOR_THROW(Error, "Attempted to cast module of type ", detail::type_name(content_->type()), " to type ",
                  detail::type_name(typeid(T)));
  }
  const std::type_info& type_info() const {
    check("type_info");
    return content_->type();
  }
  bool is_empty() const noexcept { return content_ == nullptr; }

 private:
  void check(const char* method = "forward") const {
    ATHANOR_CHECK(content_, "Cannot call ", method, "() on an empty AnyModule");
  }
  std::unique_ptr<detail::AnyModulePlaceholder> content_;
};

/// Lets a module whose forward has default arguments be held by AnyModule and Sequential: in the class,
/// `ATHANOR_FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(2.0)}, {2, AnyValue(Tensor())})` lists the default of each argument
/// from the first that has one.
#define ATHANOR_FORWARD_HAS_DEFAULT_ARGS(...)                                         \
 public:                                                                              \
  std::size_t _forward_num_required_args() const {                                    \
    const std::pair<std::size_t, ::athanor::nn::AnyValue> defaults[] = {__VA_ARGS__}; \
    return defaults[0].first;                                                         \
  }                                                                                   \
  std::vector<::athanor::nn::AnyValue> _forward_populate_default_args(                \
      std::vector<::athanor::nn::AnyValue>&& arguments) const {                       \
    const std::pair<std::size_t, ::athanor::nn::AnyValue> defaults[] = {__VA_ARGS__}; \
    std::vector<::athanor::nn::AnyValue> all(std::move(arguments));                   \
    for (const auto& [index, value] : defaults)                                       \
      if (index >= all.size()) all.push_back(value);                                  \
    return all;                                                                       \
  }

/// A module with the name it is to be registered under: `Sequential({{"fc1", Linear(3, 4)}, …})`.
class NamedAnyModule {
 public:
  template <class M>
  requires(std::is_base_of_v<Module, M>) NamedAnyModule(std::string name, std::shared_ptr<M> module)
      : NamedAnyModule(std::move(name), AnyModule(std::move(module))) {}
  template <class M>
  requires(std::is_base_of_v<Module, std::decay_t<M>>) NamedAnyModule(std::string name, M&& module)
      : NamedAnyModule(std::move(name), AnyModule(std::forward<M>(module))) {}
  template <class M>
  NamedAnyModule(std::string name, const ModuleHolder<M>& holder)
      : NamedAnyModule(std::move(name), AnyModule(holder)) {}
  NamedAnyModule(std::string name, AnyModule module) : name_(std::move(name)), module_(std::move(module)) {}
  const std::string& name() const noexcept { return name_; }
  AnyModule& module() noexcept { return module_; }
  const AnyModule& module() const noexcept { return module_; }

 private:
  std::string name_;
  AnyModule module_;
};

}  // namespace athanor::nn
