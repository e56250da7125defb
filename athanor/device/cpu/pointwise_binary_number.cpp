// Integer powers, greatest common divisors and least common multiples: scalar, the same on every instruction set.
#include <type_traits>

#include "athanor/device/cpu/pointwise_tables.h"

namespace athanor::cpu {
namespace {

/// Unsigned arithmetic wraps; narrower types would be promoted to (signed) int.
template <class T>
using Unsigned = std::make_unsigned_t<decltype(T{} + 0)>;

template <class T>
Unsigned<T> magnitude(T x) {
  return x < 0 ? Unsigned<T>{0} - static_cast<Unsigned<T>>(x) : static_cast<Unsigned<T>>(x);
}

/// Squaring; a negative exponent leaves only 1 and -1 standing.
template <class T>
T power(T base, T exponent) {
  using U = Unsigned<T>;
  if (exponent < 0) return static_cast<T>(base == 1 ? 1 : base != T(-1) ? 0 : exponent % 2 ? -1 : 1);
  U product = 1, square = static_cast<U>(base);
  for (auto e = static_cast<U>(exponent); e != 0; e >>= 1, square *= square)
    if (e & 1) product *= square;
  return static_cast<T>(product);
}

template <class T>
T common_divisor(T a, T b) {
  Unsigned<T> x = magnitude(a), y = magnitude(b);
  while (y != 0) {
    const Unsigned<T> rest = x % y;
    x = y;
    y = rest;
  }
  return static_cast<T>(x);
}

template <class T>
T common_multiple(T a, T b) {
  using U = Unsigned<T>;
  const T divisor = common_divisor(a, b);
  if (divisor == 0) return 0;
  // The most negative value divided by -1 would trap.
  const U quotient = divisor == T(-1) ? U{0} - static_cast<U>(a)
                                      : static_cast<U>(static_cast<std::int64_t>(a) / std::int64_t{divisor});
  return static_cast<T>(magnitude(static_cast<T>(quotient * static_cast<U>(b))));
}

template <class T, T (*f)(T, T)>
void loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void*) {
  T* out = reinterpret_cast<T*>(ptrs[0]);
  const T* a = reinterpret_cast<const T*>(ptrs[1]);
  const T* b = reinterpret_cast<const T*>(ptrs[2]);
  const std::int64_t step_a = strides[1] != 0, step_b = strides[2] != 0;
  for (std::int64_t i = 0; i < n; ++i) out[i] = f(a[i * step_a], b[i * step_b]);
}

template <class T>
void add(PointwiseTables& t, DType dtype) {
  t.at(BinaryOp::Pow, dtype) = &loop<T, power<T>>;
  t.at(BinaryOp::Gcd, dtype) = &loop<T, common_divisor<T>>;
  t.at(BinaryOp::Lcm, dtype) = &loop<T, common_multiple<T>>;
}

}  // namespace

void add_binary_number(PointwiseTables& tables) {
  add<std::uint8_t>(tables, DType::Byte);
  add<std::int8_t>(tables, DType::Char);
  add<std::int16_t>(tables, DType::Short);
  add<std::int32_t>(tables, DType::Int);
  add<std::int64_t>(tables, DType::Long);
}

}  // namespace athanor::cpu
