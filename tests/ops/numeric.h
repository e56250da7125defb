#pragma once
/// Helpers of op tests: repeatable values, comparison with plain loops, gradients against central differences.

#include <gtest/gtest.h>

#include <functional>

#include "athanor/autograd/autograd.h"
#include "athanor/ops/factory.h"

namespace athanor::test {

/// Values in [-1, 1), the same for the same seed; strides as given (row-major if empty).
inline Tensor values(IntArrayRef sizes, DType dtype = kDouble, unsigned seed = 1) {
  std::vector<double> v;
  std::uint64_t state = seed * 2654435761U + 12345;
  std::int64_t n = 1;
  for (const auto s : sizes) n *= s;
  for (std::int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    v.push_back(static_cast<double>(state >> 11) / static_cast<double>(1ULL << 52) - 1.0);
  }
  if (!is_floating_point(dtype))
    for (double& x : v) x = std::floor(x * 8);
  return tensor(v, kDouble).to(dtype).reshape(sizes);
}

inline std::vector<double> list(const Tensor& t) {
  const Tensor c = t.detach().to(kDouble).contiguous();
  const auto* p = c.numel() ? c.data_ptr<double>() : nullptr;
  return {p, p + c.numel()};
}

inline void expect_close(const Tensor& actual, const Tensor& expected, double rtol = 1e-5, double atol = 1e-6) {
  ASSERT_EQ(actual.sizes().vec(), expected.sizes().vec());
  const auto a = list(actual), e = list(expected);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(e[i]) && std::isnan(a[i])) continue;
    if (a[i] == e[i]) continue;
    ASSERT_LE(std::abs(a[i] - e[i]), atol + rtol * std::abs(e[i])) << "at " << i << ": " << a[i] << " != " << e[i];
  }
}

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

/// Compares the gradients of weighted sums of f with central differences, for float64 inputs that require grad.
inline void gradcheck(const Function& f, const std::vector<Tensor>& inputs, double eps = 1e-6, double atol = 1e-5,
                      double rtol = 1e-3) {
  const Tensor out = f(inputs);
  const Tensor weight = values(out.sizes(), kDouble, 77);
  std::vector<Tensor> wanted;
  for (const Tensor& x : inputs)
    if (x.defined() && x.requires_grad()) wanted.push_back(x);
  const auto grads = autograd::grad({(out * weight).sum()}, wanted, {}, false, false, true);
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const Tensor x = wanted[k];
    ASSERT_TRUE(x.is_contiguous());
    const std::vector<double> g = grads[k].defined() ? list(grads[k]) : std::vector<double>(x.numel(), 0.0);
    auto* p = x.data_ptr<double>();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const NoGradGuard guard;
      const double keep = p[i];
      p[i] = keep + eps;
      const double up = (f(inputs) * weight).sum().item<double>();
      p[i] = keep - eps;
      const double down = (f(inputs) * weight).sum().item<double>();
      p[i] = keep;
      const double numeric = (up - down) / (2 * eps);
      ASSERT_LE(std::abs(g[static_cast<std::size_t>(i)] - numeric), atol + rtol * std::abs(numeric))
          << "input " << k << ", element " << i << ": " << g[static_cast<std::size_t>(i)] << " != " << numeric;
    }
  }
}

/// The same for the gradients of f, as functions of the inputs and of the incoming gradient.
inline void gradgradcheck(const Function& f, const std::vector<Tensor>& inputs) {
  const Tensor probe = f(inputs);
  Tensor incoming = values(probe.sizes(), kDouble, 99);
  incoming.requires_grad_();
  std::vector<Tensor> all = inputs;
  all.push_back(incoming);
  const Function second = [&](const std::vector<Tensor>& in) {
    const AutoGradMode recording(true);
    const std::vector<Tensor> own(in.begin(), in.end() - 1);
    std::vector<Tensor> wanted;
    for (const Tensor& x : own)
      if (x.defined() && x.requires_grad()) wanted.push_back(x);
    const auto grads = autograd::grad({f(own)}, wanted, {in.back()}, true, true, true);
    Tensor total;
    for (std::size_t k = 0; k < grads.size(); ++k) {
      if (!grads[k].defined()) continue;
      const Tensor part = (grads[k] * values(grads[k].sizes(), kDouble, 55 + static_cast<unsigned>(k))).sum();
      total = total.defined() ? total + part : part;
    }
    return total;
  };
  gradcheck(second, all);
}

inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace athanor::test
