/// Loop templates for the pointwise_*.cpp files. Included once per target, like simd_math.h.
#if defined(ATHANOR_POINTWISE_LOOPS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_POINTWISE_LOOPS_H_
#undef ATHANOR_POINTWISE_LOOPS_H_
#else
#define ATHANOR_POINTWISE_LOOPS_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "athanor/device/cpu/pointwise_tables.h"
#include "athanor/device/cpu/simd_math.h"
#include "athanor/tensor/scalar.h"
#include "hwy/highway.h"

#undef ATHANOR_VECTOR_OP
#undef ATHANOR_VECTOR_OP_2

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// A parameter as T; what an integer cannot hold becomes its nearest value.
template <class T>
T parameter(const Scalar& s) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    using L = std::numeric_limits<T>;
    if (s.isFloatingPoint()) {
      const double x = s.to<double>();
      if (!(x > static_cast<double>(L::min()))) return x == x ? L::min() : T{0};
      return x < static_cast<double>(L::max()) ? static_cast<T>(x) : L::max();
    }
    return static_cast<T>(s.to<std::int64_t>());
  } else {
    return s.to<T>();
  }
}

template <class T>
struct Parameters {
  T p0, p1, p2;
  explicit Parameters(const void* scalars) {
    const auto* s = static_cast<const Scalar*>(scalars);
    p0 = parameter<T>(s[0]);
    p1 = parameter<T>(s[1]);
    p2 = parameter<T>(s[2]);
  }
};

/// The first n < lanes elements at `from`, zeros after them.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_some(D d, const T* from, std::int64_t n) {
#if HWY_TARGET == HWY_AVX3
  return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(n)), d, from);
#else
  alignas(64) T lanes[hn::MaxLanes(d)] = {};
  for (std::int64_t i = 0; i < n; ++i) lanes[i] = from[i];
  return hn::Load(d, lanes);
#endif
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_some(D d, hn::Vec<D> v, T* to, std::int64_t n) {
#if HWY_TARGET == HWY_AVX3
  hn::BlendedStore(v, hn::FirstN(d, static_cast<std::size_t>(n)), d, to);
#else
  alignas(64) T lanes[hn::MaxLanes(d)];
  hn::Store(v, d, lanes);
  for (std::int64_t i = 0; i < n; ++i) to[i] = lanes[i];
#endif
}

/// Op::apply(d, x, parameters) on vectors of a floating type T.
template <class T, class Op>
void unary_vectors(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void* params) {
  const hn::ScalableTag<T> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  const Parameters<T> p(params);
  T* out = reinterpret_cast<T*>(ptrs[0]);
  const T* in = reinterpret_cast<const T*>(ptrs[1]);
  if (strides[1] == 0) {  // only when the caller passes a repeated element
    std::fill_n(out, n, *in);
    in = out;
  }
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(Op::apply(d, hn::LoadU(d, in + i), p), d, out + i);
  if (i < n) store_some(d, Op::apply(d, load_some(d, in + i, n - i), p), out + i, n - i);
}

/// Defines a struct for unary_vectors: `expression` in d (the tag), x (a vector), p (Parameters<T>) and T.
#define ATHANOR_VECTOR_OP(Name, expression)                            \
  struct Name {                                                        \
    template <class D, class V, class P>                               \
    static HWY_INLINE V apply(D d, V x, [[maybe_unused]] const P& p) { \
      using T [[maybe_unused]] = hn::TFromD<D>;                        \
      static_cast<void>(d);                                            \
      return expression;                                               \
    }                                                                  \
  }

/// The same for binary_vectors, in a and b.
#define ATHANOR_VECTOR_OP_2(Name, expression)                               \
  struct Name {                                                             \
    template <class D, class V, class P>                                    \
    static HWY_INLINE V apply(D d, V a, V b, [[maybe_unused]] const P& p) { \
      using T [[maybe_unused]] = hn::TFromD<D>;                             \
      static_cast<void>(d);                                                 \
      return expression;                                                    \
    }                                                                       \
  }

