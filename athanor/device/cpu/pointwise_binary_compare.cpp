#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/pointwise_binary_compare.cpp"
#include "athanor/device/cpu/simd_targets.h"

#include "hwy/foreach_target.h"

#include "athanor/device/cpu/pointwise_loops.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {

#define ATHANOR_COMPARISON(Name, expression) \
  struct Name {                              \
    template <class T>                       \
    static HWY_INLINE bool apply(T a, T b) { \
      return expression;                     \
    }                                        \
  }
ATHANOR_COMPARISON(Eq, a == b);
ATHANOR_COMPARISON(Ne, a != b);
ATHANOR_COMPARISON(Lt, a < b);
ATHANOR_COMPARISON(Le, a <= b);
ATHANOR_COMPARISON(Gt, a > b);
ATHANOR_COMPARISON(Ge, a >= b);
ATHANOR_COMPARISON(LogicalAnd, (a != 0) & (b != 0));
ATHANOR_COMPARISON(LogicalOr, (a != 0) | (b != 0));
ATHANOR_COMPARISON(LogicalXor, (a != 0) ^ (b != 0));
#undef ATHANOR_COMPARISON

template <class T, class Op>
void loop(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void*) {
  map_dense<std::uint8_t, T, T>(ptrs, strides, n, [](T a, T b) { return Op::apply(a, b); });
}

template <class T>
void add_all(PointwiseTables& t, DType dtype) {
  t.at(BinaryOp::Eq, dtype) = &loop<T, Eq>;
  t.at(BinaryOp::Ne, dtype) = &loop<T, Ne>;
  t.at(BinaryOp::Lt, dtype) = &loop<T, Lt>;
  t.at(BinaryOp::Le, dtype) = &loop<T, Le>;
  t.at(BinaryOp::Gt, dtype) = &loop<T, Gt>;
  t.at(BinaryOp::Ge, dtype) = &loop<T, Ge>;
  t.at(BinaryOp::LogicalAnd, dtype) = &loop<T, LogicalAnd>;
  t.at(BinaryOp::LogicalOr, dtype) = &loop<T, LogicalOr>;
  t.at(BinaryOp::LogicalXor, dtype) = &loop<T, LogicalXor>;
}

void binary_compare(PointwiseTables& t) {
  for_each_integer([&](auto tag, DType dtype) { add_all<typename decltype(tag)::type>(t, dtype); });
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
