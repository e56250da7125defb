#include "python/src/tensor_object.h"

#include <structmember.h>

#include <mutex>
#include <vector>

#include "python/src/methods.h"

namespace athanor::python {

PyTypeObject* tensor_type = nullptr;

namespace {

// References that were dropped by threads without the interpreter lock.
std::mutex dropped_lock;
std::vector<PyObject*> dropped;

int drop_pending(void*) {
  std::vector<PyObject*> now;
  {
    const std::lock_guard lock(dropped_lock);
    now.swap(dropped);
  }
  for (PyObject* o : now) Py_DECREF(o);
  return 0;
}

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

void release_identity(void* object) { release_later(static_cast<PyObject*>(object)); }

TensorObject* cast(PyObject* o) { return reinterpret_cast<TensorObject*>(o); }

void adopt(TensorObject* self, Tensor&& t) {
  // The handle's reference becomes the object's.
  new (&self->impl) Tensor(std::move(t));
  self->owns = true;
  self->impl->identity = self;
}

// Python gave the object up. If C++ still holds the tensor and the object has something of its own (attributes, a
// subclass, weak references), it stays with the tensor, which now owns it.
void finalize(PyObject* o) {
  TensorObject* self = cast(o);
  if (!self->impl || !self->owns || self->impl->use_count() <= 1) return;
  if (Py_TYPE(o) == tensor_type && !self->dict && !self->weak_references) return;
  TensorImpl* impl = self->impl;
  Py_INCREF(o);
  self->owns = false;
  impl->identity_release = release_identity;
  reinterpret_cast<Tensor&>(self->impl).~Tensor();  // the tensor lives: others hold it
  self->impl = impl;
}

void deallocate(PyObject* o) {
  TensorObject* self = cast(o);
  if (Py_TYPE(o) == tensor_type && (self->dict || self->weak_references)) {
    // Not by CPython's helper, which lets an object come back to life only once.
    Py_SET_REFCNT(o, 1);
    finalize(o);
    Py_SET_REFCNT(o, Py_REFCNT(o) - 1);
    if (Py_REFCNT(o) != 0) return;
  }
  PyObject_GC_UnTrack(o);
  if (self->weak_references) PyObject_ClearWeakRefs(o);
  Py_CLEAR(self->dict);
  if (self->impl && self->owns) {
    self->impl->identity = nullptr;
    self->impl->identity_release = nullptr;
    // Freeing a large block, or a graph, may take long or wait for a queue; other threads may run meanwhile only if
    // nobody can reach the object, which is so here.
    reinterpret_cast<Tensor&>(self->impl).~Tensor();
  }
  PyTypeObject* type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

int traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(cast(o)->dict);
  Py_VISIT(Py_TYPE(o));
  return 0;
}

int clear(PyObject* o) {
  Py_CLEAR(cast(o)->dict);
  return 0;
}

int set_attribute(PyObject* o, PyObject* name, PyObject* value) {
  const int result = PyObject_GenericSetAttr(o, name, value);
  // Plain tensors are watched by the garbage collector only once they can hold anything.
  if (cast(o)->dict && !PyObject_GC_IsTracked(o)) PyObject_GC_Track(o);
  return result;
}

PyMemberDef members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(TensorObject, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

}  // namespace

void release_later(PyObject* o) {
  if (!Py_IsInitialized() || is_finalizing()) return;  // the interpreter's end frees everything
  if (PyGILState_Check()) {
    Py_DECREF(o);
    return;
  }
  bool first = false;
  {
    const std::lock_guard lock(dropped_lock);
    first = dropped.empty();
    dropped.push_back(o);
  }
  if (first) Py_AddPendingCall(drop_pending, nullptr);
}

PyObject* wrap(Tensor t) {
  TensorImpl* impl = t.impl();
  if (!impl) Py_RETURN_NONE;
  if (impl->identity) {
    auto* self = static_cast<TensorObject*>(impl->identity);
    if (self->owns) return Py_NewRef(reinterpret_cast<PyObject*>(self));
    // The tensor owned its object; now the object owns the tensor again, and the caller gets the tensor's reference.
    impl->identity_release = nullptr;
    adopt(self, std::move(t));
    return reinterpret_cast<PyObject*>(self);
  }
  auto* self = PyObject_GC_New(TensorObject, tensor_type);
  if (!self) return nullptr;
  self->dict = self->weak_references = nullptr;
  adopt(self, std::move(t));
  return reinterpret_cast<PyObject*>(self);
}

PyObject* wrap_as(PyTypeObject* type, Tensor t) {
  if (!PyType_IsSubtype(type, tensor_type)) {
    PyErr_SetString(PyExc_TypeError, "a tensor can only be made an object of Tensor or a subclass of it");
    return nullptr;
  }
  if (t.impl()->identity) {
    PyErr_SetString(PyExc_RuntimeError, "another object stands for this tensor already; use detach() to get a new one");
    return nullptr;
  }
  PyObject* o = type->tp_alloc(type, 0);
  if (!o) return nullptr;
  cast(o)->dict = cast(o)->weak_references = nullptr;
  adopt(cast(o), std::move(t));
  return o;
}

bool add_tensor_type(PyObject* module) {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
      {Py_tp_finalize, reinterpret_cast<void*>(finalize)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(clear)},
      {Py_tp_setattro, reinterpret_cast<void*>(set_attribute)},
      {Py_tp_members, members},
      {Py_tp_new, reinterpret_cast<void*>(tensor_new)},
      {Py_tp_repr, reinterpret_cast<void*>(tensor_repr)},
      {Py_tp_hash, reinterpret_cast<void*>(tensor_hash)},
      {Py_tp_richcompare, reinterpret_cast<void*>(tensor_compare)},
      {Py_tp_iter, reinterpret_cast<void*>(tensor_iterate)},
      {Py_tp_methods, tensor_methods},
      {Py_tp_getset, tensor_properties},
      {Py_mp_length, reinterpret_cast<void*>(tensor_length)},
      {Py_mp_subscript, reinterpret_cast<void*>(tensor_get_item)},
      {Py_mp_ass_subscript, reinterpret_cast<void*>(tensor_set_item)},
      {Py_sq_length, reinterpret_cast<void*>(tensor_length)},
      {Py_sq_contains, reinterpret_cast<void*>(tensor_contains)},
#define ATHANOR_NUMBER_SLOT(slot, function) {slot, reinterpret_cast<void*>(function)},
      ATHANOR_NUMBER_SLOTS(ATHANOR_NUMBER_SLOT)
#undef ATHANOR_NUMBER_SLOT
          {Py_tp_doc, const_cast<char*>("A multi-dimensional array of one dtype on one device, with gradients.")},
      {0, nullptr},
  };
  PyType_Spec spec = {"athanor.Tensor", static_cast<int>(sizeof(TensorObject)), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  tensor_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return tensor_type && PyModule_AddObjectRef(module, "Tensor", reinterpret_cast<PyObject*>(tensor_type)) == 0;
}

}  // namespace athanor::python
