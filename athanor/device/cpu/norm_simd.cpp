#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/norm_simd.cpp"
#include "athanor/device/cpu/norm_simd.h"

#include <algorithm>
#include <cmath>

#include "athanor/device/cpu/simd_targets.h"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/moments-inl.h"
#include "athanor/device/cpu/simd_tail-inl.h"
#include "athanor/device/cpu/wide_vectors.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {

/// A parameter: one value, or one per column.
template <class T, bool kColumns>
class Parameter {
 public:
  using D = hn::ScalableTag<T>;
  explicit Parameter(const void* p) : p_(static_cast<const T*>(p)), value_(hn::Set(D(), kColumns ? T(0) : *p_)) {}
  HWY_INLINE hn::Vec<D> at(std::int64_t i) const { return kColumns ? hn::LoadU(D(), p_ + i) : value_; }
  HWY_INLINE hn::Vec<D> tail(std::int64_t i, std::int64_t n) const {
    return kColumns ? load_tail(D(), p_ + i, n) : value_;
  }

 private:
  const T* p_;
  hn::Vec<D> value_;
};

/// Calls body(i, load, store) for whole vectors of [0, n), then for the rest, with functions that load and store at i.
template <class T, class F>
HWY_INLINE void each_piece(std::int64_t n, F&& body) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = hn::MaxLanes(d);
  using V = hn::Vec<decltype(d)>;
  std::int64_t i = 0;
  for (; i + L <= n; i += L)
    body(
        i, [&](const T* p) HWY_ATTR { return hn::LoadU(d, p + i); },
        [&](V v, T* p) HWY_ATTR { hn::StoreU(v, d, p + i); },
        [&](const auto& parameter) HWY_ATTR { return parameter.at(i); });
  if (i < n)
    body(
        i, [&](const T* p) HWY_ATTR { return load_tail(d, p + i, n - i); },
        [&](V v, T* p) HWY_ATTR { store_tail(d, v, p + i, n - i); },
        [&](const auto& parameter) HWY_ATTR { return parameter.tail(i, n - i); });
}

/// True if vectors stored from `out` on may bypass the caches.
template <class T>
HWY_INLINE bool may_stream(const T* out, bool stream) {
  return stream && reinterpret_cast<std::uintptr_t>(out) % (hn::MaxLanes(hn::ScalableTag<T>()) * sizeof(T)) == 0;
}

/// What follows the scaling: nothing, max(0, y), or max(0, y + more); a sum alone does without a loop of its own.
enum class Finish { None, Relu, AddRelu };

template <class T, bool kColumns, Finish kFinish>
HWY_INLINE void affine_loop(T* out, const T* x, const T* more, std::int64_t n, const NormParams& params, bool stream) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = hn::MaxLanes(d);
  const Parameter<T, kColumns> center(params.center), scale(params.scale), shift(params.shift);
  const auto zero = hn::Zero(d);
  const auto value = [&](auto v, auto c, auto s, auto b, [[maybe_unused]] auto r) HWY_ATTR {
    const auto y = hn::MulAdd(hn::Sub(v, c), s, b);
    // Max returns its second operand if one is NaN.
    if constexpr (kFinish == Finish::AddRelu) return hn::Max(zero, hn::Add(y, r));
    if constexpr (kFinish == Finish::Relu) return hn::Max(zero, y);
    return y;
  };
  const auto at = [&](std::int64_t i) HWY_ATTR {
    return value(hn::LoadU(d, x + i), center.at(i), scale.at(i), shift.at(i),
                 kFinish == Finish::AddRelu ? hn::LoadU(d, more + i) : zero);
  };
  std::int64_t i = 0;
  if (may_stream(out, stream))
    for (; i + L <= n; i += L) hn::Stream(at(i), d, out + i);
  for (; i + L <= n; i += L) hn::StoreU(at(i), d, out + i);
  if (i < n) {
    const std::int64_t m = n - i;
    store_tail(d,
               value(load_tail(d, x + i, m), center.tail(i, m), scale.tail(i, m), shift.tail(i, m),
                     kFinish == Finish::AddRelu ? load_tail(d, more + i, m) : zero),
               out + i, m);
  }
}

