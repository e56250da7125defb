// Running sums, products and log-sum-exps along a dim.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/dense_line.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/device/cpu/order_lines.h"
#include "athanor/device/cpu/scan_simd.h"
#include "athanor/ops/kernels/scan_sort.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kScanBlock = 2048;         // elements converted and scanned at a time
constexpr std::int64_t kChunk = 64 * kScanBlock;  // of a long line, with a sum of its own
constexpr std::int64_t kSegments = 8;             // of a block, scanned side by side to hide the latency of an addition

struct Sum {
  static constexpr bool kSplits = true;
  template <class Acc>
  static constexpr Acc identity() {
    return 0;
  }
  template <class Acc>
  static Acc join(Acc a, Acc b) {
    return a + b;
  }
};

/// Not split: a product of later elements may overflow that a 0 before them would have stopped.
struct Product {
  static constexpr bool kSplits = false;
  template <class Acc>
  static constexpr Acc identity() {
    return 1;
  }
  template <class Acc>
  static Acc join(Acc a, Acc b) {
    return a * b;
  }
};

struct LogSumExp {
  static constexpr bool kSplits = false;
  template <class Acc>
  static constexpr Acc identity() {
    return -INFINITY;
  }
  template <class Acc>
  static Acc join(Acc a, Acc b) {
    if (std::isnan(a) || std::isnan(b)) return a + b;
    const Acc least = std::min(a, b), greatest = std::max(a, b);
    return least == greatest && !std::isfinite(least) ? least : greatest + std::log1p(std::exp(least - greatest));
  }
};

/// One dense line of `in` to one of `out`. Acc is double for floating results and uint64 (which wraps) for integers.
template <class Op, class Acc>
class LineScan {
 public:
  LineScan(void* out, DType out_type, const void* in, DType in_type, std::int64_t n, bool reverse)
      : out_(out), in_(in), out_type_(out_type), in_type_(in_type), n_(n), reverse_(reverse) {}

  void run() const {
    // The chunks are the same for any number of threads, and so is what they are joined to.
    const std::int64_t chunks = Op::kSplits ? (n_ + kChunk - 1) / kChunk : 1;
    Acc before = identity();
    if (chunks < 3 || in_parallel_region() || get_num_threads() == 1) {
      for (std::int64_t c = 0; c < chunks; ++c) before = Op::join(before, chunk(c, chunks, before, true));
      return;
    }
    const HostBuffer<Acc> starts(chunks);
    each_chunk(chunks, [&](std::int64_t c) { starts[c] = chunk(c, chunks, before, false); });
    for (std::int64_t c = 0; c < chunks; ++c) before = Op::join(before, std::exchange(starts[c], before));
    each_chunk(chunks, [&](std::int64_t c) { chunk(c, chunks, starts[c], true); });
  }

 private:
  static constexpr DType kAccType = dtype_of_v<std::conditional_t<std::is_same_v<Acc, double>, double, std::int64_t>>;
  static Acc identity() { return Op::template identity<Acc>(); }

  template <class F>
  static void each_chunk(std::int64_t chunks, const F& fn) {
    parallel_for(0, chunks, 1, [&](std::int64_t b, std::int64_t e) {
      for (; b < e; ++b) fn(b);
    });
  }

  /// Scans chunk c and returns what its elements come to, `before` not included.
  Acc chunk(std::int64_t c, std::int64_t chunks, Acc before, bool store) const {
    const std::int64_t begin = c * kChunk, end = c + 1 == chunks ? n_ : begin + kChunk;
    if constexpr (kMayBePlain)
      if (is_plain()) return plain(begin, end, before, store);
    if constexpr (std::is_same_v<Op, Sum> && std::is_same_v<Acc, std::uint64_t>)
      if (!reverse_ && in_type_ == DType::Long && out_type_ == DType::Long) return whole(begin, end, before, store);
    alignas(64) Acc stage[kScanBlock];
    Acc within = identity();
    for (std::int64_t i = begin; i < end; i += kScanBlock) {
      const std::int64_t m = std::min(kScanBlock, end - i), at = reverse_ ? n_ - i - m : i;
      load(stage, at, m);
      if (reverse_) std::reverse(stage, stage + m);
      within = block(stage, m, before, within);
      if (!store) continue;
      if (reverse_) std::reverse(stage, stage + m);
      convert_line(element(out_, at, item_size(out_type_)), out_type_, stage, kAccType, m);
    }
    return within;
  }

