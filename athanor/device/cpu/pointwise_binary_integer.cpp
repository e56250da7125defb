#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/pointwise_binary_integer.cpp"
#include "athanor/device/cpu/simd_targets.h"

#include "hwy/foreach_target.h"

#include "athanor/device/cpu/pointwise_loops.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {

// Integer arithmetic wraps: it is done unsigned.

#define ATHANOR_INTEGER_OP_2(Name, expression)                         \
  struct Name {                                                        \
    template <class T, class P>                                        \
    static HWY_INLINE T apply(T a, T b, [[maybe_unused]] const P& p) { \
      using U [[maybe_unused]] = Unsigned<T>;                          \
      return static_cast<T>(expression);                               \
    }                                                                  \
  }
ATHANOR_INTEGER_OP_2(Add, static_cast<U>(a) + static_cast<U>(b));
ATHANOR_INTEGER_OP_2(Sub, static_cast<U>(a) - static_cast<U>(b));
ATHANOR_INTEGER_OP_2(AddScaled, static_cast<U>(a) + static_cast<U>(p.p0) * static_cast<U>(b));
ATHANOR_INTEGER_OP_2(SubScaled, static_cast<U>(a) - static_cast<U>(p.p0) * static_cast<U>(b));
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
template <bool kSmall, class T>
HWY_INLINE T modulo(T a, T b) {
  using U = Unsigned<T>;
  return static_cast<T>(static_cast<U>(a) - static_cast<U>(divide<kSmall>(a, b)) * static_cast<U>(b));
}

template <bool kSmall>
struct DivTrunc {
  template <class T, class P>
  static HWY_INLINE T apply(T a, T b, const P&) {
    return divide<kSmall>(a, b);
  }
};
template <bool kSmall>
struct Fmod {
  template <class T, class P>
  static HWY_INLINE T apply(T a, T b, const P&) {
    return modulo<kSmall>(a, b);
  }
};
template <bool kSmall>
struct DivFloor {
  template <class T, class P>
  static HWY_INLINE T apply(T a, T b, const P&) {
    using U = Unsigned<T>;
    const T q = divide<kSmall>(a, b);
    const T r = static_cast<T>(static_cast<U>(a) - static_cast<U>(q) * static_cast<U>(b));
    return static_cast<T>(static_cast<U>(q) - static_cast<U>((r != 0) & ((r < 0) != (b < 0))));
  }
};
template <bool kSmall>
struct Remainder {
  template <class T, class P>
  static HWY_INLINE T apply(T a, T b, const P&) {
    const T r = modulo<kSmall>(a, b);
    return static_cast<T>((r != 0) & ((r < 0) != (b < 0)) ? r + b : r);
  }
};

/// Squaring; a negative exponent leaves only 1 and -1 standing.
struct Pow {
  template <class T, class P>
  static T apply(T base, T exponent, const P&) {
    using U = Unsigned<T>;
    if (exponent < 0) return static_cast<T>(base == 1 ? 1 : base != T(-1) ? 0 : exponent % 2 ? -1 : 1);
    U power = 1, square = static_cast<U>(base);
    for (auto e = static_cast<U>(exponent); e != 0; e >>= 1, square *= square)
      if (e & 1) power *= square;
    return static_cast<T>(power);
  }
};

struct Gcd {
  template <class T, class P>
  static T apply(T a, T b, const P&) {
    using U = Unsigned<T>;
    U x = a < 0 ? U{0} - static_cast<U>(a) : static_cast<U>(a),
      y = b < 0 ? U{0} - static_cast<U>(b) : static_cast<U>(b);
    while (y != 0) {
      const U rest = x % y;
      x = y;
      y = rest;
    }
    return static_cast<T>(x);
  }
};
struct Lcm {
  template <class T, class P>
  static T apply(T a, T b, const P& p) {
    using U = Unsigned<T>;
    const T g = Gcd::apply(a, b, p);
    if (g == 0) return 0;
    const T product = static_cast<T>(static_cast<U>(divide<false>(a, g)) * static_cast<U>(b));
    return static_cast<T>(product < 0 ? U{0} - static_cast<U>(product) : static_cast<U>(product));
  }
};
#undef ATHANOR_INTEGER_OP_2

