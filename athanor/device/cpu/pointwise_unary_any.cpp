#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/pointwise_unary_any.cpp"
#include "athanor/device/cpu/simd_targets.h"

#include "hwy/foreach_target.h"

#include "athanor/device/cpu/pointwise_loops.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {

// On floating vectors. Min and Max return their second operand if one is NaN: x stands second where NaN must pass.

ATHANOR_VECTOR_OP(VectorAbs, hn::Abs(x));
ATHANOR_VECTOR_OP(VectorNeg, hn::Neg(x));
ATHANOR_VECTOR_OP(VectorSquare, hn::Mul(x, x));
ATHANOR_VECTOR_OP(VectorCeil, hn::Ceil(x));
ATHANOR_VECTOR_OP(VectorFloor, hn::Floor(x));
ATHANOR_VECTOR_OP(VectorRound, hn::Round(x));
ATHANOR_VECTOR_OP(VectorTrunc, hn::Trunc(x));
ATHANOR_VECTOR_OP(VectorRelu, hn::Max(hn::Zero(d), x));
ATHANOR_VECTOR_OP(VectorRelu6, hn::Min(hn::Set(d, T{6}), hn::Max(hn::Zero(d), x)));
ATHANOR_VECTOR_OP(VectorClamp, hn::Min(hn::Set(d, p.p1), hn::Max(hn::Set(d, p.p0), x)));
ATHANOR_VECTOR_OP(VectorClampMin, hn::Max(hn::Set(d, p.p0), x));
ATHANOR_VECTOR_OP(VectorClampMax, hn::Min(hn::Set(d, p.p0), x));
ATHANOR_VECTOR_OP(VectorThreshold, hn::IfThenElse(hn::Le(x, hn::Set(d, p.p0)), hn::Set(d, p.p1), x));
ATHANOR_VECTOR_OP(VectorSign, hn::Sub(hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, T{1})),
                                      hn::IfThenElseZero(hn::Lt(x, hn::Zero(d)), hn::Set(d, T{1}))));
ATHANOR_VECTOR_OP(
    VectorNanToNum,
    hn::IfThenElse(hn::IsNaN(x), hn::Set(d, p.p0),
                   hn::IfThenElse(hn::Eq(x, hn::Set(d, std::numeric_limits<T>::infinity())), hn::Set(d, p.p1),
                                  hn::IfThenElse(hn::Eq(x, hn::Set(d, -std::numeric_limits<T>::infinity())),
                                                 hn::Set(d, p.p2), x))));

template <class T>
void add_cheap(PointwiseTables& t, DType dtype) {
  t.at(UnaryOp::Abs, dtype) = &unary_vectors<T, VectorAbs>;
  t.at(UnaryOp::Neg, dtype) = &unary_vectors<T, VectorNeg>;
  t.at(UnaryOp::Square, dtype) = &unary_vectors<T, VectorSquare>;
  t.at(UnaryOp::Relu, dtype) = &unary_vectors<T, InPairs<VectorRelu>>;
  t.at(UnaryOp::ClampMin, dtype) = &unary_vectors<T, VectorClampMin>;
}

template <class T>
void add_float(PointwiseTables& t, DType dtype) {
  add_cheap<T>(t, dtype);
  t.at(UnaryOp::Sign, dtype) = &unary_vectors<T, VectorSign>;
  t.at(UnaryOp::Sgn, dtype) = &unary_vectors<T, VectorSign>;
  t.at(UnaryOp::Ceil, dtype) = &unary_vectors<T, VectorCeil>;
  t.at(UnaryOp::Floor, dtype) = &unary_vectors<T, VectorFloor>;
  t.at(UnaryOp::Round, dtype) = &unary_vectors<T, VectorRound>;
  t.at(UnaryOp::Trunc, dtype) = &unary_vectors<T, VectorTrunc>;
  t.at(UnaryOp::Relu6, dtype) = &unary_vectors<T, VectorRelu6>;
  t.at(UnaryOp::Hardtanh, dtype) = &unary_vectors<T, VectorClamp>;
  t.at(UnaryOp::Clamp, dtype) = &unary_vectors<T, VectorClamp>;
  t.at(UnaryOp::ClampMax, dtype) = &unary_vectors<T, VectorClampMax>;
  t.at(UnaryOp::Threshold, dtype) = &unary_vectors<T, VectorThreshold>;
  t.nan_to_num[static_cast<int>(dtype)] = &unary_vectors<T, VectorNanToNum>;
}

