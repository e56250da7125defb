// Steps of a register tile along the inner dimension, compiled once per SIMD target. Included by kernel files after
// hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_GEMM_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_GEMM_STEP_INL_H_
#undef ATHANOR_DEVICE_CPU_GEMM_STEP_INL_H_
#else
#define ATHANOR_DEVICE_CPU_GEMM_STEP_INL_H_
#endif
// clang-format on

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
inline constexpr int kVector = static_cast<int>(HWY_MAX_BYTES / sizeof(T));
/// 28 + 4 registers of AVX-512, 12 + 4 of the others.
inline constexpr int kTileRows = HWY_MAX_BYTES >= 64 ? 14 : 6;
template <class T>
inline constexpr int kTileCols = 2 * kVector<T>;

template <class V>
V mul_add(V a, V b, V c) {
  if constexpr (hwy::IsFloat<hn::TFromV<V>>())
    return hn::MulAdd(a, b, c);
  else
    return hn::Add(hn::Mul(a, b), c);
}

/// sum += a · b, in the register of `sum`: of sixteen registers GCC 12 would have sums change places from step to step
/// of an unrolled loop, some of them by way of memory.
template <class V>
HWY_INLINE void add_product(V a, V b, V& sum) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (std::is_same_v<hn::TFromV<V>, float>)
    asm("vfmadd231ps {%2, %1, %0|%0, %1, %2}" : "+x"(sum.raw) : "x"(a.raw), "x"(b.raw));
  else if constexpr (std::is_same_v<hn::TFromV<V>, double>)
    asm("vfmadd231pd {%2, %1, %0|%0, %1, %2}" : "+x"(sum.raw) : "x"(a.raw), "x"(b.raw));
  else
#endif
    sum = mul_add(a, b, sum);
}

/// A sum of nothing, in a register of its own.
template <class D>
HWY_INLINE hn::Vec<D> empty_sum(D d) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    hn::Vec<D> v;
    asm volatile("vxorps %0, %0, %0" : "=x"(v.raw));
    return v;
  }
#endif
  return hn::Zero(d);
}

/// One step of the inner dimension: row i of a lies at a[i · a_step].
template <class T, int kRows, int kVectors, class V>
HWY_INLINE void add_step(V (&sum)[kRows][kVectors], const T* a, std::int64_t a_step, const T* b) {
  const hn::ScalableTag<T> d;
  V row[kVectors];
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) row[j] = hn::LoadU(d, b + j * kVector<T>);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    const V value = hn::Set(d, a[i * a_step]);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) add_product(value, row[j], sum[i][j]);
  }
}

/// Steps unrolled with AVX2: beside another thread of its core, a processor that has little arithmetic for each
/// instruction is held up by their number.
inline constexpr int kUnrolled = 4;
template <class T, int kRows>
inline constexpr bool kUnrolls = (HWY_TARGET == HWY_AVX2) && std::is_floating_point_v<T> && (kRows >= 4);

#if HWY_TARGET == HWY_AVX2
/// base[step · kScale + kAt] in all lanes, step in bytes: of such addresses GCC 12 would keep the distances of all
/// steps and rows of an unrolled loop, most of them on the stack.
template <int kAt, int kScale, class V, class T>
HWY_INLINE V broadcast_row(const T* base, std::int64_t step) {
  V v;
  if constexpr (sizeof(T) == 4)
    asm("vbroadcastss {%c3(%1,%2,%c4), %0|%0, DWORD PTR [%1+%2*%c4+%c3]}"
        : "=x"(v.raw)
        : "r"(base), "r"(step), "i"(kAt * 4), "i"(kScale),
          "m"(*reinterpret_cast<const T(*)[std::size_t{1} << 40]>(base)));
  else
    asm("vbroadcastsd {%c3(%1,%2,%c4), %0|%0, QWORD PTR [%1+%2*%c4+%c3]}"
        : "=x"(v.raw)
        : "r"(base), "r"(step), "i"(kAt * 8), "i"(kScale),
          "m"(*reinterpret_cast<const T(*)[std::size_t{1} << 40]>(base)));
  return v;
}

/// Step kAt of a turn over rows of a, `step` bytes apart, the upper three at `a`, the others at `lower`.
template <int kAt, class T, int kRows, int kVectors, class V>
HWY_INLINE void add_step_of_rows(V (&sum)[kRows][kVectors], const T* a, const T* lower, std::int64_t step, const T* b) {
  const hn::ScalableTag<T> d;
  V row[kVectors];
#pragma GCC unroll 4
  for (int j = 0; j < kVectors; ++j) row[j] = hn::LoadU(d, b + (kAt * kVectors + j) * kVector<T>);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    const T* const base = i < 3 ? a : lower;
    const V value = i % 3 == 0   ? hn::Set(d, base[kAt])
                    : i % 3 == 1 ? broadcast_row<kAt, 1, V>(base, step)
                                 : broadcast_row<kAt, 2, V>(base, step);
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) add_product(value, row[j], sum[i][j]);
  }
}

/// `steps` of them, whole turns, over a packed panel of b.
template <class T, int kRows, int kVectors, class V>
HWY_INLINE void add_turns_of_rows(V (&sum)[kRows][kVectors], std::int64_t steps, const T* a, std::int64_t a_step,
                                  const T* b) {
  const std::int64_t step = a_step * static_cast<std::int64_t>(sizeof(T));
  const T* lower = a + 3 * a_step;
  asm("" : "+r"(lower));  // a pointer of its own
  static_assert(kUnrolled == 4);
#pragma GCC unroll 1
  for (const T* const end = a + steps; a < end;
       a += kUnrolled, lower += kUnrolled, b += kUnrolled * kVectors * kVector<T>) {
    add_step_of_rows<0>(sum, a, lower, step, b);
    add_step_of_rows<1>(sum, a, lower, step, b);
    add_step_of_rows<2>(sum, a, lower, step, b);
    add_step_of_rows<3>(sum, a, lower, step, b);
  }
}
#endif

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
