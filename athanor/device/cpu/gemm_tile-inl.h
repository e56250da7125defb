// Register tiles and packing of the blocked products, compiled once per SIMD target. Included by kernel files after
// hwy/highway.h.
//
// A tile of kTileRows × kTileCols sums stays in registers while the inner dimension passes by: each step loads two
// vectors of b and multiplies them by broadcast values of a (the scheme of Goto and van de Geijn, "Anatomy of
// High-Performance Matrix Multiplication", 2008).

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_GEMM_TILE_INL_H_
#undef ATHANOR_DEVICE_CPU_GEMM_TILE_INL_H_
#else
#define ATHANOR_DEVICE_CPU_GEMM_TILE_INL_H_
#endif
// clang-format on

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "athanor/base/half.h"
#include "athanor/device/cpu/gemm_step-inl.h"
#include "athanor/device/cpu/half_lanes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Steps by which a tile asks for its operands ahead of their use.
inline constexpr int kAhead = 16;
/// Steps before its end when a tile asks for its output: asked for from the start, the lines would leave the first
/// cache again before they are written, and hold up the operands.
inline constexpr int kOutputAhead = 8 * kTileRows;

/// Elements of a cache line.
template <class T>
inline constexpr std::int64_t kLine = 64 / sizeof(T);

/// How a tile reads its rows of a: `Columns`: a[i + p·stride], packed panels included; `Rows`: a[i·stride + p].
enum class AForm { Columns, Rows };

/// What is done to sums in registers before they are stored.
template <class T>
struct TileEnd {
  const T* row_add = nullptr;  ///< one value per row
  const T* col_add = nullptr;  ///< one value per column
  bool relu = false;
};

template <class T, int kRows, int kVectors, class V>
HWY_INLINE void end_tile(const TileEnd<T>& end, V (&sum)[kRows][kVectors]) {
  const hn::ScalableTag<T> d;
  if (end.row_add) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::Add(sum[i][j], hn::Set(d, end.row_add[i]));
  }
  if (end.col_add) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      const V add = hn::LoadU(d, end.col_add + j * kVector<T>);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) sum[i][j] = hn::Add(sum[i][j], add);
    }
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (end.relu) {
      // The second operand is what x86 returns for NaN: it stays.
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::Max(hn::Zero(d), sum[i][j]);
    }
  }
}

/// Stores the sums at `to`, with `from` added unless null; `end` may be null.
template <class T, int kRows, int kVectors, class V>
HWY_INLINE void store_tile(V (&sum)[kRows][kVectors], const T* from, T* to, std::int64_t to_step,
                           const TileEnd<T>* end) {
  const hn::ScalableTag<T> d;
  constexpr int kLanes = kVector<T>;
  if (HWY_UNLIKELY(from != nullptr)) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j)
        sum[i][j] = hn::Add(sum[i][j], hn::LoadU(d, from + (i * kVectors + j) * kLanes));
  }
  if (end) end_tile<T, kRows, kVectors>(*end, sum);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) hn::StoreU(sum[i][j], d, to + i * to_step + j * kLanes);
}

/// Asks for the output of a tile, which is far away more often than not.
template <class T, int kRows, int kVectors>
HWY_INLINE void ask_for_output(const T* to, std::int64_t to_step) {
#pragma GCC unroll 1
  for (int i = 0; i < kRows; ++i) {
    __builtin_prefetch(to + i * to_step, 1);
    if (kVectors > 1) __builtin_prefetch(to + i * to_step + kVectors * kVector<T> - 1, 1);
  }
}

