// Products with one short side, which would pay more for packing than for arithmetic. Compiled once per SIMD target;
// included by kernel files after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_GEMM_THIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_GEMM_THIN_INL_H_
#undef ATHANOR_DEVICE_CPU_GEMM_THIN_INL_H_
#else
#define ATHANOR_DEVICE_CPU_GEMM_THIN_INL_H_
#endif
// clang-format on

#include "athanor/device/cpu/fold_lanes-inl.h"
#include "athanor/device/cpu/gemm_block.h"
#include "athanor/device/cpu/gemm_finish-inl.h"
#include "athanor/device/cpu/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

/// Dot products kept in registers at once: sixteen registers do for 3 × 4 and what they are made of.
inline constexpr int kThinDotRows = HWY_MAX_BYTES >= 64 ? 4 : 3, kThinDotCols = 4;

/// The n elements at p, less than a vector of them, followed by zeros.
template <class D, class In>
HWY_NOINLINE hn::Vec<D> load_converted(D d, const In* p, std::int64_t n) {
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(d)] = {};
  for (std::int64_t i = 0; i < n; ++i) lanes[i] = convert<hn::TFromD<D>>(p[i]);
  return hn::Load(d, lanes);
}
/// The same without a call where an instruction does it; a tile has up to seven of them.
template <class D, class In>
HWY_INLINE hn::Vec<D> load_few(D d, const In* p, std::int64_t n) {
  if constexpr (std::is_same_v<In, hn::TFromD<D>> && (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3))
    return cpu::HWY_NAMESPACE::load_tail(d, p, n);
  else
    return load_converted(d, p, n);
}

/// Columns of sums that are finished together, rows of which are as far apart.
inline constexpr int kThinDotRun = 64;

template <class T, class V, int kRows, int kCols, int... v>
HWY_INLINE void store_dots(const V (&sum)[kRows][kCols], T* to, std::integer_sequence<int, v...>) {
  const hn::ScalableTag<T> d;
  constexpr int kTogether = kFolded<T>;
  if constexpr (kCols % kTogether == 0) {
    (store_sum_of_blocks(d, fold_sums<T, v * kTogether>(sum),
                         to + v * kTogether / kCols * kThinDotRun + v * kTogether % kCols),
     ...);
  } else {
    T all[sizeof...(v) * kTogether];
    (store_sum_of_blocks(d, fold_sums<T, v * kTogether>(sum), all + v * kTogether), ...);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < kCols; ++j) to[i * kThinDotRun + j] = all[i * kCols + j];
  }
}

/// sums[i·kThinDotRun + j] = dot of row i of a with row j of b, both running along k.
template <class In, class T, int kRows, int kCols>
HWY_NOINLINE void dot_tile(std::int64_t k, const In* HWY_RESTRICT a, std::int64_t a_row, const In* HWY_RESTRICT b,
                           std::int64_t b_col, T* HWY_RESTRICT sums) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  V sum[kRows][kCols];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kCols; ++j) sum[i][j] = hn::Zero(d);
  const auto add = [&](std::int64_t p, const auto& load) HWY_ATTR {
    V row[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) row[i] = load(a + i * a_row + p);
#pragma GCC unroll 8
    for (int j = 0; j < kCols; ++j) {
      const V col = load(b + j * b_col + p);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sum[i][j] = hn::MulAdd(row[i], col, sum[i][j]);
    }
  };
  constexpr std::int64_t kLanes = kVector<T>;
  const std::int64_t left = k % kLanes;
#pragma GCC unroll 1
  for (std::int64_t p = 0; p < k - left; p += kLanes) add(p, [&](const In* from) HWY_ATTR { return load_as(d, from); });
  if (k < kLanes) {
    add(0, [&](const In* from) HWY_ATTR { return load_few(d, from, k); });
  } else if (left > 0) {  // among elements that are in the sums already
    const auto summed = hn::FirstN(d, static_cast<std::size_t>(kLanes - left));
    add(k - kLanes, [&](const In* from) HWY_ATTR { return hn::IfThenZeroElse(summed, load_as(d, from)); });
  }
  store_dots(sum, sums, std::make_integer_sequence<int, folded_vectors<T>(kRows * kCols)>());
}

