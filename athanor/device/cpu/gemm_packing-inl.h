// Register tiles that pack what they read, where the copy costs nothing beside the arithmetic, and those of large
// products, which fetch the next panel meanwhile. Compiled once per SIMD target; included by kernel files after
// hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_GEMM_PACKING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_GEMM_PACKING_INL_H_
#undef ATHANOR_DEVICE_CPU_GEMM_PACKING_INL_H_
#else
#define ATHANOR_DEVICE_CPU_GEMM_PACKING_INL_H_
#endif
// clang-format on

#include "athanor/device/cpu/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

/// Tiles of so many rows or more can pack.
inline constexpr int kPackingRows = kTileRows - 2;

/// Where the operands of a run lie that are not packed yet: null for one that is.
template <class T>
struct Unpacked {
  const T* a = nullptr;  ///< columns, a_step apart, which the tiles that first read them pack at run.a
  std::int64_t a_next = 0, a_step = 0;
  const T* b = nullptr;  ///< rows, b_step apart, which the tiles that first read them pack at run.b
  std::int64_t b_next = 0, b_step = 0;

  /// To the next tile of the run: what stays the same is packed now.
  void advance(const TileRun<T>& run) {
    a = a && run.a_next != 0 ? a + a_next : nullptr;
    b = b && run.b_next != 0 ? b + b_next : nullptr;
  }
};

/// Steps summed in registers before they are added to the sums of those before.
inline constexpr std::int64_t kPartSteps = 384;
/// Steps ahead of which rows of b that are still to be packed are asked for, into the first and the second cache. Their
/// distance may be a multiple of 4096 bytes, so that more would not fit into the sets that they share.
inline constexpr int kNearAhead = 10, kFarAhead = 40;
/// The same of operands that both are packed.
inline constexpr int kPackedAhead = 32;

/// One tile; `to_a` and `to_b` get what it reads. Writes up to a vector beyond a panel of a. Meanwhile each step brings
/// a quarter of a line from `ask` on, unless null, into the second cache.
template <class T, int kRows, bool kPacksA, bool kPacksB>
HWY_NOINLINE void packing_tile(const TileRun<T>& run, const T* HWY_RESTRICT a, std::int64_t a_step,
                               const T* HWY_RESTRICT b, std::int64_t b_step, T* HWY_RESTRICT to_a, T* HWY_RESTRICT to_b,
                               const T* ask) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kVectors = 2, kLanes = kVector<T>;
  static_assert(kRows <= kLanes);
  constexpr int kOwnAhead = kPacksA || kPacksB ? kAhead : kPackedAhead;
  const std::int64_t ask_step = ask ? kLanes / 4 : 0;
  const T* from = run.from;
  if (!ask) ask = b;
  HWY_ALIGN T part[kRows * kVectors * kLanes];
  V sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = hn::Zero(d);
  for (std::int64_t left = run.k; left > 0;) {
    // Before the last steps the output is asked for.
    const bool last = left < kPartSteps;
    std::int64_t steps = !last ? kPartSteps : left > kOutputAhead ? left - kOutputAhead : left;
    left -= steps;
#pragma GCC unroll 1
    for (; steps > 0; --steps) {
      const V row[kVectors] = {hn::LoadU(d, b), hn::LoadU(d, b + kLanes)};
      if constexpr (kPacksB) {
        __builtin_prefetch(b + kNearAhead * b_step);
        __builtin_prefetch(b + kNearAhead * b_step + kLanes);
        __builtin_prefetch(b + kFarAhead * b_step, 0, 2);
        __builtin_prefetch(b + kFarAhead * b_step + kLanes, 0, 2);
      } else {
        __builtin_prefetch(b + kOwnAhead * b_step);
        __builtin_prefetch(b + kOwnAhead * b_step + kLanes);
      }
      __builtin_prefetch(a + kOwnAhead * a_step);
      __builtin_prefetch(ask, 0, 2);
      ask += ask_step;
      if constexpr (kPacksA) {
        __builtin_prefetch(a + kAhead * a_step + kRows - 1);
        hn::StoreU(hn::MaskedLoad(hn::FirstN(d, kRows), d, a), d, to_a);
        to_a += kRows;
      }
      if constexpr (kPacksB) {
        hn::StoreU(row[0], d, to_b);
        hn::StoreU(row[1], d, to_b + kLanes);
        to_b += kVectors * kLanes;
      }
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const V value = hn::Set(d, a[i]);
        sum[i][0] = mul_add(value, row[0], sum[i][0]);
        sum[i][1] = mul_add(value, row[1], sum[i][1]);
      }
      b += b_step;
      a += a_step;
    }
    if (last) {
      if (left > 0) ask_for_output<T, kRows, kVectors>(run.to, run.to_step);
    } else if (left > 0) {
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j) {
          const int at = (i * kVectors + j) * kLanes;
          if (from) sum[i][j] = hn::Add(sum[i][j], hn::LoadU(d, from + at));
          hn::Store(sum[i][j], d, part + at);
          sum[i][j] = hn::Zero(d);
        }
      from = part;
    }
  }
  store_tile<T, kRows, kVectors>(sum, from, run.to, run.to_step, run.end);
}

