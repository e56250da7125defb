// Collectives on several tensors: copied into one, sent at once, copied back. Inputs may lie anywhere, therefore.
#include <mutex>

#include "athanor/distributed/collectives.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/overlap.h"
#include "athanor/tape/grad_mode.h"

namespace athanor::distributed {

namespace {

void check_one_kind(const char* op, TensorList tensors) {
  ATHANOR_CHECK_VALUE(!tensors.empty(), op, ": the list of tensors is empty");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    ATHANOR_CHECK(tensors[i].defined(), op, ": tensor ", i, " is undefined");
    ATHANOR_CHECK_TYPE(TypeError, tensors[i].dtype() == tensors[0].dtype(), op, ": tensor ", i, " is ",
                       tensors[i].dtype(), ", tensor 0 is ", tensors[0].dtype(), "; all should be of one dtype");
    ATHANOR_CHECK(tensors[i].device() == tensors[0].device(), op, ": tensor ", i, " is on ", tensors[i].device(),
                  ", tensor 0 on ", tensors[0].device(), "; all should be on one device");
  }
}

Tensor flatten(TensorList tensors) {
  const NoGradGuard no_grad;
  std::vector<Tensor> flat;
  for (const Tensor& t : tensors) flat.push_back(t.data().reshape({-1}));
  return cat(flat);
}

// Puts consecutive pieces of `flat` into the tensors.
void unflatten(const Tensor& flat, TensorList tensors) {
  const NoGradGuard no_grad;
  std::int64_t at = 0;
  for (const Tensor& t : tensors) {
    t.data().copy_(flat.narrow(0, at, t.numel()).view(t.sizes()));
    t.impl()->bump_version();
    at += t.numel();
  }
}

// A Work with something left to do when it has ended: done by the first to wait.
class FinishedBy final : public Work {
 public:
  FinishedBy(WorkPtr work, std::function<void()> finish, std::vector<Tensor> results)
      : work_(std::move(work)), finish_(std::move(finish)), results_(std::move(results)) {}
  bool is_completed() override { return work_->is_completed(); }
  std::exception_ptr exception() override { return work_->exception(); }
  bool wait(std::chrono::milliseconds timeout) override {
    work_->wait(timeout);
    std::call_once(once_, finish_);
    return true;
  }
  std::vector<Tensor> result() override {
    wait(kNoTimeout);
    return results_;
  }
  int source_rank() override { return work_->source_rank(); }

 private:
  WorkPtr work_;
  std::function<void()> finish_;
  std::vector<Tensor> results_;
  std::once_flag once_;
};

WorkPtr finished_by(const WorkPtr& work, std::function<void()> finish, TensorList results) {
  if (work) return std::make_shared<FinishedBy>(work, std::move(finish), results.vec());
  finish();
  return nullptr;
}

}  // namespace

WorkPtr all_reduce_coalesced(TensorList tensors, const ReduceOp& op, const ProcessGroupPtr& group, bool async_op,
                             Where where) {
  check_one_kind("all_reduce_coalesced", tensors);
  const Tensor flat = flatten(tensors);
  const WorkPtr work = all_reduce(flat, op, group, async_op, where);
  return finished_by(
      work, [flat, list = tensors.vec()] { unflatten(flat, list); }, tensors);
}

WorkPtr broadcast_coalesced(TensorList tensors, int src, const ProcessGroupPtr& group, bool async_op, Where where) {
  check_one_kind("broadcast_coalesced", tensors);
  const bool root = get_global_rank(group, group_or_default(group)->rank()) == src;
  const Tensor flat = flatten(tensors);
  const WorkPtr work = broadcast(flat, src, group, async_op, where);
  return finished_by(
      work,
      [flat, root, list = tensors.vec()] {
        if (!root) unflatten(flat, list);
      },
      tensors);
}

