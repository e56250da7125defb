// Tensors as DLPack capsules, and back.

#include "athanor/tensor/dlpack.h"

#include <nanobind/nanobind.h>

#include "python/src/convert.h"

namespace nb = nanobind;

namespace athanor::python {
namespace {

template <class Managed>
struct Names;
template <>
struct Names<DLManagedTensor> {
  static constexpr const char *fresh = "dltensor", *used = "used_dltensor";
};
template <>
struct Names<DLManagedTensorVersioned> {
  static constexpr const char *fresh = "dltensor_versioned", *used = "used_dltensor_versioned";
};

// A capsule that nobody consumed still owns the structure.
template <class Managed>
void release_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, Names<Managed>::fresh)) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, Names<Managed>::fresh));
  if (managed->deleter) managed->deleter(managed);
}

template <class Managed>
nb::object to_capsule(Managed* managed) {
  PyObject* capsule = PyCapsule_New(managed, Names<Managed>::fresh, release_capsule<Managed>);
  if (!capsule) {
    managed->deleter(managed);
    throw nb::python_error();
  }
  return nb::steal(capsule);
}

template <class Managed>
Tensor consume(PyObject* capsule) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, Names<Managed>::fresh));
  Tensor t = from_dlpack(managed);
  PyCapsule_SetName(capsule, Names<Managed>::used);
  return t;
}

}  // namespace

void bind_dlpack(nb::module_& m) {
  m.def("_to_dlpack", [](const Tensor& t, bool versioned) {
    return versioned ? to_capsule(to_dlpack_versioned(t)) : to_capsule(to_dlpack(t));
  });
  m.def("_from_dlpack", [](nb::object capsule) {
    if (PyCapsule_IsValid(capsule.ptr(), Names<DLManagedTensorVersioned>::fresh))
      return consume<DLManagedTensorVersioned>(capsule.ptr());
    if (PyCapsule_IsValid(capsule.ptr(), Names<DLManagedTensor>::fresh)) return consume<DLManagedTensor>(capsule.ptr());
    ATHANOR_THROW(Error,
                  "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so "
                  "you might have already constructed a tensor from it once.");
  });
}

}  // namespace athanor::python