/// to (kRows × kVectors, rows `to_step` apart) = a @ b over `k` steps, plus `from` unless null. b's rows are `b_step`
/// apart, those of `from`, which may be `to`, follow each other without a gap. `end` may be null.
template <class T, int kRows, int kVectors, AForm kForm>
HWY_NOINLINE void tile(std::int64_t k, const T* HWY_RESTRICT a, std::int64_t a_step, const T* HWY_RESTRICT b,
                       std::int64_t b_step, const T* from, T* to, std::int64_t to_step, const TileEnd<T>* end) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = kVector<T>, kCols = kVectors * kLanes;
  [[maybe_unused]] constexpr std::int64_t a_next =
      kForm == AForm::Rows ? 1 : kRows;  // from step to step of a packed panel
  const std::int64_t a_row = kForm == AForm::Rows ? a_step : 1;
  [[maybe_unused]] const bool packed = b_step == kCols && (kForm == AForm::Rows || a_step == kRows);
  V sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) sum[i][j] = empty_sum(d);
  for (std::int64_t p = 0, end_of_part = std::max<std::int64_t>(k - kOutputAhead, 0);; end_of_part = k) {
    if constexpr (kUnrolls<T, kRows>) {
#if HWY_TARGET == HWY_AVX2
      if constexpr (kForm == AForm::Rows)
        if (packed) {
          const std::int64_t steps = std::max<std::int64_t>(end_of_part - p, 0) / kUnrolled * kUnrolled;
          add_turns_of_rows<T>(sum, steps, a, a_step, b);
          p += steps, a += steps, b += steps * kCols;
        }
#endif
      if (kForm == AForm::Columns && packed)
#pragma GCC unroll 1
        for (; p + kUnrolled <= end_of_part; p += kUnrolled, a += kUnrolled * a_next, b += kUnrolled * kCols)
#pragma GCC unroll 4
          for (int u = 0; u < kUnrolled; ++u) add_step<T>(sum, a + u * a_next, a_row, b + u * kCols);
    }
#pragma GCC unroll 1
    for (; p < end_of_part; ++p) {
      if constexpr (HWY_TARGET != HWY_AVX2 && kRows >= 4 && kForm == AForm::Columns) {
        // Packed panels come from the second-level cache in one stream each.
        __builtin_prefetch(a + kAhead * kRows);
        for (int j = 0; j < kVectors; ++j) __builtin_prefetch(b + kAhead * kCols + j * kLanes);
      }
      add_step<T>(sum, a, a_row, b);
      b += b_step;
      a += kForm == AForm::Columns ? a_step : 1;
    }
    if (p == k) break;
    ask_for_output<T, kRows, kVectors>(to, to_step);
  }
  store_tile<T, kRows, kVectors>(sum, from, to, to_step, end);
}

template <class T>
using TileFn = void (*)(std::int64_t k, const T* a, std::int64_t a_step, const T* b, std::int64_t b_step, const T* from,
                        T* to, std::int64_t to_step, const TileEnd<T>* end);

template <class T, int kVectors, AForm kForm, int... kRow>
constexpr TileFn<T> pick_tile(int rows, std::integer_sequence<int, kRow...>) {
  constexpr TileFn<T> table[] = {&tile<T, kRow + 1, kVectors, kForm>...};
  return table[rows - 1];
}
/// The tile function for 1 … kTileRows rows and 1 or 2 vectors of columns.
template <class T>
TileFn<T> tile_for(int rows, int vectors, AForm form) {
  constexpr std::make_integer_sequence<int, kTileRows> all{};
  if (form == AForm::Columns)
    return vectors == 2 ? pick_tile<T, 2, AForm::Columns>(rows, all) : pick_tile<T, 1, AForm::Columns>(rows, all);
  return vectors == 2 ? pick_tile<T, 2, AForm::Rows>(rows, all) : pick_tile<T, 1, AForm::Rows>(rows, all);
}
// Compiled once, in gemm_f32.cpp, gemm_f64.cpp and gemm_int.cpp: products and convolutions share them.
extern template TileFn<float> tile_for<float>(int rows, int vectors, AForm form);
extern template TileFn<double> tile_for<double>(int rows, int vectors, AForm form);
extern template TileFn<std::uint32_t> tile_for<std::uint32_t>(int rows, int vectors, AForm form);
extern template TileFn<std::uint64_t> tile_for<std::uint64_t>(int rows, int vectors, AForm form);

