#pragma once
/// ArrayRef: a borrowed, read-only run of values, made from vectors, arrays or braces. It does not own its elements:
/// take it as a parameter, never store it. SmallVector: a vector whose first N elements live inside it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "athanor/base/error.h"

namespace athanor {

template <class T, std::size_t N>
class SmallVector;

template <class T>
class ArrayRef {
 public:
  using value_type = T;
  using const_iterator = const T*;
  using iterator = const T*;

  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T* data, std::size_t size) : data_(data), size_(size) {}
  constexpr ArrayRef(const T* begin, const T* end) : data_(begin), size_(static_cast<std::size_t>(end - begin)) {}
  /// One element, as libtorch allows: `x.sum(1)`.
  constexpr ArrayRef(const T& one) : data_(&one), size_(1) {}
  ArrayRef(const std::vector<T>& v) : data_(v.data()), size_(v.size()) {}
  template <std::size_t N>
  constexpr ArrayRef(const std::array<T, N>& a) : data_(a.data()), size_(N) {}
  template <std::size_t N>
  ArrayRef(const SmallVector<T, N>& v) : data_(v.data()), size_(v.size()) {}
  template <std::size_t N>
  constexpr ArrayRef(const T (&a)[N]) : data_(a), size_(N) {}
#pragma GCC diagnostic push
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Winit-list-lifetime"
#endif
  constexpr ArrayRef(std::initializer_list<T> list) : data_(list.begin()), size_(list.size()) {}
#pragma GCC diagnostic pop

  constexpr const T* data() const { return data_; }
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  constexpr const T& operator[](std::size_t i) const { return data_[i]; }
  const T& at(std::size_t i) const {
    ATHANOR_CHECK_INDEX(i < size_, "ArrayRef: index ", i, " is out of range for size ", size_);
    return data_[i];
  }
  constexpr const T& front() const { return data_[0]; }
  constexpr const T& back() const { return data_[size_ - 1]; }
  constexpr ArrayRef slice(std::size_t from, std::size_t count) const { return {data_ + from, count}; }
  constexpr ArrayRef slice(std::size_t from) const { return {data_ + from, size_ - from}; }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
  bool equals(ArrayRef other) const {
    if (size_ != other.size_) return false;
    for (std::size_t i = 0; i < size_; ++i)  // short lists: a call to memcmp would cost more
      if (!(data_[i] == other.data_[i])) return false;
    return true;
  }

 private:
  const T* data_ = nullptr;
  std::size_t size_ = 0;
};

template <class T>
bool operator==(ArrayRef<T> a, ArrayRef<T> b) {
  return a.equals(b);
}
template <class T>
bool operator==(ArrayRef<T> a, const std::vector<T>& b) {
  return a.equals(ArrayRef<T>(b));
}

using IntArrayRef = ArrayRef<std::int64_t>;

inline void append(std::string& out, IntArrayRef values) { detail::append_list(out, values.data(), values.size()); }

/// A list of dims that may be left out: nothing, one dim, braces, or anything that IntArrayRef takes. As ArrayRef, only
/// for parameters.
class OptionalIntArrayRef : public std::optional<IntArrayRef> {
 public:
  constexpr OptionalIntArrayRef() = default;
  constexpr OptionalIntArrayRef(std::nullopt_t) {}
  constexpr OptionalIntArrayRef(const std::int64_t& one) : std::optional<IntArrayRef>(IntArrayRef(one)) {}
  OptionalIntArrayRef(std::initializer_list<std::int64_t> list) : std::optional<IntArrayRef>(IntArrayRef(list)) {}
  template <class L>
  requires(std::is_convertible_v<const L&, IntArrayRef> && !std::is_arithmetic_v<L>) OptionalIntArrayRef(const L& list)
      : std::optional<IntArrayRef>(IntArrayRef(list)) {}
  template <class L>
  requires std::is_convertible_v<const L&, IntArrayRef> OptionalIntArrayRef(const std::optional<L>& list)
      : std::optional<IntArrayRef>(list ? std::optional<IntArrayRef>(IntArrayRef(*list)) : std::nullopt) {}
};

