// x[key] and x[key] = value.

#include <cmath>
#include <cstring>
#include <limits>

#include "python/src/methods.h"

namespace athanor::python {
namespace {

using indexing::TensorIndex;

std::optional<std::int64_t> bound(PyObject* o) {
  if (o == Py_None) return std::nullopt;
  if (is_tensor(o)) return to_int(o);
  if (!PyIndex_Check(o)) ATHANOR_THROW(TypeError, "slice indices must be integers or None or have an __index__ method");
  const Py_ssize_t i = PyNumber_AsSsize_t(o, nullptr);  // as in Python, a bound too large is the end
  if (i == -1 && PyErr_Occurred()) throw PythonError();
  return i;
}

std::int64_t place(PyObject* o) {
  if (PyLong_Check(o)) {
    int overflow = 0;
    const std::int64_t i = PyLong_AsLongLongAndOverflow(o, &overflow);
    ATHANOR_CHECK_VALUE(!overflow, "Overflow when unpacking long long");
    return i;
  }
  return to_int(o);
}

/// A number that knows its place, as NumPy's integers: an array is a sequence, its bools are no integers.
bool is_place(PyObject* o) {
  return PyIndex_Check(o) && !PySequence_Check(o) && std::strncmp(Py_TYPE(o)->tp_name, "numpy.bool", 10) != 0;
}

TensorIndex to_index(PyObject* key) {
  if (key == Py_None) return std::nullopt;
  if (key == Py_Ellipsis) return indexing::Ellipsis;
  if (PyBool_Check(key)) return key == Py_True;
  if (PyLong_Check(key)) return place(key);
  if (is_tensor(key)) return static_cast<const TensorBase&>(unwrap(key));
  if (PySlice_Check(key)) {
    auto* s = reinterpret_cast<PySliceObject*>(key);
    const auto step = bound(s->step);
    ATHANOR_CHECK_VALUE(!step || *step > 0, "step must be greater than zero, got ", *step);
    return indexing::Slice(bound(s->start), bound(s->stop), step);
  }
  if (PyUnicode_Check(key)) ATHANOR_THROW(TypeError, "new(): invalid data type 'str'");
  if (PyList_Check(key) || PyTuple_Check(key) || PyRange_Check(key)) {
    // An empty list, or one of such, selects nothing; it has no dtype of its own.
    const Tensor places = tensor_from_data(key, std::nullopt, std::nullopt);
    return static_cast<const TensorBase&>(places.numel() == 0 ? places.to(kLong) : places);
  }
  if (is_place(key)) return to_int(key);
  if (PyBytes_Check(key)) ATHANOR_THROW(TypeError, "new(): invalid data type 'bytes'");
  if (has_buffer(key)) {
    // Whole numbers of any width are places, those of tensors are asked to be wide.
    Tensor t = tensor_from_buffer(key, "index", false).clone();
    if (is_integral(t.dtype()) && t.dtype() != kByte && t.dtype() != kBool) t = t.to(kLong);
    return static_cast<const TensorBase&>(t);
  }
  ATHANOR_THROW(IndexError,
                "only integers, slices (`:`), ellipsis (`...`), None and long, int, byte or bool tensors or lists "
                "are valid indices (got ",
                Py_TYPE(key)->tp_name, ")");
}

// torch, as NumPy once did, takes a short list with a slice, a list or a tensor in it for a tuple.
bool is_like_tuple(PyObject* key) {
  if (PyTuple_Check(key)) return true;
  if (!PyList_Check(key) || PyList_GET_SIZE(key) >= 32) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(key); ++i) {
    PyObject* item = PyList_GET_ITEM(key, i);
    if (item == Py_None || item == Py_Ellipsis || PySlice_Check(item) || is_tensor(item) || PySequence_Check(item))
      return true;
  }
  return false;
}

/// The number to assign: what exceeds a half type is infinite, where other dtypes refuse.
Scalar number_for(DType dtype, PyObject* value) {
  if (PyLong_Check(value)) place(value);
  const Scalar s = to_scalar(value);
  if ((dtype != DType::Half && dtype != DType::BFloat16) || s.fits(dtype)) return s;
  return std::copysign(std::numeric_limits<double>::infinity(), s.toDouble());
}

std::vector<TensorIndex> to_indices(PyObject* key) {
  std::vector<TensorIndex> indices;
  if (!is_like_tuple(key)) {
    indices.push_back(to_index(key));
    return indices;
  }
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(key);
  indices.reserve(static_cast<std::size_t>(n));
  for (Py_ssize_t i = 0; i < n; ++i) indices.push_back(to_index(PySequence_Fast_GET_ITEM(key, i)));
  if (indices.empty()) indices.emplace_back(indexing::Ellipsis);  // x[()] is all of x; C++ takes no empty list
  return indices;
}

}  // namespace

