#include "python/src/types.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstring>

#include "python/src/convert.h"

namespace nb = nanobind;

namespace athanor::python {
namespace {

struct DTypeObject {
  DType dtype;
};
struct NamedConstant {
  std::string name;
  int value;
};
struct MemoryFormatObject : NamedConstant {};
struct LayoutObject : NamedConstant {};

// Held for ever: a process may end where nothing may be given back, as a child forked by a second thread does.
nb::handle dtype_objects[kNumDTypes];
nb::handle dtype_type, device_type, generator_type, memory_format_type, layout_type;
PyTypeObject* size_type = nullptr;

bool is_instance(PyObject* o, nb::handle type) { return Py_TYPE(o) == reinterpret_cast<PyTypeObject*>(type.ptr()); }

template <class T>
T& instance(PyObject* o) {
  return *nb::inst_ptr<T>(nb::handle(o));
}

// torch's names of one dtype: float32 and float.
constexpr const char* kDTypeSynonyms[][2] = {{"float32", "float"}, {"float64", "double"}, {"float16", "half"},
                                             {"int64", "long"},    {"int32", "int"},      {"int16", "short"}};

void add_dtypes(nb::module_& m) {
  nb::class_<DTypeObject> type(m, "dtype", "The type of a tensor's elements. One object each: compare with `is`.");
  type.def_prop_ro("is_floating_point", [](const DTypeObject& t) { return is_floating_point(t.dtype); })
      .def_prop_ro("is_complex", [](const DTypeObject&) { return false; })
      .def_prop_ro("is_signed", [](const DTypeObject& t) { return is_signed(t.dtype); })
      .def_prop_ro("itemsize", [](const DTypeObject& t) { return item_size(t.dtype); })
      .def("__repr__", [](const DTypeObject& t) { return std::string("torch.") + dtype_name(t.dtype); })
      .def("__reduce__", [](const DTypeObject& t) { return dtype_name(t.dtype); });  // found again by its name
  dtype_type = type;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto t = static_cast<DType>(i);
    dtype_objects[i] = nb::cast(DTypeObject{t}).release();
    m.attr(dtype_name(t)) = dtype_objects[i];
  }
  for (const auto& [name, synonym] : kDTypeSynonyms) m.attr(synonym) = m.attr(name);
}

std::string device_repr(const Device& d) {
  std::string text = d.is_cuda() ? "device(type='cuda'" : "device(type='cpu'";
  if (d.has_index()) text += ", index=" + std::to_string(d.index());
  return text + ")";
}

// The default devices of the blocks around the present one.
std::vector<std::optional<Device>>& outer_devices() {
  static thread_local std::vector<std::optional<Device>> outer;
  return outer;
}

void add_devices(nb::module_& m) {
  nb::class_<Device> type(
      m, "device",
      "Where a tensor lives: device('cpu'), device('cuda:0'), device('cuda', 0), device(0). In a with block: "
      "where tensors are made. Raises RuntimeError for other kinds.");
  type.def(
          "__init__",
          [](Device* self, nb::object kind, std::optional<int> index) {
            if (index) {
              const std::string text = nb::cast<std::string>(kind);
              if (text.find(':') != std::string::npos)
                throw nb::value_error(
                    ("type (string) must not include an index because index was passed explicitly: " + text).c_str());
              new (self) Device(text + ":" + std::to_string(*index));
            } else if (!is_device(kind.ptr())) {
              throw nb::type_error("device(): argument 'type' must be str, int or torch.device");
            } else {
              new (self) Device(to_device(kind.ptr()));
            }
          },
          nb::arg("type"), nb::arg("index") = nb::none())
      .def_prop_ro("type", [](const Device& d) { return d.is_cuda() ? "cuda" : "cpu"; })
      .def_prop_ro("index",
                   [](const Device& d) -> std::optional<int> {
                     if (!d.has_index()) return std::nullopt;
                     return d.index();
                   })
      .def("__repr__", device_repr)
      .def("__str__", [](const Device& d) { return d.str(); })
      .def("__hash__", [](const Device& d) { return (static_cast<int>(d.type()) << 16) + d.index() + 1; })
      .def("__eq__", [](const Device& d,
                        nb::object o) { return is_instance(o.ptr(), device_type) && d == instance<Device>(o.ptr()); })
      .def("__ne__",
           [](const Device& d, nb::object o) {
             return !is_instance(o.ptr(), device_type) || !(d == instance<Device>(o.ptr()));
           })
      .def("__reduce__", [m](const Device& d) { return nb::make_tuple(m.attr("device"), nb::make_tuple(d.str())); })
      // with torch.device("cuda:1"): tensors are made there.
      .def("__enter__",
           [](nb::object self) {
             outer_devices().push_back(default_device());
             default_device() = instance<Device>(self.ptr());
             return self;
           })
      .def("__exit__", [](const Device&, nb::args) {
        if (outer_devices().empty()) return;
        default_device() = outer_devices().back();
        outer_devices().pop_back();
      });
  m.def("_get_default_device", [] { return default_device().value_or(Device()); });
  m.def(
      "_set_default_device", [](std::optional<Device> d) { default_device() = d; }, nb::arg("device").none());
  device_type = type;
}

}  // namespace

