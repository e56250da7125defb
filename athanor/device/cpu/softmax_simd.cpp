#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/softmax_simd.cpp"
#include "athanor/device/cpu/softmax_simd.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "athanor/device/cpu/simd_targets.h"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/simd_math.h"
#include "athanor/device/cpu/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {

/// Lines up to this length keep their exponentials in a buffer, so that a result which bypasses the caches is written
/// once only.
inline constexpr std::int64_t kBufferedLine = 4096;

template <class T>
struct Lane {
  static constexpr T kInf = std::numeric_limits<T>::infinity();
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static constexpr std::int64_t L = hn::MaxLanes(D());
};

/// Calls fn(v, i) for the vectors of p[0, n), the last padded with `pad`.
template <class T, class F>
HWY_INLINE void each_vector(const T* p, std::int64_t n, T pad, F&& fn) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = Lane<T>::L;
  std::int64_t i = 0;
  for (; i + L <= n; i += L) fn(hn::LoadU(d, p + i), i);
  if (i < n) fn(hn::IfThenElse(first_lanes(d, n - i), load_tail(d, p + i, n - i), hn::Set(d, pad)), i);
}

/// Stores v at p[i], what lies inside [0, n) of it.
template <class D, class T>
HWY_INLINE void store_at(D d, hn::Vec<D> v, T* p, std::int64_t i, std::int64_t n) {
  if (i + Lane<T>::L <= n)
    hn::StoreU(v, d, p + i);
  else
    store_tail(d, v, p + i, n - i);
}

/// Greatest number; NaN is skipped (the sum of exponentials finds it).
template <class T>
HWY_INLINE T max_of(const T* p, std::int64_t n) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = Lane<T>::L;
  const auto low = hn::Set(d, -Lane<T>::kInf);
  // Max returns its second operand if one is NaN.
  auto a = low, b = low, c = low, e = low;
  std::int64_t i = 0;
  for (; i + 4 * L <= n; i += 4 * L) {
    a = hn::Max(hn::LoadU(d, p + i), a);
    b = hn::Max(hn::LoadU(d, p + i + L), b);
    c = hn::Max(hn::LoadU(d, p + i + 2 * L), c);
    e = hn::Max(hn::LoadU(d, p + i + 3 * L), e);
  }
  each_vector(p + i, n - i, -Lane<T>::kInf, [&](auto x, std::int64_t) HWY_ATTR { a = hn::Max(x, a); });
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(a, b), hn::Max(c, e))));
}

/// Sum of exp(p[i] - max); with `kStore`, the terms go to `to`. Fetches what follows, usually the next line: the
/// exchange between lanes at a line's end would leave the memory idle.
template <bool kStore, class T>
HWY_INLINE T sum_exp(T* to, const T* p, std::int64_t n, T max) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = Lane<T>::L;
  const auto m = hn::Set(d, max);
  auto s0 = hn::Zero(d), s1 = s0;
  std::int64_t i = 0;
  for (; i + 2 * L <= n; i += 2 * L) {
    hwy::Prefetch(p + n + i);
    hwy::Prefetch(p + n + i + L);
    const auto a = vec_exp_flushing(d, hn::Sub(hn::LoadU(d, p + i), m));
    const auto b = vec_exp_flushing(d, hn::Sub(hn::LoadU(d, p + i + L), m));
    if constexpr (kStore) {
      hn::StoreU(a, d, to + i);
      hn::StoreU(b, d, to + i + L);
    }
    s0 = hn::Add(s0, a);
    s1 = hn::Add(s1, b);
  }
  for (; i < n; i += L) {
    const std::int64_t left = n - i;
    const auto x = left >= L ? hn::LoadU(d, p + i) : load_tail(d, p + i, left);
    auto a = vec_exp_flushing(d, hn::Sub(x, m));
    if constexpr (kStore) store_at(d, a, to, i, n);
    if (left < L) a = hn::IfThenElseZero(first_lanes(d, left), a);
    s0 = hn::Add(s0, a);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
}

