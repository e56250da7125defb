#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/pool_max.cpp"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <array>
#include <limits>
#include <type_traits>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/pool_pairs-inl.h"
#include "athanor/device/cpu/pool_shape.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

using namespace athanor::detail;

/// The type comparisons are made in.
template <class T>
using Wide = std::conditional_t<is_half_v<T>, float, T>;
/// An index as wide as the values, so that both fill vectors of the same length.
template <class T>
using Rank =
    std::conditional_t<sizeof(T) == 8, std::int64_t, std::conditional_t<sizeof(T) == 4, std::int32_t, std::int16_t>>;

template <class W>
constexpr W lowest() {
  if constexpr (std::is_floating_point_v<W>)
    return -std::numeric_limits<W>::infinity();
  else
    return std::numeric_limits<W>::lowest();
}

inline constexpr std::int64_t kLanes = 256;  // windows compared side by side

/// Windows whose taps lie at the same offsets from bases a fixed step apart.
struct LaneTaps {
  const std::int64_t* offset;  ///< of each tap
  const std::int32_t* rank;    ///< what is recorded for it
  int count;
};

/// best and rank of n <= kLanes windows; window i starts at base + i · step (kStep if not 0).
template <class T, int kStep>
void max_lanes(const T* base, std::int64_t step, std::int64_t n, const LaneTaps& taps, Wide<T>* HWY_RESTRICT best,
               Rank<Wide<T>>* HWY_RESTRICT rank) {
  using W = Wide<T>;
  if (kStep) step = kStep;
  const Rank<W> first = static_cast<Rank<W>>(taps.rank[0]);
  for (std::int64_t i = 0; i < n; ++i) {
    best[i] = lowest<W>();
    rank[i] = first;
  }
  for (int t = 0; t < taps.count; ++t) {
    const T* HWY_RESTRICT at = base + taps.offset[t];
    const Rank<W> r = static_cast<Rank<W>>(taps.rank[t]);
    for (std::int64_t i = 0; i < n; ++i) {
      const W v = static_cast<W>(at[i * step]);
      const bool take = (v > best[i]) | (v != v);
      best[i] = take ? v : best[i];
      rank[i] = take ? r : rank[i];
    }
  }
}

/// Windows of 2 × 2 pixels side by side in dense planes.
inline bool in_pairs(const PoolData& in, const PoolData& out, const PoolWindow& w) {
  for (int e = 0; e < kPoolAxes; ++e) {
    const std::int64_t kernel = e == 0 ? 1 : 2;
    if (w.kernel[e] != kernel || w.stride[e] != kernel || w.pad[e] != 0 || w.dil[e] != 1) return false;
    if (out.size[e] * kernel > in.size[e]) return false;
  }
  return in.size[0] == 1 && in.dense() && out.dense();
}

/// Windows of 3 × 3 pixels every two pixels, with a border of one, in dense planes: the first pooling of a ResNet.
inline bool in_steps_of_two(const PoolData& in, const PoolData& out, const PoolWindow& w) {
  for (int e = 1; e < kPoolAxes; ++e)
    if (w.kernel[e] != 3 || w.stride[e] != 2 || w.pad[e] != 1 || w.dil[e] != 1) return false;
  return w.kernel[0] == 1 && in.size[0] == 1 && out.size[0] == 1 && w.pad[0] == 0 && in.dense() && out.dense() &&
         out.size[2] <= kLanes;
}

/// The greatest of a row's pixels in each of n windows, and its place among the three, as max_lanes chooses.
struct RowMaxima {
  HWY_ALIGN float best[kLanes];
  HWY_ALIGN std::int32_t place[kLanes];