std::uint64_t seed_of(nb::handle number) {
  int overflow = 0;
  const long long seed = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow == 0) {
    if (seed == -1 && PyErr_Occurred()) throw nb::python_error();
    return static_cast<std::uint64_t>(seed);
  }
  const std::uint64_t large = PyLong_AsUnsignedLongLong(number.ptr());
  if (!PyErr_Occurred()) return large;
  PyErr_Clear();
  throw nb::value_error("manual_seed: expected a seed of 64 bits, from -2**63 to 2**64 - 1");
}

namespace {

void add_generators(nb::module_& m) {
  nb::class_<Generator> type(m, "Generator", "A source of random numbers with a state of its own.");
  type.def(
          "__init__",
          [](Generator* self, nb::object device) {
            if (!device.is_none()) to_device(device.ptr());  // that it names one is all that matters
            new (self) Generator(default_seed());
          },
          nb::arg("device") = nb::none())
      .def(
          "manual_seed",
          [](nb::object self, nb::int_ seed) {
            instance<Generator>(self.ptr()).set_current_seed(seed_of(seed));
            return self;
          },
          "Starts again from a seed; returns the generator.")
      .def(
          "initial_seed", [](const Generator& g) { return g.current_seed(); }, "The seed it started from.")
      .def(
          "seed",
          [](Generator& g) {
            const std::uint64_t seed = fresh_seed();
            g.set_current_seed(seed);
            return seed;
          },
          "Starts again from a seed of the system's entropy, and returns that.")
      .def(
          "get_state", [](const Generator& g) { return nb::steal(wrap(state_to_tensor(g))); },
          "The state as a tensor of bytes.")
      .def(
          "set_state",
          [](nb::object self, Tensor state) {
            state_from_tensor(instance<Generator>(self.ptr()), state);
            return self;
          },
          "Goes on from a state that get_state gave. Raises TypeError for a tensor that is none.")
      .def(
          "clone_state", [](const Generator& g) { return g.clone(); }, "Another generator in the same state.")
      .def_prop_ro(
          "device", [](const Generator&) { return Device(); }, "The host, for every generator.");
  generator_type = type;
  m.attr("default_generator") = nb::cast(default_generator());
}

template <class T>
nb::handle add_constants(nb::module_& m, const char* name, const char* doc,
                         std::initializer_list<std::pair<const char*, int>> values) {
  nb::class_<T> type(m, name, doc);
  type.def("__repr__", [](const T& t) { return "torch." + t.name; });
  type.def("__reduce__", [](const T& t) { return t.name; });
  for (const auto& [text, value] : values) {
    T constant;
    constant.name = text;
    constant.value = value;
    m.attr(text) = nb::cast(constant);
  }
  return type;
}

PyObject* size_repr(PyObject* self) {
  std::string text = "torch.Size([";
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self); ++i)
    text += (i ? ", " : "") + std::to_string(PyLong_AsLongLong(PyTuple_GET_ITEM(self, i)));
  return PyUnicode_FromString((text + "])").c_str());
}

PyObject* size_numel(PyObject* self, PyObject*) {
  long long n = 1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self); ++i) n *= PyLong_AsLongLong(PyTuple_GET_ITEM(self, i));
  return PyLong_FromLongLong(n);
}

// A tuple that a tuple operation made, as a Size again.
PyObject* as_size(PyObject* tuple) {
  if (!tuple || !PyTuple_Check(tuple)) return tuple;
  PyObject* size = PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(size_type), tuple, nullptr);
  Py_DECREF(tuple);
  return size;
}
PyObject* size_new(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  PyObject* self = PyTuple_Type.tp_new(type, args, keywords);
  if (!self) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self); ++i) {
    PyObject* item = PyTuple_GET_ITEM(self, i);
    if (PyLong_Check(item)) continue;
    PyObject* number = PyNumber_Index(item);
    if (!number) {
      PyErr_Format(PyExc_TypeError, "torch.Size() takes an iterable of 'int' (item %zd is '%s')", i,
                   Py_TYPE(item)->tp_name);
      Py_DECREF(self);
      return nullptr;
    }
    PyTuple_SET_ITEM(self, i, number);
    Py_DECREF(item);
  }
  return self;
}
// (1,) + size: asked before tuples' own concatenation, since a size is the more special tuple.
PyObject* size_add(PyObject* a, PyObject* b) {
  if (!PyTuple_Check(a) || !PyTuple_Check(b)) Py_RETURN_NOTIMPLEMENTED;
  return as_size(PyTuple_Type.tp_as_sequence->sq_concat(a, b));
}
PyObject* size_concat(PyObject* a, PyObject* b) { return as_size(PyTuple_Type.tp_as_sequence->sq_concat(a, b)); }
PyObject* size_repeat(PyObject* a, Py_ssize_t n) { return as_size(PyTuple_Type.tp_as_sequence->sq_repeat(a, n)); }
PyObject* size_subscript(PyObject* a, PyObject* key) {
  PyObject* item = PyTuple_Type.tp_as_mapping->mp_subscript(a, key);
  return PySlice_Check(key) ? as_size(item) : item;
}
PyObject* size_reduce(PyObject* self, PyObject*) {
  PyObject* list = PySequence_List(self);
  if (!list) return nullptr;
  PyObject* plain = PyList_AsTuple(list);
  Py_DECREF(list);
  return plain ? Py_BuildValue("(O(N))", size_type, plain) : nullptr;
}
PyMethodDef size_methods[] = {{"numel", size_numel, METH_NOARGS, "The number of elements: the product."},
                              {"__reduce__", size_reduce, METH_NOARGS, nullptr},
                              {nullptr, nullptr, 0, nullptr}};