/// Rows cut into tiles of nearly one height, at most `most`.
struct RowTiles {
  explicit RowTiles(std::int64_t m, std::int64_t most = kTileRows)
      : rows(m), count((m + most - 1) / most), low(count > 0 ? m / count : 0), tall(m - low * count) {}
  std::int64_t begin(std::int64_t t) const { return t * low + std::min(t, tall); }
  /// Tiles that have some of the first n rows.
  std::int64_t reaching(std::int64_t n) const {
    std::int64_t t = 0;
    while (t < count && begin(t) < n) ++t;
    return t;
  }
  int height(std::int64_t t) const { return static_cast<int>(low + (t < tall)); }
  std::int64_t rows, count;
  std::int64_t low, tall;  ///< the first `tall` tiles have low + 1 rows, the others low
};

/// Tiles below each other whose rows meet the same panel of b, or beside each other (a_next is 0 then): what `tile`
/// takes, and the distances from tile to tile.
template <class T>
struct TileRun {
  std::int64_t count = 1, k = 0;
  const T* a = nullptr;
  std::int64_t a_next = 0, a_step = 0;
  const T* b = nullptr;
  std::int64_t b_step = 0, b_next = 0;
  const T* from = nullptr;
  std::int64_t from_next = 0;
  T* to = nullptr;
  std::int64_t to_next = 0, to_step = 0;
  const TileEnd<T>* end = nullptr;
  std::int64_t end_next = 0;  ///< distance of the values that tiles add to their columns or rows
  /// Of what comes next the first `ask_tiles` tiles bring lines into the second cache, ask_next from tile to tile: one
  /// every kUnrolled steps, ask_step apart. (Before their first step where rows of a are read as they lie. With AVX-512
  /// packing_tile asks, for a quarter of a line in each step.)
  const T* ask = nullptr;
  std::int64_t ask_tiles = 0, ask_next = 0, ask_step = 0;
};

/// A run in one call: tile's loop, which asks for nothing of its own operands ahead. All tiles of a run but the first
/// find b in the first cache; runs of one tile, of few rows or on a diagonal, leave it to the processor. The loop
/// stands twice: for both made from one inline function, GCC 12 ends with an internal error.
template <class T, int kRows, int kVectors, AForm kForm>
HWY_NOINLINE void run_kernel(const TileRun<T>& run) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = kVector<T>;
  constexpr int kCols = kVectors * kLanes;
  const std::int64_t k = run.k, a_step = run.a_step, b_step = run.b_step, to_step = run.to_step;
  [[maybe_unused]] constexpr std::int64_t a_next =
      kForm == AForm::Rows ? 1 : kRows;  // from step to step of a packed panel
  const std::int64_t a_row = kForm == AForm::Rows ? a_step : 1;
  [[maybe_unused]] const bool packed = b_step == kCols && (kForm == AForm::Rows || a_step == kRows);
  TileEnd<T> end = run.end ? *run.end : TileEnd<T>();
  for (std::int64_t t = 0; t < run.count; ++t) {
    T* const to = run.to + t * run.to_next;
    const bool asks = t < run.ask_tiles;
    const T* ask = asks ? run.ask + t * run.ask_next : run.b;
    [[maybe_unused]] const std::int64_t ask_step = asks ? run.ask_step : 0;
    if constexpr (kForm == AForm::Rows)  // whose loop is short of registers
      if (asks)
        for (const T* const last = ask + run.ask_step * (k / kUnrolled); ask < last; ask += kLine<T>)
          __builtin_prefetch(ask, 0, 2);
    V sum[kRows][kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      __builtin_prefetch(to + i * to_step, 1);
      if (kVectors > 1) __builtin_prefetch(to + i * to_step + kVectors * kLanes - 1, 1);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = empty_sum(d);
    }
    const T *HWY_RESTRICT a = run.a + t * run.a_next, *HWY_RESTRICT b = run.b + t * run.b_next;
    std::int64_t left = k;
    if constexpr (kUnrolls<T, kRows>) {
#if HWY_TARGET == HWY_AVX2
      if constexpr (kForm == AForm::Rows)
        if (packed) {
          const std::int64_t steps = left / kUnrolled * kUnrolled;
          add_turns_of_rows<T>(sum, steps, a, a_step, b);
          left -= steps, a += steps, b += steps * kCols;
        }
#endif
      if (kForm == AForm::Columns && packed)
#pragma GCC unroll 1
        for (; left >= kUnrolled; left -= kUnrolled, a += kUnrolled * a_next, b += kUnrolled * kCols, ask += ask_step) {
          __builtin_prefetch(ask, 0, 2);
#pragma GCC unroll 4
          for (int u = 0; u < kUnrolled; ++u) add_step<T>(sum, a + u * a_next, a_row, b + u * kCols);
        }
    }
    // Most of these loops are two lines of instructions long, but three if they begin late in one: up to a tenth more
    // time beside a neighbour on the core.
    if constexpr (kUnrolls<T, kRows>) asm volatile(".p2align 6");
#pragma GCC unroll 1
    for (; left > 0; --left, a += kForm == AForm::Rows ? 1 : a_step, b += b_step) {
      if constexpr (!kUnrolls<T, kRows> && kForm == AForm::Columns)
        if (left % kUnrolled == 0) {
          __builtin_prefetch(ask, 0, 2);
          ask += ask_step;
        }
      add_step<T>(sum, a, a_row, b);
    }
    store_tile<T, kRows, kVectors>(sum, run.from ? run.from + t * run.from_next : nullptr, to, to_step,
                                   run.end ? &end : nullptr);
    if (end.col_add) end.col_add += run.end_next;
    if (end.row_add) end.row_add += run.end_next;
  }
}

