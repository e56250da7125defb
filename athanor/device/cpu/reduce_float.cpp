// Sums, products and extremes of float32 and float64.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/reduce_float.cpp"
#include <cmath>
#include <limits>

#include "athanor/device/cpu/reduce_core.h"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/reduce_fold-inl.h"
#include "athanor/device/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {

template <class T>
struct SumBase {
  using Elem = T;
  using State = double;
  static T identity() { return 0; }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V combine(D, V a, V b) {
    return hn::Add(a, b);
  }
  static double join(double a, double b) { return a + b; }
};

template <class T>
struct SumOp : SumBase<T> {
  explicit SumOp(double) {}
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V accumulate(D, V acc, V x) {
    return hn::Add(acc, x);
  }
};

template <class T>
struct SumAbsOp : SumBase<T> {
  explicit SumAbsOp(double) {}
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V accumulate(D, V acc, V x) {
    return hn::Add(acc, hn::Abs(x));
  }
};

template <class T>
struct SumSquaresOp : SumBase<T> {
  explicit SumSquaresOp(double) {}
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V accumulate(D, V acc, V x) {
    return hn::MulAdd(x, x, acc);
  }
};

template <class T>
struct SumPowersOp : SumBase<T> {
  T power;
  explicit SumPowersOp(double p) : power(static_cast<T>(p)) {}
  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V accumulate(D d, V acc, V x) const {
    return hn::Add(acc, library_pow(d, hn::Abs(x), hn::Set(d, power)));
  }
};

template <class T>
struct ProdOp {
  using Elem = T;
  using State = double;
  explicit ProdOp(double) {}
  static T identity() { return 1; }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V combine(D, V a, V b) {
    return hn::Mul(a, b);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V accumulate(D, V acc, V x) {
    return hn::Mul(acc, x);
  }
  static double join(double a, double b) { return a * b; }
};

/// The greater (or less) of two; NaN if either is.
template <class T, bool kMax, bool kAbs>
struct ExtremeOp {
  using Elem = T;
  using State = T;
  explicit ExtremeOp(double) {}
  static T identity() {
    if (kMax) return kAbs ? T(0) : -std::numeric_limits<T>::infinity();
    return std::numeric_limits<T>::infinity();
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V combine(D, V a, V b) {
    // Max and Min return their second operand if one is NaN.
    return hn::IfThenElse(hn::IsNaN(b), b, kMax ? hn::Max(b, a) : hn::Min(b, a));
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V accumulate(D d, V acc, V x) {
    return combine(d, acc, kAbs ? hn::Abs(x) : x);
  }
  static T join(T a, T b) { return (kMax ? b > a : b < a) || b != b ? b : a; }
};

template <class T>
struct NanSum {
  static void init(void* states, std::int64_t n) {
    std::fill_n(static_cast<NanSumState*>(states), n, NanSumState{0, 0});
  }
  static void join(void* states, const void* others, std::int64_t n) {
    auto* s = static_cast<NanSumState*>(states);
    const auto* o = static_cast<const NanSumState*>(others);
    for (std::int64_t i = 0; i < n; ++i) {
      s[i].sum += o[i].sum;
      s[i].count += o[i].count;
    }
  }
  static constexpr std::int64_t kLanes = 64;
  static void rows(void* states, const void* in, std::int64_t stride, std::int64_t rows, std::int64_t n, double) {
    auto* s = static_cast<NanSumState*>(states);
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* p = static_cast<const T*>(in) + r * stride;
      for (std::int64_t b = 0; b < n; b += kFoldPiece<T>) {
        const std::int64_t m = std::min(kFoldPiece<T>, n - b);
        T sum[kLanes] = {};
        std::int32_t count[kLanes] = {};
        for (std::int64_t i = 0; i < m; i += kLanes) take(sum, count, p + b + i, std::min(kLanes, m - i));
        double total = 0;
        for (std::int64_t i = 0; i < kLanes; ++i) {
          total += sum[i];
          s[r].count += count[i];
        }
        s[r].sum += total;
      }
    }
  }
  static void columns(void* states, const void* in, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                      double) {
    auto* s = static_cast<NanSumState*>(states);
    T sum[kReduceStrip];
    std::int32_t count[kReduceStrip];
    for (std::int64_t b = 0; b < rows; b += kFoldRows) {
      std::fill_n(sum, columns, T(0));
      std::fill_n(count, columns, 0);
      for (std::int64_t r = b; r < std::min(rows, b + kFoldRows); ++r)
        take(sum, count, static_cast<const T*>(in) + r * stride, columns);
      for (std::int64_t c = 0; c < columns; ++c) {
        s[c].sum += sum[c];
        s[c].count += count[c];
      }
    }
  }

 private:
  static HWY_INLINE void take(T* HWY_RESTRICT sum, std::int32_t* HWY_RESTRICT count, const T* HWY_RESTRICT p,
                              std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const bool number = p[i] == p[i];
      sum[i] += number ? p[i] : T(0);
      count[i] += number;
    }
  }
};

template <class T>
void fill_floating(Fold fold, Reducer& r) {
  constexpr DType t = dtype_of_v<T>;
  switch (fold) {
    case Fold::Sum:
      r = make_reducer<SumOp<T>>(t, DType::Double);
      return;
    case Fold::Prod:
      r = make_reducer<ProdOp<T>>(t, DType::Double);
      return;
    case Fold::SumAbs:
      r = make_reducer<SumAbsOp<T>>(t, DType::Double);
      return;
    case Fold::SumSquares:
      r = make_reducer<SumSquaresOp<T>>(t, DType::Double);
      return;
    case Fold::SumPowers:
      r = make_reducer<SumPowersOp<T>>(t, DType::Double);
      return;
    case Fold::Max:
      r = make_reducer<ExtremeOp<T, true, false>>(t, t);
      return;
    case Fold::Min:
      r = make_reducer<ExtremeOp<T, false, false>>(t, t);
      return;
    case Fold::MaxAbs:
      r = make_reducer<ExtremeOp<T, true, true>>(t, t);
      return;
    case Fold::MinAbs:
      r = make_reducer<ExtremeOp<T, false, true>>(t, t);
      return;
    case Fold::NanSum:
      r = {t,
           DType::Double,
           sizeof(NanSumState),
           &NanSum<T>::init,
           &NanSum<T>::rows,
           &NanSum<T>::columns,
           &NanSum<T>::join,
           nullptr};
      return;
    default:
      return;
  }
}
void fill_float(Fold fold, Reducer& r) { fill_floating<float>(fold, r); }
void fill_double(Fold fold, Reducer& r) { fill_floating<double>(fold, r); }

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(fill_float);
HWY_EXPORT(fill_double);

Reducer float_reducer(Fold fold) {
  Reducer r{};
  HWY_DYNAMIC_DISPATCH(fill_float)(fold, r);
  return r;
}
Reducer double_reducer(Fold fold) {
  Reducer r{};
  HWY_DYNAMIC_DISPATCH(fill_double)(fold, r);
  return r;
}
}  // namespace athanor::cpu
#endif
