// athanor._C: jit.fork and jit.wait, on the library's pool.

#include "athanor/autograd/fork.h"

#include <nanobind/nanobind.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "python/src/arguments.h"
#include "python/src/convert.h"
#include "python/src/waiting.h"

namespace nb = nanobind;

namespace athanor::python {
namespace {

using Shared = std::shared_ptr<PyObject>;
Shared shared(nb::handle o) { return Shared(Py_NewRef(o.ptr()), release_later); }

/// What a task ended with: one of the two.
struct Outcome {
  Shared value, error;
};
struct Task {
  athanor::Future<Outcome> future;
};

// Tasks that have not ended: the interpreter must not go while one may still call it.
struct Pending {
  std::mutex mutex;
  std::condition_variable none_left;
  int count = 0;
  void add(int n) {
    const std::lock_guard lock(mutex);
    if ((count += n) == 0) none_left.notify_all();
  }
};
Pending& pending() {
  static Pending& p = *new Pending;
  return p;
}

// Where set_default_device points in the thread that forked.
struct DefaultDevice {
  explicit DefaultDevice(std::optional<Device> device) : before(std::exchange(default_device(), device)) {}
  ~DefaultDevice() { default_device() = before; }
  DefaultDevice(const DefaultDevice&) = delete;
  DefaultDevice& operator=(const DefaultDevice&) = delete;
  const std::optional<Device> before;
};

Outcome call(const Shared& function, const Shared& args, const Shared& keywords, std::optional<Device> device) {
  struct Count {
    ~Count() { pending().add(-1); }
  } const count;
  const Locked lock;
  const DefaultDevice inherited(device);
  nb::object result = nb::steal(PyObject_Call(function.get(), args.get(), keywords.get()));
  if (result.is_valid()) return {shared(result), nullptr};
  return {nullptr, shared(raised(nb::python_error()))};
}

Task fork_call(nb::handle function, nb::args args, nb::kwargs keywords) {
  Shared f = shared(function), a = shared(args), k = shared(keywords);
  pending().add(1);
  try {
    return {athanor::fork(
        [f = std::move(f), a = std::move(a), k = std::move(k), d = default_device()] { return call(f, a, k, d); })};
  } catch (...) {
    pending().add(-1);
    throw;
  }
}

nb::object wait_for_task(const Task& task) {
  const Outcome outcome = waiting([&] { return task.future.wait(); });
  if (outcome.value) return nb::borrow(outcome.value.get());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(outcome.error.get())), outcome.error.get());
  throw nb::python_error();
}

}  // namespace

void bind_fork(nb::module_& m) {
  nb::class_<Task>(m, "_ForkTask")
      .def("done", [](const Task& t) { return t.future.done(); })
      .def("wait", wait_for_task);
  m.def("_fork", fork_call);
  m.def("_wait_for_forked", [] {
    waiting([] {
      Pending& p = pending();
      std::unique_lock lock(p.mutex);
      p.none_left.wait(lock, [&] { return p.count == 0; });
    });
  });
  m.def("get_num_interop_threads", &athanor::get_num_interop_threads, "How many threads work on forked tasks.");
  m.def("set_num_interop_threads", &athanor::set_num_interop_threads,
        "How many threads work on forked tasks. Raises ValueError below one, RuntimeError once there are some.");
}

}  // namespace athanor::python
