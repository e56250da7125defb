#pragma once
/// What the options of layers are made of: fluent setters, one-value-for-all arrays, and the named choices that
/// libtorch writes as torch::kMean, torch::kZeros and so on.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "athanor/base/array_ref.h"

/// Declares member `name##_` with a fluent setter and a getter, both called `name`.
#define ATHANOR_ARG(T, name)                               \
 public:                                                   \
  auto name(T value)->decltype(*this) {                    \
    this->name##_ = std::move(value);                      \
    return *this;                                          \
  }                                                        \
  const T& name() const noexcept { return this->name##_; } \
  T& name() noexcept { return this->name##_; }             \
                                                           \
 private:                                                  \
  T name##_

namespace athanor {

/// D values; a single one stands for all.
template <std::size_t D, class T = std::int64_t>
class ExpandingArray {
 public:
  ExpandingArray(std::initializer_list<T> list) : ExpandingArray(ArrayRef<T>(list.begin(), list.size())) {}
  ExpandingArray(const std::vector<T>& values) : ExpandingArray(ArrayRef<T>(values)) {}
  ExpandingArray(ArrayRef<T> values) {
    ATHANOR_CHECK(values.size() == D, "Expected ", D, " values, but instead got ", values.size());
    for (std::size_t i = 0; i < D; ++i) values_[i] = values[i];
  }
  ExpandingArray(T single) { values_.fill(single); }
  ExpandingArray(const std::array<T, D>& values) : values_(values) {}
  std::array<T, D>& operator*() { return values_; }
  const std::array<T, D>& operator*() const { return values_; }
  std::array<T, D>* operator->() { return &values_; }
  const std::array<T, D>* operator->() const { return &values_; }
  operator ArrayRef<T>() const { return {values_.data(), D}; }
  std::size_t size() const { return D; }

 private:
  std::array<T, D> values_;
};

/// Output sizes of adaptive pooling: an absent one keeps the input's.
template <std::size_t D>
class ExpandingArrayWithOptionalElem {
 public:
  using Element = std::optional<std::int64_t>;
  ExpandingArrayWithOptionalElem(std::initializer_list<Element> list) {
    ATHANOR_CHECK(list.size() == D, "Expected ", D, " values, but instead got ", list.size());
    for (std::size_t i = 0; i < D; ++i) values_[i] = list.begin()[i];
  }
  ExpandingArrayWithOptionalElem(std::int64_t single) { values_.fill(single); }
  ExpandingArrayWithOptionalElem(std::nullopt_t) {}
  ExpandingArrayWithOptionalElem(const std::array<Element, D>& values) : values_(values) {}
  const std::array<Element, D>& operator*() const { return values_; }
  const std::array<Element, D>* operator->() const { return &values_; }

 private:
  std::array<Element, D> values_;
};

namespace detail {
/// "[1, 2]".
void print_list(std::ostream& out, IntArrayRef values);
/// The same, one value without brackets.
void print_expanded(std::ostream& out, IntArrayRef values);
/// "[5, None]".
void print_optional_list(std::ostream& out, const std::optional<std::int64_t>* values, std::size_t count);
}  // namespace detail
template <std::size_t D>
std::ostream& operator<<(std::ostream& out, const ExpandingArray<D>& values) {
  detail::print_expanded(out, values);
  return out;
}
template <std::size_t D>
std::ostream& operator<<(std::ostream& out, const ExpandingArrayWithOptionalElem<D>& values) {
  detail::print_optional_list(out, values->data(), D);
  return out;
}

namespace enumtype {
#define ATHANOR_CHOICE(name)                   \
  struct name {                                \
    static constexpr const char* text = #name; \
  };
ATHANOR_CHOICE(kNone)
ATHANOR_CHOICE(kMean)
ATHANOR_CHOICE(kSum)
ATHANOR_CHOICE(kBatchMean)
ATHANOR_CHOICE(kMax)
ATHANOR_CHOICE(kZeros)
ATHANOR_CHOICE(kReflect)
ATHANOR_CHOICE(kReplicate)
ATHANOR_CHOICE(kCircular)
ATHANOR_CHOICE(kConstant)
ATHANOR_CHOICE(kSame)
ATHANOR_CHOICE(kValid)
ATHANOR_CHOICE(kFanIn)
ATHANOR_CHOICE(kFanOut)
ATHANOR_CHOICE(kLinear)
ATHANOR_CHOICE(kConv1D)
ATHANOR_CHOICE(kConv2D)
ATHANOR_CHOICE(kConv3D)
ATHANOR_CHOICE(kConvTranspose1D)
ATHANOR_CHOICE(kConvTranspose2D)
ATHANOR_CHOICE(kConvTranspose3D)
ATHANOR_CHOICE(kSigmoid)
ATHANOR_CHOICE(kTanh)
ATHANOR_CHOICE(kReLU)
ATHANOR_CHOICE(kGELU)
ATHANOR_CHOICE(kSiLU)
ATHANOR_CHOICE(kMish)
ATHANOR_CHOICE(kLeakyReLU)
ATHANOR_CHOICE(kNearest)
ATHANOR_CHOICE(kNearestExact)
ATHANOR_CHOICE(kBilinear)
ATHANOR_CHOICE(kBicubic)
ATHANOR_CHOICE(kTrilinear)
ATHANOR_CHOICE(kArea)
ATHANOR_CHOICE(kBorder)
ATHANOR_CHOICE(kReflection)
ATHANOR_CHOICE(kLSTM)
ATHANOR_CHOICE(kGRU)
ATHANOR_CHOICE(kRNN_TANH)
ATHANOR_CHOICE(kRNN_RELU)
#undef ATHANOR_CHOICE

/// One of the listed choices; made from any of them, compared with any of them.
template <class... Choices>
class OneOf {
 public:
  template <class C>
  requires(std::is_same_v<C, Choices> || ...) constexpr OneOf(C) : text_(C::text) {}
  template <class C>
  requires(std::is_same_v<C, Choices> || ...) constexpr bool is(C = {}) const {
    return std::string_view(text_) == C::text;
  }
  template <class C>
  requires(std::is_same_v<C, Choices> || ...) friend constexpr bool operator==(const OneOf& a, C) { return a.is(C{}); }
  /// "kMean", "kZeros" …
  std::string name() const { return text_; }

 private:
  const char* text_;
};
}  // namespace enumtype

#define ATHANOR_CHOICE(name) \
  inline constexpr enumtype::name name {}
ATHANOR_CHOICE(kNone);
ATHANOR_CHOICE(kMean);
ATHANOR_CHOICE(kSum);
ATHANOR_CHOICE(kBatchMean);
ATHANOR_CHOICE(kMax);
ATHANOR_CHOICE(kZeros);
ATHANOR_CHOICE(kReflect);
ATHANOR_CHOICE(kReplicate);
ATHANOR_CHOICE(kCircular);
ATHANOR_CHOICE(kConstant);
ATHANOR_CHOICE(kSame);
ATHANOR_CHOICE(kValid);
ATHANOR_CHOICE(kFanIn);
ATHANOR_CHOICE(kFanOut);
ATHANOR_CHOICE(kLinear);
ATHANOR_CHOICE(kConv1D);
ATHANOR_CHOICE(kConv2D);
ATHANOR_CHOICE(kConv3D);
ATHANOR_CHOICE(kConvTranspose1D);
ATHANOR_CHOICE(kConvTranspose2D);
ATHANOR_CHOICE(kConvTranspose3D);
ATHANOR_CHOICE(kSigmoid);
ATHANOR_CHOICE(kTanh);
ATHANOR_CHOICE(kReLU);
ATHANOR_CHOICE(kGELU);
ATHANOR_CHOICE(kSiLU);
ATHANOR_CHOICE(kMish);
ATHANOR_CHOICE(kLeakyReLU);
ATHANOR_CHOICE(kNearest);
ATHANOR_CHOICE(kNearestExact);
ATHANOR_CHOICE(kBilinear);
ATHANOR_CHOICE(kBicubic);
ATHANOR_CHOICE(kTrilinear);
ATHANOR_CHOICE(kArea);
ATHANOR_CHOICE(kBorder);
ATHANOR_CHOICE(kReflection);
ATHANOR_CHOICE(kLSTM);
ATHANOR_CHOICE(kGRU);
ATHANOR_CHOICE(kRNN_TANH);
ATHANOR_CHOICE(kRNN_RELU);
#undef ATHANOR_CHOICE

/// libtorch's numbers of the reductions, for the functions that take one.
namespace Reduction {
enum Reduction { None = 0, Mean = 1, Sum = 2, END };
}

}  // namespace athanor
