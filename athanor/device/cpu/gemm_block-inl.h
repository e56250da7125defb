// One block of a product on one thread: packs, runs register tiles, finishes. Compiled once per SIMD target; included
// by kernel files after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_GEMM_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_GEMM_BLOCK_INL_H_
#undef ATHANOR_DEVICE_CPU_GEMM_BLOCK_INL_H_
#else
#define ATHANOR_DEVICE_CPU_GEMM_BLOCK_INL_H_
#endif
// clang-format on

#include "athanor/device/cpu/gemm_block.h"
#include "athanor/device/cpu/gemm_packing-inl.h"
#include "athanor/device/cpu/gemm_thin-inl.h"
#include "athanor/device/cpu/gemm_tile-inl.h"
#include "athanor/device/cpu/gemm_wide-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

// With AVX-512 a row tile of a stays in the first cache while the panels of b pass by: they come at the same rate as
// the other way round. The smaller tiles of the others would ask for twice as much: there a panel of b stays in the
// first cache and a stripe of a in the second, but where few steps make all of b so small that it stays in the second.
inline constexpr bool kPanelStays = HWY_MAX_BYTES < 64;
/// Steps summed in registers before the next are added: a row tile takes a third to a half of the first cache.
template <class T>
inline constexpr std::int64_t kBlockSteps = !kPanelStays && sizeof(T) == 8 ? 192 : 256;
inline constexpr std::int64_t kFewSteps = 128;
inline constexpr std::int64_t kStripeTiles = kPanelStays ? 32 : 8;      // rows of tiles that share a pass over b
inline constexpr std::int64_t kStripeCols = kPanelStays ? 2048 : 1024;  // columns of b per pass over a, more if short
inline constexpr std::int64_t kPackedB = kPanelStays ? 1 << 22 : 1 << 21;  // elements of packed b, about
/// For BlockRun::near. Bytes of a block of a that stay in the second cache (found with 512 KB of it) while all panels
/// of b pass by; of all blocks of a, in the third; elements of the sums between blocks.
inline constexpr std::int64_t kNearA = 256 << 10, kNearBlocksOfA = 1 << 20, kNearSums = 128 << 10;
/// Bytes and steps of a b whose rows run across its panels, at least: a small one is packed as fast all at once. Panels
/// that take turns over the blocks of such a b.
inline constexpr std::int64_t kNearFarB = 512 << 10, kNearFarSteps = 96, kNearPanels = 4;
/// The same for GemmPlan::deep.
inline constexpr std::int64_t kDeepSteps = 2048, kDeepTiles = 8, kDeepPackedB = 1 << 22;

/// In: element type of the operands. T: type of the sums.
template <class In, class T>
class BlockRun {
 public:
  BlockRun(const GemmProblem& g, const detail::GemmPlan& plan)
      : g_(g),
        plan_(plan),
        finish_(g),
        a_(static_cast<const In*>(g.a)),
        b_(static_cast<const In*>(g.b)),
        tiles_(g.m),
        deep_(kTilesPack && plan.deep),
        block_steps_(deep_ ? kDeepSteps : kBlockSteps<T>),
        stripe_tiles_(deep_ ? kDeepTiles : kStripeTiles),
        blocks_((g.k + block_steps_ - 1) / block_steps_),
        one_stripe_(tiles_.count <= stripe_tiles_),
        packed_steps_(one_stripe_ ? std::min(g.k, block_steps_) : g.k),
        direct_(std::is_same_v<In, T> && g.c_col == 1 && finish_.in_registers()) {
    const bool tiles_pack = kTilesPack && g.k > kFewSteps && tiles_.low >= kPackingRows;
    a_on_the_way_ = tiles_pack && plan.pack_a && g.a_row == 1 && g.a_col != 1;
    b_on_the_way_ = tiles_pack && plan.pack_b && (plan.pack_a || g.a_row == 1) && g.b_col == 1 &&
                    (deep_ || g.b_row * static_cast<std::int64_t>(sizeof(T)) % 2048 != 0);
  }

