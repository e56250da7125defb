#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/pointwise_binary_float.cpp"
#include "athanor/device/cpu/simd_targets.h"

#include "hwy/foreach_target.h"

#include "athanor/device/cpu/pointwise_loops.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {

// Plain arithmetic on floating vectors. Min and Max return their second operand if one is NaN.

ATHANOR_VECTOR_OP_2(Add, hn::MulAdd(b, hn::Set(d, p.p0), a));
ATHANOR_VECTOR_OP_2(Sub, hn::NegMulAdd(b, hn::Set(d, p.p0), a));
ATHANOR_VECTOR_OP_2(Mul, hn::Mul(a, b));
ATHANOR_VECTOR_OP_2(Div, hn::Div(a, b));
ATHANOR_VECTOR_OP_2(DivTrunc, hn::Trunc(hn::Div(a, b)));
ATHANOR_VECTOR_OP_2(Maximum, hn::IfThenElse(hn::IsNaN(a), a, hn::Max(a, b)));
ATHANOR_VECTOR_OP_2(Minimum, hn::IfThenElse(hn::IsNaN(a), a, hn::Min(a, b)));
ATHANOR_VECTOR_OP_2(Fmax, hn::IfThenElse(hn::IsNaN(b), a, hn::Max(a, b)));
ATHANOR_VECTOR_OP_2(Fmin, hn::IfThenElse(hn::IsNaN(b), a, hn::Min(a, b)));
ATHANOR_VECTOR_OP_2(Copysign, with_sign(d, a, b));
ATHANOR_VECTOR_OP_2(Prelu, hn::IfThenElse(hn::Gt(a, hn::Zero(d)), a, hn::Mul(a, b)));

// Here and not with the other gradients because it is as cheap as these.
ATHANOR_VECTOR_OP_2(ThresholdBackward, hn::IfThenElse(hn::Le(b, hn::Set(d, p.p0)), hn::Zero(d), a));

/// a + p0 (b - a), from the nearer end so that p0 = 1 gives b exactly.
struct Lerp {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V a, V b, const P& p) {
    using T = hn::TFromD<D>;
    const V difference = hn::Sub(b, a);
    if (p.p0 < static_cast<T>(0.5)) return hn::MulAdd(hn::Set(d, p.p0), difference, a);
    return hn::NegMulAdd(hn::Set(d, T{1} - p.p0), difference, b);
  }
};

struct SquaredDistance {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D, V a, V b, const P&) {
    const V difference = hn::Sub(a, b);
    return hn::Mul(difference, difference);
  }
};

/// d (d / p0) / 2 up to d = |a - b| = p0, a straight line from there on.
struct SmoothL1 {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V a, V b, const P& p) {
    using T = hn::TFromD<D>;
    const V far = hn::Abs(hn::Sub(a, b));
    const V bent = hn::Min(hn::Set(d, T{1}), hn::Mul(far, hn::Set(d, T{1} / p.p0)));
    return hn::Mul(bent, hn::NegMulAdd(bent, hn::Set(d, p.p0 / 2), far));
  }
};

struct Huber {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V a, V b, const P& p) {
    const V far = hn::Abs(hn::Sub(a, b)), bent = hn::Min(hn::Set(d, p.p0), far);
    return hn::Mul(bent, hn::NegMulAdd(bent, hn::Set(d, static_cast<hn::TFromD<D>>(0.5)), far));
  }
};

/// 0 for a < 0 and NaN, b for a = 0, else 1.
struct Heaviside {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V a, V b, const P&) {
    const V step = hn::IfThenElseZero(hn::Gt(a, hn::Zero(d)), hn::Set(d, hn::TFromD<D>{1}));
    return hn::IfThenElse(hn::Eq(a, hn::Zero(d)), b, step);
  }
};

/// The exact remainder of a / b with a's sign.
struct Fmod {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V a, V b, const P&) {
    using T = hn::TFromD<D>;
#if HWY_NATIVE_FMA
    // One step is exact while the quotient is an exact integer; it may be one too large.
    const V q = hn::Trunc(hn::Div(a, b));
    constexpr T kExact = static_cast<T>(std::int64_t{1} << (std::numeric_limits<T>::digits - 2));
    const auto usual =
        hn::And(hn::Lt(hn::Abs(q), hn::Set(d, kExact)), hn::Lt(hn::Abs(b), hn::Set(d, std::numeric_limits<T>::max())));
    if (HWY_LIKELY(hn::AllTrue(d, usual))) {
      V r = hn::NegMulAdd(q, b, a);
      const auto overshot = hn::Lt(hn::Mul(with_sign(d, hn::Set(d, T{1}), a), r), hn::Zero(d));
      r = hn::Add(r, hn::IfThenElseZero(overshot, with_sign(d, b, a)));
      return with_sign(d, r, a);
    }
#endif
    return map_lanes(d, a, b, [](T x, T y) { return std::fmod(x, y); });
  }
};

