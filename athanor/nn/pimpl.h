#pragma once
/// ModuleHolder: a module by value, held by a shared_ptr, so that `Linear fc(3, 4)` copies like a reference in Python.

#include <memory>
#include <ostream>
#include <tuple>

#include "athanor/nn/module.h"

namespace athanor::nn {

namespace detail {
inline void gather_tensor(std::vector<Tensor>& out, const Tensor& t) { out.push_back(t); }
template <class T>
void gather_tensor(std::vector<Tensor>&, const T&) {}

template <class M, class... Args>
decltype(auto) call_with_hooks(M& module, Args&&... args) {
  std::vector<Tensor> inputs;
  (gather_tensor(inputs, args), ...);
  const std::size_t count = inputs.size();
  module.run_pre_hooks(inputs);
  ATHANOR_CHECK(inputs.size() == count, "forward pre-hook of ", module.name(), ": got ", count, " tensors and left ",
                inputs.size(), "; it must keep their number");
  std::size_t next = 0;
  using Result = decltype(module.forward(std::forward<Args>(args)...));
  // Braced initialization fixes the order in which `next` moves.
  auto call = [&module](auto&&... a) -> decltype(auto) { return module.forward(std::forward<decltype(a)>(a)...); };
  auto pick = [&]<class A>(A&& a) -> decltype(auto) {
    if constexpr (std::is_same_v<std::decay_t<A>, Tensor>)
      return Tensor(inputs[next++]);
    else
      return std::forward<A>(a);
  };
  std::tuple<decltype(pick(std::forward<Args>(args)))...> exchanged{pick(std::forward<Args>(args))...};
  if constexpr (std::is_same_v<std::decay_t<Result>, Tensor>)
    return module.run_hooks(inputs, std::apply(call, std::move(exchanged)));
  else
    return std::apply(call, std::move(exchanged));
}

/// forward with hooks and with the module's path in errors.
template <class M, class... Args>
auto call_module(M& module, Args&&... args) -> decltype(module.forward(std::forward<Args>(args)...)) {
  try {
    if (__builtin_expect(module.has_hooks(), 0)) return call_with_hooks(module, std::forward<Args>(args)...);
    return module.forward(std::forward<Args>(args)...);
  } catch (Error& error) {
    add_module_path(error, module);
    throw;
  }
}
}  // namespace detail

/// Made empty from nullptr; else it makes its module from the arguments. Using an empty one throws Error.
template <class Contained>
class ModuleHolder : detail::ModuleHolderIndicator {
 protected:
  std::shared_ptr<Module> impl_;

 public:
  using ContainedType = Contained;

  ModuleHolder() {
    static_assert(std::is_default_constructible_v<Contained>,
                  "this module has no default constructor: write `Linear linear = nullptr;` for an empty holder");
    impl_ = std::make_shared<Contained>();
  }
  ModuleHolder(std::nullptr_t) {}
  template <class Head, class... Tail>
  requires(sizeof...(Tail) > 0 ||
           (!std::is_base_of_v<ModuleHolder, std::decay_t<Head>> &&
            !std::is_convertible_v<Head, std::shared_ptr<Contained>>)) explicit ModuleHolder(Head&& head,
                                                                                             Tail&&... tail)
      : impl_(std::make_shared<Contained>(std::forward<Head>(head), std::forward<Tail>(tail)...)) {}
  ModuleHolder(std::shared_ptr<Contained> module) : impl_(std::move(module)) {}

  explicit operator bool() const noexcept { return !is_empty(); }
  bool is_empty() const noexcept { return impl_ == nullptr; }
  Contained* operator->() { return get(); }
  const Contained* operator->() const { return get(); }
  Contained& operator*() { return *get(); }
  const Contained& operator*() const { return *get(); }
  std::shared_ptr<Contained> ptr() const {
    check();
    return std::static_pointer_cast<Contained>(impl_);
  }
  Contained* get() {
    check();
    return static_cast<Contained*>(impl_.get());
  }
  const Contained* get() const {
    check();
    return static_cast<const Contained*>(impl_.get());
  }
  /// forward, with hooks.
  template <class... Args, class C = Contained>
  auto operator()(Args&&... args) -> decltype(std::declval<C&>().forward(std::forward<Args>(args)...)) {
    check();
    return detail::call_module(*get(), std::forward<Args>(args)...);
  }
  template <class Arg>
  decltype(auto) operator[](Arg&& arg) {
    check();
    return (*get())[std::forward<Arg>(arg)];
  }

 private:
  void check() const { ATHANOR_CHECK(impl_, "Accessing empty ModuleHolder"); }
};

template <class ModuleType>
std::ostream& operator<<(std::ostream& stream, const ModuleHolder<ModuleType>& holder) {
  return stream << *holder;
}

}  // namespace athanor::nn

/// Defines holder `Name` of module `NameImpl`.
#define ATHANOR_MODULE_IMPL(Name, ImplType)                    \
  class Name : public ::athanor::nn::ModuleHolder<ImplType> {  \
   public:                                                     \
    using ::athanor::nn::ModuleHolder<ImplType>::ModuleHolder; \
    using Impl [[maybe_unused]] = ImplType;                    \
  }
#define ATHANOR_MODULE(Name) ATHANOR_MODULE_IMPL(Name, Name##Impl)

/// For the modules of this library: their Cloneable is compiled once, in athanor/nn/instantiate.cpp, rather than in
/// every program. A program's own modules use ATHANOR_MODULE.
#ifdef ATHANOR_INSTANTIATE_MODULES
#define ATHANOR_CLONEABLE_OF(Impl) template class ::athanor::nn::Cloneable<Impl>
#else
#define ATHANOR_CLONEABLE_OF(Impl) extern template class ::athanor::nn::Cloneable<Impl>
#endif
#define ATHANOR_LIBRARY_MODULE(Name) \
  ATHANOR_CLONEABLE_OF(Name##Impl);  \
  ATHANOR_MODULE(Name)
