#pragma once
/// The engine: walks the tape backwards. One loop in the caller's thread, no recursion over the graph; a backward
/// inside a backward (from a hook or a Function) is a new loop. Concurrent calls from several threads are allowed.

#include <vector>

#include "athanor/tape/node.h"

namespace athanor::autograd {

/// Runs backward from `roots` with their incoming gradients. With `inputs`, returns the gradients that reach those
/// edges (undefined where none does) and, unless `accumulate` is set, leaves all `.grad` alone.
std::vector<TensorBase> run_backward(const std::vector<Edge>& roots, std::vector<TensorBase> gradients, bool keep_graph,
                                     bool create_graph, const std::vector<Edge>& inputs, bool accumulate);

}  // namespace athanor::autograd
