#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/pointwise_unary_activations.cpp"
#include "athanor/device/cpu/simd_targets.h"

#include "hwy/foreach_target.h"

#include "athanor/device/cpu/pointwise_loops.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {

// Min and Max return their second operand if one is NaN: x stands second where NaN must pass.

ATHANOR_VECTOR_OP(Sigmoid, vec_sigmoid(d, x));
ATHANOR_VECTOR_OP(Silu, hn::Mul(x, vec_sigmoid(d, x)));
ATHANOR_VECTOR_OP(Gelu, vec_gelu(d, x));
ATHANOR_VECTOR_OP(LeakyRelu, hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, hn::Mul(x, hn::Set(d, p.p0))));
ATHANOR_VECTOR_OP(Softsign, hn::Div(x, hn::Add(hn::Set(d, T{1}), hn::Abs(x))));
ATHANOR_VECTOR_OP(Hardshrink, hn::IfThenElse(hn::Le(hn::Abs(x), hn::Set(d, p.p0)), hn::Zero(d), x));

/// tanh form: x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3).
struct GeluTanh {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V x, const P&) {
    using T = hn::TFromD<D>;
    const V inner = hn::MulAdd(hn::Mul(x, x), hn::Set(d, static_cast<T>(0.044715)), hn::Set(d, T{1}));
    const V twice_u = hn::Mul(hn::Mul(x, hn::Set(d, static_cast<T>(1.5957691216057307118))), inner);
    return hn::Mul(x, vec_sigmoid(d, twice_u));
  }
};

struct Elu {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V x, const P& p) {
    const V below = hn::Mul(hn::Set(d, p.p0), library_expm1(d, hn::Min(hn::Zero(d), x)));
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, below);
  }
};

struct Selu {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V x, const P&) {
    using T = hn::TFromD<D>;
    const V below = hn::Mul(hn::Set(d, static_cast<T>(1.6732632423543772848 * 1.0507009873554804934)),
                            library_expm1(d, hn::Min(hn::Zero(d), x)));
    const V above = hn::Mul(x, hn::Set(d, static_cast<T>(1.0507009873554804934)));
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), above, below);
  }
};

struct Celu {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V x, const P& p) {
    const V alpha = hn::Set(d, p.p0);
    const V below = hn::Mul(alpha, library_expm1(d, hn::Div(hn::Min(hn::Zero(d), x), alpha)));
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), x, below);
  }
};

/// x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2).
struct Mish {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V x, const P&) {
    using T = hn::TFromD<D>;
    const V two = hn::Set(d, T{2});
    const V e = vec_exp(d, hn::Min(hn::Set(d, T{25}), x));
    const V n = hn::Mul(e, hn::Add(e, two));
    return hn::Mul(x, hn::Div(n, hn::Add(n, two)));
  }
};

/// log(1 + e^z) = max(z, 0) + log(1 + e^-|z|)
template <class D, class V>
HWY_INLINE V log_one_plus_exp(D d, V z) {
  return hn::Add(hn::Max(hn::Zero(d), z), vec_log1p(d, vec_exp_nonpositive(d, hn::Neg(hn::Abs(z)))));
}

struct Softplus {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V x, const P& p) {
    const V z = hn::Mul(x, hn::Set(d, p.p0));
    return hn::IfThenElse(hn::Gt(z, hn::Set(d, p.p1)), x, hn::Div(log_one_plus_exp(d, z), hn::Set(d, p.p0)));
  }
};

ATHANOR_VECTOR_OP(LogSigmoid, hn::Neg(log_one_plus_exp(d, hn::Neg(x))));

/// min(max(x + 3, 0), 6) / 6
template <class D, class V>
HWY_INLINE V hard_sigmoid(D d, V x) {
  using T = hn::TFromD<D>;
  const V z = hn::Min(hn::Set(d, T{6}), hn::Max(hn::Zero(d), hn::Add(x, hn::Set(d, T{3}))));
  return hn::Mul(z, hn::Set(d, static_cast<T>(1.0 / 6.0)));
}
ATHANOR_VECTOR_OP(Hardsigmoid, hard_sigmoid(d, x));
ATHANOR_VECTOR_OP(Hardswish, hn::Mul(x, hard_sigmoid(d, x)));

/// x moved towards 0 by p0; NaN stays.
struct Softshrink {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V x, const P& p) {
    const V l = hn::Set(d, p.p0), zero = hn::Zero(d);
    const V inner = hn::IfThenElse(hn::IsNaN(x), x, zero);
    return hn::IfThenElse(hn::Gt(x, l), hn::Sub(x, l), hn::IfThenElse(hn::Lt(x, hn::Neg(l)), hn::Add(x, l), inner));
  }
};

template <class T>
void add_all(PointwiseTables& t, DType dtype) {
  t.at(UnaryOp::Sigmoid, dtype) = &unary_vectors<T, InPairs<Sigmoid>>;
  t.at(UnaryOp::LogSigmoid, dtype) = &unary_vectors<T, LogSigmoid>;
  t.at(UnaryOp::LeakyRelu, dtype) = &unary_vectors<T, LeakyRelu>;
  t.at(UnaryOp::Elu, dtype) = &unary_vectors<T, Elu>;
  t.at(UnaryOp::Selu, dtype) = &unary_vectors<T, Selu>;
  t.at(UnaryOp::Celu, dtype) = &unary_vectors<T, Celu>;
  t.at(UnaryOp::Gelu, dtype) = &unary_vectors<T, InPairs<Gelu>>;
  t.at(UnaryOp::GeluTanh, dtype) = &unary_vectors<T, InPairs<GeluTanh>>;
  t.at(UnaryOp::Silu, dtype) = &unary_vectors<T, InPairs<Silu>>;
  t.at(UnaryOp::Mish, dtype) = &unary_vectors<T, Mish>;
  t.at(UnaryOp::Softplus, dtype) = &unary_vectors<T, Softplus>;
  t.at(UnaryOp::Softsign, dtype) = &unary_vectors<T, Softsign>;
  t.at(UnaryOp::Hardsigmoid, dtype) = &unary_vectors<T, Hardsigmoid>;
  t.at(UnaryOp::Hardswish, dtype) = &unary_vectors<T, Hardswish>;
  t.at(UnaryOp::Hardshrink, dtype) = &unary_vectors<T, Hardshrink>;
  t.at(UnaryOp::Softshrink, dtype) = &unary_vectors<T, Softshrink>;
}

void unary_activations(PointwiseTables& t) {
  add_all<float>(t, DType::Float);
  add_all<double>(t, DType::Double);
}

}  // namespace
}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(unary_activations);
void add_unary_activations(PointwiseTables& tables) { HWY_DYNAMIC_DISPATCH(unary_activations)(tables); }
}  // namespace athanor::cpu
#endif
