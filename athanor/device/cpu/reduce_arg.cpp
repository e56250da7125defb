// Extremes with their places along one dim.
#include "athanor/device/cpu/reduce_arg.h"

#include <algorithm>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/dense_line.h"
#include "athanor/device/cpu/walk_order.h"
#include "athanor/ops/kernels/reduce.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrain = 32768;  // elements for which a second thread pays
constexpr std::int64_t kChunk = 65536;  // elements of a line that make one partial result
constexpr std::int64_t kFewItems = 32;  // fewer lines or strips: they are cut, too
constexpr std::int64_t kStage = 2048;   // elements converted at a time
constexpr std::int64_t kWide = 8;       // from so many dense columns on lines are taken side by side

View as_bytes(View v) {
  if (v.dtype == DType::Bool) v.dtype = DType::Byte;
  return v;
}

class ArgJob {
 public:
  ArgJob(ArgReduceOp op, const View& values, const View& indices, const View& in, std::int64_t dim)
      : in_(as_bytes(in)),
        values_(as_bytes(values)),
        indices_(indices),
        compute_(computing_dtype(in_.dtype)),
        size_(item_size(compute_)),
        fold_(arg_reducer(compute_, op == ArgReduceOp::Max)),
        lines_(make_lines(dim)),
        n_(lines_.length),
        direct_type_(compute_ == in_.dtype),
        backwards_(begins_at_end(in_.numel * static_cast<std::int64_t>(item_size(in_.dtype)))) {}

  void run() {
    if (lines_.count == 0) return;
    ATHANOR_CHECK_INDEX(n_ > 0, "max or min with index: expected the dim to have a size greater than 0, got shape ",
                        in_.shape());
    const bool side_by_side =
        lines_.ndim > 0 && lines_.stride != 1 && lines_.strides[0][0] == 1 && lines_.sizes[0] >= kWide && n_ > 1;
    if (side_by_side)
      run_columns();
    else
      run_rows();
  }

 private:
  Lines make_lines(std::int64_t dim) const {
    const View* views[] = {&in_, &values_, &indices_};
    return Lines(views, 3, dim);
  }
  const char* at(std::int64_t offset) const { return element(in_.data, offset, item_size(in_.dtype)); }

  // ---- lines one by one

