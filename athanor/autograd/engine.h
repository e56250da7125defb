#pragma once
/// The engine: walks the tape backwards. One loop in the caller's thread, no recursion over the graph; a backward
/// inside a backward (from a hook or a Function) is a new loop. Concurrent calls from several threads are allowed.

#include <atomic>
#include <vector>

#include "athanor/tape/node.h"

namespace athanor::autograd {

/// Runs backward from `roots` with their incoming gradients. With `inputs`, returns the gradients that reach those
/// edges (undefined where none does) and, unless `accumulate` is set, leaves all `.grad` alone.
std::vector<TensorBase> run_backward(const std::vector<Edge>& roots, std::vector<TensorBase> gradients, bool keep_graph,
                                     bool create_graph, const std::vector<Edge>& inputs, bool accumulate);

/// For a node that makes a graph while it runs, which leads from its results to the edges `own` and to whatever else
/// was used: a part of the backward that runs the node. Returns the gradients that reach `own`, where the walk ends.
/// Adds to the `.grad` of leaves if that backward is for all; else the gradients of the inputs that it was asked for
/// join those that have come by other ways. Without a backward around it, it is one for all leaves.
std::vector<TensorBase> run_inner_backward(const std::vector<Edge>& roots, std::vector<TensorBase> gradients,
                                           const std::vector<Edge>& own, bool create_graph);

/// A member of the nodes that say has_inner_graph(), so that graphs without any need not be searched for them.
class InnerGraph {
 public:
  InnerGraph() { alive_.fetch_add(1, std::memory_order_relaxed); }
  ~InnerGraph() { alive_.fetch_sub(1, std::memory_order_relaxed); }
  InnerGraph(const InnerGraph&) = delete;
  InnerGraph& operator=(const InnerGraph&) = delete;
  static bool any() { return alive_.load(std::memory_order_relaxed) > 0; }

 private:
  static std::atomic<std::int64_t> alive_;
};

}  // namespace athanor::autograd
