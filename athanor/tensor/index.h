#pragma once
/// What stands between the brackets of x[…]: integers, slices, None, "...", bools and tensors.

#include <optional>
#include <string_view>

#include "athanor/tensor/tensor_base.h"

namespace athanor::indexing {

enum class EllipsisIndexType { Ellipsis };
inline constexpr EllipsisIndexType Ellipsis = EllipsisIndexType::Ellipsis;
inline constexpr std::nullopt_t None = std::nullopt;

/// start:stop:step; None leaves a bound open. A step must be positive.
class Slice {
 public:
  Slice(std::optional<std::int64_t> start = std::nullopt, std::optional<std::int64_t> stop = std::nullopt,
        std::optional<std::int64_t> step = std::nullopt)
      : start_(start), stop_(stop), step_(step.value_or(1)) {}
  std::optional<std::int64_t> start() const { return start_; }
  std::optional<std::int64_t> stop() const { return stop_; }
  std::int64_t step() const { return step_; }

 private:
  std::optional<std::int64_t> start_, stop_;
  std::int64_t step_;
};

class TensorIndex {
 public:
  enum class Kind : std::uint8_t { None, Ellipsis, Integer, Boolean, Slice, Tensor };
  TensorIndex(std::nullopt_t) : kind_(Kind::None) {}
  TensorIndex(EllipsisIndexType) : kind_(Kind::Ellipsis) {}
  /// Only "..." is accepted.
  TensorIndex(const char* text) : kind_(Kind::Ellipsis) {
    ATHANOR_CHECK_VALUE(std::string_view(text) == "...", "Expected \"...\" to represent an ellipsis index, but got \"",
                        text, '"');
  }
  template <class T>
  requires std::is_integral_v<T> TensorIndex(T value)
      : kind_(std::is_same_v<T, bool> ? Kind::Boolean : Kind::Integer), integer_(value) {}
  TensorIndex(class Slice s) : kind_(Kind::Slice), slice_(s) {}
  TensorIndex(TensorBase t) : kind_(Kind::Tensor), tensor_(std::move(t)) {}

  Kind kind() const { return kind_; }
  std::int64_t integer() const { return integer_; }
  bool boolean() const { return integer_ != 0; }
  const class Slice& slice() const { return slice_; }
  const TensorBase& tensor() const { return tensor_; }

 private:
  Kind kind_;
  std::int64_t integer_ = 0;
  class Slice slice_;
  TensorBase tensor_;
};

}  // namespace athanor::indexing
