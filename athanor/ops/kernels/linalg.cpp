#include "athanor/ops/kernels/linalg.h"

namespace athanor {

constinit Kernel<void(const View&, const View&, const View&, const char*)> solve_kernel{"solve"};
constinit Kernel<void(const View&, const View&, const View&)> slogdet_kernel{"slogdet"};
constinit Kernel<void(const View&, const View&, const char*)> cholesky_kernel{"cholesky"};

}  // namespace athanor
