#pragma once
/// The collectives as torch.distributed has them: names, order of arguments and meaning. `src`, `dst` and the ranks in
/// P2POp are the world's ranks, whatever the group. With `async_op` a call returns at once with a Work, else null. See
/// process_group.h for what holds for all of them.

#include <functional>
#include <string>
#include <vector>

#include "athanor/distributed/groups.h"

namespace athanor::distributed {

using Where = CallSite;

WorkPtr broadcast(const Tensor& tensor, int src, const ProcessGroupPtr& group = nullptr, bool async_op = false,
                  Where where = Where::current());
WorkPtr all_reduce(const Tensor& tensor, const ReduceOp& op = ReduceOp::SUM, const ProcessGroupPtr& group = nullptr,
                   bool async_op = false, Where where = Where::current());
WorkPtr reduce(const Tensor& tensor, int dst, const ReduceOp& op = ReduceOp::SUM,
               const ProcessGroupPtr& group = nullptr, bool async_op = false, Where where = Where::current());
WorkPtr all_gather(TensorList tensor_list, const Tensor& tensor, const ProcessGroupPtr& group = nullptr,
                   bool async_op = false, Where where = Where::current());
/// `gather_list` is given by `dst` alone.
WorkPtr gather(const Tensor& tensor, TensorList gather_list = {}, int dst = 0, const ProcessGroupPtr& group = nullptr,
               bool async_op = false, Where where = Where::current());
/// `scatter_list` is given by `src` alone.
WorkPtr scatter(const Tensor& tensor, TensorList scatter_list = {}, int src = 0, const ProcessGroupPtr& group = nullptr,
                bool async_op = false, Where where = Where::current());
WorkPtr reduce_scatter(const Tensor& output, TensorList input_list, const ReduceOp& op = ReduceOp::SUM,
                       const ProcessGroupPtr& group = nullptr, bool async_op = false, Where where = Where::current());
WorkPtr all_to_all(TensorList output_tensor_list, TensorList input_tensor_list, const ProcessGroupPtr& group = nullptr,
                   bool async_op = false, Where where = Where::current());
WorkPtr all_to_all_single(const Tensor& output, const Tensor& input, IntArrayRef output_split_sizes = {},
                          IntArrayRef input_split_sizes = {}, const ProcessGroupPtr& group = nullptr,
                          bool async_op = false, Where where = Where::current());
WorkPtr all_gather_into_tensor(const Tensor& output_tensor, const Tensor& input_tensor,
                               const ProcessGroupPtr& group = nullptr, bool async_op = false,
                               Where where = Where::current());
WorkPtr reduce_scatter_tensor(const Tensor& output, const Tensor& input, const ReduceOp& op = ReduceOp::SUM,
                              const ProcessGroupPtr& group = nullptr, bool async_op = false,
                              Where where = Where::current());
WorkPtr barrier(const ProcessGroupPtr& group = nullptr, bool async_op = false, Where where = Where::current());
/// A barrier that names who did not come; see ProcessGroup::monitored_barrier.
void monitored_barrier(const ProcessGroupPtr& group = nullptr, std::chrono::milliseconds timeout = Work::kNoTimeout,
                       bool wait_all_ranks = false, Where where = Where::current());

void send(const Tensor& tensor, int dst, const ProcessGroupPtr& group = nullptr, int tag = 0,
          Where where = Where::current());
/// Returns the rank the message came from. Without `src`, from any rank.
int recv(const Tensor& tensor, int src = kAnySourceRank, const ProcessGroupPtr& group = nullptr, int tag = 0,
         Where where = Where::current());
WorkPtr isend(const Tensor& tensor, int dst, const ProcessGroupPtr& group = nullptr, int tag = 0,
              Where where = Where::current());
/// Work::source_rank() is the group's rank, as in libtorch.
WorkPtr irecv(const Tensor& tensor, int src = kAnySourceRank, const ProcessGroupPtr& group = nullptr, int tag = 0,
              Where where = Where::current());

/// One of the messages of batch_isend_irecv: `P2POp(isend, t, 1)` or `P2POp(irecv, t, 0)`.
struct P2POp {
  using Function = WorkPtr (*)(const Tensor&, int, const ProcessGroupPtr&, int, Where);
  P2POp(Function op, Tensor tensor, int peer, ProcessGroupPtr group = nullptr, int tag = 0)
      : op(op), tensor(std::move(tensor)), peer(peer), group(std::move(group)), tag(tag) {}
  Function op;
  Tensor tensor;
  int peer;
  ProcessGroupPtr group;
  int tag;
};
/// Starts all of them; in whatever order the ranks list theirs, none waits for another.
std::vector<WorkPtr> batch_isend_irecv(const std::vector<P2POp>& ops, Where where = Where::current());

// Several tensors of one dtype and device at the price of one call. With async_op, wait() fills them.

WorkPtr all_reduce_coalesced(TensorList tensors, const ReduceOp& op = ReduceOp::SUM,
                             const ProcessGroupPtr& group = nullptr, bool async_op = false,
                             Where where = Where::current());
WorkPtr broadcast_coalesced(TensorList tensors, int src, const ProcessGroupPtr& group = nullptr, bool async_op = false,
                            Where where = Where::current());
/// `output_tensor_lists[i][r]` becomes rank r's `input_tensor_list[i]`.
WorkPtr all_gather_coalesced(const std::vector<std::vector<Tensor>>& output_tensor_lists, TensorList input_tensor_list,
                             const ProcessGroupPtr& group = nullptr, bool async_op = false,
                             Where where = Where::current());
WorkPtr all_gather_into_tensor_coalesced(TensorList outputs, TensorList inputs, const ProcessGroupPtr& group = nullptr,
                                         bool async_op = false, Where where = Where::current());
WorkPtr reduce_scatter_tensor_coalesced(TensorList outputs, TensorList inputs, const ReduceOp& op = ReduceOp::SUM,
                                        const ProcessGroupPtr& group = nullptr, bool async_op = false,
                                        Where where = Where::current());

// PyTorch 0.4's spellings; each warns once.

/// scatter(tensor, scatter_list, src).
WorkPtr scatter(const Tensor& tensor, int src, TensorList scatter_list = {}, const ProcessGroupPtr& group = nullptr,
                Where where = Where::current());
/// gather(tensor, gather_list, dst).
WorkPtr gather(const Tensor& tensor, int dst, TensorList gather_list = {}, const ProcessGroupPtr& group = nullptr,
               Where where = Where::current());

namespace internals {
/// One line on stderr the first time an old spelling is used.
void warn_old_spelling(const char* old_name, const char* new_name);
struct OldReduceOp {
  ReduceOp::Kind kind;
  operator ReduceOp() const {
    warn_old_spelling("reduce_op", "ReduceOp");
    return kind;
  }
};
}  // namespace internals

/// ReduceOp's name in PyTorch 0.4.
struct reduce_op {
  static constexpr internals::OldReduceOp SUM{ReduceOp::SUM}, PRODUCT{ReduceOp::PRODUCT}, MAX{ReduceOp::MAX},
      MIN{ReduceOp::MIN};
};

}  // namespace athanor::distributed