template <class T, bool kColumns>
void affine(void* out, const void* x, const void* more, std::int64_t n, const NormParams& p, bool relu, bool stream) {
  const auto loop = more   ? affine_loop<T, kColumns, Finish::AddRelu>
                    : relu ? affine_loop<T, kColumns, Finish::Relu>
                           : affine_loop<T, kColumns, Finish::None>;
  loop(static_cast<T*>(out), static_cast<const T*>(x), static_cast<const T*>(more), n, p, stream);
}

/// g where y is positive or NaN, else 0.
template <class V, class D>
HWY_INLINE V gate(D d, V g, V y) {
  return hn::IfThenZeroElse(hn::Le(y, hn::Zero(d)), g);
}

template <class T, bool kColumns>
void gradient(void* dx, const void* grad, const void* in, const void* out, std::int64_t n, const NormParams& params) {
  const hn::ScalableTag<T> d;
  const Parameter<T, kColumns> center(params.center), scale(params.scale), slope(params.slope), shift(params.shift);
  const auto *g = static_cast<const T*>(grad), *x = static_cast<const T*>(in), *y = static_cast<const T*>(out);
  each_piece<T>(n, [&](std::int64_t, auto load, auto store, auto get) HWY_ATTR {
    auto v = load(g);
    if (y) v = gate(d, v, load(y));
    const auto e = hn::Sub(load(x), get(center));
    store(hn::MulAdd(v, get(scale), hn::MulAdd(e, get(slope), get(shift))), static_cast<T*>(dx));
  });
}

template <class T>
void dot_row(double* sums, const void* grad, const void* in, const void* out, std::int64_t n, double center) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kPiece = 256 * static_cast<std::int64_t>(hn::MaxLanes(d));
  const auto c = hn::Set(d, static_cast<T>(center));
  const auto *g = static_cast<const T*>(grad), *x = static_cast<const T*>(in), *y = static_cast<const T*>(out);
  for (std::int64_t b = 0; b < n; b += kPiece) {
    auto s = hn::Zero(d), t = s;
    each_piece<T>(std::min(kPiece, n - b), [&](std::int64_t, auto load, auto, auto) HWY_ATTR {
      auto v = load(g + b);
      if (y) v = gate(d, v, load(y + b));
      s = hn::Add(s, v);
      t = hn::MulAdd(v, hn::Sub(load(x + b), c), t);  // beyond the end v is 0
    });
    sums[0] += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, s)));
    sums[1] += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, t)));
  }
}

template <class T>
void dot_columns(void* sum_g, void* sum_gx, const void* grad, const void* in, const void* out, std::int64_t stride,
                 std::int64_t rows, std::int64_t n, const void* centers) {
  const hn::ScalableTag<T> d;
  auto *s = static_cast<T*>(sum_g), *t = static_cast<T*>(sum_gx);
  const auto* c = static_cast<const T*>(centers);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto *g = static_cast<const T*>(grad) + r * stride, *x = static_cast<const T*>(in) + r * stride;
    const auto* y = out ? static_cast<const T*>(out) + r * stride : nullptr;
    each_piece<T>(n, [&](std::int64_t, auto load, auto store, auto) HWY_ATTR {
      auto v = load(g);
      if (y) v = gate(d, v, load(y));
      store(hn::Add(load(s), v), s);
      store(hn::MulAdd(v, hn::Sub(load(x), load(c)), load(t)), t);
    });
  }
}