bool add_size(PyObject* module) {
  PyType_Slot slots[] = {{Py_tp_repr, reinterpret_cast<void*>(size_repr)},
                         {Py_tp_new, reinterpret_cast<void*>(size_new)},
                         {Py_tp_methods, size_methods},
                         {Py_nb_add, reinterpret_cast<void*>(size_add)},
                         {Py_sq_concat, reinterpret_cast<void*>(size_concat)},
                         {Py_sq_repeat, reinterpret_cast<void*>(size_repeat)},
                         {Py_mp_subscript, reinterpret_cast<void*>(size_subscript)},
                         {Py_tp_doc, const_cast<char*>("The sizes of a tensor: a tuple of integers.")},
                         {0, nullptr}};
  PyType_Spec spec = {"athanor.Size", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  PyObject* bases = PyTuple_Pack(1, &PyTuple_Type);
  size_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpecWithBases(&spec, bases));
  Py_DECREF(bases);
  return size_type && PyModule_AddObjectRef(module, "Size", reinterpret_cast<PyObject*>(size_type)) == 0;
}

}  // namespace

bool add_types(PyObject* module) {
  auto m = nb::borrow<nb::module_>(module);
  add_dtypes(m);
  add_devices(m);
  add_generators(m);
  memory_format_type = add_constants<MemoryFormatObject>(
      m, "memory_format", "An order of the elements in memory: torch.contiguous_format, torch.channels_last and so on.",
      {{"contiguous_format", 0}, {"preserve_format", 1}, {"channels_last", 2}, {"channels_last_3d", 3}});
  layout_type = add_constants<LayoutObject>(m, "layout", "How a tensor keeps its elements: torch.strided, always.",
                                            {{"strided", 0}});
  return add_size(module);
}

PyObject* dtype_object(DType t) { return dtype_objects[static_cast<int>(t)].ptr(); }

bool is_dtype(PyObject* o) {
  return is_instance(o, dtype_type) || o == reinterpret_cast<PyObject*>(&PyFloat_Type) ||
         o == reinterpret_cast<PyObject*>(&PyLong_Type) || o == reinterpret_cast<PyObject*>(&PyBool_Type);
}
DType to_dtype(PyObject* o) {
  if (is_instance(o, dtype_type)) return instance<DTypeObject>(o).dtype;
  if (o == reinterpret_cast<PyObject*>(&PyFloat_Type)) return DType::Double;
  return o == reinterpret_cast<PyObject*>(&PyBool_Type) ? DType::Bool : DType::Long;
}

PyObject* device_object(Device d) { return nb::cast(d).release().ptr(); }
bool is_device(PyObject* o) {
  return is_instance(o, device_type) || PyUnicode_Check(o) || (PyLong_Check(o) && !PyBool_Check(o));
}
Device to_device(PyObject* o) {
  if (is_instance(o, device_type)) return instance<Device>(o);
  if (PyUnicode_Check(o)) return Device(to_str(o));
  const std::int64_t index = to_int(o);
  ATHANOR_CHECK(index >= 0 && index < 128, "Device index must not be negative, and at most 127, got ", index);
  return Device(DeviceType::CUDA, static_cast<DeviceIndex>(index));
}

bool is_generator(PyObject* o) { return is_instance(o, generator_type); }
Generator to_generator(PyObject* o) { return instance<Generator>(o); }

bool is_memory_format(PyObject* o) { return is_instance(o, memory_format_type); }
MemoryFormat to_memory_format(PyObject* o) { return static_cast<MemoryFormat>(instance<MemoryFormatObject>(o).value); }
bool is_layout(PyObject* o) { return is_instance(o, layout_type); }

PyObject* size_object(IntArrayRef sizes) {
  PyObject* self = PyTuple_Type.tp_alloc(size_type, static_cast<Py_ssize_t>(sizes.size()));
  if (!self) return nullptr;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    PyTuple_SET_ITEM(self, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(sizes[i]));
  return self;
}

bool is_size(PyObject* o) { return Py_TYPE(o) == size_type; }

}  // namespace athanor::python
