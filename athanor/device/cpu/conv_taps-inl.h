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
#include "athanor/device/cpu/conv_pack-inl.h"
#include "athanor/device/cpu/gemm_finish-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

template <class In, class T>
class TapRun {
 public:
  TapRun(const ConvCall& call, const TapConv& taps)
      : call_(call),
        taps_(taps),
        source_(taps.forward ? call.x : call.y),
        dest_(taps.forward ? call.y : call.x),
        weights_(call, taps) {}

  void run() {
    weights_.pack();
    const std::int64_t team = in_parallel_region() ? 1 : get_num_threads();
    const auto units =
        make_units<Stage<In, T>>(taps_, taps_.from, (team + taps_.groups - 1) / taps_.groups, UnitUse::Columns);
    const std::int64_t tasks = static_cast<std::int64_t>(units.size()) * taps_.groups;
    parallel_for(0, tasks, grain_of(call_, taps_, tasks), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) unit(units[t / taps_.groups], t % taps_.groups);
    });
  }

 private:
  static constexpr std::int64_t kPositions = 8 * kTileCols<T>;  // of a block
  static constexpr std::int64_t kInner = 384;                   // steps of a block, at most

  // ---- one unit ----

  void unit(const Unit& u, std::int64_t g) const {
    Stage<In, T> stage(taps_, source_, g * taps_.from, taps_.from);
    stage.load(u);
    std::vector<Segment> segments;
    std::vector<std::int64_t> offsets;
    const std::vector<TapPart>& parts = weights_.parts();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool pair = i + 1 < parts.size() && interleave(parts[i], parts[i + 1]);
      const std::int64_t positions = grid_of(taps_, u, parts[i].part).positions();
      for (std::int64_t at = 0; at < positions; at += kPositions) {
        const std::int64_t n = std::min(kPositions, positions - at);
        for (int k = 0; k < (pair ? 2 : 1); ++k) {
          const TapPart& p = parts[i + static_cast<std::size_t>(k)];
          offsets.clear();
          for (const auto& tap : p.taps) offsets.push_back(stage.offset(tap));
          find_segments(taps_, u, grid_of(taps_, u, p.part), stage, dest_, g * taps_.to, at, at + n, segments);
          block(p, g, stage, offsets, segments, n, !pair ? Results::Apart : k == 0 ? Results::Kept : Results::Paired);
        }
      }
      if (pair) ++i;
    }
  }

  /// What becomes of a block's results: they are stored; kept for those of the other columns; or stored with these.
  enum class Results { Apart, Kept, Paired };

  /// Whether two parts have the even and the odd columns of the same rows, as many of each, which vectors can join.
  bool interleave(const TapPart& p, const TapPart& q) const {
    const auto &a = *p.part[2], &b = *q.part[2];
    return std::is_same_v<In, T> && sizeof(T) == 4 && p.part[0] == q.part[0] && p.part[1] == q.part[1] &&
           a.count == b.count && a.step == 2 && b.step == 2 && b.origin == a.origin + 1 && dest_.step[2] == 1 &&
           call_.epilogue == Epilogue::None;
  }

  static int width(std::int64_t n) { return n <= kVector<T> ? kVector<T> : kTileCols<T>; }

  void block(const TapPart& p, std::int64_t g, const Stage<In, T>& stage, const std::vector<std::int64_t>& offsets,
             const std::vector<Segment>& segments, std::int64_t positions, Results results) const {
    const std::int64_t panels = (positions + kTileCols<T> - 1) / kTileCols<T>;
    const std::int64_t blocks = std::max<std::int64_t>(1, (p.inner + kInner - 1) / kInner);
    constexpr std::int64_t kTile = kTileRows * kTileCols<T>;
    T* const sums = blocks > 1 ? scratch<T>(kSumsSlot, panels * tiles_.count * kTile) : nullptr;
    T* const all_kept = results != Results::Apart ? scratch<T>(kKeptSlot, panels * tiles_.count * kTile) : nullptr;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t k0 = b * p.inner / blocks, k1 = (b + 1) * p.inner / blocks;
      T* packed = scratch<T>(kPackedBSlot, panels * kTileCols<T> * (k1 - k0) + 2 * kVector<T>);
      for (std::int64_t q = 0; q < panels; ++q) {
        const std::int64_t first = q * kTileCols<T>, n = std::min<std::int64_t>(kTileCols<T>, positions - first);
        T* panel = packed + first * (k1 - k0);
        pack_positions(stage, offsets, segments, first, n, k0, k1, panel);
        for (std::int64_t t = 0; t < tiles_.count; ++t) {
          const std::int64_t place = (q * tiles_.count + t) * kTile;
          T *const sum = sums ? sums + place : nullptr, *const kept = all_kept ? all_kept + place : nullptr;
          const T* a = weights_.panel(g, p, t) + k0 * tiles_.height(t);
          const T* from = b > 0 ? sum : nullptr;
          if (b + 1 < blocks)
            tile_for<T>(tiles_.height(t), width(n) / kVector<T>, AForm::Columns)(
                k1 - k0, a, tiles_.height(t), panel, width(n), from, sum, width(n), nullptr);
          else
            last(t, g, segments, first, n, k1 - k0, a, panel, from, results, kept);
        }
      }
    }
  }

  /// A vector of the staged source, from a tap's first position on, and its place among the columns of a panel.
  struct Move {
    std::int64_t from, to;
  };

  /// Columns [first, first + n) of a block over inner steps [k0, k1): each step is a few vectors of the staged source.
  void pack_positions(const Stage<In, T>& stage, const std::vector<std::int64_t>& offsets,
                      const std::vector<Segment>& segments, std::int64_t first, std::int64_t n, std::int64_t k0,
                      std::int64_t k1, T* out) const {
    if (k0 == k1) return;  // a part that no tap meets
    Move moves[kTileCols<T>];
    int count = 0;
    for (const Segment& s : segments) {
      const std::int64_t begin = std::max(s.first, first), end = std::min(s.first + s.length, first + n);
      for (std::int64_t i = begin; i < end; i += kVector<T>) moves[count++] = {s.from + i - s.first, i - first};
    }
    auto* pack = &TapRun::pack_steps<0>;
    if constexpr (std::is_same_v<T, float>) {
      if (count == 1) pack = &TapRun::pack_steps<1>;
      if (count == 2) pack = &TapRun::pack_steps<2>;
      if (count == 3) pack = &TapRun::pack_steps<3>;
      if (count == 4) pack = &TapRun::pack_steps<4>;
    }
    pack(stage, offsets, moves, count, k0, k1, width(n), out);
  }

  /// kMoves: count, if it is so few that they stay in registers, or 0.
  template <int kMoves>
  static HWY_NOINLINE void pack_steps(const Stage<In, T>& stage, const std::vector<std::int64_t>& offsets,
                                      const Move* moves, int count, std::int64_t k0, std::int64_t k1, int w, T* out) {
    const hn::ScalableTag<T> d;
    Move few[std::max(kMoves, 1)];
    for (int i = 0; i < kMoves; ++i) few[i] = moves[i];
    const auto taps = static_cast<std::int64_t>(offsets.size());
    const std::int64_t* const offset = offsets.data();
    const T* base = stage.data() + k0 / taps * stage.channel_step();
    for (std::int64_t t = k0 % taps; k0 < k1; t = 0, base += stage.channel_step()) {
      const std::int64_t stop = std::min(taps, t + k1 - k0);
      k0 += stop - t;
      for (; t < stop; ++t, out += w) {
        // Each vector may reach over its run; what follows it overwrites that.
        const T* at = base + offset[t];
        if constexpr (kMoves > 0) {
#pragma GCC unroll 4
          for (int i = 0; i < kMoves; ++i) hn::StoreU(hn::LoadU(d, at + few[i].from), d, out + few[i].to);
        } else {
          for (int i = 0; i < count; ++i) hn::StoreU(hn::LoadU(d, at + moves[i].from), d, out + moves[i].to);
        }
      }
    }
  }

  void last(std::int64_t t, std::int64_t g, const std::vector<Segment>& segments, std::int64_t first, std::int64_t n,
            std::int64_t k, const T* a, const T* b, const T* from, Results results, T* kept) const {
    const int m = tiles_.height(t), w = width(n);
    const TileFn<T> fn = tile_for<T>(m, w / kVector<T>, AForm::Columns);
    TileEnd<T> end;
    if (weights_.bias()) end.row_add = weights_.bias() + g * taps_.to + tiles_.begin(t);
    end.relu = std::is_floating_point_v<T> && call_.epilogue == Epilogue::Relu;
    if (results == Results::Kept) return fn(k, a, m, b, w, from, kept, w, &end);
    In* dest = static_cast<In*>(dest_.data) + tiles_.begin(t) * dest_.channel_step;
    std::size_t s = 0;
    while (segments[s].first + segments[s].length <= first) ++s;
    const bool simple = call_.epilogue == Epilogue::None || end.relu;
    if constexpr (std::is_same_v<In, T>) {
      const Segment& at = segments[s];
      if (simple && n == w && unit_step_ && follow_each_other(segments, s, first + n)) {
        fn(k, a, m, b, w, from, dest + at.to + first - at.first, dest_.channel_step, &end);
        return;
      }
    }
    HWY_ALIGN T edge[kTileRows * kTileCols<T>];
    fn(k, a, m, b, w, from, edge, w, &end);
    for (; s < segments.size() && segments[s].first < first + n; ++s) {
      const Segment& at = segments[s];
      const std::int64_t begin = std::max(at.first, first), stop = std::min(at.first + at.length, first + n);
      for (int i = 0; i < m; ++i) {
        const std::int64_t in_tile = i * w + begin - first;
        if (results == Results::Paired)
          store_pairs(kept + in_tile, edge + in_tile,
                      dest + i * dest_.channel_step + at.to + 2 * (begin - at.first) - 1, stop - begin);
        else
          store(edge + i * w + begin - first, dest + i * dest_.channel_step + at.to, begin - at.first, stop - at.first,
                simple);
      }
    }
  }

  /// n values of either, one of each in turns.
  void store_pairs(const T* even, const T* odd, In* to, std::int64_t n) const {
    if constexpr (std::is_same_v<In, T> && sizeof(T) == 4) {
      const hn::CappedTag<T, 8> d;
      constexpr auto L = static_cast<std::int64_t>(hn::MaxLanes(d));
      if (n >= L) {
        // The last vectors end with the values, over those before them.
        for (std::int64_t i = 0;; i = std::min(i + L, n - L)) {
          const auto a = hn::LoadU(d, even + i), b = hn::LoadU(d, odd + i);
          auto first = hn::InterleaveLower(d, a, b), second = hn::InterleaveUpper(d, a, b);  // of each 16 bytes
          if constexpr (L == 8) {
            const auto lower = hn::ConcatLowerLower(d, second, first);
            second = hn::ConcatUpperUpper(d, second, first);
            first = lower;
          }
          hn::StoreU(first, d, to + 2 * i);
          hn::StoreU(second, d, to + 2 * i + L);
          if (i == n - L) return;
        }
      }
    }
    for (std::int64_t i = 0; i < n; ++i) {
      to[2 * i] = convert<In>(even[i]);
      to[2 * i + 1] = convert<In>(odd[i]);
    }
  }

  /// Whether the positions of the dest from segment s on to `end` follow each other, as rows do that its planes hold
  /// whole.
  static bool follow_each_other(const std::vector<Segment>& segments, std::size_t s, std::int64_t end) {
    const std::int64_t distance = segments[s].to - segments[s].first;
    while (segments[s].first + segments[s].length < end)
      if (const Segment& next = segments[++s]; next.to - next.first != distance) return false;
    return true;
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
  PackedTaps<In, T> weights_;
  const RowTiles& tiles_ = weights_.tiles();
  const bool unit_step_ = position_step() == 1;
};

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
