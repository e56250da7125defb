// Tensors made of Python's data: nested sequences, numbers, tensors, and whatever has the buffer protocol.

#include <cmath>
#include <cstring>
#include <limits>

#include "athanor/ops/factory.h"
#include "athanor/tensor/external.h"
#include "python/src/methods.h"
#include "python/src/types.h"

namespace athanor::python {
namespace {

constexpr int kMaxDims = 64;

bool is_sequence(PyObject* o) {
  return PyList_Check(o) || PyTuple_Check(o) ||
         (PySequence_Check(o) && !PyUnicode_Check(o) && !PyBytes_Check(o) && !is_tensor(o));
}

// A reference that is dropped at the end of its scope.
struct Held {
  PyObject* o;
  explicit Held(PyObject* object) : o(object) {
    if (!o) throw PythonError();
  }
  ~Held() { Py_DECREF(o); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
};

void find_sizes(PyObject* data, DimVector& sizes) {
  if (!is_sequence(data)) return;  // tensors are numbers here, as in torch
  ATHANOR_CHECK_VALUE(sizes.size() < kMaxDims, "too many dimensions in nested sequences (more than ", kMaxDims, ")");
  const Py_ssize_t n = PySequence_Size(data);
  if (n < 0) throw PythonError();
  sizes.push_back(n);
  if (n == 0) return;
  const Held first(PySequence_GetItem(data, 0));
  find_sizes(first.o, sizes);
}

DType leaf_dtype(PyObject* o) {
  if (PyBool_Check(o)) return DType::Bool;
  if (PyFloat_CheckExact(o)) return get_default_dtype();
  if (PyLong_Check(o)) return DType::Long;
  if (is_tensor(o)) return unwrap(o).scalar_type();
  if (accepts(Kind::Scalar, o)) {
    // NumPy's scalars know their dtype.
    if (has_buffer(o)) return tensor_from_buffer(o, "tensor", false).scalar_type();
    return to_scalar(o).isFloatingPoint() ? get_default_dtype() : DType::Long;
  }
  if (PyComplex_Check(o)) ATHANOR_THROW(NotImplementedError, "tensor: complex numbers are not supported");
  if (PyUnicode_Check(o)) ATHANOR_THROW(TypeError, "new(): invalid data type 'str'");
  ATHANOR_THROW(Error, "Could not infer dtype of ", Py_TYPE(o)->tp_name);
}

void find_dtype(PyObject* data, std::optional<DType>& dtype, std::size_t depth = 0) {
  ATHANOR_CHECK_TYPE(TypeError, depth <= kMaxDims,
                     "new(): self-referential lists are incompatible: sequences inside sequences, more than ", kMaxDims,
                     " deep");
  if (is_tensor(data) || !is_sequence(data)) {
    const DType t = leaf_dtype(data);
    dtype = dtype ? promote_types(*dtype, t) : t;
    return;
  }
  const Held items(PySequence_Fast(data, "expected a sequence"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.o); ++i)
    find_dtype(PySequence_Fast_GET_ITEM(items.o, i), dtype, depth + 1);
}

/// A number as T, its fraction cut off for whole numbers. Throws Error where T has no such number.
template <class T>
T cut_to(double d) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    // 2 to the power of the digits is a double, the largest int64 is none.
    const double end = std::ldexp(1.0, std::numeric_limits<T>::digits);
    if (!(std::trunc(d) < end && std::trunc(d) >= (std::is_signed_v<T> ? -end : 0.0)) ||
        (std::is_unsigned_v<T> && d < 0))
      ATHANOR_THROW(Error, "value cannot be converted to type ", dtype_name(dtype_of_v<T>), " without overflow: ", d);
  }
  return Scalar(d).to<T>();
}

template <class T>
T leaf_value(PyObject* o) {
  if (PyFloat_CheckExact(o)) return cut_to<T>(PyFloat_AS_DOUBLE(o));
  if (!accepts(Kind::Scalar, o) && !is_tensor(o))
    ATHANOR_THROW(TypeError, "must be real number, not ", Py_TYPE(o)->tp_name);
  if (PyLong_Check(o)) {
    int overflow = 0;
    PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow && std::is_floating_point_v<T>) return static_cast<T>(PyLong_AsDouble(o));
    ATHANOR_CHECK_VALUE(!overflow, "Overflow when unpacking long long");
  }
  const Scalar s = to_scalar(o);
  if (s.isFloatingPoint()) return cut_to<T>(s.toDouble());
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    // What a negative number is modulo 256 is taken, too.
    const bool wraps = std::is_unsigned_v<T> && s.toLong() < 0 && std::in_range<T>(-s.toLong());
    if (!wraps && !std::in_range<T>(s.toLong()))
      ATHANOR_THROW(Error, "value cannot be converted to type ", dtype_name(dtype_of_v<T>), " without overflow: ", s);
  }
  return s.to<T>();
}

