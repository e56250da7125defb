// The collectives: what they ask of their arguments, and how tensors become spans for the backend.
#include <numeric>

#include "athanor/base/log.h"
#include "athanor/distributed/call_tensors.h"
#include "athanor/distributed/overlap.h"
#include "athanor/distributed/process_group_impl.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// Tensors that are read or written, and how they are called in messages.
void check_tensor(const char* op, const char* name, const Tensor& t) {
  ATHANOR_CHECK(t.defined(), op, ": ", name, " is undefined");
}

// What the call is going to overwrite.
void check_written(const char* op, const char* name, const Tensor& t) {
  check_tensor(op, name, t);
  for (std::int64_t d = 0; d < t.dim(); ++d)
    ATHANOR_CHECK(t.strides()[static_cast<std::size_t>(d)] != 0 || t.sizes()[static_cast<std::size_t>(d)] <= 1, op,
                  ": ", name, " ", t, " is expanded along dimension ", d,
                  ": its elements share memory and cannot all be written; use clone()");
  if (__builtin_expect(t.requires_grad(), 0) && GradMode::is_enabled() && !t.is_leaf()) {
    static std::atomic<bool> told = false;
    if (!told.exchange(true))
      ATHANOR_LOG(Warning, op, ": writes to a tensor that is part of a graph; no gradient flows through it. ",
                  "distributed::nn has differentiable collectives");
  }
}

void wrote(const Tensor& t) { t.impl()->bump_version(); }
void wrote(TensorList list) {
  for (const Tensor& t : list) wrote(t);
}

void check_list(const char* op, const char* name, TensorList list, int size, bool written) {
  ATHANOR_CHECK_VALUE(list.size() == static_cast<std::size_t>(size), op, ": ", name, " has ", list.size(),
                      " tensors, expected one per rank of the group, ", size);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Tensor& t = list[i];
    if (written)
      check_written(op, name, t);
    else
      check_tensor(op, name, t);
    ATHANOR_CHECK_TYPE(TypeError, t.dtype() == list[0].dtype(), op, ": ", name, "[", i, "] is ", t.dtype(), ", but ",
                       name, "[0] is ", list[0].dtype(), "; all should be of one dtype");
  }
}

void check_same_dtype(const char* op, const Tensor& a, const char* a_name, const Tensor& b, const char* b_name) {
  ATHANOR_CHECK_TYPE(TypeError, a.dtype() == b.dtype(), op, ": ", a_name, " is ", a.dtype(), ", but ", b_name, " is ",
                     b.dtype(), "; both should be of one dtype");
}

void check_same_shape(const char* op, const Tensor& a, const std::string& a_name, const Tensor& b, const char* b_name) {
  ATHANOR_CHECK(a.sizes().equals(b.sizes()), op, ": ", a_name, " has shape ", a.sizes(), ", but ", b_name,
                " has shape ", b.sizes(), "; both should have the same");
}

std::int64_t total(TensorList list) {
  return std::accumulate(list.begin(), list.end(), std::int64_t{0},
                         [](std::int64_t sum, const Tensor& t) { return sum + t.numel(); });
}

// The elements of each part, as Call::parts wants them.
std::vector<std::int64_t> counts_of(TensorList list) {
  std::vector<std::int64_t> counts;
  counts.reserve(2 * list.size());
  for (const Tensor& t : list) counts.push_back(t.numel());
  return counts;
}

// One span per rank of contiguous memory.
std::vector<Span> split(Span whole, IntArrayRef counts) {
  std::vector<Span> parts;
  char* at = static_cast<char*>(whole.data);
  for (const std::int64_t n : counts) {
    parts.push_back({at, n, whole.dtype});
    at += parts.back().bytes();
  }
  return parts;
}
std::vector<Span> split(Span whole, int size) {
  return split(whole, std::vector<std::int64_t>(static_cast<std::size_t>(size), whole.count / size));
}

