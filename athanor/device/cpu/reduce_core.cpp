#include "athanor/device/cpu/reduce_core.h"

#include <algorithm>
#include <memory>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/dense_line.h"
#include "athanor/device/cpu/walk_order.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrain = 32768;         // elements for which a second thread pays
constexpr std::int64_t kChunk = 65536;         // elements of a row that make one partial result
constexpr std::int64_t kColumnChunk = 262144;  // the same for a strip of columns
constexpr std::int64_t kStage = 2048;          // elements converted at a time
constexpr std::int64_t kFewOutputs = 32;       // fewer: the reduced range is cut, too
constexpr std::int64_t kUnit = 64;             // columns that go to one thread
constexpr std::int64_t kStagedRows = 32;       // of at least kUnit columns converted at a time …
constexpr std::int64_t kStagedColumns = 256;   // … and how many columns at most
constexpr std::int64_t kNarrow = 32;           // fewer columns: rows are folded together
constexpr std::int64_t kBlockOutputs = 64;     // rows per call
constexpr std::int64_t kPairPiece = 4096;      // elements that stay in the first cache for a second reducer

struct Dims {
  int ndim = 0;
  std::int64_t sizes[64];
  std::int64_t in[64];
  std::int64_t out[2][64];

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= sizes[d];
    return n;
  }
  static std::int64_t key(std::int64_t s) { return s == 0 ? INT64_MAX : s < 0 ? -s : s; }
  void insert(std::int64_t size, std::int64_t in_stride, std::int64_t out0, std::int64_t out1) {
    int at = ndim++;
    for (; at > 0 && key(in[at - 1]) > key(in_stride); --at) move(at, at - 1);
    sizes[at] = size;
    in[at] = in_stride;
    out[0][at] = out0;
    out[1][at] = out1;
  }
  void merge() {
    int last = 0;
    for (int d = 1; d < ndim; ++d) {
      const auto nests = [&](const std::int64_t* s) { return s[d] == s[last] * sizes[last]; };
      if (nests(in) && nests(out[0]) && nests(out[1]))
        sizes[last] *= sizes[d];
      else if (++last != d)
        move(last, d);
    }
    if (ndim > 0) ndim = last + 1;
  }
  /// Offset of linear index i >= 0 in the dims from `first` on.
  std::int64_t offset(const std::int64_t* strides, std::int64_t i, int first) const {
    std::int64_t sum = 0;
    for (int d = first; d < ndim && i > 0; ++d) {
      sum += i % sizes[d] * strides[d];
      i /= sizes[d];
    }
    return sum;
  }

 private:
  void move(int to, int from) {
    sizes[to] = sizes[from];
    in[to] = in[from];
    out[0][to] = out[0][from];
    out[1][to] = out[1][from];
  }
};

/// Memory for states, on the stack while small.
class States {
 public:
  explicit States(std::int64_t bytes) {
    if (bytes > static_cast<std::int64_t>(sizeof room_)) {
      heap_ = std::make_unique_for_overwrite<std::max_align_t[]>(
          static_cast<std::size_t>(bytes) / sizeof(std::max_align_t) + 1);
      data_ = reinterpret_cast<char*>(heap_.get());
    }
  }
  char* data() { return data_; }

 private:
  alignas(64) char room_[4096];
  std::unique_ptr<std::max_align_t[]> heap_;
  char* data_ = room_;
};

class Job {
 public:
  Job(const Reducer* reducers, int reducer_count, const ReduceOutput* outputs, int output_count, const View& in,
      std::uint64_t mask, double param)
      : reducers_(reducers),
        outputs_(outputs),
        in_(in),
        param_(param),
        reducer_count_(reducer_count),
        output_count_(output_count),
        size_(item_size(in.dtype)),
        compute_(reducers[0].compute) {
    for (int d = in.ndim - 1; d >= 0; --d) {
      const std::int64_t n = in.sizes[d];
      const bool reduced = mask >> d & 1;
      if (n == 1) continue;
      if (reduced)
        red_.insert(n, in.strides[d], 0, 0);
      else
        kept_.insert(n, in.strides[d], outputs[0].view->strides[d], output_count > 1 ? outputs[1].view->strides[d] : 0);
    }
    kept_.merge();
    red_.merge();
    count_ = kept_.numel();
    depth_ = red_.numel();
    direct_type_ = in.dtype == compute_;
    backwards_ = begins_at_end(in.numel * static_cast<std::int64_t>(size_));
    for (int i = 0; i < reducer_count; ++i) state_bytes_ += reducers[i].state_size;
  }