/// Vector of trivially copyable values with room for N inside. Not thread-safe.
template <class T, std::size_t N>
class SmallVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;
  SmallVector() = default;
  explicit SmallVector(std::size_t n, T value = T()) { resize(n, value); }
  SmallVector(std::initializer_list<T> list) { assign(list.begin(), list.end()); }
  SmallVector(ArrayRef<T> r) { assign(r.begin(), r.end()); }
  template <class It>
  requires std::input_iterator<It> SmallVector(It first, It last) { assign(first, last); }
  SmallVector(const SmallVector& o) { assign(o.begin(), o.end()); }
  SmallVector(SmallVector&& o) noexcept { take(o); }
  SmallVector& operator=(const SmallVector& o) {
    if (this != &o) assign(o.begin(), o.end());
    return *this;
  }
  SmallVector& operator=(SmallVector&& o) noexcept {
    if (this != &o) {
      if (data_ != inline_()) delete[] data_;
      take(o);
    }
    return *this;
  }
  ~SmallVector() {
    if (data_ != inline_()) delete[] data_;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T& front() { return data_[0]; }
  const T& front() const { return data_[0]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }
  void clear() { size_ = 0; }
  void pop_back() { --size_; }
  void reserve(std::size_t n) {
    if (n > capacity_) grow(n);
  }
  void push_back(T value) {
    if (size_ == capacity_) grow(size_ * 2);
    data_[size_++] = value;
  }
  void resize(std::size_t n, T value = T()) {
    reserve(n);
    for (std::size_t i = size_; i < n; ++i) data_[i] = value;
    size_ = n;
  }
  void insert(std::size_t at, T value) {
    push_back(value);
    for (std::size_t i = size_ - 1; i > at; --i) data_[i] = data_[i - 1];
    data_[at] = value;
  }
  void erase(std::size_t at) {
    copy_values(data_ + at + 1, data_ + size_, data_ + at);
    --size_;
  }
  template <class It>
  void assign(It first, It last) {
    const auto n = static_cast<std::size_t>(std::distance(first, last));
    reserve(n);
    copy_values(first, last, data_);
    size_ = n;
  }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    if (a.size_ != b.size_) return false;
    for (std::size_t i = 0; i < a.size_; ++i)
      if (!(a.data_[i] == b.data_[i])) return false;
    return true;
  }

 private:
  // <algorithm> would cost every file that includes this.
  template <class It>
  static void copy_values(It first, It last, T* to) {
    for (; first != last; ++first) *to++ = static_cast<T>(*first);
  }
  T* inline_() { return reinterpret_cast<T*>(room_); }
  void take(SmallVector& o) noexcept {
    if (o.data_ == o.inline_()) {
      copy_values(o.begin(), o.end(), inline_());
      data_ = inline_();
      capacity_ = N;
    } else {
      data_ = o.data_;
      capacity_ = o.capacity_;
      o.data_ = o.inline_();
      o.capacity_ = N;
    }
    size_ = o.size_;
    o.size_ = 0;
  }
  void grow(std::size_t n) {
    if (n < N * 2) n = N * 2;
    T* bigger = new T[n];
    copy_values(begin(), end(), bigger);
    if (data_ != inline_()) delete[] data_;
    data_ = bigger;
    capacity_ = n;
  }

  T* data_ = inline_();
  std::size_t size_ = 0;
  std::size_t capacity_ = N;
  alignas(T) unsigned char room_[N * sizeof(T)];  // NOLINT(bugprone-sizeof-expression): T may be a pointer
};

/// Sizes or strides: up to 6 dimensions without an allocation.
using DimVector = SmallVector<std::int64_t, 6>;

}  // namespace athanor
