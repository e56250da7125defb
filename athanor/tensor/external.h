#pragma once
/// Tensors on memory that somebody else owns.

#include <functional>

#include "athanor/tensor/tensor_base.h"

namespace athanor::detail {

/// A host tensor on `data`, not copied: what from_blob and from_dlpack give. `strides` in elements, not negative; empty
/// means row-major. `deleter(data)` runs when the last tensor on the memory is gone; it is not called if this throws.
/// Throws ValueError naming `op` if the geometry makes no sense, or data is null though there are elements.
TensorBase external_tensor(const char* op, void* data, IntArrayRef sizes, IntArrayRef strides, DType dtype,
                           std::function<void(void*)> deleter);

}  // namespace athanor::detail