  void take(const float* HWY_RESTRICT row, std::int64_t width, std::int64_t n) {
    const std::int64_t inside = std::min(n, width / 2);  // of these the third pixel is there
    edge(row, width, 0);
    for (std::int64_t o = 1; o < inside; ++o) {
      const float a = row[2 * o - 1], b = row[2 * o], c = row[2 * o + 1];
      const bool second = (b > a) | (b != b);
      const float top = second ? b : a;
      const bool third = (c > top) | (c != c);
      best[o] = third ? c : top;
      place[o] = third ? 2 : second ? 1 : 0;
    }
    for (std::int64_t o = std::max<std::int64_t>(1, inside); o < n; ++o) edge(row, width, o);
  }

 private:
  void edge(const float* row, std::int64_t width, std::int64_t o) {
    const std::int64_t first = o == 0 ? 1 : 0;
    best[o] = row[2 * o - 1 + first];
    place[o] = static_cast<std::int32_t>(first);
    for (std::int64_t k = first + 1; k < 3 && 2 * o - 1 + k < width; ++k) {
      const float v = row[2 * o - 1 + k];
      if (!(v > best[o]) && v == v) continue;
      best[o] = v;
      place[o] = static_cast<std::int32_t>(k);
    }
  }
};

inline void pool_steps_of_two(const float* in, std::int64_t height, std::int64_t width, std::int64_t out_height,
                              std::int64_t n, float* out, std::uint8_t* index) {
  RowMaxima rows[2];
  RowMaxima *above = &rows[0], *here = &rows[1];  // above: the row that two rows of windows share
  HWY_ALIGN std::int32_t rank[kLanes];
  for (std::int64_t h = 0; h < out_height; ++h, out += n) {
    const std::int64_t top = 2 * h - 1;
    if (h > 0) {
      for (std::int64_t o = 0; o < n; ++o) {
        out[o] = above->best[o];
        rank[o] = above->place[o];
      }
    }
    for (std::int64_t k = 1; k < 3 && top + k < height; ++k) {
      here->take(in + (top + k) * width, width, n);
      const bool first = h == 0 && k == 1;
      for (std::int64_t o = 0; o < n; ++o) {
        const float v = here->best[o];
        const bool take = first | (v > out[o]) | (v != v);
        out[o] = take ? v : out[o];
        rank[o] = take ? here->place[o] + static_cast<std::int32_t>(3 * k) : rank[o];
      }
    }
    std::swap(above, here);
    if (!index) continue;
    for (std::int64_t o = 0; o < n; ++o) index[o] = static_cast<std::uint8_t>(rank[o]);
    index += n;
  }
}

template <class T>
class MaxPool {
 public:
  MaxPool(const View& out, const View& indices, const View& in, const PoolWindow& w)
      : in_(pool_data(in)), out_(pool_data(out)), w_(w), by_channel_(in.size(1) > 1 && in.stride(1) == 1) {
    if (indices.defined()) {
      index_ = pool_data(indices);
      small_ = indices.dtype == DType::Byte;
    }
    channels_ = in.size(1);
    batch_ = in.size(0);
    pairs_ = std::is_same_v<T, float> && !by_channel_ && in_pairs(in_, out_, w_) &&
             (!index_.data || (small_ && index_.dense()));
    steps_of_two_ = std::is_same_v<T, float> && !by_channel_ && in_steps_of_two(in_, out_, w_) &&
                    (!index_.data || (small_ && index_.dense()));
  }