template <class T, bool kWeight, bool kBias>
HWY_INLINE void layer_loop(T* out, const T* x, const T* weight, const T* bias, std::int64_t n, T mean, T rstd,
                           std::int64_t ahead, bool stream) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = hn::MaxLanes(d);
  const bool ask = !fetches_across_pages();
  const auto m = hn::Set(d, mean), r = hn::Set(d, rstd);
  const auto value = [&](auto v, auto w, auto b) HWY_ATTR {
    v = hn::Mul(hn::Sub(v, m), r);
    if (kWeight && kBias) return hn::MulAdd(v, w, b);
    if (kWeight) return hn::Mul(v, w);
    return kBias ? hn::Add(v, b) : v;
  };
  const auto at = [&](bool given, const T* p, std::int64_t i) HWY_ATTR { return given ? hn::LoadU(d, p + i) : m; };
  const auto result = [&](std::int64_t i) HWY_ATTR {
    if (ask) hwy::Prefetch(x + ahead + i);  // the memory would be idle while the mean of what is there is worked out
    return value(hn::LoadU(d, x + i), at(kWeight, weight, i), at(kBias, bias, i));
  };
  std::int64_t i = 0;
  if (may_stream(out, stream))
    for (; i + L <= n; i += L) hn::Stream(result(i), d, out + i);
  for (; i + L <= n; i += L) hn::StoreU(result(i), d, out + i);
  if (i < n) {
    const std::int64_t k = n - i;
    const auto w = kWeight ? load_tail(d, weight + i, k) : m, b = kBias ? load_tail(d, bias + i, k) : m;
    store_tail(d, value(load_tail(d, x + i, k), w, b), out + i, k);
  }
}

template <class T>
void layer_row(void* to, const void* from, const void* weight, const void* bias, std::int64_t n, double mean,
               double rstd, std::int64_t ahead, bool stream) {
  auto* out = static_cast<T*>(to);
  const auto *x = static_cast<const T*>(from), *w = static_cast<const T*>(weight), *b = static_cast<const T*>(bias);
  const auto m = static_cast<T>(mean), r = static_cast<T>(rstd);
  if (w && b)
    layer_loop<T, true, true>(out, x, w, b, n, m, r, ahead, stream);
  else if (w)
    layer_loop<T, true, false>(out, x, w, b, n, m, r, ahead, stream);
  else if (b)
    layer_loop<T, false, true>(out, x, w, b, n, m, r, ahead, stream);
  else
    layer_loop<T, false, false>(out, x, w, b, n, m, r, ahead, stream);
}

/// out = (x - mean) * rstd * weight + bias with little besides, since four memory accesses per vector bind already.
template <class T, bool kStream, bool kAsk>
HWY_INLINE void normalise_row(T* HWY_RESTRICT out, const T* HWY_RESTRICT x, const T* HWY_RESTRICT weight,
                              const T* HWY_RESTRICT bias, std::int64_t n, T mean, T rstd) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = hn::MaxLanes(d);
  constexpr std::int64_t kLine = std::max<std::int64_t>(64 / sizeof(T), L);
  // Both with the other sign: then the difference takes x from memory.
  const auto m = hn::Set(d, mean), r = hn::Set(d, -rstd);
  const auto value = [&](auto v, auto w, auto b) HWY_ATTR { return hn::MulAdd(hn::Mul(hn::Sub(m, v), r), w, b); };
  const auto vector = [&](std::int64_t i) HWY_ATTR {
    const auto y = value(hn::LoadU(d, x + i), hn::LoadU(d, weight + i), hn::LoadU(d, bias + i));
    kStream ? hn::Stream(y, d, out + i) : hn::StoreU(y, d, out + i);
  };
  std::int64_t i = 0;
  for (; i + kLine <= n; i += kLine) {
    if (kAsk) hwy::Prefetch(x + n + i);
#pragma GCC unroll 4
    for (std::int64_t k = 0; k < kLine; k += L) vector(i + k);
  }
  for (; i + L <= n; i += L) vector(i);
  if (i < n) {
    const std::int64_t k = n - i;
    store_tail(d, value(load_tail(d, x + i, k), load_tail(d, weight + i, k), load_tail(d, bias + i, k)), out + i, k);
  }
}

