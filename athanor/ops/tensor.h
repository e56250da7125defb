#pragma once
/// Tensor: the class that programs use. A handle: copies share the array. Methods that are ops are generated from the
/// schemas in athanor/ops/*.cpp; free functions of the same names live in namespace athanor.

#include <cmath>
#include <concepts>
#include <functional>
#include <iosfwd>

#include "athanor/ops/history.h"
#include "athanor/tensor/accessor.h"
#include "athanor/tensor/generator.h"
#include "athanor/tensor/index.h"
#include "athanor/tensor/tensor_base.h"

namespace athanor {

class Tensor;
using TensorList = ArrayRef<Tensor>;

/// What Tensor::storage() gives: the storage's own methods by ->, libtorch's names by a point. Each address of bytes is
/// that of the storage's first, wherever in it the tensor begins; it is of host memory, and pending work is waited for.
class StorageHandle : public IntrusivePtr<Storage> {
 public:
  explicit StorageHandle(IntrusivePtr<Storage> storage) : IntrusivePtr<Storage>(std::move(storage)) {}
  void* mutable_data() const;
  const void* const_data() const { return mutable_data(); }
  void* data() const { return mutable_data(); }
  template <class T>
  T* data() const {
    return static_cast<T*>(mutable_data());
  }
  std::size_t nbytes() const { return get()->nbytes(); }
  Device device() const { return get()->device(); }
  bool is_alias_of(const StorageHandle& other) const { return get() == other.get(); }
};
static_assert(sizeof(StorageHandle) == sizeof(IntrusivePtr<Storage>));

namespace detail {
/// What a lone dim may be; not bool, which is a flag.
template <class T>
concept Integer = std::integral<T> && !std::same_as<T, bool>;
}  // namespace detail

class Tensor : public TensorBase {
 public:
  Tensor() = default;
  Tensor(std::nullopt_t) {}
  Tensor(const TensorBase& t) : TensorBase(t) {}
  Tensor(TensorBase&& t) noexcept : TensorBase(std::move(t)) {}
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  /// `x[0] = y` writes through, as in libtorch.
  Tensor& operator=(const Tensor& value) && {
    copy_(value);
    return *this;
  }
  Tensor& operator=(const Scalar& value) && {
    fill_(value);
    return *this;
  }

#include "athanor/ops/methods.inc"

