#include "athanor/nn/utils.h"

#include <cmath>

#include "athanor/ops/kernels/optim.h"
#include "athanor/ops/launch.h"

namespace athanor::nn::utils {

namespace {

std::vector<Tensor> gradients_of(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> out;
  for (const Tensor& p : parameters)
    if (p.grad().defined()) out.push_back(p.grad());
  return out;
}

}  // namespace

namespace {

/// Those on the device of the first one not yet taken, dense.
std::vector<TensorBase> take_device(const std::vector<Tensor>& tensors, std::vector<bool>& taken) {
  std::vector<TensorBase> out;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    if (taken[i] || (!out.empty() && t.device() != out[0].device())) continue;
    taken[i] = true;
    out.push_back(t.is_non_overlapping_and_dense() ? t.detach() : t.detach().contiguous());
  }
  return out;
}

}  // namespace

Tensor get_total_norm(const std::vector<Tensor>& gradients, double norm_type, bool error_if_nonfinite) {
  const NoGradGuard guard;
  if (norm_type == 0) {  // the norm of the tensors' norms: how many are not all zero
    double count = 0;
    for (const Tensor& g : gradients) count += g.any().item<bool>();
    return full({}, count, gradients.empty() ? TensorOptions() : gradients[0].options());
  }
  std::vector<Tensor> filled;
  for (const Tensor& g : gradients) {
    ATHANOR_CHECK(g.numel() > 0 || norm_type >= 0, "clip_grad_norm_: an empty gradient has no norm of order ",
                  norm_type);
    if (g.numel() > 0) filled.push_back(g);
  }
  if (filled.empty()) return zeros({});
  DType dtype = filled[0].dtype();
  for (const Tensor& g : filled) dtype = promote_types(dtype, g.dtype());
  std::vector<bool> taken(filled.size());
  std::vector<Tensor> norms;
  for (auto part = take_device(filled, taken); !part.empty(); part = take_device(filled, taken)) {
    Tensor norm = empty({}, TensorOptions(part[0].device()).dtype(kDouble));
    launch(norm_all_kernel, norm, part, norm_type);
    norms.push_back(norm.to(TensorOptions(filled[0].device())));
  }
  Tensor total = norms[0];
  if (norms.size() > 1) total = stack(norms).norm(norm_type);
  if (error_if_nonfinite) {
    const double value = total.item<double>();
    ATHANOR_CHECK(std::isfinite(value), "The total norm of order ", norm_type,
                  " for gradients from `parameters` is non-finite, so it cannot be clipped. To disable this error and "
                  "scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=false`");
  }
  return total.to(dtype);
}

double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  const NoGradGuard guard;
  const std::vector<Tensor> gradients = gradients_of(parameters);
  const double total = get_total_norm(gradients, norm_type, error_if_nonfinite).item<double>();
  const double scale = max_norm / (total + 1e-6);
  // A norm that is not a number spoils every gradient, as in PyTorch.
  if (scale < 1 || std::isnan(scale)) scale_all_(gradients, scale);
  return total;
}
double clip_grad_norm_(const Tensor& parameter, double max_norm, double norm_type, bool error_if_nonfinite) {
  return clip_grad_norm_(std::vector<Tensor>{parameter}, max_norm, norm_type, error_if_nonfinite);
}

void scale_all_(const std::vector<Tensor>& tensors, double factor) {
  const NoGradGuard guard;
  std::vector<Tensor> dense;
  for (const Tensor& t : tensors)
    if (t.is_non_overlapping_and_dense() && t.is_floating_point())
      dense.push_back(t);
    else
      t.mul_(factor);
  std::vector<bool> taken(dense.size());
  for (auto part = take_device(dense, taken); !part.empty(); part = take_device(dense, taken))
    launch<1>(scale_all_kernel, part, TensorBase(), factor);
  for (const Tensor& t : dense) t.impl()->bump_version();
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  const NoGradGuard guard;
  for (const Tensor& g : gradients_of(parameters)) g.clamp_(-clip_value, clip_value);
}
void clip_grad_value_(const Tensor& parameter, double clip_value) {
  clip_grad_value_(std::vector<Tensor>{parameter}, clip_value);
}

namespace {

void check_one_device(const char* name, const std::vector<Tensor>& parameters) {
  for (const Tensor& p : parameters)
    ATHANOR_CHECK_TYPE(TypeError, p.device() == parameters.front().device(), name, ": Found two parameters on ",
                       "different devices, ", parameters.front().device(), " and ", p.device(),
                       ", this is currently not supported.");
}

}  // namespace

Tensor parameters_to_vector(const std::vector<Tensor>& parameters) {
  ATHANOR_CHECK_VALUE(!parameters.empty(), "parameters_to_vector: got no parameters");
  check_one_device("parameters_to_vector", parameters);
  std::vector<Tensor> parts;
  for (const Tensor& p : parameters) parts.push_back(p.reshape({-1}));
  return cat(parts);
}

void vector_to_parameters(const Tensor& vec, const std::vector<Tensor>& parameters) {
  std::int64_t need = 0;
  for (const Tensor& p : parameters) need += p.numel();
  ATHANOR_CHECK_VALUE(vec.defined() && vec.dim() == 1 && vec.numel() >= need,
                      "vector_to_parameters: expected a vector ", "of at least ", need, " elements, got ", vec);
  check_one_device("vector_to_parameters", parameters);
  const NoGradGuard guard;
  std::int64_t start = 0;
  for (const Tensor& p : parameters) {
    p.set_data(vec.detach().slice(0, start, start + p.numel()).view(p.sizes()));
    start += p.numel();
  }
}

}  // namespace athanor::nn::utils
