#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/pointwise_ternary.cpp"
#include "athanor/device/cpu/simd_targets.h"

#include "hwy/foreach_target.h"

#include "athanor/device/cpu/pointwise_loops.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {

#define ATHANOR_TERNARY_OP(Name, expression)                         \
  struct Name {                                                      \
    template <class T>                                               \
    static HWY_INLINE T apply(T a, T b, T c, [[maybe_unused]] T p) { \
      using U [[maybe_unused]] = Wrapping<T>;                        \
      return static_cast<T>(expression);                             \
    }                                                                \
  }

/// T itself for floats, an unsigned type for integers.
template <class T>
struct WrappingType {
  using type = Unsigned<T>;
};
template <>
struct WrappingType<float> {
  using type = float;
};
template <>
struct WrappingType<double> {
  using type = double;
};
template <class T>
using Wrapping = typename WrappingType<T>::type;

ATHANOR_TERNARY_OP(Lerp, c < T(0.5) ? a + c * (b - a) : b - (b - a) * (1 - c));
ATHANOR_TERNARY_OP(Addcmul, static_cast<U>(a) + static_cast<U>(p) * static_cast<U>(b) * static_cast<U>(c));
ATHANOR_TERNARY_OP(Addcdiv, a + p * b / c);
ATHANOR_TERNARY_OP(ScaledDifference, p*(a*(b - c)));
ATHANOR_TERNARY_OP(CrossEntropyBackward, a*(b - c) / std::max(b * (1 - b), p));
// NaN anywhere in a floating clamp gives NaN.
ATHANOR_TERNARY_OP(ClampFloat, ((a != a) | (b != b) | (c != c)) ? a + b + c : std::min(std::max(a, b), c));
ATHANOR_TERNARY_OP(ClampInteger, std::min(std::max(a, b), c));
#undef ATHANOR_TERNARY_OP

template <class T, class Op>
void loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void* params) {
  const T p = Parameters<T>(params).p0;
  map_dense<T, T, T, T>(ptrs, strides, n, [p](T a, T b, T c) { return Op::apply(a, b, c, p); });
}

/// Moves bits, so that one loop serves all dtypes of a size.
template <class U>
void where_loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void*) {
  map_dense<U, std::uint8_t, U, U>(ptrs, strides, n, [](std::uint8_t c, U a, U b) { return c ? a : b; });
}

template <class T>
void add_float(PointwiseTables& t, DType dtype) {
  t.at(TernaryOp::Lerp, dtype) = &loop<T, Lerp>;
  t.at(TernaryOp::Addcmul, dtype) = &loop<T, Addcmul>;
  t.at(TernaryOp::Addcdiv, dtype) = &loop<T, Addcdiv>;
  t.at(TernaryOp::Clamp, dtype) = &loop<T, ClampFloat>;
  t.at(TernaryOp::ScaledDifference, dtype) = &loop<T, ScaledDifference>;
  t.at(TernaryOp::CrossEntropyBackward, dtype) = &loop<T, CrossEntropyBackward>;
}

void ternary(PointwiseTables& t) {
  add_float<float>(t, DType::Float);
  add_float<double>(t, DType::Double);
  for_each_integer([&](auto tag, DType dtype) {
    using T = typename decltype(tag)::type;
    t.at(TernaryOp::Addcmul, dtype) = &loop<T, Addcmul>;
    t.at(TernaryOp::Clamp, dtype) = &loop<T, ClampInteger>;
  });
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::size_t size = item_size(dtype);
    t.at(TernaryOp::Where, dtype) = size == 1   ? &where_loop<std::uint8_t>
                                    : size == 2 ? &where_loop<std::uint16_t>
                                    : size == 4 ? &where_loop<std::uint32_t>
                                                : &where_loop<std::uint64_t>;
  }
}

}  // namespace
}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(ternary);
void add_ternary(PointwiseTables& tables) { HWY_DYNAMIC_DISPATCH(ternary)(tables); }
}  // namespace athanor::cpu
#endif
