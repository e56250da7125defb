// Tiles of rows, their packing, and room for it, of recurrent layers with packed weights. Compiled once per SIMD
// target.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_RNN_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_RNN_TILES_INL_H_
#undef ATHANOR_DEVICE_CPU_RNN_TILES_INL_H_
#else
#define ATHANOR_DEVICE_CPU_RNN_TILES_INL_H_
#endif
// clang-format on

#include "athanor/device/cpu/gemm_block.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/device/cpu/packed_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {
namespace {  // each kernel file has its own

// Slots 0 to 2 belong to products.
inline constexpr int kRnnLeft = 5, kRnnProduct = 6;
/// Row tiles whose sums for a group of units wait in the first cache.
inline constexpr std::int64_t kRnnTiles = (35 + kTileRows) / kTileRows;
/// Rows for which the input's contribution is made at once, at least.
inline constexpr std::int64_t kGivenRows = 64;
/// Rows of which gradients of weights are made at once, at least.
inline constexpr std::int64_t kGradientRows = 256;
/// Elements of a left operand that stay in the second cache.
inline constexpr std::int64_t kLeftSize = 65536;
/// Elements of one that a thread keeps for the next call, at most.
inline constexpr std::int64_t kKeptSize = 1 << 19;

template <class T>
T* rnn_scratch(int slot, std::int64_t count) {
  return static_cast<T*>(detail::thread_scratch(slot, static_cast<std::size_t>(count) * sizeof(T)));
}

/// Items of `work` multiply-adds that pay for waking a thread.
inline std::int64_t rnn_grain(std::int64_t work) {
  return std::max<std::int64_t>(1, 60000 / std::max<std::int64_t>(work, 1));
}

/// Tiles of rows and the functions that multiply them.
template <class T>
class Tiles : public RowTiles {
 public:
  explicit Tiles(std::int64_t m) : RowTiles(m) {
    if (count == 0) return;
    for (int more = 0; more < (tall > 0 ? 2 : 1); ++more)
      for (int v = 0; v < 2; ++v) fns_[v][more] = tile_for<T>(static_cast<int>(low) + more, v + 1, AForm::Columns);
  }

  /// Tile t, packed at `left`, times a panel of w columns, over k steps.
  HWY_INLINE void multiply(std::int64_t t, std::int64_t k, const T* left, const T* panel, int w, const T* from, T* to,
                           std::int64_t to_step, const TileEnd<T>* end = nullptr) const {
    fns_[w / kVector<T> - 1][t < tall ? 1 : 0](k, left, height(t), panel, w, from, to, to_step, end);
  }

  /// sums (rows without gaps) = left @ panel of w columns over k steps, added to what is there unless `first`.
  void add_products(std::int64_t k, const T* left, const T* panel, int w, bool first, T* sums) const {
    if (tall > 0) multiply_run(0, tall, k, left, panel, w, first, sums);
    if (count > tall) multiply_run(tall, count - tall, k, left, panel, w, first, sums);
  }

 private:
  /// The same for n tiles of one height in one call.
  void multiply_run(std::int64_t t, std::int64_t n, std::int64_t k, const T* left, const T* panel, int w, bool first,
                    T* sums) const {
    const int m = height(t);
    TileRun<T> run;
    run.count = n;
    run.k = k;
    run.a = left + begin(t) * k;
    run.a_next = m * k;
    run.a_step = m;
    run.b = panel;
    run.b_step = run.to_step = w;
    run.to = sums + begin(t) * w;
    run.from = first ? nullptr : run.to;
    run.to_next = run.from_next = m * w;
    run_tiles<T>(m, w / kVector<T>, AForm::Columns, run);
  }

