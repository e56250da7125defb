#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "athanor/device/cpu/pool_avg.cpp"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <limits>
#include <type_traits>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/dense_line.h"
#include "athanor/device/cpu/pool_shape.h"
#include "athanor/device/cpu/reduce_core.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

using namespace athanor::detail;

template <class T>
using Wide = std::conditional_t<is_half_v<T>, float, T>;

inline constexpr std::int64_t kLanes = 256;  // windows added up side by side

/// The input positions [begin, end) of one window along one axis, with the divisor's share of padding.
struct Span {
  std::int64_t begin = 0, end = 0;
  std::int64_t counted = 0;  ///< positions that count for the divisor
};

/// Windows of one axis: fixed ones, or those of adaptive pooling.
std::vector<Span> spans_of(std::int64_t outputs, std::int64_t size) {
  std::vector<Span> spans(static_cast<std::size_t>(outputs));
  for (std::int64_t o = 0; o < outputs; ++o) {
    Span& s = spans[static_cast<std::size_t>(o)];
    s.begin = o * size / outputs;
    s.end = ((o + 1) * size + outputs - 1) / outputs;
    s.counted = s.end - s.begin;
  }
  return spans;
}

std::vector<Span> spans_of(const PoolWindow& w, int e, std::int64_t outputs, std::int64_t size, bool count_pad) {
  std::vector<Span> spans(static_cast<std::size_t>(outputs));
  for (std::int64_t o = 0; o < outputs; ++o) {
    Span& s = spans[static_cast<std::size_t>(o)];
    const std::int64_t start = w.start(e, o), stop = std::min(start + w.kernel[e], size + w.pad[e]);
    s.begin = std::clamp<std::int64_t>(start, 0, size);
    s.end = std::clamp<std::int64_t>(stop, s.begin, size);
    s.counted = count_pad ? stop - start : s.end - s.begin;
  }
  return spans;
}

struct AvgShape {
  PoolData small, large;  ///< pooled side, unpooled side
  std::array<std::vector<Span>, kPoolAxes> spans;
  std::int64_t batch = 0, channels = 0, divisor = 0;
  std::int64_t stride = 0;  ///< between windows of the last axis if all of [inner.begin, inner.end) are alike
  TapRange inner;

  AvgShape(const View& s, const View& l) : small(pool_data(s)), large(pool_data(l)) {
    batch = s.size(0);
    channels = s.size(1);
  }
  void fixed(const PoolParams& p) {
    const PoolWindow w(p);
    divisor = p.divisor_override;
    for (int e = 0; e < kPoolAxes; ++e) spans[e] = spans_of(w, e, small.size[e], large.size[e], p.count_include_pad);
    stride = w.stride[2];
    inner = inner_outputs(w, small.size[2], large.size[2]);
  }
  void adaptive() {
    for (int e = 0; e < kPoolAxes; ++e) spans[e] = spans_of(small.size[e], large.size[e]);
  }
  /// Windows from x on that can be computed side by side.
  std::int64_t alike(std::int64_t x) const { return x >= inner.begin && x < inner.end ? inner.end - x : 1; }
  double divide_by(const Span& d, const Span& h, const Span& w) const {
    if (divisor != 0) return static_cast<double>(divisor);
    return static_cast<double>(d.counted) * static_cast<double>(h.counted) * static_cast<double>(w.counted);
  }
};

template <class T, int kStep>
void add_lanes(const T* HWY_RESTRICT at, std::int64_t step, std::int64_t n, Wide<T>* HWY_RESTRICT sums) {
  if (kStep) step = kStep;
  for (std::int64_t i = 0; i < n; ++i) sums[i] += static_cast<Wide<T>>(at[i * step]);
}

/// Sum of a run of values, in an order that depends on its length alone.
template <class T>
Wide<T> run_sum(const T* p, std::int64_t n) {
  constexpr int kParts = 32;
  Wide<T> part[kParts] = {};
  std::int64_t i = 0;
  for (; i + kParts <= n; i += kParts)
    for (int j = 0; j < kParts; ++j) part[j] += static_cast<Wide<T>>(p[i + j]);
  for (int j = 0; i < n; ++i, ++j) part[j] += static_cast<Wide<T>>(p[i]);
  for (int half = kParts / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) part[j] += part[j + half];
  return part[0];
}

