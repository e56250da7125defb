#pragma once
/// TensorBase: a handle on an n-dimensional array, without the ops. Library code is written against it so that a new op
/// does not rebuild the library; programs use `athanor::Tensor` (athanor/ops/tensor.h), which adds a method per op.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "athanor/base/array_ref.h"
#include "athanor/base/free_list.h"
#include "athanor/base/intrusive_ptr.h"
#include "athanor/tensor/options.h"
#include "athanor/tensor/scalar.h"
#include "athanor/tensor/storage.h"
#include "athanor/tensor/view.h"

namespace athanor {

struct AutogradMeta;

/// What a handle points to: geometry, storage, and what autograd and Python hang on it.
struct TensorImpl : RefCounted, FreeList<TensorImpl> {
  static constexpr int kInlineDims = 5;

  DType dtype = DType::Undefined;
  std::int8_t ndim = 0;
  Device device;
  bool tracked = false;         ///< requires grad: a leaf that asks for it, or the result of a recorded op
  bool contiguous = true;       ///< row-major without gaps
  bool wrapped_number = false;  ///< made from a C++ or Python number: weak in type promotion
  bool inference = false;       ///< made in inference mode
  bool own_version = false;     ///< made by .data(): its in-place changes are not counted
  IntrusivePtr<Storage> storage;
  std::int64_t storage_offset = 0;  ///< in elements
  std::int64_t numel = 0;
  std::int64_t* dims = inline_dims;  ///< sizes, then strides
  AutogradMeta* autograd = nullptr;
  void* identity = nullptr;                   ///< the Python object that stands for this tensor, if any
  void (*identity_release)(void*) = nullptr;  ///< called with it when the tensor goes
  std::int64_t inline_dims[2 * kInlineDims];

  TensorImpl() = default;
  TensorImpl(const TensorImpl&) = delete;
  TensorImpl& operator=(const TensorImpl&) = delete;
  ~TensorImpl();
  static void destroy(TensorImpl* impl);

  IntArrayRef sizes() const { return {dims, static_cast<std::size_t>(ndim)}; }
  IntArrayRef strides() const { return {dims + ndim, static_cast<std::size_t>(ndim)}; }
  /// Sets the geometry; `strides` empty means row-major. Throws if numel overflows.
  void set_geometry(IntArrayRef sizes, IntArrayRef strides);
  void set_contiguous(IntArrayRef sizes);
  std::uint32_t version() const { return storage->version(); }
  void bump_version() { own_version ? storage->bump_uncounted() : storage->bump_version(); }
};

namespace detail {
/// Whether what the tensor is a view of has got a history since, by a change in place.
bool view_got_history(const TensorImpl& view);
}  // namespace detail

class TensorBase {
 public:
  TensorBase() = default;
  TensorBase(std::nullopt_t) {}
  explicit TensorBase(IntrusivePtr<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return static_cast<bool>(impl_); }
  void reset() { impl_.reset(); }
  TensorImpl* impl() const { return impl_.get(); }
  /// The same, by libtorch's name: what Optimizer::state() is asked with.
  TensorImpl* unsafeGetTensorImpl() const { return impl_.get(); }
  bool is_same(const TensorBase& o) const { return impl_ == o.impl_; }
  std::uint32_t use_count() const { return impl_ ? impl_->use_count() : 0; }

  IntArrayRef sizes() const { return checked().sizes(); }
  IntArrayRef strides() const { return checked().strides(); }
  /// Size along `dim`; negative dims count from the end. Throws IndexError out of range.
  std::int64_t size(std::int64_t dim) const;
  std::int64_t stride(std::int64_t dim) const;
  std::int64_t dim() const { return checked().ndim; }
  std::int64_t ndimension() const { return dim(); }
  std::int64_t numel() const { return checked().numel; }
  std::size_t nbytes() const { return static_cast<std::size_t>(numel()) * itemsize(); }
  std::size_t itemsize() const { return item_size(checked().dtype); }
  std::size_t element_size() const { return itemsize(); }
  std::int64_t storage_offset() const { return checked().storage_offset; }
  DType scalar_type() const { return checked().dtype; }
  DType dtype() const { return checked().dtype; }
  Device device() const { return checked().device; }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_cuda() const { return device().is_cuda(); }
  Layout layout() const { return kStrided; }
  TensorOptions options() const { return TensorOptions(dtype()).device(device()); }
  bool is_floating_point() const { return athanor::is_floating_point(dtype()); }
  bool is_signed() const { return athanor::is_signed(dtype()); }
  bool is_contiguous() const { return checked().contiguous; }
  bool is_contiguous(MemoryFormat format) const;
  /// Every element of the memory range is used exactly once: some permutation of it is contiguous.
  bool is_non_overlapping_and_dense() const;
  bool is_alias_of(const TensorBase& o) const { return checked().storage == o.checked().storage; }
  const IntrusivePtr<Storage>& storage() const { return checked().storage; }
  std::uint32_t _version() const { return checked().version(); }

