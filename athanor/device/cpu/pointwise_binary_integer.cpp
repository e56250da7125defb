#define ATHANOR_NO_AVX512
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/pointwise_binary_integer.cpp"
#include "athanor/device/cpu/simd_targets.h"

#include "hwy/foreach_target.h"

#include "athanor/device/cpu/pointwise_loops.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {

// Integer arithmetic wraps: it is done unsigned. Then signed and unsigned operands of one width give the same bits, so
// that one loop serves both.

#define ATHANOR_INTEGER_OP_2(Name, expression) \
  struct Name {                                \
    template <class T>                         \
    static HWY_INLINE T apply(T a, T b) {      \
      using U [[maybe_unused]] = Unsigned<T>;  \
      return static_cast<T>(expression);       \
    }                                          \
  }
ATHANOR_INTEGER_OP_2(Add, static_cast<U>(a) + static_cast<U>(b));
ATHANOR_INTEGER_OP_2(Sub, static_cast<U>(a) - static_cast<U>(b));
ATHANOR_INTEGER_OP_2(Mul, static_cast<U>(a) * static_cast<U>(b));
ATHANOR_INTEGER_OP_2(Maximum, std::max(a, b));
ATHANOR_INTEGER_OP_2(Minimum, std::min(a, b));
ATHANOR_INTEGER_OP_2(BitwiseAnd, a& b);
ATHANOR_INTEGER_OP_2(BitwiseOr, a | b);
ATHANOR_INTEGER_OP_2(BitwiseXor, a ^ b);
ATHANOR_INTEGER_OP_2(Heaviside, a == 0 ? b : static_cast<T>(a > 0));

/// The number of bits of T: shifting by as many or more (or by a negative count) leaves nothing.
template <class T>
inline constexpr int kBits = 8 * sizeof(T);
template <class T>
HWY_INLINE bool is_shift(T count) {
  return static_cast<std::make_unsigned_t<T>>(count) < kBits<T>;
}
ATHANOR_INTEGER_OP_2(LeftShift, is_shift(b) ? static_cast<U>(a) << (b & (kBits<T> - 1)) : U{0});
ATHANOR_INTEGER_OP_2(RightShift, a >> (is_shift(b) ? static_cast<int>(b) : kBits<T> - 1) >> (is_shift(b) ? 0 : 1));
#undef ATHANOR_INTEGER_OP_2

/// Quotients that the compiler can vectorize: 8 and 16-bit operands are exact in float, 32-bit ones in double, and so
/// are 64-bit ones below 2^51 (kSmall): the rounded quotient cannot reach the next integer.
template <bool kSmall, class T>
HWY_INLINE T divide(T a, T b) {
  if constexpr (sizeof(T) <= 2) {
    return static_cast<T>(static_cast<std::int32_t>(static_cast<float>(a) / static_cast<float>(b)));
  } else if constexpr (sizeof(T) == 4 || kSmall) {
    return static_cast<T>(static_cast<std::int64_t>(static_cast<double>(a) / static_cast<double>(b)));
  } else {
    // The most negative value divided by -1 would trap.
    return b == -1 ? static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a)) : static_cast<T>(a / b);
  }
}
template <class T, class Op>
void loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void*) {
  map_dense<T, T, T>(ptrs, strides, n, [](T a, T b) { return Op::apply(a, b); });
}

/// a + factor b.
template <class T>
HWY_NOINLINE void scaled_loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, T factor) {
  using U = Unsigned<T>;
  map_dense<T, T, T>(ptrs, strides, n, [factor](T a, T b) {
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(factor) * static_cast<U>(b));
  });
}

/// a + p0 b or a - p0 b.
template <class T, bool kMinus>
void sum_loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void* params) {
  const T factor = Parameters<T>(params).p0;
  if (factor == 1) return loop<T, std::conditional_t<kMinus, Sub, Add>>(ptrs, strides, n, params);
  scaled_loop<T>(ptrs, strides, n, kMinus ? static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(factor)) : factor);
}

/// What is asked of a division.
enum class Division { Trunc, Floor, Fmod, Remainder };

/// One loop for all four, without a branch: as costly as the division alone.
template <class T, bool kSmall>
HWY_NOINLINE void divide_loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, Division kind) {
  const T floors = kind == Division::Floor || kind == Division::Remainder ? static_cast<T>(-1) : T{0};
  const T quotient = kind == Division::Trunc || kind == Division::Floor ? static_cast<T>(-1) : T{0};
  map_dense<T, T, T>(ptrs, strides, n, [floors, quotient](T a, T b) {
    using U = Unsigned<T>;
    const T q = divide<kSmall>(a, b);
    const T r = static_cast<T>(static_cast<U>(a) - static_cast<U>(q) * static_cast<U>(b));
    const T down = ((r != 0) & ((r < 0) != (b < 0))) ? floors : T{0};  // all ones: the quotient is one too large
    const T below = static_cast<T>(static_cast<U>(q) + static_cast<U>(down));
    const T rest = static_cast<T>(static_cast<U>(r) + static_cast<U>(down & b));
    return static_cast<T>((below & quotient) | (rest & ~quotient));
  });
}

