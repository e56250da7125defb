#pragma once
/// Comparison, remainder and bitwise operators of Tensor; element by element, as libtorch. `a == b` is a bool tensor:
/// use equal(a, b) for one answer. The last part of athanor/ops/tensor.h, which includes it at its end; include that.

namespace athanor {

inline Tensor Tensor::operator~() const { return bitwise_not(); }

#define ATHANOR_ELEMENTWISE_OPERATOR(symbol, name, mirrored)                            \
  inline Tensor operator symbol(const Tensor& a, const Tensor& b) { return a.name(b); } \
  inline Tensor operator symbol(const Tensor& a, const Scalar& b) { return a.name(b); } \
  inline Tensor operator symbol(const Scalar& a, const Tensor& b) { return b.mirrored(a); }
ATHANOR_ELEMENTWISE_OPERATOR(==, eq, eq)
ATHANOR_ELEMENTWISE_OPERATOR(!=, ne, ne)
ATHANOR_ELEMENTWISE_OPERATOR(<, lt, gt)
ATHANOR_ELEMENTWISE_OPERATOR(<=, le, ge)
ATHANOR_ELEMENTWISE_OPERATOR(>, gt, lt)
ATHANOR_ELEMENTWISE_OPERATOR(>=, ge, le)
ATHANOR_ELEMENTWISE_OPERATOR(&, bitwise_and, bitwise_and)
ATHANOR_ELEMENTWISE_OPERATOR(|, bitwise_or, bitwise_or)
ATHANOR_ELEMENTWISE_OPERATOR(^, bitwise_xor, bitwise_xor)
#undef ATHANOR_ELEMENTWISE_OPERATOR

inline Tensor operator%(const Tensor& a, const Tensor& b) { return a.remainder(b); }
inline Tensor operator%(const Tensor& a, const Scalar& b) { return a.remainder(b); }
inline Tensor operator%(const Scalar& a, const Tensor& b) { return remainder(scalar_tensor(a, b.options()), b); }

inline Tensor& operator&=(Tensor& a, const Tensor& b) { return a.bitwise_and_(b); }
inline Tensor& operator&=(Tensor& a, const Scalar& b) { return a.bitwise_and_(b); }
inline Tensor& operator|=(Tensor& a, const Tensor& b) { return a.bitwise_or_(b); }
inline Tensor& operator|=(Tensor& a, const Scalar& b) { return a.bitwise_or_(b); }
inline Tensor& operator^=(Tensor& a, const Tensor& b) { return a.bitwise_xor_(b); }
inline Tensor& operator^=(Tensor& a, const Scalar& b) { return a.bitwise_xor_(b); }

}  // namespace athanor