  /// Address of the first element. Waits for pending work and marks the storage as exposed to the host.
  void* data_ptr() const;
  const void* const_data_ptr() const { return data_ptr(); }
  /// The same, checked: throws Error if T is not the tensor's element type.
  template <class T>
  T* data_ptr() const {
    if constexpr (!std::is_same_v<std::remove_const_t<T>, void>) check_element_type(dtype_of_v<std::remove_const_t<T>>);
    return static_cast<T*>(data_ptr());
  }
  template <class T>
  const T* const_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  /// The value of a one-element tensor. Throws otherwise, and if T cannot hold it.
  Scalar item() const;
  template <class T>
  T item() const {
    const Scalar value = item();
    if constexpr (requires { dtype_of<T>::value; }) value.check_fits(dtype_of_v<T>, "item");
    return value.template to<T>();
  }

  /// True if gradients flow to or through this tensor.
  bool requires_grad() const {
    return impl_ && (impl_->tracked || (impl_->autograd && detail::view_got_history(*impl_)));
  }

 protected:
  const TensorImpl& checked() const {
    if (__builtin_expect(!impl_, 0)) fail_undefined();
    return *impl_;
  }
  [[noreturn]] static void fail_undefined();
  void check_element_type(DType wanted) const;

  IntrusivePtr<TensorImpl> impl_;
};

namespace detail {
IntrusivePtr<TensorImpl> new_tensor_impl();
/// Uninitialized tensor; `strides` empty means row-major.
TensorBase empty_tensor(IntArrayRef sizes, DType dtype, Device device, IntArrayRef strides = {});
/// Uninitialized row-major tensor of at least two dims, (samples, channels, spatial…), whose values will be in blocks
/// of `block` channels; `block` divides the channels. kOuterProduct: a matrix of which only factors will be stored.
TensorBase empty_hidden_tensor(IntArrayRef sizes, DType dtype, Device device, int block, HiddenLayout::Restore restore);
/// A tensor on `base`'s storage with another geometry and nothing of its autograd state.
TensorBase alias(const TensorBase& base, IntArrayRef sizes, IntArrayRef strides, std::int64_t storage_offset);
/// Strides of a tensor of these sizes laid out in `format`.
DimVector strides_for(IntArrayRef sizes, MemoryFormat format);
/// What a kernel sees. Restores a hidden layout.
inline View view_of(const TensorBase& t) {
  View v;
  const TensorImpl* i = t.impl();
  if (!i) return v;
  v.data = static_cast<char*>(i->storage->data()) + i->storage_offset * static_cast<std::int64_t>(item_size(i->dtype));
  v.sizes = i->dims;
  v.strides = i->dims + i->ndim;
  v.numel = i->numel;
  v.dtype = i->dtype;
  v.ndim = i->ndim;
  v.contiguous = i->contiguous;
  return v;
}
/// "float32[2, 3] on cpu", for error messages.
std::string describe(const TensorBase& t);
}  // namespace detail

inline void append(std::string& out, const TensorBase& t) { out += detail::describe(t); }

using TensorBaseList = ArrayRef<TensorBase>;

/// Turns a negative dim into its positive one; 0-d tensors accept -1 and 0. Throws IndexError naming `op`.
std::int64_t wrap_dim(std::int64_t dim, std::int64_t ndim, const char* op);
/// Product of sizes; throws Error if it overflows or a size is negative.
std::int64_t checked_numel(IntArrayRef sizes, const char* op);
/// The common shape of a and b under broadcasting. Throws Error naming both.
DimVector broadcast_shapes(IntArrayRef a, IntArrayRef b, const char* op);
/// `shape` with what numel demands in place of one -1. Throws Error naming `op` where none fits.
DimVector infer_size(IntArrayRef shape, std::int64_t numel, const char* op);

}  // namespace athanor
