#include "athanor/ops/kernels/reduce.h"

namespace athanor {

constinit Kernel<void(ReduceOp, const View&, const View&, std::uint64_t, double)> reduce_kernel{"reduce"};
constinit Kernel<void(const View&, const View&, const View&, std::uint64_t)> min_max_kernel{"aminmax"};
constinit Kernel<void(const View&, const View&, const View&, std::uint64_t, double, bool)> var_mean_kernel{"var_mean"};
constinit Kernel<void(ArgReduceOp, const View&, const View&, const View&, std::int64_t)> arg_reduce_kernel{
    "arg_reduce"};

}  // namespace athanor