/// The remainder with b's sign.
struct Remainder {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V a, V b, const P& p) {
    const V r = Fmod::apply(d, a, b, p);
    const auto zero = hn::Zero(d);
    const auto differs = hn::Xor(hn::Lt(r, zero), hn::Lt(b, zero));
    return hn::Add(r, hn::IfThenElseZero(hn::And(hn::Ne(r, zero), differs), b));
  }
};

/// floor(a / b) without the error of the division: from the exact remainder, as Python does.
struct DivFloor {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V a, V b, const P& p) {
    using T = hn::TFromD<D>;
    const V zero = hn::Zero(d), one = hn::Set(d, T{1}), quotient = hn::Div(a, b);
    const V r = Fmod::apply(d, a, b, p);
    const auto differs = hn::And(hn::Ne(r, zero), hn::Xor(hn::Lt(r, zero), hn::Lt(b, zero)));
    const V whole = hn::Sub(hn::Div(hn::Sub(a, r), b), hn::IfThenElseZero(differs, one));
    V floor = hn::Floor(whole);
    floor = hn::Add(floor, hn::IfThenElseZero(hn::Gt(hn::Sub(whole, floor), hn::Set(d, static_cast<T>(0.5))), one));
    floor = hn::IfThenElse(hn::Eq(whole, zero), with_sign(d, zero, quotient), floor);
    return hn::IfThenElse(hn::Eq(b, zero), quotient, floor);
  }
};

template <class T>
void add_cheap(PointwiseTables& t, DType dtype) {
  t.at(BinaryOp::Add, dtype) = &binary_vectors<T, InPairs<Add>>;
  t.at(BinaryOp::Sub, dtype) = &binary_vectors<T, InPairs<Sub>>;
  t.at(BinaryOp::Mul, dtype) = &binary_vectors<T, InPairs<Mul>>;
  t.at(BinaryOp::Div, dtype) = &binary_vectors<T, InPairs<Div>>;
  t.at(BinaryOp::Maximum, dtype) = &binary_vectors<T, Maximum>;
  t.at(BinaryOp::Minimum, dtype) = &binary_vectors<T, Minimum>;
  t.at(BinaryOp::Lerp, dtype) = &binary_vectors<T, Lerp>;
  t.at(BinaryOp::ThresholdBackward, dtype) = &binary_vectors<T, InPairs<ThresholdBackward>>;
}

template <class T>
void add_rows(PointwiseTables& t, DType dtype) {
  const auto row = [&](BinaryOp op) -> LoopFn& { return t.rows[static_cast<int>(op)][static_cast<int>(dtype)]; };
  row(BinaryOp::Add) = &binary_rows<T, InPairs<Add>>;
  row(BinaryOp::Sub) = &binary_rows<T, InPairs<Sub>>;
  row(BinaryOp::Mul) = &binary_rows<T, InPairs<Mul>>;
  row(BinaryOp::Div) = &binary_rows<T, InPairs<Div>>;
}

template <class T>
void add_all(PointwiseTables& t, DType dtype) {
  add_cheap<T>(t, dtype);
  t.at(BinaryOp::DivFloor, dtype) = &binary_vectors<T, DivFloor>;
  t.at(BinaryOp::DivTrunc, dtype) = &binary_vectors<T, DivTrunc>;
  t.at(BinaryOp::Remainder, dtype) = &binary_vectors<T, Remainder>;
  t.at(BinaryOp::Fmod, dtype) = &binary_vectors<T, Fmod>;
  t.at(BinaryOp::Fmax, dtype) = &binary_vectors<T, Fmax>;
  t.at(BinaryOp::Fmin, dtype) = &binary_vectors<T, Fmin>;
  t.at(BinaryOp::Copysign, dtype) = &binary_vectors<T, Copysign>;
  t.at(BinaryOp::Prelu, dtype) = &binary_vectors<T, Prelu>;
  t.at(BinaryOp::Heaviside, dtype) = &binary_vectors<T, Heaviside>;
  t.at(BinaryOp::SquaredDistance, dtype) = &binary_vectors<T, SquaredDistance>;
  t.at(BinaryOp::SmoothL1, dtype) = &binary_vectors<T, SmoothL1>;
  t.at(BinaryOp::Huber, dtype) = &binary_vectors<T, Huber>;
}

void binary_float(PointwiseTables& t) {
  add_all<float>(t, DType::Float);
  add_all<double>(t, DType::Double);
  add_rows<float>(t, DType::Float);
  add_rows<double>(t, DType::Double);
  add_cheap<BFloat16>(t, DType::BFloat16);
#if HWY_TARGET != HWY_SSE4  // where Highway's conversion knows no infinities
  add_cheap<Half>(t, DType::Half);
#endif
}

}  // namespace
}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(binary_float);
void add_binary_float(PointwiseTables& tables) { HWY_DYNAMIC_DISPATCH(binary_float)(tables); }
}  // namespace athanor::cpu
#endif
