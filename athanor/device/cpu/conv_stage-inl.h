// Staging: the part of an activation that a piece of work reads, copied with its zero padding, split modulo the stride
// and converted to the type of the sums. Compiled once per SIMD target; included after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_CONV_STAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_CONV_STAGE_INL_H_
#undef ATHANOR_DEVICE_CPU_CONV_STAGE_INL_H_
#else
#define ATHANOR_DEVICE_CPU_CONV_STAGE_INL_H_
#endif
// clang-format on

#include <vector>

#include "athanor/device/cpu/conv_shape.h"
#include "athanor/device/cpu/gemm_block.h"
#include "athanor/device/cpu/gemm_tile-inl.h"
#include "athanor/device/cpu/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

using detail::AxisPart;
using detail::ConvCall;
using detail::ConvData;
using detail::kAxes;
using detail::TapAxis;
using detail::TapConv;

enum ScratchSlot { kSumsSlot, kPackedBSlot, kPackedASlot, kWeightSlot, kStageSlot, kKeptSlot };

template <class T>
T* scratch(int slot, std::int64_t count) {
  return static_cast<T*>(detail::thread_scratch(slot, sizeof(T) * static_cast<std::size_t>(count)));
}

/// The axis along which images are cut into strips: the first that has more than one position.
inline int strip_axis(const TapConv& taps) {
  for (int e = 0; e < kAxes; ++e)
    if (taps.axis[e].longest > 1) return e;
  return kAxes - 1;
}

struct Range {
  std::int64_t begin = 0, end = 0;
};
/// The staged positions q < count for which source position at + q · phases exists.
inline Range inside(const TapAxis& a, std::int64_t at, std::int64_t count) {
  const auto first = [&](std::int64_t distance) {
    return a.phases == 1 ? distance : (distance + a.phases - 1) / a.phases;
  };
  const std::int64_t begin = std::clamp<std::int64_t>(first(-at), 0, count);
  return {begin, std::clamp<std::int64_t>(first(a.source - at), begin, count)};
}

/// What one piece of work covers: images [image, image + images), dest positions [row, row + rows) of the strip axis.
struct Unit {
  std::int64_t image = 0, images = 1, row = 0, rows = 0;
};

/// The channels [first, first + channels) of a unit's source, as T.
template <class In, class T>
class Stage {
 public:
  using Sum = T;
  Stage(const TapConv& taps, const ConvData& source, std::int64_t first, std::int64_t channels)
      : taps_(taps), source_(source), strip_(strip_axis(taps)), first_(first), channels_(channels) {
    for (int e = 0; e < kAxes; ++e) plain_ = plain_ && taps.axis[e].phases == 1 && taps.axis[e].shift == 0;
    for (int e = 0; e < kAxes; ++e) plain_ = plain_ && taps.axis[e].longest + taps.axis[e].reach == taps.axis[e].source;
    plain_ = plain_ && std::is_same_v<In, T> && source.step[2] == 1 && source.step[1] == taps.axis[2].source &&
             (taps.axis[0].source == 1 || source.step[0] == taps.axis[2].source * taps.axis[1].source);
  }

  /// Elements of one staged channel for `rows` dest positions along the strip axis.
  static std::int64_t plane_of(const TapConv& taps, std::int64_t rows) {
    const int strip = strip_axis(taps);
    std::int64_t plane = 1;
    for (int e = 0; e < kAxes; ++e)
      plane *= taps.axis[e].phases * ((e == strip ? rows : taps.axis[e].longest) + taps.axis[e].reach);
    return plane;
  }

