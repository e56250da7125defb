// athanor._C._distributed: process groups, collectives, messages.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <set>
#include <unordered_map>

#include "athanor/distributed/backend.h"
#include "athanor/distributed/collectives.h"
#include "athanor/distributed/differentiable.h"
#include "athanor/distributed/flight_recorder.h"
#include "athanor/distributed/object_collectives.h"
#include "athanor/distributed/store/store.h"
#include "athanor/ops/factory.h"
#include "python/src/call_site.h"
#include "python/src/convert.h"
#include "python/src/waiting.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace athanor::python {

namespace dist = athanor::distributed;
using dist::CallSite;
using dist::GroupOptions;
using dist::ProcessGroup;
using dist::ReduceOp;
using dist::Work;
using Group = dist::ProcessGroupPtr;
using Tensors = std::vector<Tensor>;
using Millis = std::int64_t;

// The line of the program: the innermost frame outside the package. File names live as long as the process.
CallSite program_line() {
  static const std::string package = [] {
    const std::string file = nb::cast<std::string>(nb::module_::import_("athanor").attr("__file__"));
    return file.substr(0, file.rfind('/') + 1);
  }();
  static std::set<std::string>& names = *new std::set<std::string>;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  CallSite site{"Python", 0};
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    const bool outside = file && std::strncmp(file, package.c_str(), package.size()) != 0;
    if (outside) site = {names.insert(file).first->c_str(), static_cast<std::uint32_t>(PyFrame_GetLineNumber(frame))};
    Py_DECREF(code);
    PyFrameObject* outer = outside ? nullptr : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  PyErr_Clear();
  return site;
}

