#pragma once
/// gradcheck: compares gradients with finite differences.

#include <functional>

#include "athanor/autograd/autograd.h"

namespace athanor::autograd {

using CheckedFunction = std::function<variable_list(const variable_list&)>;

/// PyTorch's defaults, meant for float64.
struct GradCheckOptions {
  double eps = 1e-6;   ///< step of the central difference
  double atol = 1e-5;  ///< |analytic - numeric| <= atol + rtol |numeric| must hold for every element
  double rtol = 1e-3;
  double nondet_tol = 0;        ///< how much two backward passes may differ
  bool raise_exception = true;  ///< else a failed check returns false
};

/// Checks the gradients of `fn`'s floating outputs with respect to those `inputs` that require grad, element by
/// element. `fn` must be deterministic; inputs must be float64 leaves on the host and not overlap themselves in memory
/// (they are changed by eps and restored). Throws Error with the two Jacobians' greatest difference, its place and both
/// values.
bool gradcheck(const CheckedFunction& fn, const variable_list& inputs, const GradCheckOptions& options = {});

/// The same for the gradients of the gradients. `grad_outputs` (one for each output that requires grad) are drawn at
/// random, from a fixed seed, unless given.
bool gradgradcheck(const CheckedFunction& fn, const variable_list& inputs, const variable_list& grad_outputs = {},
                   const GradCheckOptions& options = {});

}  // namespace athanor::autograd