  void run() {
    if constexpr (kNear)
      if (suits_near()) return near();
    std::int64_t step = kStripeCols;
    if (deep_) {
      step = std::max<std::int64_t>(kDeepPackedB / packed_steps_, kCols) / kCols * kCols;
    } else if (plan_.pack_b) {
      const std::int64_t most = kStripeCols * kBlockSteps<T> / std::min(g_.k, kBlockSteps<T>);
      step = std::clamp<std::int64_t>(kPackedB / packed_steps_, kCols, most) / kCols * kCols;
    }
    for (std::int64_t j = 0; j < g_.n; j += step) columns(j, std::min(step, g_.n - j));
  }

 private:
  static constexpr int kCols = kTileCols<T>;
  static constexpr bool kNear = HWY_TARGET == HWY_AVX2 && std::is_same_v<In, T> && std::is_floating_point_v<T>;
  static constexpr bool kParts = kPanelStays && std::is_same_v<In, T> && std::is_floating_point_v<T>;
  static constexpr bool kTilesPack = !kPanelStays && std::is_same_v<In, T> && std::is_same_v<T, float>;

  /// A panel of b stays while row tiles pass by, or the other way round.
  bool panel_stays() const { return kPanelStays || deep_; }
  std::int64_t k_of(std::int64_t block) const { return block * g_.k / blocks_; }
  bool in_parts() const { return kParts && g_.k_part != 0; }
  std::int64_t steps_of_part() const { return in_parts() ? g_.k_part : g_.k; }
  /// Where step p of an operand lies.
  const In* a_at(std::int64_t p) const {
    if (!in_parts()) return a_ + p * g_.a_col;
    const std::int64_t part = g_.k_part;
    return a_ + p / part * g_.a_part + p % part * g_.a_col;
  }
  const In* b_at(std::int64_t p) const {
    if (!in_parts()) return b_ + p * g_.b_row;
    const std::int64_t part = g_.k_part;
    return b_ + p / part * g_.b_part + p % part * g_.b_row;
  }
  /// Calls body(first, count) for the runs of steps [p, p + k) within parts.
  template <class F>
  void each_run(std::int64_t p, std::int64_t k, const F& body) const {
    for (const std::int64_t end = p + k; p < end;) {
      const std::int64_t count = std::min(steps_of_part() - p % steps_of_part(), end - p);
      body(p, count);
      p += count;
    }
  }

  /// Row tiles [t0, t1) of k steps from p on, packed.
  void pack_rows(std::int64_t t0, std::int64_t t1, std::int64_t p, std::int64_t k, T* out) const {
    const auto begin = [this](std::int64_t t) { return tiles_.begin(t); };
    const std::int64_t i0 = begin(t0);
    if (!in_parts())
      return pack_a_panels<T>(a_ + i0 * g_.a_row + p * g_.a_col, g_.a_row, g_.a_col, k, t0, t1, begin, out);
    if constexpr (kParts)
      for (std::int64_t t = t0; t < t1; ++t)
        each_run(p, k, [&](std::int64_t first, std::int64_t count) {
          pack_a<T>(a_at(first) + begin(t) * g_.a_row, g_.a_row, g_.a_col, count, tiles_.height(t),
                    out + (begin(t) - i0) * k + (first - p) * tiles_.height(t));
        });
  }
  /// n columns of b from j on, k steps from p on, packed.
  void pack_columns(std::int64_t j, std::int64_t n, std::int64_t p, std::int64_t k, T* out) const {
    if (!in_parts()) return pack_b_panels<T>(b_ + p * g_.b_row + j * g_.b_col, g_.b_row, g_.b_col, k, n, out);
    if constexpr (kParts)
      for (std::int64_t q = 0; q < n; q += kCols)
        pack_panel(j + q, std::min<std::int64_t>(kCols, n - q), p, k, out + q * k);
  }
  /// One panel of them.
  void pack_panel(std::int64_t j, std::int64_t n, std::int64_t p, std::int64_t k, T* out) const {
    const int cols = static_cast<int>(n), w = width(n);
    each_run(p, k, [&](std::int64_t first, std::int64_t count) {
      pack_b<T>(b_at(first) + j * g_.b_col, g_.b_row, g_.b_col, count, cols, w, out + (first - p) * w);
    });
  }
  T* packed_block(std::int64_t block) const { return packed_b_ + (one_stripe_ ? 0 : k_of(block) * packed_cols_); }
  static int width(std::int64_t cols) { return cols <= kVector<T> ? kVector<T> : kCols; }
  static T* scratch(int slot, std::int64_t count) {
    return static_cast<T*>(detail::thread_scratch(slot, sizeof(T) * static_cast<std::size_t>(count)));
  }

