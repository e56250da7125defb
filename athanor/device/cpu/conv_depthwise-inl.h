// Depthwise convolutions: every channel for itself, so that there is no product of matrices to make of them, and a tap
// is a vector of the staged plane times a number. Compiled once per SIMD target; included after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_CONV_DEPTHWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_CONV_DEPTHWISE_INL_H_
#undef ATHANOR_DEVICE_CPU_CONV_DEPTHWISE_INL_H_
#else
#define ATHANOR_DEVICE_CPU_CONV_DEPTHWISE_INL_H_
#endif
// clang-format on

#include "athanor/device/cpu/conv_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

using cpu::HWY_NAMESPACE::load_tail;
using cpu::HWY_NAMESPACE::store_tail;

/// Planes of a unit's source with their zero padding, split modulo the stride as in Stage. The padding is written once
/// for all planes of a unit's shape.
template <class T>
class PaddedPlanes {
 public:
  PaddedPlanes(const TapConv& taps, const ConvData& source) : taps_(taps), source_(source) {}

  /// Before planes of a unit with other rows than the last one's.
  void prepare(const Unit& u) {
    const int strip = strip_axis(taps_);
    const TapAxis &y = taps_.axis[1], &x = taps_.axis[2];
    const std::int64_t first[2] = {strip == 1 ? u.row : 0, strip == 2 ? u.row : 0};
    rows_ = (strip == 1 ? u.rows : y.longest) + y.reach;
    width_ = (strip == 2 ? u.rows : x.longest) + x.reach;
    plane_ = y.phases * x.phases * rows_ * width_;
    data_ = scratch<T>(kStageSlot, u.images * plane_ + 2 * kVector<T>);
    std::fill_n(data_, u.images * plane_ + 2 * kVector<T>, T(0));
    runs_.clear();
    for (std::int64_t f1 = 0; f1 < y.phases; ++f1)
      for (std::int64_t f2 = 0; f2 < x.phases; ++f2) {
        const std::int64_t at1 = first[0] * y.phases + f1 - y.shift, at2 = first[1] * x.phases + f2 - x.shift;
        const Range rows = inside(y, at1, rows_), columns = inside(x, at2, width_);
        for (std::int64_t q = rows.begin; q < rows.end && columns.begin < columns.end; ++q)
          runs_.push_back({(at1 + q * y.phases) * source_.step[1] + (at2 + columns.begin * x.phases) * source_.step[2],
                           ((f1 * x.phases + f2) * rows_ + q) * width_ + columns.begin, columns.end - columns.begin});
      }
  }

  /// The planes of channel g; of their rows, copies may write zeros beyond the end, in the order of memory.
  const T* load(const Unit& u, std::int64_t g) const {
    const std::int64_t step = taps_.axis[2].phases * source_.step[2];
    for (std::int64_t n = 0; n < u.images; ++n) {
      const T* from =
          static_cast<const T*>(source_.data) + (u.image + n) * source_.batch_step + g * source_.channel_step;
      for (const Run& r : runs_) Stage<T, T>::copy(from + r.from, step, r.count, data_ + n * plane_ + r.to);
    }
    return data_;
  }

  std::int64_t row_step() const { return width_; }
  std::int64_t image_step() const { return plane_; }
  /// Where a tap reads, relative to its dest position.
  std::int64_t offset(const std::array<const detail::Tap*, kAxes>& tap) const {
    const std::int64_t phase = tap[1]->phase * taps_.axis[2].phases + tap[2]->phase;
    return (phase * rows_ + tap[1]->offset) * width_ + tap[2]->offset;
  }

 private:
  struct Run {
    std::int64_t from, to, count;
  };

  const TapConv& taps_;
  const ConvData& source_;
  std::int64_t rows_ = 0, width_ = 0, plane_ = 0;
  T* data_ = nullptr;
  std::vector<Run> runs_;
};

/// A vector of positions of a plane: where it begins in the padded source and in the plane on the dest's side.
struct PlaneVector {
  std::int64_t from, to;
};

