// Gradients of convolution weights with few channels: vectors run along the positions, each weight is a dot product
// that stays in a register over some images. Compiled once per SIMD target; included after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_CONV_DOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_CONV_DOTS_INL_H_
#undef ATHANOR_DEVICE_CPU_CONV_DOTS_INL_H_
#else
#define ATHANOR_DEVICE_CPU_CONV_DOTS_INL_H_
#endif
// clang-format on

#include "athanor/device/cpu/conv_direct-inl.h"
#include "athanor/device/cpu/fold_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

/// Dot products kept in registers at once: rows of the source, channels of the gradient. The side of a tile that
/// has fewer vectors keeps them in registers beside the sums: sixteen do for 3 × 4. Where so many rows are all there
/// are (a channel under 3 × 3 taps), high tiles read a gradient, often from the third cache, once only.
inline constexpr int kDotRows = HWY_MAX_BYTES >= 64 ? 5 : 3;
inline constexpr int kDotCols = HWY_MAX_BYTES >= 64 ? 5 : 4;
inline constexpr int kHighDotRows = HWY_MAX_BYTES >= 64 ? 9 : kDotRows;
inline constexpr int kHighDotCols = HWY_MAX_BYTES >= 64 ? 3 : kDotCols;
constexpr bool suits_high_tiles(std::int64_t rows) {
  if constexpr (kHighDotRows == kDotRows) return false;
  return rows > kDotRows && rows <= kHighDotRows;  // NOLINT(misc-redundant-expression): not where they differ
}

/// What the tiles of one unit have in common. Positions are padded to whole vectors in the packed gradient only.
struct DotSpan {
  std::int64_t images = 0, vectors = 0;        ///< vectors: whole ones of an image
  std::int64_t tail = 0;                       ///< positions beyond them
  std::int64_t source_image = 0;               ///< step between images of the source
  std::int64_t grad_image = 0, grad_step = 0;  ///< between images and channels of the gradient
  std::int64_t tails_image = 0;                ///< between images of the packed tails
  bool fresh = false;                          ///< there are no sums yet
};

/// Stores all sums of a tile, vector by vector, or adds them to what is there.
template <class T, class V, int kRows, int kCols, int... v>
HWY_INLINE void store_folded(const V (&sum)[kRows][kCols], bool fresh, T* to, std::integer_sequence<int, v...>) {
  const hn::ScalableTag<T> d;
  const auto store = [&](V folded, T* at)
                         HWY_ATTR { hn::StoreU(fresh ? folded : hn::Add(folded, hn::LoadU(d, at)), d, at); };
  (store(fold_sums<T, v * kFolded<T>>(sum), to + v * kVector<T>), ...);
}

/// Product i · kCols + j of `sums`, folded, += source row i · gradient row j. tails: the last positions of each
/// gradient row, a vector with zeros beyond them.
template <class T, int kRows, int kCols>
HWY_NOINLINE void dot_positions(const DotSpan& s, const T* source, const std::int64_t* at, const T* grad,
                                const T* tails, T* sums) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int L = kVector<T>;
  V sum[kRows][kCols];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kCols; ++j) sum[i][j] = hn::Zero(d);
  const auto valid = hn::FirstN(d, static_cast<std::size_t>(s.tail));
  for (std::int64_t n = 0; n < s.images; ++n) {
    const T* row[kRows];
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) row[i] = source + n * s.source_image + at[i];
    const T* y = grad + n * s.grad_image;