template <class T, int kVectors, AForm kForm, int... kRow>
void run_kernel_of(int rows, const TileRun<T>& run, std::integer_sequence<int, kRow...>) {
  constexpr void (*table[])(const TileRun<T>&) = {&run_kernel<T, kRow + 1, kVectors, kForm>...};
  table[rows - 1](run);
}

/// Runs tiles of `rows` rows and 1 or 2 vectors of columns. With narrow vectors the loop over them is in the kernel:
/// the calls would take 3 % of the time.
template <class T>
void run_tiles(int rows, int vectors, AForm form, const TileRun<T>& run) {
  if constexpr (HWY_MAX_BYTES < 64 && std::is_floating_point_v<T>) {
    constexpr std::make_integer_sequence<int, kTileRows> all{};
    if (form == AForm::Columns)
      vectors == 2 ? run_kernel_of<T, 2, AForm::Columns>(rows, run, all)
                   : run_kernel_of<T, 1, AForm::Columns>(rows, run, all);
    else
      vectors == 2 ? run_kernel_of<T, 2, AForm::Rows>(rows, run, all)
                   : run_kernel_of<T, 1, AForm::Rows>(rows, run, all);
  } else {
    const TileFn<T> fn = tile_for<T>(rows, vectors, form);
    TileEnd<T> end = run.end ? *run.end : TileEnd<T>();
    for (std::int64_t t = 0; t < run.count; ++t) {
      fn(run.k, run.a + t * run.a_next, run.a_step, run.b + t * run.b_next, run.b_step,
         run.from ? run.from + t * run.from_next : nullptr, run.to + t * run.to_next, run.to_step,
         run.end ? &end : nullptr);
      if (end.col_add) end.col_add += run.end_next;
    }
  }
}
extern template void run_tiles<float>(int rows, int vectors, AForm form, const TileRun<float>& run);
extern template void run_tiles<double>(int rows, int vectors, AForm form, const TileRun<double>& run);
extern template void run_tiles<std::uint32_t>(int rows, int vectors, AForm form, const TileRun<std::uint32_t>& run);
extern template void run_tiles<std::uint64_t>(int rows, int vectors, AForm form, const TileRun<std::uint64_t>& run);

// ---- loads that convert ----

template <class T, class In>
T convert(In value) {
  if constexpr (is_half_v<In>)
    return static_cast<T>(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

/// A vector of T from consecutive values of In.
template <class D, class In>
hn::Vec<D> load_as(D d, const In* p) {
  using T = hn::TFromD<D>;
  if constexpr (std::is_same_v<In, T>) {
    return hn::LoadU(d, p);
  } else if constexpr (std::is_same_v<In, BFloat16>) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Rebind<std::uint32_t, D> d32;
    const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p)));
    return hn::BitCast(d, hn::ShiftLeft<16>(bits));
  } else if constexpr (std::is_same_v<In, Half>) {
    return cpu::HWY_NAMESPACE::load_halves(d, p);
  } else {
    const hn::Rebind<In, D> narrow;
    return hn::PromoteTo(d, hn::LoadU(narrow, p));
  }
}

