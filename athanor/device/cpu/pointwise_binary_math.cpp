#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/pointwise_binary_math.cpp"
#include "athanor/device/cpu/simd_targets.h"

#include "hwy/foreach_target.h"

#include "athanor/device/cpu/pointwise_loops.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {

// Functions of two floating vectors.

ATHANOR_VECTOR_OP_2(Pow, vec_pow(d, a, b));
ATHANOR_VECTOR_OP_2(Atan2, library_atan2(d, a, b));
ATHANOR_VECTOR_OP_2(Hypot, library_hypot(d, a, b));
ATHANOR_VECTOR_OP_2(Nextafter, map_lanes(d, a, b, [](T x, T y) { return std::nextafter(x, y); }));

/// a log(b), 0 where a is 0 unless b is NaN.
struct Xlogy {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V a, V b, const P&) {
    const V y = hn::IfThenElse(hn::Eq(a, hn::Zero(d)), hn::Zero(d), hn::Mul(a, vec_log(d, b)));
    return hn::IfThenElse(hn::IsNaN(b), b, y);
  }
};

/// log(e^a + e^b) = max + log(1 + e^-|a - b|); where a = b = ±infinity the difference is NaN and the result is a.
struct LogAddExp {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V a, V b, const P&) {
    const V far = hn::Neg(hn::Abs(hn::Sub(a, b)));
    const V y = hn::Add(hn::Max(a, b), vec_log1p(d, vec_exp_nonpositive(d, far)));
    const auto same = hn::And(hn::Eq(a, b), hn::Eq(hn::Abs(a), hn::Inf(d)));
    return hn::IfThenElse(same, a, y);
  }
};

struct LogAddExp2 {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V a, V b, const P&) {
    using T = hn::TFromD<D>;
    const V far = hn::Neg(hn::Abs(hn::Sub(a, b)));
    const V rest = hn::Mul(vec_log1p(d, library_exp2(d, far)), hn::Set(d, static_cast<T>(1.4426950408889634074)));
    const auto same = hn::And(hn::Eq(a, b), hn::Eq(hn::Abs(a), hn::Inf(d)));
    return hn::IfThenElse(same, a, hn::Add(hn::Max(a, b), rest));
  }
};

template <class T>
void add_all(PointwiseTables& t, DType dtype) {
  t.at(BinaryOp::Pow, dtype) = &binary_vectors<T, Pow>;
  t.at(BinaryOp::Atan2, dtype) = &binary_vectors<T, Atan2>;
  t.at(BinaryOp::Hypot, dtype) = &binary_vectors<T, Hypot>;
  t.at(BinaryOp::Nextafter, dtype) = &binary_vectors<T, Nextafter>;
  t.at(BinaryOp::Xlogy, dtype) = &binary_vectors<T, Xlogy>;
  t.at(BinaryOp::LogAddExp, dtype) = &binary_vectors<T, LogAddExp>;
  t.at(BinaryOp::LogAddExp2, dtype) = &binary_vectors<T, LogAddExp2>;
}

void binary_math(PointwiseTables& t) {
  add_all<float>(t, DType::Float);
  add_all<double>(t, DType::Double);
}

}  // namespace
}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(binary_math);
void add_binary_math(PointwiseTables& tables) { HWY_DYNAMIC_DISPATCH(binary_math)(tables); }
}  // namespace athanor::cpu
#endif
