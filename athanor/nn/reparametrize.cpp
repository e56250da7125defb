#include "athanor/nn/reparametrize.h"

#include "athanor/ops/factory.h"

namespace athanor::nn {
namespace {

/// The norm of v over all dims but `dim`, which is kept with the others as 1; over all for nullopt.
Tensor norm_except(const Tensor& v, std::optional<std::int64_t> dim) {
  if (!dim) return v.norm();
  std::vector<std::int64_t> dims;
  for (std::int64_t d = 0; d < v.dim(); ++d)
    if (d != *dim) dims.push_back(d);
  if (dims.empty()) return v.abs();
  return v.norm(2, dims, true);
}

class WeightNorm final : public Reparametrization {
 public:
  WeightNorm(std::string name, Slot slot, std::optional<std::int64_t> dim)
      : Reparametrization(std::move(name), std::move(slot)), dim_(dim) {}
  const char* kind() const override { return "weight_norm"; }
  void attach(Module& module) const override {
    const Tensor weight = module.unregister_parameter(name_);
    module.register_parameter(name_ + "_g", norm_except(weight, dim_).detach());
    module.register_parameter(name_ + "_v", weight.detach());
  }
  Tensor compute(Module& module, bool) const override {
    const auto own = module.named_parameters(false);
    const Tensor &g = own[name_ + "_g"], &v = own[name_ + "_v"];
    return v * (g / norm_except(v, dim_));
  }
  void detach(Module& module) const override {
    module.unregister_parameter(name_ + "_g");
    module.unregister_parameter(name_ + "_v");
  }

 private:
  std::optional<std::int64_t> dim_;
};

class SpectralNorm final : public Reparametrization {
 public:
  SpectralNorm(std::string name, Slot slot, std::int64_t iterations, double eps, std::int64_t dim)
      : Reparametrization(std::move(name), std::move(slot)), iterations_(iterations), eps_(eps), dim_(dim) {}
  const char* kind() const override { return "spectral_norm"; }
  void attach(Module& module) const override {
    const Tensor weight = module.unregister_parameter(name_).detach();
    const Tensor matrix = as_matrix(weight);
    module.register_parameter(name_ + "_orig", weight);
    module.register_buffer(name_ + "_u", unit(randn({matrix.size(0)}, matrix.options())));
    module.register_buffer(name_ + "_v", unit(randn({matrix.size(1)}, matrix.options())));
  }
  Tensor compute(Module& module, bool step) const override {
    const Tensor weight = module.named_parameters(false)[name_ + "_orig"], matrix = as_matrix(weight);
    const auto buffers = module.named_buffers(false);
    Tensor u = buffers[name_ + "_u"], v = buffers[name_ + "_v"];
    if (step) {
      const NoGradGuard off;
      for (std::int64_t i = 0; i < iterations_; ++i) {
        v.copy_(unit(matrix.t().mv(u)));
        u.copy_(unit(matrix.mv(v)));
      }
      // The graph of this forward must survive the changes of the next.
      u = u.clone();
      v = v.clone();
    }
    return weight / u.dot(matrix.mv(v));
  }
  void detach(Module& module) const override {
    module.unregister_parameter(name_ + "_orig");
    module.unregister_buffer(name_ + "_u");
    module.unregister_buffer(name_ + "_v");
  }

 private:
  Tensor as_matrix(const Tensor& weight) const {
    const Tensor first = dim_ == 0 ? weight : weight.movedim(dim_, 0);
    return first.reshape({first.size(0), -1});
  }
  Tensor unit(const Tensor& t) const { return t / t.norm().clamp_min(eps_); }

  std::int64_t iterations_;
  double eps_;
  std::int64_t dim_;
};

}  // namespace

// Members of Module that exist for reparametrizations.

void Module::add_reparametrization(std::shared_ptr<const Reparametrization> r) {
  for (const auto& other : reparametrizations_)
    ATHANOR_CHECK(other->name() != r->name(), r->kind(), ": parameter '", r->name(), "' of ", name(),
                  " is computed by ", other->kind(), " already; remove that first");
  ATHANOR_CHECK(parameters_.contains(r->name()) && parameters_[r->name()].defined(), r->kind(), ": ", name(),
                " has no parameter '", r->name(), "'");
  ATHANOR_CHECK(r->slot(*this).is_same(parameters_[r->name()]), r->kind(), ": the member given for '", r->name(),
                "' of ", name(), " is another tensor than the parameter registered under this name");
  const NoGradGuard off;
  r->attach(*this);
  r->slot(*this) = r->compute(*this, false);
  reparametrizations_.push_back(std::move(r));
}

void Module::remove_reparametrization(const std::string& name, const char* kind) {
  for (auto it = reparametrizations_.begin(); it != reparametrizations_.end(); ++it) {
    const auto r = *it;
    if (r->name() != name || std::string_view(r->kind()) != kind) continue;
    const NoGradGuard off;
    const Tensor weight = r->compute(*this, false).detach();
    r->detach(*this);
    reparametrizations_.erase(it);
    r->slot(*this) = register_parameter(name, weight);
    return;
  }
  ATHANOR_THROW(ValueError, kind, " of '", name, "' not found in ", this->name());
}

void Module::run_reparametrizations(bool step) {
  for (const auto& r : reparametrizations_) r->slot(*this) = r->compute(*this, step);
}

namespace utils::detail {

namespace {
void check_dim(const char* kind, const Module& module, const std::string& name, std::int64_t dim) {
  const auto own = module.named_parameters(false);
  const Tensor* weight = own.find(name);
  ATHANOR_CHECK_INDEX(!weight || (dim >= 0 && dim < weight->dim()), kind, ": dim ", dim, " of '", name,
                      "', which has shape ", weight ? weight->sizes() : IntArrayRef());
}
}  // namespace

void add_weight_norm(Module& module, const std::string& name, Reparametrization::Slot slot,
                     std::optional<std::int64_t> dim) {
  if (dim == -1) dim = std::nullopt;  // PyTorch's way of saying it
  if (dim) check_dim("weight_norm", module, name, *dim);
  module.add_reparametrization(std::make_shared<WeightNorm>(name, std::move(slot), dim));
}

void add_spectral_norm(Module& module, const std::string& name, Reparametrization::Slot slot,
                       std::int64_t n_power_iterations, double eps, std::optional<std::int64_t> dim) {
  ATHANOR_CHECK_VALUE(n_power_iterations > 0,
                      "Expected n_power_iterations to be positive, but got n_power_iterations=", n_power_iterations);
  check_dim("spectral_norm", module, name, dim.value_or(0));
  module.add_reparametrization(
      std::make_shared<SpectralNorm>(name, std::move(slot), n_power_iterations, eps, dim.value_or(0)));
}

void remove(Module& module, const std::string& name, const char* kind) { module.remove_reparametrization(name, kind); }

void fail_slot(const Module& module, const std::string& name) {
  ATHANOR_THROW(Error, module.name(), " has no member tensor '", name,
                "' that is known by name; for a module of your own give it: weight_norm(module, \"", name, "\", &",
                module.name(), "::member)");
}

}  // namespace utils::detail
}  // namespace athanor::nn
