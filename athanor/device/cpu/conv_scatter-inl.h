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

  /// What a column of taps adds to a vector of a dest row.
  struct Part {
    const T* from;
    hn::Mask<hn::ScalableTag<T>> valid;
  };

  /// Panels of (line and source channel) × (dest channel and column).
  void pack() {
    weights_ = scratch<T>(kWeightSlot, taps_.groups * rows_ * inner_);
    const auto& w = call_.w;
    const auto columns = static_cast<std::int64_t>(columns_.size());
    T* out = weights_;
    for (std::int64_t g = 0; g < taps_.groups; ++g)
      for (std::int64_t t = 0; t < tiles_.count; ++t)
        for (const detail::Tap& line : lines_)
          for (std::int64_t k = 0; k < taps_.from; ++k) {
            const T* at = static_cast<const T*>(w.data) + (g * taps_.from + k) * w.y_step + line.index * w.step[1];
            for (std::int64_t r = tiles_.begin(t); r < tiles_.begin(t + 1); ++r)
              *out++ = at[r / columns * w.x_step + columns_[static_cast<std::size_t>(r % columns)].index * w.step[2]];
          }
  }

  void image(std::int64_t n, std::int64_t g) const {
    const std::int64_t source_rows = height_ + taps_.axis[1].reach, plane = source_rows * source_width_;
    const T* source = stage(n, g, source_rows);
    std::vector<std::int64_t> at;
    for (const detail::Tap& line : lines_)
      for (std::int64_t k = 0; k < taps_.from; ++k) at.push_back(k * plane + line.offset * source_width_);

    // Vectors of masked lanes may begin up to a vector before the sums.
    const std::int64_t positions = height_ * source_width_, step = (positions + 2 * L - 1) / (2 * L) * 2 * L;
    T* sums = scratch<T>(kSumsSlot, rows_ * step + 4 * L) + 2 * L;
    const auto multiply = [&](std::int64_t p, bool wide, const Lines& lines) {
      constexpr std::make_integer_sequence<int, kTileRows> all{};
      for (std::int64_t t = 0; t < tiles_.count; ++t) {
        const int m = tiles_.height(t);
        const T* a = weights_ + (g * rows_ + tiles_.begin(t)) * inner_ + lines.first * taps_.from * m;
        const TapTilesFn<T> fn = wide ? pick_tap_tiles<T, 2>(m, all) : pick_tap_tiles<T, 1>(m, all);
        fn(1, lines.count() * taps_.from, a, source + p, at.data() + lines.first * taps_.from,
           sums + tiles_.begin(t) * step + p, step, {}, false);
      }
    };
    for (std::int64_t p = 0; p < positions; p += 2 * L) {
      const std::int64_t middle = std::min(positions, p + L), end = std::min(positions, p + 2 * L);
      const Lines lines = lines_of(p, end), left = lines_of(p, middle);
      if (middle == end) {
        multiply(p, false, left);
        continue;
      }
      // Near the plane's edges, two vectors may need fewer lines each than both at once.
      const Lines right = lines_of(middle, end);
      if (left.count() + right.count() < 2 * lines.count()) {
        multiply(p, false, left);
        multiply(middle, false, right);
      } else {
        multiply(p, true, lines);
      }
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

  struct Lines {
    std::int64_t first, last;
    std::int64_t count() const { return last - first; }
  };

  /// The lines whose taps read more than zeros for some of the positions [p0, p1): near the plane's edges, not all.
  Lines lines_of(std::int64_t p0, std::int64_t p1) const {
    const TapAxis& axis = taps_.axis[1];
    const std::int64_t r0 = p0 / source_width_, r1 = (p1 - 1) / source_width_;
    const auto count = static_cast<std::int64_t>(lines_.size());
    const auto reads = [&](std::int64_t line) {
      const std::int64_t offset = lines_[static_cast<std::size_t>(line)].offset - axis.shift;
      return r1 + offset >= 0 && r0 + offset < axis.source;
    };
    std::int64_t first = 0, last = count;
    while (first < last && !reads(first)) ++first;
    while (last > first && !reads(last - 1)) --last;
    return {first, last};
  }

  /// One channel of the dest: sum over columns of sums[column], each at its shift.
  void add_columns(const T* sums, std::int64_t step, T* dest) const {
    const hn::ScalableTag<T> d;
    // A row's last vector may reach into the next row, which is written later: columns of vectors from the last to the
    // first, rows downwards. Only the last row has to stop in time.
    for (std::int64_t x = (width_ - 1) / L * L; x >= 0; x -= L) {
      Part parts[detail::kMostScatterColumns];
      int count = 0;
      for (std::size_t j = 0; j < columns_.size(); ++j) {
        // Column j adds source position i to dest position i + by.
        const std::int64_t by = taps_.axis[2].shift - columns_[j].offset;
        const std::int64_t begin = std::clamp<std::int64_t>(by - x, 0, L);
        const std::int64_t end = std::clamp<std::int64_t>(by + source_width_ - x, begin, L);
        if (begin == end) continue;
        parts[count++] = {
            sums + static_cast<std::int64_t>(j) * step + x - by,
            hn::AndNot(hn::FirstN(d, static_cast<std::size_t>(begin)), hn::FirstN(d, static_cast<std::size_t>(end)))};
      }
      for (std::int64_t i = 0; i < height_; ++i) {
        auto sum = hn::Zero(d);
        for (int j = 0; j < count; ++j)
          sum = hn::Add(sum, hn::IfThenElseZero(parts[j].valid, hn::LoadU(d, parts[j].from + i * source_width_)));
        T* to = dest + i * width_ + x;
        if ((height_ - i) * width_ - x >= L) {
          hn::StoreU(sum, d, to);
        } else {
          HWY_ALIGN T edge[L];
          hn::Store(sum, d, edge);
          std::copy_n(edge, std::min(L, width_ - x), to);
        }
      }
    }
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
