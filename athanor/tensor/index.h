#pragma once
/// What stands between the brackets of x[…]: integers, slices, None, "...", bools and tensors.

#include <iosfwd>
#include <limits>
#include <optional>
#include <string_view>

#include "athanor/tensor/tensor_base.h"

namespace athanor::indexing {

enum class EllipsisIndexType { Ellipsis };
inline constexpr EllipsisIndexType Ellipsis = EllipsisIndexType::Ellipsis;
inline constexpr std::nullopt_t None = std::nullopt;
/// Bounds of a slice that no tensor reaches.
inline constexpr std::int64_t INDEX_MIN = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int64_t INDEX_MAX = std::numeric_limits<std::int64_t>::max();

/// start:stop:step; None leaves a bound open: what start() and stop() say then is beyond every tensor. Indexing takes
/// positive steps only.
class Slice {
 public:
  Slice(std::optional<std::int64_t> start = std::nullopt, std::optional<std::int64_t> stop = std::nullopt,
        std::optional<std::int64_t> step = std::nullopt)
      : step_(step.value_or(1)) {
    ATHANOR_CHECK_VALUE(step_ != 0, "slice step cannot be zero");
    start_ = start.value_or(step_ < 0 ? INDEX_MAX : 0);
    stop_ = stop.value_or(step_ < 0 ? INDEX_MIN : INDEX_MAX);
  }
  std::int64_t start() const { return start_; }
  std::int64_t stop() const { return stop_; }
  std::int64_t step() const { return step_; }

 private:
  std::int64_t start_, stop_, step_;
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
  bool is_none() const { return kind_ == Kind::None; }
  bool is_ellipsis() const { return kind_ == Kind::Ellipsis; }
  bool is_integer() const { return kind_ == Kind::Integer; }
  bool is_boolean() const { return kind_ == Kind::Boolean; }
  bool is_slice() const { return kind_ == Kind::Slice; }
  bool is_tensor() const { return kind_ == Kind::Tensor; }
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

/// "1:4:2"
std::ostream& operator<<(std::ostream& out, const Slice& slice);
/// "None", "...", "3", "true", "1:4:1" or the tensor.
std::ostream& operator<<(std::ostream& out, const TensorIndex& index);
std::ostream& operator<<(std::ostream& out, const std::vector<TensorIndex>& indices);

}  // namespace athanor::indexing
