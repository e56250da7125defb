#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/pointwise_binary_backward.cpp"
#include "athanor/device/cpu/simd_targets.h"

#include "hwy/foreach_target.h"

#include "athanor/device/cpu/pointwise_loops.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {

// a is the gradient g of the result; b is the input x of the forward operation, or its result y.

ATHANOR_VECTOR_OP_2(LeakyReluBackward, hn::IfThenElse(hn::Gt(b, hn::Zero(d)), a, hn::Mul(a, hn::Set(d, p.p0))));
ATHANOR_VECTOR_OP_2(ShrinkBackward, hn::IfThenElse(hn::Le(hn::Abs(b), hn::Set(d, p.p0)), hn::Zero(d), a));
ATHANOR_VECTOR_OP_2(GeluBackward, hn::Mul(a, vec_gelu_slope(d, b)));
ATHANOR_VECTOR_OP_2(SigmoidBackward, hn::Mul(a, hn::Mul(b, hn::Sub(hn::Set(d, T{1}), b))));
ATHANOR_VECTOR_OP_2(TanhBackward, hn::Mul(a, hn::NegMulAdd(b, b, hn::Set(d, T{1}))));
ATHANOR_VECTOR_OP_2(SqrtBackward, hn::Div(a, hn::Add(b, b)));
ATHANOR_VECTOR_OP_2(RsqrtBackward, hn::Mul(hn::Mul(a, hn::Set(d, static_cast<T>(-0.5))), hn::Mul(b, hn::Mul(b, b))));
ATHANOR_VECTOR_OP_2(ReciprocalBackward, hn::Neg(hn::Mul(a, hn::Mul(b, b))));
ATHANOR_VECTOR_OP_2(LogSigmoidBackward, hn::Mul(a, vec_sigmoid(d, hn::Neg(b))));
ATHANOR_VECTOR_OP_2(SigmoidGate, hn::Mul(a, vec_sigmoid(d, b)));

/// g inside (p0, p1), 0 at and beyond the ends; NaN inputs pass g.
struct HardtanhBackward {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V g, V x, const P& p) {
    const auto outside = hn::Or(hn::Le(x, hn::Set(d, p.p0)), hn::Ge(x, hn::Set(d, p.p1)));
    return hn::IfThenElse(outside, hn::Zero(d), g);
  }
};

struct EluBackward {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V g, V x, const P& p) {
    const V slope = hn::Mul(hn::Set(d, p.p0), vec_exp_nonpositive(d, hn::Min(hn::Zero(d), x)));
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), g, hn::Mul(g, slope));
  }
};

struct SeluBackward {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V g, V x, const P&) {
    using T = hn::TFromD<D>;
    const V below = hn::Mul(hn::Set(d, static_cast<T>(1.6732632423543772848 * 1.0507009873554804934)),
                            vec_exp_nonpositive(d, hn::Min(hn::Zero(d), x)));
    const V above = hn::Set(d, static_cast<T>(1.0507009873554804934));
    return hn::Mul(g, hn::IfThenElse(hn::Gt(x, hn::Zero(d)), above, below));
  }
};

struct CeluBackward {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V g, V x, const P& p) {
    const V slope = vec_exp(d, hn::Div(hn::Min(hn::Zero(d), x), hn::Set(d, p.p0)));
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), g, hn::Mul(g, slope));
  }
};

/// s (1 + x (1 - s)) with s = sigmoid(x).
struct SiluBackward {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V g, V x, const P&) {
    const V s = vec_sigmoid(d, x), one = hn::Set(d, hn::TFromD<D>{1});
    return hn::Mul(g, hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one)));
  }
};

/// With z = 2 u and s = sigmoid(z): s + x s (1 - s) z', as gelu = x s.
struct GeluTanhBackward {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V g, V x, const P&) {
    using T = hn::TFromD<D>;
    const V one = hn::Set(d, T{1}), scale = hn::Set(d, static_cast<T>(1.5957691216057307118));
    const V squared = hn::Mul(x, x);
    const V z = hn::Mul(hn::Mul(x, scale), hn::MulAdd(squared, hn::Set(d, static_cast<T>(0.044715)), one));
    const V slope = hn::Mul(scale, hn::MulAdd(squared, hn::Set(d, static_cast<T>(3 * 0.044715)), one));
    const V s = vec_sigmoid(d, z);
    // s (1 - s) is 0 where x slope may overflow.
    const V bell = hn::Mul(s, hn::Sub(one, s));
    const V bend = hn::IfThenElse(hn::Eq(bell, hn::Zero(d)), bell, hn::Mul(hn::Mul(x, slope), bell));
    return hn::Mul(g, hn::Add(s, bend));
  }
};

/// t + x (1 - t^2) sigmoid(x) with t = tanh(softplus(x)) = n / (n + 2), n = e^x (e^x + 2).
struct MishBackward {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V g, V x, const P&) {
    using T = hn::TFromD<D>;
    const V two = hn::Set(d, T{2}), one = hn::Set(d, T{1});
    const V e = vec_exp(d, hn::Min(hn::Set(d, T{25}), x));
    const V n = hn::Mul(e, hn::Add(e, two)), rest = hn::Add(n, two);
    const V t = hn::Div(n, rest);
    // 1 - t^2 = 4 (n + 1) / (n + 2)^2
    const V bend = hn::Div(hn::Mul(hn::Set(d, T{4}), hn::Add(n, one)), hn::Mul(rest, rest));
    const V s = hn::Div(e, hn::Add(e, one));
    return hn::Mul(g, hn::MulAdd(hn::Mul(x, bend), s, t));
  }
};

