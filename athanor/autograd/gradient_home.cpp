#include "athanor/autograd/gradient_home.h"

#include "athanor/base/error.h"
#include "athanor/tape/autograd_meta.h"

namespace athanor::autograd {

void set_gradient_home(const TensorBase& leaf, const TensorBase& home, std::function<void()> complete) {
  AutogradMeta& meta = athanor::detail::autograd_meta(leaf);
  const std::lock_guard lock(meta.lock);
  ATHANOR_CHECK(!meta.gradient_home.defined(), "set_gradient_home: a tensor of shape ", leaf.sizes(),
                " has a gradient home already; give up the other owner first");
  meta.gradient_home = home;
  if (!meta.hooks) meta.hooks = std::make_unique<TensorHooks>();
  meta.hooks->post_accumulate.emplace_back(internals::kHomeHookId,
                                           [complete = std::move(complete)](const TensorBase&) { complete(); });
}

void move_gradient_home(const TensorBase& leaf, const TensorBase& home) {
  AutogradMeta& meta = athanor::detail::autograd_meta(leaf);
  const std::lock_guard lock(meta.lock);
  meta.gradient_home = home;
}

void clear_gradient_home(const TensorBase& leaf) {
  AutogradMeta* meta = athanor::detail::autograd_meta_or_null(leaf);
  if (!meta) return;
  const std::lock_guard lock(meta->lock);
  meta->gradient_home = {};
  if (meta->hooks)
    std::erase_if(meta->hooks->post_accumulate, [](const auto& h) { return h.first == internals::kHomeHookId; });
}

}  // namespace athanor::autograd