  void load(const Unit& unit) {
    const bool whole = unit.row == 0 && unit.rows == taps_.axis[strip_].longest;
    for (int e = 0; e < kAxes; ++e)
      extent_[e] = (e == strip_ ? unit.rows : taps_.axis[e].longest) + taps_.axis[e].reach;
    unit_ = unit;
    // Nothing to pad, split or convert: read in place, unless vectors would reach beyond the tensor.
    if (plain_ && whole && unit.image + unit.images < taps_.batch && source_.channel_step >= 0 &&
        source_.batch_step >= kVector<T>) {
      data_ = static_cast<const T*>(source_.data) + unit.image * source_.batch_step + first_ * source_.channel_step;
      channel_step_ = source_.channel_step;
      image_step_ = source_.batch_step;
      return;
    }
    channel_step_ = plane_of(taps_, unit.rows);
    image_step_ = channel_step_ * channels_;
    T* to = scratch<T>(kStageSlot, image_step_ * unit.images + 2 * kVector<T>);
    data_ = to;
    prepare_pairs();
    for (std::int64_t n = 0; n < unit.images; ++n)
      for (std::int64_t c = 0; c < channels_; ++c)
        to = channel(static_cast<const In*>(source_.data) + (unit.image + n) * source_.batch_step +
                         (first_ + c) * source_.channel_step,
                     to);
    std::fill_n(to, 2 * kVector<T>, T(0));
  }

  const T* data() const { return data_; }
  std::int64_t channel_step() const { return channel_step_; }
  std::int64_t image_step() const { return image_step_; }
  /// Step of dest positions along an axis within a staged channel.
  std::int64_t step(int e) const { return e == 2 ? 1 : e == 1 ? extent_[2] : extent_[1] * extent_[2]; }
  /// Where a tap reads, relative to its dest position.
  std::int64_t offset(const std::array<const detail::Tap*, kAxes>& tap) const {
    std::int64_t phase = 0, at = 0;
    for (int e = 0; e < kAxes; ++e) {
      phase = phase * taps_.axis[e].phases + tap[e]->phase;
      at = at * extent_[e] + tap[e]->offset;
    }
    return phase * extent_[0] * extent_[1] * extent_[2] + at;
  }

  /// to[q] = from[q · step] for q < n, and perhaps zeros up to a vector more.
  static void copy(const In* from, std::int64_t step, std::int64_t n, T* to) {
    const hn::ScalableTag<T> d;
    std::int64_t q = 0;
    if constexpr (std::is_same_v<In, T> && sizeof(T) >= 4) {
      if (step == 1) {
        for (; q + kVector<T> <= n; q += kVector<T>) hn::StoreU(hn::LoadU(d, from + q), d, to + q);
        if (q < n) hn::StoreU(cpu::HWY_NAMESPACE::load_tail(d, from + q, n - q), d, to + q);
        return;
      }
      if (step == 2) {
        const auto load = [&](const T* at, std::int64_t left) HWY_ATTR {
          return left >= kVector<T> ? hn::LoadU(d, at)
                                    : cpu::HWY_NAMESPACE::load_tail(d, at, std::max<std::int64_t>(left, 0));
        };
        for (; q < n; q += kVector<T>) {
          const std::int64_t left = 2 * (n - q) - 1;
          const auto low = load(from + 2 * q, left), high = load(from + 2 * q + kVector<T>, left - kVector<T>);
          hn::StoreU(hn::ConcatEven(d, high, low), d, to + q);
        }
        return;
      }
    } else if (step == 1) {
      for (; q + kVector<T> <= n; q += kVector<T>) hn::StoreU(load_as(d, from + q), d, to + q);
    }
    for (; q < n; ++q) to[q] = convert<T>(from[q * step]);
  }

 private:
  std::int64_t source_at(int e, std::int64_t q, std::int64_t f) const {
    const TapAxis& a = taps_.axis[e];
    return (q + (e == strip_ ? unit_.row : 0)) * a.phases + f - a.shift;
  }

