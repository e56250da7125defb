#include "athanor/ops/factory.h"

#include "athanor/tensor/external.h"

namespace athanor {

namespace detail {

TensorData::TensorData(std::initializer_list<TensorData> list) {
  sizes_.push_back(static_cast<std::int64_t>(list.size()));
  if (list.size() == 0) {
    dtype_ = get_default_dtype();
    return;
  }
  const TensorData& first = *list.begin();
  for (const auto s : first.sizes_) sizes_.push_back(s);
  dtype_ = first.dtype_;
  for (const TensorData& e : list) {
    ATHANOR_CHECK_VALUE(e.sizes_ == first.sizes_,
                        "tensor: Expected all sub-lists to have sizes: ", IntArrayRef(first.sizes_),
                        " (e.g. the first), but got a sub-list with sizes: ", IntArrayRef(e.sizes_));
    dtype_ = promote_types(dtype_, e.dtype_);
    values_.insert(values_.end(), e.values_.begin(), e.values_.end());
  }
}

}  // namespace detail

Tensor tensor(detail::TensorData data, const TensorOptions& options) {
  const DType dtype = options.has_dtype() ? options.dtype() : data.dtype();
  Tensor t = detail::empty_tensor(data.sizes(), dtype, Device());
  dispatch_all(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = t.numel() ? static_cast<T*>(t.data_ptr()) : nullptr;
    for (const Scalar& s : data.values()) *out++ = s.to<T>();
  });
  if (options.has_device()) t = t.to(TensorOptions(options.device()));
  if (options.requires_grad()) t.requires_grad_();
  return t;
}

Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, std::function<void(void*)> deleter,
                 const TensorOptions& options) {
  ATHANOR_CHECK(options.device().is_host(), "from_blob: memory of device ", options.device(),
                " cannot be wrapped; copy it there with to()");
  Tensor t = detail::external_tensor("from_blob", data, sizes, strides, options.dtype(), std::move(deleter));
  if (options.requires_grad()) t.requires_grad_();
  return t;
}

Tensor from_blob(void* data, IntArrayRef sizes, std::function<void(void*)> deleter, const TensorOptions& options) {
  return from_blob(data, sizes, {}, std::move(deleter), options);
}
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options) {
  return from_blob(data, sizes, strides, nullptr, options);
}
Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options) {
  return from_blob(data, sizes, {}, nullptr, options);
}

Tensor Tensor::T() const {
  DimVector order;
  for (std::int64_t d = dim(); d-- > 0;) order.push_back(d);
  return permute(order);
}

}  // namespace athanor
