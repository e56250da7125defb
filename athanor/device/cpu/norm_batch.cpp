// batch_norm.
#include <cmath>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/norm_simd.h"
#include "athanor/device/cpu/norm_staging.h"
#include "athanor/device/cpu/reduce_core.h"
#include "athanor/ops/kernels/norm.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;      // elements for which a second thread pays
constexpr std::int64_t kTile = 256;         // columns that a row of few channels is repeated to
constexpr std::int64_t kMostTogether = 64;  // channels of the largest block

/// Activations as samples of `channels` planes of `plane` elements; with `last`, the channel runs fastest. With
/// `block`, as many channels are interleaved in each plane.
struct Channels {
  std::int64_t samples = 1, channels = 1, plane = 1, block = 0;
  bool last = false;

  std::int64_t rows() const { return last ? samples * plane : samples * channels; }
  std::int64_t per_channel() const { return samples * plane; }
  /// Channels of one run of memory, and the elements of that run.
  std::int64_t together() const { return block ? block : 1; }
  std::int64_t run() const { return plane * together(); }
};

bool is_channels_last(const View& v) {
  const auto is = [&](int d, std::int64_t step) { return v.sizes[d] == 1 || v.strides[d] == step; };
  std::int64_t step = v.sizes[1];
  bool ok = is(1, 1);
  for (int d = v.ndim - 1; d >= 2; --d) {
    ok = ok && is(d, step);
    step *= v.sizes[d];
  }
  return ok && is(0, step);
}

Channels channels_of(const View& in, const char* op) {
  ATHANOR_CHECK(in.ndim >= 2, op, ": expected activations of at least 2 dims, got shape ", in.shape());
  Channels c;
  c.samples = in.sizes[0];
  c.channels = in.sizes[1];
  for (int d = 2; d < in.ndim; ++d) c.plane *= in.sizes[d];
  c.block = in.block;
  if (c.block) return c;
  c.last = !in.contiguous || c.plane == 1;
  ATHANOR_CHECK_TYPE(NotImplementedError, in.contiguous || in.numel == 0 || is_channels_last(in), op,
                     ": activations must be contiguous or channels-last; make them so first");
  return c;
}

/// `v` as one row of memory: its elements are dense, whatever their order.
View flat(View v) {
  v.contiguous = true;
  return v;
}

std::vector<double> to_doubles(const View& v, double otherwise, std::int64_t n) {
  std::vector<double> out(static_cast<std::size_t>(n), otherwise);
  if (v.defined()) load_range(out.data(), DType::Double, v, 0, n);
  return out;
}
void from_doubles(const View& v, const std::vector<double>& x) {
  if (v.defined()) store_range(v, 0, x.data(), DType::Double, v.numel);
}

/// Parameters of all channels in dtype t, repeated `repeats` times.
class ChannelParams {
 public:
  ChannelParams(DType t, std::int64_t channels, std::int64_t repeats)
      : t_(t), channels_(channels), repeats_(repeats), room_(static_cast<std::size_t>(4 * channels * repeats)) {}
  void set(int which, const std::vector<double>& values) {
    for (std::int64_t k = 0; k < repeats_; ++k)
      convert_line(element(at(which), k * channels_, item_size(t_)), t_, values.data(), DType::Double, channels_);
  }
  /// From channel c on.
  NormParams from(std::int64_t c) const {
    const auto p = [&](int which) -> const void* { return element(at(which), c, item_size(t_)); };
    return {p(0), p(1), p(2), p(3)};
  }

 private:
  void* at(int which) const {
    return element(const_cast<double*>(room_.data()), which * channels_ * repeats_, item_size(t_));
  }
  DType t_;
  std::int64_t channels_, repeats_;
  std::vector<double> room_;
};

std::int64_t repeats_of(const Channels& c) {
  return c.last && c.channels > 0 && c.channels < kTile ? kTile / c.channels : 1;
}