/// What the planes of a unit have in common.
struct PlaneVectors {
  std::vector<PlaneVector> whole, ends;  ///< ends: with `valid` elements
  std::int64_t valid = 0;
  std::vector<std::int64_t> at;  ///< of each tap, where it reads

  /// With `overlap`, rows of at least a vector end with a whole one that overlaps the one before it.
  template <class T>
  void prepare(const TapConv& taps, const TapPart& part, const PaddedPlanes<T>& planes, const Unit& u,
               std::int64_t dest_row, bool overlap) {
    const bool single = strip_axis(taps) == 2;  // one row, of which the unit is a part
    const std::int64_t rows = single ? 1 : u.rows, width = single ? u.rows : taps.axis[2].longest;
    const std::int64_t full = width / kVector<T> * kVector<T>;
    whole.clear(), ends.clear(), at.clear();
    valid = width - full;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t from = r * planes.row_step(), to = r * dest_row;
      for (std::int64_t x = 0; x < full; x += kVector<T>) whole.push_back({from + x, to + x});
      if (valid > 0 && overlap && full > 0)
        whole.push_back({from + width - kVector<T>, to + width - kVector<T>});
      else if (valid > 0)
        ends.push_back({from + full, to + full});
    }
    for (const auto& tap : part.taps) at.push_back(planes.offset(tap));
  }
};

/// dest = taps(source), see detail::depthwise.
template <class T>
class DepthwiseRun {
 public:
  DepthwiseRun(const ConvCall& call, const TapConv& taps)
      : call_(call),
        taps_(taps),
        source_(taps.forward ? call.x : call.y),
        dest_(taps.forward ? call.y : call.x),
        weights_(call, taps) {}

  void run() {
    weights_.pack();
    const std::int64_t team = in_parallel_region() ? 1 : get_num_threads();
    const auto units = make_units<Stage<T, T>>(taps_, 1, (team + taps_.groups - 1) / taps_.groups, UnitUse::Image);
    const std::int64_t tasks = static_cast<std::int64_t>(units.size()) * taps_.groups;
    parallel_for(0, tasks, grain_of(call_, taps_, tasks), [&](std::int64_t begin, std::int64_t end) {
      PaddedPlanes<T> planes(taps_, source_);
      PlaneVectors vectors;
      const Unit* last = nullptr;
      for (std::int64_t t = begin; t < end; ++t) {
        const Unit& u = units[static_cast<std::size_t>(t / taps_.groups)];
        const std::int64_t g = t % taps_.groups;
        if (!last || u.row != last->row || u.rows != last->rows) {
          planes.prepare(u);
          vectors.prepare(taps_, weights_.parts()[0], planes, u, dest_.step[1], true);
        }
        last = &u;
        plane(u, g, planes.load(u, g), vectors);
      }
    });
  }

 private:
  void plane(const Unit& u, std::int64_t g, const T* from, const PlaneVectors& v) const {
    T* to = static_cast<T*>(dest_.data) + u.image * dest_.batch_step + g * dest_.channel_step +
            u.row * dest_.step[strip_axis(taps_)];
    const T* w = weights_.panel(g, weights_.parts()[0], 0);
    const T bias = weights_.bias() ? weights_.bias()[g] : T(0);
    tiles<false>(v, v.whole, w, from, to, bias);
    tiles<true>(v, v.ends, w, from, to, bias);
  }

  /// What the number of vectors leaves over is a last tile that overlaps the one before it.
  template <bool kEnds>
  void tiles(const PlaneVectors& v, const std::vector<PlaneVector>& at, const T* w, const T* from, T* to,
             T bias) const {
    const std::size_t n = at.size(), step = n >= 8 ? 8 : n >= 4 ? 4 : 1;
    for (std::size_t i = 0; i < n; i += step) {
      const PlaneVector* const first = &at[std::min(i, n - step)];
      if (step == 8)
        tile<8, kEnds>(v, first, w, from, to, bias);
      else if (step == 4)
        tile<4, kEnds>(v, first, w, from, to, bias);
      else
        tile<1, kEnds>(v, first, w, from, to, bias);
    }
  }

