#include "athanor/parallel/average_gradients.h"

#include <map>

#include "athanor/distributed/groups.h"
#include "athanor/ops/factory.h"
#include "athanor/parallel/agreement.h"

namespace athanor::nn::parallel {

void average_gradients(const std::vector<Tensor>& parameters, const distributed::ProcessGroupPtr& given) {
  const distributed::ProcessGroupPtr& group = distributed::group_or_default(given);
  if (group->size() == 1) return;
  const NoGradGuard off;
  std::map<std::pair<std::string, DType>, std::vector<Tensor>> kinds;
  for (const Tensor& p : parameters)
    if (p.requires_grad()) kinds[{p.device().str(), p.dtype()}].push_back(p);
  for (auto& [kind, members] : kinds) {
    // The gradients, and at the end a mark per parameter: whether a rank has one.
    std::vector<Tensor> flat;
    std::vector<double> marks;
    for (const Tensor& p : members) {
      const Tensor& g = p.grad();
      flat.push_back(g.defined() ? g.reshape({-1}) : zeros({p.numel()}, p.options().requires_grad(false)));
      marks.push_back(g.defined() ? 1 : 0);
    }
    flat.push_back(athanor::tensor(marks, TensorOptions(kDouble)).to(flat[0].options()));
    const Tensor all = cat(flat);
    group->all_reduce(all, distributed::ReduceOp::AVG, false, call_for("average_gradients"));
    const auto count = static_cast<std::int64_t>(members.size());
    const Tensor used = all.narrow(0, all.numel() - count, count).to(TensorOptions(kDouble).device(Device()));
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const Tensor& p = members[static_cast<std::size_t>(i)];
      const Tensor average = all.narrow(0, at, p.numel()).view(p.sizes());
      at += p.numel();
      if (used.data_ptr<double>()[i] == 0) continue;
      Tensor& grad = p.mutable_grad();
      if (grad.defined())
        grad.copy_(average);
      else
        grad = average.clone();
    }
  }
}

void average_gradients(const Module& module, const distributed::ProcessGroupPtr& group) {
  average_gradients(module.parameters(), group);
}

}  // namespace athanor::nn::parallel
