// Convolutions with few channels, where packing costs more than arithmetic. The staged source is copied once per
// horizontal tap, as rows of the dest's width: then all positions of an image lie in one run for every tap, and the
// register tiles read them where they are. Compiled once per SIMD target; included after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_CONV_DIRECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_CONV_DIRECT_INL_H_
#undef ATHANOR_DEVICE_CPU_CONV_DIRECT_INL_H_
#else
#define ATHANOR_DEVICE_CPU_CONV_DIRECT_INL_H_
#endif
// clang-format on

#include <optional>

#include "athanor/device/cpu/conv_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

/// The source of a unit, one copy per horizontal tap: (image, channel, column of taps, phase, row, dest column).
template <class T>
class ShiftedStage {
 public:
  using Sum = T;
  ShiftedStage(const TapConv& taps, const ConvData& source, std::int64_t first, std::int64_t channels)
      : taps_(taps), columns_(taps.axis[2].parts[0].taps), channels_(channels), stage_(taps, source, first, channels) {}

  static std::int64_t plane_of(const TapConv& taps, std::int64_t rows) {
    return static_cast<std::int64_t>(taps.axis[2].parts[0].taps.size()) * taps.axis[1].phases *
           (rows + taps.axis[1].reach) * taps.axis[2].longest;
  }

  void load(const Unit& unit) {
    stage_.load(unit);
    const std::int64_t width = taps_.axis[2].longest, phases = taps_.axis[2].phases, pitch = stage_.step(1);
    rows_ = unit.rows + taps_.axis[1].reach;
    column_step_ = taps_.axis[1].phases * rows_ * width;
    channel_step_ = static_cast<std::int64_t>(columns_.size()) * column_step_;
    T* to = scratch<T>(kPackedBSlot, unit.images * channels_ * channel_step_ + 2 * kVector<T>);
    data_ = to;
    const hn::ScalableTag<T> d;
    const hn::Half<decltype(d)> half;
    for (std::int64_t n = 0; n < unit.images; ++n)
      for (std::int64_t c = 0; c < channels_; ++c) {
        const T* plane = stage_.data() + n * stage_.image_step() + c * stage_.channel_step();
        for (const detail::Tap& column : columns_)
          for (std::int64_t f = 0; f < taps_.axis[1].phases; ++f) {
            const T* from = plane + (f * phases + column.phase) * rows_ * pitch + column.offset;
            if (width == kVector<T>)
              to = copy_rows(d, from, pitch, to);
            else if (width == kVector<T> / 2)
              to = copy_rows(half, from, pitch, to);
            else
              to = copy_rows_of(width, from, pitch, to);
          }
      }
    // Vectors may read beyond the last position: what they find there is dropped, but should be no signalling garbage.
    hn::StoreU(hn::Zero(d), d, to);
    hn::StoreU(hn::Zero(d), d, to + kVector<T>);
  }

  const T* data() const { return data_; }
  std::int64_t image_step() const { return channels_ * channel_step_; }
  /// Where the taps of every channel read position 0: [c · taps + t]. Valid until the next call.
  const std::vector<std::int64_t>& offsets(const TapPart& part) {
    if (offsets_rows_ == rows_) return offsets_;
    offsets_rows_ = rows_;
    offsets_.clear();
    for (std::int64_t c = 0; c < channels_; ++c)
      for (const auto& tap : part.taps)
        offsets_.push_back(c * channel_step_ + (tap[2] - columns_.data()) * column_step_ +
                           (tap[1]->phase * rows_ + tap[1]->offset) * taps_.axis[2].longest);
    return offsets_;
  }

 private:
  /// Rows of one vector.
  template <class D>
  HWY_INLINE T* copy_rows(D d, const T* from, std::int64_t pitch, T* to) const {
    const T* const end = to + rows_ * hn::MaxLanes(d);
    for (; to < end; from += pitch, to += hn::MaxLanes(d)) hn::StoreU(hn::LoadU(d, from), d, to);
    return to;
  }

  /// What a row's last vector has too much, the next row overwrites.
  HWY_INLINE T* copy_rows_of(std::int64_t width, const T* from, std::int64_t pitch, T* to) const {
    const hn::ScalableTag<T> d;
    const hn::Half<decltype(d)> half;
    for (const T* const end = to + rows_ * width; to < end; from += pitch, to += width) {
      std::int64_t x = 0;
      for (; x + kVector<T> / 2 < width; x += kVector<T>) hn::StoreU(hn::LoadU(d, from + x), d, to + x);
      if (x < width) hn::StoreU(hn::LoadU(half, from + x), half, to + x);
    }
    return to;
  }

  const TapConv& taps_;
  const std::vector<detail::Tap>& columns_;
  const std::int64_t channels_;
  Stage<T, T> stage_;
  const T* data_ = nullptr;
  std::int64_t rows_ = 0, column_step_ = 0, channel_step_ = 0;
  std::vector<std::int64_t> offsets_;
  std::int64_t offsets_rows_ = -1;
};