template <class T>
class AvgForward {
 public:
  explicit AvgForward(const AvgShape& s)
      : s_(s),
        by_channel_(s.channels > 1 && s.large.channel_step == 1),
        by_lines_(!by_channel_ && s.stride == 0 && s.large.step[2] == 1) {}

  void run() const {
    const std::int64_t rows = s_.small.size[0] * s_.small.size[1];
    const std::int64_t tasks = by_channel_ ? s_.batch * rows : s_.batch * s_.channels;
    const std::int64_t cost = s_.batch * s_.channels * s_.large.plane() / std::max<std::int64_t>(tasks, 1);
    parallel_for(0, tasks, 1 + 16384 / (cost + 1), [&](std::int64_t begin, std::int64_t end) {
      std::vector<Wide<T>> line(by_lines_ ? static_cast<std::size_t>(s_.large.size[2]) : 0);
      for (std::int64_t t = begin; t < end; ++t) {
        if (by_lines_)
          for (std::int64_t r = 0; r < rows; ++r) row_by_line(t / s_.channels, t % s_.channels, r, line.data());
        else if (by_channel_)
          row(t / rows, 0, t % rows);
        else
          for (std::int64_t r = 0; r < rows; ++r) row(t / s_.channels, t % s_.channels, r);
      }
    });
  }

 private:
  void row(std::int64_t n, std::int64_t c, std::int64_t r) const {
    const std::int64_t d = r / s_.small.size[1], h = r % s_.small.size[1];
    const Span &sd = s_.spans[0][d], &sh = s_.spans[1][h];
    const T* in = static_cast<const T*>(s_.large.data) + n * s_.large.batch_step + c * s_.large.channel_step;
    T* out = static_cast<T*>(s_.small.data) + n * s_.small.batch_step + c * s_.small.channel_step +
             d * s_.small.step[0] + h * s_.small.step[1];
    const std::int64_t step = by_channel_ ? 1 : s_.stride * s_.large.step[2];
    const std::int64_t out_step = by_channel_ ? s_.small.channel_step : s_.small.step[2];
    for (std::int64_t x = 0; x < s_.small.size[2];) {
      const Span& sw = s_.spans[2][x];
      const std::int64_t windows = by_channel_ ? 1 : s_.alike(x);
      const std::int64_t count = by_channel_ ? s_.channels : windows;
      const auto divisor = static_cast<Wide<T>>(s_.divide_by(sd, sh, sw));
      T* to = out + x * s_.small.step[2];
      if (count == 1)
        to[0] = static_cast<T>(one(in, sd, sh, sw) / divisor);
      else
        for (std::int64_t i = 0; i < count; i += kLanes)
          lanes(in + i * step, sd, sh, sw, step, std::min(kLanes, count - i), divisor, to + i * out_step, out_step);
      x += windows;
    }
  }

  /// A row of adaptive windows: they share their lines, which are added up first, side by side.
  void row_by_line(std::int64_t n, std::int64_t c, std::int64_t r, Wide<T>* HWY_RESTRICT line) const {
    const std::int64_t d = r / s_.small.size[1], h = r % s_.small.size[1], width = s_.large.size[2];
    const Span &sd = s_.spans[0][d], &sh = s_.spans[1][h];
    const T* in = static_cast<const T*>(s_.large.data) + n * s_.large.batch_step + c * s_.large.channel_step;
    T* out = static_cast<T*>(s_.small.data) + n * s_.small.batch_step + c * s_.small.channel_step +
             d * s_.small.step[0] + h * s_.small.step[1];
    std::fill_n(line, width, Wide<T>(0));
    for (std::int64_t i = sd.begin; i < sd.end; ++i)
      for (std::int64_t j = sh.begin; j < sh.end; ++j)
        add_lanes<T, 1>(in + i * s_.large.step[0] + j * s_.large.step[1], 1, width, line);
    for (std::int64_t x = 0; x < s_.small.size[2]; ++x) {
      const Span& sw = s_.spans[2][x];
      const std::int64_t taps = sw.end - sw.begin;
      Wide<T> sum = 0;
      if (taps < 32)
        for (std::int64_t k = sw.begin; k < sw.end; ++k) sum += line[k];
      else
        sum = run_sum(line + sw.begin, taps);
      out[x * s_.small.step[2]] = static_cast<T>(sum / static_cast<Wide<T>>(s_.divide_by(sd, sh, sw)));
    }
  }