  /// Sums from front to back of elements that need no conversion.
  static constexpr bool kMayBePlain = std::is_same_v<Op, Sum> && std::is_same_v<Acc, double>;
  bool is_plain() const { return !reverse_ && in_type_ == out_type_ && !is_half(in_type_); }
  double plain(std::int64_t begin, std::int64_t end, double before, bool store) const {
    const auto run = [&](auto scan, auto* out, const auto* in) {
      return scan(store ? out + begin : nullptr, in + begin, end - begin, before, 0);
    };
    if (in_type_ == DType::Float) return run(scan_fns().f32, static_cast<float*>(out_), static_cast<const float*>(in_));
    return run(scan_fns().f64, static_cast<double*>(out_), static_cast<const double*>(in_));
  }

  /// The same of int64 elements: one addition each, which takes no longer than loading it.
  std::uint64_t whole(std::int64_t begin, std::int64_t end, std::uint64_t before, bool store) const {
    const auto* in = static_cast<const std::int64_t*>(in_);
    auto* out = static_cast<std::int64_t*>(out_);
    std::uint64_t within = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      within += static_cast<std::uint64_t>(in[i]);
      if (store) out[i] = static_cast<std::int64_t>(before + within);
    }
    return within;
  }

  /// Elements as what `out` would hold, widened.
  void load(Acc* stage, std::int64_t at, std::int64_t m) const {
    const void* from = element(const_cast<void*>(in_), at, item_size(in_type_));
    if (in_type_ == out_type_ || !is_floating_point(out_type_)) return convert_line(stage, kAccType, from, in_type_, m);
    alignas(64) char rounded[kScanBlock * 8];
    convert_line(rounded, out_type_, from, in_type_, m);
    convert_line(stage, kAccType, rounded, out_type_, m);
  }

  /// p[i] = before op within op p[0] op … op p[i]; returns within op p[0] op … op p[m - 1].
  static Acc block(Acc* p, std::int64_t m, Acc before, Acc within) {
    if constexpr (kMayBePlain) {
      return scan_fns().f64(p, p, m, before, within);
    } else if constexpr (!Op::kSplits) {
      // One chunk: `before` is the identity.
      for (std::int64_t i = 0; i < m; ++i) p[i] = within = Op::join(within, p[i]);
      return within;
    } else {
      const std::int64_t segment = m / kSegments;
      Acc sums[kSegments + 1];
      std::fill_n(sums, kSegments + 1, identity());
      for (std::int64_t i = 0; i < segment; ++i)
        for (std::int64_t s = 0; s < kSegments; ++s)
          p[s * segment + i] = sums[s] = Op::join(sums[s], p[s * segment + i]);
      for (std::int64_t i = kSegments * segment; i < m; ++i) p[i] = sums[kSegments] = Op::join(sums[kSegments], p[i]);
      for (std::int64_t s = 0; s <= kSegments; ++s) {
        const Acc start = Op::join(before, within);
        const std::int64_t end = s < kSegments ? (s + 1) * segment : m;
        for (std::int64_t i = s * segment; i < end; ++i) p[i] = Op::join(start, p[i]);
        within = Op::join(within, sums[s]);
      }
      return within;
    }
  }

  void* out_;
  const void* in_;
  DType out_type_, in_type_;
  std::int64_t n_;
  bool reverse_;
};

template <class Op>
void scan_lines(const View& out, const View& in, std::int64_t dim, bool reverse) {
  const std::int64_t n = in.ndim > 0 ? in.size(static_cast<int>(dim)) : 1;
  each_order_line(in, out, View(), dim, std::is_same_v<Op, LogSumExp> ? 16 : 1,
                  [&](const void* line, void* to, std::int64_t*) {
                    if (is_floating_point(out.dtype))
                      LineScan<Op, double>(to, out.dtype, line, in.dtype, n, reverse).run();
                    else if constexpr (!std::is_same_v<Op, LogSumExp>)
                      LineScan<Op, std::uint64_t>(to, out.dtype, line, in.dtype, n, reverse).run();
                  });
}

void scan_cpu(ScanOp op, const View& out, const View& in, std::int64_t dim, bool reverse) {
  ATHANOR_CHECK_TYPE(NotImplementedError, out.dtype != DType::Bool,
                     "cumsum or cumprod: no bool results; ask for another dtype");
  switch (op) {
    case ScanOp::CumSum:
      return scan_lines<Sum>(out, in, dim, reverse);
    case ScanOp::CumProd:
      return scan_lines<Product>(out, in, dim, reverse);
    case ScanOp::LogCumSumExp:
      ATHANOR_CHECK_TYPE(TypeError, is_floating_point(out.dtype), "logcumsumexp: expected a floating dtype, got ",
                         dtype_name(out.dtype));
      return scan_lines<LogSumExp>(out, in, dim, reverse);
  }
}

}  // namespace

ATHANOR_REGISTER_KERNEL(scan_kernel, CPU, &scan_cpu);

}  // namespace athanor::cpu