/// Rows in step, whole vectors only, asking for as many that follow: memory serves pages in turns faster.
template <int kRows, class T>
HWY_INLINE void stream_rows(T* HWY_RESTRICT out, const T* HWY_RESTRICT x, const T* HWY_RESTRICT weight,
                            const T* HWY_RESTRICT bias, std::int64_t n, const T* mean, const T* rstd) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = hn::MaxLanes(d);
  for (std::int64_t i = 0; i < n; i += L) {
    const auto w = hn::LoadU(d, weight + i), b = hn::LoadU(d, bias + i);
    for (std::int64_t k = 0; k < kRows; ++k) {
      hwy::Prefetch(x + (k + kRows) * n + i);
      const auto e = hn::Sub(hn::LoadU(d, x + k * n + i), hn::Set(d, mean[k]));
      hn::Stream(hn::MulAdd(hn::Mul(e, hn::Set(d, rstd[k])), w, b), d, out + k * n + i);
    }
  }
}

template <class T>
void layer_rows(void* results, const void* rows_of_x, const void* weight, const void* bias, std::int64_t n,
                std::int64_t rows, double eps, double* mean, double* rstd, bool stream) {
  // Two, and the two that follow, leave room in the first cache.
  constexpr std::int64_t L = hn::MaxLanes(hn::ScalableTag<T>()), kInStep = 2, kLongestInStep = 8192 / sizeof(T);
  auto* const out = static_cast<T*>(results);
  const auto *x = static_cast<const T*>(rows_of_x), *w = static_cast<const T*>(weight),
             *b = static_cast<const T*>(bias);
  const bool ask = !fetches_across_pages();
  const MomentsShares<T> shares(n);
  T m[kInStep], r[kInStep];
  const auto measure = [&](std::int64_t first, std::int64_t count) HWY_ATTR {
    for (std::int64_t j = 0; j < count; ++j) {
      const MomentsState s = moments_of_row(x + (first + j) * n, n, shares);
      const double one_over_deviation = 1 / std::sqrt(s.m2 / static_cast<double>(n) + eps);
      mean[first + j] = s.mean;
      rstd[first + j] = one_over_deviation;
      m[j] = static_cast<T>(s.mean);
      r[j] = static_cast<T>(one_over_deviation);
    }
  };
  std::int64_t k = 0;
  if (may_stream(out, stream) && walks_pages_in_step() && n % L == 0 && n <= kLongestInStep)
    for (; k + kInStep <= rows; k += kInStep) {
      measure(k, kInStep);
      stream_rows<kInStep>(out + k * n, x + k * n, w, b, n, m, r);
    }
  for (; k < rows; ++k) {
    measure(k, 1);
    T* const to = out + k * n;
    const T* const from = x + k * n;
    const bool past = may_stream(to, stream);
    if (past && ask)
      normalise_row<T, true, true>(to, from, w, b, n, m[0], r[0]);
    else if (past)
      normalise_row<T, true, false>(to, from, w, b, n, m[0], r[0]);
    else if (ask)
      normalise_row<T, false, true>(to, from, w, b, n, m[0], r[0]);
    else
      normalise_row<T, false, false>(to, from, w, b, n, m[0], r[0]);
  }
}