/// The tile of up to four rows and as many columns as it can take, or one column.
template <class In, class T>
auto pick_dots(std::int64_t rows, bool one) {
  constexpr int kMost = kThinDotRows > 3 ? kThinDotCols : kThinDotCols / 2;  // sums of four rows in registers
  return rows == 1   ? (one ? &dot_tile<In, T, 1, 1> : &dot_tile<In, T, 1, kThinDotCols>)
         : rows == 2 ? (one ? &dot_tile<In, T, 2, 1> : &dot_tile<In, T, 2, kThinDotCols>)
         : rows == 3 ? (one ? &dot_tile<In, T, 3, 1> : &dot_tile<In, T, 3, kThinDotCols>)
                     : (one ? &dot_tile<In, T, 4, 1> : &dot_tile<In, T, 4, kMost>);
}

template <class In, class T>
void dot_block(const GemmProblem& g, const Finish<T, In>& finish) {
  const In *a = static_cast<const In*>(g.a), *b = static_cast<const In*>(g.b);
  HWY_ALIGN T sums[4 * kThinDotRun];
  // Where several tiles of rows read columns of b, these stay in the first cache.
  constexpr std::int64_t kNear = (16 << 10) / static_cast<std::int64_t>(sizeof(In));
  const std::int64_t run =
      g.m <= 4 ? kThinDotRun
               : std::clamp<std::int64_t>(kNear / g.k / kThinDotCols * kThinDotCols, kThinDotCols, kThinDotRun);
  for (std::int64_t j = 0; j < g.n; j += run) {
    const std::int64_t cols = std::min(run, g.n - j);
    for (std::int64_t i = 0, rows = 0; i < g.m; i += rows) {
      rows = g.m - i <= 4 ? g.m - i : kThinDotRows;
      std::int64_t at = 0;
      const auto tiles = [&](auto* tile, std::int64_t width) {
        for (; at + width <= cols; at += width)
          tile(g.k, a + i * g.a_row, g.a_row, b + (j + at) * g.b_col, g.b_col, sums + at);
      };
      // Two by two, four rows would read b, as a rule the longer one, twice.
      tiles(pick_dots<In, T>(rows, false), rows > kThinDotRows ? kThinDotCols / 2 : kThinDotCols);
      tiles(pick_dots<In, T>(rows, true), 1);
      finish(i, j, rows, cols, sums, kThinDotRun);
    }
  }
}

inline constexpr std::int64_t kThinCols = 1024;  // columns of sums that stay in the first-level cache
inline constexpr int kThinSteps = 8;             // rows of b read side by side

