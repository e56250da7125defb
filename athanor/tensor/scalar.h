#pragma once
/// Scalar: one number of any dtype, as a function argument. Holds a bool, an int64 or a double.

#include <cstdint>
#include <string>
#include <type_traits>

#include "athanor/tensor/dtype.h"

namespace athanor {

class Scalar {
 public:
  constexpr Scalar() : kind_(Kind::Int), int_(0) {}
  template <class T>
  requires std::is_arithmetic_v<T>
  constexpr Scalar(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      kind_ = Kind::Bool;
      int_ = value;
    } else if constexpr (std::is_floating_point_v<T>) {
      kind_ = Kind::Double;
      double_ = static_cast<double>(value);
    } else {
      kind_ = Kind::Int;
      int_ = static_cast<std::int64_t>(value);
    }
  }
  Scalar(Half value) : Scalar(static_cast<float>(value)) {}
  Scalar(BFloat16 value) : Scalar(static_cast<float>(value)) {}

  constexpr bool isBoolean() const { return kind_ == Kind::Bool; }
  constexpr bool isIntegral(bool include_bool) const {
    return kind_ == Kind::Int || (include_bool && kind_ == Kind::Bool);
  }
  constexpr bool isFloatingPoint() const { return kind_ == Kind::Double; }
  /// Bool, Long or Double.
  constexpr DType type() const {
    return kind_ == Kind::Bool ? DType::Bool : kind_ == Kind::Int ? DType::Long : DType::Double;
  }
  /// The value as T, converted as a C++ cast would.
  template <class T>
  constexpr T to() const {
    if constexpr (is_half_v<T>)
      return T(static_cast<float>(kind_ == Kind::Double ? double_ : static_cast<double>(int_)));
    else if constexpr (std::is_same_v<T, bool>)
      return kind_ == Kind::Double ? double_ != 0 : int_ != 0;
    else
      return kind_ == Kind::Double ? static_cast<T>(double_) : static_cast<T>(int_);
  }
  /// Whether a tensor of that dtype can hold the value: within its range, where negative numbers of unsigned integers
  /// wrap; NaN and infinities of floating dtypes only. Everything fits a bool.
  bool fits(DType dtype) const;
  /// Throws Error if it does not; `what` needs the value, for the message.
  void check_fits(DType dtype, const char* what) const {
    if (__builtin_expect(!fits(dtype), 0)) throw_misfit(dtype, what);
  }
  double toDouble() const { return to<double>(); }
  float toFloat() const { return to<float>(); }
  std::int64_t toLong() const { return to<std::int64_t>(); }
  int toInt() const { return to<int>(); }
  bool toBool() const { return to<bool>(); }
  Scalar operator-() const { return kind_ == Kind::Double ? Scalar(-double_) : Scalar(-int_); }
  /// Same value, an integer and a float included.
  bool equal(const Scalar& o) const {
    if (kind_ == Kind::Double || o.kind_ == Kind::Double) return toDouble() == o.toDouble();
    return int_ == o.int_;
  }

 private:
  [[noreturn]] void throw_misfit(DType dtype, const char* what) const;
  enum class Kind : std::uint8_t { Bool, Int, Double };
  Kind kind_;
  union {
    std::int64_t int_;
    double double_;
  };
};

inline void append(std::string& out, const Scalar& s) {
  if (s.isBoolean())
    detail::append(out, s.toBool());
  else if (s.isFloatingPoint())
    detail::append(out, s.toDouble());
  else
    detail::append(out, s.toLong());
}

}  // namespace athanor