namespace {

// The exception that a Work ended with, as an object.
nb::object exception_object(const std::exception_ptr& error) {
  if (!error) return nb::none();
  try {
    std::rethrow_exception(error);
  } catch (nb::python_error& e) {
    return raised(e);
  } catch (const std::exception& e) {
    return nb::module_::import_("athanor._C").attr("_distributed").attr("DistError")(e.what());
  }
}

// Python's operator on values of two tensors, for one that the program defines.
ReduceOp user_op(std::string name, nb::callable function) {
  auto held = std::make_shared<nb::object>(std::move(function));
  const std::shared_ptr<nb::object> shared(held.get(), [held](nb::object*) mutable {
    const Locked lock;
    held.reset();
  });
  return ReduceOp::user(std::move(name), [shared](void* inout, const void* in, std::int64_t count, DType dtype) {
    const Locked lock;
    const Tensor left = athanor::from_blob(inout, {count}, TensorOptions(dtype));
    const Tensor right = athanor::from_blob(const_cast<void*>(in), {count}, TensorOptions(dtype));
    const nb::object result = (*shared)(left, right);
    if (!is_tensor(result.ptr()))
      ATHANOR_THROW(TypeError, "a ReduceOp's function should return a Tensor, got ", Py_TYPE(result.ptr())->tp_name);
    left.copy_(unwrap(result.ptr()));
  });
}

void add_reduce_op(nb::module_& m) {
  nb::class_<ReduceOp> op(m, "ReduceOp", "How a collective combines the ranks' values.");
  op.def("__repr__", [](const ReduceOp& o) { return "<ReduceOp." + o.text() + ">"; })
      .def("__eq__",
           [](const ReduceOp& a, nb::object b) {
             return nb::isinstance<ReduceOp>(b) && nb::cast<ReduceOp&>(b).identity() == a.identity() &&
                    nb::cast<ReduceOp&>(b).factor() == a.factor();
           })
      .def("__hash__", [](const ReduceOp& o) { return o.identity(); })
      .def_prop_ro("name", [](const ReduceOp& o) { return o.text(); })
      .def_static("premul_sum", &ReduceOp::premul_sum, "factor"_a, "Each rank's values times its factor, then the sum.")
      .def_static("user", user_op, "name"_a, "function"_a,
                  "A commutative and associative function(left, right) -> Tensor of two vectors; not kept by it.");
  const std::pair<const char*, ReduceOp::Kind> kinds[] = {
      {"SUM", ReduceOp::SUM}, {"AVG", ReduceOp::AVG},   {"PRODUCT", ReduceOp::PRODUCT}, {"MIN", ReduceOp::MIN},
      {"MAX", ReduceOp::MAX}, {"BAND", ReduceOp::BAND}, {"BOR", ReduceOp::BOR},         {"BXOR", ReduceOp::BXOR}};
  for (const auto& [name, kind] : kinds) op.attr(name) = nb::cast(ReduceOp(kind));
}

void add_work(nb::module_& m) {
  nb::class_<Work>(m, "Work", "A call under way.")
      .def(
          "is_completed", [](Work& w) { return waiting([&] { return w.is_completed(); }); }, "Whether it has ended.")
      .def(
          "is_success", [](Work& w) { return waiting([&] { return w.is_success(); }); }, "Whether it has ended well.")
      .def(
          "exception", [](Work& w) { return exception_object(waiting([&] { return w.exception(); })); },
          "What it failed with, or None.")
      .def(
          "_wait",
          [](Work& w, Millis timeout) { return waiting([&] { return w.wait(std::chrono::milliseconds(timeout)); }); },
          "timeout_ms"_a)
      .def(
          "result", [](Work& w) { return waiting([&] { return w.result(); }); },
          "The tensors that hold its results; waits for them.")
      .def(
          "source_rank", [](Work& w) { return waiting([&] { return w.source_rank(); }); },
          "The rank whose message a recv from anybody got.")
      .def("_source_rank", [](Work& w) { return waiting([&] { return w.source_rank(); }); });
}

void add_group(nb::module_& m) {
  nb::class_<ProcessGroup>(m, "ProcessGroup", "Ranks that communicate with each other.", nb::is_weak_referenceable())
      .def("rank", &ProcessGroup::rank, "This process's rank in the group.")
      .def("size", &ProcessGroup::size, "How many ranks there are.")
      .def("name", &ProcessGroup::name, "The group's name, the same on all ranks.")
      .def_prop_ro("group_name", &ProcessGroup::name, "The group's name, the same on all ranks.")
      .def("_get_backend_name", &ProcessGroup::backend_name)
      .def_prop_ro("_ranks", &ProcessGroup::global_ranks)
      .def_prop_ro("_store", &ProcessGroup::store)
      .def_prop_ro("_timeout_ms", [](const ProcessGroup& g) { return static_cast<Millis>(g.timeout().count()); })
      .def("usable", &ProcessGroup::usable, "False once a call failed, or it was aborted or shut down.")
      .def(
          "abort", [](ProcessGroup& g, const std::string& reason) { waiting([&] { g.abort(reason); }); },
          "reason"_a = "abort() was called", "Makes calls under way, and all later ones, fail with this reason.")
      .def(
          "shutdown", [](ProcessGroup& g) { waiting([&] { g.shutdown(); }); },
          "Ends the group after its calls under way, without failing the other ranks'.")
      .def("_flight_record", [](const ProcessGroup& g) { return g.flight_recorder().text(); })
      .def("__repr__", [](const ProcessGroup& g) {
        return "<ProcessGroup " + g.name() + ": rank " + std::to_string(g.rank()) + " of " + std::to_string(g.size()) +
               ", backend " + g.backend_name() + ">";
      });
}

GroupOptions group_options(std::optional<Millis> timeout, std::string backend, std::string name, bool local) {
  GroupOptions options;
  if (timeout) options.timeout = std::chrono::milliseconds(*timeout);
  options.backend = std::move(backend);
  options.name = std::move(name);
  options.use_local_synchronization = local;
  return options;
}

void add_groups(nb::module_& m) {
  m.def(
      "init_process_group",
      [](std::string backend, std::string init_method, int world_size, int rank, Millis timeout, std::string group_name,
         std::shared_ptr<dist::Store> store, std::string secret) {
        dist::InitOptions options;
        options.backend = std::move(backend);
        options.init_method = std::move(init_method);
        options.world_size = world_size;
        options.rank = rank;
        options.timeout = std::chrono::milliseconds(timeout);
        options.group_name = std::move(group_name);
        options.store = std::move(store);
        options.secret = std::move(secret);
        waiting([&] { dist::init_process_group(options); });
      },
      "backend"_a, "init_method"_a, "world_size"_a, "rank"_a, "timeout_ms"_a, "group_name"_a, "store"_a.none(),
      "secret"_a);
  m.def(
      "destroy_process_group", [](Group group) { waiting([&] { dist::destroy_process_group(group); }); },
      "group"_a.none() = nb::none());
  m.def("_leave_all_groups", [] { waiting([] { dist::internals::leave_all_groups(); }); });
  m.def("is_initialized", &dist::is_initialized);
  m.def("backend_problem", [](const std::string& name) { return dist::backend_problem(name); });
  m.def("is_backend_available", [](const std::string& name) { return dist::is_backend_available(name); });
  m.def("is_torchelastic_launched", &dist::is_torchelastic_launched);
  m.def("default_group", [] { return dist::default_group(); });
  m.def(
      "new_group",
      [](Group parent, std::vector<int> ranks, std::optional<Millis> timeout, std::string backend, std::string name,
         bool local) {
        const GroupOptions options = group_options(timeout, std::move(backend), std::move(name), local);
        return waiting([&] { return dist::split_group(parent, ranks, options); });
      },
      "parent"_a.none(), "ranks"_a, "timeout_ms"_a.none(), "backend"_a, "name"_a, "local"_a);
  m.def("get_rank", &dist::get_rank, "group"_a.none() = nb::none());
  m.def("get_world_size", &dist::get_world_size, "group"_a.none() = nb::none());
  m.def("get_backend", &dist::get_backend, "group"_a.none() = nb::none());
  m.def("get_group_rank", &dist::get_group_rank, "group"_a.none(), "global_rank"_a);
  m.def("get_node_local_rank", &dist::get_node_local_rank);
  m.def("get_global_rank", &dist::get_global_rank, "group"_a.none(), "group_rank"_a);
  m.def("get_process_group_ranks", &dist::get_process_group_ranks, "group"_a.none() = nb::none());
  m.def("flight_records", &dist::flight_records_text, "The last calls of all groups, as text.");
}

void add_collectives(nb::module_& m) {
  const auto async = "async_op"_a;
  const auto group = "group"_a.none();
  m.def(
      "broadcast",
      [](const Tensor& t, int src, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::broadcast(t, src, g, async, at); });
      },
      "tensor"_a, "src"_a, group, async);
  m.def(
      "all_reduce",
      [](const Tensor& t, const ReduceOp& op, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::all_reduce(t, op, g, async, at); });
      },
      "tensor"_a, "op"_a, group, async);
  m.def(
      "reduce",
      [](const Tensor& t, int dst, const ReduceOp& op, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::reduce(t, dst, op, g, async, at); });
      },
      "tensor"_a, "dst"_a, "op"_a, group, async);
  m.def(
      "all_gather",
      [](const Tensors& list, const Tensor& t, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::all_gather(list, t, g, async, at); });
      },
      "tensor_list"_a, "tensor"_a, group, async);
  m.def(
      "gather",
      [](const Tensor& t, const Tensors& list, int dst, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::gather(t, list, dst, g, async, at); });
      },
      "tensor"_a, "gather_list"_a, "dst"_a, group, async);
  m.def(
      "scatter",
      [](const Tensor& t, const Tensors& list, int src, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::scatter(t, list, src, g, async, at); });
      },
      "tensor"_a, "scatter_list"_a, "src"_a, group, async);
  m.def(
      "reduce_scatter",
      [](const Tensor& out, const Tensors& list, const ReduceOp& op, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::reduce_scatter(out, list, op, g, async, at); });
      },
      "output"_a, "input_list"_a, "op"_a, group, async);
  m.def(
      "all_to_all",
      [](const Tensors& out, const Tensors& in, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::all_to_all(out, in, g, async, at); });
      },
      "output_tensor_list"_a, "input_tensor_list"_a, group, async);
  m.def(
      "all_to_all_single",
      [](const Tensor& out, const Tensor& in, const std::vector<std::int64_t>& out_splits,
         const std::vector<std::int64_t>& in_splits, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::all_to_all_single(out, in, out_splits, in_splits, g, async, at); });
      },
      "output"_a, "input"_a, "output_split_sizes"_a, "input_split_sizes"_a, group, async);
  m.def(
      "all_gather_into_tensor",
      [](const Tensor& out, const Tensor& in, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::all_gather_into_tensor(out, in, g, async, at); });
      },
      "output_tensor"_a, "input_tensor"_a, group, async);
  m.def(
      "reduce_scatter_tensor",
      [](const Tensor& out, const Tensor& in, const ReduceOp& op, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::reduce_scatter_tensor(out, in, op, g, async, at); });
      },
      "output"_a, "input"_a, "op"_a, group, async);
  m.def(
      "barrier",
      [](Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::barrier(g, async, at); });
      },
      group, async);
  m.def(
      "monitored_barrier",
      [](Group g, Millis timeout, bool all) {
        const CallSite at = program_line();
        waiting([&] { dist::monitored_barrier(g, std::chrono::milliseconds(timeout), all, at); });
      },
      group, "timeout_ms"_a, "wait_all_ranks"_a);
}