/// True if an element lies outside [-2^51, 2^51).
template <class T>
HWY_INLINE bool any_large(const T* x, std::int64_t n) {
  std::uint64_t large = 0;
  for (std::int64_t i = 0; i < n; ++i) large |= (static_cast<std::uint64_t>(x[i]) + (std::uint64_t{1} << 51)) >> 52;
  return large != 0;
}

template <class T>
HWY_NOINLINE void checked_division(char* const* ptrs, const std::int64_t* strides, std::int64_t n, Division kind,
                                   BinaryOp op) {
  const T* a = reinterpret_cast<const T*>(ptrs[1]);
  const T* b = reinterpret_cast<const T*>(ptrs[2]);
  const std::int64_t count_a = strides[1] == 0 ? 1 : n, count_b = strides[2] == 0 ? 1 : n;
  bool any_zero = false;
  for (std::int64_t i = 0; i < count_b; ++i) any_zero |= b[i] == 0;
  if (any_zero) refuse_zero_divisor(op);
  if constexpr (sizeof(T) == 8) {
    if (!any_large(a, count_a) && !any_large(b, count_b)) return divide_loop<T, true>(ptrs, strides, n, kind);
  }
  divide_loop<T, false>(ptrs, strides, n, kind);
}

template <class T, Division kKind, BinaryOp kOp>
void division_loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void*) {
  checked_division<T>(ptrs, strides, n, kKind, kOp);
}

/// What does not depend on the sign, for the types as wide as the unsigned T.
template <class T>
void add_bits(PointwiseTables& t, std::initializer_list<DType> dtypes) {
  for (const DType dtype : dtypes) {
    t.at(BinaryOp::Add, dtype) = &sum_loop<T, false>;
    t.at(BinaryOp::Sub, dtype) = &sum_loop<T, true>;
    t.at(BinaryOp::Mul, dtype) = &loop<T, Mul>;
    t.at(BinaryOp::BitwiseAnd, dtype) = &loop<T, BitwiseAnd>;
    t.at(BinaryOp::BitwiseOr, dtype) = &loop<T, BitwiseOr>;
    t.at(BinaryOp::BitwiseXor, dtype) = &loop<T, BitwiseXor>;
    t.at(BinaryOp::LeftShift, dtype) = &loop<T, LeftShift>;
  }
}

template <class T>
void add_ordered(PointwiseTables& t, DType dtype) {
  t.at(BinaryOp::DivFloor, dtype) = &division_loop<T, Division::Floor, BinaryOp::DivFloor>;
  t.at(BinaryOp::DivTrunc, dtype) = &division_loop<T, Division::Trunc, BinaryOp::DivTrunc>;
  t.at(BinaryOp::Remainder, dtype) = &division_loop<T, Division::Remainder, BinaryOp::Remainder>;
  t.at(BinaryOp::Fmod, dtype) = &division_loop<T, Division::Fmod, BinaryOp::Fmod>;
  t.at(BinaryOp::Maximum, dtype) = &loop<T, Maximum>;
  t.at(BinaryOp::Minimum, dtype) = &loop<T, Minimum>;
  t.at(BinaryOp::Fmax, dtype) = &loop<T, Maximum>;
  t.at(BinaryOp::Fmin, dtype) = &loop<T, Minimum>;
  t.at(BinaryOp::Heaviside, dtype) = &loop<T, Heaviside>;
  t.at(BinaryOp::RightShift, dtype) = &loop<T, RightShift>;
}

void binary_integer(PointwiseTables& t) {
  add_bits<std::uint8_t>(t, {DType::Byte, DType::Char});
  add_bits<std::uint16_t>(t, {DType::Short});
  add_bits<std::uint32_t>(t, {DType::Int});
  add_bits<std::uint64_t>(t, {DType::Long});
  for_each_integer([&](auto tag, DType dtype) { add_ordered<typename decltype(tag)::type>(t, dtype); });
  for (BinaryOp op : {BinaryOp::BitwiseAnd, BinaryOp::BitwiseOr, BinaryOp::BitwiseXor, BinaryOp::Heaviside})
    t.at(op, DType::Bool) = t.at(op, DType::Byte);
}

}  // namespace
}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(binary_integer);
void add_binary_integer(PointwiseTables& tables) { HWY_DYNAMIC_DISPATCH(binary_integer)(tables); }
}  // namespace athanor::cpu
#endif
