// Products of operands packed once and used many times, on one thread: pieces of attention and of recurrent layers.
// Compiled once per SIMD target; included by kernel files after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_PACKED_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_PACKED_PRODUCT_INL_H_
#undef ATHANOR_DEVICE_CPU_PACKED_PRODUCT_INL_H_
#else
#define ATHANOR_DEVICE_CPU_PACKED_PRODUCT_INL_H_
#endif
// clang-format on

#include "athanor/device/cpu/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace {  // each kernel file has its own

/// Columns of the panel that starts at column q of n.
template <class T>
constexpr int panel_width(std::int64_t n, std::int64_t q) {
  return n - q <= kVector<T> ? kVector<T> : kTileCols<T>;
}
/// n rounded up to whole panels.
template <class T>
constexpr std::int64_t padded_columns(std::int64_t n) {
  const std::int64_t whole = n / kTileCols<T> * kTileCols<T>;
  return whole == n ? n : whole + panel_width<T>(n, whole);
}
/// Elements of packed b (k × n), slack for whole-vector stores included.
template <class T>
constexpr std::int64_t packed_b_size(std::int64_t k, std::int64_t n) {
  return padded_columns<T>(n) * k + kVector<T>;
}
/// Panel after panel: column q starts at q · k.
template <class T>
void pack_columns(const T* b, std::int64_t row, std::int64_t col, std::int64_t k, std::int64_t n, T* out) {
  pack_b_panels<T>(b, row, col, k, n, out);
}

template <class T>
constexpr std::int64_t packed_a_size(std::int64_t m, std::int64_t k) {
  return m * k + kVector<T>;
}
/// Tile after tile: row i of the first row of a tile starts at i · k.
template <class T>
void pack_rows(const T* a, std::int64_t row, std::int64_t col, std::int64_t k, const RowTiles& tiles, T* out) {
  pack_a_panels<T>(
      a, row, col, k, 0, tiles.count, [&](std::int64_t t) { return tiles.begin(t); }, out);
}

/// p[0, n) times `by`; may go on to the end of the last vector.
template <class T>
void scale_packed(T* p, std::int64_t n, T by) {
  const hn::ScalableTag<T> d;
  const auto factor = hn::Set(d, by);
  for (std::int64_t i = 0; i < n; i += kVector<T>) hn::StoreU(hn::Mul(hn::LoadU(d, p + i), factor), d, p + i);
}

/// The sum of a[i] · b[i] over n values.
template <class T>
T dot_of(const T* a, std::int64_t a_step, const T* b, std::int64_t b_step, std::int64_t n) {
  const hn::ScalableTag<T> d;
  std::int64_t i = 0;
  T rest = 0;
  auto sum = hn::Zero(d);
  if (a_step == 1 && b_step == 1)
    for (; i + kVector<T> <= n; i += kVector<T>) sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  for (; i < n; ++i) rest += a[i * a_step] * b[i * b_step];
  return hn::GetLane(hn::SumOfLanes(d, sum)) + rest;
}

/// Sums that grow: for each tile of rows the panels of columns one after the other, each without gaps.
template <class T>
struct Sums {
  Sums(T* data, std::int64_t n) : data(data), n(n), padded(padded_columns<T>(n)) {}
  static std::int64_t size(std::int64_t m, std::int64_t n) { return m * padded_columns<T>(n); }
  T* block(const RowTiles& tiles, std::int64_t t, std::int64_t q) const {
    return data + tiles.begin(t) * padded + q * tiles.height(t);
  }
  void clear(std::int64_t m) const { std::fill_n(data, m * padded, T(0)); }
  /// Multiplies row r of tile t.
  void scale_row(const RowTiles& tiles, std::int64_t t, int r, T by) const {
    const hn::ScalableTag<T> d;
    const auto factor = hn::Set(d, by);
    for (std::int64_t q = 0; q < n; q += kTileCols<T>) {
      const int width = panel_width<T>(n, q);
      T* const row = block(tiles, t, q) + r * width;
      for (int j = 0; j < width; j += kVector<T>) hn::StoreU(hn::Mul(hn::LoadU(d, row + j), factor), d, row + j);
    }
  }
  /// to[i · row + j · col] = by · row i of all tiles.
  void write(const RowTiles& tiles, T* to, std::int64_t row, std::int64_t col, T by) const {
    for (std::int64_t t = 0; t < tiles.count; ++t)
      for (int r = 0; r < tiles.height(t); ++r) write_row(tiles, t, r, to + (tiles.begin(t) + r) * row, col, by);
  }
  void write_row(const RowTiles& tiles, std::int64_t t, int r, T* to, std::int64_t col, T by) const {
    for (std::int64_t q = 0; q < n; q += kTileCols<T>) {
      const int width = panel_width<T>(n, q);
      const T* const from = block(tiles, t, q) + r * width;
      const std::int64_t count = std::min<std::int64_t>(width, n - q);
      T* const out = to + q * col;
      if (col == 1 && count == width) {
        const hn::ScalableTag<T> d;
        const auto factor = hn::Set(d, by);
        for (int j = 0; j < width; j += kVector<T>) hn::StoreU(hn::Mul(factor, hn::LoadU(d, from + j)), d, out + j);
      } else {
        for (std::int64_t j = 0; j < count; ++j) out[j * col] = by * from[j];
      }
    }
  }

  T* data;
  std::int64_t n, padded;
};

}  // namespace
}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
