#include "python/src/autograd.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <mutex>

#include "athanor/autograd/autograd.h"
#include "athanor/autograd/engine.h"
#include "athanor/autograd/function.h"
#include "athanor/autograd/gradcheck.h"
#include "athanor/ops/ivalue.h"
#include "athanor/tape/anomaly.h"
#include "athanor/tape/grad_mode.h"
#include "python/src/convert.h"
#include "python/src/waiting.h"

namespace nb = nanobind;

namespace athanor::python {
namespace {

using autograd::variable_list;

nb::tuple to_tuple(variable_list&& list) { return nb::steal<nb::tuple>(to_python(std::move(list))); }

class PythonNode;

// Where a context finds the node behind it, without keeping it alive. The last share may go in any thread.
struct NodeCell {
  std::mutex lock;
  PythonNode* node;  // null once it is gone
};

// The node of a torch.autograd.Function: C++'s own kind, whose backward calls Python.
class PythonNode final : public autograd::FunctionNode {
 public:
  PythonNode(std::string name, PyObject* function, PyObject* context)
      : FunctionNode(std::move(name), call_backward), function_(function), context_(context) {
    weakly_held_ = true;
    cell->node = this;
    ctx.saved_data["node"] = IValue(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(this)));
  }
  ~PythonNode() override {
    const std::lock_guard hold(cell->lock);
    cell->node = nullptr;
  }
  PyObject* context() const { return context_.get(); }
  /// How many results forward returned, and which of them are the node's: backward gets a gradient for each of all.
  std::size_t results = 0;
  std::vector<std::size_t> places;
  const std::shared_ptr<NodeCell> cell = std::make_shared<NodeCell>();
  bool has_inner_graph() const override { return inner_graph.has_value(); }
  std::optional<autograd::InnerGraph> inner_graph;

 private:
  static variable_list call_backward(autograd::AutogradContext* c, variable_list grads) {
    auto* self = reinterpret_cast<PythonNode*>(static_cast<std::intptr_t>(c->saved_data.at("node").toInt()));
    const Locked lock;
    nb::list arguments;
    arguments.append(nb::borrow(self->context_.get()));
    for (std::size_t i = 0; i < self->results; ++i) arguments.append(nb::none());
    for (std::size_t i = 0; i < self->places.size(); ++i)
      arguments[self->places[i] + 1] = nb::steal(wrap(std::move(grads[i])));
    nb::object result = nb::borrow(self->function_.get()).attr("backward")(*nb::tuple(arguments));
    variable_list list;
    const auto add = [&](nb::handle r) {
      if (!r.is_none() && !is_tensor(r.ptr()))
        ATHANOR_THROW(Error, self->name(), ".backward should return tensors or None, got ", Py_TYPE(r.ptr())->tp_name);
      list.push_back(r.is_none() ? Tensor() : unwrap(r.ptr()));
    };
    if (nb::isinstance<nb::tuple>(result) || nb::isinstance<nb::list>(result))
      for (nb::handle r : result) add(r);
    else
      add(result);
    return list;
  }
  PythonCallable function_, context_;
};

// What a context in Python does to the node behind it.
struct FunctionCore {
  std::shared_ptr<NodeCell> cell;
  /// A share of it, so that it stays while it is used.
  IntrusivePtr<PythonNode> node() const {
    const std::lock_guard hold(cell->lock);
    ATHANOR_CHECK(cell->node && cell->node->try_retain(), "the graph that this context belonged to is gone");
    return IntrusivePtr<PythonNode>::adopt(cell->node);
  }
};

// Function.apply: forward runs without recording; its results get their history from the node.
nb::object apply_function(nb::handle function, nb::args args) {
  const std::string name = nb::cast<std::string>(function.attr("__name__")) + "Backward";
  nb::object context = function.attr("_make_context")();
  IntrusivePtr<PythonNode> node(new PythonNode(name, function.ptr(), context.ptr()));
  context.attr("_core") = nb::cast(FunctionCore{node->cell});
  variable_list inputs;
  bool record = false;
  nb::list needs;
  for (nb::handle a : args) {
    const bool tensor = is_tensor(a.ptr());
    node->argument_is_tensor.push_back(tensor);
    bool needs_grad = false;
    if (tensor) {
      inputs.push_back(unwrap(a.ptr()));
      Edge e = GradMode::is_enabled() ? gradient_edge(inputs.back()) : Edge{};
      needs_grad = e.is_valid();
      record = record || needs_grad;
      node->add_edge(std::move(e));
    }
    needs.append(needs_grad);
  }
  context.attr("needs_input_grad") = nb::tuple(needs);
  nb::object result;
  {
    const NoGradGuard off;
    result = function.attr("_run_forward")(context, *args);
  }
  const bool list = nb::isinstance<nb::list>(result), several = list || nb::isinstance<nb::tuple>(result);
  nb::list items;
  if (several)
    for (nb::handle r : result) items.append(r);
  else
    items.append(result);
  // Only tensors take part; what else forward returns is handed through.
  variable_list outputs;
  node->results = items.size();
  for (std::size_t i = 0; i < items.size(); ++i)
    if (is_tensor(items[i].ptr())) {
      outputs.push_back(unwrap(items[i].ptr()));
      node->places.push_back(i);
    }
  const std::vector<std::size_t>& places = node->places;
  node->attach(outputs, inputs, record);
  for (std::size_t i = 0; i < places.size(); ++i) items[places[i]] = nb::steal(wrap(std::move(outputs[i])));
  if (!several) return items[0];
  return list ? nb::object(items) : nb::tuple(items);
}

}  // namespace