/// Calls body(start, n, channel) for pieces of memory that cover all activations: runs of a plane, whose (first)
/// channel is given, or whole rows of channels (`channel` is 0, n at most channels * repeats). Pieces have at most
/// kNormPiece elements if `small`.
template <class F>
void each_piece(const Channels& c, std::int64_t repeats, bool small, F&& body) {
  const std::int64_t row = c.last ? c.channels * repeats : c.run();
  const std::int64_t total = c.samples * c.channels * c.plane, rows = row ? (total + row - 1) / row : 0;
  const std::int64_t runs = c.channels / c.together();
  const std::int64_t most = small ? kNormPiece : row;
  parallel_for(0, rows, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, row)),
               [&](std::int64_t b, std::int64_t e) {
                 for (; b < e; ++b) {
                   const std::int64_t start = b * row, n = std::min(row, total - start);
                   for (std::int64_t i = 0; i < n; i += most)
                     body(start + i, std::min(most, n - i), c.last ? i : b % runs * c.together());
                 }
                 block_ops().stream_fence();
               });
}

void apply(const Channels& c, const View& out, const View& in, const std::vector<double>& center,
           const std::vector<double>& scale, const std::vector<double>& shift, bool relu, const View& residual,
           DType t) {
  const std::int64_t repeats = repeats_of(c);
  ChannelParams params(t, c.channels, repeats);
  params.set(0, center);
  params.set(1, scale);
  params.set(3, shift);
  const bool native = in.dtype == t && out.dtype == t, stream = native && is_large_output(out, in);
  const auto affine = c.last ? norm_fns(t).affine_columns : norm_fns(t).affine_row;
  each_piece(c, repeats, !native, [&](std::int64_t start, std::int64_t n, std::int64_t channel) {
    alignas(64) double room[kNormPiece], more_room[kNormPiece];
    void* const to = dense_output(out, start, t, room);
    const void* const from = dense_input(in, start, n, t, room);
    const void* const more = residual.defined() ? dense_input(residual, start, n, t, more_room) : nullptr;
    if (c.block)
      norm_fns(t).affine_blocks(to, from, more, n, c.block, params.from(channel), relu, stream);
    else
      affine(to, from, more, n, params.from(channel), relu, stream);
    finish_output(out, start, n, t, room);
  });
}

/// Mean and sum of squared deviations of every channel of activations in blocks, a block of channels at a time: float32
/// over pieces of kNormPiece elements, float64 between them.
void block_moments(const Channels& c, const View& in, DType t, std::vector<double>& mean, std::vector<double>& m2) {
  const std::int64_t row = c.run(), runs = c.channels / c.block, most = kNormPiece / c.block * c.block;
  parallel_for(0, runs, std::max<std::int64_t>(1, kGrain / (c.samples * row + 1)), [&](std::int64_t b, std::int64_t e) {
    alignas(64) double room[kNormPiece], piece[2][kMostTogether];
    for (; b < e; ++b) {
      std::int64_t count = 0;
      for (std::int64_t s = 0; s < c.samples; ++s)
        for (std::int64_t i = 0; i < row; i += most) {
          const std::int64_t n = std::min(most, row - i), k = n / c.block;
          norm_fns(t).moments_blocks(piece[0], piece[1], dense_input(in, (s * runs + b) * row + i, n, t, room), n,
                                     c.block);
          double means[kMostTogether], squares[kMostTogether];
          convert_line(means, DType::Double, piece[0], t, c.block);
          convert_line(squares, DType::Double, piece[1], t, c.block);
          const double all = static_cast<double>(count + k), part = static_cast<double>(k);
          for (std::int64_t j = 0; j < c.block; ++j) {  // Chan's update
            const auto at = static_cast<std::size_t>(b * c.block + j);
            const double delta = means[j] - mean[at];
            m2[at] += squares[j] + delta * delta * (part * static_cast<double>(count) / all);
            mean[at] += delta * (part / all);
          }
          count += k;
        }
    }
  });
}

