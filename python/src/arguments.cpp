#include "python/src/arguments.h"

#include <structmember.h>

#include <cstring>
#include <map>
#include <string>

#include "athanor/ops/op.h"
#include "python/src/types.h"

namespace athanor::python {
namespace {

// NumPy's keywords, and what torch calls an argument beside the name that is here.
constexpr const char* kOtherNames[][2] = {{"axis", "dim"},
                                          {"keepdims", "keepdim"},
                                          {"input", "self"},
                                          {"self", "input"},
                                          {"a", "self"},
                                          {"x", "self"},
                                          {"x1", "self"},
                                          {"x2", "other"},
                                          {"tensor", "self"},
                                          {"split_size", "split_size_or_sections"},
                                          {"tensor_indices_or_sections", "indices_or_sections"}};

struct OpFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  const OpEntry* op;
  bool method;
};

bool is_number(PyObject* v) { return PyLong_Check(v) || PyFloat_Check(v); }
bool is_foreign_number(PyObject* v, bool integer) {
  // NumPy's scalars and the like, not containers and not tensors.
  const PyNumberMethods* number = Py_TYPE(v)->tp_as_number;
  if (!number || is_tensor(v) || PySequence_Check(v)) return false;
  return number->nb_index || (!integer && number->nb_float);
}
bool is_int(PyObject* v) {
  if (PyLong_Check(v)) return !PyBool_Check(v);
  if (is_tensor(v)) return unwrap(v).numel() == 1 && !unwrap(v).is_floating_point();
  return is_foreign_number(v, true);
}
bool is_scalar_tensor(PyObject* v) { return is_tensor(v) && unwrap(v).dim() == 0 && !unwrap(v).requires_grad(); }

template <class F>
bool all_of_sequence(PyObject* v, F&& test) {
  if (!PyTuple_Check(v) && !PyList_Check(v)) return false;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(v);
  for (Py_ssize_t i = 0; i < n; ++i)
    if (!test(PySequence_Fast_GET_ITEM(v, i))) return false;
  return true;
}

const char* kind_name(const Parameter& p) {
  switch (p.kind) {
    case Kind::Tensor:
      return "Tensor";
    case Kind::TensorList:
      return "tuple of Tensors";
    case Kind::Int:
      return "int";
    case Kind::IntList:
      return "tuple of ints";
    case Kind::Float:
      return "float";
    case Kind::FloatList:
      return "tuple of floats";
    case Kind::Bool:
      return "bool";
    case Kind::Scalar:
      return "Number";
    case Kind::Dtype:
      return "torch.dtype";
    case Kind::Str:
      return "str";
    case Kind::Generator:
      return "torch.Generator";
    case Kind::Device:
      return "torch.device";
    case Kind::MemoryFormat:
      return "torch.memory_format";
    case Kind::Layout:
      return "torch.layout";
    case Kind::Object:
      return "object";
  }
  return "?";
}

bool same(PyObject* name, const char* text) { return PyUnicode_CompareWithASCIIString(name, text) == 0; }

int find(std::span<const Parameter> parameters, PyObject* name) {
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (same(name, parameters[i].name)) return static_cast<int>(i);
  for (const auto& [other, ours] : kOtherNames)
    if (same(name, other))
      for (std::size_t i = 0; i < parameters.size(); ++i)
        if (!std::strcmp(parameters[i].name, ours)) return static_cast<int>(i);
  return -1;
}

std::size_t positional_count(std::span<const Parameter> parameters) {
  std::size_t n = 0;
  while (n < parameters.size() && !parameters[n].keyword_only) ++n;
  return n;
}

// Why a signature did not fit, for functions with one signature only.
struct Misfit {
  enum { None, TooMany, Unknown, Twice, Missing, Type } what = None;
  int parameter = 0;
  std::size_t position = 0;
  PyObject* value = nullptr;
};

// torch accepts `view(2, 3)` for `view((2, 3))` where a list of integers is the only positional argument.
bool takes_variable_arguments(std::span<const Parameter> parameters, bool method) {
  const std::size_t first = method ? 1 : 0;
  return positional_count(parameters) == first + 1 && parameters[first].kind == Kind::IntList;
}

bool bind(const Signature& s, bool method, PyObject* const* args, std::size_t positional, PyObject* names,
          PyObject** values, std::vector<PyObject*>& made, Misfit& misfit) {
  const std::span<const Parameter> p = s.parameters;
  const std::size_t limit = positional_count(p), first = method ? 1 : 0;
  std::fill_n(values, p.size(), nullptr);
  std::size_t taken = positional;
  if (takes_variable_arguments(p, method) && positional > first && is_int(args[first])) {
    // Bound below, once everything else fits.
    for (std::size_t i = first; i < positional; ++i)
      if (!is_int(args[i])) return misfit = {Misfit::Type, static_cast<int>(first), i - first + 1, args[i]}, false;
    taken = first;
  } else if (positional > limit) {
    return misfit = {Misfit::TooMany, 0, positional, nullptr}, false;
  }
  std::copy_n(args, taken, values);
  const std::size_t keywords = names ? static_cast<std::size_t>(PyTuple_GET_SIZE(names)) : 0;
  for (std::size_t k = 0; k < keywords; ++k) {
    PyObject* name = PyTuple_GET_ITEM(names, k);
    PyObject* value = args[positional + k];
    if (value == Py_None && same(name, "out")) continue;
    const int i = find(p, name);
    if (i < 0) return misfit = {Misfit::Unknown, 0, 0, name}, false;
    if (values[i] || (taken < positional && static_cast<std::size_t>(i) == first))
      return misfit = {Misfit::Twice, i, 0, name}, false;
    values[i] = value;
  }
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (!values[i]) {
      if (p[i].required && !(taken < positional && i == first))
        return misfit = {Misfit::Missing, static_cast<int>(i), 0, nullptr}, false;
      continue;
    }
    if (values[i] == Py_None) {
      if (p[i].optional) continue;
      return misfit = {Misfit::Type, static_cast<int>(i), i < taken ? i + 1 - first : 0, values[i]}, false;
    }
    if (!accepts(p[i].kind, values[i]))
      return misfit = {Misfit::Type, static_cast<int>(i), i < taken ? i + 1 - first : 0, values[i]}, false;
  }
  if (taken < positional) {
    PyObject* list = PyTuple_New(static_cast<Py_ssize_t>(positional - first));
    if (!list) throw PythonError();
    for (std::size_t i = first; i < positional; ++i)
      PyTuple_SET_ITEM(list, static_cast<Py_ssize_t>(i - first), Py_NewRef(args[i]));
    made.push_back(list);
    values[first] = list;
  }
  return true;
}

