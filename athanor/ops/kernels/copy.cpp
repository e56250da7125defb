#include "athanor/ops/kernels/copy.h"

namespace athanor {

constinit Kernel<void(const View&, const View&)> copy_kernel{"copy"};
constinit Kernel<void(const View&, Scalar)> fill_kernel{"fill"};

}  // namespace athanor