/// The same for every layout.
void batch_moments(const Channels& c, const View& in, DType t, std::vector<double>& mean, std::vector<double>& m2) {
  if (c.block) return block_moments(c, in, t, mean, m2);
  const Reducer reducer = moments_reducer(t);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(in.ndim), 1), strides(sizes);
  sizes[1] = in.sizes[1];
  const View means{mean.data(), sizes.data(), strides.data(), in.sizes[1], DType::Double, in.ndim, true};
  const View squares{m2.data(), sizes.data(), strides.data(), in.sizes[1], DType::Double, in.ndim, true};
  const auto write_mean = [](void* to, const void* states, std::int64_t n, std::int64_t, double) {
    for (std::int64_t i = 0; i < n; ++i) static_cast<double*>(to)[i] = static_cast<const MomentsState*>(states)[i].mean;
  };
  const auto write_m2 = [](void* to, const void* states, std::int64_t n, std::int64_t, double) {
    for (std::int64_t i = 0; i < n; ++i) static_cast<double*>(to)[i] = static_cast<const MomentsState*>(states)[i].m2;
  };
  const ReduceOutput outputs[] = {{&means, write_mean, DType::Double, 0}, {&squares, write_m2, DType::Double, 0}};
  run_reduce(&reducer, 1, outputs, 2, in, ~std::uint64_t{2}, 0);
}

void blend(const View& running, const std::vector<double>& batch, double momentum) {
  if (!running.defined()) return;
  auto r = to_doubles(running, 0, running.numel);
  for (std::size_t i = 0; i < r.size(); ++i) r[i] += momentum * (batch[i] - r[i]);
  from_doubles(running, r);
}

void batch_norm_cpu(const View& out, const View& save_mean, const View& save_invstd, const View& running_mean,
                    const View& running_var, const View& in, const View& weight, const View& bias, double momentum,
                    double eps, bool relu, const View& residual) {
  const DType t = norm_dtype(in, "batch_norm");
  const Channels c = channels_of(in, "batch_norm");
  const std::int64_t n = c.per_channel();
  ATHANOR_CHECK_VALUE(n != 1, "batch_norm: expected more than 1 value per channel when training, got input size ",
                      in.shape());
  const auto channels = static_cast<std::size_t>(c.channels);
  std::vector<double> mean(channels), m2(channels), invstd(channels), scale = to_doubles(weight, 1, c.channels);
  batch_moments(c, in, t, mean, m2);
  for (std::size_t i = 0; i < channels; ++i) {
    invstd[i] = n > 0 ? 1 / std::sqrt(m2[i] / static_cast<double>(n) + eps) : 0;  // gradients of no values are 0
    m2[i] /= static_cast<double>(n - 1);
    scale[i] *= invstd[i];
  }
  from_doubles(save_mean, mean);
  from_doubles(save_invstd, invstd);
  if (n > 0) {
    blend(running_mean, mean, momentum);
    blend(running_var, m2, momentum);
  }
  apply(c, flat(out), flat(in), mean, scale, to_doubles(bias, 0, c.channels), relu,
        residual.defined() ? flat(residual) : residual, t);
}

void batch_norm_eval_cpu(const View& out, const View& in, const View& weight, const View& bias, const View& mean,
                         const View& var, double eps, bool relu, const View& residual) {
  const DType t = norm_dtype(in, "batch_norm");
  const Channels c = channels_of(in, "batch_norm");
  auto scale = to_doubles(weight, 1, c.channels);
  const auto variance = to_doubles(var, 1, c.channels);
  for (std::size_t i = 0; i < scale.size(); ++i) scale[i] /= std::sqrt(variance[i] + eps);
  apply(c, flat(out), flat(in), to_doubles(mean, 0, c.channels), scale, to_doubles(bias, 0, c.channels), relu,
        residual.defined() ? flat(residual) : residual, t);
}

