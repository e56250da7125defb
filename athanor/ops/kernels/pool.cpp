#include "athanor/ops/kernels/pool.h"

namespace athanor {

constinit Kernel<void(const View&, const View&, const View&, const PoolParams&)> max_pool_kernel{"max_pool"};
constinit Kernel<void(const View&, const View&, const View&, const PoolParams&)> max_pool_backward_kernel{
    "max_pool_backward"};
constinit Kernel<void(const View&, const View&, const PoolParams&)> avg_pool_kernel{"avg_pool"};
constinit Kernel<void(const View&, const View&, const PoolParams&)> avg_pool_backward_kernel{"avg_pool_backward"};
constinit Kernel<void(const View&, const View&)> adaptive_avg_pool_kernel{"adaptive_avg_pool"};
constinit Kernel<void(const View&, const View&)> adaptive_avg_pool_backward_kernel{"adaptive_avg_pool_backward"};
constinit Kernel<void(const View&, const View&, const View&)> adaptive_max_pool_kernel{"adaptive_max_pool"};

}  // namespace athanor
