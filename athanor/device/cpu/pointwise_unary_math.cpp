#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/pointwise_unary_math.cpp"
#include "athanor/device/cpu/simd_targets.h"

#include "hwy/foreach_target.h"

#include "athanor/device/cpu/pointwise_loops.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace {

#define ATHANOR_CALL(Name, function) ATHANOR_VECTOR_OP(Name, function(d, x))
ATHANOR_CALL(Exp, vec_exp);
ATHANOR_CALL(Exp2, library_exp2);
ATHANOR_CALL(Expm1, library_expm1);
ATHANOR_CALL(Log, vec_log);
ATHANOR_CALL(Log2, vec_log2);
ATHANOR_CALL(Log10, vec_log10);
ATHANOR_CALL(Log1p, vec_log1p);
ATHANOR_CALL(Sin, library_sin);
ATHANOR_CALL(Cos, library_cos);
ATHANOR_CALL(Tan, library_tan);
ATHANOR_CALL(Asin, library_asin);
ATHANOR_CALL(Acos, library_acos);
ATHANOR_CALL(Atan, library_atan);
ATHANOR_CALL(Sinh, library_sinh);
ATHANOR_CALL(Cosh, library_cosh);
ATHANOR_CALL(Tanh, vec_tanh);
ATHANOR_CALL(Asinh, library_asinh);
ATHANOR_CALL(Acosh, library_acosh);
ATHANOR_CALL(Atanh, library_atanh);
ATHANOR_CALL(Erf, vec_erf);
ATHANOR_CALL(Erfc, library_erfc);
#undef ATHANOR_CALL
ATHANOR_VECTOR_OP(Frac, hn::Sub(x, hn::Trunc(x)));
ATHANOR_VECTOR_OP(Sqrt, hn::Sqrt(x));
ATHANOR_VECTOR_OP(Rsqrt, hn::Div(hn::Set(d, T{1}), hn::Sqrt(x)));
ATHANOR_VECTOR_OP(Reciprocal, hn::Div(hn::Set(d, T{1}), x));
ATHANOR_VECTOR_OP(Deg2Rad, hn::Mul(x, hn::Set(d, static_cast<T>(0.017453292519943295769))));
ATHANOR_VECTOR_OP(Rad2Deg, hn::Mul(x, hn::Set(d, static_cast<T>(57.295779513082320877))));
ATHANOR_VECTOR_OP(Tanhshrink, hn::Sub(x, vec_tanh(d, x)));

/// Other simple powers have become another operation before this is called.
struct PowScalar {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V x, const P& p) {
    if (p.p0 == 3) return hn::Mul(x, hn::Mul(x, x));
    if (p.p0 == -2) return hn::Div(hn::Set(d, hn::TFromD<D>{1}), hn::Mul(x, x));
    return vec_pow(d, x, hn::Set(d, p.p0));
  }
};

struct Sinc {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V x, const P&) {
    const V angle = hn::Mul(x, hn::Set(d, static_cast<hn::TFromD<D>>(3.14159265358979323846)));
    const V one = hn::Set(d, hn::TFromD<D>{1});
    return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), one, hn::Div(library_sin(d, angle), angle));
  }
};

/// log(x / (1 - x)), x first brought into [eps, 1 - eps] if eps >= 0.
struct Logit {
  template <class D, class V, class P>
  static HWY_INLINE V apply(D d, V x, const P& p) {
    using T = hn::TFromD<D>;
    const V one = hn::Set(d, T{1});
    if (p.p0 >= 0) x = hn::Min(hn::Sub(one, hn::Set(d, p.p0)), hn::Max(hn::Set(d, p.p0), x));
    return vec_log(d, hn::Div(x, hn::Sub(one, x)));
  }
};

template <class T>
void add_exponentials(PointwiseTables& t, DType dtype) {
  t.at(UnaryOp::Exp, dtype) = &unary_vectors<T, Exp>;
  t.at(UnaryOp::Exp2, dtype) = &unary_vectors<T, Exp2>;
  t.at(UnaryOp::Expm1, dtype) = &unary_vectors<T, Expm1>;
  t.at(UnaryOp::Log, dtype) = &unary_vectors<T, Log>;
  t.at(UnaryOp::Log2, dtype) = &unary_vectors<T, Log2>;
  t.at(UnaryOp::Log10, dtype) = &unary_vectors<T, Log10>;
  t.at(UnaryOp::Log1p, dtype) = &unary_vectors<T, Log1p>;
  t.at(UnaryOp::Erf, dtype) = &unary_vectors<T, Erf>;
  t.at(UnaryOp::Erfc, dtype) = &unary_vectors<T, Erfc>;
  t.at(UnaryOp::Logit, dtype) = &unary_vectors<T, Logit>;
  t.at(UnaryOp::PowScalar, dtype) = &unary_vectors<T, PowScalar>;
}

template <class T>
void add_trigonometry(PointwiseTables& t, DType dtype) {
  t.at(UnaryOp::Sin, dtype) = &unary_vectors<T, Sin>;
  t.at(UnaryOp::Cos, dtype) = &unary_vectors<T, Cos>;
  t.at(UnaryOp::Tan, dtype) = &unary_vectors<T, Tan>;
  t.at(UnaryOp::Asin, dtype) = &unary_vectors<T, Asin>;
  t.at(UnaryOp::Acos, dtype) = &unary_vectors<T, Acos>;
  t.at(UnaryOp::Atan, dtype) = &unary_vectors<T, Atan>;
  t.at(UnaryOp::Sinh, dtype) = &unary_vectors<T, Sinh>;
  t.at(UnaryOp::Cosh, dtype) = &unary_vectors<T, Cosh>;
  t.at(UnaryOp::Tanh, dtype) = &unary_vectors<T, InPairs<Tanh>>;
  t.at(UnaryOp::Asinh, dtype) = &unary_vectors<T, Asinh>;
  t.at(UnaryOp::Acosh, dtype) = &unary_vectors<T, Acosh>;
  t.at(UnaryOp::Atanh, dtype) = &unary_vectors<T, Atanh>;
  t.at(UnaryOp::Sinc, dtype) = &unary_vectors<T, Sinc>;
  t.at(UnaryOp::Tanhshrink, dtype) = &unary_vectors<T, Tanhshrink>;
}

template <class T>
void add_algebra(PointwiseTables& t, DType dtype) {
  t.at(UnaryOp::Frac, dtype) = &unary_vectors<T, Frac>;
  t.at(UnaryOp::Sqrt, dtype) = &unary_vectors<T, Sqrt>;
  t.at(UnaryOp::Rsqrt, dtype) = &unary_vectors<T, Rsqrt>;
  t.at(UnaryOp::Reciprocal, dtype) = &unary_vectors<T, Reciprocal>;
  t.at(UnaryOp::Deg2Rad, dtype) = &unary_vectors<T, Deg2Rad>;
  t.at(UnaryOp::Rad2Deg, dtype) = &unary_vectors<T, Rad2Deg>;
}

void unary_math(PointwiseTables& t) {
  add_exponentials<float>(t, DType::Float);
  add_exponentials<double>(t, DType::Double);
  add_trigonometry<float>(t, DType::Float);
  add_trigonometry<double>(t, DType::Double);
  add_algebra<float>(t, DType::Float);
  add_algebra<double>(t, DType::Double);
}

}  // namespace
}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(unary_math);
void add_unary_math(PointwiseTables& tables) { HWY_DYNAMIC_DISPATCH(unary_math)(tables); }
}  // namespace athanor::cpu
#endif