/// out[i] = fn(vector at in[i]) for n elements, past the caches if `stream`.
template <class T, class F>
HWY_INLINE void map_line(T* out, const T* in, std::int64_t n, bool stream, F&& fn) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = Lane<T>::L;
  std::int64_t i = 0;
  if (stream && n >= 2 * L) {
    constexpr auto kVector = static_cast<std::uintptr_t>(L) * sizeof(T);
    const auto head =
        static_cast<std::int64_t>((kVector - reinterpret_cast<std::uintptr_t>(out) % kVector) % kVector / sizeof(T));
    if (head) store_tail(d, fn(load_tail(d, in, head)), out, head);
    for (i = head; i + L <= n; i += L) hn::Stream(fn(hn::LoadU(d, in + i)), d, out + i);
  } else {
    for (; i + L <= n; i += L) hn::StoreU(fn(hn::LoadU(d, in + i)), d, out + i);
  }
  if (i < n) store_tail(d, fn(load_tail(d, in + i, n - i)), out + i, n - i);
}

/// A line of at most one vector.
template <class T, bool kLog>
HWY_INLINE void short_line(T* out, const T* in, std::int64_t n) {
  const hn::ScalableTag<T> d;
  const auto inside = first_lanes(d, n);
  const auto raw = load_tail(d, in, n);
  const auto low = hn::Set(d, -Lane<T>::kInf);
  const auto x = hn::IfThenElse(inside, raw, low);
  const auto m = hn::MaxOfLanes(d, hn::Max(x, low));
  const auto shifted = hn::Sub(x, m);
  const auto e = hn::IfThenElseZero(inside, vec_exp_flushing(d, shifted));
  const auto sum = hn::SumOfLanes(d, e);
  const auto y = kLog ? hn::Sub(shifted, hn::Set(d, std::log(hn::GetLane(sum)))) : hn::Div(e, sum);
  store_tail(d, y, out, n);
}

template <class T, bool kLog>
void softmax_row(void* to, const void* from, const void*, std::int64_t n, bool stream) {
  const hn::ScalableTag<T> d;
  auto* out = static_cast<T*>(to);
  const auto* in = static_cast<const T*>(from);
  if (n <= Lane<T>::L) return short_line<T, kLog>(out, in, n);
  const T max = max_of(in, n);
  const auto m = hn::Set(d, max);
  if constexpr (kLog) {
    const auto log_sum = hn::Set(d, std::log(sum_exp<false, T>(nullptr, in, n, max)));
    map_line(out, in, n, stream, [&](auto x) HWY_ATTR { return hn::Sub(hn::Sub(x, m), log_sum); });
  } else {
    alignas(64) T buffer[kBufferedLine];
    T* const terms = stream && n <= kBufferedLine ? buffer : out;
    const auto scale = hn::Set(d, T(1) / sum_exp<true>(terms, in, n, max));
    map_line(out, terms, n, stream && terms == buffer, [&](auto e) HWY_ATTR { return hn::Mul(e, scale); });
  }
}

template <class T, bool kLog>
void backward_row(void* to, const void* grad, const void* output, std::int64_t n, bool stream) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = Lane<T>::L;
  auto* out = static_cast<T*>(to);
  const auto* g = static_cast<const T*>(grad);
  const auto* y = static_cast<const T*>(output);
  const auto term = [&](auto gv, auto yv, auto sum)
                        HWY_ATTR { return kLog ? hn::Add(sum, gv) : hn::MulAdd(gv, yv, sum); };
  const auto result = [&](auto gv, auto yv, auto sum) HWY_ATTR {
    return kLog ? hn::NegMulAdd(vec_exp(d, yv), sum, gv) : hn::Mul(yv, hn::Sub(gv, sum));
  };
  auto s0 = hn::Zero(d), s1 = s0;
  std::int64_t i = 0;
  for (; i + 2 * L <= n; i += 2 * L) {
    s0 = term(hn::LoadU(d, g + i), hn::LoadU(d, y + i), s0);
    s1 = term(hn::LoadU(d, g + i + L), hn::LoadU(d, y + i + L), s1);
  }
  for (; i < n; i += L) {
    const std::int64_t m = std::min(L, n - i);
    s0 = term(load_tail(d, g + i, m), load_tail(d, y + i, m), s0);
  }
  const auto sum = hn::SumOfLanes(d, hn::Add(s0, s1));
  i = 0;
  if (stream && n >= 2 * L && reinterpret_cast<std::uintptr_t>(out) % (L * sizeof(T)) == 0) {
    for (; i + L <= n; i += L) hn::Stream(result(hn::LoadU(d, g + i), hn::LoadU(d, y + i), sum), d, out + i);
  } else {
    for (; i + L <= n; i += L) hn::StoreU(result(hn::LoadU(d, g + i), hn::LoadU(d, y + i), sum), d, out + i);
  }
  if (i < n) store_tail(d, result(load_tail(d, g + i, n - i), load_tail(d, y + i, n - i), sum), out + i, n - i);
}