WorkPtr all_gather_coalesced(const std::vector<std::vector<Tensor>>& output_tensor_lists, TensorList input_tensor_list,
                             const ProcessGroupPtr& group, bool async_op, Where where) {
  check_one_kind("all_gather_coalesced", input_tensor_list);
  const auto size = static_cast<std::size_t>(group_or_default(group)->size());
  ATHANOR_CHECK_VALUE(output_tensor_lists.size() == input_tensor_list.size(),
                      "all_gather_coalesced: ", output_tensor_lists.size(), " output lists for ",
                      input_tensor_list.size(), " inputs");
  for (std::size_t i = 0; i < output_tensor_lists.size(); ++i) {
    ATHANOR_CHECK_VALUE(output_tensor_lists[i].size() == size, "all_gather_coalesced: output list ", i, " has ",
                        output_tensor_lists[i].size(), " tensors, expected one per rank, ", size);
    for (const Tensor& t : output_tensor_lists[i])
      ATHANOR_CHECK(
          t.defined() && t.sizes().equals(input_tensor_list[i].sizes()) && t.dtype() == input_tensor_list[i].dtype(),
          "all_gather_coalesced: an output of list ", i, " should be like the input ", input_tensor_list[i]);
  }
  std::vector<Tensor> results;
  for (const auto& list : output_tensor_lists) results.insert(results.end(), list.begin(), list.end());
  check_apart("all_gather_coalesced", group_or_default(group)->rank(), {results, "output", false, size});
  const Tensor flat = flatten(input_tensor_list);
  const Tensor all = empty({static_cast<std::int64_t>(size), flat.numel()}, flat.options());
  const WorkPtr work = all_gather_into_tensor(all, flat, group, async_op, where);
  return finished_by(
      work,
      [all, lists = output_tensor_lists, size] {
        for (std::size_t r = 0; r < size; ++r) {
          std::vector<Tensor> of_rank;
          for (const auto& list : lists) of_rank.push_back(list[r]);
          unflatten(all.select(0, static_cast<std::int64_t>(r)), of_rank);
        }
      },
      results);
}

WorkPtr all_gather_into_tensor_coalesced(TensorList outputs, TensorList inputs, const ProcessGroupPtr& group,
                                         bool async_op, Where where) {
  const auto size = group_or_default(group)->size();
  ATHANOR_CHECK_VALUE(outputs.size() == inputs.size(), "all_gather_into_tensor_coalesced: ", outputs.size(),
                      " outputs for ", inputs.size(), " inputs");
  std::vector<std::vector<Tensor>> lists;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    ATHANOR_CHECK(outputs[i].defined() && inputs[i].defined() && outputs[i].is_contiguous() &&
                      outputs[i].numel() == inputs[i].numel() * size,
                  "all_gather_into_tensor_coalesced: output ", i, " should be contiguous, with ", size,
                  " times the elements of its input");
    const Tensor parts = outputs[i].data().view({size, inputs[i].numel()});
    lists.emplace_back();
    for (int r = 0; r < size; ++r) lists.back().push_back(parts.select(0, r).view(inputs[i].sizes()));
  }
  check_apart("all_gather_into_tensor_coalesced", group_or_default(group)->rank(), {outputs, "output"});
  return all_gather_coalesced(lists, inputs, group, async_op, where);
}

WorkPtr reduce_scatter_tensor_coalesced(TensorList outputs, TensorList inputs, const ReduceOp& op,
                                        const ProcessGroupPtr& group, bool async_op, Where where) {
  const auto size = group_or_default(group)->size();
  check_one_kind("reduce_scatter_tensor_coalesced", inputs);
  check_one_kind("reduce_scatter_tensor_coalesced", outputs);
  ATHANOR_CHECK_VALUE(outputs.size() == inputs.size(), "reduce_scatter_tensor_coalesced: ", outputs.size(),
                      " outputs for ", inputs.size(), " inputs");
  std::vector<Tensor> rows;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    ATHANOR_CHECK(inputs[i].numel() == outputs[i].numel() * size, "reduce_scatter_tensor_coalesced: input ", i,
                  " should have ", size, " times the elements of its output");
    rows.push_back(inputs[i].data().reshape({size, outputs[i].numel()}));
  }
  check_apart("reduce_scatter_tensor_coalesced", group_or_default(group)->rank(), {outputs, "output"});
  const NoGradGuard no_grad;
  const Tensor all = cat(rows, 1).contiguous();
  const Tensor own = empty({all.size(1)}, all.options());
  const WorkPtr work = reduce_scatter_tensor(own, all, op, group, async_op, where);
  return finished_by(
      work, [own, list = outputs.vec()] { unflatten(own, list); }, outputs);
}

}  // namespace athanor::distributed