Tensor PythonCallable::operator()(const Tensor& t) const {
  const Locked lock;
  nb::object result = nb::steal(PyObject_CallFunctionObjArgs(get(), nb::steal(wrap(t)).ptr(), nullptr));
  if (!result.is_valid()) throw nb::python_error();
  if (result.is_none()) return {};
  if (!is_tensor(result.ptr()))
    ATHANOR_THROW(TypeError, "hook should return None or a Tensor, got ", Py_TYPE(result.ptr())->tp_name);
  const Tensor& changed = unwrap(result.ptr());
  ATHANOR_CHECK(changed.scalar_type() == t.scalar_type(), "hook has changed the type of value (was ", t.scalar_type(),
                " got ", changed.scalar_type(), ")");
  ATHANOR_CHECK(changed.sizes() == t.sizes(), "hook has changed the size of value (was ", t.sizes(), " got ",
                changed.sizes(), ")");
  return changed;
}

PyObject* node_context(const Node& node) {
  const auto* python = dynamic_cast<const PythonNode*>(&node);
  return Py_NewRef(python ? python->context() : Py_None);
}

void bind_autograd(nb::module_& m) {
  nb::class_<FunctionCore>(m, "_FunctionCore")
      .def("save_for_backward",
           [](FunctionCore& c, variable_list list) { c.node()->ctx.save_for_backward(std::move(list)); })
      .def("saved_tensors", [](const FunctionCore& c) { return to_tuple(c.node()->ctx.get_saved_variables()); })
      .def("mark_dirty", [](FunctionCore& c, const variable_list& list) { c.node()->ctx.mark_dirty(list); })
      .def("mark_non_differentiable",
           [](FunctionCore& c, const variable_list& list) { c.node()->ctx.mark_non_differentiable(list); })
      .def("set_materialize_grads", [](FunctionCore& c, bool on) { c.node()->ctx.set_materialize_grads(on); })
      .def("has_inner_graph", [](FunctionCore& c) { c.node()->inner_graph.emplace(); });
  m.def("_apply_function", apply_function);
  m.def(
      "_run_backward",
      [](const variable_list& tensors, const variable_list& gradients, std::optional<bool> retain_graph,
         bool create_graph, const variable_list& inputs) {
        // Not the lock alone: data parallelism waits for other ranks in here.
        waiting([&] { autograd::backward(tensors, gradients, retain_graph, create_graph, inputs); });
      },
      nb::arg("tensors"), nb::arg("grad_tensors"), nb::arg("retain_graph").none(), nb::arg("create_graph"),
      nb::arg("inputs"));
  m.def("_run_inner_backward", [](const variable_list& roots, const variable_list& gradients, const variable_list& own,
                                  bool create_graph) {
    const auto edges = [](const variable_list& tensors) {
      std::vector<Edge> list;
      for (const Tensor& t : tensors) list.push_back(gradient_edge(t));
      return list;
    };
    std::vector<TensorBase> grads(gradients.begin(), gradients.end());
    const std::vector<TensorBase> got =
        waiting([&] { return autograd::run_inner_backward(edges(roots), std::move(grads), edges(own), create_graph); });
    return to_tuple(variable_list(got.begin(), got.end()));
  });
  m.def(
      "_run_grad",
      [](const variable_list& outputs, const variable_list& inputs, const variable_list& gradients,
         std::optional<bool> retain_graph, bool create_graph, bool allow_unused) {
        variable_list result = waiting(
            [&] { return autograd::grad(outputs, inputs, gradients, retain_graph, create_graph, allow_unused); });
        return to_tuple(std::move(result));
      },
      nb::arg("outputs"), nb::arg("inputs"), nb::arg("grad_outputs"), nb::arg("retain_graph").none(),
      nb::arg("create_graph"), nb::arg("allow_unused"));

  m.def("_gradcheck", [](nb::handle function, const variable_list& inputs, double eps, double atol, double rtol,
                         double nondet_tol, bool second, const variable_list& grad_outputs) {
    const PythonCallable held(function.ptr());
    const autograd::CheckedFunction call = [held](const variable_list& list) {
      const Locked lock;
      variable_list copy = list;
      nb::object results = nb::steal(PyObject_CallObject(held.get(), to_tuple(std::move(copy)).ptr()));
      if (!results.is_valid()) throw nb::python_error();
      return nb::cast<variable_list>(results);
    };
    const autograd::GradCheckOptions options{eps, atol, rtol, nondet_tol, true};
    const Unlocked unlocked;
    return second ? autograd::gradgradcheck(call, inputs, grad_outputs, options)
                  : autograd::gradcheck(call, inputs, options);
  });
  m.def(
      "is_grad_enabled", [] { return GradMode::is_enabled(); }, "Whether calls are recorded in this thread.");
  m.def("_set_grad_enabled", [](bool on) { GradMode::set_enabled(on); });
  m.def(
      "is_inference_mode_enabled", [] { return InferenceMode::is_enabled(); },
      "Whether this thread is in inference mode.");
  m.def("_tape_state",
        [] { return nb::make_tuple(athanor::detail::tape_state.grad, athanor::detail::tape_state.inference); });
  m.def("_set_tape_state", [](bool grad, bool inference) {
    athanor::detail::tape_state.grad = grad;
    athanor::detail::tape_state.inference = inference;
  });
  m.def(
      "is_anomaly_enabled", [] { return autograd::anomaly_enabled(); },
      "Whether nodes note where they were made, and backward looks for NaN.");
  m.def(
      "is_anomaly_check_nan_enabled", [] { return autograd::anomaly_checks_nan(); },
      "Whether anomaly mode, when it is on, looks for NaN.");
  m.def("_set_anomaly", [](bool on, bool check_nan) { autograd::set_anomaly(on, check_nan); });
}

}  // namespace athanor::python
