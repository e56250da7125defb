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
  std::shared_ptr<Module> clone(const std::optional<Device>& device = std::nullopt) const override {
    const NoGradGuard guard;
    const auto& self = static_cast<const Derived&>(*this);
    auto copy = std::make_shared<Derived>(self);
    copy->parameters_.clear();
    copy->buffers_.clear();
    copy->children_.clear();
    copy->transient_buffers_.clear();
    copy->reset();
    copy_tensors("parameters", parameters_, copy->parameters_, device);
    copy_tensors("buffers", buffers_, copy->buffers_, device);
    ATHANOR_CHECK(copy->children_.size() == children_.size(),
                  "The cloned module does not have the same number of child modules as the original module after "
                  "calling reset(). Are you sure you called register_module() inside reset() and not the constructor?");
    for (const auto& child : children_) copy->children_[child.key()]->clone_(*child.value(), device);
    return copy;
  }

 private:
  static void copy_tensors(const char* what, const OrderedDict<std::string, Tensor>& from,
                           OrderedDict<std::string, Tensor>& to, const std::optional<Device>& device) {
    ATHANOR_CHECK(to.size() == from.size(), "The cloned module does not have the same number of ", what,
                  " as the original module after calling reset(). Are you sure you called register_",
                  std::string(what).substr(0, std::string(what).size() - 1),
                  "() inside reset() and not the constructor?");
    for (const auto& item : from) {
      Tensor& target = to[item.key()];
      const Tensor& source = item.value();
      if (!source.defined()) {
        target = Tensor();
        continue;
      }
      const Tensor data = device && !(source.device() == *device) ? source.to(TensorOptions(*device)) : source.clone();
      if (target.defined()) {
        target.set_data(data.detach());
        if (source.is_floating_point()) target.set_requires_grad(source.requires_grad());
      } else {
        target = data.detach().set_requires_grad(source.requires_grad());
      }
    }
  }

  void clone_(Module& other, const std::optional<Device>& device) final {
    // The copy's children were made by its reset(); the values come from `other`.
    const auto clone = std::dynamic_pointer_cast<Derived>(other.clone(device));
    ATHANOR_CHECK(clone,
                  "Attempted to clone submodule, but it is of a different type than the submodule it was to be "
                  "cloned into");
    static_cast<Derived&>(*this) = *clone;
  }
};

}  // namespace athanor::nn
