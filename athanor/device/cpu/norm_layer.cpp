// layer_norm and rms_norm.
#include <algorithm>
#include <cmath>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/norm_simd.h"
#include "athanor/device/cpu/norm_staging.h"
#include "athanor/device/cpu/reduce_core.h"
#include "athanor/device/cpu/walk_order.h"
#include "athanor/ops/kernels/norm.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;  // elements for which a second thread pays
constexpr std::int64_t kGroupRows = 8, kGroupBytes = 16384;
/// Elements of rows that layer_rows takes, at least; the statistics of shorter ones are waited for side by side. And
/// rows at once.
constexpr std::int64_t kLeastPlain = 64, kPlainRows = 64;

std::int64_t row_grain(std::int64_t n) { return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, n)); }

/// Mean and 1 / sqrt(variance + eps) of rows, or 0 and 1 / sqrt(mean square + eps).
class RowStatistics {
 public:
  RowStatistics(DType t, bool centred, double eps)
      : centred_(centred),
        eps_(eps),
        reducer_(centred              ? moments_reducer(t)
                 : t == DType::Double ? double_reducer(Fold::SumSquares)
                                      : float_reducer(Fold::SumSquares)) {}
  /// Of `count` rows of n elements, one after the other in memory.
  void operator()(const void* first, std::int64_t n, std::int64_t count, double* mean, double* rstd) const {
    if (!centred_) {
      std::fill_n(mean, count, 0.0);
      std::fill_n(rstd, count, 0.0);
      reducer_.rows(rstd, first, n, count, n, 0);
      for (std::int64_t k = 0; k < count; ++k) rstd[k] = one_over_deviation(rstd[k], n);
      return;
    }
    MomentsState states[kGroupRows];
    for (std::int64_t k = 0; k < count; ++k) states[k] = {0, 0, 0};
    reducer_.rows(states, first, n, count, n, 0);
    for (std::int64_t k = 0; k < count; ++k) rstd[k] = one_over_deviation(states[k].m2, n);
    for (std::int64_t k = 0; k < count; ++k) mean[k] = states[k].mean;
  }

 private:
  double one_over_deviation(double sum_of_squares, std::int64_t n) const {
    return 1 / std::sqrt(sum_of_squares / static_cast<double>(n) + eps_);
  }

  bool centred_;
  double eps_;
  Reducer reducer_;
};

/// A vector of n times `value`.
class Filler {
 public:
  Filler(std::int64_t n, DType t, double value) : room_(static_cast<std::size_t>(n), value) {
    if (t == DType::Float && n > 0) std::fill_n(static_cast<float*>(get()), n, static_cast<float>(value));
  }
  void* get() const { return const_cast<double*>(room_.data()); }

 private:
  std::vector<double> room_;
};

void store_statistics(const View& v, std::int64_t first, const double* from, std::int64_t count) {
  if (!v.defined()) return;
  if (v.dtype != DType::Float || !v.contiguous) return store_range(v, first, from, DType::Double, count);
  // A wide load of numbers just stored would wait until the streamed results before them have left.
  auto* to = static_cast<float*>(v.data) + first;
  for (std::int64_t k = 0; k < count; ++k) to[k] = static_cast<float>(from[k]);
}
double load_statistic(const View& v, std::int64_t i) {
  double x = 0;
  load_range(&x, DType::Double, v, i, 1);
  return x;
}

