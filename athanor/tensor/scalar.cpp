#include "athanor/tensor/scalar.h"

#include <cmath>
#include <limits>

#include "athanor/base/error.h"
#include "athanor/tensor/largest_finite.h"

namespace athanor {

namespace {

template <class T>
bool integer_fits(bool is_double, std::int64_t i, double d) {
  using Limits = std::numeric_limits<T>;
  constexpr std::int64_t kMost = Limits::max(), kLeast = Limits::is_signed ? std::int64_t{Limits::min()} : -kMost;
  if (is_double) return d <= static_cast<double>(kMost) && d >= static_cast<double>(kLeast);
  return i <= kMost && i >= kLeast;
}

}  // namespace

double largest_finite(DType dtype) {
  switch (dtype) {
    case DType::Half:
      return 65504;
    case DType::BFloat16:
      return 0x1.FEp127;
    case DType::Double:
      return std::numeric_limits<double>::max();
    default:
      return std::numeric_limits<float>::max();
  }
}

bool Scalar::fits(DType dtype) const {
  const bool is_double = kind_ == Kind::Double;
  const std::int64_t i = is_double ? 0 : int_;
  const double d = is_double ? double_ : 0;
  switch (dtype) {
    case DType::Byte:
      return integer_fits<std::uint8_t>(is_double, i, d);
    case DType::Char:
      return integer_fits<std::int8_t>(is_double, i, d);
    case DType::Short:
      return integer_fits<std::int16_t>(is_double, i, d);
    case DType::Int:
      return integer_fits<std::int32_t>(is_double, i, d);
    case DType::Long:
      return !is_double || (d < 0x1p63 && d >= -0x1p63);
    case DType::Half:
    case DType::BFloat16:
    case DType::Float: {
      const double size = std::fabs(is_double ? double_ : static_cast<double>(int_));
      return !(size > largest_finite(dtype)) || std::isinf(size);
    }
    default:
      return true;
  }
}

void Scalar::throw_misfit(DType dtype, const char* what) const {
  static constexpr const char* kNames[] = {"uint8_t", "int8_t", "int16_t", "int",  "int64_t",
                                           "Half",    "float",  "double",  "bool", "BFloat16"};
  ATHANOR_THROW(Error, what, ": value cannot be converted to type ", kNames[static_cast<std::size_t>(dtype)],
                " without overflow: ", *this);
}

}  // namespace athanor
