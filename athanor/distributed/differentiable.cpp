#include "athanor/distributed/differentiable.h"

#include <numeric>

#include "athanor/ops/history.h"
#include "athanor/tape/node.h"
#include "athanor/tape/saved_tensor.h"

namespace athanor::distributed::nn {

namespace {

using Gradients = std::vector<Tensor>;
// From the gradients of the results, none undefined, and what was saved, to the gradients of the inputs.
using Backward = std::function<Gradients(const Gradients&, const Gradients&)>;

class CollectiveNode final : public Node {
 public:
  CollectiveNode(const char* name, Backward backward, const Gradients& saved)
      : name_(name), backward_(std::move(backward)) {
    for (const Tensor& t : saved) saved_.emplace_back(t);
  }
  std::string name() const override { return name_; }
  void release() override {
    backward_ = nullptr;
    saved_.clear();
  }
  void apply(const GradList& in, GradList& out) override {
    ATHANOR_CHECK(backward_, name_,
                  ": backward through the graph a second time, but it was freed; use "
                  "retain_graph=true the first time");
    // A result that this rank does not use has gradient zero here, but other ranks wait for this one's part.
    Gradients grads;
    for (std::size_t i = 0; i < in.size(); ++i) {
      const OutputMeta& meta = output(i);
      grads.push_back(in[i].defined() ? Tensor(in[i])
                                      : Tensor(zeros(meta.sizes, TensorOptions(meta.dtype).device(meta.device))));
    }
    Gradients saved;
    for (const SavedTensor& t : saved_) saved.emplace_back(t.get(this));
    const Gradients result = backward_(grads, saved);
    for (std::size_t i = 0; i < result.size() && i < out.size(); ++i)
      if (needs(i)) out[i] = result[i];
  }

