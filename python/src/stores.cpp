// athanor._C._distributed: the stores, errors, and how Ctrl-C reaches a wait.

#include <nanobind/nanobind.h>
#include <nanobind/stl/chrono.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "athanor/base/interrupt.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/store/file_store.h"
#include "athanor/distributed/store/hash_store.h"
#include "athanor/distributed/store/tcp_store.h"
#include "python/src/convert.h"
#include "python/src/waiting.h"

namespace nb = nanobind;

namespace athanor::python {

using distributed::FileStore;
using distributed::HashStore;
using distributed::PrefixStore;
using distributed::Store;
using distributed::TCPStore;
using distributed::TCPStoreOptions;

namespace {

thread_local int waits_for_python = 0;

void check_signals() {
  if (waits_for_python == 0) return;
  const bool raised = [] {
    const Locked lock;
    return PyErr_CheckSignals() != 0;
  }();
  if (raised) throw distributed::DistError("the program was interrupted by a signal");
}

PyObject *dist_error, *store_error, *network_error, *backend_error;

PyObject* new_error(nb::module_& m, const char* name, const char* doc, PyObject* base) {
  const std::string full = std::string("athanor.distributed.") + name;
  PyObject* error = PyErr_NewExceptionWithDoc(full.c_str(), doc, base, nullptr);
  m.attr(name) = nb::handle(error);
  return error;
}

void add_store_errors(nb::module_& m) {
  dist_error = new_error(m, "DistError", "Something that several processes do together failed.", PyExc_RuntimeError);
  store_error = new_error(m, "DistStoreError", "A store does not answer, or has no such key in time.", dist_error);
  network_error = new_error(m, "DistNetworkError", "A connection could not be made, or broke.", dist_error);
  backend_error = new_error(m, "DistBackendError",
                            "A collective or a message failed: a rank is gone, hangs, or called "
                            "something else.",
                            dist_error);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const distributed::DistStoreError& e) {
      PyErr_SetString(store_error, e.what());
    } catch (const distributed::DistNetworkError& e) {
      PyErr_SetString(network_error, e.what());
    } catch (const distributed::DistBackendError& e) {
      PyErr_SetString(backend_error, e.what());
    } catch (const distributed::DistError& e) {
      PyErr_SetString(dist_error, e.what());
    }
  });
}

using Millis = std::int64_t;

std::chrono::milliseconds to_timeout(const Store& store, std::optional<Millis> given) {
  return given ? std::chrono::milliseconds(*given) : store.timeout();
}

Store::Value to_value(nb::handle value) {
  if (PyUnicode_Check(value.ptr())) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
    if (!text) throw nb::python_error();
    return Store::Value(text, text + size);
  }
  if (!PyBytes_Check(value.ptr())) throw nb::type_error("a store's values should be str or bytes");
  const char* bytes = PyBytes_AsString(value.ptr());
  return Store::Value(bytes, bytes + PyBytes_Size(value.ptr()));
}

nb::bytes to_bytes(const Store::Value& value) { return nb::bytes(value.data(), value.size()); }

nb::list to_list(const std::vector<Store::Value>& values) {
  nb::list result;
  for (const Store::Value& v : values) result.append(to_bytes(v));
  return result;
}