  void run() const {
    const std::int64_t rows = out_.size[0] * out_.size[1];
    const std::int64_t tasks = by_channel_ ? batch_ * rows : batch_ * channels_;
    const std::int64_t cost =
        (by_channel_ ? channels_ : rows) * out_.size[2] * w_.kernel[0] * w_.kernel[1] * w_.kernel[2];
    parallel_for(0, tasks, 1 + 16384 / (cost + 1), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        if (pairs_ || steps_of_two_) {
          whole_plane(t / channels_, t % channels_);
        } else if (by_channel_) {
          row(t / rows, 0, t % rows / out_.size[1], t % out_.size[1]);
        } else {
          for (std::int64_t r = 0; r < rows; ++r) row(t / channels_, t % channels_, r / out_.size[1], r % out_.size[1]);
        }
      }
    });
  }

 private:
  void whole_plane([[maybe_unused]] std::int64_t n, [[maybe_unused]] std::int64_t c) const {
    if constexpr (std::is_same_v<T, float>) {
      std::uint8_t* rank = static_cast<std::uint8_t*>(index_.data);
      if (rank) rank += n * index_.batch_step + c * index_.channel_step;
      const float* from = static_cast<const float*>(in_.data) + n * in_.batch_step + c * in_.channel_step;
      float* to = static_cast<float*>(out_.data) + n * out_.batch_step + c * out_.channel_step;
      if (pairs_)
        pool_pairs(from, in_.size[2], out_.size[1], out_.size[2], to, rank);
      else
        pool_steps_of_two(from, in_.size[1], in_.size[2], out_.size[1], out_.size[2], to, rank);
    }
  }

  /// One row of outputs: of one channel, or of all of them if they lie side by side.
  void row(std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t h) const {
    const TapRange td = taps_inside(w_, 0, d, in_.size[0]), th = taps_inside(w_, 1, h, in_.size[1]);
    const TapRange inner = by_channel_ ? TapRange{0, 0} : inner_outputs(w_, out_.size[2], in_.size[2]);
    for (std::int64_t x = 0; x < out_.size[2];) {
      const bool inside = x >= inner.begin && x < inner.end;
      const TapRange tw = taps_inside(w_, 2, x, in_.size[2]);
      const std::int64_t start = small_ ? 0 : plane_start(w_, in_, {d, h, x});
      std::int64_t offset[kMaxTaps] = {0};
      std::int32_t rank[kMaxTaps] = {0};
      std::vector<std::int64_t> more_offsets;
      std::vector<std::int32_t> more_ranks;
      LaneTaps taps{offset, rank, static_cast<int>((td.end - td.begin) * (th.end - th.begin) * (tw.end - tw.begin))};
      if (taps.count > kMaxTaps) {
        more_offsets.resize(taps.count);
        more_ranks.resize(taps.count);
        taps.offset = more_offsets.data();
        taps.rank = more_ranks.data();
      }
      list_taps(td, th, tw, const_cast<std::int64_t*>(taps.offset), const_cast<std::int32_t*>(taps.rank));
      const T* base = static_cast<const T*>(in_.data) + n * in_.batch_step + c * in_.channel_step +
                      w_.start(0, d) * in_.step[0] + w_.start(1, h) * in_.step[1] + w_.start(2, x) * in_.step[2];
      const std::int64_t to =
          n * out_.batch_step + c * out_.channel_step + d * out_.step[0] + h * out_.step[1] + x * out_.step[2];
      const std::int64_t index_to = n * index_.batch_step + c * index_.channel_step + d * index_.step[0] +
                                    h * index_.step[1] + x * index_.step[2];
      if (by_channel_) {
        lanes(base, 1, channels_, taps, start, 0, to, out_.channel_step, index_to, index_.channel_step);
        ++x;
      } else {
        const std::int64_t count = inside ? inner.end - x : 1;
        lanes(base, w_.stride[2] * in_.step[2], count, taps, start, w_.stride[2], to, out_.step[2], index_to,
              index_.step[2]);
        x += count;
      }
    }
  }

  /// Offsets of the taps from a window's start, and what an index records: the tap's number for small indices, else its
  /// distance in the plane.
  void list_taps(TapRange td, TapRange th, TapRange tw, std::int64_t* offset, std::int32_t* rank) const {
    for (std::int64_t i = td.begin; i < td.end; ++i)
      for (std::int64_t j = th.begin; j < th.end; ++j)
        for (std::int64_t k = tw.begin; k < tw.end; ++k) {
          *offset++ = i * w_.dil[0] * in_.step[0] + j * w_.dil[1] * in_.step[1] + k * w_.dil[2] * in_.step[2];
          *rank++ = static_cast<std::int32_t>((i * w_.kernel[1] + j) * w_.kernel[2] + k);
        }
  }

  void lanes(const T* base, std::int64_t step, std::int64_t count, const LaneTaps& taps, std::int64_t start,
             std::int64_t start_step, std::int64_t to, std::int64_t to_step, std::int64_t index_to,
             std::int64_t index_step) const {
    using W = Wide<T>;
    HWY_ALIGN W best[kLanes];
    HWY_ALIGN Rank<W> rank[kLanes];
    for (std::int64_t i = 0; i < count; i += kLanes) {
      const std::int64_t n = std::min(kLanes, count - i);
      // Integers are rare here: a loop less to compile for each of their types.
      constexpr int kTwo = std::is_integral_v<T> ? 0 : 2;
      (step == 1   ? max_lanes<T, 1>
       : step == 2 ? max_lanes<T, kTwo>
                   : max_lanes<T, 0>)(base + i * step, step, n, taps, best, rank);
      T* out = static_cast<T*>(out_.data) + to + i * to_step;
      if (to_step == 1)
        for (std::int64_t j = 0; j < n; ++j) out[j] = static_cast<T>(best[j]);
      else
        for (std::int64_t j = 0; j < n; ++j) out[j * to_step] = static_cast<T>(best[j]);
      if (!index_.data) continue;
      if (small_)
        small_indices(rank, n, static_cast<std::uint8_t*>(index_.data) + index_to + i * index_step, index_step);
      else
        plane_indices(rank, n, start + i * start_step, start_step,
                      static_cast<std::int64_t*>(index_.data) + index_to + i * index_step, index_step);
    }
  }

  template <class R>
  static void small_indices(const R* rank, std::int64_t n, std::uint8_t* to, std::int64_t step) {
    if (step == 1)
      for (std::int64_t j = 0; j < n; ++j) to[j] = static_cast<std::uint8_t>(rank[j]);
    else
      for (std::int64_t j = 0; j < n; ++j) to[j * step] = static_cast<std::uint8_t>(rank[j]);
  }

  template <class R>
  void plane_indices(const R* rank, std::int64_t n, std::int64_t start, std::int64_t start_step, std::int64_t* to,
                     std::int64_t step) const {
    const std::int64_t kw = w_.kernel[2], kh = w_.kernel[1];
    for (std::int64_t j = 0; j < n; ++j) {
      const auto r = static_cast<std::uint32_t>(static_cast<std::make_unsigned_t<R>>(rank[j]));
      const std::int64_t k = r % kw, i = r / kw;
      to[j * step] = start + j * start_step + ((i / kh * w_.dil[0]) * in_.size[1] + i % kh * w_.dil[1]) * in_.size[2] +
                     k * w_.dil[2];
    }
  }

  static constexpr int kMaxTaps = 64;

  const PoolData in_, out_;
  PoolData index_;
  const PoolWindow& w_;
  const bool by_channel_;
  bool small_ = false, pairs_ = false, steps_of_two_ = false;
  std::int64_t channels_ = 0, batch_ = 0;
};