std::string type_name(PyObject* v) { return is_tensor(v) ? "Tensor" : Py_TYPE(v)->tp_name; }

void explain(const char* name, const Signature& s, bool method, const Misfit& m) {
  const std::span<const Parameter> p = s.parameters;
  const std::size_t first = method ? 1 : 0;
  const auto shown = [&](int i) { return i == 0 && !method && !std::strcmp(p[0].name, "self") ? "input" : p[i].name; };
  switch (m.what) {
    case Misfit::TooMany:
      PyErr_Format(PyExc_TypeError, "%s() takes %zu positional argument%s but %zu %s given", name,
                   positional_count(p) - first, positional_count(p) - first == 1 ? "" : "s", m.position - first,
                   m.position - first == 1 ? "was" : "were");
      return;
    case Misfit::Unknown:
      PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", name, m.value);
      return;
    case Misfit::Twice:
      PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'", name, m.value);
      return;
    case Misfit::Missing:
      PyErr_Format(PyExc_TypeError, "%s() missing 1 required positional arguments: \"%s\"", name, shown(m.parameter));
      return;
    default:
      if (m.position)
        PyErr_Format(PyExc_TypeError, "%s(): argument '%s' (position %zu) must be %s, not %s", name, shown(m.parameter),
                     m.position, kind_name(p[m.parameter]), type_name(m.value).c_str());
      else
        PyErr_Format(PyExc_TypeError, "%s(): argument '%s' must be %s, not %s", name, shown(m.parameter),
                     kind_name(p[m.parameter]), type_name(m.value).c_str());
  }
}