void add_store(nb::module_& m) {
  nb::class_<Store>(m, "Store",
                    "Keys and values that processes share. Every wait ends at a timeout with DistStoreError.")
      .def(
          "set",
          [](Store& s, const std::string& key, nb::handle value) {
            const Store::Value bytes = to_value(value);
            waiting([&] { s.set(key, bytes); });
          },
          nb::arg("key"), nb::arg("value"), "Stores a str or bytes under the key.")
      .def(
          "get",
          [](Store& s, const std::string& key, std::optional<Millis> timeout) {
            return to_bytes(waiting([&] { return s.get(key, to_timeout(s, timeout)); }));
          },
          nb::arg("key"), nb::arg("timeout_ms").none() = nb::none(), "Waits until the key exists; its value as bytes.")
      .def(
          "add",
          [](Store& s, const std::string& key, std::int64_t amount) {
            return waiting([&] { return s.add(key, amount); });
          },
          nb::arg("key"), nb::arg("amount"), "Adds to the number under the key, from 0, and returns the sum.")
      .def(
          "compare_set",
          [](Store& s, const std::string& key, nb::handle expected, nb::handle desired) {
            const Store::Value before = to_value(expected), after = to_value(desired);
            return to_bytes(waiting([&] { return s.compare_set(key, before, after); }));
          },
          nb::arg("key"), nb::arg("expected_value"), nb::arg("desired_value"),
          "Stores desired_value if the key holds expected_value; returns what it holds then.")
      .def(
          "delete_key", [](Store& s, const std::string& key) { return waiting([&] { return s.delete_key(key); }); },
          nb::arg("key"), "Removes the key; whether it was there.")
      .def(
          "check",
          [](Store& s, const std::vector<std::string>& keys) { return waiting([&] { return s.check(keys); }); },
          nb::arg("keys"), "Whether all of the keys exist.")
      .def(
          "num_keys", [](Store& s) { return waiting([&] { return s.num_keys(); }); }, "How many keys there are.")
      .def(
          "_wait",
          [](Store& s, const std::vector<std::string>& keys, std::optional<Millis> timeout) {
            waiting([&] { s.wait(keys, to_timeout(s, timeout)); });
          },
          nb::arg("keys"), nb::arg("timeout_ms").none() = nb::none())
      .def(
          "append",
          [](Store& s, const std::string& key, nb::handle value) {
            const Store::Value bytes = to_value(value);
            waiting([&] { s.append(key, bytes); });
          },
          nb::arg("key"), nb::arg("value"), "Puts a str or bytes behind what the key holds, if anything.")
      .def(
          "multi_get",
          [](Store& s, const std::vector<std::string>& keys) {
            return to_list(waiting([&] { return s.multi_get(keys); }));
          },
          nb::arg("keys"), "Waits until all keys exist; their values as bytes.")
      .def(
          "multi_set",
          [](Store& s, const std::vector<std::string>& keys, const nb::list& values) {
            std::vector<Store::Value> bytes;
            for (nb::handle v : values) bytes.push_back(to_value(v));
            waiting([&] { s.multi_set(keys, bytes); });
          },
          nb::arg("keys"), nb::arg("values"), "Stores a value under each key.")
      .def(
          "has_extended_api", [](const Store&) { return true; }, "True: append, multi_get and multi_set are there.")
      .def_prop_ro("_timeout_ms", [](const Store& s) { return static_cast<Millis>(s.timeout().count()); })
      .def("_set_timeout_ms", [](Store& s, Millis ms) { s.set_timeout(std::chrono::milliseconds(ms)); })
      .def("__repr__", [](const Store& s) { return "<" + s.describe() + ">"; });
}

void add_kinds(nb::module_& m) {
  m.def(
      "_tcp_store",
      [](std::string host, int port, std::optional<int> world_size, bool is_master, Millis timeout,
         bool wait_for_workers, bool multi_tenant, std::optional<int> listen_fd, std::string secret) {
        TCPStoreOptions options;
        options.port = port;
        options.is_server = is_master;
        options.num_workers = world_size;
        options.wait_workers = wait_for_workers;
        options.timeout = std::chrono::milliseconds(timeout);
        options.multi_tenant = multi_tenant;
        options.master_listen_fd = listen_fd;
        options.secret = std::move(secret);
        return waiting([&] { return std::make_shared<TCPStore>(std::move(host), options); });
      },
      nb::arg("host_name"), nb::arg("port"), nb::arg("world_size").none(), nb::arg("is_master"), nb::arg("timeout_ms"),
      nb::arg("wait_for_workers"), nb::arg("multi_tenant"), nb::arg("master_listen_fd").none(), nb::arg("secret"));
  nb::class_<TCPStore, Store>(m, "_TCPStore")
      .def_prop_ro("host", [](const TCPStore& s) { return s.host(); })
      .def_prop_ro("port", [](const TCPStore& s) { return s.port(); })
      .def_prop_ro("is_server", [](const TCPStore& s) { return s.is_server(); });
  m.def("_file_store", [](std::string path, Millis timeout) {
    return waiting([&] { return std::make_shared<FileStore>(std::move(path), std::chrono::milliseconds(timeout)); });
  });
  nb::class_<FileStore, Store>(m, "_FileStore").def_prop_ro("path", [](const FileStore& s) { return s.path(); });
  m.def("_hash_store", [](Millis timeout) { return std::make_shared<HashStore>(std::chrono::milliseconds(timeout)); });
  nb::class_<HashStore, Store>(m, "_HashStore");
  m.def("_prefix_store", [](std::string prefix, std::shared_ptr<Store> store) {
    return std::make_shared<PrefixStore>(std::move(prefix), std::move(store));
  });
  nb::class_<PrefixStore, Store>(m, "_PrefixStore")
      .def_prop_ro("underlying_store", [](const PrefixStore& s) { return s.underlying_store(); })
      .def_prop_ro("prefix", [](const PrefixStore& s) { return s.prefix(); });
}

}  // namespace

WaitingForPython::WaitingForPython() { ++waits_for_python; }
WaitingForPython::~WaitingForPython() { --waits_for_python; }

void bind_stores(nb::module_& core) {
  set_interrupt_check(check_signals);
  nb::module_ m = core.def_submodule("_distributed", "What athanor.distributed is made of.");
  add_store_errors(m);
  add_store(m);
  add_kinds(m);
}

}  // namespace athanor::python