#pragma GCC unroll 1
    for (std::int64_t p = 0; p < s.vectors * L; p += L) {
      if constexpr (kRows <= kCols) {
        V x[kRows];
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) x[i] = hn::LoadU(d, row[i] + p);
#pragma GCC unroll 8
        for (int j = 0; j < kCols; ++j) {
          const V col = hn::LoadU(d, y + j * s.grad_step + p);
#pragma GCC unroll 8
          for (int i = 0; i < kRows; ++i) sum[i][j] = hn::MulAdd(x[i], col, sum[i][j]);
        }
      } else {
        V col[kCols];
#pragma GCC unroll 8
        for (int j = 0; j < kCols; ++j) col[j] = hn::LoadU(d, y + j * s.grad_step + p);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) {
          V x = hn::LoadU(d, row[i] + p);
#if HWY_TARGET == HWY_AVX3
          asm("" : "+v"(x.raw));  // or else the compiler loads it once per product
#endif
#pragma GCC unroll 8
          for (int j = 0; j < kCols; ++j) sum[i][j] = hn::MulAdd(x, col[j], sum[i][j]);
        }
      }
    }
    if (s.tail == 0) continue;
    const T* t = tails + n * s.tails_image;
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const V x = hn::IfThenElseZero(valid, hn::LoadU(d, row[i] + s.vectors * L));
#pragma GCC unroll 8
      for (int j = 0; j < kCols; ++j) sum[i][j] = hn::MulAdd(x, hn::LoadU(d, t + j * L), sum[i][j]);
    }
  }
  store_folded<T>(sum, s.fresh, sums, std::make_integer_sequence<int, folded_vectors<T>(kRows * kCols)>());
}

template <class T>
using DotFn = void (*)(const DotSpan& s, const T* source, const std::int64_t* at, const T* grad, const T* tails,
                       T* sums);
template <class T, int kFirst, int kCols, int... kAt>
DotFn<T> pick_dots(int rows, int cols, std::integer_sequence<int, kAt...>) {
  constexpr DotFn<T> table[] = {&dot_positions<T, kFirst + kAt / kCols, kAt % kCols + 1>...};
  return table[(rows - kFirst) * kCols + cols - 1];
}
template <class T>
DotFn<T> pick_dots(int rows, int cols) {
  if constexpr (kHighDotRows > kDotRows) {
    constexpr std::make_integer_sequence<int, (kHighDotRows - kDotRows) * kHighDotCols> high{};
    if (rows > kDotRows) return pick_dots<T, kDotRows + 1, kHighDotCols>(rows, cols, high);
  }
  return pick_dots<T, 1, kDotCols>(rows, cols, std::make_integer_sequence<int, kDotRows * kDotCols>{});
}

/// `size` things in even pieces of at most `most`.
struct DotTiles {
  std::int64_t size, count;
  DotTiles(std::int64_t n, int most) : size(n), count((n + most - 1) / most) {}
  std::int64_t at(std::int64_t t) const { return t * size / count; }
  int length(std::int64_t t) const { return static_cast<int>(at(t + 1) - at(t)); }
};

/// w and, if call.bias is given, the bias's gradient; see detail::few_weights.
template <class T>
class DotWeight {
 public:
  DotWeight(const ConvCall& call, const TapConv& taps)
      : call_(call),
        taps_(taps),
        part_(by_column(parts_of(taps)[0])),
        rows_(part_.inner, suits_high_tiles(part_.inner) ? kHighDotRows : kDotRows),
        cols_(taps.to, suits_high_tiles(part_.inner) ? kHighDotCols : kDotCols),
        units_(make_units<ShiftedStage<T>>(taps, taps.from, 1, UnitUse::Image)) {}

