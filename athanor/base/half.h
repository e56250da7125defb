#pragma once
/// 16-bit floating point values: IEEE binary16 (`Half`) and bfloat16 (`BFloat16`). They convert to and from float with
/// round-to-nearest-even; arithmetic on them is arithmetic on float.

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace athanor {

struct alignas(2) BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  BFloat16(float value) {
    auto u = std::bit_cast<std::uint32_t>(value);
    if ((u & 0x7fffffffU) > 0x7f800000U)
      bits = static_cast<std::uint16_t>((u >> 16) | 0x40U);  // keep NaN a NaN
    else
      bits = static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
  }
  operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  static constexpr BFloat16 from_bits(std::uint16_t b) {
    BFloat16 r{};
    r.bits = b;
    return r;
  }
};

namespace detail {
std::uint16_t float_to_half_bits(float value);
float half_bits_to_float(std::uint16_t bits);
}  // namespace detail

struct alignas(2) Half {
  std::uint16_t bits = 0;

  Half() = default;
  Half(float value) : bits(detail::float_to_half_bits(value)) {}
  operator float() const { return detail::half_bits_to_float(bits); }
  static constexpr Half from_bits(std::uint16_t b) {
    Half r{};
    r.bits = b;
    return r;
  }
};

namespace detail {

inline std::uint16_t float_to_half_bits(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000U);
  const std::uint32_t magnitude = u & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x1ffU));
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // rounds to infinity
  if (magnitude < 0x38800000U) {                                                    // subnormal half
    // Adding 0.5 aligns the mantissa so that the float unit does the rounding.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

inline float half_bits_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7fffU;
  if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
  if (magnitude < 0x400U) {
    const float value = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000U));
}

}  // namespace detail

static_assert(sizeof(Half) == 2 && sizeof(BFloat16) == 2);

/// True for float, double, Half and BFloat16.
template <class T>
inline constexpr bool is_floating_v =
    std::is_floating_point_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
/// True for Half and BFloat16.
template <class T>
inline constexpr bool is_half_v = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

}  // namespace athanor

template <>
struct std::numeric_limits<athanor::Half> {
  static constexpr bool is_specialized = true, has_infinity = true, has_quiet_NaN = true, has_signaling_NaN = true,
                        is_signed = true, is_integer = false;
  static constexpr athanor::Half min() { return athanor::Half::from_bits(0x0400); }
  static constexpr athanor::Half max() { return athanor::Half::from_bits(0x7bff); }
  static constexpr athanor::Half lowest() { return athanor::Half::from_bits(0xfbff); }
  static constexpr athanor::Half epsilon() { return athanor::Half::from_bits(0x1400); }
  static constexpr athanor::Half infinity() { return athanor::Half::from_bits(0x7c00); }
  static constexpr athanor::Half signaling_NaN() { return athanor::Half::from_bits(0x7d00); }
  static constexpr athanor::Half quiet_NaN() { return athanor::Half::from_bits(0x7e00); }
};
template <>
struct std::numeric_limits<athanor::BFloat16> {
  static constexpr bool is_specialized = true, has_infinity = true, has_quiet_NaN = true, has_signaling_NaN = true,
                        is_signed = true, is_integer = false;
  static constexpr athanor::BFloat16 min() { return athanor::BFloat16::from_bits(0x0080); }
  static constexpr athanor::BFloat16 max() { return athanor::BFloat16::from_bits(0x7f7f); }
  static constexpr athanor::BFloat16 lowest() { return athanor::BFloat16::from_bits(0xff7f); }
  static constexpr athanor::BFloat16 epsilon() { return athanor::BFloat16::from_bits(0x3c00); }
  static constexpr athanor::BFloat16 infinity() { return athanor::BFloat16::from_bits(0x7f80); }
  static constexpr athanor::BFloat16 signaling_NaN() { return athanor::BFloat16::from_bits(0x7fa0); }
  static constexpr athanor::BFloat16 quiet_NaN() { return athanor::BFloat16::from_bits(0x7fc0); }
};