void normalise_rows(const char* op, const View& out, const View& mean, const View& rstd, const View& in,
                    const View& weight, const View& bias, std::int64_t rows, double eps, bool centred) {
  const DType t = norm_dtype(in, op);
  if (rows == 0) return;
  const std::int64_t n = in.numel / rows;
  const Parameters w(weight, t), b(bias, t);
  const RowStatistics statistics(t, centred, eps);
  const bool native = in.dtype == t && out.dtype == t, stream = native && is_large_output(out, in);
  const auto row_bytes = std::max<std::int64_t>(1, n * static_cast<std::int64_t>(in.item_size()));
  const bool backwards = !stream && begins_at_end(2 * rows * row_bytes);
  const std::int64_t stretch = std::max<std::int64_t>(1, kStretchBytes / row_bytes);
  // What a row's statistics wait for, one thing after the other, goes on side by side for a few rows in the first
  // cache.
  const std::int64_t group = native && !stream ? std::clamp<std::int64_t>(kGroupBytes / row_bytes, 1, kGroupRows) : 1;
  const auto normalise = [&](std::int64_t first, std::int64_t last, void* room) {
    double m[kGroupRows], s[kGroupRows];
    for (std::int64_t r = first; r < last; r += group) {
      const std::int64_t count = std::min(group, last - r);
      const void* x = dense_input(in, r * n, n, t, room);
      statistics(x, n, count, m, s);
      store_statistics(mean, r, m, count);
      store_statistics(rstd, r, s, count);
      for (std::int64_t k = r; k < r + count; ++k) {
        if (k > r) x = dense_input(in, k * n, n, t, room);
        norm_fns(t).layer_row(dense_output(out, k * n, t, room), x, w.get(), b.get(), n, m[k - r], s[k - r], group * n,
                              stream);
        finish_output(out, k * n, n, t, room);
      }
    }
  };
  // All in one loop; what is not given is one or nothing, -0 so that even the sign of a zero stays.
  const bool plain = native && centred && n >= kLeastPlain;
  const Filler ones(plain && !w.get() ? n : 0, t, 1), zeros(plain && !b.get() ? n : 0, t, -0.0);
  const auto normalise_plain = [&](std::int64_t first, std::int64_t last) {
    double m[kPlainRows], s[kPlainRows];
    for (std::int64_t r = first; r < last; r += kPlainRows) {
      const std::int64_t count = std::min(kPlainRows, last - r);
      norm_fns(t).layer_rows(dense_output(out, r * n, t, nullptr), dense_input(in, r * n, n, t, nullptr),
                             w.get() ? w.get() : ones.get(), b.get() ? b.get() : zeros.get(), n, count, eps, m, s,
                             stream);
      store_statistics(mean, r, m, count);
      store_statistics(rstd, r, s, count);
    }
  };
  parallel_for(0, rows, row_grain(n), [&](std::int64_t first, std::int64_t last) {
    std::vector<double> room(native ? 0 : static_cast<std::size_t>(n));
    walk_stretches(first, last, stretch, backwards, [&](std::int64_t begin, std::int64_t end) {
      plain ? normalise_plain(begin, end) : normalise(begin, end, room.data());
    });
    if (stream) block_ops().stream_fence();
  });
}

/// Gradients of the parameters are summed over chunks of rows, each in the computing dtype, and those in float64.
class RowGradient {
 public:
  RowGradient(const char* op, const View& din, const View& dweight, const View& dbias, const View& grad, const View& in,
              const View& mean, const View& rstd, const View& weight, std::int64_t rows, bool centred)
      : din_(din),
        dweight_(dweight),
        dbias_(dbias),
        grad_(grad),
        in_(in),
        mean_(mean),
        rstd_(rstd),
        t_(norm_dtype(in, op)),
        weight_(weight, t_),
        rows_(rows),
        n_(rows ? in.numel / rows : std::max(dweight.numel, dbias.numel)),
        centred_(centred),
        sums_(dweight.defined() || dbias.defined()) {
    per_chunk_ = sums_ ? std::clamp<std::int64_t>(65536 / std::max<std::int64_t>(1, n_), 8, 128) : row_grain(n_);
    chunks_ = (rows + per_chunk_ - 1) / per_chunk_;
  }

  void run() {
    if (sums_) partial_.resize(static_cast<std::size_t>(2 * chunks_ * n_ * size()));
    parallel_for(0, chunks_, std::max<std::int64_t>(1, row_grain(n_) / per_chunk_),
                 [&](std::int64_t b, std::int64_t e) {
                   const bool native = in_.dtype == t_ && grad_.dtype == t_;
                   std::vector<double> room(native ? 0 : static_cast<std::size_t>(2 * n_));
                   for (std::int64_t c = b; c < e; ++c) chunk(c, room.data(), room.data() + (native ? 0 : n_));
                 });
    if (dweight_.defined()) collect(dweight_, 0);
    if (dbias_.defined()) collect(dbias_, 1);
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(item_size(t_)); }
  char* partial(int which, std::int64_t chunk) { return partial_.data() + (which * chunks_ + chunk) * n_ * size(); }