/// Sums over each channel of the gradient and of its product with the deviation.
class ChannelSums {
 public:
  ChannelSums(const Channels& c, const View& grad, const View& in, const View& out, const std::vector<double>& mean,
              DType t)
      : c_(c),
        grad_(grad),
        in_(in),
        out_(out),
        mean_(mean),
        t_(t),
        per_part_(std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(1, c.plane))),
        parts_((c.samples + per_part_ - 1) / per_part_),
        sum_g(mean.size()),
        sum_gx(mean.size()) {}

  void all() {
    if (in_.numel == 0) return;
    if (c_.block)
      by_blocks();
    else if (c_.last)
      by_columns();
    else
      by_planes();
  }
  /// Those of one channel of planes; the same bits.
  void of_channel(std::int64_t channel) {
    for (std::int64_t p = 0; p < parts_; ++p) {
      double sums[2] = {0, 0};
      part(channel, p, sums);
      sum_g[static_cast<std::size_t>(channel)] += sums[0];
      sum_gx[static_cast<std::size_t>(channel)] += sums[1];
    }
  }

 private:
  const Channels& c_;
  const View &grad_, &in_, &out_;
  const std::vector<double>& mean_;
  DType t_;
  std::int64_t per_part_, parts_;  ///< of each channel's samples, whose sums are added in order

 public:
  std::vector<double> sum_g, sum_gx;

 private:
  void by_blocks() {
    const std::int64_t row = c_.run(), runs = c_.channels / c_.block, most = kNormPiece / c_.block * c_.block;
    ChannelParams centers(t_, c_.channels, 1);
    centers.set(0, mean_);
    parallel_for(0, runs, std::max<std::int64_t>(1, kGrain / (c_.samples * row + 1)),
                 [&](std::int64_t b, std::int64_t e) {
                   alignas(64) double room[3][kNormPiece], piece[2][kMostTogether];
                   for (; b < e; ++b)
                     for (std::int64_t s = 0; s < c_.samples; ++s)
                       for (std::int64_t i = 0; i < row; i += most) {
                         const std::int64_t n = std::min(most, row - i), at = (s * runs + b) * row + i;
                         norm_fns(t_).dot_blocks(piece[0], piece[1], dense_input(grad_, at, n, t_, room[0]),
                                                 dense_input(in_, at, n, t_, room[1]),
                                                 out_.defined() ? dense_input(out_, at, n, t_, room[2]) : nullptr, n,
                                                 c_.block, centers.from(b * c_.block).center);
                         double g[kMostTogether], gx[kMostTogether];
                         convert_line(g, DType::Double, piece[0], t_, c_.block);
                         convert_line(gx, DType::Double, piece[1], t_, c_.block);
                         for (std::int64_t j = 0; j < c_.block; ++j) {
                           sum_g[static_cast<std::size_t>(b * c_.block + j)] += g[j];
                           sum_gx[static_cast<std::size_t>(b * c_.block + j)] += gx[j];
                         }
                       }
                 });
  }

  void by_planes() {
    std::vector<double> sums(static_cast<std::size_t>(2 * parts_ * c_.channels));
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, per_part_ * c_.plane));
    parallel_for(0, parts_ * c_.channels, grain, [&](std::int64_t b, std::int64_t e) {
      for (; b < e; ++b) part(b / parts_, b % parts_, &sums[static_cast<std::size_t>(2 * b)]);
    });
    for (std::int64_t i = 0; i < parts_ * c_.channels; ++i) {
      sum_g[static_cast<std::size_t>(i / parts_)] += sums[static_cast<std::size_t>(2 * i)];
      sum_gx[static_cast<std::size_t>(i / parts_)] += sums[static_cast<std::size_t>(2 * i + 1)];
    }
  }
  void part(std::int64_t channel, std::int64_t p, double* sums) const {
    const std::int64_t first = p * per_part_;
    double local[2] = {0, 0};
    for (std::int64_t s = first; s < std::min(c_.samples, first + per_part_); ++s)
      plane((s * c_.channels + channel) * c_.plane, mean_[static_cast<std::size_t>(channel)], local);
    sums[0] = local[0];
    sums[1] = local[1];
  }
  void plane(std::int64_t start, double center, double* sums) const {
    alignas(64) double room[3][kNormPiece];
    const bool native = grad_.dtype == t_ && in_.dtype == t_;
    for (std::int64_t i = 0; i < c_.plane; i += native ? c_.plane : kNormPiece) {
      const std::int64_t n = native ? c_.plane : std::min(kNormPiece, c_.plane - i);
      norm_fns(t_).dot_row(sums, dense_input(grad_, start + i, n, t_, room[0]),
                           dense_input(in_, start + i, n, t_, room[1]),
                           out_.defined() ? dense_input(out_, start + i, n, t_, room[2]) : nullptr, n, center);
    }
  }

  /// Rows are cut into parts of a fixed size; columns into strips.
  void by_columns() {
    constexpr std::int64_t kStrip = 512, kRows = 64;
    const std::int64_t repeats = repeats_of(c_), width = c_.channels * repeats, total = c_.rows() * c_.channels;
    const std::int64_t rows = total / width, rest = total - rows * width;
    const std::int64_t per_part = std::max(kRows, 131072 / width / kRows * kRows),
                       parts = (rows + per_part - 1) / per_part;
    ChannelParams centers(t_, c_.channels, repeats);
    centers.set(0, mean_);
    std::vector<double> sums(static_cast<std::size_t>(2 * (parts + 1) * width));
    double* const all_g = sums.data();
    double* const all_gx = all_g + (parts + 1) * width;
    const auto part = [&](std::int64_t p, std::int64_t start, std::int64_t count, std::int64_t columns) {
      for (std::int64_t c = 0; c < columns; c += kStrip) {
        const std::int64_t n = std::min(kStrip, columns - c);
        for (std::int64_t r = 0; r < count; r += kRows)
          add_rows(all_g + p * width + c, all_gx + p * width + c, start + r * width + c, width,
                   std::min(kRows, count - r), n, centers.from(c).center);
      }
    };
    parallel_for(0, parts, 1, [&](std::int64_t b, std::int64_t e) {
      for (; b < e; ++b) part(b, b * per_part * width, std::min(per_part, rows - b * per_part), width);
    });
    if (rest) part(parts, rows * width, 1, rest);
    for (std::int64_t i = 0; i < (parts + 1) * width; ++i) {
      sum_g[static_cast<std::size_t>(i % width % c_.channels)] += all_g[i];
      sum_gx[static_cast<std::size_t>(i % width % c_.channels)] += all_gx[i];
    }
  }
  void add_rows(double* to_g, double* to_gx, std::int64_t start, std::int64_t stride, std::int64_t rows, std::int64_t n,
                const void* center) const {
    alignas(64) double g[512] = {}, gx[512] = {};
    alignas(64) double room[3][512];
    const bool native = grad_.dtype == t_ && in_.dtype == t_;
    for (std::int64_t r = 0; r < rows; r += native ? rows : 1) {
      const std::int64_t at = start + r * stride;
      norm_fns(t_).dot_columns(g, gx, dense_input(grad_, at, n, t_, room[0]), dense_input(in_, at, n, t_, room[1]),
                               out_.defined() ? dense_input(out_, at, n, t_, room[2]) : nullptr, stride,
                               native ? rows : 1, n, center);
    }
    convert_line(room[0], DType::Double, g, t_, n);
    convert_line(room[1], DType::Double, gx, t_, n);
    for (std::int64_t i = 0; i < n; ++i) {
      to_g[i] += room[0][i];
      to_gx[i] += room[1][i];
    }
  }
};

