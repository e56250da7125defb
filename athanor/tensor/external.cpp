#include "athanor/tensor/external.h"

namespace athanor::detail {
namespace {

/// Elements of memory that the geometry spans. Throws ValueError if that cannot be addressed.
std::int64_t extent_of(const char* op, IntArrayRef sizes, IntArrayRef strides, DType dtype) {
  const std::int64_t numel = checked_numel(sizes, op);
  if (strides.empty() || numel == 0) return numel;
  std::int64_t extent = 1, reach = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    ATHANOR_CHECK_VALUE(strides[d] >= 0, op, ": negative strides are not supported, got ", strides,
                        "; copy the array first");
    ATHANOR_CHECK_VALUE(!__builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) &&
                            !__builtin_add_overflow(extent, reach, &extent) &&
                            extent <= INT64_MAX / static_cast<std::int64_t>(item_size(dtype)),
                        op, ": sizes ", sizes, " with strides ", strides, " reach beyond any memory");
  }
  return extent;
}

}  // namespace

TensorBase external_tensor(const char* op, void* data, IntArrayRef sizes, IntArrayRef strides, DType dtype,
                           std::function<void(void*)> deleter) {
  ATHANOR_CHECK_VALUE(strides.empty() || strides.size() == sizes.size(), op, ": got ", sizes.size(), " sizes and ",
                      strides.size(), " strides");
  const std::int64_t extent = extent_of(op, sizes, strides, dtype);
  ATHANOR_CHECK_VALUE(data || extent == 0, op, ": data is null for sizes ", sizes);
  auto impl = new_tensor_impl();
  impl->set_geometry(sizes, strides);
  impl->dtype = dtype;
  impl->storage = Storage::borrow(data, static_cast<std::size_t>(extent) * item_size(dtype), std::move(deleter));
  return TensorBase(std::move(impl));
}

}  // namespace athanor::detail
