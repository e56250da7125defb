// Mean and variance, and log sum exp, of float32 and float64.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/reduce_moments.cpp"
#include <cmath>
#include <limits>

#include "athanor/device/cpu/reduce_core.h"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/moments-inl.h"
#include "athanor/device/cpu/reduce_fold-inl.h"
#include "athanor/device/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {

template <class T>
struct Moments {
  static void init(void* states, std::int64_t n) {
    std::fill_n(static_cast<MomentsState*>(states), n, MomentsState{0, 0, 0});
  }
  static void join(void* states, const void* others, std::int64_t n) {
    auto* s = static_cast<MomentsState*>(states);
    const auto* o = static_cast<const MomentsState*>(others);
    for (std::int64_t i = 0; i < n; ++i) join_moments(s[i], o[i]);
  }
  static void rows(void* states, const void* in, std::int64_t stride, std::int64_t rows, std::int64_t n, double) {
    auto* s = static_cast<MomentsState*>(states);
    const T* p = static_cast<const T*>(in);
    if (n == 0) return;
    const MomentsShares<T> shares(n);
    for (std::int64_t r = 0; r < rows; ++r, p += stride) join_moments(s[r], moments_of_row(p, n, shares));
  }

  static void columns(void* states, const void* in, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                      double) {
    auto* s = static_cast<MomentsState*>(states);
    const T* p = static_cast<const T*>(in);
    T center[kReduceStrip], s1[kReduceStrip], s2[kReduceStrip];
    while (rows > 0) {
      const std::int64_t m = std::min(rows, kFoldRows), head = std::min<std::int64_t>(m, kFoldRows / 8);
      std::fill_n(center, columns, T(0));
      std::fill_n(s1, columns, T(0));
      std::fill_n(s2, columns, T(0));
      for (std::int64_t r = 0; r < head; ++r) add_row(center, p + r * stride, columns);
      for (std::int64_t c = 0; c < columns; ++c) center[c] /= static_cast<T>(head);
      std::int64_t r = 0;
      for (; r + 4 <= m; r += 4) take_rows<4>(s1, s2, center, p + r * stride, stride, columns);
      for (; r < m; ++r) take_rows<1>(s1, s2, center, p + r * stride, stride, columns);
      for (std::int64_t c = 0; c < columns; ++c)
        join_moments(s[c],
                     moments_from_sums(static_cast<double>(m), 1 / static_cast<double>(m), center[c], s1[c], s2[c]));
      p += m * stride;
      rows -= m;
    }
  }

 private:
  static HWY_INLINE void add_row(T* HWY_RESTRICT to, const T* HWY_RESTRICT p, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) to[i] += p[i];
  }
  template <int kRows>
  static HWY_INLINE void take_rows(T* HWY_RESTRICT s1, T* HWY_RESTRICT s2, const T* HWY_RESTRICT center,
                                   const T* HWY_RESTRICT p, std::int64_t stride, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      T a = 0, b = 0;
      for (int r = 0; r < kRows; ++r) {
        const T e = p[r * stride + i] - center[i];
        a += e;
        b += e * e;
      }
      s1[i] += a;
      s2[i] += b;
    }
  }
};

template <class T>
struct LogSumExp {
  static constexpr T kInf = std::numeric_limits<T>::infinity();

  static void init(void* states, std::int64_t n) {
    std::fill_n(static_cast<LogSumExpState*>(states), n, LogSumExpState{-std::numeric_limits<double>::infinity(), 0});
  }
  static void join_one(LogSumExpState& s, const LogSumExpState& o) {
    if (o.sum == 0) return;
    if (s.sum == 0) {
      s = o;
    } else if (o.max > s.max) {
      s = {o.max, s.sum * std::exp(s.max - o.max) + o.sum};
    } else {
      s.sum += o.sum * std::exp(o.max - s.max);
    }
  }
  static void join(void* states, const void* others, std::int64_t n) {
    auto* s = static_cast<LogSumExpState*>(states);
    const auto* o = static_cast<const LogSumExpState*>(others);
    for (std::int64_t i = 0; i < n; ++i) join_one(s[i], o[i]);
  }
  /// What is subtracted before exp: the maximum if it is finite.
  static T center_of(T max) { return max > -kInf && max < kInf ? max : T(0); }

