#pragma once
/// AutogradMeta: what autograd knows of one tensor. Made only for tensors that need it: leaves that require grad,
/// results of recorded ops, and views.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "athanor/tape/node.h"

namespace athanor {

/// How a view came about, which decides what an in-place op on it may do.
enum class ViewOrigin : std::uint8_t { Ordinary, NoGrad, MultiOutput };

struct TensorHooks {
  using Hook = std::function<TensorBase(const TensorBase&)>;
  std::vector<std::pair<std::uint64_t, Hook>> hooks;
  std::vector<std::pair<std::uint64_t, std::function<void(const TensorBase&)>>> post_accumulate;
};

struct AutogradMeta : FreeList<AutogradMeta> {
  TensorBase grad;
  IntrusivePtr<Node> grad_fn;
  std::uint32_t output_nr = 0;
  bool requires_grad = false;  ///< a leaf asks for its gradient
  bool retains_grad = false;
  bool is_view = false;
  ViewOrigin origin = ViewOrigin::Ordinary;
  std::uint32_t view_version = 0;  ///< version of the storage when grad_fn was made, for views
  TensorBase view_base;
  Node* accumulator = nullptr;  ///< weak: cleared by the node under `lock`
  std::mutex lock;              ///< guards accumulator, and grad while backward accumulates
  std::unique_ptr<TensorHooks> hooks;
  /// Points to the tensor while it lives; shared with hooks that must not keep it alive.
  std::shared_ptr<TensorImpl*> self;
  ~AutogradMeta() {
    if (self) *self = nullptr;
  }
  /// Gradient home: when set and `grad` is undefined, the first gradient is written here and `grad` points at it.
  TensorBase gradient_home;
};

namespace detail {
/// The meta of t, made if absent.
AutogradMeta& autograd_meta(const TensorBase& t);
inline AutogradMeta* autograd_meta_or_null(const TensorBase& t) { return t.impl() ? t.impl()->autograd : nullptr; }
/// Identifiers of hooks are unique in the process.
std::uint64_t next_hook_id();
}  // namespace detail

}  // namespace athanor