  Wide<T> one(const T* in, const Span& sd, const Span& sh, const Span& sw) const {
    Wide<T> sum = 0;
    for (std::int64_t i = sd.begin; i < sd.end; ++i)
      for (std::int64_t j = sh.begin; j < sh.end; ++j) {
        const T* p = in + i * s_.large.step[0] + j * s_.large.step[1] + sw.begin * s_.large.step[2];
        if (s_.large.step[2] == 1)
          sum += run_sum(p, sw.end - sw.begin);
        else
          for (std::int64_t k = sw.begin; k < sw.end; ++k, p += s_.large.step[2]) sum += static_cast<Wide<T>>(*p);
      }
    return sum;
  }

  void lanes(const T* in, const Span& sd, const Span& sh, const Span& sw, std::int64_t step, std::int64_t n,
             Wide<T> divisor, T* to, std::int64_t to_step) const {
    HWY_ALIGN Wide<T> sums[kLanes];
    std::fill_n(sums, n, Wide<T>(0));
    for (std::int64_t i = sd.begin; i < sd.end; ++i)
      for (std::int64_t j = sh.begin; j < sh.end; ++j)
        for (std::int64_t k = sw.begin; k < sw.end; ++k) {
          const T* at = in + i * s_.large.step[0] + j * s_.large.step[1] + k * s_.large.step[2];
          (step == 1 ? add_lanes<T, 1> : step == 2 ? add_lanes<T, 2> : add_lanes<T, 0>)(at, step, n, sums);
        }
    for (std::int64_t i = 0; i < n; ++i) to[i * to_step] = static_cast<T>(sums[i] / divisor);
  }

  const AvgShape& s_;
  const bool by_channel_, by_lines_;
};

/// Gradient: every output spreads its share over its window. One plane at a time, summed in the wide type.
template <class T>
class AvgBackward {
 public:
  explicit AvgBackward(const AvgShape& s) : s_(s), direct_(std::is_same_v<T, Wide<T>> && s.large.dense()) {}

  void run() const {
    parallel_for(0, s_.batch * s_.channels, 1 + 16384 / (s_.large.plane() + 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   std::vector<Wide<T>> sums(direct_ ? 0 : static_cast<std::size_t>(s_.large.plane()));
                   for (std::int64_t t = begin; t < end; ++t) plane(t / s_.channels, t % s_.channels, sums.data());
                 });
  }

 private:
  void plane(std::int64_t n, std::int64_t c, Wide<T>* sums) const {
    T* to = static_cast<T*>(s_.large.data) + n * s_.large.batch_step + c * s_.large.channel_step;
    const T* grad = static_cast<const T*>(s_.small.data) + n * s_.small.batch_step + c * s_.small.channel_step;
    if constexpr (std::is_same_v<T, Wide<T>>)
      if (direct_) sums = to;
    std::fill_n(sums, s_.large.plane(), Wide<T>(0));
    for (std::int64_t d = 0; d < s_.small.size[0]; ++d)
      for (std::int64_t h = 0; h < s_.small.size[1]; ++h)
        row(grad + d * s_.small.step[0] + h * s_.small.step[1], s_.spans[0][d], s_.spans[1][h], sums);
    if (direct_) return;
    for (std::int64_t i = 0; i < s_.large.size[0]; ++i)
      for (std::int64_t j = 0; j < s_.large.size[1]; ++j)
        for (std::int64_t k = 0; k < s_.large.size[2]; ++k)
          to[i * s_.large.step[0] + j * s_.large.step[1] + k * s_.large.step[2]] = static_cast<T>(*sums++);
  }

