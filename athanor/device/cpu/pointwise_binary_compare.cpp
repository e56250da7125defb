#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/pointwise_binary_compare.cpp"
#include "athanor/device/cpu/simd_targets.h"

#include "hwy/foreach_target.h"

#include "athanor/device/cpu/pointwise_loops.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {

// Few loops serve all comparisons: a > b is b < a, and what differs in a constant is one loop that takes the constant.

/// (a == b) != opposite.
template <class T>
HWY_NOINLINE void equality(char* const* ptrs, const std::int64_t* strides, std::int64_t n, bool opposite) {
  map_dense<std::uint8_t, T, T>(ptrs, strides, n, [opposite](T a, T b) { return (a == b) ^ opposite; });
}
template <class T, bool kOpposite>
void equality_loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void*) {
  equality<T>(ptrs, strides, n, kOpposite);
}

template <class T, bool kOrEqual>
HWY_NOINLINE void less(char* const* ptrs, const std::int64_t* strides, std::int64_t n) {
  map_dense<std::uint8_t, T, T>(ptrs, strides, n, [](T a, T b) { return kOrEqual ? a <= b : a < b; });
}
/// `kSwap`: greater instead of less.
template <class T, bool kOrEqual, bool kSwap>
void order_loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void*) {
  char* const operands[] = {ptrs[0], ptrs[kSwap ? 2 : 1], ptrs[kSwap ? 1 : 2]};
  const std::int64_t steps[] = {strides[0], strides[kSwap ? 2 : 1], strides[kSwap ? 1 : 2]};
  less<T, kOrEqual>(operands, steps, n);
}

/// For operands as truth values: `both` is the result where both are true, `one` where one is.
template <class T>
HWY_NOINLINE void logic(char* const* ptrs, const std::int64_t* strides, std::int64_t n, bool both, bool one) {
  map_dense<std::uint8_t, T, T>(ptrs, strides, n, [both, one](T a, T b) {
    const bool x = a != 0, y = b != 0;
    return (x & y & both) | ((x ^ y) & one);
  });
}
template <class T, bool kBoth, bool kOne>
void logic_loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void*) {
  logic<T>(ptrs, strides, n, kBoth, kOne);
}

/// `B`: a type with T's bits for what does not depend on the sign.
template <class T, class B = T>
void add_all(PointwiseTables& t, DType dtype) {
  t.at(BinaryOp::Eq, dtype) = &equality_loop<B, false>;
  t.at(BinaryOp::Ne, dtype) = &equality_loop<B, true>;
  t.at(BinaryOp::Lt, dtype) = &order_loop<T, false, false>;
  t.at(BinaryOp::Le, dtype) = &order_loop<T, true, false>;
  t.at(BinaryOp::Gt, dtype) = &order_loop<T, false, true>;
  t.at(BinaryOp::Ge, dtype) = &order_loop<T, true, true>;
  t.at(BinaryOp::LogicalAnd, dtype) = &logic_loop<B, true, false>;
  t.at(BinaryOp::LogicalOr, dtype) = &logic_loop<B, true, true>;
  t.at(BinaryOp::LogicalXor, dtype) = &logic_loop<B, false, true>;
}

void binary_compare(PointwiseTables& t) {
  for_each_integer([&](auto tag, DType dtype) {
    using T = typename decltype(tag)::type;
    add_all<T, std::make_unsigned_t<T>>(t, dtype);
  });
  add_all<float>(t, DType::Float);
  add_all<double>(t, DType::Double);
  add_all<std::uint8_t>(t, DType::Bool);
}

}  // namespace
}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(binary_compare);
void add_binary_compare(PointwiseTables& tables) { HWY_DYNAMIC_DISPATCH(binary_compare)(tables); }
}  // namespace athanor::cpu
#endif
