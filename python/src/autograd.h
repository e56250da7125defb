#pragma once
/// Autograd as Python sees it: nodes, hooks, Function, grad modes.

#include <nanobind/nanobind.h>

#include <functional>

#include "athanor/tape/node.h"
#include "python/src/arguments.h"

namespace athanor::python {

void bind_autograd(nanobind::module_& m);
void bind_graph(nanobind::module_& m);
/// A node as Python sees it.
struct NodeHandle {
  IntrusivePtr<Node> node;
};
/// New reference: the object of a node, None for none.
PyObject* node_object(IntrusivePtr<Node> node);
/// New reference: what the node of a Function in Python keeps for backward, None for other nodes.
PyObject* node_context(const Node& node);

/// A Python callable that any thread may call or drop. A Python error in it travels on as nanobind::python_error.
class PythonCallable {
 public:
  explicit PythonCallable(PyObject* function) : held_(Py_NewRef(function), release_later) {}
  PyObject* get() const { return held_.get(); }
  /// Calls it with one tensor, with the interpreter lock held for the call only; a tensor it returns, or none.
  Tensor operator()(const Tensor& t) const;

 private:
  std::shared_ptr<PyObject> held_;
};

}  // namespace athanor::python
