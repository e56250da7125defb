#include "athanor/ops/factory.h"

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
    ATHANOR_CHECK_VALUE(e.sizes_ == first.sizes_, "tensor: expected all sub-lists to have sizes ",
                        IntArrayRef(first.sizes_), " (e.g. the first), but got sub-list with sizes ",
                        IntArrayRef(e.sizes_));
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
  ATHANOR_CHECK_VALUE(strides.empty() || strides.size() == sizes.size(), "from_blob: got ", sizes.size(), " sizes and ",
                      strides.size(), " strides");
  auto impl = detail::new_tensor_impl();
  impl->set_geometry(sizes, strides);
  impl->dtype = options.dtype();
  std::int64_t extent = impl->numel ? 1 : 0;
  for (int d = 0; d < impl->ndim && extent; ++d) {
    ATHANOR_CHECK_VALUE(impl->dims[impl->ndim + d] >= 0, "from_blob: negative strides are not supported");
    extent += (impl->dims[d] - 1) * impl->dims[impl->ndim + d];
  }
  ATHANOR_CHECK_VALUE(data || extent == 0, "from_blob: data is null for sizes ", sizes);
  impl->storage = Storage::borrow(data, static_cast<std::size_t>(extent) * item_size(impl->dtype), std::move(deleter));
  Tensor t{TensorBase(std::move(impl))};
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
