#include "athanor/nn/init.h"

#include <cmath>
#include <numeric>

#include "athanor/nn/module.h"

namespace athanor::nn::init {

namespace {

double fan(const Tensor& tensor, FanModeType mode) {
  const auto [in, out] = _calculate_fan_in_and_fan_out(tensor);
  return static_cast<double>(mode == kFanIn ? in : out);
}

/// The spread that He's rule asks for; nothing to fill gives 0.
double kaiming_std(const Tensor& tensor, double a, FanModeType mode, NonlinearityType nonlinearity) {
  const double units = fan(tensor, mode);
  return units == 0 ? 0 : calculate_gain(nonlinearity, a) / std::sqrt(units);
}

double xavier_std(const Tensor& tensor, double gain) {
  const auto [in, out] = _calculate_fan_in_and_fan_out(tensor);
  return in + out == 0 ? 0 : gain * std::sqrt(2.0 / static_cast<double>(in + out));
}

/// A float64 copy on the host to compute in, row-major.
std::vector<double> host_values(const Tensor& t) {
  const Tensor c = t.detach().to(TensorOptions(kDouble).device(Device())).contiguous();
  const auto* p = c.numel() ? c.data_ptr<double>() : nullptr;
  return {p, p + c.numel()};
}

void assign(const Tensor& target, std::vector<double>& values, IntArrayRef sizes) {
  if (values.empty()) return;
  Tensor source = empty(sizes, kDouble);
  std::copy(values.begin(), values.end(), source.data_ptr<double>());
  target.copy_(source.view(target.sizes()));
}

/// Q of the QR decomposition of a rows × cols matrix, rows >= cols, with the signs that make R's diagonal positive:
/// Gram-Schmidt done twice, which is as orthogonal as Householder's.
void orthonormalize_columns(std::vector<double>& a, std::size_t rows, std::size_t cols) {
  for (std::size_t j = 0; j < cols; ++j) {
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t k = 0; k < j; ++k) {
        double dot = 0;
        for (std::size_t i = 0; i < rows; ++i) dot += a[i * cols + j] * a[i * cols + k];
        for (std::size_t i = 0; i < rows; ++i) a[i * cols + j] -= dot * a[i * cols + k];
      }
    double norm = 0;
    for (std::size_t i = 0; i < rows; ++i) norm += a[i * cols + j] * a[i * cols + j];
    norm = std::sqrt(norm);
    if (norm == 0) continue;
    for (std::size_t i = 0; i < rows; ++i) a[i * cols + j] /= norm;
  }
}

}  // namespace

double calculate_gain(NonlinearityType nonlinearity, double param) {
  if (nonlinearity == kTanh) return 5.0 / 3.0;
  if (nonlinearity == kReLU) return std::sqrt(2.0);
  if (nonlinearity == kLeakyReLU) return std::sqrt(2.0 / (1 + param * param));
  return 1;
}

std::tuple<std::int64_t, std::int64_t> _calculate_fan_in_and_fan_out(const Tensor& tensor) {
  ATHANOR_CHECK(tensor.dim() >= 2, "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions, ",
                "got shape ", tensor.sizes());
  std::int64_t taps = 1;
  for (std::int64_t d = 2; d < tensor.dim(); ++d) taps *= tensor.size(d);
  return {tensor.size(1) * taps, tensor.size(0) * taps};
}

Tensor constant_(Tensor tensor, Scalar value) {
  const NoGradGuard guard;
  return tensor.fill_(value);
}
Tensor ones_(Tensor tensor) { return constant_(std::move(tensor), 1); }
Tensor zeros_(Tensor tensor) { return constant_(std::move(tensor), 0); }

Tensor eye_(Tensor matrix) {
  const NoGradGuard guard;
  ATHANOR_CHECK(matrix.dim() == 2, "Only tensors with 2 dimensions are supported, got shape ", matrix.sizes());
  matrix.zero_();
  const std::int64_t n = std::min(matrix.size(0), matrix.size(1));
  if (n > 0) matrix.as_strided({n}, {matrix.stride(0) + matrix.stride(1)}, matrix.storage_offset()).fill_(1);
  return matrix;
}

Tensor dirac_(Tensor tensor, std::int64_t groups) {
  const NoGradGuard guard;
  ATHANOR_CHECK(tensor.dim() >= 3 && tensor.dim() <= 5,
                "Only tensors with 3, 4, or 5 dimensions are supported, got shape ", tensor.sizes());
  ATHANOR_CHECK_VALUE(groups > 0 && tensor.size(0) % groups == 0, "dirac_: dim 0 (", tensor.size(0),
                      ") must be divisible by groups (", groups, ")");
  tensor.zero_();
  const std::int64_t per_group = tensor.size(0) / groups, n = std::min(per_group, tensor.size(1));
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t c = 0; c < n; ++c) {
      Tensor kernel = tensor.select(0, g * per_group + c).select(0, c);
      while (kernel.dim() > 0) kernel = kernel.select(0, kernel.size(0) / 2);
      kernel.fill_(1);
    }
  return tensor;
}