  /// Packed b: all panels of the first inner block, then those of the next …, so that they go round all sets of the
  /// cache; without packing only the narrow last panel.
  void columns(std::int64_t j, std::int64_t cols) {
    const std::int64_t tail = cols % kCols;
    const std::int64_t packed = plan_.pack_b ? cols : tail, later = b_on_the_way_ ? cols - tail : 0;
    packed_cols_ = (packed + kCols - 1) / kCols * kCols;
    packed_b_ = scratch(1, packed_cols_ * packed_steps_);
    const auto pack = [&](std::int64_t block) {
      const std::int64_t p = k_of(block), k = k_of(block + 1) - p;
      pack_columns(j + cols - packed + later, packed - later, p, k, packed_block(block) + later * k);
    };
    for (std::int64_t block = 0; block < blocks_ && !one_stripe_; ++block) pack(block);
    for (std::int64_t t = 0; t < tiles_.count; t += stripe_tiles_) {
      const std::int64_t end = std::min(t + stripe_tiles_, tiles_.count);
      if (blocks_ > 1) sums_ = scratch(0, (end - t) * kTileRows * ((cols + kCols - 1) / kCols) * kCols);
      for (std::int64_t block = 0; block < blocks_; ++block) {
        if (one_stripe_) pack(block);
        stripe(j, cols, t, end, block);
      }
    }
  }

  /// Rows of a so few that what packing b costs counts: a panel is packed where it stays in the first cache, read once
  /// by each row tile, and the next one packed in its place.
  bool suits_near() const {
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
    if (!plan_.pack_b || g_.m * std::min(g_.k, block_steps_) * kBytes > kNearA) return false;
    if (plan_.pack_a && near_keeps_a() && g_.m * g_.k * kBytes > kNearBlocksOfA) return false;
    // Rows a multiple of 2048 bytes apart push each other out of the second cache before they are packed.
    if (g_.b_col == 1)
      return g_.k >= kNearFarSteps && g_.k * g_.n * kBytes >= kNearFarB && g_.b_row * kBytes % 2048 != 0;
    // Columns of few steps are turned over in one go as fast; many rows take b in stripes, unless there is more of it.
    return g_.b_row == 1 && g_.k > kFewSteps && (one_stripe_ || g_.n >= g_.m);
  }
  /// Columns whose sums wait for the next block.
  std::int64_t near_columns() const {
    return g_.b_col == 1 ? kNearPanels * kCols : std::max<std::int64_t>(kNearSums / g_.m / kCols, 1) * kCols;
  }
  /// Whether blocks of a come round again for the next columns. Otherwise there is one, or one group of columns.
  bool near_keeps_a() const { return blocks_ > 1 && g_.n > near_columns(); }

  /// The product by groups of columns. All blocks of a are packed in rising order, as each writes up to a vector into
  /// the next one's place.
  void near() {
    const std::int64_t step = near_columns(), widest = std::min(step, (g_.n + kCols - 1) / kCols * kCols);
    T* const all_a = plan_.pack_a ? scratch(2, g_.m * (near_keeps_a() ? g_.k : block_steps_) + kVector<T>) : nullptr;
    T* const panel = scratch(1, block_steps_ * kCols);
    if (blocks_ > 1) sums_ = scratch(0, tiles_.count * kTileRows * widest);
    for (std::int64_t j = 0; j < g_.n; j += step)
      for (std::int64_t block = 0; block < blocks_; ++block) {
        const std::int64_t p = k_of(block), k = k_of(block + 1) - p;
        T* const packed_a = all_a && near_keeps_a() ? all_a + g_.m * p : all_a;
        if (packed_a && j == 0) pack_rows(0, tiles_.count, p, k, packed_a);
        near_panels(j, std::min(step, g_.n - j), block, packed_a, panel);
      }
  }

