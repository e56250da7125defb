#include "athanor/ops/kernels/linalg_decompose.h"

namespace athanor {

constinit Kernel<void(const View&, const View&, const View&)> qr_kernel{"qr"};
constinit Kernel<void(const View&, const View&, const View&, bool)> eigh_kernel{"eigh"};
constinit Kernel<void(const View&, const View&, const View&, bool, bool)> solve_triangular_kernel{"solve_triangular"};

}  // namespace athanor