/// A tile of packed a, one of run_kernel's, that copies the panel of b it reads, b_step from row to row, to `panel`.
template <class T, int kRows>
HWY_NOINLINE void copying_tile(const TileRun<T>& run, const T* HWY_RESTRICT b, std::int64_t b_step,
                               T* HWY_RESTRICT panel) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kVectors = 2, kLanes = kVector<T>;
  ask_for_output<T, kRows, kVectors>(run.to, run.to_step);
  V sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) sum[i][0] = empty_sum(d), sum[i][1] = empty_sum(d);
  const T* HWY_RESTRICT a = run.a;
#pragma GCC unroll 1
  for (std::int64_t left = run.k; left > 0; --left, a += kRows, b += b_step, panel += kVectors * kLanes) {
    const V row[kVectors] = {hn::LoadU(d, b), hn::LoadU(d, b + kLanes)};
    hn::StoreU(row[0], d, panel);
    hn::StoreU(row[1], d, panel + kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const V value = hn::Set(d, a[i]);
      add_product(value, row[0], sum[i][0]);
      add_product(value, row[1], sum[i][1]);
    }
  }
  store_tile<T, kRows, kVectors>(sum, run.from, run.to, run.to_step, run.end);
}

/// The sums of one tile in the order of packing_tile, for tiles that it has not.
template <class T>
void run_parts(int rows, int vectors, TileRun<T> run) {
  HWY_ALIGN T part[kTileRows * kTileCols<T>];
  T* const to = std::exchange(run.to, part);
  const std::int64_t to_step = std::exchange(run.to_step, vectors * kVector<T>);
  const TileEnd<T>* const end = std::exchange(run.end, nullptr);
  for (std::int64_t left = std::exchange(run.k, kPartSteps); left > 0; left -= run.k) {
    if (left <= kPartSteps) {
      run.k = left;
      run.to = to;
      run.to_step = to_step;
      run.end = end;
    }
    run_tiles<T>(rows, vectors, AForm::Columns, run);
    run.a += run.k * run.a_step;
    run.b += run.k * run.b_step;
    run.from = part;
  }
}

/// run_tiles for packed panels. `deep`: sums in parts of kPartSteps. What is to be packed has whole panels and
/// kPackingRows rows or more.
template <class T>
void run_packing_tiles(int rows, int vectors, TileRun<T> run, Unpacked<T> from, bool deep) {
  const std::int64_t count = std::exchange(run.count, 1);
  TileEnd<T> end = run.end ? *run.end : TileEnd<T>();
  if (run.end) run.end = &end;
  for (std::int64_t t = 0; t < count; ++t) {
    T *const packed_a = const_cast<T*>(run.a), *const packed_b = const_cast<T*>(run.b);  // scratch of the caller
    const auto pick = [&](auto packs_a, auto packs_b) {
      constexpr bool kA = decltype(packs_a)::value, kB = decltype(packs_b)::value;
      const auto tile = rows == kTileRows       ? &packing_tile<T, kTileRows, kA, kB>
                        : rows == kTileRows - 1 ? &packing_tile<T, kTileRows - 1, kA, kB>
                                                : &packing_tile<T, kPackingRows, kA, kB>;
      tile(run, kA ? from.a : run.a, kA ? from.a_step : run.a_step, kB ? from.b : run.b, kB ? from.b_step : run.b_step,
           packed_a, packed_b, run.ask);
    };
    if (from.a && from.b)
      pick(std::true_type{}, std::true_type{});
    else if (from.a)
      pick(std::true_type{}, std::false_type{});
    else if (from.b)
      pick(std::false_type{}, std::true_type{});
    else if (deep && rows >= kPackingRows && vectors == 2)
      pick(std::false_type{}, std::false_type{});
    else if (deep)
      run_parts<T>(rows, vectors, run);
    else
      run_tiles<T>(rows, vectors, AForm::Columns, run);
    from.advance(run);
    run.a += run.a_next;
    run.b += run.b_next;
    run.ask += run.ask_next;
    if (run.from) run.from += run.from_next;
    run.to += run.to_next;
    if (end.col_add) end.col_add += run.end_next;
  }
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
