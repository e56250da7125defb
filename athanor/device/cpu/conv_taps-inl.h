// Tap convolutions (see conv_shape.h) as blocked products: the dest channels are rows, positions are columns, channel
// and tap are the inner dimension. Compiled once per SIMD target; included after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_CONV_TAPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_CONV_TAPS_INL_H_
#undef ATHANOR_DEVICE_CPU_CONV_TAPS_INL_H_
#else
#define ATHANOR_DEVICE_CPU_CONV_TAPS_INL_H_
#endif
// clang-format on

#include <algorithm>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/conv_stage-inl.h"
#include "athanor/device/cpu/gemm_finish-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

/// The taps of one combination of axis parts, and where the weights of that part lie in packed form.
struct TapPart {
  std::array<const AxisPart*, kAxes> part{};
  std::vector<std::array<const detail::Tap*, kAxes>> taps;
  std::int64_t inner = 0;   ///< source channels × taps
  std::int64_t packed = 0;  ///< offset in the packed weights of a group
};

inline std::vector<TapPart> parts_of(const TapConv& taps) {
  std::vector<TapPart> parts;
  for (const AxisPart& a : taps.axis[0].parts)
    for (const AxisPart& b : taps.axis[1].parts)
      for (const AxisPart& c : taps.axis[2].parts) {
        TapPart p;
        p.part = {&a, &b, &c};
        for (const detail::Tap& i : a.taps)
          for (const detail::Tap& j : b.taps)
            for (const detail::Tap& k : c.taps) p.taps.push_back({&i, &j, &k});
        p.inner = taps.from * static_cast<std::int64_t>(p.taps.size());
        parts.push_back(std::move(p));
      }
  return parts;
}

/// Rows of `rows` in even tiles.
struct RowTiles {
  std::int64_t rows, count;
  explicit RowTiles(std::int64_t n) : rows(n), count((n + kTileRows - 1) / kTileRows) {}
  std::int64_t at(std::int64_t t) const { return t * rows / count; }
  int height(std::int64_t t) const { return static_cast<int>(at(t + 1) - at(t)); }
};

template <class In, class T>
class TapRun {
 public:
  TapRun(const ConvCall& call, const TapConv& taps)
      : call_(call),
        taps_(taps),
        source_(taps.forward ? call.x : call.y),
        dest_(taps.forward ? call.y : call.x),
        tiles_(taps.to),
        parts_(parts_of(taps)) {}

