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

#include "athanor/device/cpu/half_lanes-inl.h"
#include "athanor/device/cpu/pointwise_tables.h"
#include "athanor/device/cpu/simd_math.h"
#include "athanor/tensor/scalar.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

#undef ATHANOR_VECTOR_OP
#undef ATHANOR_VECTOR_OP_2

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The parameters as T. Integers wrap to T, as PyTorch's scalars do; saturated() brings them into T's range instead.
template <class T>
struct Parameters {
  T p0, p1, p2;
  const LoopParameters& all;

  explicit Parameters(const void* params) : all(*static_cast<const LoopParameters*>(params)) {
    const auto get = [this](int k) HWY_ATTR {
      if constexpr (std::is_same_v<T, float>)
        return all.as_float[k];
      else if constexpr (std::is_same_v<T, double>)
        return all.as_double[k];
      else
        return static_cast<T>(all.as_integer[k]);
    };
    p0 = get(0);
    p1 = get(1);
    p2 = get(2);
  }
  T saturated(int k) const {
    using L = std::numeric_limits<T>;
    return static_cast<T>(std::min<std::int64_t>(std::max<std::int64_t>(all.as_integer[k], L::min()), L::max()));
  }
};

/// What values of T are computed in: float for the halves.
template <class T>
using Computing = std::conditional_t<is_half_v<T>, float, T>;

/// Vectors of computing type, loaded from and stored to memory of type T.
template <class T, class D>
HWY_INLINE hn::Vec<D> load(D d, const T* from) {
  if constexpr (std::is_same_v<T, Half>) {
    return load_halves(d, from);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return hn::PromoteTo(d,
                         hn::LoadU(hn::Rebind<hwy::bfloat16_t, D>(), reinterpret_cast<const hwy::bfloat16_t*>(from)));
  } else {
    return hn::LoadU(d, from);
  }
}

template <class T, class D>
HWY_INLINE void store(D d, hn::Vec<D> v, T* to) {
  if constexpr (std::is_same_v<T, Half>) {
    store_halves(d, v, to);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<std::uint16_t, D> dh;
    const auto bits = hn::BitCast(du, v), upper = hn::ShiftRight<16>(bits);
    const auto rounding = hn::Add(hn::Set(du, 0x7fff), hn::And(upper, hn::Set(du, 1)));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, rounding));
    const auto quiet = hn::Or(upper, hn::Set(du, 0x40));
    const auto nan = hn::RebindMask(du, hn::IsNaN(v));
    hn::StoreU(hn::TruncateTo(dh, hn::IfThenElse(nan, quiet, rounded)), dh, reinterpret_cast<std::uint16_t*>(to));
  } else {
    hn::StoreU(v, d, to);
  }
}

// What a line's length leaves over is a last vector that overlaps the one before it; a line of less than a vector goes
// through a buffer of one. The inputs of the last vector are read first: the output may be one of them.

/// Where a vector can be read whose last, or if there are less than lanes only, elements are those of from[0 … n).
template <class T, std::size_t kLanes>
HWY_INLINE const T* last_vector(T (&lanes)[kLanes], const T* from, std::int64_t n) {
  constexpr auto kAll = static_cast<std::int64_t>(kLanes);
  if (n > kAll) return from + n - kAll;
  std::memset(static_cast<void*>(lanes), 0, sizeof lanes);
  std::memcpy(static_cast<void*>(lanes), from, static_cast<std::size_t>(n) * sizeof(T));
  return lanes;
}

template <class T, class D>
HWY_INLINE void store_last(D d, hn::Vec<D> v, T* to, std::int64_t n) {
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  if (n > kLanes) return store(d, v, to + n - kLanes);
  alignas(64) T lanes[hn::MaxLanes(d)];
  store(d, v, lanes);
  std::memcpy(static_cast<void*>(to), lanes, static_cast<std::size_t>(n) * sizeof(T));
}

/// What LoopFn says of strides that are none.
struct Ahead {
  std::int64_t bytes;          ///< beyond the vector at hand, to ask for; or 0
  std::int64_t first, second;  ///< the same for either input of put_pair: 0 for one that is not asked for
  std::int64_t stream;         ///< not 0 if so; a bool would be moved about in every turn of a loop

  explicit Ahead(const std::int64_t* strides)
      : bytes(strides[0] < 0            ? -strides[0]
              : strides[0] >= kAskAhead ? strides[0]
                                        : 0),
        first(bytes),
        second(bytes),
        stream(strides[0] < 0) {}
};

/// A whole vector of results, past the caches if they stream, with more of the inputs asked for. The compiler is kept
/// from knowing `ahead`, so that it does not make three loops of one.
template <class T, class D, class... In>
HWY_INLINE void put(D d, hn::Vec<D> v, T* to, Ahead& ahead, const In*... in) {
  asm volatile("" : "+r"(ahead.bytes), "+r"(ahead.stream));
  if (ahead.bytes) {
    (hwy::Prefetch(reinterpret_cast<const char*>(in) + ahead.bytes), ...);
    if constexpr (!is_half_v<T>)
      if (ahead.stream) return hn::Stream(v, d, to);
  }
  store(d, v, to);
}

/// An operation that goes through the loop two vectors of float32 at a time with AVX2: all besides it is up to half of
/// the instructions for one, and beside another thread of its core their number binds a processor. Not for those that
/// take another way for rare values: their constants would be loaded for each of both.
template <class Op>
struct InPairs : Op {};
template <class T, class Op>
inline constexpr bool kInPairs = false;
template <class Op>
inline constexpr bool kInPairs<float, InPairs<Op>> = HWY_TARGET == HWY_AVX2;