template <class T>
T* fill(PyObject* data, IntArrayRef sizes, std::size_t depth, T* out) {
  if (is_tensor(data)) {
    const Tensor& t = unwrap(data);
    if (depth == sizes.size()) {
      ATHANOR_CHECK_TYPE(
          TypeError, t.numel() == 1 || t.is_floating_point(),
          "only integer tensors of a single element can be converted to an index; torch.stack joins tensors");
      ATHANOR_CHECK_VALUE(t.numel() == 1,
                          "only one element tensors can be converted to Python scalars; torch.stack joins tensors");
      *out = leaf_value<T>(data);
      return out + 1;
    }
    ATHANOR_CHECK_VALUE(t.sizes() == IntArrayRef(sizes.data() + depth, sizes.size() - depth),
                        "expected a tensor of sizes ",
                        std::vector<std::int64_t>(sizes.begin() + static_cast<std::ptrdiff_t>(depth), sizes.end()),
                        " inside the sequence at dim ", depth, " (got ", t.sizes(), ")");
    const Tensor flat = t.detach().cpu().to(dtype_of_v<T>).contiguous();
    if (flat.numel()) std::memcpy(out, flat.data_ptr(), flat.nbytes());
    return out + flat.numel();
  }
  if (depth == sizes.size()) {
    ATHANOR_CHECK_TYPE(TypeError, !is_sequence(data), "not a number at dim ", depth,
                       ": a sequence where others have numbers");
    *out = leaf_value<T>(data);
    return out + 1;
  }
  if (!is_sequence(data)) ATHANOR_THROW(TypeError, "not a sequence");
  const Held items(PySequence_Fast(data, "not a sequence"));
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(items.o);
  ATHANOR_CHECK_VALUE(n == sizes[depth], "expected sequence of length ", sizes[depth], " at dim ", depth, " (got ", n,
                      ")");
  for (Py_ssize_t i = 0; i < n; ++i) out = fill(PySequence_Fast_GET_ITEM(items.o, i), sizes, depth + 1, out);
  return out;
}

struct Format {
  char code;
  std::size_t size;
  DType dtype;
};
constexpr Format kFormats[] = {{'?', 1, DType::Bool},  {'b', 1, DType::Char},  {'B', 1, DType::Byte},
                               {'h', 2, DType::Short}, {'i', 4, DType::Int},   {'l', 4, DType::Int},
                               {'l', 8, DType::Long},  {'q', 8, DType::Long},  {'n', 8, DType::Long},
                               {'e', 2, DType::Half},  {'f', 4, DType::Float}, {'d', 8, DType::Double}};

DType dtype_of_buffer(const Py_buffer& view, const char* op) {
  std::string_view format = view.format ? view.format : "B";
  if (!format.empty() && (format[0] == '@' || format[0] == '=' || format[0] == '<')) format.remove_prefix(1);
  if (format.size() == 1)
    for (const Format& f : kFormats)
      if (f.code == format[0] && f.size == static_cast<std::size_t>(view.itemsize)) return f.dtype;
  ATHANOR_THROW(
      TypeError, op, ": can't convert an array whose elements have the format '", format, "' (", view.itemsize,
      " bytes); the supported types are: float64, float32, float16, int64, int32, int16, int8, uint8, and bool");
}