// Elements per rank from rows per rank.
std::vector<std::int64_t> elements(const char* name, const Tensor& t, IntArrayRef rows, int size) {
  const std::int64_t height = t.dim() > 0 ? t.size(0) : 1;
  if (rows.empty()) {
    ATHANOR_CHECK_VALUE(t.dim() > 0 && height % size == 0, "all_to_all_single: the first dimension of ", name, " ", t,
                        " should be divisible by the group's size ", size, ", or split sizes be given");
    return std::vector<std::int64_t>(static_cast<std::size_t>(size), t.numel() / size);
  }
  ATHANOR_CHECK_VALUE(rows.size() == static_cast<std::size_t>(size), "all_to_all_single: ", rows.size(),
                      " split sizes for ", name, ", expected one per rank, ", size);
  std::int64_t sum = 0;
  std::vector<std::int64_t> counts;
  const std::int64_t row = height > 0 ? t.numel() / height : 0;
  for (const std::int64_t n : rows) {
    ATHANOR_CHECK_VALUE(n >= 0, "all_to_all_single: a split size of ", name, " is negative: ", rows);
    sum += n;
    counts.push_back(n * row);
  }
  ATHANOR_CHECK_VALUE(t.dim() > 0 && sum == height, "all_to_all_single: the split sizes ", rows, " of ", name,
                      " should sum to its first dimension, ", height);
  return counts;
}

}  // namespace

// Each call: who may call it, its arguments, then the work.
#define ATHANOR_MEMBER(op)                                                                                          \
  ATHANOR_CHECK(rank_ >= 0, op, ": this process is no member of process group '", name_, "', which has the ranks ", \
                std::vector<std::int64_t>(global_ranks_.begin(), global_ranks_.end()))
#define ATHANOR_ROOT(op, root)                                                                       \
  ATHANOR_CHECK_VALUE(root >= 0 && root < size_, op, ": root rank ", root, " in a group of ", size_, \
                      ", expected 0 to ", size_ - 1)
#define ATHANOR_REDUCES(op, reduce, tensor)                                                                           \
  ATHANOR_CHECK_TYPE(TypeError, reduces(reduce.kind(), tensor.dtype()), op, ": ", reduce.text(),                      \
                     " has no meaning for ", tensor.dtype(),                                                          \
                     is_floating_point(tensor.dtype()) ? ", it needs integers" : ", it needs floating-point values"); \
  ATHANOR_CHECK_TYPE(NotImplementedError, impl_->backend->supports(reduce, tensor.dtype()), op, ": backend '",        \
                     backend_name_, "' has no ", reduce.text(), " for ", tensor.dtype())

WorkPtr ProcessGroup::broadcast(const Tensor& tensor, int root, bool async_op, Where where) {
  ATHANOR_MEMBER("broadcast");
  ATHANOR_ROOT("broadcast", root);
  if (rank_ == root) {
    check_tensor("broadcast", "the tensor", tensor);
  } else {
    check_written("broadcast", "the tensor", tensor);
    wrote(tensor);
  }
  Call call = impl_->describe(OpType::Broadcast, &tensor, tensor.numel(), root, ReduceOp(), where);
  const auto use = rank_ == root ? Staged::In : Staged::Out;
  CallOrder order;
  CallTensor data(tensor, use, order);
  return impl_->submit(call, order, async_op, tensor,
                       [data = std::move(data), root](Backend& b, const Call& c) mutable {
                         b.broadcast(c, data.open(c), root);
                         data.close();
                       });
}

WorkPtr ProcessGroup::all_reduce(const Tensor& tensor, const ReduceOp& op, bool async_op, Where where) {
  ATHANOR_MEMBER("all_reduce");
  check_written("all_reduce", "the tensor", tensor);
  ATHANOR_REDUCES("all_reduce", op, tensor);
  wrote(tensor);
  Call call = impl_->describe(OpType::AllReduce, &tensor, tensor.numel(), -1, op, where);
  CallOrder order;
  CallTensor data(tensor, Staged::InOut, order);
  return impl_->submit(call, order, async_op, tensor, [data = std::move(data), op](Backend& b, const Call& c) mutable {
    b.all_reduce(c, data.open(c), op);
    data.close();
  });
}