void explain_all(const char* name, std::span<const Signature> signatures, bool method, PyObject* const* args,
                 std::size_t positional, PyObject* names) {
  std::string text = std::string(name) + "() received an invalid combination of arguments - got (";
  const std::size_t first = method ? 1 : 0;
  for (std::size_t i = first; i < positional; ++i) text += (i > first ? ", " : "") + type_name(args[i]);
  const std::size_t keywords = names ? static_cast<std::size_t>(PyTuple_GET_SIZE(names)) : 0;
  for (std::size_t k = 0; k < keywords; ++k) {
    const char* key = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, k));
    text +=
        std::string(k || positional > first ? ", " : "") + (key ? key : "?") + "=" + type_name(args[positional + k]);
  }
  text += "), but expected one of:";
  for (const Signature& s : signatures) text += std::string("\n * ") + s.text;
  PyErr_SetString(PyExc_TypeError, text.c_str());
}

PyObject* call_op(PyObject* self, PyObject* const* args, std::size_t nargsf, PyObject* names) {
  const auto* f = reinterpret_cast<OpFunction*>(self);
  const auto positional = static_cast<std::size_t>(PyVectorcall_NARGS(nargsf));
  if (f->method && (positional == 0 || !is_tensor(args[0]))) {
    PyErr_Format(PyExc_TypeError, "descriptor '%s' for 'athanor.Tensor' objects needs a Tensor as its first argument",
                 f->op->name);
    return nullptr;
  }
  std::vector<PyObject*> made;
  PyObject* result = nullptr;
  try {
    PyObject* values[kMaxParameters];
    const int chosen = parse(f->op->name, f->op->signatures, f->method, args, positional, names, values, made);
    if (chosen >= 0)
      result = f->op->signatures[static_cast<std::size_t>(chosen)].call(values);
    else
      result = call_old_form(self, f->op->name, f->method, args, positional, names);
  } catch (...) {
    result = raise_current();
  }
  for (PyObject* o : made) Py_DECREF(o);
  return result;
}

PyObject* bind_method(PyObject* self, PyObject* object, PyObject*) {
  if (!object || object == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, object);
}

PyObject* op_name_of(PyObject* self, void*) {
  return PyUnicode_FromString(reinterpret_cast<OpFunction*>(self)->op->name);
}
PyObject* op_doc_of(PyObject* self, void*) {
  const OpEntry* op = reinterpret_cast<OpFunction*>(self)->op;
  std::string text;
  for (const Signature& s : op->signatures) text += std::string(op->name) + s.text + "\n";
  return PyUnicode_FromString((text + (*op->doc ? "\n" : "") + op->doc).c_str());
}
// For tools: per signature the parameters as (name, kind, required, keyword only).
PyObject* op_signatures_of(PyObject* self, void*) {
  const OpEntry* op = reinterpret_cast<OpFunction*>(self)->op;
  PyObject* list = PyList_New(0);
  for (const Signature& s : op->signatures) {
    PyObject* parameters = PyList_New(0);
    for (const Parameter& p : s.parameters) {
      PyObject* row =
          Py_BuildValue("(ssNN)", p.name, kind_name(p), PyBool_FromLong(p.required), PyBool_FromLong(p.keyword_only));
      if (row) PyList_Append(parameters, row);
      Py_XDECREF(row);
    }
    PyList_Append(list, parameters);
    Py_DECREF(parameters);
  }
  return list;
}
PyObject* op_repr(PyObject* self) {
  const auto* f = reinterpret_cast<OpFunction*>(self);
  return PyUnicode_FromFormat(f->method ? "<method '%s' of 'athanor.Tensor' objects>" : "<built-in function %s>",
                              f->op->name);
}
PyObject* op_reduce(PyObject* self, PyObject*) {
  // Found again by name: functions and methods live in fixed places.
  const auto* f = reinterpret_cast<OpFunction*>(self);
  if (!f->method) {  // modules cannot be pickled, so not getattr(ops, name)
    PyObject* pkgutil = PyImport_ImportModule("pkgutil");
    if (!pkgutil) return nullptr;
    PyObject* resolve = PyObject_GetAttrString(pkgutil, "resolve_name");
    Py_DECREF(pkgutil);
    if (!resolve) return nullptr;
    return Py_BuildValue("(N(N))", resolve, PyUnicode_FromFormat("athanor._C:ops.%s", f->op->name));
  }
  PyObject* module = PyImport_ImportModule("athanor._C");
  if (!module) return nullptr;
  PyObject* home = PyObject_GetAttrString(module, "Tensor");
  Py_DECREF(module);
  if (!home) return nullptr;
  PyObject* getattr = PyDict_GetItemString(PyEval_GetBuiltins(), "getattr");
  return Py_BuildValue("(O(Ns))", getattr, home, f->op->name);
}

