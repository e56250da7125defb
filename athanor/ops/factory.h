#pragma once
/// Tensors from C++ values: tensor({{1, 2}, {3, 4}}), from_blob.

#include <initializer_list>
#include <vector>

#include "athanor/ops/tensor.h"

namespace athanor {

namespace detail {

/// Nested braces or a vector, flattened.
class TensorData {
 public:
  template <class T>
  requires(std::is_arithmetic_v<T> || is_half_v<T>) TensorData(T value)
      : values_{Scalar(value)}, dtype_(dtype_of_number<T>()) {}
  TensorData(std::initializer_list<TensorData> list);
  template <class T>
  requires(std::is_arithmetic_v<T> || is_half_v<T>) TensorData(const std::vector<T>& values)
      : sizes_{static_cast<std::int64_t>(values.size())}, dtype_(dtype_of_number<T>()) {
    for (const T v : values) values_.emplace_back(v);
  }
  template <class T>
  TensorData(ArrayRef<T> values) : TensorData(values.vec()) {}
  const DimVector& sizes() const { return sizes_; }
  const std::vector<Scalar>& values() const { return values_; }
  DType dtype() const { return dtype_; }

 private:
  template <class T>
  static DType dtype_of_number() {
    if constexpr (std::is_same_v<T, bool>) return DType::Bool;
    if constexpr (std::is_integral_v<T>) return DType::Long;
    if constexpr (is_half_v<T>) return dtype_of_v<T>;
    return get_default_dtype();
  }
  DimVector sizes_;
  std::vector<Scalar> values_;
  DType dtype_ = DType::Undefined;
};

}  // namespace detail

/// A tensor of these values: integers give int64, floating values the default dtype, unless options say otherwise.
/// Nested lists must be rectangular (ValueError).
Tensor tensor(detail::TensorData data, const TensorOptions& options = {});
inline Tensor tensor(std::initializer_list<detail::TensorData> data, const TensorOptions& options = {}) {
  return tensor(detail::TensorData(data), options);
}

/// A tensor on memory owned elsewhere, not copied; `deleter(data)` runs when the last tensor on it is gone.
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, std::function<void(void*)> deleter,
                 const TensorOptions& options = {});
Tensor from_blob(void* data, IntArrayRef sizes, std::function<void(void*)> deleter, const TensorOptions& options = {});
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options = {});
Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options = {});

}  // namespace athanor