// ---- packing ----

/// Where the rows of an operand start, in elements: `count` of them at `stride`, the last one repeated beyond.
template <class T>
struct RowOffsets {
  std::int64_t at[kVector<T>];
  RowOffsets(int count, std::int64_t stride) {
    for (int i = 0; i < kVector<T>; ++i) at[i] = std::min(i, count - 1) * stride;
  }
};

/// One vector whose 128-bit blocks come from rows i, i + s, i + 2s … of `p` (s values of T fill a block).
template <class T, class In>
auto load_blocks(const In* p, const RowOffsets<T>& rows, int i) {
  const hn::ScalableTag<T> d;
  constexpr int s = 16 / sizeof(T);
  const hn::FixedTag<T, s> block;
  auto at = [&](int b) { return load_as(block, p + rows.at[b * s + i]); };
  if constexpr (HWY_MAX_BYTES == 16) {
    return at(0);
  } else if constexpr (HWY_MAX_BYTES == 32) {
    return hn::Combine(d, at(1), at(0));
  } else {
    const hn::Half<decltype(d)> half;
    return hn::Combine(d, hn::Combine(half, at(3), at(2)), hn::Combine(half, at(1), at(0)));
  }
}

/// Steps [p, p + 4) (4-byte values) or [p, p + 2) of transpose_rows.
template <class T, class In>
HWY_INLINE void transpose_group(const In* in, const RowOffsets<T>& rows, std::int64_t p, T* out,
                                std::int64_t out_step) {
  const hn::ScalableTag<T> d;
  if constexpr (sizeof(T) == 4) {
    const hn::Repartition<std::uint64_t, decltype(d)> d64;
    const auto r0 = load_blocks<T>(in + p, rows, 0), r1 = load_blocks<T>(in + p, rows, 1),
               r2 = load_blocks<T>(in + p, rows, 2), r3 = load_blocks<T>(in + p, rows, 3);
    const auto a0 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1)),
               a1 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1)),
               b0 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3)),
               b1 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, a0, b0)), d, out + p * out_step);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, a0, b0)), d, out + (p + 1) * out_step);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, a1, b1)), d, out + (p + 2) * out_step);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, a1, b1)), d, out + (p + 3) * out_step);
  } else {
    const auto r0 = load_blocks<T>(in + p, rows, 0), r1 = load_blocks<T>(in + p, rows, 1);
    hn::StoreU(hn::InterleaveLower(d, r0, r1), d, out + p * out_step);
    hn::StoreU(hn::InterleaveUpper(d, r0, r1), d, out + (p + 1) * out_step);
  }
}

/// As many rows of a vector each as fill a block of 128 bits, to columns within blocks: block b of t[j] has column
/// kRows · b + j.
template <class T, int kRows, class D>
HWY_INLINE void transpose_in_blocks(D d, const T* in, const std::int64_t* rows, hn::Vec<D>* t) {
  const auto r0 = hn::LoadU(d, in + rows[0]), r1 = hn::LoadU(d, in + rows[1]);
  if constexpr (kRows == 2) {
    t[0] = hn::InterleaveLower(d, r0, r1);
    t[1] = hn::InterleaveUpper(d, r0, r1);
  } else {
    const hn::Repartition<std::uint64_t, D> d64;
    const auto r2 = hn::LoadU(d, in + rows[2]), r3 = hn::LoadU(d, in + rows[3]);
    const auto a0 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1)),
               a1 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1)),
               b0 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3)),
               b1 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
    t[0] = hn::BitCast(d, hn::InterleaveLower(d64, a0, b0));
    t[1] = hn::BitCast(d, hn::InterleaveUpper(d64, a0, b0));
    t[2] = hn::BitCast(d, hn::InterleaveLower(d64, a1, b1));
    t[3] = hn::BitCast(d, hn::InterleaveUpper(d64, a1, b1));
  }
}