/// Two vectors of results that follow each other. `in`: one input or two.
template <class T, class D, class... In>
HWY_INLINE void put_pair(D d, hn::Vec<D> v, hn::Vec<D> w, T* to, Ahead& ahead, const In*... in) {
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  asm volatile("" : "+r"(ahead.first), "+r"(ahead.stream));
  if constexpr (sizeof...(in) == 2) asm volatile("" : "+r"(ahead.second));
  // To ask for what is at hand takes less than to ask whether to.
  std::int64_t distance = ahead.first;
  ((hwy::Prefetch(reinterpret_cast<const char*>(in) + distance), distance = ahead.second), ...);
  if (ahead.stream) {
    hn::Stream(v, d, to);
    return hn::Stream(w, d, to + kLanes);
  }
  store(d, v, to);
  store(d, w, to + kLanes);
}

/// Op::apply(d, x, parameters) on dense memory of a floating type T.
template <class T, class Op>
void unary_vectors(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void* params) {
  const hn::ScalableTag<Computing<T>> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  const Parameters<Computing<T>> p(params);
  T* out = reinterpret_cast<T*>(ptrs[0]);
  const T* in = reinterpret_cast<const T*>(ptrs[1]);
  const std::int64_t whole = n / kLanes * kLanes;
  alignas(64) T lanes[hn::MaxLanes(d)];
  hn::Vec<decltype(d)> last = hn::Zero(d);
  if (whole < n) last = Op::apply(d, load(d, last_vector(lanes, in, n)), p);
  Ahead ahead(strides);
  const auto result = [&](std::int64_t i) HWY_ATTR { return Op::apply(d, load(d, in + i), p); };
  std::int64_t i = 0;
  if constexpr (kInPairs<T, Op>)
    for (; i + 2 * kLanes <= whole; i += 2 * kLanes) put_pair(d, result(i), result(i + kLanes), out + i, ahead, in + i);
  for (; i < whole; i += kLanes) put(d, result(i), out + i, ahead, in + i);
  if (whole < n) store_last(d, last, out, n);
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

/// Op::apply(d, a, b, parameters) on memory of a floating type T. An input of stride 0 is read again and again from a
/// vector of copies, so that one loop serves all cases.
template <class T, class Op>
void binary_vectors(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void* params) {
  const hn::ScalableTag<Computing<T>> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  const Parameters<Computing<T>> p(params);
  alignas(64) T copies[2][hn::MaxLanes(d)];
  T* out = reinterpret_cast<T*>(ptrs[0]);
  const T* in[2];
  std::int64_t step[2];
  for (int k = 0; k < 2; ++k) {
    in[k] = reinterpret_cast<const T*>(ptrs[k + 1]);
    step[k] = kLanes;
    if (strides[k + 1] != 0) continue;
    for (T& copy : copies[k]) copy = *in[k];
    in[k] = copies[k];
    step[k] = 0;
  }
  const std::int64_t whole = n / kLanes * kLanes;
  hn::Vec<decltype(d)> last = hn::Zero(d);
  if (whole < n)
    last = Op::apply(d, load(d, step[0] ? last_vector(copies[0], in[0], n) : in[0]),
                     load(d, step[1] ? last_vector(copies[1], in[1], n) : in[1]), p);
  const T *a = in[0], *b = in[1];
  Ahead ahead(strides);
  if (kInPairs<T, Op> && ahead.stream) {
    if (strides[1] < 0) ahead.first = 0;
    if (strides[2] < 0) ahead.second = 0;
  }
  std::int64_t i = 0;
  if constexpr (kInPairs<T, Op>)
    for (; i + 2 * kLanes <= whole; i += 2 * kLanes, a += 2 * step[0], b += 2 * step[1])
      put_pair(d, Op::apply(d, load(d, a), load(d, b), p), Op::apply(d, load(d, a + step[0]), load(d, b + step[1]), p),
               out + i, ahead, a, b);
  for (; i < whole; i += kLanes, a += step[0], b += step[1])
    put(d, Op::apply(d, load(d, a), load(d, b), p), out + i, ahead, a, b);
  if (whole < n) store_last(d, last, out, n);
}

/// The same where each element of one input meets a row of the other; the loop of LoopSpec::row_fn.
template <class T, class Op, bool kFirst>
HWY_INLINE void row_vectors(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void* params) {
  const hn::ScalableTag<T> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
  const Parameters<T> p(params);
  T* out = reinterpret_cast<T*>(ptrs[0]);
  const T *one = reinterpret_cast<const T*>(ptrs[kFirst ? 1 : 2]),
          *in = reinterpret_cast<const T*>(ptrs[kFirst ? 2 : 1]);
  const std::int64_t row = -strides[kFirst ? 1 : 2] / static_cast<std::int64_t>(sizeof(T));
  Ahead ahead(strides);
  for (const T* const end = out + n; out < end;) {
    const auto value = hn::Set(d, *one++);
    const auto result = [&](const T* from) HWY_ATTR {
      return kFirst ? Op::apply(d, value, hn::LoadU(d, from), p) : Op::apply(d, hn::LoadU(d, from), value, p);
    };
    constexpr std::int64_t kStep = kInPairs<T, Op> ? 2 * kLanes : kLanes;
    for (const T* const row_end = out + row; out < row_end; out += kStep, in += kStep) {
      if constexpr (kInPairs<T, Op>)
        put_pair(d, result(in), result(in + kLanes), out, ahead, in);
      else
        put(d, result(in), out, ahead, in);
    }
  }
}
template <class T, class Op>
void binary_rows(char* const* ptrs, const std::int64_t* strides, std::int64_t n, const void* params) {
  strides[1] < 0 ? row_vectors<T, Op, true>(ptrs, strides, n, params)
                 : row_vectors<T, Op, false>(ptrs, strides, n, params);
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
