#pragma once
/// For code bound with nanobind: tensors and the other types of the core as plain C++ arguments and results.

#include <nanobind/nanobind.h>

#include "python/src/arguments.h"
#include "python/src/types.h"

namespace athanor::python {
/// What an unseeded generator starts from, and a seed from the system's entropy.
std::uint64_t default_seed();
std::uint64_t fresh_seed();
/// A generator's state as a uint8 tensor, and back. Throws if the tensor is none.
Tensor state_to_tensor(const Generator& g);
void state_from_tensor(Generator& g, const Tensor& state);
}  // namespace athanor::python

NAMESPACE_BEGIN(NB_NAMESPACE)
NAMESPACE_BEGIN(detail)

/// None is an undefined tensor.
template <>
struct type_caster<athanor::Tensor> {
  NB_TYPE_CASTER(athanor::Tensor, const_name("athanor.Tensor"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (source.is_none()) {
      value = athanor::Tensor();
      return true;
    }
    if (!athanor::python::is_tensor(source.ptr())) return false;
    value = athanor::python::unwrap(source.ptr());
    return true;
  }
  static handle from_cpp(athanor::Tensor t, rv_policy, cleanup_list*) noexcept {
    return athanor::python::wrap(std::move(t));
  }
};

template <>
struct type_caster<athanor::DType> {
  NB_TYPE_CASTER(athanor::DType, const_name("athanor.dtype"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (!athanor::python::is_dtype(source.ptr())) return false;
    value = athanor::python::to_dtype(source.ptr());
    return true;
  }
  static handle from_cpp(athanor::DType t, rv_policy, cleanup_list*) noexcept {
    return Py_NewRef(athanor::python::dtype_object(t));
  }
};

template <>
struct type_caster<athanor::Scalar> {
  NB_TYPE_CASTER(athanor::Scalar, const_name("float"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (!athanor::python::accepts(athanor::python::Kind::Scalar, source.ptr())) return false;
    try {
      value = athanor::python::to_scalar(source.ptr());
      return true;
    } catch (...) {
      PyErr_Clear();
      return false;
    }
  }
  static handle from_cpp(const athanor::Scalar& s, rv_policy, cleanup_list*) noexcept {
    return athanor::python::to_python(s);
  }
};

NAMESPACE_END(detail)
NAMESPACE_END(NB_NAMESPACE)