/// As many steps of transpose_rows as a vector has lanes, from step p on: each cache line of a row is read once, which
/// matters where the rows lie a multiple of 4096 bytes apart.
template <class T>
HWY_INLINE void transpose_square(const T* in, const RowOffsets<T>& rows, std::int64_t p, T* out,
                                 std::int64_t out_step) {
  const hn::ScalableTag<T> d;
  constexpr int kRows = 16 / sizeof(T), kBlocks = kVector<T> / kRows;
  hn::Vec<decltype(d)> t[kBlocks][kRows];
#pragma GCC unroll 4
  for (int g = 0; g < kBlocks; ++g) transpose_in_blocks<T, kRows>(d, in + p, rows.at + kRows * g, t[g]);
  hn::Vec<decltype(d)> column[kVector<T>];
#pragma GCC unroll 4
  for (int j = 0; j < kRows; ++j) {
    if constexpr (kBlocks == 2) {
      column[j] = hn::ConcatLowerLower(d, t[1][j], t[0][j]);
      column[j + kRows] = hn::ConcatUpperUpper(d, t[1][j], t[0][j]);
    } else {
      const auto a = hn::ConcatLowerLower(d, t[2][j], t[0][j]), b = hn::ConcatLowerLower(d, t[3][j], t[1][j]);
      column[j] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a);
      column[j + kRows] = hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a));
      const auto e = hn::ConcatUpperUpper(d, t[2][j], t[0][j]), f = hn::ConcatUpperUpper(d, t[3][j], t[1][j]);
      column[j + 2 * kRows] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(f), e);
      column[j + 3 * kRows] = hn::OddEvenBlocks(f, hn::SwapAdjacentBlocks(e));
    }
  }
#pragma GCC unroll 16
  for (int c = 0; c < kVector<T>; ++c) hn::StoreU(column[c], d, out + (p + c) * out_step);
}

/// Writes `steps` rows of one vector: out[p·out_step + i] = in[rows[i] + p]. Every row is stored whole, in order: with
/// an out_step below a vector the next row overwrites what is too much, and the last one needs a vector of slack.
template <class T, class In>
void transpose_rows(const In* in, const RowOffsets<T>& rows, std::int64_t steps, T* out, std::int64_t out_step) {
  constexpr int kGroup = 16 / sizeof(T);
  std::int64_t p = 0;
  if constexpr (std::is_floating_point_v<T> && std::is_same_v<In, T> && HWY_MAX_BYTES > 16)
    for (; p + kVector<T> <= steps; p += kVector<T>) transpose_square(in, rows, p, out, out_step);
  for (; p + kGroup <= steps; p += kGroup) transpose_group(in, rows, p, out, out_step);
  if (p == steps) return;
  if (steps > kGroup) {
    transpose_group(in, rows, steps - kGroup, out, out_step);  // the last steps once more
    return;
  }
  for (; p < steps; ++p)
    for (int i = 0; i < kVector<T>; ++i) out[p * out_step + i] = convert<T>(in[rows.at[i] + p]);
}

/// A panel of b: out[p·width + j] = b(p, j) for p < k, j < n, anything for n <= j < width (one or two vectors).
template <class T, class In>
void pack_b(const In* b, std::int64_t row, std::int64_t col, std::int64_t k, int n, int width, T* out) {
  const hn::ScalableTag<T> d;
  constexpr int kLanes = kVector<T>;
  if (col == 1 && n == width) {
    for (std::int64_t p = 0; p < k; ++p)
      for (int j = 0; j < width; j += kLanes) hn::StoreU(load_as(d, b + p * row + j), d, out + p * width + j);
  } else if (row == 1) {
    for (int j = 0; j < n; j += kLanes)
      transpose_rows<T>(b + j * col, RowOffsets<T>(std::min(kLanes, n - j), col), k, out + j, width);
  } else {
    for (std::int64_t p = 0; p < k; ++p) {
      for (int j = 0; j < n; ++j) out[p * width + j] = convert<T>(b[p * row + j * col]);
      for (int j = n; j < width; ++j) out[p * width + j] = T(0);
    }
  }
}

