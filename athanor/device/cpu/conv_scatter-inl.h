// The gradient of the input of a convolution with few channels and stride 1. Gathering it would multiply by the zeros
// around the output's gradient. Instead the taps of each kernel column are summed at the width of the output, vertical
// padding included, and the columns' sums are added to the input's rows at their shifts. Compiled once per SIMD target;
// included after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_CONV_SCATTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_CONV_SCATTER_INL_H_
#undef ATHANOR_DEVICE_CPU_CONV_SCATTER_INL_H_
#else
#define ATHANOR_DEVICE_CPU_CONV_SCATTER_INL_H_
#endif
// clang-format on

#include "athanor/device/cpu/conv_direct-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

/// x from y, see detail::few_channels; taps of the gradient.
template <class T>
class ScatterRun {
 public:
  ScatterRun(const ConvCall& call, const TapConv& taps)
      : call_(call),
        taps_(taps),
        columns_(taps.axis[2].parts[0].taps),
        lines_(taps.axis[1].parts[0].taps),
        rows_(taps.to * static_cast<std::int64_t>(columns_.size())),
        inner_(taps.from * static_cast<std::int64_t>(lines_.size())),
        tiles_(rows_),
        height_(taps.axis[1].longest),
        width_(taps.axis[2].longest),
        source_width_(taps.axis[2].source) {}