Tensor uniform_(Tensor tensor, double low, double high) {
  if (nn::detail::values_come_later()) return tensor;
  const NoGradGuard guard;
  return tensor.uniform_(low, high);
}

Tensor normal_(Tensor tensor, double mean, double std) {
  if (nn::detail::values_come_later()) return tensor;
  const NoGradGuard guard;
  return tensor.normal_(mean, std);
}

Tensor trunc_normal_(Tensor tensor, double mean, double std, double a, double b) {
  const NoGradGuard guard;
  ATHANOR_CHECK_VALUE(a <= b && std > 0, "trunc_normal_: expected a <= b and std > 0, got a=", a, ", b=", b,
                      ", std=", std);
  if (nn::detail::values_come_later()) return tensor;
  const auto cdf = [](double x) { return (1 + std::erf(x / std::sqrt(2.0))) / 2; };
  const double low = cdf((a - mean) / std), high = cdf((b - mean) / std);
  tensor.uniform_(2 * low - 1, 2 * high - 1);
  tensor.erfinv_();
  tensor.mul_(std * std::sqrt(2.0));
  tensor.add_(mean);
  return tensor.clamp_(a, b);
}

Tensor orthogonal_(Tensor tensor, double gain) {
  const NoGradGuard guard;
  ATHANOR_CHECK(tensor.dim() >= 2, "Only tensors with 2 or more dimensions are supported, got shape ", tensor.sizes());
  if (tensor.numel() == 0 || nn::detail::values_come_later()) return tensor;
  const auto rows = static_cast<std::size_t>(tensor.size(0));
  const auto cols = static_cast<std::size_t>(tensor.numel()) / rows;
  const std::size_t tall = std::max(rows, cols), wide = std::min(rows, cols);
  Tensor random = empty({static_cast<std::int64_t>(tall), static_cast<std::int64_t>(wide)}, kDouble);
  random.normal_(0, 1);
  std::vector<double> q = host_values(random);
  orthonormalize_columns(q, tall, wide);
  std::vector<double> out(rows * cols);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < cols; ++j) out[i * cols + j] = gain * (rows < cols ? q[j * wide + i] : q[i * wide + j]);
  assign(tensor, out, {tensor.size(0), static_cast<std::int64_t>(cols)});
  return tensor;
}

Tensor sparse_(Tensor tensor, double sparsity, double std) {
  const NoGradGuard guard;
  ATHANOR_CHECK(tensor.dim() == 2, "Only tensors with 2 dimensions are supported, got shape ", tensor.sizes());
  ATHANOR_CHECK_VALUE(sparsity >= 0 && sparsity <= 1, "sparse_: sparsity must be within [0, 1], got ", sparsity);
  const auto rows = static_cast<std::size_t>(tensor.size(0)), cols = static_cast<std::size_t>(tensor.size(1));
  if (rows * cols == 0 || nn::detail::values_come_later()) return tensor;
  tensor.normal_(0, std);
  std::vector<double> values = host_values(tensor);
  Tensor random = empty({tensor.size(1), tensor.size(0)}, kDouble);
  const std::vector<double> keys = host_values(random.uniform_(0, 1));
  const auto zeros = static_cast<std::size_t>(std::ceil(sparsity * static_cast<double>(rows)));
  std::vector<std::size_t> order(rows);
  for (std::size_t j = 0; j < cols; ++j) {
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](std::size_t x, std::size_t y) { return keys[j * rows + x] < keys[j * rows + y]; });
    for (std::size_t k = 0; k < zeros; ++k) values[order[k] * cols + j] = 0;
  }
  assign(tensor, values, tensor.sizes());
  return tensor;
}

Tensor kaiming_normal_(Tensor tensor, double a, FanModeType mode, NonlinearityType nonlinearity) {
  const double std = kaiming_std(tensor, a, mode, nonlinearity);
  return normal_(std::move(tensor), 0, std);
}
Tensor kaiming_uniform_(Tensor tensor, double a, FanModeType mode, NonlinearityType nonlinearity) {
  const double bound = std::sqrt(3.0) * kaiming_std(tensor, a, mode, nonlinearity);
  return uniform_(std::move(tensor), -bound, bound);
}
Tensor xavier_normal_(Tensor tensor, double gain) {
  const double std = xavier_std(tensor, gain);
  return normal_(std::move(tensor), 0, std);
}
Tensor xavier_uniform_(Tensor tensor, double gain) {
  const double bound = std::sqrt(3.0) * xavier_std(tensor, gain);
  return uniform_(std::move(tensor), -bound, bound);
}

void fan_in_uniform_(const Tensor& bias, const Tensor& weight) {
  if (!bias.defined()) return;
  const double units = fan(weight, kFanIn);
  const double bound = units > 0 ? 1.0 / std::sqrt(units) : 0;
  uniform_(bias, -bound, bound);
}

}  // namespace athanor::nn::init