  /// The part selected by a mix of integers, Slice(), None, "...", bools and tensors, as libtorch.
  Tensor index(ArrayRef<indexing::TensorIndex> indices) const;
  Tensor index(std::initializer_list<indexing::TensorIndex> indices) const;
  /// Writes values, or one number, to that part, where they are broadcast to it. With `accumulate` they are added; then
  /// a place that is named twice gets both. Throws ValueError for an empty list of indices.
  Tensor& index_put_(ArrayRef<indexing::TensorIndex> indices, const Tensor& value, bool accumulate = false) const;
  Tensor& index_put_(ArrayRef<indexing::TensorIndex> indices, const Scalar& value, bool accumulate = false) const;
  Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices, const Tensor& value,
                     bool accumulate = false) const;
  Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices, const Scalar& value,
                     bool accumulate = false) const;
  /// The same on a copy.
  Tensor index_put(ArrayRef<indexing::TensorIndex> indices, const Tensor& value, bool accumulate = false) const;
  Tensor index_put(std::initializer_list<indexing::TensorIndex> indices, const Tensor& value,
                   bool accumulate = false) const;
  Tensor operator[](std::int64_t i) const { return select(0, i); }
  Tensor operator[](const Tensor& i) const { return index({indexing::TensorIndex(i)}); }

  /// N-dimensional access to the elements without checks per element; T must be the dtype. Host tensors only.
  template <class T, std::size_t N>
  TensorAccessor<T, N> accessor() const& {
    ATHANOR_CHECK(dim() == static_cast<std::int64_t>(N), "accessor: TensorAccessor expected ", N,
                  " dims but tensor has ", dim());
    return TensorAccessor<T, N>(data_ptr<T>(), sizes().data(), strides().data());
  }
  template <class T, std::size_t N>
  TensorAccessor<T, N> accessor() && = delete;
  /// libtorch's names for accessors that kernels take by value; here they are accessors. Of 2³¹ elements at most.
  template <class T, std::size_t N, template <class> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor32<T, N> packed_accessor32() const& {
    ATHANOR_CHECK(numel() <= INT32_MAX, "packed_accessor32: numel needs to be smaller than 2^31, got ", numel(),
                  "; use packed_accessor64");
    return accessor<T, N>();
  }
  template <class T, std::size_t N, template <class> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor32<T, N> packed_accessor32() && = delete;
  template <class T, std::size_t N, template <class> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor64<T, N> packed_accessor64() const& {
    return accessor<T, N>();
  }
  template <class T, std::size_t N, template <class> class PtrTraits = DefaultPtrTraits>
  PackedTensorAccessor64<T, N> packed_accessor64() && = delete;

  // Autograd.
  bool is_leaf() const { return athanor::is_leaf(*this); }
  Tensor& requires_grad_(bool on = true) const {
    athanor::set_requires_grad(*this, on);
    return const_cast<Tensor&>(*this);
  }
  const Tensor& set_requires_grad(bool on) const {
    athanor::set_requires_grad(*this, on);
    return *this;
  }
  /// What backward() added; undefined before. Warns where there never will be one: retain_grad() was not called.
  const Tensor& grad() const;
  Tensor& mutable_grad() const { return static_cast<Tensor&>(detail::autograd_meta(*this).grad); }
  IntrusivePtr<Node> grad_fn() const { return athanor::grad_fn(*this); }
  std::uint32_t output_nr() const { return impl_ && impl_->autograd ? impl_->autograd->output_nr : 0; }
  /// Gradients of this tensor with respect to the leaves, added to their `.grad`. `gradient` may be left out for
  /// one-element tensors. With `inputs`, only theirs; throws Error for an empty list.
  void backward(const Tensor& gradient = {}, std::optional<bool> retain_graph = std::nullopt, bool create_graph = false,
                std::optional<TensorList> inputs = std::nullopt) const;
  void retain_grad() const;
  bool retains_grad() const { return impl_ && impl_->autograd && impl_->autograd->retains_grad; }
  /// Calls `hook` with the gradient of this tensor; a defined result replaces it. Returns an id for remove_hook.
  std::uint64_t register_hook(std::function<Tensor(const Tensor&)> hook) const;
  template <class F>
  requires std::is_void_v<std::invoke_result_t<F, const Tensor&>> std::uint64_t register_hook(F hook)
  const {
    return register_hook(std::function<Tensor(const Tensor&)>([hook](const Tensor& g) {
      hook(g);
      return Tensor();
    }));
  }
  /// Calls `hook` with the leaf after its gradient of one backward() was added.
  std::uint64_t register_post_accumulate_grad_hook(std::function<void(const Tensor&)> hook) const;
  /// Throws IndexError if this tensor has no hook of that id (any more).
  void remove_hook(std::uint64_t id) const;
  bool is_view() const { return impl_ && impl_->autograd && impl_->autograd->is_view; }
  Tensor _base() const { return is_view() ? Tensor(impl_->autograd->view_base) : Tensor(); }
  bool is_inference() const { return impl_ && impl_->inference; }
  /// The same storage outside the graph; in-place changes through it are not counted. Prefer detach().
  Tensor data() const;
  Tensor variable_data() const { return data(); }
  Tensor tensor_data() const { return data(); }
  /// Makes this handle's tensor be `other`'s data (geometry and storage), keeping its identity and autograd state.
  void set_data(const Tensor& other) const;

  // Memory.
  /// The bytes behind the tensor, by libtorch's names.
  const StorageHandle& storage() const { return static_cast<const StorageHandle&>(TensorBase::storage()); }
  /// Gives the tensor these sizes, in its own storage where they fit into that; else in a new one, which begins with
  /// the old elements, and which views of the old one do not follow. What no old element fills has any value. Throws
  /// Error for a tensor that requires grad and for negative sizes.
  Tensor& resize_(IntArrayRef sizes, std::optional<MemoryFormat> format = std::nullopt) const;
  Tensor& resize_as_(const Tensor& like, std::optional<MemoryFormat> format = std::nullopt) const {
    return resize_(like.sizes(), format);
  }
  /// Makes this a tensor on `source`'s memory, of the same sizes and strides; without one, an empty tensor. Throws
  /// Error for another dtype.
  Tensor& set_(const Tensor& source) const;
  Tensor& set_() const;
  /// The same with a geometry of its own; no strides means row-major.
  Tensor& set_(const Tensor& source, std::int64_t storage_offset, IntArrayRef size, IntArrayRef stride = {}) const;
  Tensor& set_(const StorageHandle& source, std::int64_t storage_offset, IntArrayRef size,
               IntArrayRef stride = {}) const;
  /// Same storage, offset, sizes and strides.
  bool is_set_to(const Tensor& other) const;
  /// The layout that results made like this tensor should have: ChannelsLast, ChannelsLast3d or Contiguous.
  MemoryFormat suggest_memory_format() const;

  /// Index of the device; -1 for the host.
  DeviceIndex get_device() const { return device().index(); }
  std::int64_t nelement() const { return numel(); }
  /// Whether the only element is not zero. Throws Error unless there is exactly one.
  bool is_nonzero() const;
  /// Writes a number where all indices are the same. wrap: a matrix that is higher than wide has another diagonal
  /// below. Throws Error for fewer than two dims, or more than two of unequal sizes.
  Tensor& fill_diagonal_(const Scalar& value, bool wrap = false) const;
  /// Combines src's elements, or a number, with what is at the places that index names along dim: reduce is "add" or
  /// "multiply", else ValueError.
  Tensor scatter(std::int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce) const;
  Tensor scatter(std::int64_t dim, const Tensor& index, const Scalar& value, std::string_view reduce) const;
  Tensor& scatter_(std::int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce) const;
  Tensor& scatter_(std::int64_t dim, const Tensor& index, const Scalar& value, std::string_view reduce) const;
  /// As with a number; gradients reach the value. Throws Error unless it has no dims.
  Tensor index_fill(std::int64_t dim, const Tensor& index, const Tensor& value) const;
  Tensor& index_fill_(std::int64_t dim, const Tensor& index, const Tensor& value) const;
  /// self where the condition holds, else other.
  Tensor where(const Tensor& condition, const Tensor& other) const;
  Tensor where(const Tensor& condition, const Scalar& other) const;
  /// The derivative of order n of digamma.
  Tensor polygamma(std::int64_t n) const;
  Tensor& polygamma_(std::int64_t n) const;
  bool is_same_size(const Tensor& other) const { return sizes() == other.sizes(); }
  /// self ** exponent in double. Throws Error unless the tensor is of that dtype.
  Tensor& float_power_(const Tensor& exponent) const;
  Tensor& float_power_(const Scalar& exponent) const;

  // Conversions that libtorch spells as methods.
  Tensor to(DType dtype, bool non_blocking, bool copy, std::optional<MemoryFormat> format) const {
    return to(TensorOptions(dtype), non_blocking, copy, format);
  }
  /// Also `x.to({kCUDA, 1})`.
  Tensor to(Device device, bool non_blocking = false, bool copy = false,
            std::optional<MemoryFormat> format = std::nullopt) const {
    return to(TensorOptions(device), non_blocking, copy, format);
  }
  Tensor to(DeviceType device, bool non_blocking = false, bool copy = false,
            std::optional<MemoryFormat> format = std::nullopt) const {
    return to(TensorOptions(device), non_blocking, copy, format);
  }
  Tensor to(const char* device) const { return to(Device(device)); }
  Tensor to(const std::string& device) const { return to(Device(device)); }
  Tensor toType(DType dtype) const { return to(dtype); }
  Tensor cpu() const { return to(TensorOptions(Device())); }
  Tensor cuda() const { return to(TensorOptions(Device(DeviceType::CUDA))); }
  Tensor cuda(Device device) const { return to(TensorOptions(device)); }
  // A lone 0 is a dim, though it could be the false of `unbiased`.
  template <detail::Integer Int>
  Tensor var(Int dim) const {
    return var(IntArrayRef(static_cast<std::int64_t>(dim)));
  }
  template <detail::Integer Int>
  Tensor std(Int dim) const {
    return std(IntArrayRef(static_cast<std::int64_t>(dim)));
  }
  /// The transposed view: dimensions reversed.
  Tensor T() const;

  Tensor operator-() const;
  Tensor operator~() const;
  Tensor& operator+=(const Tensor& o) { return add_(o); }
  Tensor& operator-=(const Tensor& o) { return sub_(o); }
  Tensor& operator*=(const Tensor& o) { return mul_(o); }
  Tensor& operator/=(const Tensor& o) { return div_(o); }
  Tensor& operator+=(const Scalar& o) { return add_(o); }
  Tensor& operator-=(const Scalar& o) { return sub_(o); }
  Tensor& operator*=(const Scalar& o) { return mul_(o); }
  Tensor& operator/=(const Scalar& o) { return div_(o); }

  std::string toString() const;
  std::string str() const;
  void print() const;
};

