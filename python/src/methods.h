#pragma once
/// What class Tensor offers beside the ops: protocol functions of the Python type, and tables of methods.

#include "python/src/arguments.h"

namespace athanor::python {

PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* keywords);
PyObject* tensor_repr(PyObject* self);
Py_hash_t tensor_hash(PyObject* self);
PyObject* tensor_compare(PyObject* a, PyObject* b, int how);
PyObject* tensor_iterate(PyObject* self);
Py_ssize_t tensor_length(PyObject* self);
int tensor_contains(PyObject* self, PyObject* item);
PyObject* tensor_get_item(PyObject* self, PyObject* key);
int tensor_set_item(PyObject* self, PyObject* key, PyObject* value);
extern PyMethodDef tensor_methods[];
extern PyGetSetDef tensor_properties[];

// Slots of the number protocol: (slot, function).
// clang-format off
#define ATHANOR_NUMBER_SLOTS(X)                                                                                       \
  X(Py_nb_add, number_add) X(Py_nb_subtract, number_subtract) X(Py_nb_multiply, number_multiply)                      \
  X(Py_nb_true_divide, number_divide) X(Py_nb_floor_divide, number_floor_divide)                                      \
  X(Py_nb_remainder, number_remainder) X(Py_nb_matrix_multiply, number_matmul) X(Py_nb_and, number_and)               \
  X(Py_nb_or, number_or) X(Py_nb_xor, number_xor) X(Py_nb_lshift, number_left_shift)                                  \
  X(Py_nb_rshift, number_right_shift) X(Py_nb_power, number_power) X(Py_nb_inplace_power, number_inplace_power)       \
  X(Py_nb_inplace_add, number_inplace_add) X(Py_nb_inplace_subtract, number_inplace_subtract)                         \
  X(Py_nb_inplace_multiply, number_inplace_multiply) X(Py_nb_inplace_true_divide, number_inplace_divide)              \
  X(Py_nb_inplace_floor_divide, number_inplace_floor_divide)                                                          \
  X(Py_nb_inplace_remainder, number_inplace_remainder) X(Py_nb_inplace_and, number_inplace_and)                       \
  X(Py_nb_inplace_or, number_inplace_or) X(Py_nb_inplace_xor, number_inplace_xor)                                     \
  X(Py_nb_inplace_lshift, number_inplace_left_shift) X(Py_nb_inplace_rshift, number_inplace_right_shift)              \
  X(Py_nb_negative, number_negative) X(Py_nb_positive, number_positive) X(Py_nb_absolute, number_absolute)            \
  X(Py_nb_invert, number_invert) X(Py_nb_bool, number_bool) X(Py_nb_int, number_int)                                  \
  X(Py_nb_float, number_float) X(Py_nb_index, number_index)
// clang-format on

PyObject* number_power(PyObject* a, PyObject* b, PyObject* modulus);
PyObject* number_inplace_power(PyObject* a, PyObject* b, PyObject* modulus);
#define ATHANOR_BINARY(name) PyObject* number_##name(PyObject* a, PyObject* b)
ATHANOR_BINARY(add);
ATHANOR_BINARY(subtract);
ATHANOR_BINARY(multiply);
ATHANOR_BINARY(divide);
ATHANOR_BINARY(floor_divide);
ATHANOR_BINARY(remainder);
ATHANOR_BINARY(matmul);
ATHANOR_BINARY(and);
ATHANOR_BINARY(or);
ATHANOR_BINARY(xor);
ATHANOR_BINARY(left_shift);
ATHANOR_BINARY(right_shift);
ATHANOR_BINARY(inplace_add);
ATHANOR_BINARY(inplace_subtract);
ATHANOR_BINARY(inplace_multiply);
ATHANOR_BINARY(inplace_divide);
ATHANOR_BINARY(inplace_floor_divide);
ATHANOR_BINARY(inplace_remainder);
ATHANOR_BINARY(inplace_and);
ATHANOR_BINARY(inplace_or);
ATHANOR_BINARY(inplace_xor);
ATHANOR_BINARY(inplace_left_shift);
ATHANOR_BINARY(inplace_right_shift);
#undef ATHANOR_BINARY
PyObject* number_negative(PyObject* a);
PyObject* number_positive(PyObject* a);
PyObject* number_absolute(PyObject* a);
PyObject* number_invert(PyObject* a);
int number_bool(PyObject* a);
PyObject* number_int(PyObject* a);
PyObject* number_float(PyObject* a);
PyObject* number_index(PyObject* a);

/// A 0-d tensor of a Python number, weak in type promotion.
Tensor wrapped_number(const Scalar& s);
/// A new tensor of nested sequences, numbers, tensors and arrays; dtype and device as given, else from the data.
Tensor tensor_from_data(PyObject* data, std::optional<DType> dtype, std::optional<Device> device);
/// A tensor on the memory of an object with the buffer protocol (a NumPy array), which it keeps alive. Warns of
/// read-only memory unless told not to.
Tensor tensor_from_buffer(PyObject* object, const char* op, bool warn = true);
bool has_buffer(PyObject* object);

/// Methods that are not ops, called through the same parser.
extern const std::span<const OpEntry> plain_methods;
/// Functions of the package that are not ops.
extern const std::span<const OpEntry> plain_functions;

}  // namespace athanor::python
