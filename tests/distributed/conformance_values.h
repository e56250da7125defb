#pragma once
/// The numbers of the conformance suite, and what they should combine to.

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "athanor/distributed/process_group.h"
#include "athanor/ops/factory.h"
#include "athanor/ops/tensor.h"

namespace athanor::distributed::conformance {

using athanor::detail::str;

/// What rank r brings at place i. Floating values and their sums are exact in bfloat16; integers use their whole range
/// and wrap around.
template <class T>
T value_of(ReduceOp::Kind kind, int rank, std::int64_t i) {
  const std::uint64_t x = static_cast<std::uint64_t>(rank + 1) * 2654435761u + static_cast<std::uint64_t>(i) * 40503u;
  if constexpr (std::is_same_v<T, bool>) {
    return (x >> 7) % 4 != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(x * 0x9e3779b97f4a7c15u >> 11);
  } else {
    constexpr float factors[] = {1, 2, -1, 0.5, -2};
    if (kind == ReduceOp::PRODUCT) return T(factors[(x >> 5) % 5]);
    return T(static_cast<float>(static_cast<int>((x >> 5) % 17) - 8));
  }
}

/// Takes the value of greater magnitude; bool: exclusive or.
inline ReduceOp farthest_from_zero() {
  return ReduceOp::user("farthest_from_zero", [](void* inout, const void* in, std::int64_t count, DType dtype) {
    dispatch_all(dtype, [&]<class T>(TypeTag<T>) {
      T* a = static_cast<T*>(inout);
      const T* b = static_cast<const T*>(in);
      for (std::int64_t i = 0; i < count; ++i) {
        if constexpr (std::is_same_v<T, bool>) {
          a[i] = a[i] != b[i];
        } else {
          const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
          if (std::abs(y) > std::abs(x) || (std::abs(y) == std::abs(x) && y > x)) a[i] = b[i];
        }
      }
    });
  });
}

inline constexpr double kFactor = 0.5;

/// Combines two values; in double for floating ones, exactly for integers.
template <class T>
auto combine_two(ReduceOp::Kind kind, auto a, auto b) {
  using A = decltype(a);
  if constexpr (std::is_same_v<T, bool>) {
    switch (kind) {
      case ReduceOp::PRODUCT:
      case ReduceOp::MIN:
      case ReduceOp::BAND:
        return A(a && b);
      case ReduceOp::BXOR:
      case ReduceOp::USER:
        return A(a != b);
      default:
        return A(a || b);
    }
  } else if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    switch (kind) {
      case ReduceOp::PRODUCT:
        return static_cast<T>(static_cast<U>(std::uint64_t{static_cast<U>(a)} * std::uint64_t{static_cast<U>(b)}));
      case ReduceOp::MIN:
        return b < a ? b : a;
      case ReduceOp::MAX:
        return a < b ? b : a;
      case ReduceOp::BAND:
        return static_cast<T>(a & b);
      case ReduceOp::BOR:
        return static_cast<T>(a | b);
      case ReduceOp::BXOR:
        return static_cast<T>(a ^ b);
      case ReduceOp::USER: {
        T out = a;
        farthest_from_zero().function()(&out, &b, 1, dtype_of_v<T>);
        return out;
      }
      default:
        return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    }
  } else {
    switch (kind) {
      case ReduceOp::PRODUCT:
        return a * b;
      case ReduceOp::MIN:
        return b < a ? b : a;
      case ReduceOp::MAX:
        return a < b ? b : a;
      case ReduceOp::USER:
        return std::abs(b) > std::abs(a) || (std::abs(a) == std::abs(b) && b > a) ? b : a;
      default:
        return a + b;
    }
  }
}

template <class T>
T expected_of(const ReduceOp& op, int size, std::int64_t i) {
  const auto kind = op.kind();
  if constexpr (std::is_integral_v<T>) {
    T all = value_of<T>(kind, 0, i);
    for (int r = 1; r < size; ++r) all = combine_two<T>(kind, all, value_of<T>(kind, r, i));
    return all;
  } else {
    const double factor = kind == ReduceOp::PREMUL_SUM ? op.factor() : 1;
    double all = static_cast<double>(value_of<T>(kind, 0, i)) * factor;
    for (int r = 1; r < size; ++r)
      all = combine_two<T>(kind, all, static_cast<double>(value_of<T>(kind, r, i)) * factor);
    if (kind == ReduceOp::AVG) all /= size;
    if constexpr (std::is_same_v<T, double>)
      return all;
    else
      return T(static_cast<float>(all));
  }
}

/// The operators with a meaning for the dtype.
template <class T>
std::vector<ReduceOp> operators() {
  std::vector<ReduceOp> all = {ReduceOp::SUM, ReduceOp::PRODUCT, ReduceOp::MIN, ReduceOp::MAX};
  for (const auto kind : {ReduceOp::AVG, ReduceOp::BAND, ReduceOp::BOR, ReduceOp::BXOR})
    if (reduces(kind, dtype_of_v<T>)) all.emplace_back(kind);
  if (reduces(ReduceOp::PREMUL_SUM, dtype_of_v<T>)) all.push_back(ReduceOp::premul_sum(kFactor));
  all.push_back(farthest_from_zero());
  return all;
}

enum class Layout { Plain, Strided, ZeroDim };

/// A tensor of `count` elements whose place i holds `fill(i)`. Strided ones are a column of a wider matrix.
template <class T, class F>
Tensor make(std::int64_t count, Layout layout, F&& fill) {
  Tensor plain = empty({count}, dtype_of_v<T>);
  T* data = plain.data_ptr<T>();
  for (std::int64_t i = 0; i < count; ++i) data[i] = fill(i);
  if (layout == Layout::ZeroDim) return plain.view(IntArrayRef());
  if (layout == Layout::Plain) return plain;
  Tensor strided = zeros({count, 3}, dtype_of_v<T>).select(1, 1);
  strided.copy_(plain);
  return strided;
}

template <class T>
bool same(T a, T b, bool rounded) {
  if constexpr (std::is_integral_v<T>) {
    return a == b;
  } else {
    const double x = static_cast<double>(a), y = static_cast<double>(b);
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    // A mean may be a multiplication by the rounded 1/n.
    const double ulp = std::is_same_v<T, double> ? 1e-15 : std::is_same_v<T, float> ? 3e-7 : 1e-2;
    return rounded ? std::abs(x - y) <= ulp * std::abs(y) : x == y;
  }
}

/// Throws Error naming the first element that differs.
template <class T, class F>
void expect(const Tensor& t, F&& wanted, const std::string& what, bool rounded = false) {
  const Tensor plain = t.contiguous();
  const T* data = plain.data_ptr<T>();
  for (std::int64_t i = 0; i < plain.numel(); ++i) {
    const T want = wanted(i);
    if (!same(data[i], want, rounded))
      ATHANOR_THROW(Error, what, " of ", t.numel(), " ", t.dtype(), ": element ", i, " is ",
                    static_cast<double>(data[i]), ", expected ", static_cast<double>(want));
  }
}

}  // namespace athanor::distributed::conformance
