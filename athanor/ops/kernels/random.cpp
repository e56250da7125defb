#include "athanor/ops/kernels/random.h"

namespace athanor {

using In = const View&;
constinit Kernel<void(RandomOp, In, double, double, PhiloxState)> random_kernel{"random"};
constinit Kernel<void(In, std::int64_t, std::uint64_t, PhiloxState)> random_integer_kernel{"random_"};
constinit Kernel<void(In, double, PhiloxState)> bernoulli_kernel{"bernoulli"};
constinit Kernel<void(In, In, PhiloxState)> bernoulli_tensor_kernel{"bernoulli"};
constinit Kernel<void(In, In, In, double, PhiloxState)> dropout_kernel{"dropout"};
constinit Kernel<void(In, PhiloxState)> randperm_kernel{"randperm"};
constinit Kernel<void(In, In, bool, PhiloxState)> multinomial_kernel{"multinomial"};

}  // namespace athanor