  void run() {
    pack_weights();
    const std::int64_t team = in_parallel_region() ? 1 : get_num_threads();
    const auto units = make_units<Stage<In, T>>(taps_, taps_.from, (team + taps_.groups - 1) / taps_.groups, true);
    const std::int64_t tasks = static_cast<std::int64_t>(units.size()) * taps_.groups;
    const double work = static_cast<double>(taps_.batch * taps_.groups * taps_.from * taps_.to) *
                        static_cast<double>(call_.shape.taps() * call_.shape.y_pixels());
    const std::int64_t grain = work < 300e3 ? tasks : 1;
    parallel_for(0, tasks, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) unit(units[t / taps_.groups], t % taps_.groups);
    });
  }

 private:
  static constexpr std::int64_t kPositions = 8 * kTileCols<T>;  // of a block
  static constexpr std::int64_t kInner = 384;                   // steps of a block, at most

  // ---- weights: for each group and part, panels of a as the tiles read them ----

  void pack_weights() {
    std::int64_t total = 0;
    for (TapPart& p : parts_) {
      p.packed = total;
      total += taps_.to * p.inner;
    }
    group_step_ = total;
    weights_ = scratch<T>(kWeightSlot, taps_.groups * total + kVector<T> + taps_.groups * taps_.to);
    bias_ = nullptr;
    if (call_.bias) {
      T* bias = weights_ + taps_.groups * total + kVector<T>;
      for (std::int64_t i = 0; i < taps_.groups * taps_.to; ++i)
        bias[i] = convert<T>(static_cast<const In*>(call_.bias)[i * call_.bias_step]);
      bias_ = bias;
    }
    const std::int64_t per_group = static_cast<std::int64_t>(parts_.size()) * tiles_.count;
    const auto pack = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        pack_tile(i / per_group, parts_[i % per_group / tiles_.count], i % tiles_.count);
    };
    // Panels packed from rows that lie in order are stored in whole vectors, beyond their end: one thread, in order.
    const bool in_order = std::all_of(parts_.begin(), parts_.end(), [&](const TapPart& p) { return rows_in_order(p); });
    if (in_order || total < (1 << 15))
      pack(0, taps_.groups * per_group);
    else
      parallel_for(0, taps_.groups * per_group, 1, pack);
  }

  /// Whether the inner dimension of the packed panel is consecutive in the weight.
  bool rows_in_order(const TapPart& p) const {
    const auto count = static_cast<std::int64_t>(p.taps.size());
    if ((taps_.forward ? call_.w.x_step : call_.w.y_step) != count) return false;
    for (std::int64_t k = 0; k < count; ++k)
      if (weight_offset(p, k) != k) return false;
    return true;
  }

  void pack_tile(std::int64_t g, const TapPart& p, std::int64_t t) {
    const auto& w = call_.w;
    const std::int64_t row = tiles_.at(t), n = tiles_.height(t), count = static_cast<std::int64_t>(p.taps.size());
    const std::int64_t y_channels = taps_.forward ? taps_.to : taps_.from;
    const std::int64_t to_step = taps_.forward ? w.y_step : w.x_step, from_step = taps_.forward ? w.x_step : w.y_step;
    const In* base = static_cast<const In*>(w.data) + g * y_channels * w.y_step + row * to_step;
    T* out = weights_ + g * group_step_ + p.packed + row * p.inner;
    if (rows_in_order(p)) {
      pack_a<T>(base, to_step, 1, p.inner, static_cast<int>(n), out);
      return;
    }
    for (std::int64_t c = 0; c < taps_.from; ++c)
      for (std::int64_t k = 0; k < count; ++k) {
        const In* at = base + c * from_step + weight_offset(p, k);
        for (std::int64_t i = 0; i < n; ++i) *out++ = convert<T>(at[i * to_step]);
      }
  }

  std::int64_t weight_offset(const TapPart& p, std::int64_t k) const {
    std::int64_t o = 0;
    for (int e = 0; e < kAxes; ++e) o += p.taps[k][e]->index * call_.w.step[e];
    return o;
  }

  // ---- one unit ----

  void unit(const Unit& u, std::int64_t g) const {
    Stage<In, T> stage(taps_, source_, g * taps_.from, taps_.from);
    stage.load(u);
    std::vector<Segment> segments;
    std::vector<std::int64_t> offsets;
    for (const TapPart& p : parts_) {
      const Grid grid = grid_of(taps_, u, p.part);
      const std::int64_t positions = grid.positions();
      offsets.clear();
      for (const auto& tap : p.taps) offsets.push_back(stage.offset(tap));
      for (std::int64_t at = 0; at < positions; at += kPositions) {
        const std::int64_t n = std::min(kPositions, positions - at);
        find_segments(taps_, u, grid, stage, dest_, g * taps_.to, at, at + n, segments);
        block(p, g, stage, offsets, segments, n);
      }
    }
  }

  static int width(std::int64_t n) { return n <= kVector<T> ? kVector<T> : kTileCols<T>; }

  void block(const TapPart& p, std::int64_t g, const Stage<In, T>& stage, const std::vector<std::int64_t>& offsets,
             const std::vector<Segment>& segments, std::int64_t positions) const {
    const std::int64_t panels = (positions + kTileCols<T> - 1) / kTileCols<T>;
    const std::int64_t blocks = std::max<std::int64_t>(1, (p.inner + kInner - 1) / kInner);
    T* sums = blocks > 1 ? scratch<T>(kSumsSlot, panels * tiles_.count * kTileRows * kTileCols<T>) : nullptr;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t k0 = b * p.inner / blocks, k1 = (b + 1) * p.inner / blocks;
      T* packed = scratch<T>(kPackedBSlot, panels * kTileCols<T> * (k1 - k0) + 2 * kVector<T>);
      for (std::int64_t q = 0; q < panels; ++q) {
        const std::int64_t first = q * kTileCols<T>, n = std::min<std::int64_t>(kTileCols<T>, positions - first);
        T* panel = packed + first * (k1 - k0);
        pack_positions(stage, offsets, segments, first, n, k0, k1, panel);
        T* sum = sums + q * tiles_.count * kTileRows * kTileCols<T>;
        for (std::int64_t t = 0; t < tiles_.count; ++t, sum += kTileRows * kTileCols<T>) {
          const T* a = weights_ + g * group_step_ + p.packed + tiles_.at(t) * p.inner + k0 * tiles_.height(t);
          const T* from = b > 0 ? sum : nullptr;
          if (b + 1 < blocks)
            tile_for<T>(tiles_.height(t), width(n) / kVector<T>, AForm::Columns)(
                k1 - k0, a, tiles_.height(t), panel, width(n), from, sum, width(n), nullptr);
          else
            last(t, g, segments, first, n, k1 - k0, a, panel, from);
        }
      }
    }
  }

  /// Columns [first, first + n) of a block over inner steps [k0, k1): each step is a few vectors of the staged source.
  void pack_positions(const Stage<In, T>& stage, const std::vector<std::int64_t>& offsets,
                      const std::vector<Segment>& segments, std::int64_t first, std::int64_t n, std::int64_t k0,
                      std::int64_t k1, T* out) const {
    struct Move {
      std::int64_t from, to;
    };
    Move moves[kTileCols<T>];
    int count = 0;
    for (const Segment& s : segments) {
      const std::int64_t begin = std::max(s.first, first), end = std::min(s.first + s.length, first + n);
      for (std::int64_t i = begin; i < end; i += kVector<T>) moves[count++] = {s.from + i - s.first, i - first};
    }
    const hn::ScalableTag<T> d;
    const int w = width(n);
    const auto taps = static_cast<std::int64_t>(offsets.size());
    std::int64_t k = k0;
    while (k < k1) {
      const std::int64_t channel = k / taps;
      const T* base = stage.data() + channel * stage.channel_step();
      const std::int64_t stop = std::min(taps, k1 - channel * taps);
      for (std::int64_t t = k - channel * taps; t < stop; ++t, ++k, out += w) {
        // Each vector may reach over its run; what follows it overwrites that.
        const T* at = base + offsets[t];
        for (int i = 0; i < count; ++i) hn::StoreU(hn::LoadU(d, at + moves[i].from), d, out + moves[i].to);
      }
    }
  }

  void last(std::int64_t t, std::int64_t g, const std::vector<Segment>& segments, std::int64_t first, std::int64_t n,
            std::int64_t k, const T* a, const T* b, const T* from) const {
    const int m = tiles_.height(t), w = width(n);
    const TileFn<T> fn = tile_for<T>(m, w / kVector<T>, AForm::Columns);
    TileEnd<T> end;
    if (bias_) end.row_add = bias_ + g * taps_.to + tiles_.at(t);
    end.relu = std::is_floating_point_v<T> && call_.epilogue == Epilogue::Relu;
    In* dest = static_cast<In*>(dest_.data) + tiles_.at(t) * dest_.channel_step;
    std::size_t s = 0;
    while (segments[s].first + segments[s].length <= first) ++s;
    const bool simple = call_.epilogue == Epilogue::None || end.relu;
    if constexpr (std::is_same_v<In, T>) {
      const Segment& at = segments[s];
      if (simple && n == w && at.first + at.length >= first + n && unit_step_) {
        fn(k, a, m, b, w, from, dest + at.to + first - at.first, dest_.channel_step, &end);
        return;
      }
    }
    HWY_ALIGN T edge[kTileRows * kTileCols<T>];
    fn(k, a, m, b, w, from, edge, w, &end);
    for (; s < segments.size() && segments[s].first < first + n; ++s) {
      const Segment& at = segments[s];
      const std::int64_t begin = std::max(at.first, first), stop = std::min(at.first + at.length, first + n);
      for (int i = 0; i < m; ++i)
        store(edge + i * w + begin - first, dest + i * dest_.channel_step + at.to, begin - at.first, stop - at.first,
              simple);
    }
  }

  /// Elements [begin, end) of a run in the dest, from values that follow each other.
  void store(const T* from, In* to, std::int64_t begin, std::int64_t end, bool simple) const {
    const std::int64_t step = position_step();
    if (simple && step == 1) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = convert<In>(*from++);
      return;
    }
    for (std::int64_t i = begin; i < end; ++i) {
      T value = *from++;
      if constexpr (std::is_integral_v<T>) {
        const In narrow = static_cast<In>(value);
        const bool negative = is_signed(call_.dtype) && static_cast<std::make_signed_t<In>>(narrow) < 0;
        to[i * step] = call_.epilogue == Epilogue::Relu && negative ? In(0) : narrow;
      } else {
        to[i * step] = convert<In>(simple ? value : apply(call_.epilogue, value));
      }
    }
  }

  /// Between neighbouring positions of the dest.
  std::int64_t position_step() const {
    return taps_.axis[2].parts.empty() ? 1 : taps_.axis[2].parts[0].step * dest_.step[2];
  }

  const ConvCall& call_;
  const TapConv& taps_;
  const ConvData &source_, &dest_;
  const RowTiles tiles_;
  std::vector<TapPart> parts_;
  const bool unit_step_ = position_step() == 1;
  T* weights_ = nullptr;
  const T* bias_ = nullptr;
  std::int64_t group_step_ = 0;
};

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
