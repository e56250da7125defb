#pragma once
/// `athanor.Tensor`: the Python object that stands for a tensor. One tensor has at most one object at a time
/// (TensorImpl::identity), so `p.grad is p.grad`. Everything here needs the interpreter lock.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>

#include "athanor/ops/tensor.h"
#include "python/src/lock.h"

#if PY_VERSION_HEX < 0x030A0000
inline PyObject* Py_NewRef(PyObject* o) {
  Py_INCREF(o);
  return o;
}
inline int PyModule_AddObjectRef(PyObject* module, const char* name, PyObject* value) {
  Py_INCREF(value);
  return PyModule_AddObject(module, name, value);
}
#endif

namespace athanor::python {

struct TensorObject {
  PyObject_HEAD TensorImpl* impl;  ///< never null while the object can be reached
  bool owns;                       ///< this object holds a reference to impl; if not, impl holds one to this object
  PyObject* dict;                  ///< made when the program sets an attribute
  PyObject* weak_references;
};

extern PyTypeObject* tensor_type;
/// Makes the type and puts it into `module` as `Tensor`. Null type and a Python error if that fails.
bool add_tensor_type(PyObject* module);

inline bool is_tensor(PyObject* o) { return Py_TYPE(o) == tensor_type || PyType_IsSubtype(Py_TYPE(o), tensor_type); }
/// The tensor behind `o`, which must be one. Valid as long as `o` lives.
inline const Tensor& unwrap(PyObject* o) {
  static_assert(sizeof(Tensor) == sizeof(TensorImpl*));
  return reinterpret_cast<const Tensor&>(reinterpret_cast<TensorObject*>(o)->impl);
}
/// New reference: the object that stands for `t`; None if t is undefined.
PyObject* wrap(Tensor t);
/// The same as an object of `type`, a subclass of Tensor. Raises if another object stands for t already.
PyObject* wrap_as(PyTypeObject* type, Tensor t);

/// Drops a reference from any thread: at once if it has the interpreter lock, else when the interpreter next can.
/// A thread of a device queue must never wait for the lock.
void release_later(PyObject* o);

/// Turns the C++ exception in flight into a Python error; always returns null.
PyObject* raise_current() noexcept;
/// Thrown to carry a Python error that is set already through C++ frames.
struct PythonError {};

}  // namespace athanor::python