PyGetSetDef op_properties[] = {{"__name__", op_name_of, nullptr, nullptr, nullptr},
                               {"__qualname__", op_name_of, nullptr, nullptr, nullptr},
                               {"__doc__", op_doc_of, nullptr, nullptr, nullptr},
                               {"signatures", op_signatures_of, nullptr, nullptr, nullptr},
                               {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef op_methods[] = {{"__reduce__", op_reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyMemberDef op_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(OpFunction, vectorcall), READONLY, nullptr},
                            {nullptr, 0, 0, 0, nullptr}};

PyTypeObject* op_function_types[2];

}  // namespace

bool accepts(Kind kind, PyObject* v) {
  switch (kind) {
    case Kind::Tensor:
      return is_tensor(v);
    case Kind::TensorList:
      return all_of_sequence(v, is_tensor);
    case Kind::Int:
      // A tensor of one dim is a list: tensor_split(x, tensor([1])) splits at 1.
      return is_int(v) && (!is_tensor(v) || (unwrap(v).dim() == 0 && unwrap(v).dtype() != kBool));
    case Kind::IntList:
      return is_int(v) || all_of_sequence(v, is_int);
    case Kind::Float:
      return is_number(v) || is_scalar_tensor(v) || is_foreign_number(v, false);
    case Kind::FloatList:
      return is_number(v) || all_of_sequence(v, [](PyObject* o) { return accepts(Kind::Float, o); });
    case Kind::Bool:
      return PyBool_Check(v) || (is_foreign_number(v, false) && !PyFloat_Check(v) && !PyLong_Check(v) &&
                                 !std::strncmp(Py_TYPE(v)->tp_name, "numpy.bool", 10));
    case Kind::Scalar:
      return is_number(v) || is_scalar_tensor(v) || is_foreign_number(v, false);
    case Kind::Dtype:
      return is_dtype(v);
    case Kind::Str:
      return PyUnicode_Check(v);
    case Kind::Generator:
      return is_generator(v);
    case Kind::Device:
      return is_device(v);
    case Kind::MemoryFormat:
      return is_memory_format(v);
    case Kind::Layout:
      return is_layout(v);
    case Kind::Object:
      return true;
  }
  return false;
}

int parse(const char* name, std::span<const Signature> signatures, bool method, PyObject* const* args,
          std::size_t positional, PyObject* names, PyObject** values, std::vector<PyObject*>& made) {
  Misfit misfit;
  for (std::size_t i = 0; i < signatures.size(); ++i)
    if (bind(signatures[i], method, args, positional, names, values, made, misfit)) return static_cast<int>(i);
  if (signatures.size() == 1)
    explain(name, signatures[0], method, misfit);
  else
    explain_all(name, signatures, method, args, positional, names);
  return -1;
}

const Tensor& to_optional_tensor(PyObject* v) {
  static const Tensor none;
  return given(v) ? unwrap(v) : none;
}

std::vector<Tensor> to_tensor_list(PyObject* v) {
  std::vector<Tensor> list;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(v);
  list.reserve(static_cast<std::size_t>(n));
  for (Py_ssize_t i = 0; i < n; ++i) list.push_back(unwrap(PySequence_Fast_GET_ITEM(v, i)));
  return list;
}

std::int64_t to_int(PyObject* v) {
  if (is_tensor(v)) return unwrap(v).item().toLong();
  long long i = 0;
  if (PyLong_Check(v)) {
    i = PyLong_AsLongLong(v);
  } else {
    PyObject* index = PyNumber_Index(v);
    if (!index) throw PythonError();
    i = PyLong_AsLongLong(index);
    Py_DECREF(index);
  }
  if (i == -1 && PyErr_Occurred()) throw PythonError();
  return i;
}

double to_float(PyObject* v) {
  if (PyFloat_Check(v)) return PyFloat_AS_DOUBLE(v);
  if (is_tensor(v)) return unwrap(v).item().toDouble();
  const double d = PyFloat_AsDouble(v);
  if (d == -1 && PyErr_Occurred()) throw PythonError();
  return d;
}

Scalar to_scalar(PyObject* v) {
  if (PyBool_Check(v)) return Scalar(v == Py_True);
  if (PyFloat_Check(v)) return Scalar(PyFloat_AS_DOUBLE(v));
  if (PyLong_Check(v)) return Scalar(to_int(v));
  if (is_tensor(v)) return unwrap(v).item();
  if (!std::strncmp(Py_TYPE(v)->tp_name, "numpy.bool", 10)) return Scalar(PyObject_IsTrue(v) == 1);
  if (Py_TYPE(v)->tp_as_number && Py_TYPE(v)->tp_as_number->nb_index) return Scalar(to_int(v));
  return Scalar(to_float(v));
}

DimVector to_int_list(PyObject* v) {
  DimVector list;
  if (!PyTuple_Check(v) && !PyList_Check(v)) {
    list.push_back(to_int(v));
    return list;
  }
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); ++i) list.push_back(to_int(PySequence_Fast_GET_ITEM(v, i)));
  return list;
}

