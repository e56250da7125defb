#pragma once
/// backward() and grad() of namespace athanor::autograd, as libtorch declares them.

#include <optional>
#include <vector>

#include "athanor/ops/tensor.h"

namespace athanor::autograd {

using variable_list = std::vector<Tensor>;

/// Adds the gradients of `tensors` with respect to the leaves to their `.grad`. A missing gradient is allowed for
/// one-element tensors. With `inputs`, only those leaves receive theirs.
void backward(const variable_list& tensors, const variable_list& grad_tensors = {},
              std::optional<bool> retain_graph = std::nullopt, bool create_graph = false,
              const variable_list& inputs = {});

/// The gradients of `outputs` with respect to `inputs`, leaving `.grad` alone. Throws for an input that was not used
/// unless allow_unused, where its gradient is undefined.
variable_list grad(const variable_list& outputs, const variable_list& inputs, const variable_list& grad_outputs = {},
                   std::optional<bool> retain_graph = std::nullopt, bool create_graph = false,
                   bool allow_unused = false);

}  // namespace athanor::autograd