static_assert(sizeof(Tensor) == sizeof(TensorBase));

std::ostream& operator<<(std::ostream& out, const Tensor& t);

#include "athanor/ops/functions.inc"

/// x.index(…) and x.index_put_(…) as functions.
inline Tensor index(const Tensor& x, std::initializer_list<indexing::TensorIndex> indices) { return x.index(indices); }
inline Tensor& index_put_(const Tensor& x, std::initializer_list<indexing::TensorIndex> indices, const Tensor& value,
                          bool accumulate = false) {
  return x.index_put_(indices, value, accumulate);
}
inline Tensor index_put(const Tensor& x, std::initializer_list<indexing::TensorIndex> indices, const Tensor& value,
                        bool accumulate = false) {
  return x.index_put(indices, value, accumulate);
}
template <detail::Integer Int>
Tensor var(const Tensor& x, Int dim) {
  return x.var(dim);
}
template <detail::Integer Int>
Tensor std(const Tensor& x, Int dim) {
  return x.std(dim);
}
template <detail::Integer Int>
std::tuple<Tensor, Tensor> var_mean(const Tensor& x, Int dim) {
  return var_mean(x, IntArrayRef(static_cast<std::int64_t>(dim)));
}
template <detail::Integer Int>
std::tuple<Tensor, Tensor> std_mean(const Tensor& x, Int dim) {
  return std_mean(x, IntArrayRef(static_cast<std::int64_t>(dim)));
}
inline bool is_nonzero(const Tensor& x) { return x.is_nonzero(); }
inline bool is_same_size(const Tensor& a, const Tensor& b) { return a.is_same_size(b); }
inline bool is_inference(const Tensor& x) { return x.is_inference(); }
inline std::int64_t numel(const Tensor& x) { return x.numel(); }
inline Tensor& detach_(Tensor& x) { return x.detach_(); }
inline Tensor& as_strided_(Tensor& x, IntArrayRef size, IntArrayRef stride, std::optional<std::int64_t> offset = {}) {
  return x.as_strided_(size, stride, offset);
}
inline Tensor scatter(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src,
                      std::string_view reduce) {
  return x.scatter(dim, index, src, reduce);
}
inline Tensor scatter(const Tensor& x, std::int64_t dim, const Tensor& index, const Scalar& value,
                      std::string_view reduce) {
  return x.scatter(dim, index, value, reduce);
}
inline Tensor index_fill(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& value) {
  return x.index_fill(dim, index, value);
}
/// Where the condition is true: a tensor of indices for each dim.
std::vector<Tensor> where(const Tensor& condition);
// A number as the first operand.
Tensor bitwise_and(const Scalar& self, const Tensor& other);
Tensor bitwise_or(const Scalar& self, const Tensor& other);
Tensor bitwise_xor(const Scalar& self, const Tensor& other);
Tensor bitwise_left_shift(const Scalar& self, const Tensor& other);
Tensor bitwise_right_shift(const Scalar& self, const Tensor& other);
Tensor remainder(const Scalar& self, const Tensor& other);
Tensor float_power(const Scalar& self, const Tensor& exponent);
/// pad() for that many dims: two widths each, the last dim's first.
Tensor reflection_pad1d(const Tensor& x, IntArrayRef padding);
Tensor reflection_pad2d(const Tensor& x, IntArrayRef padding);
Tensor reflection_pad3d(const Tensor& x, IntArrayRef padding);
Tensor replication_pad1d(const Tensor& x, IntArrayRef padding);
Tensor replication_pad2d(const Tensor& x, IntArrayRef padding);
Tensor replication_pad3d(const Tensor& x, IntArrayRef padding);
/// The dtype in which a binary op of the two computes.
DType result_type(const Tensor& a, const Tensor& b);
DType result_type(const Tensor& a, const Scalar& b);
inline DType result_type(const Scalar& a, const Tensor& b) { return result_type(b, a); }

inline Tensor Tensor::operator-() const { return neg(); }

#define ATHANOR_BINARY_OPERATOR(symbol, name)                                           \
  inline Tensor operator symbol(const Tensor& a, const Tensor& b) { return a.name(b); } \
  inline Tensor operator symbol(const Tensor& a, const Scalar& b) { return a.name(b); }
ATHANOR_BINARY_OPERATOR(+, add)
ATHANOR_BINARY_OPERATOR(-, sub)
ATHANOR_BINARY_OPERATOR(*, mul)
ATHANOR_BINARY_OPERATOR(/, div)
inline Tensor operator+(const Scalar& a, const Tensor& b) { return b.add(a); }
inline Tensor operator*(const Scalar& a, const Tensor& b) { return b.mul(a); }
inline Tensor operator-(const Scalar& a, const Tensor& b) { return rsub(b, a); }
inline Tensor operator/(const Scalar& a, const Tensor& b) { return rdiv(b, a); }

}  // namespace athanor

#include "athanor/ops/tensor_operators.h"