std::vector<double> to_float_list(PyObject* v) {
  if (!PyTuple_Check(v) && !PyList_Check(v)) return {to_float(v)};
  std::vector<double> list;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(v); ++i) list.push_back(to_float(PySequence_Fast_GET_ITEM(v, i)));
  return list;
}

std::string_view to_str(PyObject* v) {
  Py_ssize_t n = 0;
  const char* text = PyUnicode_AsUTF8AndSize(v, &n);
  if (!text) throw PythonError();
  return {text, static_cast<std::size_t>(n)};
}

TensorOptions to_options(PyObject* const* v) {
  TensorOptions options;
  if (given(v[0])) options = options.dtype(to_dtype(v[0]));
  if (given(v[2])) options = options.device(to_device(v[2]));
  if (given(v[3])) options = options.pinned_memory(to_bool(v[3]));
  if (given(v[4])) options = options.requires_grad(to_bool(v[4]));
  return options;
}

std::optional<Device>& default_device() {
  static thread_local std::optional<Device> device;
  return device;
}

TensorOptions to_factory_options(PyObject* const* v) {
  const TensorOptions options = to_options(v);
  return default_device() && !given(v[2]) ? options.device(*default_device()) : options;
}

TensorOptions options_for_out(const TensorOptions& asked, const Tensor& out) {
  ATHANOR_CHECK(!asked.has_dtype() || asked.dtype() == out.scalar_type(), "dtype ", asked.dtype(),
                " does not match dtype of out parameter (", out.scalar_type(), ")");
  return asked.dtype(out.scalar_type()).device(out.device());
}

void copy_to_out(const char* op, const Tensor& out, const Tensor& value, bool keeps_shape) {
  (keeps_shape ? athanor::ops::filling_out(op, out, value) : athanor::ops::composite_out(op, out, value));
}

std::vector<Tensor> to_outs(const char* op, PyObject* v, std::size_t count) {
  std::vector<Tensor> outs = to_tensor_list(v);
  ATHANOR_CHECK_TYPE(TypeError, outs.size() == count, op, "(): argument 'out' must be tuple of ", count,
                     " Tensors, got ", outs.size());
  return outs;
}