  void run() {
    join_images();
    // Shares of the units are summed apart, then in order; their number depends on the shape alone.
    const auto units = static_cast<std::int64_t>(units_.size());
    const std::int64_t shares = std::clamp<std::int64_t>(units, 1, 8);
    for (std::int64_t j = 0; j < cols_.count; ++j) sums_size_ += column_size(j);
    const std::int64_t share_size = sums_size_ + cols_.size * L;
    T* sums = scratch<T>(kWeightSlot, taps_.groups * shares * share_size);
    parallel_for(0, taps_.groups * shares, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t s = i % shares;
        share(i / shares, s * units / shares, (s + 1) * units / shares, sums + i * share_size);
      }
    });
    for (std::int64_t g = 0; g < taps_.groups; ++g) store(g, sums + g * shares * share_size, shares, share_size);
  }

 private:
  static constexpr int L = kVector<T>;
  static constexpr std::int64_t kVectors = 144;  // that pass through a tile of registers before it is stored, about

  /// Taps that read the same copy of the source after each other: a tile of registers then finds it in the first cache.
  static TapPart by_column(TapPart part) {
    std::stable_sort(part.taps.begin(), part.taps.end(),
                     [](const auto& a, const auto& b) { return a[2]->index < b[2]->index; });
    return part;
  }

  /// Small images are taken together.
  void join_images() {
    const std::int64_t rows = taps_.axis[1].longest;
    if (units_.empty() || units_[0].rows != rows) return;
    const std::int64_t each = (rows * taps_.axis[2].longest + L - 1) / L;
    const std::int64_t together = std::clamp<std::int64_t>(kVectors / std::max<std::int64_t>(each, 1), 1, 16);
    std::vector<Unit> joined;
    for (std::int64_t n = 0; n < taps_.batch; n += together)
      joined.push_back({n, std::min(together, taps_.batch - n), 0, rows});
    units_ = std::move(joined);
  }

  /// Elements of the sums of the tiles of column tile j.
  std::int64_t column_size(std::int64_t j) const {
    std::int64_t size = 0;
    for (std::int64_t i = 0; i < rows_.count; ++i) size += folded_vectors<T>(rows_.length(i) * cols_.length(j)) * L;
    return size;
  }

  /// Units [u0, u1) of a group. sums: a tile after the other, then the bias's.
  void share(std::int64_t g, std::int64_t u0, std::int64_t u1, T* sums) const {
    if (u0 == u1) std::fill_n(sums, sums_size_, T(0));
    std::fill_n(sums + sums_size_, cols_.size * L, T(0));
    ShiftedStage<T> stage(taps_, call_.x, g * taps_.from, taps_.from);
    for (std::int64_t u = u0; u < u1; ++u) {
      const Unit& unit = units_[static_cast<std::size_t>(u)];
      stage.load(unit);
      const std::vector<std::int64_t>& at = stage.offsets(part_);
      const std::int64_t positions = unit.rows * taps_.axis[2].longest;
      DotSpan s;
      s.images = unit.images;
      s.fresh = u == u0;
      s.vectors = positions / L;
      s.tail = positions % L;
      s.source_image = stage.image_step();
      s.grad_image = call_.y.batch_step;
      s.grad_step = call_.y.channel_step;
      s.tails_image = cols_.size * L;
      const T* grad = static_cast<const T*>(call_.y.data) + unit.image * s.grad_image + g * cols_.size * s.grad_step +
                      unit.row * taps_.axis[2].longest;
      const T* tails = pack_tails(s, grad);
      T* to = sums;
      for (std::int64_t j = 0; j < cols_.count; ++j)
        for (std::int64_t i = 0; i < rows_.count; ++i) {
          const int m = rows_.length(i), n = cols_.length(j);
          pick_dots<T>(m, n)(s, stage.data(), at.data() + rows_.at(i), grad + cols_.at(j) * s.grad_step,
                             tails + cols_.at(j) * L, to);
          to += folded_vectors<T>(m * n) * L;
        }
      if (call_.bias) add_bias(s, grad, tails, sums + sums_size_);
    }
  }

  const T* pack_tails(const DotSpan& s, const T* grad) const {
    T* tails = scratch<T>(kPackedASlot, s.images * s.tails_image);
    if (s.tail == 0) return tails;
    std::fill_n(tails, s.images * s.tails_image, T(0));
    for (std::int64_t n = 0; n < s.images; ++n)
      for (std::int64_t k = 0; k < cols_.size; ++k)
        std::copy_n(grad + n * s.grad_image + k * s.grad_step + s.vectors * L, s.tail,
                    tails + n * s.tails_image + k * L);
    return tails;
  }

  void add_bias(const DotSpan& s, const T* grad, const T* tails, T* sums) const {
    const hn::ScalableTag<T> d;
    for (std::int64_t k = 0; k < cols_.size; ++k) {
      auto sum = hn::LoadU(d, sums + k * L), second = hn::Zero(d), third = hn::Zero(d), fourth = hn::Zero(d);
      for (std::int64_t n = 0; n < s.images; ++n) {
        const T* y = grad + n * s.grad_image + k * s.grad_step;
        std::int64_t v = 0;
        for (; v + 4 <= s.vectors; v += 4, y += 4 * L) {
          sum = hn::Add(sum, hn::LoadU(d, y));
          second = hn::Add(second, hn::LoadU(d, y + L));
          third = hn::Add(third, hn::LoadU(d, y + 2 * L));
          fourth = hn::Add(fourth, hn::LoadU(d, y + 3 * L));
        }
        for (; v < s.vectors; ++v, y += L) sum = hn::Add(sum, hn::LoadU(d, y));
        if (s.tail > 0) sum = hn::Add(sum, hn::LoadU(d, tails + n * s.tails_image + k * L));
      }
      hn::StoreU(hn::Add(hn::Add(sum, second), hn::Add(third, fourth)), d, sums + k * L);
    }
  }

  void store(std::int64_t g, const T* sums, std::int64_t shares, std::int64_t share_size) const {
    alignas(64) T lanes[L];
    const auto add_shares = [&](const T* at) HWY_ATTR {
      const hn::ScalableTag<T> d;
      auto sum = hn::LoadU(d, at);
      for (std::int64_t s = 1; s < shares; ++s) sum = hn::Add(sum, hn::LoadU(d, at + s * share_size));
      hn::Store(sum, d, lanes);
    };
    // Lanes `step` apart from the first on.
    const auto total = [&](int first, int step) {
      T sum = 0;
      for (int lane = first; lane < L; lane += step) sum += lanes[lane];
      return sum;
    };
    const auto& w = call_.w;
    const std::vector<std::int64_t> to = row_places();
    const T* at = sums;
    T* weight = static_cast<T*>(w.data) + g * cols_.size * w.y_step;
    for (std::int64_t j = 0; j < cols_.count; ++j)
      for (std::int64_t i = 0; i < rows_.count; ++i) {
        const int n = cols_.length(j), products = rows_.length(i) * n;
        int row = 0, col = 0;
        for (int q = 0; q < products; q += kFolded<T>, at += L) {
          add_shares(at);
          for (int f = 0; f < std::min(kFolded<T>, products - q); ++f) {
            weight[(cols_.at(j) + col) * w.y_step + to[static_cast<std::size_t>(rows_.at(i) + row)]] =
                total(f, kFolded<T>);
            if (++col == n) col = 0, ++row;
          }
        }
      }
    if (T* bias = static_cast<T*>(const_cast<void*>(call_.bias)))
      for (std::int64_t k = 0; k < cols_.size; ++k, at += L) {
        add_shares(at);
        bias[(g * cols_.size + k) * call_.bias_step] = total(0, 1);
      }
  }

  /// Where the weights of each row of the source begin: channels, then taps.
  std::vector<std::int64_t> row_places() const {
    std::vector<std::int64_t> to;
    to.reserve(static_cast<std::size_t>(rows_.size));
    for (std::int64_t c = 0; c < taps_.from; ++c)
      for (const auto& tap : part_.taps) {
        std::int64_t place = c * call_.w.x_step;
        for (int e = 0; e < kAxes; ++e) place += tap[e]->index * call_.w.step[e];
        to.push_back(place);
      }
    return to;
  }

  const ConvCall& call_;
  const TapConv& taps_;
  const TapPart part_;
  const DotTiles rows_, cols_;  // channels and taps of the input; channels of the output
  std::vector<Unit> units_;
  std::int64_t sums_size_ = 0;
};

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