WorkPtr ProcessGroup::reduce(const Tensor& tensor, int root, const ReduceOp& op, bool async_op, Where where) {
  ATHANOR_MEMBER("reduce");
  ATHANOR_ROOT("reduce", root);
  if (rank_ == root)
    check_written("reduce", "the tensor", tensor);
  else
    check_tensor("reduce", "the tensor", tensor);
  ATHANOR_REDUCES("reduce", op, tensor);
  if (rank_ == root) wrote(tensor);
  Call call = impl_->describe(OpType::Reduce, &tensor, tensor.numel(), root, op, where);
  const auto use = rank_ == root ? Staged::InOut : Staged::In;
  CallOrder order;
  CallTensor data(tensor, use, order);
  return impl_->submit(call, order, async_op, tensor,
                       [data = std::move(data), op, root](Backend& b, const Call& c) mutable {
                         b.reduce(c, data.open(c), op, root);
                         data.close();
                       });
}

WorkPtr ProcessGroup::all_gather(TensorList output, const Tensor& input, bool async_op, Where where) {
  ATHANOR_MEMBER("all_gather");
  check_tensor("all_gather", "the input", input);
  check_list("all_gather", "output", output, size_, true);
  const Tensor& own = output[static_cast<std::size_t>(rank_)];
  check_same_dtype("all_gather", output[0], "the output", input, "the input");
  check_same_shape("all_gather", own, str("output[", rank_, "]"), input, "the input");
  const SamePlace in_place{static_cast<std::size_t>(rank_), 0};
  check_apart("all_gather", rank_, {output, "output"}, {input, "the input", true}, &in_place);
  wrote(output);
  Call call = impl_->describe(OpType::AllGather, &input, total(output), -1, ReduceOp(), where);
  for (const Tensor& part : output) Impl::agree_on(call, part.sizes());
  auto counts = counts_of(output);
  call.parts = counts;
  CallOrder order;
  CallTensor from(input, Staged::In, order);
  CallTensors to(output, Staged::Out, order);
  return impl_->submit(
      call, order, async_op, output,
      [from = std::move(from), to = std::move(to), held = std::move(counts)](Backend& b, const Call& c) mutable {
        const Span own_part = from.open(c);
        b.all_gather(c, to.open(c), own_part);
        to.close();
      });
}

WorkPtr ProcessGroup::gather(TensorList output, const Tensor& input, int root, bool async_op, Where where) {
  ATHANOR_MEMBER("gather");
  ATHANOR_ROOT("gather", root);
  check_tensor("gather", "the input", input);
  if (rank_ == root) {
    check_list("gather", "output", output, size_, true);
    check_same_dtype("gather", output[0], "the output", input, "the input");
    for (std::size_t r = 0; r < output.size(); ++r)
      check_same_shape("gather", output[r], str("output[", r, "]"), input, "the input");
    const SamePlace in_place{static_cast<std::size_t>(root), 0};
    check_apart("gather", rank_, {output, "output"}, {input, "the input", true}, &in_place);
    wrote(output);
  } else {
    ATHANOR_CHECK_VALUE(output.empty(), "gather: rank ", rank_, " gave an output list, which only the root, rank ",
                        root, ", has");
  }
  Call call = impl_->describe(OpType::Gather, &input, input.numel(), root, ReduceOp(), where);
  CallOrder order;
  CallTensor from(input, Staged::In, order);
  CallTensors to(output, Staged::Out, order);
  return impl_->submit(call, order, async_op, output,
                       [from = std::move(from), to = std::move(to), root](Backend& b, const Call& c) mutable {
                         const Span own_part = from.open(c);
                         b.gather(c, to.open(c), own_part, root);
                         to.close();
                       });
}

WorkPtr ProcessGroup::scatter(const Tensor& output, TensorList input, int root, bool async_op, Where where) {
  ATHANOR_MEMBER("scatter");
  ATHANOR_ROOT("scatter", root);
  check_written("scatter", "the output", output);
  if (rank_ == root) {
    check_list("scatter", "input", input, size_, false);
    check_same_dtype("scatter", input[0], "the input", output, "the output");
    for (std::size_t r = 0; r < input.size(); ++r)
      check_same_shape("scatter", input[r], str("input[", r, "]"), output, "the output");
    const SamePlace in_place{0, static_cast<std::size_t>(root)};
    check_apart("scatter", rank_, {output, "the output", true}, {input, "input"}, &in_place);
  } else {
    ATHANOR_CHECK_VALUE(input.empty(), "scatter: rank ", rank_, " gave an input list, which only the root, rank ", root,
                        ", has");
  }
  wrote(output);
  Call call = impl_->describe(OpType::Scatter, &output, output.numel(), root, ReduceOp(), where);
  CallOrder order;
  CallTensors from(input, Staged::In, order);
  CallTensor to(output, Staged::Out, order);
  return impl_->submit(call, order, async_op, output,
                       [from = std::move(from), to = std::move(to), root](Backend& b, const Call& c) mutable {
                         const Parts parts = from.open(c);
                         b.scatter(c, to.open(c), parts, root);
                         to.close();
                       });
}

