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

bool is_view_node(const Node& node) {
  const std::string name = node.name();
  return name == "TransposeBackward0" || name == "ViewBackward0" || name == "PermuteBackward0";
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

bool is_first_gradient(const Node& node, std::size_t i) {
  if (!allowed_here || GradMode::is_enabled() || node.hooks_or_null()) return false;
  Node* const end = node.edge(i).node.get();
  TensorImpl* const leaf = end ? end->variable() : nullptr;
  if (!leaf || !leaf->autograd || end->hooks_or_null()) return false;
  const AutogradMeta& meta = *leaf->autograd;
  const std::lock_guard lock(leaf->autograd->lock);
  return !meta.hooks && !meta.gradient_home.defined() && !meta.grad.defined();
}

bool go_unseen_to_one_split(const Node& node, std::size_t count) {
  if (!allowed_here || GradMode::is_enabled() || node.hooks_or_null()) return false;
  const Node* split = nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    const Edge* e = &node.edge(i);
    while (e->node && !e->node->hooks_or_null() && e->node->num_edges() == 1 && is_view_node(*e->node))
      e = &e->node->edge(0);
    const Node* const end = e->node.get();
    if (!end || end->hooks_or_null() || (split && end != split) || static_cast<std::size_t>(e->nr) != i ||
        end->num_outputs() != count || end->name() != "SplitWithSizesBackward0")
      return false;
    split = end;
  }
  return true;
}

}  // namespace athanor
