#include "athanor/ops/direct_gradient.h"

#include "athanor/tape/autograd_meta.h"
#include "athanor/tape/grad_mode.h"

namespace athanor {
namespace {

thread_local bool allowed_here = false;

bool is_plain(const AutogradMeta& meta, const TensorImpl& leaf) {
  if (meta.hooks || meta.gradient_home.defined() || !meta.grad.defined()) return false;
  const TensorImpl& grad = *meta.grad.impl();
  return grad.dtype == leaf.dtype && grad.contiguous && !grad.tracked && grad.device == leaf.device &&
         grad.sizes() == leaf.sizes();
}

}  // namespace

DirectGradients::DirectGradients(bool allowed) : before_(allowed_here) { allowed_here = allowed; }
DirectGradients::~DirectGradients() { allowed_here = before_; }

DirectGradient direct_gradient(const Node& node, std::size_t i) {
  if (!allowed_here || GradMode::is_enabled() || node.hooks_or_null()) return {};
  Node* const end = node.edge(i).node.get();
  TensorImpl* const leaf = end ? end->variable() : nullptr;
  if (!leaf || !leaf->autograd || end->hooks_or_null()) return {};
  std::unique_lock lock(leaf->autograd->lock);
  if (!is_plain(*leaf->autograd, *leaf)) return {};
  return {leaf->autograd->grad, std::move(lock)};
}

}  // namespace athanor