/// `count` tiles beside each other, each as `tile`'s with row p of b at b + at[p]. `asks`: meanwhile they ask for the
/// lines that the next one writes.
template <class T, int kRows, int kVectors>
HWY_NOINLINE void tap_tiles(std::int64_t count, std::int64_t k, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b,
                            const std::int64_t* HWY_RESTRICT at, T* to, std::int64_t to_step, const TileEnd<T>& end,
                            bool asks) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kCols = kVectors * kVector<T>;
  for (; count > 0; --count, b += kCols, to += kCols) {
    V sum[kRows][kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] = empty_sum(d);
    if (asks) {
      const T* next = to + 2 * kCols - 1;
#pragma GCC unroll 1
      for (int i = 0; i < kRows; ++i, next += to_step) {
        __builtin_prefetch(next, 1);
        if constexpr (kCols > kLine<T>) __builtin_prefetch(next - kLine<T>, 1);
      }
    }
    std::int64_t p = 0;
    const T* HWY_RESTRICT step = a;
    if constexpr (kUnrolls<T, kRows>) {
#pragma GCC unroll 1
      for (; p + kUnrolled <= k; p += kUnrolled, step += kUnrolled * kRows)
#pragma GCC unroll 4
        for (int u = 0; u < kUnrolled; ++u) add_step<T>(sum, step + u * kRows, 1, b + at[p + u]);
    }
#pragma GCC unroll 1
    for (; p < k; ++p, step += kRows) add_step<T>(sum, step, 1, b + at[p]);
    end_tile<T, kRows, kVectors>(end, sum);
    // Not the compiler's business that the step stays: it would keep the distances of all rows on the stack.
    std::int64_t row_step = to_step;
    asm("" : "+r"(row_step));
    T* row = to;
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i, row += row_step)
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) hn::StoreU(sum[i][j], d, row + j * kVector<T>);
  }
}

template <class T>
using TapTilesFn = void (*)(std::int64_t count, std::int64_t k, const T* a, const T* b, const std::int64_t* at, T* to,
                            std::int64_t to_step, const TileEnd<T>& end, bool asks);
template <class T, int kVectors, int... kRow>
TapTilesFn<T> pick_tap_tiles(int rows, std::integer_sequence<int, kRow...>) {
  constexpr TapTilesFn<T> table[] = {&tap_tiles<T, kRow + 1, kVectors>...};
  return table[rows - 1];
}

/// dest = taps(source), see detail::few_channels.
template <class T>
class DirectRun {
 public:
  DirectRun(const ConvCall& call, const TapConv& taps)
      : call_(call),
        taps_(taps),
        source_(taps.forward ? call.x : call.y),
        dest_(taps.forward ? call.y : call.x),
        weights_(call, taps) {}

  void run() {
    weights_.pack();
    const std::int64_t team = in_parallel_region() ? 1 : get_num_threads();
    const auto units =
        make_units<ShiftedStage<T>>(taps_, taps_.from, (team + taps_.groups - 1) / taps_.groups, UnitUse::Image);
    const std::int64_t tasks = static_cast<std::int64_t>(units.size()) * taps_.groups;
    parallel_for(0, tasks, grain_of(call_, taps_, tasks), [&](std::int64_t begin, std::int64_t end) {
      std::optional<ShiftedStage<T>> stage;
      std::int64_t group = -1;
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t g = t / static_cast<std::int64_t>(units.size());
        if (g != group) stage.emplace(taps_, source_, g * taps_.from, taps_.from);
        group = g;
        unit(units[t % units.size()], g, *stage);
      }
    });
  }

 private:
  static constexpr std::int64_t kFewProducts = 16;  // of a result

  void unit(const Unit& u, std::int64_t g, ShiftedStage<T>& stage) const {
    const TapPart& part = weights_.parts()[0];
    stage.load(u);
    const std::vector<std::int64_t>& offsets = stage.offsets(part);
    const std::int64_t width = taps_.axis[2].longest, positions = u.rows * width;
    const RowTiles& tiles = weights_.tiles();
    T* dest =
        static_cast<T*>(dest_.data) + u.image * dest_.batch_step + g * taps_.to * dest_.channel_step + u.row * width;
    for (std::int64_t t = 0; t < tiles.count; ++t) {
      const T* a = weights_.panel(g, part, t);
      TileEnd<T> end;
      if (weights_.bias()) end.row_add = weights_.bias() + g * taps_.to + tiles.begin(t);
      end.relu = call_.epilogue == Epilogue::Relu;
      columns(tiles.height(t), part.inner, a, stage.data(), offsets.data(), dest + tiles.begin(t) * dest_.channel_step,
              positions, end);
    }
  }

  /// `count` results of each of `rows` channels. The last vectors lie over those before, where there are any: what both
  /// hold is the same.
  void columns(int rows, std::int64_t k, const T* a, const T* b, const std::int64_t* at, T* to, std::int64_t count,
               const TileEnd<T>& end) const {
    constexpr std::make_integer_sequence<int, kTileRows> all{};
    // Few products leave the hardware too little time to fetch the lines of so many rows before they are written.
    const bool asks = k <= kFewProducts;
    const TapTilesFn<T> wide = pick_tap_tiles<T, 2>(rows, all);
    wide(count / kTileCols<T>, k, a, b, at, to, dest_.channel_step, end, asks);
    const std::int64_t left = count % kTileCols<T>;
    if (left == 0) return;
    const std::int64_t width = left <= kVector<T> ? kVector<T> : kTileCols<T>, first = count - width;
    const TapTilesFn<T> last = width == kTileCols<T> ? wide : pick_tap_tiles<T, 1>(rows, all);
    if (first >= 0) return last(1, k, a, b + first, at, to + first, dest_.channel_step, end, false);
    HWY_ALIGN T edge[kTileRows * kTileCols<T>];
    last(1, k, a, b, at, edge, width, end, false);
    for (int i = 0; i < rows; ++i) std::copy_n(edge + i * width, left, to + i * dest_.channel_step);
  }

  const ConvCall& call_;
  const TapConv& taps_;
  const ConvData &source_, &dest_;
  PackedTaps<T, T> weights_;
};

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