  /// Rows split into even and odd positions are read once for both, if they can be read with what lies around them: the
  /// mask of each vector of positions then drops what is padding.
  void prepare_pairs() {
    pair_masks_.clear();
    const TapAxis& a = taps_.axis[2];
    if constexpr (std::is_same_v<In, T> && sizeof(T) == 4) {
      const std::int64_t width = extent_[2];
      if (a.phases != 2 || source_.step[2] != 1 || width < kVector<T>) return;
      // What lies in the gaps of a tensor is somebody else's.
      std::int64_t size = a.source;
      const auto follow = [&](std::int64_t count, std::int64_t step) {
        const bool fits = count == 1 || step == size;
        size *= count;
        return fits;
      };
      const bool dense =
          follow(taps_.axis[1].source, source_.step[1]) && follow(taps_.axis[0].source, source_.step[0]) &&
          follow(taps_.groups * taps_.from, source_.channel_step) && follow(taps_.batch, source_.batch_step);
      if (!dense) return;
      readable_ = {reinterpret_cast<std::uintptr_t>(source_.data),
                   reinterpret_cast<std::uintptr_t>(static_cast<const In*>(source_.data) + size)};
      pair_at_ = source_at(2, 0, 0);
      const std::int64_t vectors = (width + kVector<T> - 1) / kVector<T>;
      for (std::int64_t v = 0; v < vectors; ++v)
        for (std::int64_t f = 0; f < 2; ++f)
          for (std::int64_t i = 0; i < kVector<T>; ++i) {
            const std::int64_t at = pair_at_ + 2 * (pair_position(v) + i) + f;
            pair_masks_.push_back(at >= 0 && at < a.source ? ~std::uint32_t{0} : 0);
          }
    }
  }
  /// The first position of a vector of a pair of rows; the last one ends with the row.
  std::int64_t pair_position(std::int64_t v) const { return std::min(v * kVector<T>, extent_[2] - kVector<T>); }

  /// The even and the odd positions of a row of the source.
  void row_pair(const In* from, T* even, T* odd) const {
    if constexpr (std::is_same_v<In, T> && sizeof(T) == 4) {
      const hn::ScalableTag<T> d;
      const auto begin = reinterpret_cast<std::uintptr_t>(from) + static_cast<std::uintptr_t>(pair_at_) * sizeof(T);
      if (begin < readable_[0] || begin + static_cast<std::uintptr_t>(2 * extent_[2]) * sizeof(T) > readable_[1]) {
        for (std::int64_t q = 0; q < extent_[2]; ++q) {
          const std::int64_t i = pair_at_ + 2 * q, size = taps_.axis[2].source;
          even[q] = i >= 0 && i < size ? from[i] : T(0);
          odd[q] = i + 1 >= 0 && i + 1 < size ? from[i + 1] : T(0);
        }
        return;
      }
      const T* const at = reinterpret_cast<const T*>(begin);
      const auto* mask = reinterpret_cast<const T*>(pair_masks_.data());
      for (std::int64_t v = 0, n = (extent_[2] + kVector<T> - 1) / kVector<T>; v < n; ++v, mask += 2 * kVector<T>) {
        const std::int64_t q = pair_position(v);
        const auto low = hn::LoadU(d, at + 2 * q), high = hn::LoadU(d, at + 2 * q + kVector<T>);
        hn::StoreU(hn::And(hn::ConcatEven(d, high, low), hn::LoadU(d, mask)), d, even + q);
        hn::StoreU(hn::And(hn::ConcatOdd(d, high, low), hn::LoadU(d, mask + kVector<T>)), d, odd + q);
      }
    }
  }

  T* channel_of_pairs(const In* from, T* to) const {
    const std::int64_t plane = extent_[0] * extent_[1] * extent_[2];
    for (std::int64_t f0 = 0; f0 < taps_.axis[0].phases; ++f0)
      for (std::int64_t f1 = 0; f1 < taps_.axis[1].phases; ++f1, to += plane)
        for (std::int64_t q0 = 0; q0 < extent_[0]; ++q0)
          for (std::int64_t q1 = 0; q1 < extent_[1]; ++q1, to += extent_[2]) {
            const std::int64_t i0 = source_at(0, q0, f0), i1 = source_at(1, q1, f1);
            if (i0 < 0 || i0 >= taps_.axis[0].source || i1 < 0 || i1 >= taps_.axis[1].source) {
              std::fill_n(to, extent_[2], T(0));
              std::fill_n(to + plane, extent_[2], T(0));
            } else {
              row_pair(from + i0 * source_.step[0] + i1 * source_.step[1], to, to + plane);
            }
          }
    return to;
  }