/// Calls fn(x, i, c) for the vectors of each of n rows of w columns; the last vector of a row is padded with zeros.
template <class T, class F>
HWY_INLINE void each_row(const T* p, std::int64_t stride, std::int64_t n, std::int64_t w, F&& fn) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = Lane<T>::L;
  for (std::int64_t i = 0; i < n; ++i) {
    const T* row = p + i * stride;
    std::int64_t c = 0;
    for (; c + L <= w; c += L) fn(hn::LoadU(d, row + c), i, c);
    if (c < w) fn(load_tail(d, row + c, w - c), i, c);
  }
}

template <class T, bool kLog>
void softmax_columns(void* to, std::int64_t out_stride, const void* from, std::int64_t in_stride, const void*,
                     std::int64_t, std::int64_t n, std::int64_t w) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = Lane<T>::L;
  auto* out = static_cast<T*>(to);
  const auto* in = static_cast<const T*>(from);
  alignas(64) T max[kLineStrip + L];
  alignas(64) T sum[kLineStrip + L];
  std::fill_n(max, w + L, -Lane<T>::kInf);
  std::fill_n(sum, w + L, T(0));
  each_row(in, in_stride, n, w, [&](auto x, std::int64_t, std::int64_t c) HWY_ATTR {
    hn::Store(hn::Max(x, hn::Load(d, max + c)), d, max + c);
  });
  each_row(in, in_stride, n, w, [&](auto x, [[maybe_unused]] std::int64_t i, std::int64_t c) HWY_ATTR {
    const auto e = vec_exp_flushing(d, hn::Sub(x, hn::Load(d, max + c)));
    hn::Store(hn::Add(e, hn::Load(d, sum + c)), d, sum + c);
    if constexpr (!kLog) store_at(d, e, out + i * out_stride, c, w);
  });
  for (std::int64_t c = 0; c < w; ++c) sum[c] = kLog ? std::log(sum[c]) : T(1) / sum[c];
  if constexpr (kLog)
    each_row(in, in_stride, n, w, [&](auto x, std::int64_t i, std::int64_t c) HWY_ATTR {
      store_at(d, hn::Sub(hn::Sub(x, hn::Load(d, max + c)), hn::Load(d, sum + c)), out + i * out_stride, c, w);
    });
  else
    each_row(static_cast<const T*>(out), out_stride, n, w, [&](auto e, std::int64_t i, std::int64_t c) HWY_ATTR {
      store_at(d, hn::Mul(e, hn::Load(d, sum + c)), out + i * out_stride, c, w);
    });
}

template <class T, bool kLog>
void backward_columns(void* to, std::int64_t out_stride, const void* grad, std::int64_t grad_stride, const void* output,
                      std::int64_t y_stride, std::int64_t n, std::int64_t w) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = Lane<T>::L;
  auto* out = static_cast<T*>(to);
  const auto* g = static_cast<const T*>(grad);
  const auto* y = static_cast<const T*>(output);
  alignas(64) T sum[kLineStrip + L] = {};
  const auto y_at = [&](std::int64_t i, std::int64_t c) HWY_ATTR {
    return c + L <= w ? hn::LoadU(d, y + i * y_stride + c) : load_tail(d, y + i * y_stride + c, w - c);
  };
  each_row(g, grad_stride, n, w, [&](auto x, std::int64_t i, std::int64_t c) HWY_ATTR {
    const auto s = hn::Load(d, sum + c);
    hn::Store(kLog ? hn::Add(s, x) : hn::MulAdd(x, y_at(i, c), s), d, sum + c);
  });
  each_row(g, grad_stride, n, w, [&](auto x, std::int64_t i, std::int64_t c) HWY_ATTR {
    const auto s = hn::Load(d, sum + c), v = y_at(i, c);
    store_at(d, kLog ? hn::NegMulAdd(vec_exp(d, v), s, x) : hn::Mul(v, hn::Sub(x, s)), out + i * out_stride, c, w);
  });
}