PyObject* to_python(const Scalar& s) {
  if (s.isBoolean()) return PyBool_FromLong(s.toBool());
  if (s.isFloatingPoint()) return PyFloat_FromDouble(s.toDouble());
  return PyLong_FromLongLong(s.toLong());
}

PyObject* to_python(std::vector<Tensor>&& list) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(list.size()));
  if (!tuple) return nullptr;
  for (std::size_t i = 0; i < list.size(); ++i)
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), wrap(std::move(list[i])));
  return tuple;
}

namespace {

PyObject* named_results_repr(PyObject* self) {
  std::string text = std::string(Py_TYPE(self)->tp_name) + "(\n";
  PyObject* fields = PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(self)), "__match_args__");
  if (!fields) return nullptr;
  const Py_ssize_t n = PyTuple_GET_SIZE(self);
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* value = PyObject_Repr(PyTuple_GET_ITEM(self, i));
    if (!value) return Py_DECREF(fields), nullptr;
    text += std::string(PyUnicode_AsUTF8(PyTuple_GET_ITEM(fields, i))) + "=" + PyUnicode_AsUTF8(value) +
            (i + 1 < n ? ",\n" : ")");
    Py_DECREF(value);
  }
  Py_DECREF(fields);
  return PyUnicode_FromString(text.c_str());
}

}  // namespace

PyObject* named_results(const char* op, const char* names, PyObject* tuple) {
  static std::map<std::string, PyTypeObject*> types;
  if (!tuple) return nullptr;
  PyTypeObject*& type = types[op];
  if (!type) {
    // The descriptions live as long as the types: for ever.
    auto* fields = new std::vector<PyStructSequence_Field>;
    auto* texts = new std::vector<std::string>;
    std::string_view rest = names;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      texts->emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    for (const std::string& t : *texts) fields->push_back({t.c_str(), nullptr});
    fields->push_back({nullptr, nullptr});
    auto* name = new std::string(std::string("torch.return_types.") + op);
    PyStructSequence_Desc desc = {name->c_str(), nullptr, fields->data(), static_cast<int>(texts->size())};
    type = PyStructSequence_NewType(&desc);
    if (!type) return nullptr;
    type->tp_repr = named_results_repr;
    PyObject* match = PyTuple_New(static_cast<Py_ssize_t>(texts->size()));
    for (std::size_t i = 0; i < texts->size(); ++i)
      PyTuple_SET_ITEM(match, static_cast<Py_ssize_t>(i), PyUnicode_FromString((*texts)[i].c_str()));
    PyDict_SetItemString(type->tp_dict, "__match_args__", match);
    Py_DECREF(match);
    PyType_Modified(type);
  }
  PyObject* result = PyStructSequence_New(type);
  if (result)
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i)
      PyStructSequence_SetItem(result, i, Py_NewRef(PyTuple_GET_ITEM(tuple, i)));
  Py_DECREF(tuple);
  return result;
}

bool add_op_function_type(PyObject*) {
  for (const bool method : {false, true}) {
    std::vector<PyType_Slot> slots = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                      {Py_tp_repr, reinterpret_cast<void*>(op_repr)},
                                      {Py_tp_getset, op_properties},
                                      {Py_tp_methods, op_methods},
                                      {Py_tp_members, op_members}};
    if (method) slots.push_back({Py_tp_descr_get, reinterpret_cast<void*>(bind_method)});
    slots.push_back({0, nullptr});
    unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
    if (method) flags |= Py_TPFLAGS_METHOD_DESCRIPTOR;
    PyType_Spec spec = {method ? "athanor._C.OpMethod" : "athanor._C.OpFunction", static_cast<int>(sizeof(OpFunction)),
                        0, flags, slots.data()};
    op_function_types[method] = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    if (!op_function_types[method]) return false;
  }
  return true;
}

PyObject* new_op_function(const OpEntry* op, bool method) {
  auto* f = PyObject_New(OpFunction, op_function_types[method]);
  if (!f) return nullptr;
  f->vectorcall = call_op;
  f->op = op;
  f->method = method;
  return reinterpret_cast<PyObject*>(f);
}

}  // namespace athanor::python