  void row(const T* grad, const Span& sd, const Span& sh, Wide<T>* sums) const {
    const std::int64_t width = s_.large.size[2], step = s_.small.step[2];
    for (std::int64_t x = 0; x < s_.small.size[2];) {
      const Span& sw = s_.spans[2][x];
      const std::int64_t count = s_.alike(x);
      const auto divisor = static_cast<Wide<T>>(s_.divide_by(sd, sh, sw));
      for (std::int64_t i = sd.begin; i < sd.end; ++i)
        for (std::int64_t j = sh.begin; j < sh.end; ++j) {
          Wide<T>* at = sums + (i * s_.large.size[1] + j) * width + sw.begin;
          if (count == 1) {
            const Wide<T> share = static_cast<Wide<T>>(grad[x * step]) / divisor;
            for (std::int64_t k = 0; k < sw.end - sw.begin; ++k) at[k] += share;
          } else {
            for (std::int64_t k = 0; k < sw.end - sw.begin; ++k)
              for (std::int64_t q = 0; q < count; ++q)
                at[k + q * s_.stride] += static_cast<Wide<T>>(grad[(x + q) * step]) / divisor;
          }
        }
      x += count;
    }
  }

  const AvgShape& s_;
  const bool direct_;
};

void avg_forward_run(const View& out, const View& in, const PoolParams* params) {
  AvgShape s(out, in);
  params ? s.fixed(*params) : s.adaptive();
  dispatch_floating(in.dtype, "avg_pool", [&](auto tag) { AvgForward<typename decltype(tag)::type>(s).run(); });
}

void avg_backward_run(const View& din, const View& dout, const PoolParams* params) {
  AvgShape s(dout, din);
  params ? s.fixed(*params) : s.adaptive();
  dispatch_floating(din.dtype, "avg_pool_backward",
                    [&](auto tag) { AvgBackward<typename decltype(tag)::type>(s).run(); });
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace athanor {
namespace {

HWY_EXPORT(avg_forward_run);
HWY_EXPORT(avg_backward_run);

void avg_pool_cpu(const View& out, const View& in, const PoolParams& params) {
  HWY_DYNAMIC_DISPATCH(avg_forward_run)(out, in, &params);
}
void avg_pool_backward_cpu(const View& din, const View& dout, const PoolParams& params) {
  HWY_DYNAMIC_DISPATCH(avg_backward_run)(din, dout, &params);
}
/// Means of whole planes that lie one after the other: sums of rows.
void average_planes(const View& out, const View& in) {
  const std::int64_t n = in.numel / out.numel, step = 16;
  const bool wide = in.dtype == DType::Double;
  const cpu::Reducer reducer = wide ? cpu::double_reducer(cpu::Fold::Sum) : cpu::float_reducer(cpu::Fold::Sum);
  const auto* from = static_cast<const char*>(in.data);
  parallel_for(0, out.numel, 1 + 16384 / n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; r += step) {
      const std::int64_t count = std::min(step, end - r);
      double sums[step] = {};
      reducer.rows(sums, from + r * n * static_cast<std::int64_t>(in.item_size()), n, count, n, 0);
      for (double& sum : sums) sum /= static_cast<double>(n);
      cpu::store_range(out, r, sums, DType::Double, count);
    }
  });
}

void adaptive_avg_pool_cpu(const View& out, const View& in) {
  const bool computes = in.dtype == DType::Float || in.dtype == DType::Double;
  if (computes && out.numel > 0 && out.numel == out.size(0) * out.size(1) && in.contiguous && in.numel > 0)
    return average_planes(out, in);
  HWY_DYNAMIC_DISPATCH(avg_forward_run)(out, in, nullptr);
}
void adaptive_avg_pool_backward_cpu(const View& din, const View& dout) {
  HWY_DYNAMIC_DISPATCH(avg_backward_run)(din, dout, nullptr);
}

ATHANOR_REGISTER_KERNEL(avg_pool_kernel, CPU, &avg_pool_cpu);
ATHANOR_REGISTER_KERNEL(avg_pool_backward_kernel, CPU, &avg_pool_backward_cpu);
ATHANOR_REGISTER_KERNEL(adaptive_avg_pool_kernel, CPU, &adaptive_avg_pool_cpu);
ATHANOR_REGISTER_KERNEL(adaptive_avg_pool_backward_kernel, CPU, &adaptive_avg_pool_backward_cpu);

}  // namespace
}  // namespace athanor
#endif
