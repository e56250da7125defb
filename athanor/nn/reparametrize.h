#pragma once
/// Weights that are computed from other parameters before every forward: weight_norm and spectral_norm of
/// torch.nn.utils, with PyTorch's names in the state_dict.
///
///     nn::Linear fc = nn::utils::weight_norm(nn::Linear(20, 40));   // weight_g, weight_v instead of weight
///     y = fc(x);
///
/// The weight is computed when the module is called by its holder (`fc(x)`), in a container or as an AnyModule;
/// `fc->forward(x)` uses what was computed last, as Python's forward does. clone() keeps it.

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "athanor/nn/conv.h"
#include "athanor/nn/module.h"

namespace athanor::nn {

/// One parameter of a module that is computed from others.
class Reparametrization {
 public:
  /// Where the module keeps the tensor that its forward uses.
  using Slot = std::function<Tensor&(Module&)>;

  Reparametrization(std::string name, Slot slot) : name_(std::move(name)), slot_(std::move(slot)) {}
  virtual ~Reparametrization() = default;
  const std::string& name() const { return name_; }
  Tensor& slot(Module& module) const { return slot_(module); }

  /// "weight_norm".
  virtual const char* kind() const = 0;
  /// Registers what the weight is computed from in a module that has it as a plain parameter, and takes that out.
  virtual void attach(Module& module) const = 0;
  /// The weight. `step`: before a forward of a module in training.
  virtual Tensor compute(Module& module, bool step) const = 0;
  /// Takes out what attach() registered.
  virtual void detach(Module& module) const = 0;

 protected:
  std::string name_;
  Slot slot_;
};

namespace utils {
namespace detail {

void add_weight_norm(Module& module, const std::string& name, Reparametrization::Slot slot,
                     std::optional<std::int64_t> dim);
void add_spectral_norm(Module& module, const std::string& name, Reparametrization::Slot slot,
                       std::int64_t n_power_iterations, double eps, std::optional<std::int64_t> dim);
void remove(Module& module, const std::string& name, const char* kind);
[[noreturn]] void fail_slot(const Module& module, const std::string& name);

/// The member of that name, among those that this library's layers have.
template <class M>
Reparametrization::Slot slot_of(const M& module, const std::string& name) {
#define ATHANOR_SLOT(member)                             \
  if constexpr (requires(M & m) {                        \
                  { m.member } -> std::same_as<Tensor&>; \
                })                                       \
    if (name == #member) return [](Module& m) -> Tensor& { return static_cast<M&>(m).member; }
  ATHANOR_SLOT(weight);
  ATHANOR_SLOT(bias);
  ATHANOR_SLOT(weight_ih);
  ATHANOR_SLOT(weight_hh);
  ATHANOR_SLOT(in_proj_weight);
#undef ATHANOR_SLOT
  fail_slot(module, name);
}
template <class M>
Reparametrization::Slot slot_of(Tensor M::*member) {
  return [member](Module& m) -> Tensor& { return static_cast<M&>(m).*member; };
}

}  // namespace detail

/// weight = g · v / ‖v‖, the norm taken over all dims but `dim`, or over all for nullopt. Salimans & Kingma, "Weight
/// normalization", 2016. Registers NAME_g and NAME_v in the place of NAME; the value stays. `name`: weight, bias,
/// weight_ih, weight_hh or in_proj_weight. Throws Error for a module without such a parameter or when it is computed
/// already. Gives back the module.
template <class Holder>
Holder weight_norm(Holder module, const std::string& name = "weight", std::optional<std::int64_t> dim = 0) {
  detail::add_weight_norm(*module, name, detail::slot_of(*module, name), dim);
  return module;
}
/// The same for a parameter that a program's own module keeps in `member`.
template <class Holder, class M>
Holder weight_norm(Holder module, const std::string& name, Tensor M::*member, std::optional<std::int64_t> dim = 0) {
  detail::add_weight_norm(*module, name, detail::slot_of(member), dim);
  return module;
}
/// Makes NAME a plain parameter again, with the value it has. Throws ValueError if it has no weight_norm.
template <class Holder>
Holder remove_weight_norm(Holder module, const std::string& name = "weight") {
  detail::remove(*module, name, "weight_norm");
  return module;
}

/// weight = w / σ(w), σ the largest singular value of w seen as a matrix whose rows are `dim` (by default 0, 1 for
/// transposed convolutions), estimated by `n_power_iterations` steps of the power method before each forward in
/// training. Miyato and others, "Spectral normalization for generative adversarial networks", 2018. Registers
/// NAME_orig and the buffers NAME_u and NAME_v. Errors as weight_norm; ValueError for less than one iteration.
template <class Holder>
Holder spectral_norm(Holder module, const std::string& name = "weight", std::int64_t n_power_iterations = 1,
                     double eps = 1e-12, std::optional<std::int64_t> dim = {}) {
  using M = typename Holder::ContainedType;
  constexpr bool kTransposed = std::is_same_v<M, ConvTranspose1dImpl> || std::is_same_v<M, ConvTranspose2dImpl> ||
                               std::is_same_v<M, ConvTranspose3dImpl>;
  detail::add_spectral_norm(*module, name, detail::slot_of(*module, name), n_power_iterations, eps,
                            dim.value_or(kTransposed ? 1 : 0));
  return module;
}
template <class Holder, class M>
Holder spectral_norm(Holder module, const std::string& name, Tensor M::*member, std::int64_t n_power_iterations = 1,
                     double eps = 1e-12, std::int64_t dim = 0) {
  detail::add_spectral_norm(*module, name, detail::slot_of(member), n_power_iterations, eps, dim);
  return module;
}
template <class Holder>
Holder remove_spectral_norm(Holder module, const std::string& name = "weight") {
  detail::remove(*module, name, "spectral_norm");
  return module;
}

}  // namespace utils
}  // namespace athanor::nn