WorkPtr ProcessGroup::reduce_scatter(const Tensor& output, TensorList input, const ReduceOp& op, bool async_op,
                                     Where where) {
  ATHANOR_MEMBER("reduce_scatter");
  check_written("reduce_scatter", "the output", output);
  check_list("reduce_scatter", "input", input, size_, false);
  check_same_dtype("reduce_scatter", input[0], "the input", output, "the output");
  check_same_shape("reduce_scatter", input[static_cast<std::size_t>(rank_)], str("input[", rank_, "]"), output,
                   "the output");
  ATHANOR_REDUCES("reduce_scatter", op, output);
  const SamePlace in_place{0, static_cast<std::size_t>(rank_)};
  check_apart("reduce_scatter", rank_, {output, "the output", true}, {input, "input"}, &in_place);
  wrote(output);
  Call call = impl_->describe(OpType::ReduceScatter, &output, total(input), -1, op, where);
  for (const Tensor& part : input) Impl::agree_on(call, part.sizes());
  auto counts = counts_of(input);
  call.parts = counts;
  CallOrder order;
  CallTensors from(input, Staged::In, order);
  CallTensor to(output, Staged::Out, order);
  return impl_->submit(
      call, order, async_op, output,
      [from = std::move(from), to = std::move(to), op, held = std::move(counts)](Backend& b, const Call& c) mutable {
        const Parts parts = from.open(c);
        b.reduce_scatter(c, to.open(c), parts, op);
        to.close();
      });
}

WorkPtr ProcessGroup::all_to_all(TensorList output, TensorList input, bool async_op, Where where) {
  ATHANOR_MEMBER("all_to_all");
  check_list("all_to_all", "output", output, size_, true);
  check_list("all_to_all", "input", input, size_, false);
  check_same_dtype("all_to_all", output[0], "the output", input[0], "the input");
  const auto own = static_cast<std::size_t>(rank_);
  check_same_shape("all_to_all", output[own], str("output[", rank_, "]"), input[own], "the input for this rank");
  check_apart("all_to_all", rank_, {output, "output"}, {input, "input"});
  wrote(output);
  // Every pair of ranks may exchange another number of elements.
  Call call = impl_->describe(OpType::AllToAll, &input[0], 0, -1, ReduceOp(), where);
  auto counts = counts_of(input);
  for (const Tensor& part : output) counts.push_back(part.numel());
  call.parts = counts;
  CallOrder order;
  CallTensors from(input, Staged::In, order), to(output, Staged::Out, order);
  return impl_->submit(
      call, order, async_op, output,
      [from = std::move(from), to = std::move(to), held = std::move(counts)](Backend& b, const Call& c) mutable {
        const Parts parts = from.open(c);
        b.all_to_all(c, to.open(c), parts);
        to.close();
      });
}

WorkPtr ProcessGroup::barrier(bool async_op, Where where) {
  ATHANOR_MEMBER("barrier");
  Call call = impl_->describe(OpType::Barrier, nullptr, 0, -1, ReduceOp(), where);
  return impl_->submit(call, async_op, {}, [](Backend& b, const Call& c) { b.barrier(c); });
}