/// Whether a channel's gradient and input stay in the second cache between their sums and the gradient of the input.
/// Nothing for a channel or two, which many threads could not share.
bool fits_by_channel(const Channels& c, const View& in) {
  constexpr std::int64_t kStays = 1 << 20;
  return !c.last && !c.block && in.numel > 0 && c.channels >= get_num_threads() &&
         2 * c.per_channel() * static_cast<std::int64_t>(in.item_size()) <= kStays;
}

void batch_norm_backward_cpu(const View& din, const View& dweight, const View& dbias, const View& grad, const View& in,
                             const View& out, const View& mean, const View& invstd, const View& weight, bool training) {
  const DType t = norm_dtype(in, "batch_norm_backward");
  const Channels c = channels_of(in, "batch_norm_backward");
  const View g = flat(grad), x = flat(in), y = out.defined() ? flat(out) : out;
  const View& factor = training ? x : g;  // of a slope of 0 without batch statistics, where x may be infinite
  const auto center = to_doubles(mean, 0, c.channels), inv = to_doubles(invstd, 1, c.channels);
  ChannelSums sums(c, g, x, y, center, t);
  const auto channels = static_cast<std::size_t>(c.channels);
  std::vector<double> scale = to_doubles(weight, 1, c.channels), slope(channels), shift(channels), dw(channels);
  const auto n = static_cast<double>(c.per_channel());
  const auto derive = [&](std::size_t i) {
    scale[i] *= inv[i];
    dw[i] = sums.sum_gx[i] * inv[i];
    slope[i] = training ? -scale[i] * inv[i] * dw[i] / n : 0;
    shift[i] = training ? -scale[i] * sums.sum_g[i] / n : 0;
  };
  const bool native = in.dtype == t && grad.dtype == t, sums_count = training || dweight.defined() || dbias.defined();
  if (native && din.defined() && fits_by_channel(c, in)) {
    const std::size_t bytes = item_size(t);
    const View to = flat(din);
    parallel_for(0, c.channels, 1 + kGrain / c.per_channel(), [&](std::int64_t b, std::int64_t e) {
      for (; b < e; ++b) {
        if (sums_count) sums.of_channel(b);
        const auto i = static_cast<std::size_t>(b);
        derive(i);
        double room[4];
        const double values[4] = {center[i], scale[i], slope[i], shift[i]};
        convert_line(room, t, values, DType::Double, 4);
        const auto at = [&](std::int64_t k) -> const void* { return element(static_cast<void*>(room), k, bytes); };
        for (std::int64_t s = 0; s < c.samples; ++s) {
          const std::int64_t start = (s * c.channels + b) * c.plane;
          norm_fns(t).gradient_row(dense_output(to, start, t, nullptr), dense_input(g, start, c.plane, t, nullptr),
                                   dense_input(factor, start, c.plane, t, nullptr),
                                   y.defined() ? dense_input(y, start, c.plane, t, nullptr) : nullptr, c.plane,
                                   {at(0), at(1), at(2), at(3)});
        }
      }
    });
    from_doubles(dweight, dw);
    return from_doubles(dbias, sums.sum_g);
  }
  if (sums_count) sums.all();
  for (std::size_t i = 0; i < channels; ++i) derive(i);
  from_doubles(dweight, dw);
  from_doubles(dbias, sums.sum_g);
  if (!din.defined()) return;
  const std::int64_t repeats = repeats_of(c);
  ChannelParams params(t, c.channels, repeats);
  params.set(0, center);
  params.set(1, scale);
  params.set(2, slope);
  params.set(3, shift);
  const View to = flat(din);
  const auto gradient = c.last ? norm_fns(t).gradient_columns : norm_fns(t).gradient_row;
  each_piece(c, repeats, !native, [&](std::int64_t start, std::int64_t m, std::int64_t channel) {
    alignas(64) double room[3][kNormPiece];
    void* const dx = dense_output(to, start, t, room[0]);
    const void *const dy = dense_input(g, start, m, t, room[0]),
                      *const in_x = dense_input(factor, start, m, t, room[1]),
                      *const in_y = y.defined() ? dense_input(y, start, m, t, room[2]) : nullptr;
    if (c.block)
      norm_fns(t).gradient_blocks(dx, dy, in_x, in_y, m, c.block, params.from(channel));
    else
      gradient(dx, dy, in_x, in_y, m, params.from(channel));
    finish_output(to, start, m, t, room[0]);
  });
}

}  // namespace

ATHANOR_REGISTER_KERNEL(batch_norm_kernel, CPU, &batch_norm_cpu);
ATHANOR_REGISTER_KERNEL(batch_norm_eval_kernel, CPU, &batch_norm_eval_cpu);
ATHANOR_REGISTER_KERNEL(batch_norm_backward_kernel, CPU, &batch_norm_backward_cpu);

}  // namespace athanor::cpu
