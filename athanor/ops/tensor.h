#pragma once
/// Tensor: the class that programs use. A handle: copies share the array. Methods that are ops are generated from the
/// schemas in athanor/ops/*.cpp; free functions of the same names live in namespace athanor.

#include <cmath>
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
  Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices, const Tensor& value);
  Tensor& index_put_(std::initializer_list<indexing::TensorIndex> indices, const Scalar& value);
  Tensor& index_put_(ArrayRef<indexing::TensorIndex> indices, const Tensor& value);
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

  // Autograd.
  bool is_leaf() const { return athanor::is_leaf(*this); }
  Tensor& requires_grad_(bool on = true) {
    athanor::set_requires_grad(*this, on);
    return *this;
  }
  const Tensor& set_requires_grad(bool on) const {
    athanor::set_requires_grad(*this, on);
    return *this;
  }
  const Tensor& grad() const { return static_cast<const Tensor&>(grad_of(*this)); }
  Tensor& mutable_grad() const { return static_cast<Tensor&>(detail::autograd_meta(*this).grad); }
  IntrusivePtr<Node> grad_fn() const { return athanor::grad_fn(*this); }
  std::uint32_t output_nr() const { return impl_ && impl_->autograd ? impl_->autograd->output_nr : 0; }
  /// Gradients of this tensor with respect to the leaves, added to their `.grad`. `gradient` may be left out for
  /// one-element tensors. With `inputs`, only theirs.
  void backward(const Tensor& gradient = {}, std::optional<bool> retain_graph = std::nullopt, bool create_graph = false,
                TensorList inputs = {}) const;
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

  // Conversions that libtorch spells as methods.
  Tensor to(DType dtype, bool non_blocking, bool copy, std::optional<MemoryFormat> format) const {
    return to(TensorOptions(dtype), non_blocking, copy, format);
  }
  Tensor toType(DType dtype) const { return to(dtype); }
  Tensor cpu() const { return to(TensorOptions(Device())); }
  Tensor cuda() const { return to(TensorOptions(Device(DeviceType::CUDA))); }
  Tensor cuda(Device device) const { return to(TensorOptions(device)); }
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
