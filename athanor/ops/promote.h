#pragma once
/// Type promotion of operands: PyTorch's three categories (dimensioned tensors, 0-d tensors, plain numbers); a lower
/// category only counts when it is of a higher kind (bool < integer < float).

#include "athanor/ops/op.h"

namespace athanor::ops {

/// Gathers operands; `type()` is the dtype they are computed in.
class Promotion {
 public:
  Promotion& add(const Tensor& t) {
    if (!t.defined()) return *this;
    (t.impl()->wrapped_number ? number_
     : t.dim() == 0           ? zero_dim_
                              : dimensioned_) =
        combine(t.impl()->wrapped_number ? number_
                : t.dim() == 0           ? zero_dim_
                                         : dimensioned_,
                t.impl()->wrapped_number && t.is_floating_point() ? get_default_dtype() : t.dtype());
    return *this;
  }
  Promotion& add(const Scalar& s) {
    number_ = combine(number_, s.isFloatingPoint() ? get_default_dtype() : s.type());
    return *this;
  }
  DType type() const { return higher(dimensioned_, higher(zero_dim_, number_)); }

 private:
  static DType combine(DType a, DType b) { return a == DType::Undefined ? b : promote_types(a, b); }
  static int kind(DType t) { return is_floating_point(t) ? 2 : t == DType::Bool ? 0 : 1; }
  static DType higher(DType strong, DType weak) {
    if (strong == DType::Undefined) return weak;
    if (weak == DType::Undefined || kind(strong) >= kind(weak)) return strong;
    return promote_types(strong, weak);
  }
  DType dimensioned_ = DType::Undefined, zero_dim_ = DType::Undefined, number_ = DType::Undefined;
};

/// dtype of a function that is computed in floating point: integers give the default dtype.
inline DType float_type(DType t) { return is_floating_point(t) ? t : get_default_dtype(); }

/// The result of an element-wise op over broadcast inputs: shape, the first queued device, and the strides of a dense
/// permuted input (channels last, transposed) when all inputs agree, or the blocks of a hidden one among inputs of one
/// shape.
Meta pointwise_meta(const char* schema, DType dtype, std::initializer_list<const Tensor*> inputs);

/// `t` in `dtype`; itself when it has it.
Tensor cast(const Tensor& t, DType dtype);

}  // namespace athanor::ops