  T* channel(const In* from, T* to) const {
    if (!pair_masks_.empty()) return channel_of_pairs(from, to);
    for (std::int64_t f0 = 0; f0 < taps_.axis[0].phases; ++f0)
      for (std::int64_t f1 = 0; f1 < taps_.axis[1].phases; ++f1)
        for (std::int64_t f2 = 0; f2 < taps_.axis[2].phases; ++f2)
          for (std::int64_t q0 = 0; q0 < extent_[0]; ++q0)
            for (std::int64_t q1 = 0; q1 < extent_[1]; ++q1, to += extent_[2]) {
              const std::int64_t i0 = source_at(0, q0, f0), i1 = source_at(1, q1, f1);
              if (i0 < 0 || i0 >= taps_.axis[0].source || i1 < 0 || i1 >= taps_.axis[1].source)
                std::fill_n(to, extent_[2], T(0));
              else
                row(from + i0 * source_.step[0] + i1 * source_.step[1], f2, to);
            }
    return to;
  }

  void row(const In* from, std::int64_t f, T* to) const {
    const TapAxis& a = taps_.axis[2];
    const std::int64_t at = source_at(2, 0, f);  // of staged position 0
    const auto [begin, end] = inside(a, at, extent_[2]);
    for (std::int64_t q = 0; q < begin; ++q) to[q] = T(0);
    const std::int64_t step = a.phases * source_.step[2];
    copy(from + (at + begin * a.phases) * source_.step[2], step, end - begin, to + begin);
    for (std::int64_t q = end; q < extent_[2]; ++q) to[q] = T(0);
  }

  const TapConv& taps_;
  const ConvData& source_;
  const int strip_;
  const std::int64_t first_, channels_;
  bool plain_ = true;
  Unit unit_;
  std::array<std::int64_t, kAxes> extent_{};
  const T* data_ = nullptr;
  std::int64_t channel_step_ = 0, image_step_ = 0;
  std::vector<std::uint32_t> pair_masks_;  ///< of each vector of a pair of rows, even and odd; empty: rows one by one
  std::int64_t pair_at_ = 0;               ///< the source's position of a row's first even one
  std::array<std::uintptr_t, 2> readable_{};
};

/// A run of positions consecutive in the staged source, in the dest and in the numbering of a block.
struct Segment {
  std::int64_t first = 0, length = 0;  ///< positions of the block
  std::int64_t from = 0;               ///< in the staged source
  std::int64_t to = 0;                 ///< in the dest, from its data pointer
};

/// One grid of dest positions of a unit: a part of each axis, numbered image by image, row-major.
struct Grid {
  std::array<const AxisPart*, kAxes> part{};
  std::array<std::int64_t, kAxes> count{};  ///< within the unit
  std::int64_t images = 1;
  std::int64_t positions() const { return images * count[0] * count[1] * count[2]; }
};

inline Grid grid_of(const TapConv& taps, const Unit& unit, const std::array<const AxisPart*, kAxes>& part) {
  const int strip = strip_axis(taps);
  Grid g;
  g.part = part;
  g.images = unit.images;
  for (int e = 0; e < kAxes; ++e) g.count[e] = part[e]->count;
  g.count[strip] = std::clamp<std::int64_t>(part[strip]->count - unit.row, 0, unit.rows);
  return g;
}

/// Positions [begin, end) of a grid as segments. Rows that follow each other on both sides are joined.
template <class StageT>
void find_segments(const TapConv& taps, const Unit& unit, const Grid& g, const StageT& stage, const ConvData& dest,
                   std::int64_t channel, std::int64_t begin, std::int64_t end, std::vector<Segment>& out) {
  const int strip = strip_axis(taps);
  out.clear();
  for (std::int64_t p = begin; p < end;) {
    std::int64_t rest = p;
    std::array<std::int64_t, kAxes> i;
    for (int e = kAxes - 1; e >= 0; --e) {
      i[e] = rest % g.count[e];
      rest /= g.count[e];
    }
    Segment s;
    s.first = p - begin;
    s.length = std::min(g.count[2] - i[2], end - p);
    s.from = rest * stage.image_step();
    s.to = (unit.image + rest) * dest.batch_step + channel * dest.channel_step;
    for (int e = 0; e < kAxes; ++e) {
      s.from += i[e] * stage.step(e);
      s.to += (g.part[e]->origin + (i[e] + (e == strip ? unit.row : 0)) * g.part[e]->step) * dest.step[e];
    }
    p += s.length;
    const bool follows = !out.empty() && g.part[2]->step * dest.step[2] == 1 &&
                         s.from == out.back().from + out.back().length && s.to == out.back().to + out.back().length;
    if (follows)
      out.back().length += s.length;
    else
      out.push_back(s);
  }
}