/// Windows that neither overlap nor leave gaps, in dense planes: every input is written once, in order.
template <class T, int kWidth>
void spread_row(const T* HWY_RESTRICT grad, const std::uint8_t* HWY_RESTRICT index, std::int64_t n, int first,
                T* HWY_RESTRICT to) {
  for (std::int64_t x = 0; x < n; ++x)
    for (int k = 0; k < kWidth; ++k) to[x * kWidth + k] = index[x] == first + k ? grad[x] : T(0.F);
}

template <class T>
void spread_plane(const PoolData& in, const PoolData& out, const PoolWindow& w, const T* grad,
                  const std::uint8_t* index, T* to) {
  const std::int64_t width = in.size[2], covered = out.size[2] * w.kernel[2];
  for (std::int64_t i = 0; i < in.size[0]; ++i)
    for (std::int64_t j = 0; j < in.size[1]; ++j, to += width) {
      const std::int64_t d = i / w.kernel[0], h = j / w.kernel[1];
      if (d >= out.size[0] || h >= out.size[1]) {
        std::fill_n(to, width, T(0.F));
        continue;
      }
      const std::int64_t row = (d * out.size[1] + h) * out.size[2];
      const int first = static_cast<int>(((i % w.kernel[0]) * w.kernel[1] + j % w.kernel[1]) * w.kernel[2]);
      if (w.kernel[2] == 2)
        spread_row<T, 2>(grad + row, index + row, out.size[2], first, to);
      else
        spread_row<T, 3>(grad + row, index + row, out.size[2], first, to);
      std::fill_n(to + covered, width - covered, T(0.F));
    }
}