  /// The panel after the one at column q of columns [j, j + cols): where its first row or column lies, if there is one.
  const T* next_panel(std::int64_t j, std::int64_t cols, std::int64_t q, std::int64_t block) const {
    std::int64_t column = j + q + kCols;
    if (q + kCols >= cols) {
      const bool stays = block + 1 < blocks_;
      block = stays ? block + 1 : 0;
      column = stays ? j : j + cols;
    }
    return column < g_.n ? b_at(k_of(block)) + column * g_.b_col : nullptr;
  }

  /// Has the tiles of a run, from the t-th of those that ask on, ask for a panel: for a row in each turn of steps, or a
  /// column in each tile, as far as there are tiles.
  void ask_for(const T* panel, TileRun<T>& run, std::int64_t t) const {
    const std::int64_t turns = run.k / kUnrolled;
    const bool rows = g_.b_col == 1;
    run.ask_next = rows ? turns * g_.b_row : g_.b_col;
    run.ask_step = rows ? g_.b_row : kUnrolled;
    run.ask = panel + t * run.ask_next;
    run.ask_tiles = (rows ? (run.k + turns - 1) / turns : kCols) - t;
  }

  /// Columns [j, j + cols) over one inner block. packed_a: null if a is read where it lies. Sums between blocks lie
  /// tile by tile down each panel.
  void near_panels(std::int64_t j, std::int64_t cols, std::int64_t block, const T* packed_a, T* panel) const {
    const std::int64_t p = k_of(block), k = k_of(block + 1) - p;
    TileRun<T> run;  // one for all: to clear it takes as long as several steps of a tile
    run.k = k;
    run.b = panel;
    for (std::int64_t q = 0; q < cols; q += kCols) {
      const int n = static_cast<int>(std::min<std::int64_t>(kCols, cols - q));
      const bool copies = packed_a && g_.b_col == 1 && !in_parts() && n == kCols && tiles_.low >= kTileRows - 1;
      if (!copies) pack_panel(j + q, n, p, k, panel);
      const T* const next = next_panel(j, cols, q, block);
      const std::int64_t first = copies ? 1 : 0, middle = std::max(tiles_.tall, first);
      const auto multiply = [&](std::int64_t t, std::int64_t end) {
        if (t == end) return;
        const int m = tiles_.height(t);
        const std::int64_t i = tiles_.begin(t);
        run.count = end - t;
        run.ask_tiles = run.ask_next = run.end_next = 0;
        run.end = nullptr;
        AForm form = AForm::Columns;
        if (packed_a) {
          run.a = packed_a + i * k;
          run.a_next = m * k;
          run.a_step = m;
        } else {
          form = place_a(run, i, p, m);
        }
        run.b_step = width(n);
        if (next && t >= first && (packed_a || (g_.b_col != 1 && g_.a_row != 1))) ask_for(next, run, t - first);
        Unpacked<T> unpacked;
        if (copies && t == 0) unpacked.b = b_at(p) + (j + q) * g_.b_col, unpacked.b_step = g_.b_row;
        finish_run(run, unpacked, form, block, i, j + q, m, n,
                   sums_ + (q / kCols * tiles_.count + t) * kTileRows * kCols, kTileRows * kCols);
      };
      if (copies) multiply(0, 1);
      multiply(first, middle);
      multiply(middle, tiles_.count);
    }
  }

  /// Has tiles of m rows read a where it lies, from row i and step p on.
  AForm place_a(TileRun<T>& run, std::int64_t i, std::int64_t p, int m) const {
    run.a = a_ + i * g_.a_row + p * g_.a_col;
    run.a_next = m * g_.a_row;
    run.a_step = g_.a_row == 1 ? g_.a_col : g_.a_row;
    return g_.a_row == 1 ? AForm::Columns : AForm::Rows;
  }

