#pragma once
/// The interpreter lock, given up and taken. A thread that asks for it while the interpreter ends is ended there and
/// then (before Python 3.14, by pthread_exit), and that must not unwind C++ frames: std::terminate would end the
/// program with an abort. So such a thread sleeps until the process is gone, as Python 3.14's own do.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace athanor::python {

/// Takes the lock back that PyEval_SaveThread gave up.
void take_lock_back(PyThreadState* state) noexcept;

/// Gives the lock up for its scope, if `worth_it`.
class Unlocked {
 public:
  explicit Unlocked(bool worth_it = true) : state_(worth_it ? PyEval_SaveThread() : nullptr) {}
  ~Unlocked() {
    if (state_) take_lock_back(state_);
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

/// Takes the lock for its scope, whoever has it and whether or not Python knows the thread.
class Locked {
 public:
  Locked() noexcept;
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace athanor::python
