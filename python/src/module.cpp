// athanor._C: the extension module behind the Python package.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/onednn.h"
#include "athanor/tensor/print.h"
#include "python/src/autograd.h"
#include "python/src/convert.h"
#include "python/src/methods.h"
#include "python/src/op_tables.h"

namespace nb = nanobind;

namespace athanor::python {

extern PrintOptions print_options;
std::uint64_t seed_of(nb::handle number);
// Each further file of the module has one such function; they are called below.
#define ATHANOR_PYTHON_ROOM(name) void bind_##name(nb::module_& m);
#include "python/src/rooms.inc"
#undef ATHANOR_PYTHON_ROOM

namespace {

PyObject* out_of_memory_error = nullptr;
PyObject* linalg_error = nullptr;

void set_error(PyObject* type, const char* text) { PyErr_SetString(type, text); }

/// Daemon threads compute on while the process ends. What is registered last, as the interpreter goes, runs first.
void close_onednn_at_exit() {
  Py_AtExit([] { std::atexit([] { onednn::close(); }); });
}

}  // namespace

PyObject* raise_current() noexcept {
  try {
    throw;
  } catch (const PythonError&) {
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const nb::builtin_exception& e) {
    set_error(e.type() == nb::exception_type::type_error ? PyExc_TypeError : PyExc_ValueError, e.what());
  } catch (const IndexError& e) {
    set_error(PyExc_IndexError, e.what());
  } catch (const ValueError& e) {
    set_error(PyExc_ValueError, e.what());
  } catch (const TypeError& e) {
    set_error(PyExc_TypeError, e.what());
  } catch (const NotImplementedError& e) {
    set_error(PyExc_NotImplementedError, e.what());
  } catch (const OutOfMemoryError& e) {
    set_error(out_of_memory_error, e.what());
  } catch (const LinAlgError& e) {
    set_error(linalg_error, e.what());
  } catch (const IoError& e) {
    set_error(PyExc_OSError, e.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& e) {
    set_error(PyExc_RuntimeError, e.what());
  } catch (...) {
    set_error(PyExc_RuntimeError, "unknown C++ exception");
  }
  return nullptr;
}

std::uint64_t default_seed() { return 67280421310721ULL; }
std::uint64_t fresh_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32 | device()) >> 11;
}

Tensor state_to_tensor(const Generator& g) {
  const PhiloxState s = g.state();
  Tensor t = athanor::empty({sizeof s}, kByte);
  std::memcpy(t.data_ptr(), &s, sizeof s);
  return t;
}

void state_from_tensor(Generator& g, const Tensor& state) {
  PhiloxState s;
  ATHANOR_CHECK_TYPE(TypeError, state.scalar_type() == kByte && state.numel() == sizeof s,
                     "RNG state must be a torch.ByteTensor of ", sizeof s, " elements, got ",
                     athanor::detail::describe(state));
  const Tensor flat = state.cpu().contiguous();
  std::memcpy(&s, flat.data_ptr(), sizeof s);
  g.set_state(s);
}

namespace {

void add_errors(nb::module_& m) {
  out_of_memory_error =
      PyErr_NewExceptionWithDoc("athanor.OutOfMemoryError", "A device, or the limit set for it, has no memory left.",
                                PyExc_RuntimeError, nullptr);
  m.attr("OutOfMemoryError") = nb::handle(out_of_memory_error);
  linalg_error =
      PyErr_NewExceptionWithDoc("athanor.linalg.LinAlgError", "A matrix that has no inverse, or no Cholesky factor.",
                                PyExc_RuntimeError, nullptr);
  m.attr("LinAlgError") = nb::handle(linalg_error);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error&) {
      raise_current();
    } catch (const PythonError&) {
    }
  });
}

void add_ops(nb::module_& m) {
  nb::module_ ops = m.def_submodule("ops", "Every op of the library under its own name.");
  nb::list functions;
  const auto add = [&](const OpEntry& op, bool is_method, bool is_function) {
    ops.attr(op.name) = nb::steal(new_op_function(&op, false));
    if (is_function) functions.append(op.name);
    if (is_method)
      nb::handle(reinterpret_cast<PyObject*>(tensor_type)).attr(op.name) = nb::steal(new_op_function(&op, true));
  };
#define ATHANOR_PYTHON_OP(name, is_method, is_function) add(op_##name, is_method, is_function);
#include "python_ops/ops.inc"
#undef ATHANOR_PYTHON_OP
  m.attr("_functions") = functions;  // the ops that the package has as functions
  for (const OpEntry& op : plain_methods)
    nb::handle(reinterpret_cast<PyObject*>(tensor_type)).attr(op.name) = nb::steal(new_op_function(&op, true));
  for (const OpEntry& op : plain_functions) m.attr(op.name) = nb::steal(new_op_function(&op, false));
}

void add_settings(nb::module_& m) {
  m.def(
      "manual_seed",
      [generator = nb::object(m.attr("default_generator"))](nb::object seed) {
        // As int(seed) does.
        const nb::object number =
            nb::steal(PyLong_Check(seed.ptr()) ? seed.inc_ref().ptr() : PyNumber_Long(seed.ptr()));
        if (!number.is_valid()) throw nb::python_error();
        athanor::manual_seed(seed_of(number));
        return generator;
      },
      nb::arg("seed"), "Starts the default generator again from a seed, and returns it.");
  m.def(
      "set_num_threads", [](int n) { athanor::set_num_threads(n); }, nb::arg("int"),
      "How many threads an op may use. Raises ValueError below one.");
  m.def(
      "get_num_threads", [] { return athanor::get_num_threads(); }, "How many threads an op may use.");
  m.def(
      "get_default_dtype", [] { return athanor::get_default_dtype(); }, "The dtype of new floating tensors.");
  m.def(
      "set_default_dtype", [](DType t) { athanor::set_default_dtype(t); }, nb::arg("d"));
  m.def(
      "promote_types", [](DType a, DType b) { return athanor::promote_types(a, b); },
      "The dtype that results of tensors of both have.");
  m.def(
      "can_cast", [](DType from, DType to) { return athanor::can_cast(from, to); }, nb::arg("from_"), nb::arg("to"),
      "Whether results of dtype from_ may be written to a tensor of dtype to.");
  m.def(
      "_set_print_options",
      [](int precision, std::int64_t threshold, std::int64_t edge, std::int64_t width, std::optional<bool> sci) {
        print_options = {precision, threshold, edge, width, sci};
      },
      nb::arg("precision"), nb::arg("threshold"), nb::arg("edgeitems"), nb::arg("linewidth"),
      nb::arg("sci_mode").none());
  m.def("_named_results", [](const char* op, const char* names, nb::tuple results) {
    return nb::steal<nb::object>(named_results(op, names, results.release().ptr()));
  });
  m.def("_get_print_options", [] {
    return nb::make_tuple(print_options.precision, print_options.threshold, print_options.edgeitems,
                          print_options.linewidth, print_options.sci_mode);
  });
}

}  // namespace
}  // namespace athanor::python

NB_MODULE(_C, m) {
  using namespace athanor::python;
  nb::set_leak_warnings(false);
  close_onednn_at_exit();
  add_errors(m);
  if (!add_op_function_type(m.ptr()) || !add_tensor_type(m.ptr()) || !add_types(m.ptr())) throw nb::python_error();
  add_ops(m);
  add_settings(m);
  bind_autograd(m);
  bind_graph(m);
#define ATHANOR_PYTHON_ROOM(name) bind_##name(m);
#include "python/src/rooms.inc"
#undef ATHANOR_PYTHON_ROOM
}