  static LogSumExpState piece(const T* HWY_RESTRICT p, std::int64_t n) {
    const hn::ScalableTag<T> d;
    constexpr std::int64_t L = hn::MaxLanes(d);
    const std::int64_t whole = n / L * L;
    const auto low = hn::Set(d, -kInf);
    const auto inside = hn::FirstN(d, static_cast<std::size_t>(n - whole));
    auto tail = low;
    if (whole < n) tail = hn::IfThenElse(inside, load_tail(d, p + whole, n - whole), low);
    // Max returns its second operand if one is NaN, so these skip NaN; the sum keeps it.
    auto a = hn::Max(tail, low), b = low;
    std::int64_t i = 0;
    for (; i + 2 * L <= n; i += 2 * L) {
      a = hn::Max(hn::LoadU(d, p + i), a);
      b = hn::Max(hn::LoadU(d, p + i + L), b);
    }
    if (i + L <= n) a = hn::Max(hn::LoadU(d, p + i), a);
    const T center = center_of(hn::GetLane(hn::MaxOfLanes(d, hn::Max(a, b))));
    const auto c = hn::Set(d, center);
    auto s = hn::Zero(d), t = s;
    i = 0;
    for (; i + 2 * L <= n; i += 2 * L) {
      s = hn::Add(s, vec_exp(d, hn::Sub(hn::LoadU(d, p + i), c)));
      t = hn::Add(t, vec_exp(d, hn::Sub(hn::LoadU(d, p + i + L), c)));
    }
    if (i + L <= n) s = hn::Add(s, vec_exp(d, hn::Sub(hn::LoadU(d, p + i), c)));
    if (whole < n) t = hn::Add(t, hn::IfThenElseZero(inside, vec_exp(d, hn::Sub(tail, c))));
    return {static_cast<double>(center), static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(s, t))))};
  }

  static void rows(void* states, const void* in, std::int64_t stride, std::int64_t rows, std::int64_t n, double) {
    auto* s = static_cast<LogSumExpState*>(states);
    const T* p = static_cast<const T*>(in);
    for (std::int64_t r = 0; r < rows; ++r, p += stride)
      for (std::int64_t i = 0; i < n; i += kFoldPiece<T>) join_one(s[r], piece(p + i, std::min(kFoldPiece<T>, n - i)));
  }

  static void columns(void* states, const void* in, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                      double) {
    constexpr std::int64_t kRows = 32;
    const hn::ScalableTag<T> d;
    constexpr std::int64_t L = hn::MaxLanes(d);
    auto* s = static_cast<LogSumExpState*>(states);
    const T* p = static_cast<const T*>(in);
    alignas(64) T center[kReduceStrip + L];
    alignas(64) T sum[kReduceStrip + L];
    for (; rows > 0; rows -= kRows, p += kRows * stride) {
      const std::int64_t m = std::min(rows, kRows);
      std::fill_n(center, columns + L, -kInf);
      std::fill_n(sum, columns + L, T(0));
      for (std::int64_t r = 0; r < m; ++r) max_row(center, p + r * stride, columns);
      for (std::int64_t c = 0; c < columns; ++c) center[c] = center_of(center[c]);
      for (std::int64_t r = 0; r < m; ++r) {
        const T* q = p + r * stride;
        std::int64_t c = 0;
        const auto take = [&](auto x) HWY_ATTR {
          const auto e = vec_exp(d, hn::Sub(x, hn::Load(d, center + c)));
          hn::Store(hn::Add(hn::Load(d, sum + c), e), d, sum + c);
        };
        for (; c + L <= columns; c += L) take(hn::LoadU(d, q + c));
        if (c < columns) take(load_tail(d, q + c, columns - c));
      }
      for (std::int64_t c = 0; c < columns; ++c) join_one(s[c], {double(center[c]), double(sum[c])});
    }
  }

 private:
  static HWY_INLINE void max_row(T* HWY_RESTRICT to, const T* HWY_RESTRICT p, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = p[i] > to[i] ? p[i] : to[i];
  }
};

template <template <class> class R, class T>
Reducer reducer_of(std::int64_t size) {
  return {dtype_of_v<T>, DType::Double, size, &R<T>::init, &R<T>::rows, &R<T>::columns, &R<T>::join, nullptr};
}
void fill_moments(DType t, Reducer& r) {
  r = t == DType::Double ? reducer_of<Moments, double>(sizeof(MomentsState))
                         : reducer_of<Moments, float>(sizeof(MomentsState));
}
void fill_logsumexp(DType t, Reducer& r) {
  r = t == DType::Double ? reducer_of<LogSumExp, double>(sizeof(LogSumExpState))
                         : reducer_of<LogSumExp, float>(sizeof(LogSumExpState));
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(fill_moments);
HWY_EXPORT(fill_logsumexp);

Reducer moments_reducer(DType compute) {
  Reducer r{};
  HWY_DYNAMIC_DISPATCH(fill_moments)(compute, r);
  return r;
}
Reducer logsumexp_reducer(DType compute) {
  Reducer r{};
  HWY_DYNAMIC_DISPATCH(fill_logsumexp)(compute, r);
  return r;
}
}  // namespace athanor::cpu
#endif