template <class T>
void layer_gradient_row(void* to, void* dweight, void* dbias, const void* grad, const void* in, const void* weight,
                        std::int64_t n, double mean, double rstd, bool centred) {
  const hn::ScalableTag<T> d;
  const auto *g = static_cast<const T*>(grad), *x = static_cast<const T*>(in), *w = static_cast<const T*>(weight);
  auto *dx = static_cast<T*>(to), *dw = static_cast<T*>(dweight), *db = static_cast<T*>(dbias);
  const auto m = hn::Set(d, static_cast<T>(mean)), r = hn::Set(d, static_cast<T>(rstd));
  auto s0 = hn::Zero(d), s1 = s0;
  each_piece<T>(n, [&](std::int64_t, auto load, auto store, auto) HWY_ATTR {
    const auto v = load(g), h = hn::Mul(hn::Sub(load(x), m), r);
    const auto q = w ? hn::Mul(v, load(w)) : v;
    s0 = hn::Add(s0, q);
    s1 = hn::MulAdd(q, h, s1);
    if (dw) store(hn::MulAdd(v, h, load(dw)), dw);
    if (db) store(hn::Add(load(db), v), db);
  });
  if (!dx) return;
  const auto share = hn::Set(d, T(1) / static_cast<T>(n));
  const auto mean_q = centred ? hn::Mul(hn::SumOfLanes(d, s0), share) : hn::Zero(d);
  const auto mean_qh = hn::Mul(hn::SumOfLanes(d, s1), share);
  each_piece<T>(n, [&](std::int64_t, auto load, auto store, auto) HWY_ATTR {
    const auto v = load(g), h = hn::Mul(hn::Sub(load(x), m), r);
    const auto q = w ? hn::Mul(v, load(w)) : v;
    store(hn::Mul(r, hn::NegMulAdd(h, mean_qh, hn::Sub(q, mean_q))), dx);
  });
}

/// Calls body(j, load, store) for every vector of columns j of a block, with functions that load and store one.
template <class T, class F>
HWY_INLINE void each_column(std::int64_t block, F&& body) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t L = hn::MaxLanes(d);
  using V = hn::Vec<decltype(d)>;
  std::int64_t j = 0;
  for (; j + L <= block; j += L)
    body(
        j, [&](const T* p) HWY_ATTR { return hn::LoadU(d, p); }, [&](V v, T* p) HWY_ATTR { hn::StoreU(v, d, p); });
  if (const std::int64_t rest = block - j)
    body(
        j, [&](const T* p) HWY_ATTR { return load_tail(d, p, rest); },
        [&](V v, T* p) HWY_ATTR { store_tail(d, v, p, rest); });
}

template <class T, Finish kFinish>
HWY_INLINE void affine_blocks_loop(T* out, const T* x, const T* more, std::int64_t n, std::int64_t block,
                                   const NormParams& params, bool stream) {
  const hn::ScalableTag<T> d;
  const auto *center = static_cast<const T*>(params.center), *scale = static_cast<const T*>(params.scale),
             *shift = static_cast<const T*>(params.shift);
  stream = may_stream(out, stream) && block % static_cast<std::int64_t>(hn::MaxLanes(d)) == 0;
  each_column<T>(block, [&](std::int64_t j, auto load, auto store) HWY_ATTR {
    const auto c = load(center + j), s = load(scale + j), b = load(shift + j), zero = hn::Zero(d);
    const auto value = [&](std::int64_t i) HWY_ATTR {
      auto y = hn::MulAdd(hn::Sub(load(x + i), c), s, b);
      if constexpr (kFinish == Finish::AddRelu) y = hn::Add(y, load(more + i));
      return kFinish == Finish::None ? y : hn::Max(zero, y);  // as in affine_loop
    };
    std::int64_t i = j;
    if (stream)
      for (; i < n; i += block) hn::Stream(value(i), d, out + i);
    for (; i < n; i += block) store(value(i), out + i);
  });
}

template <class T>
void affine_blocks(void* out, const void* x, const void* more, std::int64_t n, std::int64_t block, const NormParams& p,
                   bool relu, bool stream) {
  const auto loop = more   ? affine_blocks_loop<T, Finish::AddRelu>
                    : relu ? affine_blocks_loop<T, Finish::Relu>
                           : affine_blocks_loop<T, Finish::None>;
  loop(static_cast<T*>(out), static_cast<const T*>(x), static_cast<const T*>(more), n, block, p, stream);
}