void add_coalesced(nb::module_& m) {
  const auto async = "async_op"_a;
  const auto group = "group"_a.none();
  m.def(
      "all_reduce_coalesced",
      [](const Tensors& list, const ReduceOp& op, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::all_reduce_coalesced(list, op, g, async, at); });
      },
      "tensors"_a, "op"_a, group, async);
  m.def(
      "broadcast_coalesced",
      [](const Tensors& list, int src, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::broadcast_coalesced(list, src, g, async, at); });
      },
      "tensors"_a, "src"_a, group, async);
  m.def(
      "all_gather_coalesced",
      [](const std::vector<Tensors>& out, const Tensors& in, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::all_gather_coalesced(out, in, g, async, at); });
      },
      "output_tensor_lists"_a, "input_tensor_list"_a, group, async);
  m.def(
      "all_gather_into_tensor_coalesced",
      [](const Tensors& out, const Tensors& in, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::all_gather_into_tensor_coalesced(out, in, g, async, at); });
      },
      "outputs"_a, "inputs"_a, group, async);
  m.def(
      "reduce_scatter_tensor_coalesced",
      [](const Tensors& out, const Tensors& in, const ReduceOp& op, Group g, bool async) {
        const CallSite at = program_line();
        return waiting([&] { return dist::reduce_scatter_tensor_coalesced(out, in, op, g, async, at); });
      },
      "outputs"_a, "inputs"_a, "op"_a, group, async);
}

