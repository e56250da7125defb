#pragma once
/// Autograd as Python sees it: nodes, hooks, Function, grad modes.

#include <nanobind/nanobind.h>

#include <functional>

#include "athanor/tape/node.h"
#include "python/src/arguments.h"

namespace athanor::python {

void bind_autograd(nanobind::module_& m);
/// New reference: the object of a node, None for none.
PyObject* node_object(IntrusivePtr<Node> node);

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
