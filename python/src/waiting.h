#pragma once
/// For bindings of functions that wait for other threads or processes, and hand on what these raised.

#include <nanobind/nanobind.h>

#include <optional>
#include <type_traits>
#include <utility>

#include "python/src/lock.h"

namespace athanor::python {

/// The exception that was raised, as an object. Before Python 3.12 an error may be a class and what to make it of.
inline nanobind::object raised(const nanobind::python_error& error) {
#if PY_VERSION_HEX < 0x030c0000
  if (!error.value().is_valid() || !PyExceptionInstance_Check(error.value().ptr())) {
    PyObject* type = error.type().inc_ref().ptr();
    PyObject* value = error.value().inc_ref().ptr();
    PyObject* trace = error.traceback().inc_ref().ptr();
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace) PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return nanobind::steal(value);
  }
#endif
  return nanobind::borrow(error.value());
}

/// Counts waits of this thread that Python began; only such waits look for signals.
class WaitingForPython {
 public:
  WaitingForPython();
  ~WaitingForPython();
  WaitingForPython(const WaitingForPython&) = delete;
  WaitingForPython& operator=(const WaitingForPython&) = delete;
};

/// Runs `f` without the interpreter lock. A signal whose handler raises, as Ctrl-C's does, ends the library's waits
/// (base/interrupt.h) and comes out as that exception.
template <class F>
auto waiting(F&& f) {
  using Result = std::invoke_result_t<F>;
  std::conditional_t<std::is_void_v<Result>, bool, std::optional<Result>> result{};
  try {
    const WaitingForPython mark;
    const Unlocked unlocked;
    if constexpr (std::is_void_v<Result>)
      f();
    else
      result.emplace(f());
  } catch (...) {
    if (PyErr_Occurred()) throw nanobind::python_error();
    throw;
  }
  if (PyErr_Occurred()) throw nanobind::python_error();
  if constexpr (!std::is_void_v<Result>) return std::move(*result);
}

}  // namespace athanor::python
