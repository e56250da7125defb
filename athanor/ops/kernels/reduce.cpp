#include "athanor/ops/kernels/reduce.h"
namespace athanor {
constinit Kernel<void(ReduceOp, const View&, const View&, std::uint64_t, double)> reduce_kernel{"reduce"};
}
