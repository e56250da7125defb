// group_norm.
#include <cmath>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/norm_simd.h"
#include "athanor/device/cpu/norm_staging.h"
#include "athanor/device/cpu/reduce_core.h"
#include "athanor/ops/kernels/norm.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;  // elements for which a second thread pays

/// Activations as samples * groups blocks of `per_group` planes.
struct Groups {
  std::int64_t samples, channels, plane = 1, groups, per_group;

  Groups(const View& in, std::int64_t count, const char* op)
      : samples(in.sizes[0]),
        channels(in.sizes[1]),
        groups(count),
        per_group(in.sizes[1] / std::max<std::int64_t>(1, count)) {
    ATHANOR_CHECK(count > 0 && channels % count == 0, op,
                  ": expected the number of channels to be divisible by the number of groups, got ", channels,
                  " channels and ", count, " groups");
    ATHANOR_CHECK_TYPE(NotImplementedError, in.contiguous, op, ": activations must be contiguous; make them so first");
    for (int d = 2; d < in.ndim; ++d) plane *= in.sizes[d];
  }
  std::int64_t block() const { return per_group * plane; }
  std::int64_t grain() const { return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, block())); }
};

std::vector<double> to_doubles(const View& v, double otherwise, std::int64_t n) {
  std::vector<double> out(static_cast<std::size_t>(n), otherwise);
  if (v.defined()) load_range(out.data(), DType::Double, v, 0, n);
  return out;
}

/// One value as an element of the computing dtype.
struct Value {
  Value(double x, DType t) {
    if (t == DType::Double)
      wide = x;
    else
      single = static_cast<float>(x);
  }
  union {
    double wide;
    float single;
  };
};

/// Calls body(start, n) for pieces of a plane: whole if native, else small enough for a buffer.
template <class F>
void each_piece(std::int64_t start, std::int64_t plane, bool native, F&& body) {
  const std::int64_t most = native ? std::max<std::int64_t>(1, plane) : kNormPiece;
  for (std::int64_t i = 0; i < plane; i += most) body(start + i, std::min(most, plane - i));
}

void group_norm_cpu(const View& out, const View& mean, const View& rstd, const View& in, const View& weight,
                    const View& bias, std::int64_t groups, double eps) {
  const DType t = norm_dtype(in, "group_norm");
  const Groups shape(in, groups, "group_norm");
  const auto w = to_doubles(weight, 1, shape.channels), b = to_doubles(bias, 0, shape.channels);
  const Reducer reducer = moments_reducer(t);
  const bool native = in.dtype == t && out.dtype == t;
  parallel_for(0, shape.samples * groups, shape.grain(), [&](std::int64_t first, std::int64_t last) {
    alignas(64) double room[kNormPiece];
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t start = i * shape.block();
      MomentsState s{0, 0, 0};
      each_piece(start, shape.block(), native, [&](std::int64_t at, std::int64_t n) {
        reducer.rows(&s, dense_input(in, at, n, t, room), 0, 1, n, 0);
      });
      const double scale = 1 / std::sqrt(s.m2 / static_cast<double>(shape.block()) + eps);
      store_range(mean, i, &s.mean, DType::Double, 1);
      store_range(rstd, i, &scale, DType::Double, 1);
      for (std::int64_t k = 0; k < shape.per_group; ++k) {
        const auto c = static_cast<std::size_t>(i % groups * shape.per_group + k);
        const Value center(s.mean, t), slope(scale * w[c], t), shift(b[c], t);
        each_piece(start + k * shape.plane, shape.plane, native, [&](std::int64_t at, std::int64_t n) {
          norm_fns(t).affine_row(dense_output(out, at, t, room), dense_input(in, at, n, t, room), nullptr, n,
                                 {&center, &slope, nullptr, &shift}, false, false);
          finish_output(out, at, n, t, room);
        });
      }
    }
  });
}

void group_norm_backward_cpu(const View& din, const View& dweight, const View& dbias, const View& grad, const View& in,
                             const View& mean, const View& rstd, const View& weight, std::int64_t groups) {
  const DType t = norm_dtype(in, "group_norm_backward");
  const Groups shape(in, groups, "group_norm_backward");
  const auto w = to_doubles(weight, 1, shape.channels);
  const auto centers = to_doubles(mean, 0, shape.samples * groups),
             scales = to_doubles(rstd, 1, shape.samples * groups);
  const bool native = in.dtype == t && grad.dtype == t;
  // Of every sample and channel: the sums of the gradient and of its product with the deviation.
  std::vector<double> sums(static_cast<std::size_t>(2 * shape.samples * shape.channels));
  parallel_for(0, shape.samples * groups, shape.grain(), [&](std::int64_t first, std::int64_t last) {
    alignas(64) double room[2][kNormPiece];
    for (std::int64_t i = first; i < last; ++i) {
      const double m = centers[static_cast<std::size_t>(i)], s = scales[static_cast<std::size_t>(i)];
      const auto d = static_cast<double>(shape.block());
      double q = 0, qx = 0;
      for (std::int64_t k = 0; k < shape.per_group; ++k) {
        const std::int64_t plane = i * shape.per_group + k;
        double* const local = &sums[static_cast<std::size_t>(2 * plane)];
        each_piece(plane * shape.plane, shape.plane, native, [&](std::int64_t at, std::int64_t n) {
          norm_fns(t).dot_row(local, dense_input(grad, at, n, t, room[0]), dense_input(in, at, n, t, room[1]), nullptr,
                              n, m);
        });
        const double gain = w[static_cast<std::size_t>(plane % shape.channels)];
        q += gain * local[0];
        qx += gain * local[1];
      }
      if (!din.defined()) continue;
      const Value center(m, t), slope(-s * s * s * qx / d, t), shift(-s * q / d, t);
      for (std::int64_t k = 0; k < shape.per_group; ++k) {
        const std::int64_t plane = i * shape.per_group + k;
        const Value scale(s * w[static_cast<std::size_t>(plane % shape.channels)], t);
        each_piece(plane * shape.plane, shape.plane, native, [&](std::int64_t at, std::int64_t n) {
          norm_fns(t).gradient_row(dense_output(din, at, t, room[0]), dense_input(grad, at, n, t, room[0]),
                                   dense_input(in, at, n, t, room[1]), nullptr, n, {&center, &scale, &slope, &shift});
          finish_output(din, at, n, t, room[0]);
        });
      }
    }
  });
  std::vector<double> dw(static_cast<std::size_t>(shape.channels)), db(dw);
  for (std::int64_t i = 0; i < shape.samples * shape.channels; ++i) {
    const auto c = static_cast<std::size_t>(i % shape.channels);
    db[c] += sums[static_cast<std::size_t>(2 * i)];
    dw[c] += sums[static_cast<std::size_t>(2 * i + 1)] * scales[static_cast<std::size_t>(i / shape.per_group)];
  }
  if (dweight.defined()) store_range(dweight, 0, dw.data(), DType::Double, shape.channels);
  if (dbias.defined()) store_range(dbias, 0, db.data(), DType::Double, shape.channels);
}

}  // namespace

ATHANOR_REGISTER_KERNEL(group_norm_kernel, CPU, &group_norm_cpu);
ATHANOR_REGISTER_KERNEL(group_norm_backward_kernel, CPU, &group_norm_backward_cpu);

}  // namespace athanor::cpu
