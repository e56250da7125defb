#pragma once
/// Which gradients a running backward asks for.

#include "athanor/tape/node.h"

namespace athanor::detail {

/// A backward for some inputs alone follows only the edges that lead to one of them; a gradient for another edge would
/// be thrown away. Ops ask before they compute one.
class WantedEdges {
 public:
  virtual bool leads(const Node* node) const = 0;

 protected:
  ~WantedEdges() = default;
};

/// Of the innermost backward of this thread; null: every edge is followed.
extern thread_local const WantedEdges* wanted_edges __attribute__((tls_model("initial-exec")));

/// Whether the running backward wants the gradient of input `i` of `node`.
inline bool wants_gradient(const Node& node, std::size_t i) {
  return node.needs(i) && (__builtin_expect(!wanted_edges, 1) || wanted_edges->leads(node.edge(i).node.get()));
}

}  // namespace athanor::detail