void add_messages(nb::module_& m) {
  const auto group = "group"_a.none();
  m.def(
      "send",
      [](const Tensor& t, int dst, Group g, int tag) {
        const CallSite at = program_line();
        waiting([&] { dist::send(t, dst, g, tag, at); });
      },
      "tensor"_a, "dst"_a, group, "tag"_a);
  m.def(
      "recv",
      [](const Tensor& t, int src, Group g, int tag) {
        const CallSite at = program_line();
        return waiting([&] { return dist::recv(t, src, g, tag, at); });
      },
      "tensor"_a, "src"_a, group, "tag"_a);
  m.def(
      "isend",
      [](const Tensor& t, int dst, Group g, int tag) {
        const CallSite at = program_line();
        return waiting([&] { return dist::isend(t, dst, g, tag, at); });
      },
      "tensor"_a, "dst"_a, group, "tag"_a);
  m.def(
      "irecv",
      [](const Tensor& t, int src, Group g, int tag) {
        const CallSite at = program_line();
        return waiting([&] { return dist::irecv(t, src, g, tag, at); });
      },
      "tensor"_a, "src"_a, group, "tag"_a);
  m.def("batch_isend_irecv", [](const nb::list& ops) {
    const CallSite at = program_line();
    std::vector<dist::P2POp> all;
    for (nb::handle h : ops) {
      const auto op = nb::cast<nb::tuple>(h);
      all.emplace_back(nb::cast<bool>(op[0]) ? &dist::isend : &dist::irecv, unwrap(nb::handle(op[1]).ptr()),
                       nb::cast<int>(op[2]), op[3].is_none() ? Group() : nb::cast<Group>(op[3]), nb::cast<int>(op[4]));
    }
    return waiting([&] { return dist::batch_isend_irecv(all, at); });
  });
}

std::string as_string(const nb::bytes& b) { return {static_cast<const char*>(b.data()), b.size()}; }
nb::list as_list(const std::vector<std::string>& all) {
  nb::list result;
  for (const std::string& s : all) result.append(nb::bytes(s.data(), s.size()));
  return result;
}