  /// Row tiles [t0, t1) over one inner block.
  void stripe(std::int64_t j, std::int64_t cols, std::int64_t t0, std::int64_t t1, std::int64_t block) {
    const std::int64_t i0 = tiles_.begin(t0), p = k_of(block), k = k_of(block + 1) - p,
                       panels = (cols + kCols - 1) / kCols;
    const T* const packed_b = packed_block(block);
    T* packed_a = nullptr;
    if (plan_.pack_a) {
      packed_a = scratch(2, (tiles_.begin(t1) - i0) * k + kVector<T>);
      if (!a_on_the_way_ || cols < kCols) pack_rows(t0, t1, p, k, packed_a);
    }
    // Tiles [t, end) of one height by the panel at column q, or one tile by `beside` panels from there.
    const auto multiply = [&](std::int64_t t, std::int64_t end, std::int64_t q, std::int64_t beside = 0) {
      const int n = static_cast<int>(std::min<std::int64_t>(kCols, cols - q));
      const std::int64_t i = tiles_.begin(t);
      const int m = tiles_.height(t);
      TileRun<T> run;
      run.count = end - t;
      run.k = k;
      run.a = packed_a + (i - i0) * k;
      run.a_next = m * k;
      run.a_step = m;
      run.b = packed_b + (plan_.pack_b ? q * k : 0);
      run.b_step = width(n);
      AForm form = AForm::Columns;
      Unpacked<T> unpacked;
      if constexpr (kTilesPack) {
        // The first panel's tiles pack a, the first tiles b.
        if (a_on_the_way_ && q == 0 && n == kCols)
          unpacked.a = a_ + i + p * g_.a_col, unpacked.a_next = m, unpacked.a_step = g_.a_col;
        if (b_on_the_way_ && t == 0 && n == kCols)
          unpacked.b = b_ + p * g_.b_row + j + q, unpacked.b_next = kCols, unpacked.b_step = g_.b_row;
      }
      if constexpr (std::is_same_v<In, T>) {
        if (!plan_.pack_a) form = place_a(run, i, p, m);
        if (!plan_.pack_b && n == kCols) {
          run.b = b_ + p * g_.b_row + (j + q) * g_.b_col;
          run.b_step = g_.b_row;
        }
      }
      if (beside > 0) {
        run.count = beside;
        run.a_next = 0;
        run.b_next = k * kCols;
      } else if (panel_stays() && plan_.pack_b && q + kCols < cols) {
        run.ask_tiles = t1 - t0;
        run.ask_next = ((k * kCols / kLine<T> + t1 - t0 - 1) / (t1 - t0)) * kLine<T>;
        run.ask_step = std::min((run.ask_next * kUnrolled + k - 1) / k, kLine<T>);
        run.ask = packed_b + (q + kCols) * k + (t - t0) * run.ask_next;
      }
      // Those of a run behind each other.
      const std::int64_t tile = panel_stays() ? q / kCols * (t1 - t0) + t - t0 : (t - t0) * panels + q / kCols;
      finish_run(run, unpacked, form, block, i, j + q, m, n, sums_ + tile * kTileRows * kCols,
                 (panel_stays() || beside > 0 ? 1 : panels) * kTileRows * kCols);
    };
    // Along the rows of c few pages of c are written at a time. A b of its own is far away and read once.
    if (plan_.pack_b && (!panel_stays() || g_.k <= kFewSteps)) {
      const std::int64_t whole = direct_ ? cols / kCols : 0;
      for (std::int64_t t = t0; t < t1; ++t) {
        if (whole > 0) multiply(t, t + 1, 0, whole);
        for (std::int64_t q = whole * kCols; q < cols; q += kCols) multiply(t, t + 1, q);
      }
    } else {
      const std::int64_t middle = std::clamp(tiles_.tall, t0, t1);
      for (std::int64_t q = 0; q < cols; q += kCols) {
        if (t0 < middle) multiply(t0, middle, q);
        if (middle < t1) multiply(middle, t1, q);
      }
    }
  }

