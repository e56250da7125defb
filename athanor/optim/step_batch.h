#pragma once
/// Not for programs: how an optimizer hands all its parameters to one kernel call.

#include <initializer_list>
#include <utility>
#include <vector>

#include "athanor/ops/kernels/optim.h"
#include "athanor/ops/launch.h"
#include "athanor/optim/optimizer.h"
#include "athanor/profiler/record.h"

namespace athanor::optim {

/// Parameters with their gradients and states, made dense where they are not.
struct StepTensors {
  std::vector<TensorBase> params, state;
  std::vector<athanor::detail::Stored> grads;
  std::vector<std::pair<Tensor, Tensor>> copies;  ///< parameter and its dense copy

  bool takes(const Tensor& p) const {
    return params.empty() || (params[0].dtype() == p.dtype() && params[0].device() == p.device());
  }
  /// States that are missing are made, filled with `initial`.
  void add(Tensor& p, const Tensor& grad, ParamState& own, std::initializer_list<const char*> names, double initial);
  /// Writes copies back, counts the change of the parameters and forgets everything.
  void finish();
};

/// Collects parameters until something makes one call impossible: another device, another dtype or other numbers.
template <class Step>
class StepBatch {
 public:
  explicit StepBatch(const StepKernel<Step>& kernel) : kernel_(kernel) {}
  void add(Tensor& p, const Tensor& grad, ParamState& own, std::initializer_list<const char*> names, const Step& step,
           double initial = 0) {
    if (!tensors_.takes(p) || !(step == step_)) run();
    step_ = step;
    tensors_.add(p, grad, own, names, initial);
  }
  void run() {
    if (tensors_.params.empty()) return;
    const profiler::detail::Scope scope({.fixed_name = kernel_.name(), .kind = profiler::EventKind::Op});
    launch<2>(kernel_, tensors_.params, tensors_.state, tensors_.grads, step_);
    tensors_.finish();
  }

 private:
  const StepKernel<Step>& kernel_;
  StepTensors tensors_;
  Step step_{};
};

namespace detail {
void check_options(double lr, double eps, double weight_decay);
void check_betas(double beta1, double beta2);
}  // namespace detail

}  // namespace athanor::optim