  TileFn<T> fns_[2][2] = {};
};

/// Packs all steps of a left operand whose rows are `row` apart.
template <class T>
void pack_tiles(const T* from, std::int64_t row, std::int64_t k, const Tiles<T>& tiles, T* left) {
  pack_a_panels<T>(
      from, row, 1, k, 0, tiles.count, [&](std::int64_t t) { return tiles.begin(t); }, left);
}
/// Steps [at, at + n) of tiles [t0, t1) of a packed left operand of k steps, n <= kTileCols; `from` is their first row
/// and column, rows `row` apart. `open`: as many steps that follow will be written later by the calling thread.
template <class T>
void pack_steps(const T* from, std::int64_t row, const Tiles<T>& tiles, std::int64_t t0, std::int64_t t1,
                std::int64_t n, std::int64_t k, std::int64_t at, std::int64_t open, T* left) {
  HWY_ALIGN T part[kTileRows * kTileCols<T> + kVector<T>];
  if (t0 >= t1) return;
  const int first = tiles.height(t0), last = tiles.height(t1 - 1);
  const RowOffsets<T> of_first(std::min(first, kVector<T>), row), of_last(std::min(last, kVector<T>), row);
  for (std::int64_t t = t0; t < t1; ++t) {
    const std::int64_t i = tiles.begin(t) - tiles.begin(t0);
    const int m = tiles.height(t);
    T* const to = left + i * k + at * m;
    // Packing writes whole vectors. What is too much may only fall on steps that are still to come.
    const bool fits = open * m >= (m + kVector<T> - 1) / kVector<T> * kVector<T> - m;
    T* const out = fits ? to : part;
    if (m <= kVector<T>)
      transpose_rows<T>(from + i * row, m == last ? of_last : of_first, n, out, m);
    else
      pack_a<T>(from + i * row, row, 1, n, m, out);
    if (out == part) std::memcpy(to, part, static_cast<std::size_t>(n * m) * sizeof(T));
  }
}

/// Room that is used in turns: `few` do for one thread. A thread of several may write while others still read what it
/// wrote a turn before, and had better not write the same again soon: a line that another core has read holds up its
/// writer.
template <class T>
class Turns {
 public:
  Turns() = default;
  Turns(std::int64_t size, bool shared, std::int64_t few)
      : size_((size + kLine - 1) / kLine * kLine),
        count_(shared ? std::clamp<std::int64_t>(kMostShared / size_, 2, 32) : few),
        data_(count_ * size_) {}
  std::int64_t count() const { return count_; }
  template <class Number>
  T* at(Number turn) const {
    return data_.data() + static_cast<std::int64_t>(turn) % count_ * size_;
  }

 private:
  static constexpr std::int64_t kLine = 64 / sizeof(T);
  static constexpr std::int64_t kMostShared = 1 << 20;
  std::int64_t size_ = 0, count_ = 1;
  cpu::HostBuffer<T> data_;
};

/// Asks for part `part` of `parts` of `count` elements, to be there in the second cache when a product is done.
template <class T>
HWY_INLINE void ask_for(const T* p, std::int64_t count, std::int64_t part = 0, std::int64_t parts = 1) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  const std::int64_t end = count * (part + 1) / parts;
  for (std::int64_t i = count * part / parts; i < end; i += kLine) __builtin_prefetch(p + i, 0, 2);
}
/// The same for `n` elements of each of `rows` rows.
template <class T>
HWY_INLINE void ask_for_rows(const T* p, std::int64_t row, std::int64_t rows, std::int64_t n) {
  for (std::int64_t i = 0; i < rows; ++i) ask_for(p + i * row, n);
}

/// to(j, i) = from(i, j) for i < m, j < n; rows of `from` are `from_row` apart, of `to` m.
template <class T>
void turn_over(const T* from, std::int64_t from_row, std::int64_t m, std::int64_t n, T* to) {
  std::int64_t i = 0;
  for (const RowOffsets<T> rows(kVector<T>, from_row); i + kVector<T> <= m; i += kVector<T>)
    transpose_rows<T>(from + i * from_row, rows, n, to + i, m);
  for (; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) to[j * m + i] = from[i * from_row + j];
}

}  // namespace
}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
