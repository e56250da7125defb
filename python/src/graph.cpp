// The graph behind tensors: nodes and their hooks, backward from and to edges, hooks on what is saved.

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "athanor/autograd/engine.h"
#include "athanor/autograd/gradient_home.h"
#include "athanor/autograd/graph_dot.h"
#include "athanor/ops/create.h"
#include "athanor/tape/autograd_meta.h"
#include "athanor/tape/saved_hooks.h"
#include "python/src/autograd.h"
#include "python/src/convert.h"
#include "python/src/waiting.h"

namespace nb = nanobind;

namespace athanor::python {
namespace {

nb::object next_functions(const NodeHandle& self) {
  nb::list edges;
  for (std::size_t i = 0; i < self.node->num_edges(); ++i) {
    const Edge& e = self.node->edge(i);
    edges.append(nb::make_tuple(nb::steal<nb::object>(node_object(e.node)), e.nr));
  }
  return nb::tuple(edges);
}

nb::tuple to_tuple(const GradList& list) {
  nb::list all;
  for (std::size_t i = 0; i < list.size(); ++i) all.append(nb::steal(wrap(Tensor(list[i]))));
  return nb::tuple(all);
}

// Puts what a hook returned in the place of gradients.
void replace(GradList& list, nb::object result, const std::string& node) {
  if (result.is_none()) return;
  if (is_tensor(result.ptr())) result = nb::make_tuple(result);
  if (!nb::isinstance<nb::tuple>(result) && !nb::isinstance<nb::list>(result))
    ATHANOR_THROW(TypeError, "expected tuple, but a hook of ", node, " returned ", Py_TYPE(result.ptr())->tp_name);
  const std::size_t count = nb::len(result);
  ATHANOR_CHECK(count == list.size(), "a hook of ", node, " has returned an incorrect number of values (got ", count,
                ", but expected ", list.size(), ")");
  for (std::size_t i = 0; i < count; ++i) {
    const nb::object item = result[i];
    if (item.is_none()) continue;
    if (!is_tensor(item.ptr()))
      ATHANOR_THROW(TypeError, "expected Tensor, but a hook of ", node, " returned ", Py_TYPE(item.ptr())->tp_name);
    const Tensor& t = unwrap(item.ptr());
    ATHANOR_CHECK(list[i].defined(), "a hook of ", node, " can't replace a None gradient with a tensor (number ", i,
                  ")");
    ATHANOR_CHECK(t.sizes() == list[i].sizes() && t.dtype() == list[i].dtype() && t.device() == list[i].device(),
                  "a hook of ", node, " has changed gradient ", i, " from ", list[i].dtype(), " ", list[i].sizes(),
                  " on ", list[i].device(), " to ", t.dtype(), " ", t.sizes(), " on ", t.device());
    list[i] = t;
  }
}

/// A hook on a node: its handle in Python may take it away at any time, the node being gone or running it.
struct NodeHook {
  std::shared_ptr<std::optional<PythonCallable>> function;
  const Node* node;  // which has the hook
  bool removed() const { return !function->has_value(); }