  template <std::size_t kCount, bool kEnds>
  HWY_NOINLINE void tile(const PlaneVectors& v, const PlaneVector* at, const T* HWY_RESTRICT w,
                         const T* HWY_RESTRICT from, T* to, T bias) const {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    V sum[kCount];
    const T* row[kCount];
#pragma GCC unroll 8
    for (std::size_t j = 0; j < kCount; ++j) sum[j] = hn::Set(d, bias), row[j] = from + at[j].from;
    const std::int64_t* const offset = v.at.data();
    const std::size_t taps = v.at.size();
#pragma GCC unroll 1
    for (std::size_t t = 0; t < taps; ++t) {
      const V value = hn::Set(d, w[t]);
#pragma GCC unroll 8
      for (std::size_t j = 0; j < kCount; ++j) sum[j] = mul_add(value, hn::LoadU(d, row[j] + offset[t]), sum[j]);
    }
    // The second operand is what x86 returns for NaN: it stays.
    if (call_.epilogue == Epilogue::Relu) {
#pragma GCC unroll 8
      for (std::size_t j = 0; j < kCount; ++j) sum[j] = hn::Max(hn::Zero(d), sum[j]);
    }
#pragma GCC unroll 8
    for (std::size_t j = 0; j < kCount; ++j) {
      if constexpr (kEnds)
        store_tail(d, sum[j], to + at[j].to, v.valid);
      else
        hn::StoreU(sum[j], d, to + at[j].to);
    }
  }

  const ConvCall& call_;
  const TapConv& taps_;
  const ConvData &source_, &dest_;
  PackedTaps<T, T> weights_;
};

/// w and, if call.bias is given, the bias's gradient; see detail::depthwise.
template <class T>
class DepthwiseWeight {
 public:
  DepthwiseWeight(const ConvCall& call, const TapConv& taps)
      : call_(call),
        taps_(taps),
        part_(parts_of(taps)[0]),
        units_(make_units<Stage<T, T>>(taps, 1, 1, UnitUse::Images)) {}