PyObject* tensor_get_item(PyObject* self, PyObject* key) {
  try {
    const Tensor& t = unwrap(self);
    if (PyLong_Check(key) && !PyBool_Check(key)) {
      ATHANOR_CHECK_INDEX(
          t.dim() > 0,
          "invalid index of a 0-dim tensor. Use `tensor.item()` in Python to convert a 0-dim tensor to a number");
      return wrap(t.select(0, place(key)));
    }
    const std::vector<TensorIndex> indices = to_indices(key);
    return run(takes_long(t), [&] { return t.index(ArrayRef<TensorIndex>(indices)); });
  } catch (...) {
    return raise_current();
  }
}

int tensor_set_item(PyObject* self, PyObject* key, PyObject* value) {
  if (!value) {
    PyErr_SetString(PyExc_TypeError, "'Tensor' object does not support item deletion");
    return -1;
  }
  try {
    auto& t = const_cast<Tensor&>(unwrap(self));
    const std::vector<TensorIndex> indices = to_indices(key);
    const ArrayRef<TensorIndex> places(indices);
    if (!is_tensor(value) && accepts(Kind::Scalar, value)) {
      const Scalar s = number_for(t.scalar_type(), value);
      run(takes_long(t), [&] { t.index_put_(places, s); });
    } else {
      const Tensor v = is_tensor(value) ? unwrap(value) : tensor_from_data(value, t.scalar_type(), t.device());
      run(takes_long(t) || takes_long(v), [&] { t.index_put_(places, v); });
    }
    return 0;
  } catch (...) {
    raise_current();
    return -1;
  }
}

PyObject* tensor_iterate(PyObject* self) {
  try {
    const Tensor& t = unwrap(self);
    ATHANOR_CHECK_TYPE(TypeError, t.dim() > 0, "iteration over a 0-d tensor");
    PyObject* parts = to_python(t.unbind(0));
    if (!parts) return nullptr;
    PyObject* iterator = PyObject_GetIter(parts);
    Py_DECREF(parts);
    return iterator;
  } catch (...) {
    return raise_current();
  }
}

Py_ssize_t tensor_length(PyObject* self) {
  const Tensor& t = unwrap(self);
  if (t.dim() == 0) {
    PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
    return -1;
  }
  return static_cast<Py_ssize_t>(t.size(0));
}

int tensor_contains(PyObject* self, PyObject* item) {
  try {
    const Tensor& t = unwrap(self);
    if (!accepts(Kind::Scalar, item) && !is_tensor(item)) {
      PyErr_Format(PyExc_RuntimeError, "Tensor.__contains__ only supports Tensor or scalar, but you passed in a %s.",
                   Py_TYPE(item)->tp_name);
      return -1;
    }
    const Tensor equal = is_tensor(item) ? t.eq(unwrap(item)) : t.eq(to_scalar(item));
    return equal.any().item().toBool();
  } catch (...) {
    raise_current();
    return -1;
  }
}

}  // namespace athanor::python