/// Op::apply(d, a, b, parameters) on vectors of a floating type T. An input of stride 0 is read again and again from a
/// vector of copies, so that one loop serves all cases.
template <class T, class Op>
void binary_vectors(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void* params) {
  const hn::ScalableTag<T> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  const Parameters<T> p(params);
  alignas(64) T copies[2][hn::MaxLanes(d)];
  T* out = reinterpret_cast<T*>(ptrs[0]);
  const T* in[2];
  std::int64_t step[2];
  for (int k = 0; k < 2; ++k) {
    in[k] = reinterpret_cast<const T*>(ptrs[k + 1]);
    step[k] = kLanes;
    if (strides[k + 1] != 0) continue;
    hn::Store(hn::Set(d, *in[k]), d, copies[k]);
    in[k] = copies[k];
    step[k] = 0;
  }
  const T *a = in[0], *b = in[1];
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes, a += step[0], b += step[1])
    hn::StoreU(Op::apply(d, hn::LoadU(d, a), hn::LoadU(d, b), p), d, out + i);
  if (i < n) {
    const auto va = step[0] ? load_some(d, a, n - i) : hn::Load(d, a);
    const auto vb = step[1] ? load_some(d, b, n - i) : hn::Load(d, b);
    store_some(d, Op::apply(d, va, vb, p), out + i, n - i);
  }
}

/// out[i] = f(in[i]...) for arithmetic types, left to the compiler to vectorize. An input of stride 0 is spread over a
/// block, so that one loop serves all cases.
template <class Out, class... In, class F, std::size_t... I>
HWY_INLINE void map_dense(char* const* ptrs, const std::int64_t* strides, std::int64_t n, F f,
                          std::index_sequence<I...>) {
  constexpr std::int64_t kSpread = 256;
  alignas(64) char spread[sizeof...(In)][kSpread * 8];
  const bool repeats[] = {(strides[I + 1] == 0)...};
  (static_cast<void>(repeats[I] && (std::fill_n(reinterpret_cast<In*>(spread[I]), std::min(n, kSpread),
                                                *reinterpret_cast<const In*>(ptrs[I + 1])),
                                    true)),
   ...);
  const bool any = (repeats[I] || ...);
  for (std::int64_t begin = 0; begin < n;) {
    const std::int64_t m = any ? std::min(n - begin, kSpread) : n;
    Out* out = reinterpret_cast<Out*>(ptrs[0]) + begin;
    const std::tuple<const In*...> in{
        (repeats[I] ? reinterpret_cast<const In*>(spread[I]) : reinterpret_cast<const In*>(ptrs[I + 1]) + begin)...};
    // An input may be the output itself, element for element: no dependence between iterations.
#pragma GCC ivdep
    for (std::int64_t i = 0; i < m; ++i) out[i] = static_cast<Out>(f(std::get<I>(in)[i]...));
    begin += m;
  }
}
template <class Out, class... In, class F>
HWY_INLINE void map_dense(char* const* ptrs, const std::int64_t* strides, std::int64_t n, F f) {
  map_dense<Out, In...>(ptrs, strides, n, f, std::index_sequence_for<In...>());
}

/// The unsigned type to wrap T's arithmetic in: at least 32 bits, narrower ones would be promoted to (signed) int.
template <class T>
using Unsigned = std::make_unsigned_t<decltype(T{} + 0)>;

/// Calls fn(TypeTag<T>{}, dtype) for each integer type without bool.
template <class F>
HWY_INLINE void for_each_integer(F&& fn) {
  fn(TypeTag<std::uint8_t>{}, DType::Byte);
  fn(TypeTag<std::int8_t>{}, DType::Char);
  fn(TypeTag<std::int16_t>{}, DType::Short);
  fn(TypeTag<std::int32_t>{}, DType::Int);
  fn(TypeTag<std::int64_t>{}, DType::Long);
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
