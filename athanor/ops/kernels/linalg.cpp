#include "athanor/ops/kernels/linalg.h"

namespace athanor {

constinit Kernel<void(const View&, const View&, const View&, const View&, const View&, bool)> solve_kernel{"solve"};
constinit Kernel<void(const View&, const View&, const View&, const View&, bool)> solve_again_kernel{"solve_again"};
constinit Kernel<void(const View&, const View&, const View&, const View&, const View&)> slogdet_kernel{"slogdet"};
constinit Kernel<void(const View&, const View&, const char*)> cholesky_kernel{"cholesky"};
constinit Kernel<void(const View&, const View&, const View&, const View&)> svd_kernel{"svd"};

}  // namespace athanor
