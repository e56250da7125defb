#pragma once
/// One printing example: a tensor, options and the expected text.

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "athanor/tensor/print.h"

namespace athanor::testing {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

struct Numbers {
  std::vector<double> real;
  std::vector<std::int64_t> whole;
  double start = 0, step = 0;
  bool is_ramp = false;
};
inline Numbers real(std::vector<double> v) { return {std::move(v), {}, 0, 0, false}; }
inline Numbers whole(std::vector<std::int64_t> v) { return {{}, std::move(v), 0, 0, false}; }
inline Numbers ramp(double start, double step) { return {{}, {}, start, step, true}; }

class Case {
 public:
  Case(DType t, std::vector<std::int64_t> sizes, const Numbers& n) : dtype_(t), sizes_(std::move(sizes)) {
    std::int64_t numel = 1;
    strides_.resize(sizes_.size());
    for (std::size_t d = sizes_.size(); d-- > 0;) {
      strides_[d] = numel;
      numel *= sizes_[d];
    }
    numel_ = numel;
    bytes_.resize(static_cast<std::size_t>(numel) * item_size(t) + 8);
    for (std::int64_t i = 0; i < numel; ++i) set(i, n);
  }
  Case& precision(int v) { return options_.precision = v, *this; }
  Case& threshold(std::int64_t v) { return options_.threshold = v, *this; }
  Case& edgeitems(std::int64_t v) { return options_.edgeitems = v, *this; }
  Case& linewidth(std::int64_t v) { return options_.linewidth = v, *this; }
  Case& sci_mode(bool v) { return options_.sci_mode = v, *this; }
  Case& requires_grad() { return suffixes_.requires_grad = true, *this; }
  Case& grad_fn(const char* name) { return suffixes_.grad_fn = name, *this; }
  Case& want(std::string text) { return want_ = std::move(text), *this; }

  View view() const {
    View v;
    v.data = const_cast<char*>(bytes_.data());
    v.sizes = sizes_.data();
    v.strides = strides_.data();
    v.numel = numel_;
    v.dtype = dtype_;
    v.ndim = static_cast<std::int8_t>(sizes_.size());
    return v;
  }
  const PrintOptions& options() const { return options_; }
  const PrintSuffixes& suffixes() const { return suffixes_; }
  const std::string& expected() const { return want_; }

 private:
  void set(std::int64_t i, const Numbers& n) {
    const auto k = static_cast<std::size_t>(i);
    dispatch_all(dtype_, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const double x = n.is_ramp ? n.start + n.step * static_cast<double>(i) : n.real.empty() ? 0 : n.real[k];
      T value;
      if constexpr (is_half_v<T>)
        value = T(static_cast<float>(x));
      else
        value = !n.whole.empty() ? static_cast<T>(n.whole[k]) : static_cast<T>(x);
      std::memcpy(bytes_.data() + k * sizeof(T), &value, sizeof value);
    });
  }

  DType dtype_;
  std::vector<std::int64_t> sizes_, strides_;
  std::int64_t numel_ = 0;
  std::vector<char> bytes_;
  PrintOptions options_;
  PrintSuffixes suffixes_;
  std::string want_;
};

}  // namespace athanor::testing