  void run() {
    pack();
    const std::int64_t tasks = taps_.batch * taps_.groups;
    const double work = static_cast<double>(tasks * rows_ * inner_) * static_cast<double>(height_ * source_width_);
    parallel_for(0, tasks, work < 300e3 ? tasks : 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) image(t / taps_.groups, t % taps_.groups);
    });
  }

 private:
  static constexpr std::int64_t L = kVector<T>;

  /// Panels of (source channel and line) × (dest channel and column).
  void pack() {
    weights_ = scratch<T>(kWeightSlot, taps_.groups * rows_ * inner_);
    const auto& w = call_.w;
    const auto columns = static_cast<std::int64_t>(columns_.size());
    T* out = weights_;
    for (std::int64_t g = 0; g < taps_.groups; ++g)
      for (std::int64_t t = 0; t < tiles_.count; ++t)
        for (std::int64_t k = 0; k < taps_.from; ++k)
          for (const detail::Tap& line : lines_) {
            const T* at = static_cast<const T*>(w.data) + (g * taps_.from + k) * w.y_step + line.index * w.step[1];
            for (std::int64_t r = tiles_.begin(t); r < tiles_.begin(t + 1); ++r)
              *out++ = at[r / columns * w.x_step + columns_[static_cast<std::size_t>(r % columns)].index * w.step[2]];
          }
  }

  void image(std::int64_t n, std::int64_t g) const {
    const std::int64_t source_rows = height_ + taps_.axis[1].reach, plane = source_rows * source_width_;
    const T* source = stage(n, g, source_rows);
    std::vector<std::int64_t> at;
    for (std::int64_t k = 0; k < taps_.from; ++k)
      for (const detail::Tap& line : lines_) at.push_back(k * plane + line.offset * source_width_);

    const std::int64_t positions = height_ * source_width_, step = (positions + 2 * L - 1) / (2 * L) * 2 * L;
    T* sums = scratch<T>(kSumsSlot, rows_ * step + 2 * L);
    constexpr std::make_integer_sequence<int, kTileRows> all{};
    for (std::int64_t t = 0; t < tiles_.count; ++t) {
      const T* a = weights_ + (g * rows_ + tiles_.begin(t)) * inner_;
      T* to = sums + tiles_.begin(t) * step;
      std::int64_t p = 0;
      for (; positions - p > L; p += 2 * L)
        pick_tap_tile<T, 2>(tiles_.height(t), all)(inner_, a, source + p, at.data(), to + p, step, {});
      if (p < positions) pick_tap_tile<T, 1>(tiles_.height(t), all)(inner_, a, source + p, at.data(), to + p, step, {});
    }
    T* dest = static_cast<T*>(call_.x.data) + n * call_.x.batch_step + g * taps_.to * call_.x.channel_step;
    const auto columns = static_cast<std::int64_t>(columns_.size());
    for (std::int64_t c = 0; c < taps_.to; ++c)
      add_columns(sums + c * columns * step, step, dest + c * call_.x.channel_step);
  }

  /// The output's gradient with zero rows above and below, planes without gaps.
  const T* stage(std::int64_t n, std::int64_t g, std::int64_t rows) const {
    const ConvData& y = call_.y;
    const TapAxis& axis = taps_.axis[1];
    T* to = scratch<T>(kStageSlot, taps_.from * rows * source_width_ + 2 * L);
    const T* data = to;
    const std::int64_t above = std::clamp<std::int64_t>(axis.shift, 0, rows);
    const std::int64_t first = std::max<std::int64_t>(0, -axis.shift);
    const std::int64_t count = std::clamp<std::int64_t>(axis.source - first, 0, rows - above);
    for (std::int64_t k = 0; k < taps_.from; ++k) {
      const T* from =
          static_cast<const T*>(y.data) + n * y.batch_step + (g * taps_.from + k) * y.channel_step + first * y.step[1];
      to = std::fill_n(to, above * source_width_, T(0));
      if (y.step[2] == 1 && y.step[1] == source_width_)
        to = std::copy_n(from, count * source_width_, to);
      else
        for (std::int64_t i = 0; i < count; ++i)
          for (std::int64_t j = 0; j < source_width_; ++j) *to++ = from[i * y.step[1] + j * y.step[2]];
      to = std::fill_n(to, (rows - above - count) * source_width_, T(0));
    }
    std::fill_n(to, 2 * L, T(0));
    return data;
  }

  /// One channel of the dest: sum over columns of sums[column], each at its shift.
  void add_columns(const T* sums, std::int64_t step, T* dest) const {
    const hn::ScalableTag<T> d;
    const TapAxis& axis = taps_.axis[2];
    // Column j adds source position i to dest position i + shift - offset(j). The rows have room for all of them.
    const std::int64_t margin = std::max<std::int64_t>(0, axis.reach - axis.shift);
    const std::int64_t pitch = margin + std::max(width_, source_width_ + std::max<std::int64_t>(0, axis.shift)) + L;
    T* rows = scratch<T>(kPackedASlot, height_ * pitch);
    std::fill_n(rows, height_ * pitch, T(0));
    const std::int64_t whole = source_width_ / L * L;
    const auto rest = hn::FirstN(d, static_cast<std::size_t>(source_width_ - whole));
    for (const detail::Tap& column : columns_) {
      T* to = rows + margin + axis.shift - column.offset;
      const T* from = sums;
      for (std::int64_t i = 0; i < height_; ++i, to += pitch, from += source_width_) {
        for (std::int64_t x = 0; x < whole; x += L)
          hn::StoreU(hn::Add(hn::LoadU(d, to + x), hn::LoadU(d, from + x)), d, to + x);
        if (whole < source_width_)
          hn::StoreU(hn::Add(hn::LoadU(d, to + whole), hn::IfThenElseZero(rest, hn::LoadU(d, from + whole))), d,
                     to + whole);
      }
      sums += step;
    }
    const T* from = rows + margin;
    for (std::int64_t i = 0; i + 1 < height_; ++i, from += pitch, dest += width_) {
      // What the last vector of a row has too much, the next row overwrites.
      if (height_ - 1 - i >= (L + width_ - 1) / width_)
        for (std::int64_t x = 0; x < width_; x += L) hn::StoreU(hn::LoadU(d, from + x), d, dest + x);
      else
        std::copy_n(from, width_, dest);
    }
    std::copy_n(from, width_, dest);
  }

  const ConvCall& call_;
  const TapConv& taps_;
  const std::vector<detail::Tap>&columns_, &lines_;
  const std::int64_t rows_, inner_;
  const RowTiles tiles_;
  const std::int64_t height_, width_, source_width_;
  T* weights_ = nullptr;
};

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