  /// A run of tiles of m rows and n columns at (i, j). `sums`: those of earlier blocks, `next` from tile to tile.
  void finish_run(TileRun<T>& run, Unpacked<T>& unpacked, AForm form, std::int64_t block, std::int64_t i,
                  std::int64_t j, int m, int n, T* sums, std::int64_t next) const {
    const int w = width(n);
    const auto multiply = [&] {
      if constexpr (kTilesPack)
        if (unpacked.a || unpacked.b || deep_) return run_packing_tiles<T>(m, w / kVector<T>, run, unpacked, deep_);
      if constexpr (kNear)
        if (unpacked.b) {
          const auto tile = m == kTileRows ? &copying_tile<T, kTileRows> : &copying_tile<T, kTileRows - 1>;
          return tile(run, unpacked.b, unpacked.b_step, const_cast<T*>(run.b));
        }
      run_tiles<T>(m, w / kVector<T>, form, run);
    };
    run.from = block > 0 ? sums : nullptr;
    run.from_next = next;
    if (block + 1 < blocks_) {
      run.to = sums;
      run.to_next = next;
      run.to_step = w;
      multiply();
    } else if (direct_ && n == w) {
      TileEnd<T> end;
      const auto* bias = static_cast<const T*>(g_.bias);
      if (finish_.row_biased()) {
        end.row_add = bias + i;
        if (run.b_next == 0) run.end_next = m;
      } else {
        if (finish_.biased) end.col_add = bias + j;
        if (run.b_next > 0) run.end_next = kCols;
      }
      end.relu = g_.epilogue == Epilogue::Relu;
      run.end = finish_.plain ? nullptr : &end;
      run.to = static_cast<T*>(g_.c) + i * g_.c_row + j;
      run.to_next = run.b_next > 0 ? kCols : m * g_.c_row;
      run.to_step = g_.c_row;
      multiply();
    } else {
      HWY_ALIGN T edge[kTileRows * kCols];
      run.to = edge;
      run.to_step = w;
      for (std::int64_t t = std::exchange(run.count, 1); t > 0; --t, i += m, run.a += run.a_next) {
        multiply();
        finish_(i, j, m, n, edge, w);
        if (run.from) run.from += next;
        run.ask += run.ask_next;
        --run.ask_tiles;
        unpacked.advance(run);
      }
    }
  }

  const GemmProblem& g_;
  const detail::GemmPlan& plan_;
  const Finish<T, In> finish_;
  const In *a_, *b_;
  const RowTiles tiles_;
  const bool deep_;
  const std::int64_t block_steps_, stripe_tiles_, blocks_;
  const bool one_stripe_;  ///< a block of b is multiplied once it is packed, and the next takes its place
  const std::int64_t packed_steps_;
  const bool direct_;
  bool a_on_the_way_ = false, b_on_the_way_ = false;  ///< packed by the tiles that first read it
  T* sums_ = nullptr;
  T* packed_b_ = nullptr;
  std::int64_t packed_cols_ = 0;
};

template <class In, class T>
void tiles(const GemmProblem& g, const detail::GemmPlan& plan) {
  BlockRun<In, T>(g, plan).run();
}

template <class In, class T>
void gemm_block(const GemmProblem& g, const detail::GemmPlan& plan) {
  const Finish<T, In> finish(g);
  if (g.k == 0) {
    const T zeros[64] = {};
    for (std::int64_t i = 0; i < g.m; ++i)
      for (std::int64_t j = 0; j < g.n; j += 64) finish(i, j, 1, std::min<std::int64_t>(64, g.n - j), zeros, 0);
    return;
  }
  if constexpr (std::is_same_v<In, T> && std::is_floating_point_v<T> && HWY_MAX_BYTES == 64)
    if (plan.in_place && g.n % kVector<T> == 0 && finish.in_registers()) return wide_block<T>(g, finish);
  if constexpr (std::is_floating_point_v<T>)
    if (plan.form != detail::GemmPlan::Form::Tiles) return thin_block<In, T>(g, plan, finish);
  tiles<In, T>(g, plan);
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