  void run_rows() {
    if (lines_.count < kFewItems && n_ > 2 * kChunk) return run_row_chunks();
    const std::int64_t stretch = std::max<std::int64_t>(1, kChunk / n_);
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / n_);
    parallel_stretches(lines_.count, grain, stretch, backwards_, [&](std::int64_t b, std::int64_t e) {
      constexpr std::int64_t kBatch = 64;
      alignas(8) char best[kBatch * 8];
      std::int64_t place[kBatch];
      const std::int64_t inner = lines_.ndim ? lines_.sizes[0] : 1;
      while (b < e) {
        const std::int64_t m = std::min({kBatch, e - b, inner - b % inner});
        const std::int64_t base = lines_.offset(0, b), step = lines_.ndim ? lines_.strides[0][0] : 0;
        for (std::int64_t k = 0; k < m; ++k) row(best + k * size_bytes(), place + k, base + k * step, 0, n_);
        write(b, m, best, place);
        b += m;
      }
    });
  }

  void run_row_chunks() {
    const std::int64_t chunks = (n_ + kChunk - 1) / kChunk, items = lines_.count * chunks;
    std::vector<std::uint64_t> bests(static_cast<std::size_t>(items));
    std::vector<std::int64_t> places(static_cast<std::size_t>(items));
    char* const best = reinterpret_cast<char*>(bests.data());
    parallel_stretches(items, 1, 1, backwards_, [&](std::int64_t b, std::int64_t e) {
      for (; b < e; ++b) {
        const std::int64_t s = b % chunks * kChunk;
        row(best + b * size_bytes(), &places[static_cast<std::size_t>(b)], lines_.offset(0, b / chunks), s,
            std::min(n_, s + kChunk));
      }
    });
    for (std::int64_t line = 0; line < lines_.count; ++line) {
      const std::int64_t first = line * chunks;
      for (std::int64_t k = first + 1; k < first + chunks; ++k)
        fold_.join(best + first * size_bytes(), &places[static_cast<std::size_t>(first)], best + k * size_bytes(),
                   &places[static_cast<std::size_t>(k)], 1);
      write(line, 1, best + first * size_bytes(), &places[static_cast<std::size_t>(first)]);
    }
  }

  /// Elements [s, e) of the line at `base`.
  void row(void* best, std::int64_t* place, std::int64_t base, std::int64_t s, std::int64_t e) const {
    if (direct_type_ && lines_.stride == 1) {
      fold_.row(best, place, at(base + s), e - s);
      *place += s;
      return;
    }
    alignas(64) char stage[kStage * 8];
    for (std::int64_t i = s; i < e; i += kStage) {
      const std::int64_t n = std::min(kStage, e - i);
      load_line(stage, compute_, at(base + i * lines_.stride), in_.dtype, lines_.stride, n);
      std::uint64_t piece_best = 0;
      std::int64_t piece_place = 0;
      fold_.row(&piece_best, &piece_place, stage, n);
      piece_place += i;
      if (i == s) {
        std::copy_n(reinterpret_cast<const char*>(&piece_best), size_, static_cast<char*>(best));
        *place = piece_place;
      } else {
        fold_.join(best, place, &piece_best, &piece_place, 1);
      }
    }
  }

  // ---- neighbouring lines together

  void run_columns() {
    const std::int64_t width = lines_.sizes[0], outer = lines_.count / width;
    const std::int64_t strips = (width + kArgStrip - 1) / kArgStrip;
    const std::int64_t depth = std::max<std::int64_t>(1, 2 * kChunk / std::min(width, kArgStrip));
    if (outer * strips < kFewItems && n_ > 2 * depth) return run_column_chunks(width, outer, strips, depth);
    constexpr std::int64_t kUnit = 64;
    const std::int64_t units = (width + kUnit - 1) / kUnit;
    const std::int64_t per_unit = std::min(width, kUnit) * n_;
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / per_unit);
    constexpr std::int64_t kStripUnits = kArgStrip / kUnit;
    const std::int64_t stretch = kStripUnits * std::max<std::int64_t>(1, kChunk / (kStripUnits * per_unit));
    parallel_stretches(outer * units, grain, stretch, backwards_, [&](std::int64_t b, std::int64_t e) {
      alignas(64) char best[kArgStrip * 8];
      std::int64_t place[kArgStrip];
      while (b < e) {
        const std::int64_t u = b % units, c = u * kUnit;
        const std::int64_t m = std::min({kArgStrip / kUnit, e - b, units - u}), n = std::min(m * kUnit, width - c);
        const std::int64_t line = b / units * width + c;
        columns(best, place, lines_.offset(0, line), n, 0, n_);
        write(line, n, best, place);
        b += m;
      }
    });
  }

  void run_column_chunks(std::int64_t width, std::int64_t outer, std::int64_t strips, std::int64_t depth) {
    const std::int64_t strip = std::min(width, kArgStrip), chunks = (n_ + depth - 1) / depth;
    const std::int64_t items = outer * strips * chunks;
    std::vector<std::uint64_t> bests(static_cast<std::size_t>(items * strip));
    std::vector<std::int64_t> places(static_cast<std::size_t>(items * strip));
    const auto best = [&](std::int64_t item) { return reinterpret_cast<char*>(bests.data() + item * strip); };
    const auto place = [&](std::int64_t item) { return places.data() + item * strip; };
    const auto line = [&](std::int64_t os) { return os / strips * width + os % strips * strip; };
    const auto size = [&](std::int64_t os) { return std::min(strip, width - os % strips * strip); };
    parallel_stretches(items, 1, 1, backwards_, [&](std::int64_t b, std::int64_t e) {
      for (; b < e; ++b) {
        const std::int64_t os = b / chunks, s = b % chunks * depth;
        columns(best(b), place(b), lines_.offset(0, line(os)), size(os), s, std::min(n_, s + depth));
      }
    });
    for (std::int64_t os = 0; os < outer * strips; ++os) {
      const std::int64_t first = os * chunks;
      for (std::int64_t k = first + 1; k < first + chunks; ++k)
        fold_.join(best(first), place(first), best(k), place(k), size(os));
      write(line(os), size(os), best(first), place(first));
    }
  }

  /// Elements [s, e) of the m neighbouring lines from `base` on.
  void columns(char* best, std::int64_t* place, std::int64_t base, std::int64_t m, std::int64_t s,
               std::int64_t e) const {
    load_line(best, compute_, at(base + s * lines_.stride), in_.dtype, 1, m);
    std::fill_n(place, m, s);
    constexpr std::int64_t kMostRows = 1 << 30;
    if (direct_type_) {
      for (std::int64_t i = s + 1; i < e; i += kMostRows)
        fold_.columns(best, place, at(base + i * lines_.stride), lines_.stride, std::min(kMostRows, e - i), m, i);
      return;
    }
    alignas(64) char stage[kStage * 8];
    const std::int64_t group = kStage / m;
    for (std::int64_t i = s + 1; i < e; i += group) {
      const std::int64_t rows = std::min(group, e - i);
      for (std::int64_t r = 0; r < rows; ++r)
        load_line(stage + r * m * size_bytes(), compute_, at(base + (i + r) * lines_.stride), in_.dtype, 1, m);
      fold_.columns(best, place, stage, m, rows, m, i);
    }
  }

  std::int64_t size_bytes() const { return static_cast<std::int64_t>(size_); }

  /// Results of lines [line, line + m), neighbours along the innermost other dim.
  void write(std::int64_t line, std::int64_t m, const void* best, const std::int64_t* place) const {
    if (values_.defined())
      store_line(element(values_.data, lines_.offset(1, line), item_size(values_.dtype)), values_.dtype, step(1), best,
                 compute_, m);
    if (indices_.defined())
      store_line(element(indices_.data, lines_.offset(2, line), 8), DType::Long, step(2), place, DType::Long, m);
  }
  std::int64_t step(int operand) const { return lines_.ndim ? lines_.strides[operand][0] : 1; }

  View in_, values_, indices_;
  DType compute_;
  std::size_t size_;
  ArgReducer fold_;
  Lines lines_;
  std::int64_t n_;
  bool direct_type_;
  bool backwards_;  // this operation begins at the end
};

void arg_reduce_cpu(ArgReduceOp op, const View& values, const View& indices, const View& in, std::int64_t dim) {
  ArgJob(op, values, indices, in, dim).run();
}

}  // namespace

ATHANOR_REGISTER_KERNEL(arg_reduce_kernel, CPU, &arg_reduce_cpu);

}  // namespace athanor::cpu