WorkPtr ProcessGroup::all_gather_into_tensor(const Tensor& output, const Tensor& input, bool async_op, Where where) {
  constexpr const char* op = "all_gather_into_tensor";
  ATHANOR_MEMBER(op);
  check_written(op, "the output", output);
  check_tensor(op, "the input", input);
  check_same_dtype(op, output, "the output", input, "the input");
  ATHANOR_CHECK(output.numel() == input.numel() * size_, op, ": the output ", output, " should have ", size_,
                " times the elements of the input ", input);
  check_slot(op, rank_, size_, "the output", output, "the input", input);
  wrote(output);
  Call call = impl_->describe(OpType::AllGather, &input, output.numel(), -1, ReduceOp(), where);
  for (int r = 0; r < size_; ++r) Impl::agree_on(call, input.sizes());
  CallOrder order;
  CallTensor from(input, Staged::In, order), to(output, Staged::Out, order);
  return impl_->submit(call, order, async_op, output,
                       [from = std::move(from), to = std::move(to), n = size_](Backend& b, const Call& c) mutable {
                         const Span own_part = from.open(c);
                         b.all_gather(c, split(to.open(c), n), own_part);
                         to.close();
                       });
}

WorkPtr ProcessGroup::reduce_scatter_tensor(const Tensor& output, const Tensor& input, const ReduceOp& op,
                                            bool async_op, Where where) {
  constexpr const char* name = "reduce_scatter_tensor";
  ATHANOR_MEMBER(name);
  check_written(name, "the output", output);
  check_tensor(name, "the input", input);
  check_same_dtype(name, output, "the output", input, "the input");
  ATHANOR_CHECK(input.numel() == output.numel() * size_, name, ": the input ", input, " should have ", size_,
                " times the elements of the output ", output);
  ATHANOR_REDUCES(name, op, output);
  check_slot(name, rank_, size_, "the input", input, "the output", output);
  wrote(output);
  Call call = impl_->describe(OpType::ReduceScatter, &output, input.numel(), -1, op, where);
  for (int r = 0; r < size_; ++r) Impl::agree_on(call, output.sizes());
  CallOrder order;
  CallTensor from(input, Staged::In, order), to(output, Staged::Out, order);
  return impl_->submit(call, order, async_op, output,
                       [from = std::move(from), to = std::move(to), op, n = size_](Backend& b, const Call& c) mutable {
                         const std::vector<Span> parts = split(from.open(c), n);
                         b.reduce_scatter(c, to.open(c), parts, op);
                         to.close();
                       });
}

WorkPtr ProcessGroup::all_to_all_single(const Tensor& output, const Tensor& input, IntArrayRef output_split_sizes,
                                        IntArrayRef input_split_sizes, bool async_op, Where where) {
  constexpr const char* op = "all_to_all_single";
  ATHANOR_MEMBER(op);
  check_written(op, "the output", output);
  check_tensor(op, "the input", input);
  check_same_dtype(op, output, "the output", input, "the input");
  check_apart(op, rank_, {output, "the output", true}, {input, "the input", true});
  auto to = elements("the output", output, output_split_sizes, size_);
  auto from = elements("the input", input, input_split_sizes, size_);
  wrote(output);
  Call call = impl_->describe(OpType::AllToAll, &input, 0, -1, ReduceOp(), where);
  std::vector<std::int64_t> counts = from;
  counts.insert(counts.end(), to.begin(), to.end());
  call.parts = counts;
  CallOrder order;
  CallTensor source(input, Staged::In, order), target(output, Staged::Out, order);
  return impl_->submit(call, order, async_op, output,
                       [source = std::move(source), target = std::move(target), counts = std::move(counts)](
                           Backend& b, const Call& c) mutable {
                         const IntArrayRef all = counts;
                         const std::size_t n = all.size() / 2;
                         const std::vector<Span> parts = split(source.open(c), all.slice(0, n));
                         b.all_to_all(c, split(target.open(c), all.slice(n)), parts);
                         target.close();
                       });
}

std::shared_ptr<void> ProcessGroup::allocate_shared(std::size_t bytes, Where where) {
  ATHANOR_MEMBER("allocate_shared");
  std::shared_ptr<void> memory;
  Call call = impl_->describe(OpType::Barrier, nullptr, static_cast<std::int64_t>(bytes), -1, ReduceOp(), where);
  impl_->submit(call, false, {}, [&memory, bytes](Backend& b, const Call& c) { memory = b.allocate_shared(c, bytes); });
  return memory;
}
#undef ATHANOR_MEMBER
#undef ATHANOR_ROOT
#undef ATHANOR_REDUCES

}  // namespace athanor::distributed
