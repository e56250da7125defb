#include "athanor/optim/step_batch.h"

namespace athanor::optim {
namespace {
constexpr std::size_t kReserved = 16;  // parameters for which lists need not grow
}

void StepTensors::add(Tensor& p, const Tensor& grad, ParamState& own, std::initializer_list<const char*> names,
                      double initial) {
  Tensor dense = p;
  if (!p.is_non_overlapping_and_dense()) dense = p.clone(MemoryFormat::Contiguous);
  // What may throw for what it was given comes before the lists are touched.
  athanor::detail::Stored g = detail::step_gradient(grad, dense);
  SmallVector<const Tensor*, 4> states;
  for (const char* name : names) {
    Tensor& t = own.tensors[name];
    states.push_back(&t);
    if (!t.defined())
      t = initial == 0 ? zeros_like(dense) : full_like(dense, initial);
    else if (!detail::same_dense_layout(dense, {&t}))
      t = detail::like_layout(t, dense);
  }
  if (params.empty()) {
    params.reserve(kReserved), grads.reserve(kReserved);
    state.reserve(kReserved * names.size());
  }
  if (dense.impl() != p.impl()) copies.emplace_back(p, dense);
  for (const Tensor* t : states) state.push_back(*t);
  params.push_back(std::move(dense));
  grads.push_back(std::move(g));
}

void StepTensors::finish() {
  for (const TensorBase& p : params) p.impl()->bump_version();
  for (auto& [p, dense] : copies) p.copy_(dense);
  params.clear(), state.clear(), grads.clear(), copies.clear();
}

namespace detail {

void check_options(double lr, double eps, double weight_decay) {
  ATHANOR_CHECK_VALUE(lr >= 0, "Invalid learning rate: ", lr);
  ATHANOR_CHECK_VALUE(eps >= 0, "Invalid epsilon value: ", eps);
  ATHANOR_CHECK_VALUE(weight_decay >= 0, "Invalid weight_decay value: ", weight_decay);
}

void check_betas(double beta1, double beta2) {
  ATHANOR_CHECK_VALUE(beta1 >= 0 && beta1 < 1, "Invalid beta parameter at index 0: ", beta1);
  ATHANOR_CHECK_VALUE(beta2 >= 0 && beta2 < 1, "Invalid beta parameter at index 1: ", beta2);
}

}  // namespace detail
}  // namespace athanor::optim