// On integers; arithmetic is done unsigned, so that it wraps.

#define ATHANOR_INTEGER_OP(Name, expression)  \
  struct Name {                               \
    template <class T>                        \
    static HWY_INLINE T apply(T x) {          \
      using U [[maybe_unused]] = Unsigned<T>; \
      return static_cast<T>(expression);      \
    }                                         \
  }
ATHANOR_INTEGER_OP(IntegerAbs, x < 0 ? U{0} - static_cast<U>(x) : static_cast<U>(x));
ATHANOR_INTEGER_OP(IntegerNeg, U{0} - static_cast<U>(x));
ATHANOR_INTEGER_OP(IntegerSign, (x > 0) - (x < 0));
ATHANOR_INTEGER_OP(IntegerSquare, static_cast<U>(x) * static_cast<U>(x));
ATHANOR_INTEGER_OP(IntegerNot, ~x);
#undef ATHANOR_INTEGER_OP

template <class T, class Op>
void integer_loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void*) {
  map_dense<T, T>(ptrs, strides, n, [](T x) { return Op::apply(x); });
}

/// The integers that rounding leaves as they are.
void keep_loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void*) {
  if (ptrs[0] != ptrs[1]) std::memcpy(ptrs[0], ptrs[1], static_cast<std::size_t>(n * strides[1]));
}

template <class T>
HWY_NOINLINE void limit(char* const* ptrs, const std::int64_t* strides, std::int64_t n, T low, T high) {
  map_dense<T, T>(ptrs, strides, n, [low, high](T x) { return std::min(std::max(x, low), high); });
}
/// The limits of an operation: its own, or those among its parameters.
enum class Limit { Relu, Relu6, Both, Below, Above };
template <class T, Limit kKind>
void limit_loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void* params) {
  const Parameters<T> p(params);
  using L = std::numeric_limits<T>;
  switch (kKind) {
    case Limit::Relu:
      return limit<T>(ptrs, strides, n, 0, L::max());
    case Limit::Relu6:
      return limit<T>(ptrs, strides, n, 0, 6);
    case Limit::Both:
      return limit<T>(ptrs, strides, n, p.saturated(0), p.saturated(1));
    case Limit::Below:
      return limit<T>(ptrs, strides, n, p.saturated(0), L::max());
    case Limit::Above:
      return limit<T>(ptrs, strides, n, L::min(), p.saturated(0));
  }
}

template <class T>
void threshold_loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void* params) {
  const Parameters<T> p(params);
  map_dense<T, T>(ptrs, strides, n, [limit = p.saturated(0), other = p.p1](T x) { return x > limit ? x : other; });
}

/// `B`: the unsigned type with T's bits, for what does not depend on the sign.
template <class T, class B = std::make_unsigned_t<T>>
void add_integer(PointwiseTables& t, DType dtype) {
  for (UnaryOp op : {UnaryOp::Ceil, UnaryOp::Floor, UnaryOp::Round, UnaryOp::Trunc}) t.at(op, dtype) = &keep_loop;
  t.at(UnaryOp::Abs, dtype) = std::is_signed_v<T> ? &integer_loop<std::make_signed_t<T>, IntegerAbs> : &keep_loop;
  t.at(UnaryOp::Neg, dtype) = &integer_loop<B, IntegerNeg>;
  t.at(UnaryOp::Sign, dtype) = &integer_loop<T, IntegerSign>;
  t.at(UnaryOp::Sgn, dtype) = &integer_loop<T, IntegerSign>;
  t.at(UnaryOp::Square, dtype) = &integer_loop<B, IntegerSquare>;
  t.at(UnaryOp::Relu, dtype) = &limit_loop<T, Limit::Relu>;
  t.at(UnaryOp::Relu6, dtype) = &limit_loop<T, Limit::Relu6>;
  t.at(UnaryOp::Clamp, dtype) = &limit_loop<T, Limit::Both>;
  t.at(UnaryOp::Hardtanh, dtype) = &limit_loop<T, Limit::Both>;
  t.at(UnaryOp::ClampMin, dtype) = &limit_loop<T, Limit::Below>;
  t.at(UnaryOp::ClampMax, dtype) = &limit_loop<T, Limit::Above>;
  t.at(UnaryOp::Threshold, dtype) = &threshold_loop<T>;
  t.at(UnaryOp::BitwiseNot, dtype) = &integer_loop<B, IntegerNot>;
  t.nan_to_num[static_cast<int>(dtype)] = &keep_loop;
}

