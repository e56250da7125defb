#pragma once
/// Cloneable<Derived>: gives a module clone() and asks for reset(), which makes its parameters afresh.

#include "athanor/nn/module.h"

namespace athanor::nn {

template <class Derived>
class Cloneable : public Module {
 public:
  using Module::Module;

  /// Registers parameters, buffers and submodules and gives them their first values.
  virtual void reset() = 0;

  /// A copy of Derived's own members, then reset(), then the values of all parameters, buffers and submodules.
  std::shared_ptr<Module> clone(const std::optional<Device>& device = std::nullopt) const override;

 private:
  void clone_(Module& other, const std::optional<Device>& device) final;
};

// Outside of the class, so that they are not inline: those of the library's modules, compiled in instantiate.cpp, would
// be instantiated in every program for the sake of inlining.

template <class Derived>
std::shared_ptr<Module> Cloneable<Derived>::clone(const std::optional<Device>& device) const {
  const NoGradGuard guard;
  auto copy = std::make_shared<Derived>(static_cast<const Derived&>(*this));
  forget_registrations(*copy);
  copy->reset();
  copy_registrations(*copy, device);
  return copy;
}

template <class Derived>
void Cloneable<Derived>::clone_(Module& other, const std::optional<Device>& device) {
  // The copy's children were made by its reset(); the values come from `other`.
  const std::shared_ptr<Module> clone = other.clone(device);
  const auto* same = dynamic_cast<const Derived*>(clone.get());
  if (!same) fail_clone_type();
  static_cast<Derived&>(*this) = *same;
}

}  // namespace athanor::nn
