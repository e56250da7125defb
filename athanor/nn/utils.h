#pragma once
/// Helpers over lists of parameters: torch.nn.utils.

#include "athanor/ops/tensor.h"

namespace athanor::nn::utils {

/// The norm of the gradients of all parameters taken as one vector, computed in float64. Parameters without a gradient
/// count nothing. Of order 0, as in PyTorch: how many gradients are not all zero.
Tensor get_total_norm(const std::vector<Tensor>& gradients, double norm_type = 2.0, bool error_if_nonfinite = false);
/// Scales the gradients in place so that their common norm is at most max_norm; gives back the norm before. norm_type
/// may be infinity. Throws Error for a norm that is not finite if `error_if_nonfinite`.
double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2.0,
                       bool error_if_nonfinite = false);
double clip_grad_norm_(const Tensor& parameter, double max_norm, double norm_type = 2.0,
                       bool error_if_nonfinite = false);
/// Limits every gradient element to [-clip_value, clip_value], in place.
void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);
void clip_grad_value_(const Tensor& parameter, double clip_value);

/// Multiplies every tensor by `factor`, in place and in one pass for all of a device.
void scale_all_(const std::vector<Tensor>& tensors, double factor);

/// All parameters flattened into one vector.
Tensor parameters_to_vector(const std::vector<Tensor>& parameters);
/// Makes the parameters views of the pieces of `vec`, in order.
void vector_to_parameters(const Tensor& vec, const std::vector<Tensor>& parameters);

}  // namespace athanor::nn::utils
