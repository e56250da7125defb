#pragma once
/// Collectives that gradients flow through: torch.distributed.nn.functional. The loss is the sum of all ranks' losses:
/// backward() must run on every rank, and gives each input the derivative of that sum. Gradients of gradients work as
/// well. `src` and `dst` are the world's ranks.

#include <vector>

#include "athanor/distributed/collectives.h"

namespace athanor::distributed::nn {

namespace functional {

/// The source's tensor, on every rank; the others' `tensor` gives shape and dtype, and its gradient is zero.
Tensor broadcast(const Tensor& tensor, int src, const ProcessGroupPtr& group = nullptr);
/// Of SUM, AVG, PRODUCT, MIN or MAX (ranks with equal values share the gradient evenly); PREMUL_SUM as well.
Tensor all_reduce(const Tensor& tensor, const ReduceOp& op = ReduceOp::SUM, const ProcessGroupPtr& group = nullptr);
/// At `dst` the combination, elsewhere a copy of `tensor` whose gradient flows nowhere.
Tensor reduce(const Tensor& tensor, int dst, const ReduceOp& op = ReduceOp::SUM,
              const ProcessGroupPtr& group = nullptr);
/// All ranks' tensors.
std::vector<Tensor> all_gather(const Tensor& tensor, const ProcessGroupPtr& group = nullptr);
/// At `dst` all ranks' tensors, elsewhere zeros.
std::vector<Tensor> gather(const Tensor& tensor, int dst = 0, const ProcessGroupPtr& group = nullptr);
/// This rank's part of the source's list. The others' tensors give shape and dtype.
Tensor scatter(const std::vector<Tensor>& tensors, int src = 0, const ProcessGroupPtr& group = nullptr);
/// The combination of all ranks' `input_list[rank]`, by the operators of all_reduce.
Tensor reduce_scatter(const std::vector<Tensor>& input_list, const ReduceOp& op = ReduceOp::SUM,
                      const ProcessGroupPtr& group = nullptr);
/// Result r is rank r's `input_tensor_list[rank]`; `output_tensor_list` gives the shapes.
std::vector<Tensor> all_to_all(const std::vector<Tensor>& output_tensor_list,
                               const std::vector<Tensor>& input_tensor_list, const ProcessGroupPtr& group = nullptr);
Tensor all_to_all_single(const Tensor& output, const Tensor& input, std::vector<std::int64_t> output_split_sizes = {},
                         std::vector<std::int64_t> input_split_sizes = {}, const ProcessGroupPtr& group = nullptr);

}  // namespace functional

using namespace functional;  // NOLINT(google-build-using-namespace): both spellings exist in PyTorch

}  // namespace athanor::distributed::nn
