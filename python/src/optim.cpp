/// `athanor._C._optim`: one update of lists of parameters by the library's fused kernels. State lives in Python, under
/// PyTorch's names; steps and the like are float32 scalars on the host, counted here.

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>

#include "athanor/ops/kernels/optim.h"
#include "athanor/ops/launch.h"
#include "athanor/optim/optimizer.h"
#include "athanor/profiler/record.h"
#include "python/src/convert.h"

namespace nb = nanobind;

namespace athanor::python {
namespace {

using Tensors = std::vector<Tensor>;
/// For each state a list as long as that of the parameters.
using States = std::vector<Tensors>;

void check_lists(const char* name, const Tensors& params, const Tensors& grads, const States& states,
                 std::initializer_list<const Tensors*> scalars, std::size_t wanted) {
  ATHANOR_CHECK_VALUE(states.size() == wanted, name, ": expected ", wanted, " lists of states, got ", states.size());
  ATHANOR_CHECK_VALUE(grads.size() == params.size(), name, ": ", params.size(), " parameters, but ", grads.size(),
                      " gradients");
  for (const Tensors* list : scalars) {
    ATHANOR_CHECK_VALUE(list->size() == params.size(), name, ": ", params.size(), " parameters, but ", list->size(),
                        " step counts");
    for (const Tensor& t : *list)
      ATHANOR_CHECK_VALUE(t.numel() == 1 && t.is_floating_point(), name,
                          ": expected a step count to be a floating scalar, got ", t.toString(), " of shape ",
                          t.sizes());
  }
  for (const Tensors& list : states) {
    ATHANOR_CHECK_VALUE(list.size() == params.size(), name, ": ", params.size(), " parameters, but ", list.size(),
                        " states");
    for (std::size_t i = 0; i < list.size(); ++i)
      ATHANOR_CHECK_VALUE(list[i].sizes() == params[i].sizes() && list[i].device() == params[i].device(), name,
                          ": state of parameter ", i, " has shape ", list[i].sizes(), " on ", list[i].device(),
                          ", expected ", params[i].sizes(), " on ", params[i].device());
  }
  for (std::size_t i = 0; i < params.size(); ++i)
    ATHANOR_CHECK_TYPE(TypeError, params[i].is_floating_point(), name, ": expected floating parameters, got ",
                       params[i].toString(), " as parameter ", i);
}

/// A scalar's value, kept in the dtype the program sees.
double get(const Tensor& t) { return t.item<double>(); }
void set(const Tensor& t, double value) {
  if (t.dtype() == DType::Float && t.device().is_host())
    *t.data_ptr<float>() = static_cast<float>(value);
  else
    Tensor(t).fill_(value);
}
double count(const Tensor& step) {
  const double t = get(step) + 1;
  set(step, t);
  return t;
}

/// Collects parameters until something makes one call impossible: another device, another dtype or other numbers.
template <class Step>
class Batch {
 public:
  explicit Batch(const StepKernel<Step>& kernel) : kernel_(kernel) {}

  void add(const Tensor& p, const Tensor& grad, const States& states, std::size_t i, const Step& step) {
    if (!params_.empty() && (params_[0].dtype() != p.dtype() || params_[0].device() != p.device() || !(step == step_)))
      run();
    step_ = step;
    Tensor dense = p;
    if (!p.is_non_overlapping_and_dense()) {
      dense = p.clone(MemoryFormat::Contiguous);
      copies_.emplace_back(p, dense);
    }
    for (const Tensors& list : states) {
      Tensor own = optim::detail::like_layout(list[i], dense);
      if (!own.is_same(list[i])) copies_.emplace_back(list[i], own);
      state_.push_back(std::move(own));
    }
    grads_.push_back(optim::detail::step_gradient(grad, dense));
    params_.push_back(std::move(dense));
  }

  void run() {
    if (params_.empty()) return;
    {
      const profiler::detail::Scope scope({.fixed_name = kernel_.name(), .kind = profiler::EventKind::Op});
      launch<2>(kernel_, params_, state_, grads_, step_);
    }
    for (const TensorBase& t : params_) t.impl()->bump_version();
    for (const TensorBase& t : state_) t.impl()->bump_version();
    for (auto& [t, dense] : copies_) t.copy_(dense);
    params_.clear(), state_.clear(), grads_.clear(), copies_.clear();
  }

