#pragma once
/// dtype, device, Size, layout, memory_format and Generator as Python objects. All need the interpreter lock.

#include "athanor/tensor/generator.h"
#include "python/src/tensor_object.h"

namespace athanor::python {

bool add_types(PyObject* module);

/// Borrowed: the one object of each dtype.
PyObject* dtype_object(DType t);
/// True for dtype objects and for Python's own float, int and bool.
bool is_dtype(PyObject* o);
DType to_dtype(PyObject* o);

PyObject* device_object(Device d);
/// True for device objects, strings and integers (a CUDA device's index).
bool is_device(PyObject* o);
Device to_device(PyObject* o);

bool is_generator(PyObject* o);
Generator to_generator(PyObject* o);

bool is_memory_format(PyObject* o);
MemoryFormat to_memory_format(PyObject* o);
bool is_layout(PyObject* o);

/// torch.Size of these numbers: a tuple with numel() and its own repr.
PyObject* size_object(IntArrayRef sizes);
bool is_size(PyObject* o);

}  // namespace athanor::python