struct SoftplusBackward {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V g, V x, const P& p) {
    const V z = hn::Mul(x, hn::Set(d, p.p0));
    return hn::IfThenElse(hn::Gt(z, hn::Set(d, p.p1)), g, hn::Mul(g, vec_sigmoid(d, z)));
  }
};

struct HardsigmoidBackward {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V g, V x, const P&) {
    using T = hn::TFromD<D>;
    return hn::IfThenElseZero(hn::Lt(hn::Abs(x), hn::Set(d, T{3})), hn::Mul(g, hn::Set(d, static_cast<T>(1.0 / 6.0))));
  }
};

struct HardswishBackward {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V g, V x, const P&) {
    using T = hn::TFromD<D>;
    const V three = hn::Set(d, T{3});
    const V slope = hn::MulAdd(x, hn::Set(d, static_cast<T>(1.0 / 3.0)), hn::Set(d, static_cast<T>(0.5)));
    const V middle = hn::IfThenElse(hn::Lt(x, three), hn::Mul(g, slope), g);
    return hn::IfThenElse(hn::Le(x, hn::Neg(three)), hn::Zero(d), middle);
  }
};

struct SoftsignBackward {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V g, V x, const P&) {
    const V below = hn::Add(hn::Set(d, hn::TFromD<D>{1}), hn::Abs(x));
    return hn::Div(g, hn::Mul(below, below));
  }
};

/// g / (x (1 - x)); outside [p0, 1 - p0] 0, or NaN outside [0, 1] if p0 < 0.
struct LogitBackward {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V g, V x, const P& p) {
    using T = hn::TFromD<D>;
    const bool clamps = p.p0 >= 0;
    const T low = clamps ? p.p0 : T{0};
    const auto outside = hn::Or(hn::Lt(x, hn::Set(d, low)), hn::Gt(x, hn::Set(d, T{1} - low)));
    const V beyond = hn::Set(d, clamps ? T{0} : std::numeric_limits<T>::quiet_NaN());
    return hn::IfThenElse(outside, beyond, hn::Div(g, hn::Mul(x, hn::Sub(hn::Set(d, T{1}), x))));
  }
};

template <class T>
void add_all(PointwiseTables& t, DType dtype) {
  t.at(BinaryOp::HardtanhBackward, dtype) = &binary_vectors<T, HardtanhBackward>;
  t.at(BinaryOp::LeakyReluBackward, dtype) = &binary_vectors<T, LeakyReluBackward>;
  t.at(BinaryOp::EluBackward, dtype) = &binary_vectors<T, EluBackward>;
  t.at(BinaryOp::SeluBackward, dtype) = &binary_vectors<T, SeluBackward>;
  t.at(BinaryOp::CeluBackward, dtype) = &binary_vectors<T, CeluBackward>;
  t.at(BinaryOp::GeluBackward, dtype) = &binary_vectors<T, GeluBackward>;
  t.at(BinaryOp::GeluTanhBackward, dtype) = &binary_vectors<T, GeluTanhBackward>;
  t.at(BinaryOp::SiluBackward, dtype) = &binary_vectors<T, SiluBackward>;
  t.at(BinaryOp::MishBackward, dtype) = &binary_vectors<T, MishBackward>;
  t.at(BinaryOp::SoftplusBackward, dtype) = &binary_vectors<T, SoftplusBackward>;
  t.at(BinaryOp::LogSigmoidBackward, dtype) = &binary_vectors<T, LogSigmoidBackward>;
  t.at(BinaryOp::SigmoidGate, dtype) = &binary_vectors<T, SigmoidGate>;
  t.at(BinaryOp::HardsigmoidBackward, dtype) = &binary_vectors<T, HardsigmoidBackward>;
  t.at(BinaryOp::HardswishBackward, dtype) = &binary_vectors<T, HardswishBackward>;
  t.at(BinaryOp::ShrinkBackward, dtype) = &binary_vectors<T, ShrinkBackward>;
  t.at(BinaryOp::SoftsignBackward, dtype) = &binary_vectors<T, SoftsignBackward>;
  t.at(BinaryOp::LogitBackward, dtype) = &binary_vectors<T, LogitBackward>;
  t.at(BinaryOp::SigmoidBackward, dtype) = &binary_vectors<T, SigmoidBackward>;
  t.at(BinaryOp::TanhBackward, dtype) = &binary_vectors<T, TanhBackward>;
  t.at(BinaryOp::SqrtBackward, dtype) = &binary_vectors<T, SqrtBackward>;
  t.at(BinaryOp::RsqrtBackward, dtype) = &binary_vectors<T, RsqrtBackward>;
  t.at(BinaryOp::ReciprocalBackward, dtype) = &binary_vectors<T, ReciprocalBackward>;
}

void binary_backward(PointwiseTables& t) {
  add_all<float>(t, DType::Float);
  add_all<double>(t, DType::Double);
}

}  // namespace
}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(binary_backward);
void add_binary_backward(PointwiseTables& tables) { HWY_DYNAMIC_DISPATCH(binary_backward)(tables); }
}  // namespace athanor::cpu
#endif