  template <class... Lists>
  nb::object call(const Lists&... lists) const {
    const PythonCallable held = **function;
    nb::object result = nb::steal(PyObject_CallFunctionObjArgs(held.get(), to_tuple(lists).ptr()..., nullptr));
    if (!result.is_valid()) throw nb::python_error();
    return result;
  }
};

struct PreHook : NodeHook {
  void operator()(GradList& grads) const {
    if (removed()) return;
    const Locked lock;
    replace(grads, call(std::as_const(grads)), node->name());
  }
};

struct PostHook : NodeHook {
  void operator()(GradList& out, const GradList& in) const {
    if (removed()) return;
    const Locked lock;
    replace(out, call(std::as_const(out), in), node->name());
  }
};

/// What `node.metadata` is: kept by the node as a hook that does nothing.
struct Metadata {
  PythonCallable dict;
  void operator()(GradList&, const GradList&) const {}
};

template <class Hook, class List>
void drop_removed(List& list) {
  std::erase_if(list, [](const auto& h) {
    const Hook* old = h.second.template target<Hook>();
    return old && old->removed();
  });
}

template <class Hook>
Hook hook_of(const NodeHandle& self, const nb::callable& function) {
  return {{std::make_shared<std::optional<PythonCallable>>(PythonCallable(function.ptr())), self.node.get()}};
}

NodeHook add_pre_hook(const NodeHandle& self, const nb::callable& function) {
  drop_removed<PreHook>(self.node->hooks().pre);
  PreHook hook = hook_of<PreHook>(self, function);
  self.node->add_pre_hook(hook);
  return hook;
}

NodeHook add_post_hook(const NodeHandle& self, const nb::callable& function) {
  drop_removed<PostHook>(self.node->hooks().post);
  PostHook hook = hook_of<PostHook>(self, function);
  self.node->add_post_hook(hook);
  return hook;
}

nb::dict metadata(const NodeHandle& self) {
  for (auto& [id, hook] : self.node->hooks().post)
    if (const Metadata* m = hook.target<Metadata>()) return nb::borrow<nb::dict>(m->dict.get());
  nb::dict made;
  self.node->add_post_hook(Metadata{PythonCallable(made.ptr())});
  return made;
}

/// One end of a backward: a tensor, or a (node, number) pair.
struct End {
  Edge edge;
  OutputMeta meta;
};

End to_end(nb::handle given, const char* what, std::size_t i) {
  if (is_tensor(given.ptr())) {
    const Tensor& t = unwrap(given.ptr());
    ATHANOR_CHECK(t.requires_grad(), "element ", i, " of ", what, " does not require grad and does not have a grad_fn");
    return {gradient_edge(t), {DimVector(t.sizes()), t.dtype(), t.device()}};
  }
  Edge edge{nb::cast<NodeHandle&>(given[0]).node, nb::cast<std::uint32_t>(given[1])};
  ATHANOR_CHECK_TYPE(IndexError, edge.nr < edge.node->num_outputs(), "element ", i, " of ", what, ": ",
                     edge.node->name(), " has ", edge.node->num_outputs(), " outputs, there is no number ", edge.nr);
  OutputMeta meta = edge.node->output(edge.nr);
  return {std::move(edge), std::move(meta)};
}

nb::object run_to_edges(nb::sequence outputs, nb::sequence grads, bool keep_graph, bool create_graph,
                        nb::sequence inputs, bool accumulate, bool allow_unused) {
  std::vector<Edge> roots, ends;
  std::vector<TensorBase> gradients;
  const std::size_t given = nb::len(grads);
  for (nb::handle h : outputs) {
    const std::size_t i = roots.size();
    const End end = to_end(h, "tensors", i);
    const nb::object g = i < given ? nb::object(grads[i]) : nb::none();
    if (g.is_none()) {
      std::int64_t count = 1;
      for (const std::int64_t n : end.meta.sizes) count *= n;
      ATHANOR_CHECK(count == 1, "grad can be implicitly created only for scalar outputs; this one has shape ",
                    IntArrayRef(end.meta.sizes), ": pass a gradient of that shape");
      gradients.push_back(ops::ones(end.meta.sizes, TensorOptions(end.meta.dtype).device(end.meta.device)));
    } else {
      gradients.push_back(nb::cast<Tensor>(g));
      ATHANOR_CHECK(gradients[i].sizes() == IntArrayRef(end.meta.sizes), "Mismatch in shape: grad_output[", i,
                    "] has a shape of ", gradients[i].sizes(), " and output[", i, "] has a shape of ",
                    IntArrayRef(end.meta.sizes), ".");
    }
    roots.push_back(end.edge);
  }
  for (nb::handle h : inputs) ends.push_back(to_end(h, "inputs", ends.size()).edge);
  const auto got =
      waiting([&] { return autograd::run_backward(roots, gradients, keep_graph, create_graph, ends, accumulate); });
  nb::list result;
  for (std::size_t i = 0; i < got.size() && !accumulate; ++i) {
    ATHANOR_CHECK(got[i].defined() || allow_unused, "One of the differentiated Tensors (input ", i,
                  ") appears to not have been used in the graph. Set allow_unused=True if this is the desired "
                  "behavior.");
    result.append(nb::steal(wrap(Tensor(got[i]))));
  }
  return nb::tuple(result);
}

/// saved_tensors_hooks: what pack returned is kept, and given to unpack.
class PythonSavedHooks final : public SavedTensorHooks {
 public:
  PythonSavedHooks(nb::callable pack, nb::callable unpack) : pack_(pack.ptr()), unpack_(unpack.ptr()) {}
  std::unique_ptr<PackedTensor> pack(const TensorBase& t) override {
    const Locked lock;
    const nb::object packed = call(pack_, nb::steal(wrap(Tensor(t))));
    return std::make_unique<Packed>(PythonCallable(packed.ptr()), unpack_, t.is_contiguous());
  }

 private:
  class Packed final : public PackedTensor {
   public:
    Packed(PythonCallable value, PythonCallable unpack, bool contiguous)
        : value_(std::move(value)), unpack_(std::move(unpack)), contiguous_(contiguous) {}
    TensorBase unpack() override {
      const Locked lock;
      const nb::object result = call(unpack_, nb::borrow(value_.get()));
      if (!is_tensor(result.ptr()))
        ATHANOR_THROW(TypeError, "Output of saved tensor unpack_hook expected to be a Tensor but got result of type ",
                      Py_TYPE(result.ptr())->tp_name);
      const Tensor& t = unwrap(result.ptr());
      return contiguous_ ? t.contiguous() : t;
    }