/// sums (kRows × cols, rows kThinCols apart) += a (kRows × kSteps) @ rows of b; cols is a multiple of a vector.
template <class In, class T, int kRows, int kSteps>
HWY_INLINE void add_rows(const In* HWY_RESTRICT a, std::int64_t a_row, std::int64_t a_col, const In* HWY_RESTRICT b,
                         std::int64_t b_row, T* HWY_RESTRICT sums, std::int64_t cols) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  T values[kRows][kSteps];
  for (int i = 0; i < kRows; ++i)
    for (int p = 0; p < kSteps; ++p) values[i][p] = convert<T>(a[i * a_row + p * a_col]);
  for (std::int64_t j = 0; j < cols; j += kVector<T>) {
    V sum[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) sum[i] = hn::LoadU(d, sums + i * kThinCols + j);
#pragma GCC unroll 8
    for (int p = 0; p < kSteps; ++p) {
      const V row = load_as(d, b + p * b_row + j);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sum[i] = hn::MulAdd(hn::Set(d, values[i][p]), row, sum[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) hn::StoreU(sum[i], d, sums + i * kThinCols + j);
  }
}

/// A few rows of a by a b that runs along its rows: b is read once, in order.
template <class In, class T, int kRows>
void few_rows(const GemmProblem& g, std::int64_t i, std::int64_t cols, const Finish<T, In>& finish) {
  const In *a = static_cast<const In*>(g.a) + i * g.a_row, *b = static_cast<const In*>(g.b);
  HWY_ALIGN T sums[kRows * kThinCols];
  for (std::int64_t j = 0; j < cols; j += kThinCols) {
    const std::int64_t n = std::min(kThinCols, cols - j);
    for (int r = 0; r < kRows; ++r) std::fill_n(sums + r * kThinCols, n, T(0));
    std::int64_t p = 0;
    for (; p + kThinSteps <= g.k; p += kThinSteps)
      add_rows<In, T, kRows, kThinSteps>(a + p * g.a_col, g.a_row, g.a_col, b + p * g.b_row + j, g.b_row, sums, n);
    for (; p < g.k; ++p)
      add_rows<In, T, kRows, 1>(a + p * g.a_col, g.a_row, g.a_col, b + p * g.b_row + j, g.b_row, sums, n);
    finish(i, j, kRows, n, sums, kThinCols);
  }
}

/// An inner size of at most 4: the output is written row by row.
template <class T, int kSteps>
void few_steps(const GemmProblem& g, std::int64_t cols, const Finish<T, T>& finish) {
  const T *a = static_cast<const T*>(g.a), *b = static_cast<const T*>(g.b);
  const hn::ScalableTag<T> d;
  const bool direct = finish.plain && g.c_col == 1;
  HWY_ALIGN T row[kThinCols];
  for (std::int64_t j = 0; j < cols; j += kThinCols) {
    const std::int64_t n = std::min(kThinCols, cols - j);
    for (std::int64_t i = 0; i < g.m; ++i) {
      T* to = direct ? static_cast<T*>(g.c) + i * g.c_row + j : row;
      const auto first = hn::Set(d, a[i * g.a_row]);
      hn::Vec<decltype(d)> rest[kSteps];
#pragma GCC unroll 4
      for (int p = 1; p < kSteps; ++p) rest[p] = hn::Set(d, a[i * g.a_row + p * g.a_col]);
      for (std::int64_t q = 0; q < n; q += kVector<T>) {
        auto sum = hn::Mul(first, hn::LoadU(d, b + j + q));
#pragma GCC unroll 4
        for (int p = 1; p < kSteps; ++p) sum = hn::MulAdd(rest[p], hn::LoadU(d, b + p * g.b_row + j + q), sum);
        hn::StoreU(sum, d, to + q);
      }
      if (!direct) finish(i, j, 1, n, row, n);
    }
  }
}

template <class In, class T>
void tiles(const GemmProblem& g, const detail::GemmPlan& plan);

template <class In, class T>
void thin_block(const GemmProblem& g, const detail::GemmPlan& plan, const Finish<T, In>& finish) {
  using Form = detail::GemmPlan::Form;
  if (plan.form == Form::Dots) return dot_block<In, T>(g, finish);
  const std::int64_t cols = g.n / kVector<T> * kVector<T>;
  if (plan.form == Form::FewSteps) {
    if constexpr (std::is_same_v<In, T>)
      (g.k == 1   ? few_steps<T, 1>
       : g.k == 2 ? few_steps<T, 2>
       : g.k == 3 ? few_steps<T, 3>
                  : few_steps<T, 4>)(g, cols, finish);
  } else {
    // Two at most where converting a half takes many instructions, which would stand in each function.
    constexpr int kMost = HWY_TARGET == HWY_SSE4 && is_half_v<In> ? 2 : 4;
    for (std::int64_t i = 0; i < g.m; i += kMost) {
      const std::int64_t rows = std::min<std::int64_t>(kMost, g.m - i);
      (rows == 1   ? few_rows<In, T, 1>
       : rows == 2 ? few_rows<In, T, 2>
       : rows == 3 ? few_rows<In, T, kMost - 1>
                   : few_rows<In, T, kMost>)(g, i, cols, finish);
    }
  }
  if (cols == g.n) return;
  GemmProblem rest = g;
  rest.n = g.n - cols;
  rest.b = static_cast<const In*>(g.b) + cols * g.b_col;
  rest.c = static_cast<In*>(g.c) + cols * g.c_col;
  if (g.bias) rest.bias = static_cast<const In*>(g.bias) + cols * g.bias_col;
  tiles<In, T>(rest, plan);
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