  void run() {
    if (count_ == 0) return;
    if (depth_ == 0) return write_empty();
    const bool by_rows = red_.ndim > 0 && (kept_.ndim == 0 || Dims::key(red_.in[0]) < Dims::key(kept_.in[0]));
    if (by_rows)
      run_rows();
    else
      run_columns();
  }

 private:
  // ---- rows: the innermost dim in memory is reduced

  void run_rows() {
    direct_ = direct_type_ && red_.in[0] == 1;
    if (count_ < kFewOutputs && depth_ > 2 * kChunk) return run_row_chunks();
    const std::int64_t inner = kept_.ndim ? kept_.sizes[0] : 1;
    const std::int64_t stretch = std::max<std::int64_t>(1, kChunk / depth_);
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / depth_);
    parallel_stretches(count_, grain, stretch, backwards_, [&](std::int64_t b, std::int64_t e) {
      States states(kBlockOutputs * state_bytes_);
      while (b < e) {
        const std::int64_t i = b % inner, outer = b / inner;
        const std::int64_t m = std::min({kBlockOutputs, e - b, inner - i});
        const std::int64_t step = kept_.ndim ? kept_.in[0] : 0;
        init(states.data(), m, kBlockOutputs);
        fold_rows(states.data(), kBlockOutputs, kept_.offset(kept_.in, outer, 1) + i * step, step, m, 0, depth_);
        write(states.data(), kBlockOutputs, b, m);
        b += m;
      }
    });
  }

  void run_row_chunks() {
    const std::int64_t chunks = (depth_ + kChunk - 1) / kChunk;
    States states(count_ * chunks * state_bytes_);
    char* const all = states.data();
    const std::int64_t items = count_ * chunks;
    parallel_stretches(items, 1, 1, backwards_, [&](std::int64_t b, std::int64_t e) {
      for (; b < e; ++b) {
        const std::int64_t o = b / chunks, c = b % chunks;
        // Kept apart: neighbours belong to other threads, and a state is updated often.
        States local(state_bytes_);
        init(local.data(), 1, 1);
        fold_rows(local.data(), 1, kept_.offset(kept_.in, o, 0), 0, 1, c * kChunk, std::min(depth_, (c + 1) * kChunk));
        copy_states(all, items, b, local.data(), 1, 1);
      }
    });
    for (std::int64_t o = 0; o < count_; ++o) {
      join_run(all, items, o * chunks, chunks);
      write_at(all, items, o * chunks, o, 1);
    }
  }

  /// Folds the reduced range [s, e) of m outputs whose lines start at `base` + r * step.
  void fold_rows(char* states, std::int64_t capacity, std::int64_t base, std::int64_t step, std::int64_t m,
                 std::int64_t s, std::int64_t e) {
    if (direct_) return fold_direct_rows(states, capacity, base, step, m, s, e);
    const std::int64_t n = e - s;
    alignas(64) char stage[kStage * 8];
    if (n <= kStage / 4) {
      const std::int64_t group = kStage / n;
      for (std::int64_t r = 0; r < m; r += group) {
        const std::int64_t g = std::min(group, m - r);
        for (std::int64_t k = 0; k < g; ++k)
          stage_reduced(element(stage, k * n, compute_size()), base + (r + k) * step, s, e);
        rows(states, capacity, r, stage, n, g, n);
      }
      return;
    }
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t i = s; i < e; i += kStage) {
        const std::int64_t end = std::min(e, i + kStage);
        stage_reduced(stage, base + r * step, i, end);
        rows(states, capacity, r, stage, 0, 1, end - i);
      }
  }

  void fold_direct_rows(char* states, std::int64_t capacity, std::int64_t base, std::int64_t step, std::int64_t m,
                        std::int64_t s, std::int64_t e) {
    const std::int64_t inner = red_.sizes[0];
    while (s < e) {
      const std::int64_t i = s % inner;
      const std::int64_t n = std::min(inner - i, e - s);
      rows(states, capacity, 0, at(base + red_.offset(red_.in, s / inner, 1) + i), step, m, n);
      s += n;
    }
  }

  /// Brings elements [s, e) of a line to dense memory.
  void stage_reduced(char* to, std::int64_t base, std::int64_t s, std::int64_t e) {
    const std::int64_t inner = red_.sizes[0];
    while (s < e) {
      const std::int64_t i = s % inner;
      const std::int64_t n = std::min(inner - i, e - s);
      load_line(to, compute_, at(base + red_.offset(red_.in, s / inner, 1) + i * red_.in[0]), in_.dtype, red_.in[0], n);
      to = element(to, n, compute_size());
      s += n;
    }
  }

  void rows(char* states, std::int64_t capacity, std::int64_t first, const char* in, std::int64_t step, std::int64_t m,
            std::int64_t n) {
    if (reducer_count_ == 1) {
      reducers_[0].rows(states + first * reducers_[0].state_size, in, step, m, n, param_);
      return;
    }
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t i = 0; i < n; i += kPairPiece)
        for_each_reducer(states, capacity, first + r, [&](const Reducer& f, char* state) {
          f.rows(state, in + (r * step + i) * static_cast<std::int64_t>(compute_size()), 0, 1,
                 std::min(kPairPiece, n - i), param_);
        });
  }

  // ---- columns: the innermost dim in memory is kept

  void run_columns() {
    const std::int64_t width = kept_.ndim ? kept_.sizes[0] : 1;
    const std::int64_t outer = count_ / width;
    direct_ = direct_type_ && (kept_.ndim == 0 || kept_.in[0] == 1);
    const std::int64_t strips = (width + kReduceStrip - 1) / kReduceStrip;
    strip_ = std::min(width, kReduceStrip);
    if (outer * strips < kFewOutputs && depth_ * strip_ > 2 * kColumnChunk)
      return run_column_chunks(width, outer, strips);
    // Columns do not touch each other: units of a few may go to any thread. How rows are grouped depends on the width,
    // not on how many columns a thread got: sums have the same bits on any number of threads.
    const std::int64_t units = (width + kUnit - 1) / kUnit;
    const std::int64_t per_unit = std::min(width, kUnit) * depth_;
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / per_unit);
    constexpr std::int64_t kStripUnits = kReduceStrip / kUnit;
    const std::int64_t stretch = kStripUnits * std::max<std::int64_t>(1, kChunk / (kStripUnits * per_unit));
    parallel_stretches(outer * units, grain, stretch, backwards_, [&](std::int64_t b, std::int64_t e) {
      States states(kReduceStrip * state_bytes_);
      while (b < e) {
        const std::int64_t o = b / units, u = b % units;
        const std::int64_t m = std::min({kReduceStrip / kUnit, e - b, units - u});
        const std::int64_t c = u * kUnit, n = std::min(m * kUnit, width - c);
        init(states.data(), n, kReduceStrip);
        fold_columns(states.data(), kReduceStrip, o, c, n, 0, depth_);
        write(states.data(), kReduceStrip, o * width + c, n);
        b += m;
      }
    });
  }

  void run_column_chunks(std::int64_t width, std::int64_t outer, std::int64_t strips) {
    const std::int64_t strip = strip_;
    const std::int64_t depth = std::max<std::int64_t>(1, kColumnChunk / strip);
    const std::int64_t chunks = (depth_ + depth - 1) / depth;
    const std::int64_t capacity = outer * strips * chunks * strip;
    States states(capacity * state_bytes_);
    char* const all = states.data();
    parallel_stretches(outer * strips * chunks, 1, 1, backwards_, [&](std::int64_t b, std::int64_t e) {
      States local(strip * state_bytes_);
      for (; b < e; ++b) {
        const std::int64_t os = b / chunks, chunk = b % chunks;
        const std::int64_t c = os % strips * strip, n = std::min(strip, width - c);
        init(local.data(), n, strip);
        fold_columns(local.data(), strip, os / strips, c, n, chunk * depth, std::min(depth_, (chunk + 1) * depth));
        copy_states(all, capacity, b * strip, local.data(), strip, n);
      }
    });
    for (std::int64_t os = 0; os < outer * strips; ++os) {
      const std::int64_t c = os % strips * strip, n = std::min(strip, width - c);
      for (int i = 0; i < reducer_count_; ++i) {
        char* const mine = reducer_states(all, capacity, i, os * chunks * strip);
        const std::int64_t bytes = reducers_[i].state_size * strip;
        for (std::int64_t k = 1; k < chunks; ++k) reducers_[i].join(mine, mine + k * bytes, n);
      }
      write_at(all, capacity, os * chunks * strip, os / strips * width + c, n);
    }
  }

  /// Folds rows [s, e) of columns [c, c + n) of outer index o.
  void fold_columns(char* states, std::int64_t capacity, std::int64_t o, std::int64_t c, std::int64_t n, std::int64_t s,
                    std::int64_t e) {
    const std::int64_t base = kept_.ndim ? kept_.offset(kept_.in, o, 1) + c * kept_.in[0] : 0;
    if (strip_ <= kNarrow && e - s >= 16 * n) return fold_narrow(states, capacity, base, n, s, e);
    if (direct_) {
      walk_rows(s, e, [&](std::int64_t offset, std::int64_t stride, std::int64_t rows) {
        columns(states, capacity, 0, at(base + offset), stride, rows, n);
      });
      return;
    }
    alignas(64) char stage[kStagedRows * kStagedColumns * 8];
    static_assert(kStagedRows * kStagedColumns >= kStage && kStagedRows == kStage / kUnit);
    const std::int64_t group = kStage / std::min(strip_, kUnit), step = kept_.ndim ? kept_.in[0] : 0;
    for (std::int64_t r = s; r < e; r += group) {
      const std::int64_t m = std::min(group, e - r);
      for (std::int64_t b = 0; b < n; b += kStagedColumns) {
        const std::int64_t some = std::min(kStagedColumns, n - b);
        stage_rows(stage, base + b * step, some, r, r + m);
        columns(states, capacity, b, stage, some, m, some);
      }
    }
  }

  /// Few columns: several rows side by side make one of useful width; their states are joined at the end.
  void fold_narrow(char* states, std::int64_t capacity, std::int64_t base, std::int64_t n, std::int64_t s,
                   std::int64_t e) {
    constexpr std::int64_t kWide = 256;
    const std::int64_t fold = std::clamp<std::int64_t>((e - s) / 8, 1, kWide / n);
    States wide(kWide * state_bytes_);
    init(wide.data(), fold * n, kWide);
    const auto take = [&](const char* dense, std::int64_t rows) {
      if (rows / fold) columns(wide.data(), kWide, 0, dense, fold * n, rows / fold, fold * n);
      const std::int64_t rest = rows % fold;
      if (rest)
        columns(wide.data(), kWide, 0, element(const_cast<char*>(dense), (rows - rest) * n, compute_size()), 0, 1,
                rest * n);
    };
    if (direct_ && red_.ndim > 0 && red_.in[0] == n) {
      walk_rows(s, e, [&](std::int64_t offset, std::int64_t, std::int64_t rows) { take(at(base + offset), rows); });
    } else {
      alignas(64) char stage[kStage * 8];
      const std::int64_t group = kStage / n / fold * fold;
      for (std::int64_t r = s; r < e; r += group) {
        const std::int64_t m = std::min(group, e - r);
        stage_rows(stage, base, n, r, r + m);
        take(stage, m);
      }
    }
    for (int i = 0; i < reducer_count_; ++i)
      for (std::int64_t k = 0; k < fold; ++k)
        reducers_[i].join(reducer_states(states, capacity, i, 0), reducer_states(wide.data(), kWide, i, k * n), n);
  }

  /// Brings rows [s, e) of n columns to dense memory.
  void stage_rows(char* to, std::int64_t base, std::int64_t n, std::int64_t s, std::int64_t e) {
    const std::int64_t step = kept_.ndim ? kept_.in[0] : 1;
    walk_rows(s, e, [&](std::int64_t offset, std::int64_t stride, std::int64_t rows) {
      if (n == 1) {
        load_line(to, compute_, at(base + offset), in_.dtype, stride, rows);
      } else if (step == 1 && stride == n) {
        load_line(to, compute_, at(base + offset), in_.dtype, 1, rows * n);
      } else if (rows > n) {
        // Short rows: one column at a time, through a dense line.
        for (std::int64_t c = 0; c < n; ++c) {
          alignas(64) char line[kStage * 8];
          load_line(line, compute_, at(base + offset + c * step), in_.dtype, stride, rows);
          store_line(element(to, c, compute_size()), compute_, n, line, compute_, rows);
        }
      } else {
        for (std::int64_t r = 0; r < rows; ++r)
          load_line(element(to, r * n, compute_size()), compute_, at(base + offset + r * stride), in_.dtype, step, n);
      }
      to = element(to, rows * n, compute_size());
    });
  }

  /// Calls fn(offset, stride, rows) for the runs of the innermost reduced dim that make up [s, e).
  template <class F>
  void walk_rows(std::int64_t s, std::int64_t e, F&& fn) {
    const std::int64_t inner = red_.ndim ? red_.sizes[0] : 1, stride = red_.ndim ? red_.in[0] : 0;
    while (s < e) {
      const std::int64_t i = s % inner;
      const std::int64_t rows = std::min(inner - i, e - s);
      fn(red_.offset(red_.in, s / inner, 1) + i * stride, stride, rows);
      s += rows;
    }
  }

  /// Folds into the states from `first` on. With two reducers the grouping of rows depends on n: they must be such
  /// whose results do not depend on it.
  void columns(char* states, std::int64_t capacity, std::int64_t first, const char* in, std::int64_t stride,
               std::int64_t rows, std::int64_t n) {
    const std::int64_t piece = reducer_count_ == 1 ? rows : std::max<std::int64_t>(8, kPairPiece / n);
    for (std::int64_t r = 0; r < rows; r += piece)
      for_each_reducer(states, capacity, first, [&](const Reducer& f, char* state) {
        f.columns(state, in + r * stride * static_cast<std::int64_t>(compute_size()), stride, std::min(piece, rows - r),
                  n, param_);
      });
  }

  // ---- states: those of each reducer are an array of `capacity`

  std::size_t compute_size() const { return item_size(compute_); }
  const char* at(std::int64_t offset) const { return element(in_.data, offset, size_); }
  char* reducer_states(char* states, std::int64_t capacity, int reducer, std::int64_t i) const {
    return states + (reducer ? capacity * reducers_[0].state_size : 0) + i * reducers_[reducer].state_size;
  }
  template <class F>
  void for_each_reducer(char* states, std::int64_t capacity, std::int64_t i, F&& fn) {
    for (int k = 0; k < reducer_count_; ++k) fn(reducers_[k], reducer_states(states, capacity, k, i));
  }
  void init(char* states, std::int64_t n, std::int64_t capacity) {
    for_each_reducer(states, capacity, 0, [&](const Reducer& f, char* s) { f.init(s, n); });
  }
  void copy_states(char* to, std::int64_t to_capacity, std::int64_t i, char* from, std::int64_t from_capacity,
                   std::int64_t n) {
    for (int k = 0; k < reducer_count_; ++k) {
      char* const source = reducer_states(from, from_capacity, k, 0);
      std::copy(source, source + n * reducers_[k].state_size, reducer_states(to, to_capacity, k, i));
    }
  }
  /// Joins n states into the first of them, pairwise so that errors do not pile up.
  void join_run(char* states, std::int64_t capacity, std::int64_t first, std::int64_t n) {
    for (std::int64_t gap = 1; gap < n; gap *= 2)
      for (std::int64_t i = 0; i + gap < n; i += 2 * gap)
        for (int k = 0; k < reducer_count_; ++k)
          reducers_[k].join(reducer_states(states, capacity, k, first + i),
                            reducer_states(states, capacity, k, first + i + gap), 1);
  }

  // ---- results

  /// Writes outputs [o, o + n), consecutive along the innermost kept dim.
  void write(char* states, std::int64_t capacity, std::int64_t o, std::int64_t n) {
    write_at(states, capacity, 0, o, n);
  }
  void write_at(char* states, std::int64_t capacity, std::int64_t first, std::int64_t o, std::int64_t n) {
    const std::int64_t inner = kept_.ndim ? kept_.sizes[0] : 1;
    alignas(64) char results[kReduceStrip * 8];
    for (int k = 0; k < output_count_; ++k) {
      const ReduceOutput& out = outputs_[k];
      out.finish(results, reducer_states(states, capacity, out.reducer, first), n, depth_, param_);
      const std::int64_t step = kept_.ndim ? kept_.out[k][0] : 1;
      const std::int64_t base = kept_.offset(kept_.out[k], o / inner, 1) + o % inner * step;
      store_line(element(out.view->data, base, item_size(out.view->dtype)), out.view->dtype, step, results, out.result,
                 n);
    }
  }
  void write_empty() {
    const std::int64_t inner = kept_.ndim ? kept_.sizes[0] : 1;
    States states(kReduceStrip * state_bytes_);
    for (std::int64_t o = 0; o < count_;) {
      const std::int64_t n = std::min(kReduceStrip, inner - o % inner);
      init(states.data(), n, kReduceStrip);
      write(states.data(), kReduceStrip, o, n);
      o += n;
    }
  }

  const Reducer* reducers_;
  const ReduceOutput* outputs_;
  const View& in_;
  double param_;
  int reducer_count_, output_count_;
  std::size_t size_;
  DType compute_;
  bool direct_type_ = false;  // elements need no conversion
  bool direct_ = false;       // … and are dense along the innermost dim
  bool backwards_ = false;    // this operation begins at the end
  Dims kept_, red_;
  std::int64_t count_ = 0, depth_ = 0, state_bytes_ = 0;
  std::int64_t strip_ = 0;  // columns folded together, where columns are
};

}  // namespace

void run_reduce(const Reducer* reducers, int reducer_count, const ReduceOutput* outputs, int output_count,
                const View& in, std::uint64_t dim_mask, double param) {
  Job(reducers, reducer_count, outputs, output_count, in, dim_mask, param).run();
}

}  // namespace athanor::cpu
