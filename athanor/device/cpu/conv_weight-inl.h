// Gradients of convolution weights as blocked products: rows are channels and taps of the input, columns are output
// channels, positions are the inner dimension. Compiled once per SIMD target; included after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_CONV_WEIGHT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_CONV_WEIGHT_INL_H_
#undef ATHANOR_DEVICE_CPU_CONV_WEIGHT_INL_H_
#else
#define ATHANOR_DEVICE_CPU_CONV_WEIGHT_INL_H_
#endif
// clang-format on

#include "athanor/device/cpu/conv_taps-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

/// One piece of the gradient: input channels [c0, c1) and output channels [k0, k1) of a group, over some images.
struct WeightPiece {
  std::int64_t group = 0, c0 = 0, c1 = 0, k0 = 0, k1 = 0, image0 = 0, image1 = 0;
};

template <class In, class T>
class WeightRun {
 public:
  /// Taps of the forward direction.
  WeightRun(const ConvCall& call, const TapConv& taps)
      : call_(call), taps_(taps), part_(parts_of(taps)[0]), count_(static_cast<std::int64_t>(part_.taps.size())) {}

  void run() {
    const std::int64_t channels = taps_.from, outputs = taps_.to;
    // With few channels the images are cut instead, into a number of shares that depends on the shape alone: each share
    // is summed apart, then all in order.
    const std::int64_t shares = channels < 8 ? std::clamp<std::int64_t>(taps_.batch, 1, 8) : 1;
    const std::int64_t team = in_parallel_region() ? 1 : get_num_threads();
    const std::int64_t wanted = std::max<std::int64_t>(1, team / std::max<std::int64_t>(1, taps_.groups * shares));
    const std::int64_t c_pieces = std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, channels / 8));
    const std::int64_t k_pieces =
        std::clamp<std::int64_t>(wanted / c_pieces, 1, std::max<std::int64_t>(1, outputs / kTileCols<T>));
    const std::int64_t size = taps_.groups * outputs * channels * count_;
    T* const direct = shares == 1 ? plain_weight() : nullptr;
    const std::int64_t apart = direct ? 0 : size, share = apart + taps_.groups * outputs;
    T* const room = scratch<T>(kWeightSlot, shares * share);
    const std::int64_t tasks = taps_.groups * shares * c_pieces * k_pieces;
    const double work =
        static_cast<double>(size) * static_cast<double>(taps_.batch) * static_cast<double>(call_.shape.y_pixels());
    parallel_for(0, tasks, work < 300e3 ? tasks : 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t k = t % k_pieces, c = t / k_pieces % c_pieces, s = t / k_pieces / c_pieces % shares;
        WeightPiece p;
        p.group = t / k_pieces / c_pieces / shares;
        p.c0 = c * channels / c_pieces, p.c1 = (c + 1) * channels / c_pieces;
        p.k0 = k * outputs / k_pieces, p.k1 = (k + 1) * outputs / k_pieces;
        p.image0 = s * taps_.batch / shares, p.image1 = (s + 1) * taps_.batch / shares;
        T* const out = room + s * share;
        piece(p, (direct ? direct : out) + p.group * outputs * channels * count_, out + apart + p.group * outputs);
      }
    });
    if (!direct) store(room, shares, size);
    store_bias(room + apart, shares, share);
  }

 private:
  static constexpr std::int64_t kPositions = 256;     // of a block
  static constexpr std::int64_t kRowsAtOnce = 8 * 9;  // channel rows copied at once, about

  static int width(std::int64_t n) { return n <= kVector<T> ? kVector<T> : kTileCols<T>; }

  /// sums: (k, c, tap) of the group; bias_sums: (k).
  void piece(const WeightPiece& p, T* sums, T* bias_sums) const {
    const RowTiles tiles((p.c1 - p.c0) * count_);
    const std::int64_t cols = p.k1 - p.k0, panels = (cols + kTileCols<T> - 1) / kTileCols<T>;
    const std::int64_t tile_size = kTileRows * kTileCols<T>;
    T* acc = scratch<T>(kSumsSlot, panels * tiles.count * tile_size + panels * kTileCols<T>);
    T* bias_acc = acc + panels * tiles.count * tile_size;
    std::fill_n(acc, panels * tiles.count * tile_size + panels * kTileCols<T>, T(0));

    Stage<In, T> stage(taps_, call_.x, p.group * taps_.from + p.c0, p.c1 - p.c0);
    TapConv share = taps_;
    share.batch = p.image1 - p.image0;
    std::vector<Segment> segments;
    std::vector<std::int64_t> offsets;
    for (Unit u : make_units<Stage<In, T>>(share, taps_.from, 1, UnitUse::Steps)) {
      u.image += p.image0;
      stage.load(u);
      offsets.clear();
      for (const auto& tap : part_.taps) offsets.push_back(stage.offset(tap));
      const Grid grid = grid_of(taps_, u, part_.part);
      const std::int64_t positions = grid.positions(), blocks = (positions + kPositions - 1) / kPositions;
      for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t at = b * positions / blocks, n = (b + 1) * positions / blocks - at;
        find_segments(taps_, u, grid, stage, call_.y, p.group * taps_.to + p.k0, at, at + n, segments);
        const T* packed = pack_outputs(segments, n, cols);
        if (p.c0 == 0) add_bias(packed, n, cols, bias_acc);
        multiply(stage, offsets, segments, n, packed, cols, tiles, acc);
      }
    }
    for (std::int64_t q = 0; q < panels; ++q)
      for (std::int64_t t = 0; t < tiles.count; ++t) {
        const T* tile = acc + (q * tiles.count + t) * tile_size;
        const std::int64_t n = std::min<std::int64_t>(kTileCols<T>, cols - q * kTileCols<T>);
        for (std::int64_t j = 0; j < n; ++j)
          for (int i = 0; i < tiles.height(t); ++i)
            sums[(p.k0 + q * kTileCols<T> + j) * taps_.from * count_ + p.c0 * count_ + tiles.begin(t) + i] =
                tile[i * width(n) + j];
      }
    if (p.c0 == 0)
      for (std::int64_t j = 0; j < cols; ++j) bias_sums[p.k0 + j] = bias_acc[j];
  }

  /// The output's gradient, panels of (position, output channel).
  const T* pack_outputs(const std::vector<Segment>& segments, std::int64_t n, std::int64_t cols) const {
    const ConvData& y = call_.y;
    T* packed = scratch<T>(kPackedBSlot, (cols + kTileCols<T> - 1) / kTileCols<T> * kTileCols<T> * n + kVector<T>);
    for (std::int64_t j = 0; j < cols; j += kTileCols<T>) {
      const int w = static_cast<int>(std::min<std::int64_t>(kTileCols<T>, cols - j));
      for (const Segment& s : segments)
        pack_b<T>(static_cast<const In*>(y.data) + s.to + j * y.channel_step, y.step[2], y.channel_step, s.length, w,
                  width(w), packed + j * n + s.first * width(w));
    }
    return packed;
  }

  void add_bias(const T* packed, std::int64_t n, std::int64_t cols, T* acc) const {
    const hn::ScalableTag<T> d;
    for (std::int64_t j = 0; j < cols; j += kTileCols<T>) {
      const int w = width(cols - j);
      for (int v = 0; v < w; v += kVector<T>) {
        auto sum = hn::Zero(d);
        for (std::int64_t p = 0; p < n; ++p) sum = hn::Add(sum, hn::LoadU(d, packed + j * n + p * w + v));
        hn::StoreU(hn::Add(sum, hn::LoadU(d, acc + j + v)), d, acc + j + v);
      }
    }
  }

  /// acc += rows of the staged input × packed outputs, a few channels at a time.
  void multiply(const Stage<In, T>& stage, const std::vector<std::int64_t>& offsets,
                const std::vector<Segment>& segments, std::int64_t n, const T* packed, std::int64_t cols,
                const RowTiles& tiles, T* acc) const {
    const hn::ScalableTag<T> d;
    const std::int64_t row_step = (n + kVector<T> - 1) / kVector<T> * kVector<T> + kVector<T>;
    const std::int64_t tile_size = kTileRows * kTileCols<T>;
    const std::int64_t tiles_at_once = std::max<std::int64_t>(1, kRowsAtOnce / kTileRows);
    T* rows = scratch<T>(kPackedASlot, (tiles_at_once * kTileRows + 1) * row_step);
    for (std::int64_t t0 = 0; t0 < tiles.count; t0 += tiles_at_once) {
      const std::int64_t t1 = std::min(t0 + tiles_at_once, tiles.count);
      T* row = rows;
      for (std::int64_t r = tiles.begin(t0); r < tiles.begin(t1); ++r, row += row_step) {
        const T* base = stage.data() + r / count_ * stage.channel_step() + offsets[r % count_];
        for (const Segment& s : segments)
          for (std::int64_t i = 0; i < s.length; i += kVector<T>)
            hn::StoreU(hn::LoadU(d, base + s.from + i), d, row + s.first + i);
      }
      for (std::int64_t j = 0; j < cols; j += kTileCols<T>) {
        const int w = width(cols - j);
        T* sum = acc + (j / kTileCols<T> * tiles.count + t0) * tile_size;
        for (std::int64_t t = t0; t < t1; ++t, sum += tile_size)
          tile_for<T>(tiles.height(t), w / kVector<T>, AForm::Rows)(
              n, rows + (tiles.begin(t) - tiles.begin(t0)) * row_step, row_step, packed + j * n, w, sum, sum, w,
              nullptr);
      }
    }
  }

  /// Of the taps from a filter's first value.
  std::vector<std::int64_t> tap_offsets() const {
    std::vector<std::int64_t> tap(count_);
    for (std::int64_t t = 0; t < count_; ++t)
      for (int e = 0; e < kAxes; ++e) tap[t] += part_.taps[t][e]->index * call_.w.step[e];
    return tap;
  }

  /// The weight, if its values have the type and the order of the sums; else null.
  T* plain_weight() const {
    const auto& w = call_.w;
    if (!std::is_same_v<In, T> || w.x_step != count_ || w.y_step != taps_.from * count_) return nullptr;
    const std::vector<std::int64_t> tap = tap_offsets();
    for (std::int64_t t = 0; t < count_; ++t)
      if (tap[t] != t) return nullptr;
    return static_cast<T*>(w.data);
  }

  void store(const T* sums, std::int64_t shares, std::int64_t size) const {
    const auto& w = call_.w;
    const std::int64_t outputs = taps_.groups * taps_.to, share = size + outputs;
    const std::vector<std::int64_t> tap = tap_offsets();
    parallel_for(0, outputs, std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, taps_.from * count_)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t k = begin; k < end; ++k)
                     for (std::int64_t c = 0; c < taps_.from; ++c)
                       for (std::int64_t t = 0; t < count_; ++t)
                         static_cast<In*>(w.data)[k * w.y_step + c * w.x_step + tap[t]] =
                             total(sums + (k * taps_.from + c) * count_ + t, shares, share);
                 });
  }

  void store_bias(const T* sums, std::int64_t shares, std::int64_t share) const {
    In* const bias = static_cast<In*>(const_cast<void*>(call_.bias));
    if (!bias) return;
    for (std::int64_t k = 0; k < taps_.groups * taps_.to; ++k)
      bias[k * call_.bias_step] = total(sums + k, shares, share);
  }

  /// One value of all shares, which are `share` apart.
  static In total(const T* sums, std::int64_t shares, std::int64_t share) {
    T sum = *sums;
    for (std::int64_t s = 1; s < shares; ++s) sum += sums[s * share];
    return convert<In>(sum);
  }

  const ConvCall& call_;
  const TapConv& taps_;
  const TapPart part_;
  const std::int64_t count_;
};

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
