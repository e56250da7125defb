#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <sstream>

#include "athanor/autograd/autograd.h"
#include "athanor/nn/nn.h"
#include "athanor/ops/factory.h"

namespace athanor::test {

inline std::vector<double> list(const Tensor& t) {
  const Tensor c = t.detach().to(kDouble).contiguous();
  const auto* p = c.numel() ? c.data_ptr<double>() : nullptr;
  return {p, p + c.numel()};
}

inline void expect_near(const Tensor& actual, const std::vector<double>& expected, double tolerance = 1e-5) {
  const auto a = list(actual);
  ASSERT_EQ(a.size(), expected.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << "at " << i;
}

inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

template <class T>
std::string text_of(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

/// 0, 1, 2, … scaled and shifted.
inline Tensor ramp(IntArrayRef sizes, double scale = 1, double shift = 0) {
  std::int64_t n = 1;
  for (const auto s : sizes) n *= s;
  std::vector<float> v;
  for (std::int64_t i = 0; i < n; ++i) v.push_back(static_cast<float>(static_cast<double>(i) * scale + shift));
  return tensor(v).reshape(sizes);
}

}  // namespace athanor::test
