#pragma once
/// The graph behind a tensor as text for Graphviz: `dot -Tsvg graph.dot`.

#include <map>
#include <string>
#include <vector>

#include "athanor/ops/tensor.h"

namespace athanor::autograd {

/// Every node that backward from `roots` would visit, with the shapes of its results; arrows lead the way of gradients.
/// Leaves are boxes with their names from `names` (a module's named_parameters(), for example). Works for graphs of any
/// depth; the order of lines is that of the nodes' making, newest first.
std::string to_dot(const std::vector<Tensor>& roots, const std::map<std::string, Tensor>& names = {});

}  // namespace athanor::autograd