  void chunk(std::int64_t c, void* room, void* more) {
    void* const dw = dweight_.defined() ? partial(0, c) : nullptr;
    void* const db = dbias_.defined() ? partial(1, c) : nullptr;
    for (std::int64_t r = c * per_chunk_; r < std::min(rows_, (c + 1) * per_chunk_); ++r) {
      const void* g = dense_input(grad_, r * n_, n_, t_, room);
      const void* x = dense_input(in_, r * n_, n_, t_, more);
      void* const dx = din_.defined() ? dense_output(din_, r * n_, t_, room) : nullptr;
      norm_fns(t_).layer_gradient_row(dx, dw, db, g, x, weight_.get(), n_, centred_ ? load_statistic(mean_, r) : 0,
                                      load_statistic(rstd_, r), centred_);
      if (din_.defined()) finish_output(din_, r * n_, n_, t_, room);
    }
  }

  void collect(const View& out, int which) {
    constexpr std::int64_t kPiece = 256;
    parallel_for(0, (n_ + kPiece - 1) / kPiece, std::max<std::int64_t>(1, kGrain / kPiece / (chunks_ + 1)),
                 [&](std::int64_t b, std::int64_t e) {
                   for (std::int64_t p = b; p < e; ++p) {
                     const std::int64_t first = p * kPiece, m = std::min(kPiece, n_ - first);
                     double sum[kPiece] = {}, part[kPiece];
                     for (std::int64_t c = 0; c < chunks_; ++c) {
                       convert_line(part, DType::Double, partial(which, c) + first * size(), t_, m);
                       for (std::int64_t i = 0; i < m; ++i) sum[i] += part[i];
                     }
                     store_range(out, first, sum, DType::Double, m);
                   }
                 });
  }

  const View &din_, &dweight_, &dbias_, &grad_, &in_, &mean_, &rstd_;
  DType t_;
  Parameters weight_;
  std::int64_t rows_, n_;
  bool centred_, sums_;
  std::int64_t per_chunk_, chunks_;
  std::vector<char> partial_;
};

void layer_norm_cpu(const View& out, const View& mean, const View& rstd, const View& in, const View& weight,
                    const View& bias, std::int64_t rows, double eps) {
  normalise_rows("layer_norm", out, mean, rstd, in, weight, bias, rows, eps, true);
}
void rms_norm_cpu(const View& out, const View& rstd, const View& in, const View& weight, std::int64_t rows,
                  double eps) {
  normalise_rows("rms_norm", out, View{}, rstd, in, weight, View{}, rows, eps, false);
}
void layer_norm_backward_cpu(const View& din, const View& dweight, const View& dbias, const View& grad, const View& in,
                             const View& mean, const View& rstd, const View& weight, std::int64_t rows) {
  RowGradient("layer_norm_backward", din, dweight, dbias, grad, in, mean, rstd, weight, rows, true).run();
}
void rms_norm_backward_cpu(const View& din, const View& dweight, const View& grad, const View& in, const View& rstd,
                           const View& weight, std::int64_t rows) {
  const View none;
  RowGradient("rms_norm_backward", din, dweight, none, grad, in, none, rstd, weight, rows, false).run();
}

}  // namespace

ATHANOR_REGISTER_KERNEL(layer_norm_kernel, CPU, &layer_norm_cpu);
ATHANOR_REGISTER_KERNEL(layer_norm_backward_kernel, CPU, &layer_norm_backward_cpu);
ATHANOR_REGISTER_KERNEL(rms_norm_kernel, CPU, &rms_norm_cpu);
ATHANOR_REGISTER_KERNEL(rms_norm_backward_kernel, CPU, &rms_norm_backward_cpu);

}  // namespace athanor::cpu
