#pragma once
/// average_gradients: data parallelism by hand, as in PyTorch's tutorial on writing distributed applications.

#include <vector>

#include "athanor/distributed/process_group.h"
#include "athanor/nn/module.h"

namespace athanor::nn::parallel {

/// After backward, before the optimizer's step: makes every `.grad` the average over the ranks of the group, null
/// meaning the default one. Every rank has the same parameters; one that has no gradient on some rank counts as zero
/// there, and one that has none anywhere stays without. One collective per dtype, after the whole backward:
/// DistributedDataParallel is faster.
void average_gradients(const std::vector<Tensor>& parameters, const distributed::ProcessGroupPtr& group = nullptr);
void average_gradients(const Module& module, const distributed::ProcessGroupPtr& group = nullptr);

}  // namespace athanor::nn::parallel
