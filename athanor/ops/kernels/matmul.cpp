#include "athanor/ops/kernels/matmul.h"

namespace athanor {

constinit Kernel<void(const View&, const View&, const View&, const View&, Scalar, Scalar)> gemm_kernel{"gemm"};
constinit Kernel<void(const View&, const View&, const View&, const View&, Scalar, Scalar)> bmm_kernel{"bmm"};
constinit Kernel<void(const View&, const View&, const View&, const View&, Epilogue)> linear_kernel{"linear"};

}  // namespace athanor