template <class T>
void gradient_blocks(void* dx, const void* grad, const void* in, const void* out, std::int64_t n, std::int64_t block,
                     const NormParams& params) {
  const hn::ScalableTag<T> d;
  const auto *g = static_cast<const T*>(grad), *x = static_cast<const T*>(in), *y = static_cast<const T*>(out);
  const auto *center = static_cast<const T*>(params.center), *scale = static_cast<const T*>(params.scale),
             *slope = static_cast<const T*>(params.slope), *shift = static_cast<const T*>(params.shift);
  each_column<T>(block, [&](std::int64_t j, auto load, auto store) HWY_ATTR {
    const auto c = load(center + j), s = load(scale + j), r = load(slope + j), b = load(shift + j);
    for (std::int64_t i = j; i < n; i += block) {
      auto v = load(g + i);
      if (y) v = gate(d, v, load(y + i));
      store(hn::MulAdd(v, s, hn::MulAdd(hn::Sub(load(x + i), c), r, b)), static_cast<T*>(dx) + i);
    }
  });
}

template <class T>
void moments_blocks(void* mean, void* m2, const void* in, std::int64_t n, std::int64_t block) {
  const hn::ScalableTag<T> d;
  const auto* x = static_cast<const T*>(in);
  const std::int64_t rows = n / block;
  const auto share = hn::Set(d, T(1) / static_cast<T>(rows));
  each_column<T>(block, [&](std::int64_t j, auto load, auto store) HWY_ATTR {
    auto sum = hn::Zero(d), squares = sum;
    for (std::int64_t i = j; i < n; i += block) sum = hn::Add(sum, load(x + i));
    const auto center = hn::Mul(sum, share);
    for (std::int64_t i = j; i < n; i += block) {
      const auto e = hn::Sub(load(x + i), center);
      squares = hn::MulAdd(e, e, squares);
    }
    store(center, static_cast<T*>(mean) + j);
    store(squares, static_cast<T*>(m2) + j);
  });
}

template <class T>
void dot_blocks(void* sum_g, void* sum_gx, const void* grad, const void* in, const void* out, std::int64_t n,
                std::int64_t block, const void* centers) {
  const hn::ScalableTag<T> d;
  const auto *g = static_cast<const T*>(grad), *x = static_cast<const T*>(in), *y = static_cast<const T*>(out);
  each_column<T>(block, [&](std::int64_t j, auto load, auto store) HWY_ATTR {
    const auto c = load(static_cast<const T*>(centers) + j);
    auto s = hn::Zero(d), t = s;
    for (std::int64_t i = j; i < n; i += block) {
      auto v = load(g + i);
      if (y) v = gate(d, v, load(y + i));
      s = hn::Add(s, v);
      t = hn::MulAdd(v, hn::Sub(load(x + i), c), t);
    }
    store(s, static_cast<T*>(sum_g) + j);
    store(t, static_cast<T*>(sum_gx) + j);
  });
}

template <class T>
void fill(NormFns& f) {
  f = {&affine<T, false>,   &affine<T, true>,   &gradient<T, false>, &gradient<T, true>,     &dot_row<T>,
       &dot_columns<T>,     &layer_row<T>,      &layer_rows<T>,      &layer_gradient_row<T>, &affine_blocks<T>,
       &gradient_blocks<T>, &moments_blocks<T>, &dot_blocks<T>};
}
void fill_norm(DType t, NormFns& f) { t == DType::Double ? fill<double>(f) : fill<float>(f); }

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(fill_norm);

const NormFns& norm_fns(DType compute) {
  const auto make = [](DType t) {
    NormFns f{};
    HWY_DYNAMIC_DISPATCH(fill_norm)(t, f);
    return f;
  };
  static const NormFns single = make(DType::Float), wide = make(DType::Double);
  return compute == DType::Double ? wide : single;
}
}  // namespace athanor::cpu
#endif