 private:
  const StepKernel<Step>& kernel_;
  std::vector<TensorBase> params_, state_;
  std::vector<athanor::detail::Stored> grads_;
  std::vector<std::pair<Tensor, Tensor>> copies_;  // tensor and its dense copy
  Step step_{};
};

/// Runs `kernel` over everything, with the numbers `numbers(i)` for parameter i; without the interpreter lock.
template <class Step, class Numbers>
void update(const StepKernel<Step>& kernel, const Tensors& params, const Tensors& grads, const States& states,
            const Numbers& numbers) {
  const Unlocked unlocked;
  const NoGradGuard off;
  Batch<Step> batch(kernel);
  for (std::size_t i = 0; i < params.size(); ++i) batch.add(params[i], grads[i], states, i, numbers(i));
  batch.run();
}

void sgd(const Tensors& params, const Tensors& grads, const Tensors& buffers, bool first, double lr, double momentum,
         double dampening, double weight_decay, bool nesterov, bool maximize) {
  States states;
  if (momentum != 0) states.push_back(buffers);
  check_lists("SGD", params, grads, states, {}, states.size());
  const SgdStep s{lr, momentum, dampening, weight_decay, nesterov, maximize, first};
  update(sgd_step_kernel, params, grads, states, [&](std::size_t) { return s; });
}

void adam(const Tensors& params, const Tensors& grads, const States& states, const Tensors& steps, double lr,
          double beta1, double beta2, double eps, double weight_decay, bool amsgrad, bool decoupled, bool maximize) {
  check_lists("Adam", params, grads, states, {&steps}, amsgrad ? 3 : 2);
  update(adam_step_kernel, params, grads, states, [&](std::size_t i) {
    const double t = count(steps[i]);
    return AdamStep{lr,      beta1,     beta2,   eps, weight_decay, 1 - std::pow(beta1, t), 1 - std::pow(beta2, t),
                    amsgrad, decoupled, maximize};
  });
}

void adamax(const Tensors& params, const Tensors& grads, const States& states, const Tensors& steps, double lr,
            double beta1, double beta2, double eps, double weight_decay, bool maximize) {
  check_lists("Adamax", params, grads, states, {&steps}, 2);
  update(adamax_step_kernel, params, grads, states, [&](std::size_t i) {
    return AdamaxStep{lr / (1 - std::pow(beta1, count(steps[i]))), beta1, beta2, eps, weight_decay, maximize};
  });
}

void adadelta(const Tensors& params, const Tensors& grads, const States& states, const Tensors& steps, double lr,
              double rho, double eps, double weight_decay, bool maximize) {
  check_lists("Adadelta", params, grads, states, {&steps}, 2);
  update(adadelta_step_kernel, params, grads, states, [&](std::size_t i) {
    count(steps[i]);
    return AdadeltaStep{lr, rho, eps, weight_decay, maximize};
  });
}

void adagrad(const Tensors& params, const Tensors& grads, const States& states, const Tensors& steps, double lr,
             double lr_decay, double weight_decay, double eps, bool maximize) {
  check_lists("Adagrad", params, grads, states, {&steps}, 1);
  update(adagrad_step_kernel, params, grads, states, [&](std::size_t i) {
    return AdagradStep{lr / (1 + (count(steps[i]) - 1) * lr_decay), weight_decay, eps, maximize};
  });
}

void rmsprop(const Tensors& params, const Tensors& grads, const States& states, const Tensors& steps, double lr,
             double alpha, double eps, double weight_decay, double momentum, bool centered, bool maximize) {
  check_lists("RMSprop", params, grads, states, {&steps}, 1U + centered + (momentum > 0));
  update(rmsprop_step_kernel, params, grads, states, [&](std::size_t i) {
    count(steps[i]);
    return RmspropStep{lr, alpha, eps, weight_decay, momentum, centered, maximize};
  });
}

void rprop(const Tensors& params, const Tensors& grads, const States& states, const Tensors& steps, double eta_minus,
           double eta_plus, double smallest, double largest, bool maximize) {
  check_lists("Rprop", params, grads, states, {&steps}, 2);
  update(rprop_step_kernel, params, grads, states, [&](std::size_t i) {
    count(steps[i]);
    return RpropStep{eta_minus, eta_plus, smallest, largest, maximize};
  });
}

void asgd(const Tensors& params, const Tensors& grads, const States& states, const Tensors& steps, const Tensors& etas,
          const Tensors& mus, double lr, double lambd, double alpha, double t0, double weight_decay, bool maximize) {
  check_lists("ASGD", params, grads, states, {&steps, &etas, &mus}, 1);
  update(asgd_step_kernel, params, grads, states, [&](std::size_t i) {
    const double t = count(steps[i]);
    const AsgdStep s{get(etas[i]), lambd, get(mus[i]), weight_decay, maximize};
    set(etas[i], lr / std::pow(1 + lambd * lr * t, alpha));
    set(mus[i], 1 / std::max(1.0, t - t0));
    return s;
  });
}

void nadam(const Tensors& params, const Tensors& grads, const States& states, const Tensors& steps,
           const Tensors& products, double lr, double beta1, double beta2, double eps, double weight_decay,
           double momentum_decay, bool decoupled, bool maximize) {
  check_lists("NAdam", params, grads, states, {&steps, &products}, 2);
  update(adam_relative_step_kernel, params, grads, states, [&](std::size_t i) {
    const double t = count(steps[i]);
    // The schedule of momenta and their product, in Dozat's notation.
    const double mu = beta1 * (1 - 0.5 * std::pow(0.96, t * momentum_decay));
    const double next = beta1 * (1 - 0.5 * std::pow(0.96, (t + 1) * momentum_decay));
    set(products[i], get(products[i]) * mu);
    const double product = get(products[i]);
    AdamRelativeStep s{};
    s.beta1 = beta1, s.beta2 = beta2, s.eps = eps, s.weight_decay = weight_decay;
    s.average_rate = lr * next / (1 - product * next);
    s.gradient_rate = lr * (1 - mu) / (1 - product);
    s.bias_correction2 = 1 - std::pow(beta2, t);
    s.decoupled = decoupled, s.maximize = maximize, s.adaptive = true;
    s.shrink = decoupled ? 1 - lr * weight_decay : 1;
    return s;
  });
}

void radam(const Tensors& params, const Tensors& grads, const States& states, const Tensors& steps, double lr,
           double beta1, double beta2, double eps, double weight_decay, bool decoupled, bool maximize) {
  check_lists("RAdam", params, grads, states, {&steps}, 2);
  update(adam_relative_step_kernel, params, grads, states, [&](std::size_t i) {
    const double t = count(steps[i]);
    const double correction1 = 1 - std::pow(beta1, t), correction2 = 1 - std::pow(beta2, t);
    // Length of the simple moving average that the exponential one approximates.
    const double longest = 2 / (1 - beta2) - 1;
    const double length = longest - 2 * t * std::pow(beta2, t) / correction2;
    AdamRelativeStep s{};
    s.beta1 = beta1, s.beta2 = beta2, s.eps = eps, s.weight_decay = weight_decay;
    s.bias_correction2 = 1;  // eps is added to the uncorrected root; the correction is part of the rate
    s.adaptive = length > 5;
    s.average_rate = lr / correction1;
    if (s.adaptive)
      s.average_rate *=
          std::sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length) * correction2);
    s.decoupled = decoupled, s.maximize = maximize;
    s.shrink = decoupled ? 1 - lr * weight_decay : 1;
    return s;
  });
}

}  // namespace

void bind_optim(nb::module_& core) {
  nb::module_ m = core.def_submodule("_optim", "One fused update of lists of parameters; see athanor.optim.");
  m.def("sgd", &sgd);
  m.def("adam", &adam);
  m.def("adamax", &adamax);
  m.def("adadelta", &adadelta);
  m.def("adagrad", &adagrad);
  m.def("rmsprop", &rmsprop);
  m.def("rprop", &rprop);
  m.def("asgd", &asgd);
  m.def("nadam", &nadam);
  m.def("radam", &radam);
}

}  // namespace athanor::python
