#include "athanor/distributed/collectives.h"

#include <mutex>
#include <set>

#include "athanor/base/log.h"

namespace athanor::distributed {

namespace {

const ProcessGroupPtr& of(const ProcessGroupPtr& group) { return group_or_default(group); }

// The group's rank for a rank of the world.
int in(const ProcessGroup& group, int global_rank) { return group.group_rank_of(global_rank); }

int sender_in(const ProcessGroup& group, int global_rank) {
  return global_rank == kAnySourceRank ? kAnySourceRank : in(group, global_rank);
}

}  // namespace

WorkPtr broadcast(const Tensor& tensor, int src, const ProcessGroupPtr& group, bool async_op, Where where) {
  const auto& g = of(group);
  return g->broadcast(tensor, in(*g, src), async_op, where);
}

WorkPtr all_reduce(const Tensor& tensor, const ReduceOp& op, const ProcessGroupPtr& group, bool async_op, Where where) {
  return of(group)->all_reduce(tensor, op, async_op, where);
}

WorkPtr reduce(const Tensor& tensor, int dst, const ReduceOp& op, const ProcessGroupPtr& group, bool async_op,
               Where where) {
  const auto& g = of(group);
  return g->reduce(tensor, in(*g, dst), op, async_op, where);
}

WorkPtr all_gather(TensorList tensor_list, const Tensor& tensor, const ProcessGroupPtr& group, bool async_op,
                   Where where) {
  return of(group)->all_gather(tensor_list, tensor, async_op, where);
}

WorkPtr gather(const Tensor& tensor, TensorList gather_list, int dst, const ProcessGroupPtr& group, bool async_op,
               Where where) {
  const auto& g = of(group);
  return g->gather(gather_list, tensor, in(*g, dst), async_op, where);
}

WorkPtr scatter(const Tensor& tensor, TensorList scatter_list, int src, const ProcessGroupPtr& group, bool async_op,
                Where where) {
  const auto& g = of(group);
  return g->scatter(tensor, scatter_list, in(*g, src), async_op, where);
}

WorkPtr reduce_scatter(const Tensor& output, TensorList input_list, const ReduceOp& op, const ProcessGroupPtr& group,
                       bool async_op, Where where) {
  return of(group)->reduce_scatter(output, input_list, op, async_op, where);
}

WorkPtr all_to_all(TensorList output_tensor_list, TensorList input_tensor_list, const ProcessGroupPtr& group,
                   bool async_op, Where where) {
  return of(group)->all_to_all(output_tensor_list, input_tensor_list, async_op, where);
}

WorkPtr all_to_all_single(const Tensor& output, const Tensor& input, IntArrayRef output_split_sizes,
                          IntArrayRef input_split_sizes, const ProcessGroupPtr& group, bool async_op, Where where) {
  return of(group)->all_to_all_single(output, input, output_split_sizes, input_split_sizes, async_op, where);
}

WorkPtr all_gather_into_tensor(const Tensor& output_tensor, const Tensor& input_tensor, const ProcessGroupPtr& group,
                               bool async_op, Where where) {
  return of(group)->all_gather_into_tensor(output_tensor, input_tensor, async_op, where);
}

WorkPtr reduce_scatter_tensor(const Tensor& output, const Tensor& input, const ReduceOp& op,
                              const ProcessGroupPtr& group, bool async_op, Where where) {
  return of(group)->reduce_scatter_tensor(output, input, op, async_op, where);
}

WorkPtr barrier(const ProcessGroupPtr& group, bool async_op, Where where) {
  return of(group)->barrier(async_op, where);
}

void monitored_barrier(const ProcessGroupPtr& group, std::chrono::milliseconds timeout, bool wait_all_ranks,
                       Where where) {
  of(group)->monitored_barrier(timeout, wait_all_ranks, where);
}

void send(const Tensor& tensor, int dst, const ProcessGroupPtr& group, int tag, Where where) {
  const auto& g = of(group);
  g->send(tensor, in(*g, dst), tag, where);
}

int recv(const Tensor& tensor, int src, const ProcessGroupPtr& group, int tag, Where where) {
  const auto& g = of(group);
  const int source = g->recv(tensor, sender_in(*g, src), tag, where);
  return g->global_ranks()[static_cast<std::size_t>(source)];
}

WorkPtr isend(const Tensor& tensor, int dst, const ProcessGroupPtr& group, int tag, Where where) {
  const auto& g = of(group);
  return g->isend(tensor, in(*g, dst), tag, where);
}

WorkPtr irecv(const Tensor& tensor, int src, const ProcessGroupPtr& group, int tag, Where where) {
  const auto& g = of(group);
  return g->irecv(tensor, sender_in(*g, src), tag, where);
}

std::vector<WorkPtr> batch_isend_irecv(const std::vector<P2POp>& ops, Where where) {
  ATHANOR_CHECK_VALUE(!ops.empty(), "batch_isend_irecv: the list of operations is empty");
  for (const P2POp& op : ops) {
    ATHANOR_CHECK_VALUE(op.op == &isend || op.op == &irecv, "batch_isend_irecv: the function of a P2POp should be ",
                        "isend or irecv");
    ATHANOR_CHECK_VALUE(of(op.group) == of(ops[0].group), "batch_isend_irecv: all operations should be of one group");
  }
  // Receives first: then what arrives has a place to go to.
  std::vector<WorkPtr> works(ops.size());
  for (const bool receives : {true, false})
    for (std::size_t i = 0; i < ops.size(); ++i)
      if ((ops[i].op == &irecv) == receives)
        works[i] = ops[i].op(ops[i].tensor, ops[i].peer, ops[i].group, ops[i].tag, where);
  return works;
}

void internals::warn_old_spelling(const char* old_name, const char* new_name) {
  static std::mutex mutex;
  static auto* told = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (told->insert(old_name).second)
    ATHANOR_LOG(Warning, "distributed: ", old_name, " is PyTorch 0.4's spelling; use ", new_name);
}

WorkPtr scatter(const Tensor& tensor, int src, TensorList scatter_list, const ProcessGroupPtr& group, Where where) {
  internals::warn_old_spelling("scatter(tensor, src, list)", "scatter(tensor, list, src)");
  return scatter(tensor, scatter_list, src, group, false, where);
}

WorkPtr gather(const Tensor& tensor, int dst, TensorList gather_list, const ProcessGroupPtr& group, Where where) {
  internals::warn_old_spelling("gather(tensor, dst, list)", "gather(tensor, list, dst)");
  return gather(tensor, gather_list, dst, group, false, where);
}

}  // namespace athanor::distributed
