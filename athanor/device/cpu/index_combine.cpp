#include "athanor/device/cpu/index_combine.h"

#include <limits>
#include <type_traits>

#include "athanor/device/cpu/index_direct.h"

namespace athanor::cpu {
namespace {

template <class T>
using Wide = std::conditional_t<is_half_v<T>, float, T>;

template <class T>
inline bool is_nan(T v) {
  if constexpr (std::is_floating_point_v<T>)
    return v != v;
  else
    return false;
}

template <Combine op, class T>
struct Combiner {
  using W = Wide<T>;
  W scale{};

  explicit Combiner(const void* params) {
    if constexpr (op == Combine::Add) {
      const auto& s = *static_cast<const CombineScale*>(params);
      if constexpr (std::is_floating_point_v<W>)
        scale = static_cast<W>(s.real);
      else
        scale = static_cast<W>(s.whole);
    }
  }

  W combine(W a, W b) const {
    if constexpr (std::is_same_v<T, bool>) {
      if constexpr (op == Combine::Add) return a || (b && scale);
      return op == Combine::Amax ? (a || b) : (a && b);
    } else if constexpr (op == Combine::Add && std::is_floating_point_v<W>) {
      return a + scale * b;
    } else if constexpr (op == Combine::Add) {
      return static_cast<W>(static_cast<std::uint64_t>(a) +
                            static_cast<std::uint64_t>(scale) * static_cast<std::uint64_t>(b));
    } else if constexpr (op == Combine::Multiply && std::is_floating_point_v<W>) {
      return a * b;
    } else if constexpr (op == Combine::Multiply) {
      return static_cast<W>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    } else if constexpr (op == Combine::Amax) {
      return a > b || is_nan(a) ? a : b;
    } else {
      return a < b || is_nan(a) ? a : b;
    }
  }
  void apply(char* base, const char* flat) const {
    const W a = static_cast<W>(load<T>(base)), b = static_cast<W>(load<T>(flat));
    store(base, static_cast<T>(combine(a, b)));
  }
};

template <Combine op, class T>
void combine_elements(char* base, const std::int64_t* offsets, char* flat, std::int64_t flat_stride, std::int64_t n,
                      const void* params) {
  const Combiner<op, T> c(params);
  for (std::int64_t j = 0; j < n; ++j) c.apply(base + offsets[j], flat + j * flat_stride);
}

template <Combine op, class T>
void combine_row(char* base, std::int64_t base_stride, char* flat, std::int64_t flat_stride, std::int64_t n,
                 const void* params) {
  const Combiner<op, T> c(params);
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  if (base_stride == kSize && flat_stride == kSize) {
    char* __restrict b = base;
    const char* __restrict f = flat;
    for (std::int64_t j = 0; j < n; ++j) c.apply(b + j * kSize, f + j * kSize);
  } else {
    for (std::int64_t j = 0; j < n; ++j) c.apply(base + j * base_stride, flat + j * flat_stride);
  }
}

// Sums are what gradients need: they alone get the faster loop.
template <class T>
bool add_direct(char* base, const IndexGrid& grid, const IndexOperand& operand, char* flat, std::int64_t flat_stride,
                std::int64_t flat_row_stride, const void* params) {
  const Combiner<Combine::Add, T> c(params);
  return direct_loop<sizeof(T)>(base, grid, operand, flat, flat_stride, flat_row_stride,
                                [c](char* b, char* f) { c.apply(b, f); });
}

template <Combine op>
IndexAction action_of(DType t) {
  return dispatch_all(t, [](auto tag) {
    using T = typename decltype(tag)::type;
    IndexAction a{&combine_elements<op, T>, &combine_row<op, T>, nullptr, nullptr, nullptr};
    if constexpr (op == Combine::Add) a.direct = &add_direct<T>;
    return a;
  });
}

}  // namespace

IndexAction combine_action(Combine op, DType t, const CombineScale* scale) {
  IndexAction a;
  switch (op) {
    case Combine::Add:
      a = action_of<Combine::Add>(t);
      break;
    case Combine::Multiply:
      a = action_of<Combine::Multiply>(t);
      break;
    case Combine::Amax:
      a = action_of<Combine::Amax>(t);
      break;
    case Combine::Amin:
      a = action_of<Combine::Amin>(t);
      break;
  }
  a.params = scale;
  return a;
}

Scalar combine_identity(Combine op, DType t) {
  if (op == Combine::Add) return Scalar(0);
  if (op == Combine::Multiply) return Scalar(1);
  return dispatch_all(t, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr bool kInfinite = is_floating_v<T>;
    if (op == Combine::Amax)
      return kInfinite ? Scalar(-std::numeric_limits<double>::infinity()) : Scalar(std::numeric_limits<T>::lowest());
    return kInfinite ? Scalar(std::numeric_limits<double>::infinity()) : Scalar(std::numeric_limits<T>::max());
  });
}

}  // namespace athanor::cpu
