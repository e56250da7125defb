#pragma once
/// What data parallelism asks of backward: a place of its choice for a leaf's gradient, to be told when that gradient
/// is complete, and to be called when the whole backward is over.

#include <functional>

#include "athanor/tape/node.h"

namespace athanor::autograd {

/// While `leaf`'s `.grad` is undefined, backward writes its gradient into `home` and makes `.grad` that tensor; what
/// `.grad` already holds is added to, wherever it lies. `complete` runs in the backward's thread after every
/// accumulation, after all post-accumulate hooks. `home` has the leaf's shape, dtype and device. Throws Error if the
/// leaf has a home. While it has one, a backward with create_graph that reaches the leaf throws.
void set_gradient_home(const TensorBase& leaf, const TensorBase& home, std::function<void()> complete);
/// Moves the home; the gradient stays where it is.
void move_gradient_home(const TensorBase& leaf, const TensorBase& home);
/// Nothing happens to a leaf without home.
void clear_gradient_home(const TensorBase& leaf);

/// Calls `f` in this thread when the outermost backward that runs in it has visited all its nodes; what it throws
/// comes out of backward(). If the backward itself fails, `f` is destroyed without a call. Throws Error when no
/// backward runs in this thread.
void at_end_of_backward(std::function<void()> f);

namespace internals {
/// The hook that belongs to a gradient home. It stays behind all others.
inline constexpr std::uint64_t kHomeHookId = UINT64_MAX;
}  // namespace internals

}  // namespace athanor::autograd