   private:
    PythonCallable value_, unpack_;
    bool contiguous_;
  };
  static nb::object call(const PythonCallable& f, const nb::object& argument) {
    nb::object result = nb::steal(PyObject_CallFunctionObjArgs(f.get(), argument.ptr(), nullptr));
    if (!result.is_valid()) throw nb::python_error();
    return result;
  }
  PythonCallable pack_, unpack_;
};

void pop_saved_hooks() {
  auto* hooks = dynamic_cast<PythonSavedHooks*>(SavedTensorHooks::current());
  ATHANOR_CHECK(hooks, "saved_tensors_hooks: left in a thread that it was not entered in");
  delete hooks;
}

void bind_node(nb::module_& m) {
  nb::class_<NodeHook>(m, "_NodeHook").def("remove", [](NodeHook& h) { h.function->reset(); });
  nb::class_<NodeHandle> node(m, "Node",
                              "One recorded call of the graph. Each has a subclass's type, called as its name().");
  node.attr("_classes") = nb::dict();
  node.def(
          "name", [](const NodeHandle& n) { return n.node->name(); }, "The name of its backward: AddBackward0.")
      .def_prop_ro("next_functions", next_functions, "(node, number of its output) for each input; None for no node.")
      .def_prop_ro(
          "variable",
          [](const NodeHandle& n) {
            TensorImpl* leaf = n.node->variable();
            if (!leaf)
              throw nb::attribute_error(("'" + n.node->name() + "' object has no attribute 'variable'").c_str());
            return Tensor(TensorBase(IntrusivePtr<TensorImpl>(leaf)));
          },
          "The leaf whose grad this node adds to; other nodes have no such attribute.")
      .def_prop_ro("metadata", metadata, "A dictionary for the program's own notes, as long-lived as the node.")
      .def("_register_hook", add_post_hook)
      .def("_register_prehook", add_pre_hook)
      .def("_sequence_nr", [](const NodeHandle& n) { return n.node->sequence_nr(); })
      .def("_context", [](const NodeHandle& n) { return nb::steal<nb::object>(node_context(*n.node)); })
      .def("__eq__",
           [](const NodeHandle& n, nb::object o) {
             return nb::isinstance<NodeHandle>(o) && nb::cast<NodeHandle&>(o).node == n.node;
           })
      .def("__hash__", [](const NodeHandle& n) { return reinterpret_cast<std::size_t>(n.node.get()) >> 4; })
      .def("__repr__", [](const NodeHandle& n) {
        char address[32];
        std::snprintf(address, sizeof address, "%p", static_cast<void*>(n.node.get()));
        return "<" + n.node->name() + " object at " + address + ">";
      });
}

}  // namespace

namespace {

// A class per name: programs ask type(t.grad_fn).__name__.
nb::object class_of(const std::string& name) {
  const nb::handle node = nb::type<NodeHandle>();
  nb::dict classes = nb::borrow<nb::dict>(nb::object(node.attr("_classes")));
  const nb::str key(name.c_str());
  if (!classes.contains(key)) {
    nb::dict content;
    content["__slots__"] = nb::tuple();
    content["__module__"] = "athanor.autograd.graph";
    classes[key] = nb::handle(reinterpret_cast<PyObject*>(&PyType_Type))(key, nb::make_tuple(node), content);
  }
  return classes[key];
}

}  // namespace

PyObject* node_object(IntrusivePtr<Node> node) {
  if (!node) Py_RETURN_NONE;
  const nb::object type = class_of(node->name());
  nb::object o = nb::inst_alloc(type);
  new (nb::inst_ptr<NodeHandle>(o)) NodeHandle{std::move(node)};
  nb::inst_mark_ready(o);
  return o.release().ptr();
}

void bind_graph(nb::module_& m) {
  bind_node(m);
  m.def("_run_to_edges", run_to_edges, nb::arg("outputs"), nb::arg("grad_outputs"), nb::arg("keep_graph"),
        nb::arg("create_graph"), nb::arg("inputs"), nb::arg("accumulate"), nb::arg("allow_unused"));
  m.def("_edge_of", [](const Tensor& t) {
    const Edge e = gradient_edge(t);
    return nb::make_tuple(nb::steal<nb::object>(node_object(e.node)), e.nr);
  });
  m.def("_queue_callback", [](nb::callable f) {
    autograd::at_end_of_backward([held = PythonCallable(f.ptr())] {
      const Locked lock;
      nb::borrow(held.get())();
    });
  });
  m.def("_to_dot", [](const std::vector<Tensor>& roots, const std::map<std::string, Tensor>& names) {
    return autograd::to_dot(roots, names);
  });
  m.def("_increment_version", [](const Tensor& t) {
    if (!t.impl()->inference) t.impl()->bump_version();
  });
  m.def("_push_saved_tensors_hooks",
        [](nb::callable pack, nb::callable unpack) { new PythonSavedHooks(std::move(pack), std::move(unpack)); });
  m.def("_pop_saved_tensors_hooks", pop_saved_hooks);
}

}  // namespace athanor::python