  void run() {
    // Shares of the units are summed apart, then in order; their number depends on the shape alone.
    const auto units = static_cast<std::int64_t>(units_.size());
    const std::int64_t shares = taps_.groups >= 16 ? 1 : std::clamp<std::int64_t>(units, 1, 8);
    const std::int64_t size = (count() + 1) * L;
    T* sums = scratch<T>(kWeightSlot, taps_.groups * shares * size);
    const std::int64_t tasks = taps_.groups * shares;
    parallel_for(0, tasks, grain_of(call_, taps_, tasks), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t s = i % shares;
        share(i / shares, s * units / shares, (s + 1) * units / shares, sums + i * size);
      }
    });
    for (std::int64_t g = 0; g < taps_.groups; ++g) store(g, sums + g * shares * size, shares, size);
  }

 private:
  static constexpr int L = kVector<T>;
  static constexpr int kMost = 12;  // taps whose sums stay in registers

  std::int64_t count() const { return static_cast<std::int64_t>(part_.taps.size()); }

  /// Units [u0, u1) of a group. sums: a vector of each tap, then of the bias.
  void share(std::int64_t g, std::int64_t u0, std::int64_t u1, T* sums) const {
    std::fill_n(sums, (count() + 1) * L, T(0));
    PaddedPlanes<T> planes(taps_, call_.x);
    PlaneVectors vectors;
    const Unit* before = nullptr;
    for (std::int64_t i = u0; i < u1; ++i) {
      const Unit& u = units_[static_cast<std::size_t>(i)];
      if (!before || u.row != before->row || u.rows != before->rows || u.images > before->images) {
        planes.prepare(u);
        vectors.prepare(taps_, part_, planes, u, call_.y.step[1], false);
      }
      before = &u;
      const T* source = planes.load(u, g);
      const T* grad = static_cast<const T*>(call_.y.data) + u.image * call_.y.batch_step + g * call_.y.channel_step +
                      u.row * call_.y.step[strip_axis(taps_)];
      const std::int64_t pieces = (count() + kMost - 1) / kMost;
      for (std::int64_t p = 0; p < pieces; ++p) {
        const std::int64_t first = p * count() / pieces, last = (p + 1) * count() / pieces;
        pick(static_cast<int>(last - first), std::make_integer_sequence<int, kMost>())(
            vectors, u.images, planes.image_step(), call_.y.batch_step, vectors.at.data() + first, source, grad,
            sums + first * L);
      }
      if (call_.bias) add_bias(vectors, u.images, grad, sums + count() * L);
    }
  }

  using Fn = void (*)(const PlaneVectors&, std::int64_t images, std::int64_t source_image, std::int64_t grad_image,
                      const std::int64_t* offset, const T* source, const T* grad, T* sums);
  template <int... kAt>
  static Fn pick(int taps, std::integer_sequence<int, kAt...>) {
    constexpr Fn table[] = {&dots<kAt + 1>...};
    return table[taps - 1];
  }

  /// sums[t] += the products of grad and what tap t reads, lane by lane.
  template <int kTaps>
  static HWY_NOINLINE void dots(const PlaneVectors& v, std::int64_t images, std::int64_t source_image,
                                std::int64_t grad_image, const std::int64_t* offset, const T* source, const T* grad,
                                T* sums) {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    V sum[kTaps];
#pragma GCC unroll 16
    for (int t = 0; t < kTaps; ++t) sum[t] = hn::LoadU(d, sums + t * L);
    const auto mask = hn::FirstN(d, static_cast<std::size_t>(v.valid));
    for (std::int64_t n = 0; n < images; ++n, source += source_image, grad += grad_image) {
      for (const PlaneVector& at : v.whole) {
        const V y = hn::LoadU(d, grad + at.to);
#pragma GCC unroll 16
        for (int t = 0; t < kTaps; ++t) sum[t] = hn::MulAdd(y, hn::LoadU(d, source + at.from + offset[t]), sum[t]);
      }
      for (const PlaneVector& at : v.ends) {
        const V y = load_tail(d, grad + at.to, v.valid);
#pragma GCC unroll 16
        for (int t = 0; t < kTaps; ++t)
          sum[t] = hn::MulAdd(y, hn::IfThenElseZero(mask, hn::LoadU(d, source + at.from + offset[t])), sum[t]);
      }
    }
#pragma GCC unroll 16
    for (int t = 0; t < kTaps; ++t) hn::StoreU(sum[t], d, sums + t * L);
  }

  void add_bias(const PlaneVectors& v, std::int64_t images, const T* grad, T* to) const {
    const hn::ScalableTag<T> d;
    auto sum = hn::LoadU(d, to), other = hn::Zero(d);
    for (std::int64_t n = 0; n < images; ++n, grad += call_.y.batch_step) {
      for (const PlaneVector& at : v.whole) {
        const auto next = hn::Add(other, hn::LoadU(d, grad + at.to));
        other = sum, sum = next;
      }
      for (const PlaneVector& at : v.ends) sum = hn::Add(sum, load_tail(d, grad + at.to, v.valid));
    }
    hn::StoreU(hn::Add(sum, other), d, to);
  }

  void store(std::int64_t g, const T* sums, std::int64_t shares, std::int64_t size) const {
    const hn::ScalableTag<T> d;
    const auto total = [&](std::int64_t t) HWY_ATTR {
      auto sum = hn::LoadU(d, sums + t * L);
      for (std::int64_t s = 1; s < shares; ++s) sum = hn::Add(sum, hn::LoadU(d, sums + s * size + t * L));
      return hn::GetLane(hn::SumOfLanes(d, sum));
    };
    T* weight = static_cast<T*>(call_.w.data) + g * call_.w.y_step;
    for (std::int64_t t = 0; t < count(); ++t) {
      std::int64_t place = 0;
      for (int e = 0; e < kAxes; ++e) place += part_.taps[static_cast<std::size_t>(t)][e]->index * call_.w.step[e];
      weight[place] = total(t);
    }
    if (T* bias = static_cast<T*>(const_cast<void*>(call_.bias))) bias[g * call_.bias_step] = total(count());
  }

  const ConvCall& call_;
  const TapConv& taps_;
  const TapPart part_;
  std::vector<Unit> units_;
};

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