template <class T>
class MaxPoolBackward {
 public:
  MaxPoolBackward(const View& din, const View& dout, const View& indices, const PoolParams& params)
      : in_(pool_data(din)), out_(pool_data(dout)), index_(pool_data(indices)), w_(params) {
    small_ = indices.dtype == DType::Byte;
    if (small_)
      for (int rank = 0; rank < 256; ++rank) distance_[static_cast<std::size_t>(rank)] = distance(rank);
    channels_ = din.size(1);
    batch_ = din.size(0);
    tiles_ = small_ && in_.dense() && out_.dense() && index_.dense() && (w_.kernel[2] == 2 || w_.kernel[2] == 3);
    for (int e = 0; e < kPoolAxes; ++e)
      tiles_ = tiles_ && w_.stride[e] == w_.kernel[e] && w_.pad[e] == 0 && w_.dil[e] == 1 &&
               out_.size[e] * w_.kernel[e] <= in_.size[e];
    pairs_ = std::is_same_v<T, float> && tiles_ && in_pairs(in_, out_, w_);
  }

  void run() const {
    parallel_for(0, batch_ * channels_, 1 + 16384 / (in_.plane() + 1), [&](std::int64_t begin, std::int64_t end) {
      std::vector<Wide<T>> sums;
      for (std::int64_t t = begin; t < end; ++t) plane(t / channels_, t % channels_, sums);
    });
  }

 private:
  void plane(std::int64_t n, std::int64_t c, std::vector<Wide<T>>& sums) const {
    T* to = static_cast<T*>(in_.data) + n * in_.batch_step + c * in_.channel_step;
    const T* grad = static_cast<const T*>(out_.data) + n * out_.batch_step + c * out_.channel_step;
    const std::int64_t index_at = n * index_.batch_step + c * index_.channel_step;
    if constexpr (std::is_same_v<T, float>) {
      if (pairs_) {
        spread_pairs(grad, static_cast<const std::uint8_t*>(index_.data) + index_at, out_.size[1], out_.size[2],
                     in_.size[1], in_.size[2], to);
        return;
      }
    }
    if (tiles_) {
      spread_plane(in_, out_, w_, grad, static_cast<const std::uint8_t*>(index_.data) + index_at, to);
      return;
    }
    constexpr bool kDirect = std::is_same_v<T, Wide<T>>;
    Wide<T>* at = nullptr;
    if constexpr (kDirect)
      if (in_.dense()) at = to;
    const bool apart = !at;
    if (apart) {
      sums.resize(static_cast<std::size_t>(in_.plane()));
      at = sums.data();
    }
    std::fill_n(at, in_.plane(), Wide<T>(0));
    if (small_) {
      scatter_small(grad, static_cast<const std::uint8_t*>(index_.data) + index_at, at);
    } else {
      scatter_places(grad, static_cast<const std::int64_t*>(index_.data) + index_at, at);
    }
    if (!apart) return;
    for (std::int64_t i = 0; i < in_.size[0]; ++i)
      for (std::int64_t j = 0; j < in_.size[1]; ++j)
        for (std::int64_t k = 0; k < in_.size[2]; ++k)
          to[i * in_.step[0] + j * in_.step[1] + k * in_.step[2]] = static_cast<T>(*at++);
  }

