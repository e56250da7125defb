#pragma once
/// For bindings of functions that wait for other threads or processes.

#include <nanobind/nanobind.h>

#include <optional>
#include <type_traits>
#include <utility>

namespace athanor::python {

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
    const nanobind::gil_scoped_release unlocked;
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