/// What the positions of a unit are for: one image's at a time; those of small images together; the columns of a
/// product, or its steps, to which what is staged may leave the second-level cache: each element meets many rows.
enum class UnitUse { Image, Images, Columns, Steps };

/// Small images to a unit, at most `most`. As columns they should leave little of the last panels empty, and no piece
/// of the work idle; steps should be many, since sums are read and written once for each unit.
template <class T>
std::int64_t images_of_unit(std::int64_t positions, std::int64_t batch, std::int64_t pieces, std::int64_t most,
                            UnitUse use) {
  if (use == UnitUse::Steps) return std::clamp<std::int64_t>(256 / positions, 1, most);
  std::int64_t best = 1;
  double least = 0;
  for (std::int64_t n = 1; n <= most && n * positions <= 1024; ++n) {
    // A panel of one vector takes most of the time of one of two.
    const std::int64_t rest = n * positions % kTileCols<T>, turns = ((batch + n - 1) / n + pieces - 1) / pieces;
    const double last = rest == 0 ? 0 : kTileCols<T> * (rest <= kVector<T> ? 0.8 : 1);
    const double paid = static_cast<double>(turns) * (static_cast<double>(n * positions - rest) + last);
    if (n == 1 || paid < 0.98 * least) best = n, least = paid;
  }
  return best;
}

/// Splits the images and rows of a convolution into units whose staged source stays in the second-level cache, unless
/// many rows meet it, at least `pieces` of them where possible.
template <class StageT>
std::vector<Unit> make_units(const TapConv& taps, std::int64_t channels, std::int64_t pieces, UnitUse use) {
  const bool far = use >= UnitUse::Columns && taps.to >= 64;
  const std::int64_t staged = far ? 256 << 10 : 160 << 10, staged_images = far ? 512 << 10 : staged;  // elements
  const std::int64_t all_rows = taps.axis[strip_axis(taps)].longest;
  std::int64_t rows = all_rows, images = 1;
  const std::int64_t whole = channels * StageT::plane_of(taps, all_rows);
  if (whole > staged) {
    const std::int64_t per_row = std::max<std::int64_t>(1, whole / std::max<std::int64_t>(all_rows, 1));
    rows = std::clamp<std::int64_t>(staged / per_row, std::min<std::int64_t>(4, all_rows), all_rows);
  }
  if (taps.batch > 0 && taps.batch * ((all_rows + rows - 1) / rows) < pieces)
    rows = std::max<std::int64_t>(1, all_rows * taps.batch / pieces);
  const std::int64_t strips = std::max<std::int64_t>(1, (all_rows + rows - 1) / std::max<std::int64_t>(rows, 1));
  if (strips == 1 && use != UnitUse::Image) {
    std::int64_t positions = 1;
    for (const TapAxis& a : taps.axis) positions *= std::max<std::int64_t>(a.longest, 1);
    const std::int64_t most = std::min(std::max<std::int64_t>(1, staged_images / std::max<std::int64_t>(whole, 1)),
                                       std::max<std::int64_t>(1, taps.batch / pieces));
    images = far ? images_of_unit<typename StageT::Sum>(positions, taps.batch, pieces, most, use)
                 : std::clamp<std::int64_t>(128 / positions, 1, most);
  }
  std::vector<Unit> units;
  for (std::int64_t n = 0; n < taps.batch; n += images)
    for (std::int64_t s = 0; s < strips; ++s) {
      const std::int64_t r0 = s * all_rows / strips, r1 = (s + 1) * all_rows / strips;
      units.push_back({n, std::min(images, taps.batch - n), r0, r1 - r0});
    }
  return units;
}

/// Tasks of a call that pay for waking a thread.
inline std::int64_t grain_of(const ConvCall& call, const TapConv& taps, std::int64_t tasks) {
  const double work = static_cast<double>(taps.batch * taps.groups * taps.from * taps.to) *
                      static_cast<double>(call.shape.taps() * call.shape.y_pixels());
  return work < 300e3 ? tasks : 1;
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