  void check_place(std::int64_t p) const {
    ATHANOR_CHECK_INDEX(p >= 0 && p < in_.plane(), "max_pool_backward: index ", p, " lies outside an input plane of ",
                        in_.plane(), " elements");
  }

  void scatter_places(const T* grad, const std::int64_t* index, Wide<T>* at) const {
    for (std::int64_t d = 0; d < out_.size[0]; ++d)
      for (std::int64_t h = 0; h < out_.size[1]; ++h)
        for (std::int64_t x = 0; x < out_.size[2]; ++x) {
          const std::int64_t p = index[d * index_.step[0] + h * index_.step[1] + x * index_.step[2]];
          check_place(p);
          at[p] += static_cast<Wide<T>>(grad[d * out_.step[0] + h * out_.step[1] + x * out_.step[2]]);
        }
  }

  /// Every rank's distance from its window's start comes from a table: no divisions for each element.
  void scatter_small(const T* grad, const std::uint8_t* index, Wide<T>* at) const {
    const std::int64_t plane = in_.plane();
    for (std::int64_t d = 0; d < out_.size[0]; ++d)
      for (std::int64_t h = 0; h < out_.size[1]; ++h) {
        const std::uint8_t* ranks = index + d * index_.step[0] + h * index_.step[1];
        const T* from = grad + d * out_.step[0] + h * out_.step[1];
        std::int64_t start = (w_.start(0, d) * in_.size[1] + w_.start(1, h)) * in_.size[2] + w_.start(2, 0);
        for (std::int64_t x = 0; x < out_.size[2]; ++x, start += w_.stride[2]) {
          const std::int64_t p = start + distance_[ranks[x * index_.step[2]]];
          if (static_cast<std::uint64_t>(p) >= static_cast<std::uint64_t>(plane)) [[unlikely]]
            check_place(p);
          at[p] += static_cast<Wide<T>>(from[x * out_.step[2]]);
        }
      }
  }

  std::int64_t distance(int rank) const {
    const std::int64_t k = rank % w_.kernel[2], rest = rank / w_.kernel[2];
    const std::int64_t i = rest / w_.kernel[1] * w_.dil[0], j = rest % w_.kernel[1] * w_.dil[1];
    return (i * in_.size[1] + j) * in_.size[2] + k * w_.dil[2];
  }

  const PoolData in_, out_, index_;
  const PoolWindow w_;
  bool small_ = false, tiles_ = false, pairs_ = false;
  std::int64_t channels_ = 0, batch_ = 0;
  std::array<std::int64_t, 256> distance_{};  ///< of each rank from the start of its window, in the plane
};

void max_pool_run(const View& out, const View& indices, const View& in, const PoolParams& params) {
  const PoolWindow w(params);
  dispatch_all(in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>) MaxPool<T>(out, indices, in, w).run();
  });
}

void max_pool_backward_run(const View& din, const View& dout, const View& indices, const PoolParams& params) {
  dispatch_floating(din.dtype, "max_pool_backward",
                    [&](auto tag) { MaxPoolBackward<typename decltype(tag)::type>(din, dout, indices, params).run(); });
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor {
namespace {

HWY_EXPORT(max_pool_run);
HWY_EXPORT(max_pool_backward_run);

void max_pool_cpu(const View& out, const View& indices, const View& in, const PoolParams& params) {
  HWY_DYNAMIC_DISPATCH(max_pool_run)(out, indices, in, params);
}
void max_pool_backward_cpu(const View& din, const View& dout, const View& indices, const PoolParams& params) {
  HWY_DYNAMIC_DISPATCH(max_pool_backward_run)(din, dout, indices, params);
}

ATHANOR_REGISTER_KERNEL(max_pool_kernel, CPU, &max_pool_cpu);
ATHANOR_REGISTER_KERNEL(max_pool_backward_kernel, CPU, &max_pool_backward_cpu);

}  // namespace
}  // namespace athanor
#endif