// Objects travel pickled: Python makes the bytes, these carry them.
void add_objects(nb::module_& m) {
  namespace in = dist::internals;
  const auto group = "group"_a.none();
  m.def(
      "all_gather_bytes",
      [](const nb::bytes& own, Group g) {
        const CallSite at = program_line();
        const std::string bytes = as_string(own);
        return as_list(waiting([&] { return in::all_gather_bytes(bytes, g, at); }));
      },
      "own"_a, group);
  m.def(
      "gather_bytes",
      [](const nb::bytes& own, int dst, Group g) {
        const CallSite at = program_line();
        const std::string bytes = as_string(own);
        return as_list(waiting([&] { return in::gather_bytes(bytes, dst, g, at); }));
      },
      "own"_a, "dst"_a, group);
  m.def(
      "broadcast_bytes",
      [](const nb::bytes& own, int src, Group g) {
        const CallSite at = program_line();
        const std::string bytes = as_string(own);
        const std::string got = waiting([&] { return in::broadcast_bytes(bytes, src, g, at); });
        return nb::bytes(got.data(), got.size());
      },
      "own"_a, "src"_a, group);
  m.def(
      "scatter_bytes",
      [](const nb::list& parts, int src, Group g) {
        const CallSite at = program_line();
        std::vector<std::string> all;
        for (nb::handle p : parts) all.push_back(as_string(nb::cast<nb::bytes>(p)));
        const std::string got = waiting([&] { return in::scatter_bytes(all, src, g, at); });
        return nb::bytes(got.data(), got.size());
      },
      "parts"_a, "src"_a, group);
  m.def(
      "send_bytes",
      [](const nb::bytes& own, int dst, Group g, int tag) {
        const CallSite at = program_line();
        const std::string bytes = as_string(own);
        waiting([&] { in::send_bytes(bytes, dst, g, tag, at); });
      },
      "own"_a, "dst"_a, group, "tag"_a);
  m.def(
      "recv_bytes",
      [](int src, Group g, int tag) {
        const CallSite at = program_line();
        const std::string got = waiting([&] { return in::recv_bytes(src, g, tag, at); });
        return nb::make_tuple(src, nb::bytes(got.data(), got.size()));
      },
      "src"_a, group, "tag"_a);
}

// Collectives that gradients flow through.
void add_differentiable(nb::module_& core) {
  namespace f = dist::nn::functional;
  nb::module_ m = core.def_submodule("nn");
  const auto group = "group"_a.none() = nb::none();
  m.def(
      "broadcast", [](const Tensor& t, int src, Group g) { return waiting([&] { return f::broadcast(t, src, g); }); },
      "tensor"_a, "src"_a, group);
  m.def(
      "all_reduce",
      [](const Tensor& t, const ReduceOp& op, Group g) { return waiting([&] { return f::all_reduce(t, op, g); }); },
      "tensor"_a, "op"_a = ReduceOp(), group);
  m.def(
      "reduce",
      [](const Tensor& t, int dst, const ReduceOp& op, Group g) {
        return waiting([&] { return f::reduce(t, dst, op, g); });
      },
      "tensor"_a, "dst"_a, "op"_a = ReduceOp(), group);
  m.def(
      "all_gather", [](const Tensor& t, Group g) { return waiting([&] { return f::all_gather(t, g); }); }, "tensor"_a,
      group);
  m.def(
      "gather", [](const Tensor& t, int dst, Group g) { return waiting([&] { return f::gather(t, dst, g); }); },
      "tensor"_a, "dst"_a = 0, group);
  m.def(
      "scatter", [](const Tensors& t, int src, Group g) { return waiting([&] { return f::scatter(t, src, g); }); },
      "tensors"_a, "src"_a = 0, group);
  m.def(
      "reduce_scatter",
      [](const Tensors& in, const ReduceOp& op, Group g) {
        return waiting([&] { return f::reduce_scatter(in, op, g); });
      },
      "input_list"_a, "op"_a = ReduceOp(), group);
  m.def(
      "all_to_all",
      [](const Tensors& out, const Tensors& in, Group g) { return waiting([&] { return f::all_to_all(out, in, g); }); },
      "output_tensor_list"_a, "input_tensor_list"_a, group);
  m.def(
      "all_to_all_single",
      [](const Tensor& out, const Tensor& in, std::vector<std::int64_t> out_splits, std::vector<std::int64_t> in_splits,
         Group g) {
        return waiting([&] { return f::all_to_all_single(out, in, std::move(out_splits), std::move(in_splits), g); });
      },
      "output"_a, "input"_a, "output_split_sizes"_a, "input_split_sizes"_a, group);
}

}  // namespace

void bind_distributed(nb::module_& core) {
  auto m = nb::cast<nb::module_>(core.attr("_distributed"));
  add_reduce_op(m);
  add_work(m);
  add_group(m);
  add_groups(m);
  add_collectives(m);
  add_coalesced(m);
  add_messages(m);
  add_objects(m);
  add_differentiable(m);
}

}  // namespace athanor::python
