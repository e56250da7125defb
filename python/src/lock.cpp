#include "python/src/lock.h"

#include <cxxabi.h>
#include <unistd.h>

namespace athanor::python {
namespace {

[[noreturn]] void sleep_until_the_end() {
  for (;;) pause();
}

// What `f` gives; f asks for the lock.
template <class F>
auto ask(F f) noexcept {
  try {
    return f();
  } catch (abi::__forced_unwind&) {
    sleep_until_the_end();
  }
}

}  // namespace

void take_lock_back(PyThreadState* state) noexcept {
  ask([state] { PyEval_RestoreThread(state); });
}

Locked::Locked() noexcept
    : state_(ask([] {
        // A thread of the library's that outlives the interpreter.
        if (!Py_IsInitialized()) sleep_until_the_end();
        return PyGILState_Ensure();
      })) {}

Locked::~Locked() {
  // Without the lock: Python ended the thread inside the call that this lock was taken for.
  if (!PyGILState_Check()) sleep_until_the_end();
  PyGILState_Release(state_);
}

}  // namespace athanor::python