template <class T, class Op>
void loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void* params) {
  const Parameters<T> p(params);
  map_dense<T, T, T>(ptrs, strides, n, [p](T a, T b) { return Op::apply(a, b, p); });
}

template <class T, class Plain, class Scaled>
void sum_loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void* params) {
  if (Parameters<T>(params).p0 == 1)
    loop<T, Plain>(ptrs, strides, n, params);
  else
    loop<T, Scaled>(ptrs, strides, n, params);
}

/// True if an element lies outside [-2^51, 2^51).
template <class T>
HWY_INLINE bool any_large(const T* x, std::int64_t n) {
  std::uint64_t large = 0;
  for (std::int64_t i = 0; i < n; ++i) large |= (static_cast<std::uint64_t>(x[i]) + (std::uint64_t{1} << 51)) >> 52;
  return large != 0;
}

template <class T, template <bool> class Op>
void division_loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void* params) {
  const T* a = reinterpret_cast<const T*>(ptrs[1]);
  const T* b = reinterpret_cast<const T*>(ptrs[2]);
  const std::int64_t count_a = strides[1] == 0 ? 1 : n, count_b = strides[2] == 0 ? 1 : n;
  bool any_zero = false;
  for (std::int64_t i = 0; i < count_b; ++i) any_zero |= b[i] == 0;
  if (any_zero) refuse_zero_divisor();
  if constexpr (sizeof(T) == 8) {
    if (!any_large(a, count_a) && !any_large(b, count_b)) return loop<T, Op<true>>(ptrs, strides, n, params);
  }
  loop<T, Op<false>>(ptrs, strides, n, params);
}

template <class T>
void add_all(PointwiseTables& t, DType dtype) {
  t.at(BinaryOp::Add, dtype) = &sum_loop<T, Add, AddScaled>;
  t.at(BinaryOp::Sub, dtype) = &sum_loop<T, Sub, SubScaled>;
  t.at(BinaryOp::Mul, dtype) = &loop<T, Mul>;
  t.at(BinaryOp::DivFloor, dtype) = &division_loop<T, DivFloor>;
  t.at(BinaryOp::DivTrunc, dtype) = &division_loop<T, DivTrunc>;
  t.at(BinaryOp::Remainder, dtype) = &division_loop<T, Remainder>;
  t.at(BinaryOp::Fmod, dtype) = &division_loop<T, Fmod>;
  t.at(BinaryOp::Pow, dtype) = &loop<T, Pow>;
  t.at(BinaryOp::Maximum, dtype) = &loop<T, Maximum>;
  t.at(BinaryOp::Minimum, dtype) = &loop<T, Minimum>;
  t.at(BinaryOp::Fmax, dtype) = &loop<T, Maximum>;
  t.at(BinaryOp::Fmin, dtype) = &loop<T, Minimum>;
  t.at(BinaryOp::Heaviside, dtype) = &loop<T, Heaviside>;
  t.at(BinaryOp::BitwiseAnd, dtype) = &loop<T, BitwiseAnd>;
  t.at(BinaryOp::BitwiseOr, dtype) = &loop<T, BitwiseOr>;
  t.at(BinaryOp::BitwiseXor, dtype) = &loop<T, BitwiseXor>;
  t.at(BinaryOp::LeftShift, dtype) = &loop<T, LeftShift>;
  t.at(BinaryOp::RightShift, dtype) = &loop<T, RightShift>;
  t.at(BinaryOp::Gcd, dtype) = &loop<T, Gcd>;
  t.at(BinaryOp::Lcm, dtype) = &loop<T, Lcm>;
}

void binary_integer(PointwiseTables& t) {
  for_each_integer([&](auto tag, DType dtype) { add_all<typename decltype(tag)::type>(t, dtype); });
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