template <class T>
void cross_entropy_row(const void* from, const void* weights, std::int64_t n, bool sum_all, double* lse, double* dot) {
  const hn::ScalableTag<T> d;
  const auto* x = static_cast<const T*>(from);
  const auto* w = static_cast<const T*>(weights);
  const T max = max_of(x, n);
  *lse = static_cast<double>(max) + std::log(static_cast<double>(sum_exp<false, T>(nullptr, x, n, max)));
  if (!sum_all) return;
  auto s = hn::Zero(d);
  each_vector(x, n, T(0), [&](auto v, std::int64_t i) HWY_ATTR {
    if (w) v = hn::Mul(v, i + Lane<T>::L <= n ? hn::LoadU(d, w + i) : load_tail(d, w + i, n - i));
    s = hn::Add(s, v);
  });
  *dot = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, s)));
}

template <class T>
void cross_entropy_backward(void* to, const void* from, const void* weights, std::int64_t n, double lse, double a,
                            double b) {
  const hn::ScalableTag<T> d;
  auto* out = static_cast<T*>(to);
  const auto* x = static_cast<const T*>(from);
  const auto* w = static_cast<const T*>(weights);
  // In two parts: of large logits the first would lose what the classes share.
  const T high = static_cast<T>(lse), low = std::isfinite(high) ? static_cast<T>(lse - static_cast<double>(high)) : 0;
  const auto center = hn::Set(d, high), rest = hn::Set(d, low), scale = hn::Set(d, static_cast<T>(a)),
             less = hn::Set(d, static_cast<T>(b));
  each_vector(x, n, T(0), [&](auto v, std::int64_t i) HWY_ATTR {
    auto part = less;
    if (w) part = hn::Mul(part, i + Lane<T>::L <= n ? hn::LoadU(d, w + i) : load_tail(d, w + i, n - i));
    store_at(d, hn::Sub(hn::Mul(vec_exp(d, hn::Sub(hn::Sub(v, center), rest)), scale), part), out, i, n);
  });
}

template <class T>
void fill_kind(SoftmaxKind kind, LineFns& f) {
  switch (kind) {
    case SoftmaxKind::Softmax:
      f = {&softmax_row<T, false>, &softmax_columns<T, false>};
      return;
    case SoftmaxKind::LogSoftmax:
      f = {&softmax_row<T, true>, &softmax_columns<T, true>};
      return;
    case SoftmaxKind::SoftmaxBackward:
      f = {&backward_row<T, false>, &backward_columns<T, false>};
      return;
    case SoftmaxKind::LogSoftmaxBackward:
      f = {&backward_row<T, true>, &backward_columns<T, true>};
      return;
  }
}
void fill_softmax(SoftmaxKind kind, DType t, LineFns& f) {
  t == DType::Double ? fill_kind<double>(kind, f) : fill_kind<float>(kind, f);
}
void fill_cross_entropy(DType t, CrossEntropyFns& f) {
  if (t == DType::Double)
    f = {&cross_entropy_row<double>, &cross_entropy_backward<double>};
  else
    f = {&cross_entropy_row<float>, &cross_entropy_backward<float>};
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(fill_softmax);
HWY_EXPORT(fill_cross_entropy);

LineFns softmax_fns(SoftmaxKind kind, DType compute) {
  LineFns f{};
  HWY_DYNAMIC_DISPATCH(fill_softmax)(kind, compute, f);
  return f;
}
CrossEntropyFns cross_entropy_fns(DType compute) {
  CrossEntropyFns f{};
  HWY_DYNAMIC_DISPATCH(fill_cross_entropy)(compute, f);
  return f;
}
}  // namespace athanor::cpu
#endif