 private:
  std::string name_;
  Backward backward_;
  std::vector<SavedTensor> saved_;
};

// Makes `outputs` results of `inputs`. The node is there on every rank that records, so that all take part in backward.
void record(const char* name, const Gradients& inputs, Gradients& outputs, Backward backward,
            const Gradients& saved = {}) {
  bool wanted = false;
  for (const Tensor& t : inputs) wanted = wanted || t.requires_grad();
  if (!wanted || !GradMode::is_enabled()) return;
  const IntrusivePtr<Node> node(new CollectiveNode(name, std::move(backward), saved));
  for (const Tensor& t : inputs) node->add_edge(gradient_edge(t));
  for (Tensor& t : outputs) athanor::set_history(t, node);
}

Tensor recorded(const char* name, const Tensor& input, const Tensor& output, Backward backward,
                const Gradients& saved = {}) {
  Gradients outputs = {output};
  record(name, {input}, outputs, std::move(backward), saved);
  return outputs[0];
}

Tensor blank_like(const Tensor& t) { return empty(t.sizes(), t.options()); }

// Connected to `t`, so that a second backward calls on this rank the collectives that the others call.
Tensor zeros_that_depend_on(const Tensor& t) {
  return athanor::where(zeros(t.sizes(), TensorOptions(kBool)), t, zeros_like(t.detach()));
}

int own_rank(const ProcessGroupPtr& group) { return get_global_rank(group, get_rank(group)); }

// The derivative of a product by its factor of this rank: the product of the others'.
Tensor product_of_others(const Tensor& own, const ProcessGroupPtr& group) {
  const auto parts = functional::all_gather(own, group);
  Tensor product = ones_like(own);
  for (std::size_t r = 0; r < parts.size(); ++r)
    if (static_cast<int>(r) != get_rank(group)) product = product * parts[r];
  return product;
}

// The share of the ranks that have the extreme value.
Tensor share_of_extreme(const Tensor& own, const Tensor& extreme, const ProcessGroupPtr& group) {
  const Tensor mine = own.detach().eq(extreme.detach()).to(own.dtype());
  Tensor count = mine.clone();
  distributed::all_reduce(count, ReduceOp::SUM, group);
  return mine / count;
}

bool is_linear(const ReduceOp& op) {
  return op.kind() == ReduceOp::SUM || op.kind() == ReduceOp::AVG || op.kind() == ReduceOp::PREMUL_SUM;
}

// What the derivative needs of a reduction: of a sum nothing.
Gradients to_save(const ReduceOp& op, const Tensor& input, const Tensor& result) {
  if (is_linear(op)) return {};
  if (op.kind() == ReduceOp::PRODUCT) return {input};
  // The result is kept without its history: the derivative needs its values only.
  return {input, result.detach()};
}

// What the gradient of a sum over ranks is multiplied with for this rank's input.
Tensor factor_of(const ReduceOp& op, const Gradients& saved, const ProcessGroupPtr& group) {
  if (is_linear(op)) return {};
  return op.kind() == ReduceOp::PRODUCT ? product_of_others(saved[0], group)
                                        : share_of_extreme(saved[0], saved[1], group);
}

Tensor scaled(const ReduceOp& op, const Tensor& grad, const Tensor& factor, const ProcessGroupPtr& group) {
  if (factor.defined()) return grad * factor;
  if (op.kind() == ReduceOp::AVG) return grad / static_cast<double>(get_world_size(group));
  if (op.kind() == ReduceOp::PREMUL_SUM) return grad * op.factor();
  return grad;
}

void check_differentiable(const char* name, const ReduceOp& op) {
  const auto kind = op.kind();
  ATHANOR_CHECK_VALUE(is_linear(op) || kind == ReduceOp::PRODUCT || kind == ReduceOp::MIN || kind == ReduceOp::MAX,
                      name, ": ", op.text(),
                      " has no gradient here; expected SUM, AVG, PREMUL_SUM, PRODUCT, MIN or MAX");
}

// Of this rank's part of a reduce_scatter: the gradients for what every rank put into it.
Gradients gradients_of_parts(const ReduceOp& op, const Tensor& grad, const Gradients& parts) {
  Gradients grads;
  if (op.kind() == ReduceOp::PRODUCT) {
    for (std::size_t k = 0; k < parts.size(); ++k) {
      Tensor product = grad;
      for (std::size_t other = 0; other < parts.size(); ++other)
        if (other != k) product = product * parts[other];
      grads.push_back(product);
    }
    return grads;
  }
  Tensor extreme = parts[0].detach();
  for (const Tensor& part : parts)
    extreme = op.kind() == ReduceOp::MIN ? minimum(extreme, part.detach()) : maximum(extreme, part.detach());
  Tensor count = zeros_like(extreme);
  for (const Tensor& part : parts) count = count + part.detach().eq(extreme).to(extreme.dtype());
  for (const Tensor& part : parts) grads.push_back(grad * (part.detach().eq(extreme).to(extreme.dtype()) / count));
  return grads;
}

}  // namespace

Tensor functional::broadcast(const Tensor& tensor, int src, const ProcessGroupPtr& group) {
  Tensor result = tensor.detach().clone();
  distributed::broadcast(result, src, group);
  return recorded("DistributedBroadcastBackward", tensor, result,
                  [group, src](const Gradients& g, const Gradients&) -> Gradients {
                    const Tensor sum = functional::reduce(g[0], src, ReduceOp::SUM, group);
                    return {own_rank(group) == src ? sum : zeros_that_depend_on(sum)};
                  });
}

Tensor functional::all_reduce(const Tensor& tensor, const ReduceOp& op, const ProcessGroupPtr& group) {
  check_differentiable("all_reduce", op);
  Tensor result = tensor.detach().clone();
  distributed::all_reduce(result, op, group);
  return recorded(
      "DistributedAllReduceBackward", tensor, result,
      [group, op](const Gradients& g, const Gradients& saved) -> Gradients {
        const Tensor sum = functional::all_reduce(g[0], ReduceOp::SUM, group);
        return {scaled(op, sum, factor_of(op, saved, group), group)};
      },
      to_save(op, tensor, result));
}

Tensor functional::reduce(const Tensor& tensor, int dst, const ReduceOp& op, const ProcessGroupPtr& group) {
  check_differentiable("reduce", op);
  Tensor result = tensor.detach().clone();
  distributed::reduce(result, dst, op, group);
  return recorded(
      "DistributedReduceBackward", tensor, result,
      [group, op, dst](const Gradients& g, Gradients saved) -> Gradients {
        const Tensor grad = functional::broadcast(g[0], dst, group);
        if (op.kind() == ReduceOp::MIN || op.kind() == ReduceOp::MAX) {
          saved[1] = saved[1].clone();
          distributed::broadcast(saved[1], dst, group);
        }
        return {scaled(op, grad, factor_of(op, saved, group), group)};
      },
      to_save(op, tensor, result));
}

std::vector<Tensor> functional::all_gather(const Tensor& tensor, const ProcessGroupPtr& group) {
  std::vector<Tensor> result;
  for (int r = 0; r < get_world_size(group); ++r) result.push_back(blank_like(tensor));
  distributed::all_gather(result, tensor.detach(), group);
  record("DistributedAllGatherBackward", {tensor}, result, [group](const Gradients& g, const Gradients&) -> Gradients {
    return {functional::reduce_scatter(g, ReduceOp::SUM, group)};
  });
  return result;
}

std::vector<Tensor> functional::gather(const Tensor& tensor, int dst, const ProcessGroupPtr& group) {
  std::vector<Tensor> result;
  for (int r = 0; r < get_world_size(group); ++r) result.push_back(zeros_like(tensor.detach()));
  distributed::gather(tensor.detach(), own_rank(group) == dst ? TensorList(result) : TensorList(), dst, group);
  record(
      "DistributedGatherBackward", {tensor}, result,
      [group, dst](const Gradients& g, const Gradients&) -> Gradients { return {functional::scatter(g, dst, group)}; });
  return result;
}

Tensor functional::scatter(const std::vector<Tensor>& tensors, int src, const ProcessGroupPtr& group) {
  ATHANOR_CHECK_VALUE(tensors.size() == static_cast<std::size_t>(get_world_size(group)), "scatter: ", tensors.size(),
                      " tensors, expected one per rank of the group, ", get_world_size(group));
  Tensor result = blank_like(tensors[static_cast<std::size_t>(get_rank(group))]);
  std::vector<Tensor> values;
  if (own_rank(group) == src)
    for (const Tensor& t : tensors) values.push_back(t.detach());
  distributed::scatter(result, values, src, group);
  Gradients outputs = {result};
  record(
      "DistributedScatterBackward", tensors, outputs,
      [group, src](const Gradients& g, const Gradients&) -> Gradients { return functional::gather(g[0], src, group); });
  return outputs[0];
}

Tensor functional::reduce_scatter(const std::vector<Tensor>& input_list, const ReduceOp& op,
                                  const ProcessGroupPtr& group) {
  check_differentiable("reduce_scatter", op);
  ATHANOR_CHECK_VALUE(input_list.size() == static_cast<std::size_t>(get_world_size(group)),
                      "reduce_scatter: ", input_list.size(), " tensors, expected one per rank of the group, ",
                      get_world_size(group));
  std::vector<Tensor> values;
  for (const Tensor& t : input_list) values.push_back(t.detach());
  Tensor result = blank_like(values[static_cast<std::size_t>(get_rank(group))]);
  distributed::reduce_scatter(result, values, op, group);
  Gradients outputs = {result};
  record(
      "DistributedReduceScatterBackward", input_list, outputs,
      [group, op](const Gradients& g, const Gradients& inputs) -> Gradients {
        if (is_linear(op)) return functional::all_gather(scaled(op, g[0], Tensor(), group), group);
        // Who has the result sees what went into it, and tells every rank its gradient.
        const Gradients like(inputs.size(), g[0].detach());
        const Gradients parts = functional::all_to_all(like, inputs, group);
        return functional::all_to_all(inputs, gradients_of_parts(op, g[0], parts), group);
      },
      is_linear(op) ? Gradients() : input_list);
  return outputs[0];
}

std::vector<Tensor> functional::all_to_all(const std::vector<Tensor>& output_tensor_list,
                                           const std::vector<Tensor>& input_tensor_list, const ProcessGroupPtr& group) {
  std::vector<Tensor> result, values;
  for (const Tensor& t : output_tensor_list) result.push_back(blank_like(t));
  for (const Tensor& t : input_tensor_list) values.push_back(t.detach());
  distributed::all_to_all(result, values, group);
  record("DistributedAllToAllBackward", input_tensor_list, result,
         [group, values](const Gradients& g, const Gradients&) -> Gradients {
           return functional::all_to_all(values, g, group);
         });
  return result;
}

Tensor functional::all_to_all_single(const Tensor& output, const Tensor& input,
                                     std::vector<std::int64_t> output_split_sizes,
                                     std::vector<std::int64_t> input_split_sizes, const ProcessGroupPtr& group) {
  Tensor result = blank_like(output);
  distributed::all_to_all_single(result, input.detach(), output_split_sizes, input_split_sizes, group);
  return recorded("DistributedAllToAllSingleBackward", input, result,
                  [group, output_split_sizes, input_split_sizes, like = input.detach()](const Gradients& g,
                                                                                        const Gradients&) -> Gradients {
                    return {functional::all_to_all_single(like, g[0], input_split_sizes, output_split_sizes, group)};
                  });
}

}  // namespace athanor::distributed::nn
