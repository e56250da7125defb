#pragma once
/// Elements as unsigned integers in the same order: NaN last and all NaNs equal, -0 equal to +0, false before true.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "athanor/tensor/dtype.h"

namespace athanor::cpu {

template <std::size_t Bytes>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using type = std::uint8_t;
};
template <>
struct UnsignedOf<2> {
  using type = std::uint16_t;
};
template <>
struct UnsignedOf<4> {
  using type = std::uint32_t;
};
template <>
struct UnsignedOf<8> {
  using type = std::uint64_t;
};
template <class T>
using KeyOf = typename UnsignedOf<sizeof(T)>::type;

template <class T>
inline constexpr bool is_floating_v = std::is_floating_point_v<T> || is_half_v<T>;

template <class T>
inline constexpr KeyOf<T> kSignBit = static_cast<KeyOf<T>>(KeyOf<T>{1} << (8 * sizeof(T) - 1));

/// The bits of +infinity.
template <class T>
constexpr KeyOf<T> infinity_bits() {
  if constexpr (std::is_same_v<T, double>)
    return 0x7ff0000000000000U;
  else if constexpr (std::is_same_v<T, float>)
    return 0x7f800000U;
  else if constexpr (std::is_same_v<T, Half>)
    return 0x7c00U;
  else
    return 0x7f80U;
}

template <class T>
inline KeyOf<T> order_key(T value) {
  using Key = KeyOf<T>;
  if constexpr (is_floating_v<T>) {
    Key bits = std::bit_cast<Key>(value);
    const auto magnitude = static_cast<Key>(bits & ~kSignBit<T>);
    bits = magnitude == 0 ? Key{0} : bits;
    const auto key = static_cast<Key>(bits ^ (bits & kSignBit<T> ? static_cast<Key>(~Key{0}) : kSignBit<T>));
    return magnitude > infinity_bits<T>() ? static_cast<Key>(~Key{0}) : key;
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? 1 : 0;
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<Key>(static_cast<Key>(value) ^ kSignBit<T>);
  } else {
    return value;
  }
}

/// An element with that key.
template <class T>
inline T order_value(KeyOf<T> key) {
  using Key = KeyOf<T>;
  if constexpr (is_floating_v<T>)
    return std::bit_cast<T>(static_cast<Key>(key & kSignBit<T> ? key ^ kSignBit<T> : ~key));
  else if constexpr (std::is_same_v<T, bool>)
    return key != 0;
  else if constexpr (std::is_signed_v<T>)
    return static_cast<T>(key ^ kSignBit<T>);
  else
    return key;
}

/// False if elements of different bits have this key: zeros and NaNs.
template <class T>
constexpr bool is_exact_key(KeyOf<T> key) {
  if constexpr (is_floating_v<T>)
    return key != kSignBit<T> && key != static_cast<KeyOf<T>>(~KeyOf<T>{0});
  else
    return true;
}

template <class T>
inline bool is_nan_element(T value) {
  if constexpr (is_floating_v<T>)
    return static_cast<KeyOf<T>>(std::bit_cast<KeyOf<T>>(value) & ~kSignBit<T>) > infinity_bits<T>();
  else
    return false;
}

}  // namespace athanor::cpu