// Questions about a value of any type.

#define ATHANOR_TEST_OP(Name, expression)                                     \
  struct Name {                                                               \
    template <class T>                                                        \
    static HWY_INLINE bool apply(T x) {                                       \
      constexpr T kInf [[maybe_unused]] = std::numeric_limits<T>::infinity(); \
      return expression;                                                      \
    }                                                                         \
  }
ATHANOR_TEST_OP(TestIsNan, x != x);
ATHANOR_TEST_OP(TestIsInf, (x == kInf) | (x == -kInf));
ATHANOR_TEST_OP(TestIsFinite, x - x == 0);
ATHANOR_TEST_OP(TestIsPosInf, x == kInf);
ATHANOR_TEST_OP(TestIsNegInf, x == -kInf);
ATHANOR_TEST_OP(TestIsZero, x == 0);
ATHANOR_TEST_OP(TestIsNegative, x < 0);
#undef ATHANOR_TEST_OP

template <class T, class Op>
void test_loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void*) {
  map_dense<std::uint8_t, T>(ptrs, strides, n, [](T x) { return Op::apply(x); });
}

template <bool kAnswer>
void constant_loop(char* const* ptrs, const std::int64_t*, std::int64_t n, const void*) {
  std::memset(ptrs[0], kAnswer, static_cast<std::size_t>(n));
}

template <class T>
void add_float_tests(PointwiseTables& t, DType dtype) {
  t.at(UnaryOp::IsNan, dtype) = &test_loop<T, TestIsNan>;
  t.at(UnaryOp::IsInf, dtype) = &test_loop<T, TestIsInf>;
  t.at(UnaryOp::IsFinite, dtype) = &test_loop<T, TestIsFinite>;
  t.at(UnaryOp::IsPosInf, dtype) = &test_loop<T, TestIsPosInf>;
  t.at(UnaryOp::IsNegInf, dtype) = &test_loop<T, TestIsNegInf>;
  t.at(UnaryOp::LogicalNot, dtype) = &test_loop<T, TestIsZero>;
  // The sign of the bits, which tells -0 from 0.
  using Bits = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  t.at(UnaryOp::Signbit, dtype) = &test_loop<Bits, TestIsNegative>;
}

template <class T>
void add_integer_tests(PointwiseTables& t, DType dtype) {
  for (UnaryOp op : {UnaryOp::IsNan, UnaryOp::IsInf, UnaryOp::IsPosInf, UnaryOp::IsNegInf})
    t.at(op, dtype) = &constant_loop<false>;
  t.at(UnaryOp::IsFinite, dtype) = &constant_loop<true>;
  t.at(UnaryOp::LogicalNot, dtype) = &test_loop<std::make_unsigned_t<T>, TestIsZero>;
  if constexpr (std::is_signed_v<T>)
    t.at(UnaryOp::Signbit, dtype) = &test_loop<T, TestIsNegative>;
  else
    t.at(UnaryOp::Signbit, dtype) = &constant_loop<false>;
}

void unary_any(PointwiseTables& t) {
  add_float<float>(t, DType::Float);
  add_float<double>(t, DType::Double);
  add_cheap<BFloat16>(t, DType::BFloat16);
#if HWY_TARGET != HWY_SSE4  // where Highway's conversion knows no infinities
  add_cheap<Half>(t, DType::Half);
#endif
  add_float_tests<float>(t, DType::Float);
  add_float_tests<double>(t, DType::Double);
  for_each_integer([&](auto tag, DType dtype) {
    using T = typename decltype(tag)::type;
    add_integer<T>(t, dtype);
    add_integer_tests<T>(t, dtype);
  });
  // A bool is a byte 0 or 1.
  add_integer_tests<std::uint8_t>(t, DType::Bool);
  t.at(UnaryOp::BitwiseNot, DType::Bool) = t.at(UnaryOp::LogicalNot, DType::Bool);
  t.at(UnaryOp::Sign, DType::Bool) = t.at(UnaryOp::Floor, DType::Byte);
  t.at(UnaryOp::Sgn, DType::Bool) = t.at(UnaryOp::Floor, DType::Byte);
  t.nan_to_num[static_cast<int>(DType::Bool)] = t.at(UnaryOp::Floor, DType::Byte);
}

}  // namespace
}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(unary_any);
void add_unary_any(PointwiseTables& tables) { HWY_DYNAMIC_DISPATCH(unary_any)(tables); }
}  // namespace athanor::cpu
#endif
