#pragma once
/// Gradients that an op adds to a leaf's `.grad` itself, where it would else make a tensor for the engine to add: a
/// pass over a weight's gradient less for each micro-batch.

#include <mutex>

#include "athanor/tape/node.h"

namespace athanor {

/// While it lives, ops of this thread may do so. The engine makes one for a backward() of all leaves, without
/// create_graph.
class DirectGradients {
 public:
  explicit DirectGradients(bool allowed);
  ~DirectGradients();
  DirectGradients(const DirectGradients&) = delete;
  DirectGradients& operator=(const DirectGradients&) = delete;

 private:
  bool before_;
};

/// `.grad` of a leaf, which nobody else adds to meanwhile.
struct DirectGradient {
  TensorBase grad;  ///< undefined where the gradient has to go through the engine
  std::unique_lock<std::mutex> lock;
  explicit operator bool() const { return grad.defined(); }
};
/// That of the leaf which input `i` of `node` leads to, if a gradient may be added to it right now: it is there, dense,
/// of the leaf's dtype, and no hook, gradient home or graph wants to see what is added.
DirectGradient direct_gradient(const Node& node, std::size_t i);

/// Whether input `i` of `node` leads to a leaf that has no gradient yet and takes what it gets as it is: a backward()
/// of all leaves, without hook, gradient home or create_graph.
bool is_first_gradient(const Node& node, std::size_t i);

/// Whether the gradients of the first `count` inputs of `node` go on to the parts 0, 1 … of one split, all that it
/// made, and nobody sees them on the way: not who called backward, no hook, and no node but views.
bool go_unseen_to_one_split(const Node& node, std::size_t count);

}  // namespace athanor
