// Sums, products and extremes of integers.
#define ATHANOR_NO_AVX512
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/reduce_int.cpp"
#include <limits>

#include "athanor/device/cpu/reduce_core.h"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "athanor/device/cpu/reduce_fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::cpu::HWY_NAMESPACE {

struct SumInt {
  using Elem = std::int64_t;
  using State = std::int64_t;
  explicit SumInt(double) {}
  static Elem identity() { return 0; }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V combine(D, V a, V b) {
    return hn::Add(a, b);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V accumulate(D, V a, V b) {
    return hn::Add(a, b);
  }
  static Elem join(Elem a, Elem b) {
    return static_cast<Elem>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
};

template <class T, bool kMax>
struct ExtremeInt {
  using Elem = T;
  using State = T;
  explicit ExtremeInt(double) {}
  static T identity() { return kMax ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max(); }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V combine(D, V a, V b) {
    return kMax ? hn::Max(a, b) : hn::Min(a, b);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V accumulate(D d, V a, V b) {
    return combine(d, a, b);
  }
  static T join(T a, T b) { return (kMax ? b > a : b < a) ? b : a; }
};

/// Products wrap; not every instruction set multiplies 64-bit lanes, so these loops are the compiler's.
struct ProdInt {
  static constexpr std::int64_t kLanes = 16;
  static void init(void* states, std::int64_t n) { std::fill_n(static_cast<std::uint64_t*>(states), n, 1U); }
  static void join(void* states, const void* others, std::int64_t n) {
    multiply(static_cast<std::uint64_t*>(states), static_cast<const std::uint64_t*>(others), n);
  }
  static void rows(void* states, const void* in, std::int64_t stride, std::int64_t rows, std::int64_t n, double) {
    auto* s = static_cast<std::uint64_t*>(states);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::uint64_t* p = static_cast<const std::uint64_t*>(in) + r * stride;
      std::uint64_t lanes[kLanes];
      std::fill_n(lanes, kLanes, 1U);
      for (std::int64_t i = 0; i < n; i += kLanes) multiply(lanes, p + i, std::min(kLanes, n - i));
      for (const auto lane : lanes) s[r] *= lane;
    }
  }
  static void columns(void* states, const void* in, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                      double) {
    for (std::int64_t r = 0; r < rows; ++r)
      multiply(static_cast<std::uint64_t*>(states), static_cast<const std::uint64_t*>(in) + r * stride, columns);
  }

 private:
  static HWY_INLINE void multiply(std::uint64_t* HWY_RESTRICT to, const std::uint64_t* HWY_RESTRICT by,
                                  std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) to[i] *= by[i];
  }
};

template <class T>
Reducer extreme(Fold fold) {
  constexpr DType t = dtype_of_v<T>;
  return fold == Fold::Max ? make_reducer<ExtremeInt<T, true>>(t, t) : make_reducer<ExtremeInt<T, false>>(t, t);
}

void fill_int(Fold fold, DType compute, Reducer& r) {
  if (fold == Fold::Sum) {
    r = make_reducer<SumInt>(DType::Long, DType::Long);
  } else if (fold == Fold::Prod) {
    r = {DType::Long, DType::Long, 8, &ProdInt::init, &ProdInt::rows, &ProdInt::columns, &ProdInt::join, nullptr};
  } else {
    switch (compute) {
      case DType::Byte:
        r = extreme<std::uint8_t>(fold);
        return;
      case DType::Char:
        r = extreme<std::int8_t>(fold);
        return;
      case DType::Short:
        r = extreme<std::int16_t>(fold);
        return;
      case DType::Int:
        r = extreme<std::int32_t>(fold);
        return;
      default:
        r = extreme<std::int64_t>(fold);
        return;
    }
  }
}

}  // namespace athanor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor::cpu {
HWY_EXPORT(fill_int);

Reducer integer_reducer(Fold fold, DType compute) {
  Reducer r{};
  HWY_DYNAMIC_DISPATCH(fill_int)(fold, compute, r);
  return r;
}
}  // namespace athanor::cpu
#endif