/// A panel of a: out[p·m + i] = a(i, p) for p < k, i < m <= kTileRows. Writes up to a vector beyond the end.
template <class T, class In>
void pack_a(const In* a, std::int64_t row, std::int64_t col, std::int64_t k, int m, T* out) {
  constexpr int kLanes = kVector<T>;
  if (col == 1) {
    // The last group first: what it stores beyond the panel's width is then overwritten by the groups before it.
    for (int i = (m - 1) / kLanes * kLanes; i >= 0; i -= kLanes)
      transpose_rows<T>(a + i * row, RowOffsets<T>(std::min(kLanes, m - i), row), k, out + i, m);
    return;
  }
  for (std::int64_t p = 0; p < k; ++p)
    for (int i = 0; i < m; ++i) out[p * m + i] = convert<T>(a[i * row + p * col]);
}

// An operand that runs across its panels is packed a few steps of all panels at a time. A panel by itself would read a
// cache line or two of every step and come back for its neighbours when they are gone: steps that lie a multiple of
// 4096 bytes apart share one set of the cache.
inline constexpr std::int64_t kPackedSteps = 8;

/// kWidth (0: width) values of each of `steps` steps, `from_step` apart, one after the other.
template <int kWidth, class T>
void copy_steps(const T* from, std::int64_t from_step, std::int64_t steps, int width, T* to) {
  const int n = kWidth ? kWidth : width;
  for (std::int64_t p = 0; p < steps; ++p) std::memcpy(to + p * n, from + p * from_step, sizeof(T) * std::size_t(n));
}

/// Panels [t0, t1) of a, one after the other without gaps: panel t has the rows [begin(t), begin(t + 1)). `a` points at
/// row begin(t0). Writes up to a vector beyond the end.
template <class T, class In, class Begin>
void pack_a_panels(const In* a, std::int64_t row, std::int64_t col, std::int64_t k, std::int64_t t0, std::int64_t t1,
                   const Begin& begin, T* out) {
  const std::int64_t first = begin(t0);
  const auto height = [&](std::int64_t t) { return static_cast<int>(begin(t + 1) - begin(t)); };
  if constexpr (std::is_same_v<In, T>) {
    if (row == 1 && col != 1) {
      for (std::int64_t p = 0; p < k; p += kPackedSteps) {
        const std::int64_t steps = std::min(kPackedSteps, k - p);
        for (std::int64_t t = t0; t < t1; ++t) {
          const std::int64_t i = begin(t) - first;
          const int m = height(t);
          const auto copy = m == kTileRows       ? &copy_steps<kTileRows, T>
                            : m == kTileRows - 1 ? &copy_steps<kTileRows - 1, T>
                                                 : &copy_steps<0, T>;
          copy(a + i + p * col, col, steps, m, out + i * k + p * m);
        }
      }
      return;
    }
  }
  for (std::int64_t t = t0; t < t1; ++t) {
    const std::int64_t i = begin(t) - first;
    pack_a<T>(a + i * row, row, col, k, height(t), out + i * k);
  }
}

/// Columns [0, n) of b in panels of kTileCols, the last one of one vector if that is enough: column q of the first
/// column of a panel starts at q · k.
template <class T, class In>
void pack_b_panels(const In* b, std::int64_t row, std::int64_t col, std::int64_t k, std::int64_t n, T* out) {
  constexpr int kWidth = kTileCols<T>;
  std::int64_t q = 0;
  if constexpr (std::is_same_v<In, T>) {
    if (col == 1) {
      const std::int64_t whole = n / kWidth * kWidth;
      for (std::int64_t p = 0; p < k; p += kPackedSteps)
        for (q = 0; q < whole; q += kWidth)
          copy_steps<kWidth>(b + p * row + q, row, std::min(kPackedSteps, k - p), kWidth, out + q * k + p * kWidth);
      q = whole;
    }
  }
  for (; q < n; q += kWidth) {
    const int width = n - q <= kVector<T> ? kVector<T> : kWidth;
    pack_b<T>(b + q * col, row, col, k, static_cast<int>(std::min<std::int64_t>(width, n - q)), width, out + q * k);
  }
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
