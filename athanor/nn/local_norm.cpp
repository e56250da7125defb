#include "athanor/nn/local_norm.h"

namespace athanor::nn {

namespace {

/// input / (k + alpha · mean of squares over channels c - before … c + after)^beta, channels outside counting as 0.
Tensor normalized(const Tensor& input, const LocalResponseNormOptions& o, std::int64_t before, std::int64_t after) {
  const std::int64_t n = input.size(0), channels = input.size(1);
  const Tensor squares = (input * input).reshape({n, 1, channels, -1});
  const Tensor padded = constant_pad_nd(squares, {0, 0, before, after});
  const Tensor mean = athanor::avg_pool2d(padded, {o.size(), 1}, std::int64_t{1}).reshape(input.sizes());
  return input / (mean * o.alpha() + o.k()).pow(o.beta());
}

/// Row c: the channels that PyTorch's CrossMapLRN2d sums for channel c. It slides its window, but starts to take leave
/// of channels one step late, so that the first ones stay in it.
Tensor legacy_windows(std::int64_t channels, std::int64_t size) {
  Tensor out = zeros({channels, channels}, kFloat);
  auto* const row = out.data_ptr<float>();
  const std::int64_t reach = (size + 1) / 2;
  for (std::int64_t c = 0; c < channels; ++c) {
    float* const now = row + c * channels;
    if (c == 0) {
      std::fill_n(now, std::min(reach, channels), 1.0F);
      continue;
    }
    std::copy_n(now - channels, channels, now);
    if (c + reach - 1 < channels) now[c + reach - 1] += 1;
    if (c > reach) now[c - reach] -= 1;
  }
  return out;
}

void check_size(const char* name, std::int64_t size) {
  ATHANOR_CHECK_VALUE(size > 0, name, ": size must be positive, got ", size);
}

}  // namespace

namespace functional {

Tensor local_response_norm(const Tensor& input, const LocalResponseNormFuncOptions& o) {
  check_size("local_response_norm", o.size());
  ATHANOR_CHECK_VALUE(input.dim() >= 3, "local_response_norm: Expected 3D or higher dimensionality input (got ",
                      input.dim(), " dimensions), its shape is ", input.sizes());
  if (input.numel() == 0) return input;
  return normalized(input, o, o.size() / 2, (o.size() - 1) / 2);
}

}  // namespace functional

#define ATHANOR_LOCAL_NORM_PRINT(Name)                                                   \
  void Name##Impl::pretty_print(std::ostream& stream) const {                            \
    stream << "torch::nn::" #Name "(" << options.size() << ", alpha=" << options.alpha() \
           << ", beta=" << options.beta() << ", k=" << options.k() << ")";               \
  }
ATHANOR_LOCAL_NORM_PRINT(LocalResponseNorm)
ATHANOR_LOCAL_NORM_PRINT(CrossMapLRN2d)

Tensor LocalResponseNormImpl::forward(const Tensor& input) {
  return in_module(*this, [&] { return functional::local_response_norm(input, options); });
}

Tensor CrossMapLRN2dImpl::forward(const Tensor& input) {
  return in_module(*this, [&] {
    check_size("CrossMapLRN2d", options.size());
    ATHANOR_CHECK_VALUE(input.dim() == 4, "CrossMapLRN2d: Expected input to be 4D, got ", input.dim(),
                        "D instead, its shape is ", input.sizes());
    if (input.numel() == 0) return input;
    const Tensor squares = (input * input).flatten(2);
    const Tensor sums = matmul(legacy_windows(input.size(1), options.size()).to(input.options()), squares);
    const Tensor scale =
        sums.reshape(input.sizes()) * (options.alpha() / static_cast<double>(options.size())) + options.k();
    return input / scale.pow(options.beta());
  });
}
#undef ATHANOR_LOCAL_NORM_PRINT

}  // namespace athanor::nn
