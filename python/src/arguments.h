#pragma once
/// From Python's arguments to a C++ call: signatures are tables made from the op schemas, one parser reads them all.
/// A value that was not given is null. Messages are PyTorch's where programs match on them.

#include <span>
#include <tuple>
#include <vector>

#include "athanor/tensor/generator.h"
#include "python/src/tensor_object.h"

namespace athanor::python {

enum class Kind : std::uint8_t {
  Tensor,
  TensorList,
  Int,
  IntList,
  Float,
  FloatList,
  Bool,
  Scalar,
  Dtype,
  Str,
  Generator,
  Device,
  MemoryFormat,
  Layout,
  Object
};

struct Parameter {
  const char* name;
  Kind kind;
  bool optional;  ///< None is accepted
  bool required;  ///< there is no default
  bool keyword_only;
};

/// Makes the call with one value per parameter and returns a new reference.
using Call = PyObject* (*)(PyObject* const* values);

struct Signature {
  const char* text;  ///< as shown in messages: "(Tensor input, int dim, *, bool keepdim=False)"
  std::span<const Parameter> parameters;
  Call call;
};

struct OpEntry {
  const char* name;
  const char* doc;
  std::span<const Signature> signatures;
};

inline constexpr std::size_t kMaxParameters = 32;

/// A callable for `op`; as a method it binds its first argument. New reference.
PyObject* new_op_function(const OpEntry* op, bool method);
bool add_op_function_type(PyObject* module);
/// Reads `args` by the first signature that fits into `values`; -1 and a Python TypeError if none does. `method`: the
/// first argument is the tensor itself.
int parse(const char* name, std::span<const Signature> signatures, bool method, PyObject* const* args,
          std::size_t positional, PyObject* names, PyObject** values, std::vector<PyObject*>& made);

/// The call by a deprecated form, torch.add(x, 2, y), with a warning. Null with the TypeError that is set already, if
/// it is none. `callable` is called again, with numbers by name.
PyObject* call_old_form(PyObject* callable, const char* name, bool method, PyObject* const* args,
                        std::size_t positional, PyObject* names);

bool accepts(Kind kind, PyObject* value);

/// The conversions below throw PythonError if Python refused; `accepts` must have held.
inline const Tensor& to_tensor(PyObject* v) { return unwrap(v); }
const Tensor& to_optional_tensor(PyObject* v);
std::vector<Tensor> to_tensor_list(PyObject* v);
std::int64_t to_int(PyObject* v);
double to_float(PyObject* v);
Scalar to_scalar(PyObject* v);
DimVector to_int_list(PyObject* v);
std::vector<double> to_float_list(PyObject* v);
inline bool to_bool(PyObject* v) { return PyObject_IsTrue(v) == 1; }
std::string_view to_str(PyObject* v);
inline bool given(PyObject* v) { return v && v != Py_None; }

template <class T, class F>
std::optional<T> to_optional(PyObject* v, F&& convert) {
  if (!given(v)) return std::nullopt;
  return convert(v);
}
/// dtype, layout, device, pin_memory, requires_grad: five values in a row.
TensorOptions to_options(PyObject* const* v);
/// The same for a tensor that is made of nothing: on the default device, if no other is named.
TensorOptions to_factory_options(PyObject* const* v);
/// Options of what is to be copied to `out`: its dtype and device. Raises Error if another dtype was asked for.
TensorOptions options_for_out(const TensorOptions& asked, const Tensor& out);
/// Gives `out` the shape and the values, as ops with out= do.
void copy_to_out(const char* op, const Tensor& out, const Tensor& value, bool keeps_shape = false);
/// The tensors of an out= that takes `count` of them; raises TypeError if there are others.
std::vector<Tensor> to_outs(const char* op, PyObject* v, std::size_t count);
/// Where set_default_device and `with torch.device(...)` want such tensors in this thread; the host to begin with.
std::optional<Device>& default_device();

inline PyObject* to_python(Tensor&& t) { return wrap(std::move(t)); }
inline PyObject* to_python(bool b) { return PyBool_FromLong(b); }
inline PyObject* to_python(std::int64_t i) { return PyLong_FromLongLong(i); }
inline PyObject* to_python(double d) { return PyFloat_FromDouble(d); }
PyObject* to_python(const Scalar& s);
PyObject* to_python(std::vector<Tensor>&& list);
template <class... T>
PyObject* to_python(std::tuple<T...>&& t) {
  PyObject* result = PyTuple_New(sizeof...(T));
  if (!result) return nullptr;
  std::apply(
      [&](auto&&... item) {
        Py_ssize_t i = 0;
        (PyTuple_SET_ITEM(result, i++, to_python(std::move(item))), ...);
      },
      std::move(t));
  return result;
}
/// Results with names, "values indices": an object that is a tuple and has attributes, as torch.return_types.
PyObject* named_results(const char* op, const char* names, PyObject* tuple);

/// Whether an op on it may take longer than handing over the interpreter lock does, or wait.
inline bool takes_long(const athanor::Tensor& t) { return t.defined() && (t.numel() >= 4096 || !t.device().is_host()); }
inline bool takes_long(const std::vector<Tensor>& list) {
  for (const Tensor& t : list)
    if (takes_long(t)) return true;
  return list.size() > 16;
}
inline bool takes_long(const DimVector& sizes) {
  double n = 1;
  for (const std::int64_t s : sizes) n *= static_cast<double>(s);
  return n >= 4096;
}
inline bool takes_long(const TensorOptions& o) { return o.has_device() && !o.device().is_host(); }
/// A number may be one of elements: of randperm(n), eye(n), arange(end). That of a dim is small.
inline bool takes_long(std::int64_t n) { return n >= 4096; }
inline bool takes_long(const Scalar& s) { return s.to<double>() >= 4096; }
/// Whether each of the two is small, and the result of broadcasting them (or an outer product) is not.
inline bool take_long_together(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a.numel() * b.numel() >= (1 << 16);
}
inline bool broadcast_to_much(const Tensor& a, const Tensor& b) {
  return take_long_together(a, b) && a.sizes() != b.sizes();
}
template <class T>
bool takes_long(const T&) {
  return false;
}

/// Runs `f`, without the interpreter lock if `worth_it`, and makes its result a Python object.
template <class F>
PyObject* run(bool worth_it, F&& f) {
  if constexpr (std::is_void_v<decltype(f())>) {
    {
      const Unlocked unlocked(worth_it);
      f();
    }
    return nullptr;
  } else {
    auto result = [&] {
      const Unlocked unlocked(worth_it);
      return f();
    }();
    return to_python(std::move(result));
  }
}

}  // namespace athanor::python
