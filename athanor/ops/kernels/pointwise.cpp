#include "athanor/ops/kernels/pointwise.h"

namespace athanor {

#define ATHANOR_NAME(id, text) text,
const char* name(UnaryOp op) {
  static constexpr const char* kNames[] = {ATHANOR_UNARY_ANY_OPS(ATHANOR_NAME) ATHANOR_UNARY_FLOAT_OPS(ATHANOR_NAME)
                                               ATHANOR_UNARY_BOOL_OPS(ATHANOR_NAME)};
  return kNames[static_cast<int>(op)];
}

const char* name(BinaryOp op) {
  static constexpr const char* kNames[] = {ATHANOR_BINARY_VALUE_OPS(ATHANOR_NAME) ATHANOR_BINARY_BOOL_OPS(ATHANOR_NAME)
                                               ATHANOR_BINARY_BACKWARD_OPS(ATHANOR_NAME)};
  return kNames[static_cast<int>(op)];
}

const char* name(TernaryOp op) {
  static constexpr const char* kNames[] = {ATHANOR_TERNARY_OPS(ATHANOR_NAME)};
  return kNames[static_cast<int>(op)];
}
#undef ATHANOR_NAME

constinit Kernel<void(UnaryOp, const View&, const View&, Scalar, Scalar)> unary_kernel{"unary"};
constinit Kernel<void(BinaryOp, const View&, const View&, const View&, Scalar, Scalar)> binary_kernel{"binary"};
constinit Kernel<void(BinaryOp, const View&, const View&, Scalar, bool, Scalar, Scalar)> binary_scalar_kernel{
    "binary_scalar"};
constinit Kernel<void(TernaryOp, const View&, const View&, const View&, const View&, Scalar)> ternary_kernel{"ternary"};
constinit Kernel<void(const View&, const View&, double, double, double)> nan_to_num_kernel{"nan_to_num"};

}  // namespace athanor