void release_buffer(PyObject* capsule) {
  auto* view = static_cast<Py_buffer*>(PyCapsule_GetPointer(capsule, nullptr));
  PyBuffer_Release(view);
  delete view;
}

}  // namespace

bool has_buffer(PyObject* o) { return PyObject_CheckBuffer(o) && !PyBytes_Check(o); }

Tensor tensor_from_buffer(PyObject* object, const char* op, bool warn) {
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object, view.get(), PyBUF_STRIDES | PyBUF_FORMAT | PyBUF_WRITABLE) < 0) {
    PyErr_Clear();
    if (PyObject_GetBuffer(object, view.get(), PyBUF_STRIDES | PyBUF_FORMAT) < 0) throw PythonError();
    if (warn && PyErr_WarnEx(PyExc_UserWarning,
                             "The given NumPy array is not writable; writing to the tensor writes to it all the same.",
                             1) < 0) {
      PyBuffer_Release(view.get());
      throw PythonError();
    }
  }
  PyObject* capsule = PyCapsule_New(view.get(), nullptr, release_buffer);
  if (!capsule) {
    PyBuffer_Release(view.get());
    throw PythonError();
  }
  const Py_buffer& v = *view.release();
  try {
    const DType dtype = dtype_of_buffer(v, op);
    DimVector sizes, strides;
    for (int i = 0; i < v.ndim; ++i) {
      sizes.push_back(v.shape[i]);
      ATHANOR_CHECK_VALUE(
          v.strides[i] >= 0 || v.shape[i] <= 1,
          "At least one stride in the given numpy array is negative, and "
          "tensors with negative strides are not currently supported. (You can probably work around this "
          "by making a copy of your array with array.copy().)");
      ATHANOR_CHECK_VALUE(v.strides[i] % v.itemsize == 0,
                          "given numpy array strides not a multiple of the element byte size. "
                          "Copy the numpy array to reallocate the memory.");
      strides.push_back(v.shape[i] <= 1 && v.strides[i] < 0 ? 1 : v.strides[i] / v.itemsize);
    }
    return athanor::detail::external_tensor(op, v.buf, sizes, strides, dtype,
                                            [capsule](void*) { release_later(capsule); });
  } catch (...) {
    Py_DECREF(capsule);
    throw;
  }
}

Tensor tensor_from_data(PyObject* data, std::optional<DType> dtype, std::optional<Device> device) {
  if (is_tensor(data)) {
    const Tensor& t = unwrap(data);
    const Unlocked unlocked(takes_long(t));
    return t.detach().clone().to(TensorOptions(dtype.value_or(t.scalar_type())).device(device.value_or(t.device())));
  }
  if (!PyFloat_CheckExact(data) && !PyLong_Check(data) && !PyList_Check(data) && !PyTuple_Check(data) &&
      has_buffer(data)) {
    const Tensor shared = tensor_from_buffer(data, "tensor", false);
    const Unlocked unlocked(takes_long(shared));
    Tensor copy = shared.clone();
    return copy.to(TensorOptions(dtype.value_or(copy.scalar_type())).device(device.value_or(Device())));
  }
  DimVector sizes;
  find_sizes(data, sizes);
  DType t;
  if (dtype) {
    t = *dtype;
  } else {
    std::optional<DType> found;
    find_dtype(data, found);
    t = found.value_or(get_default_dtype());
  }
  Tensor result = athanor::empty(sizes, t);
#define ATHANOR_FILL(type, name)                         \
  case DType::name:                                      \
    fill<type>(data, sizes, 0, result.data_ptr<type>()); \
    break;
  switch (t) {
    ATHANOR_FORALL_DTYPES(ATHANOR_FILL)
    default:
      break;
  }
#undef ATHANOR_FILL
  // What was written through data_ptr is plain memory of its own: a copy leaves no trace of the pointer.
  return device && !device->is_host() ? result.to(*device) : result;
}

}  // namespace athanor::python
