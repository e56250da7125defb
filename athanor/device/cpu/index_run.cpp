#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "athanor/base/error.h"
#include "athanor/base/parallel.h"
#include "athanor/device/cpu/copy_blocks.h"
#include "athanor/device/cpu/index_space.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;          // points below which a second thread does not pay
constexpr std::int64_t kKeptOffsets = 1 << 16;  // most offsets kept for reuse over outer dims
constexpr std::int64_t kRangeBytes = 4 << 20;   // base sizes from which writes are shared out by destination

[[noreturn]] void fail_bounds(const IndexSpace& s, const IndexOperand& o, std::int64_t value) {
  if (o.dim < 0)
    ATHANOR_THROW(IndexError, s.op, "out of range: tried to access index ", value, " on a tensor of ", o.size,
                  " elements.");
  const std::string what =
      detail::str(s.op, "index ", value, " is out of bounds for dimension ", o.dim, " with size ", o.size);
  ATHANOR_CHECK(!s.plain_error, what);
  ATHANOR_THROW(IndexError, what);
}

/// The dims along which an operand's values differ.
struct OperandWalk {
  int ndim = 0;
  std::int64_t sizes[kMaxIndexDims];
  std::int64_t strides[kMaxIndexDims];

  OperandWalk(const IndexSpace& s, const IndexOperand& o) {
    for (int d = 0; d < s.ndim; ++d) {
      if (s.sizes[d] == 1 || o.strides[d] == 0) continue;
      if (ndim > 0 && strides[ndim - 1] == o.strides[d] * s.sizes[d]) {
        sizes[ndim - 1] *= s.sizes[d];
        strides[ndim - 1] = o.strides[d];
      } else {
        sizes[ndim] = s.sizes[d];
        strides[ndim++] = o.strides[d];
      }
    }
    if (ndim == 0) {
      sizes[0] = 1;
      strides[ndim++] = 0;
    }
  }
  /// Calls row(data, n) until it returns false.
  template <class F>
  void rows(const char* data, std::int64_t begin, std::int64_t end, F&& row) const {
    std::int64_t part[kMaxIndexDims];
    std::copy(sizes, sizes + ndim, part);
    part[0] = end - begin;
    if (std::find(part, part + ndim, 0) != part + ndim) return;
    IndexWalk walk(ndim - 1, part);
    walk.add(strides);
    do {
      if (!row(data + begin * strides[0] + walk[0], part[ndim - 1])) return;
    } while (walk.next());
  }
};

std::int64_t index_value(const IndexOperand& o, const char* p) {
  return o.is_long ? load<std::int64_t>(p) : load<std::int32_t>(p);
}

void check_operand(const IndexSpace& s, const IndexOperand& o) {
  const OperandWalk walk(s, o);
  std::int64_t per_first = 1;
  for (int d = 1; d < walk.ndim; ++d) per_first *= walk.sizes[d];
  const std::int64_t inner = walk.strides[walk.ndim - 1];
  std::atomic<bool> bad{false};
  const std::int64_t grain = std::max<std::int64_t>(1, 4 * kGrain / std::max<std::int64_t>(per_first, 1));
  parallel_for(0, walk.sizes[0], grain, [&](std::int64_t begin, std::int64_t end) {
    walk.rows(o.data, begin, end, [&](const char* data, std::int64_t n) {
      if (index_outside(o, data, inner, n)) bad.store(true, std::memory_order_relaxed);
      return !bad.load(std::memory_order_relaxed);
    });
  });
  if (!bad.load()) return;
  walk.rows(o.data, 0, walk.sizes[0], [&](const char* data, std::int64_t n) {
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int64_t v = index_value(o, data + j * inner);
      if (v >= o.size || v < (o.wrap ? -o.size : 0)) fail_bounds(s, o, v);
    }
    return true;
  });
}

/// Which destinations a thread owns.
struct Range {
  std::int64_t begin = 0, end = 0;
  bool all() const { return end == 0; }
};

/// One thread's run over a space.
class Runner {
 public:
  Runner(const IndexSpace& s, const IndexAction& action, const std::int64_t* kept, Range range)
      : s_(s), action_(action), kept_(kept), range_(range), rows_from_(row_dims_of(s)) {}

  /// First of the trailing dims along which no index changes.
  static int row_dims_of(const IndexSpace& s) {
    int d = s.ndim;
    while (d > 0 && std::all_of(s.operands.begin(), s.operands.end(),
                                [&](const IndexOperand& o) { return o.strides[d - 1] == 0; }))
      --d;
    return d;
  }

  static bool is_direct(const IndexSpace& s, const IndexAction& action) {
    return action.direct != nullptr && s.operands.size() == 1 && s.operands[0].shape == nullptr &&
           row_dims_of(s) == s.ndim;
  }

  /// True unless an index is out of range.
  bool run() {
    if (range_.all() && is_direct(s_, action_)) return run_direct();
    // The last two dims before the rows form grids of points: `p` the columns, `q` the rows of a grid.
    const int p = rows_from_ - 1, q = rows_from_ - 2;
    columns_ = p < 0 ? 1 : s_.sizes[p];
    flat_step_ = p < 0 ? 0 : s_.flat_strides[p];
    const bool grids =
        q >= 0 && kept_ == nullptr && columns_ < kIndexBlock && s_.flat_strides[q] == flat_step_ * columns_;
    const int outer = grids ? q : std::max(p, 0);
    const std::int64_t grid_rows = grids ? s_.sizes[q] : 1;
    IndexWalk walk(outer, s_.sizes);
    walk.add(s_.flat_strides);
    walk.add(s_.base_strides);
    for (const auto& o : s_.operands) walk.add(o.strides);
    do {
      if (kept_ != nullptr) {
        base_ = s_.base + walk[1];
        apply(kept_, s_.flat + walk[0], columns_);
      } else if (!points(walk, p, grids ? q : -1, grid_rows)) {
        return false;
      }
    } while (walk.next());
    return true;
  }

 private:
  bool run_direct() {
    const IndexOperand& o = s_.operands[0];
    const int p = s_.ndim - 1, q = s_.ndim - 2;
    IndexGrid grid;
    grid.columns = p < 0 ? 1 : s_.sizes[p];
    grid.data_stride = p < 0 ? 0 : o.strides[p];
    grid.step = p < 0 ? 0 : s_.base_strides[p];
    grid.rows = q < 0 ? 1 : s_.sizes[q];
    grid.data_row_stride = q < 0 ? 0 : o.strides[q];
    grid.row_step = q < 0 ? 0 : s_.base_strides[q];
    IndexWalk walk(std::max(q, 0), s_.sizes);
    walk.add(s_.flat_strides);
    walk.add(s_.base_strides);
    walk.add(o.strides);
    do {
      grid.start = walk[1];
      grid.data = o.data + walk[2];
      if (!action_.direct(s_.base, grid, o, s_.flat + walk[0], p < 0 ? 0 : s_.flat_strides[p],
                          q < 0 ? 0 : s_.flat_strides[q], action_.params))
        return false;
    } while (walk.next());
    return true;
  }

  bool points(const IndexWalk& walk, int p, int q, std::int64_t rows) {
    base_ = s_.base;
    const std::int64_t block_rows = q < 0 ? 1 : kIndexBlock / columns_;
    const std::int64_t block_columns = std::min(columns_, kIndexBlock);
    std::int64_t offsets[kIndexBlock];
    IndexGrid grid;
    grid.step = p < 0 ? 0 : s_.base_strides[p];
    grid.row_step = q < 0 ? 0 : s_.base_strides[q];
    for (std::int64_t r = 0; r < rows; r += block_rows)
      for (std::int64_t c = 0; c < columns_; c += block_columns) {
        grid.rows = std::min(block_rows, rows - r);
        grid.columns = std::min(block_columns, columns_ - c);
        grid.start = walk[1] + r * grid.row_step + c * grid.step;
        for (std::size_t k = 0; k < s_.operands.size(); ++k) {
          const IndexOperand& o = s_.operands[k];
          grid.data_stride = p < 0 ? 0 : o.strides[p];
          grid.data_row_stride = q < 0 ? 0 : o.strides[q];
          grid.data = o.data + walk[k + 2] + r * grid.data_row_stride + c * grid.data_stride;
          if (index_offsets(offsets, grid, o, k > 0)) return false;
        }
        char* flat = s_.flat + walk[0] + (r * columns_ + c) * flat_step_;
        range_.all() ? apply(offsets, flat, grid.rows * grid.columns)
                     : apply_owned(offsets, flat, grid.rows * grid.columns);
      }
    return true;
  }

  void apply(const std::int64_t* offsets, char* flat, std::int64_t n) {
    if (rows_from_ == s_.ndim) {
      action_.elements(base_, offsets, flat, flat_step_, n, action_.params);
      return;
    }
    const int last = s_.ndim - 1;
    const bool dense = s_.flat_strides[last] == s_.item && s_.base_strides[last] == s_.item;
    if (action_.rows != nullptr && rows_from_ == last && dense) {
      action_.rows(base_, offsets, flat, flat_step_, n, s_.sizes[last] * s_.item);
      return;
    }
    for (std::int64_t j = 0; j < n; ++j) row(base_ + offsets[j], flat + j * flat_step_);
  }

  void row(char* base, char* flat) {
    const int last = s_.ndim - 1;
    if (rows_from_ == last) {
      action_.row(base, s_.base_strides[last], flat, s_.flat_strides[last], s_.sizes[last], action_.params);
      return;
    }
    IndexWalk walk(last - rows_from_, s_.sizes + rows_from_);
    walk.add(s_.flat_strides + rows_from_);
    walk.add(s_.base_strides + rows_from_);
    do {
      action_.row(base + walk[1], s_.base_strides[last], flat + walk[0], s_.flat_strides[last], s_.sizes[last],
                  action_.params);
    } while (walk.next());
  }

  bool owned(std::int64_t offset) const { return offset >= range_.begin && offset < range_.end; }

  template <class U>
  std::int64_t pick(const std::int64_t* offsets, const char* flat, std::int64_t n, std::int64_t* mine, U* values) {
    std::int64_t m = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      mine[m] = offsets[j];
      values[m] = load<U>(flat + j * flat_step_);
      m += owned(offsets[j]) ? 1 : 0;
    }
    return m;
  }

  /// The points of this thread's range only.
  void apply_owned(const std::int64_t* offsets, char* flat, std::int64_t n) {
    if (rows_from_ != s_.ndim) {
      for (std::int64_t j = 0; j < n; ++j)
        if (owned(offsets[j])) row(base_ + offsets[j], flat + j * flat_step_);
      return;
    }
    std::int64_t mine[kIndexBlock + 1];
    alignas(8) char values[(kIndexBlock + 1) * 8];
    std::int64_t m = 0;
    switch (s_.item) {
      case 1:
        m = pick(offsets, flat, n, mine, reinterpret_cast<std::uint8_t*>(values));
        break;
      case 2:
        m = pick(offsets, flat, n, mine, reinterpret_cast<std::uint16_t*>(values));
        break;
      case 4:
        m = pick(offsets, flat, n, mine, reinterpret_cast<std::uint32_t*>(values));
        break;
      default:
        m = pick(offsets, flat, n, mine, reinterpret_cast<std::uint64_t*>(values));
        break;
    }
    action_.elements(base_, mine, values, s_.item, m, action_.params);
  }

  const IndexSpace& s_;
  const IndexAction& action_;
  const std::int64_t* kept_;
  Range range_;
  int rows_from_;
  char* base_ = nullptr;
  std::int64_t flat_step_ = 0;
  std::int64_t columns_ = 1;
};

/// Where one run of indices serves many outer positions, their offsets are computed once.
class KeptOffsets {
 public:
  KeptOffsets(const IndexSpace& s, const IndexAction& action) {
    point_dim_ = Runner::row_dims_of(s) - 1;
    if (Runner::is_direct(s, action)) return;
    if (point_dim_ < 1 || s.sizes[point_dim_] > kKeptOffsets) return;
    for (const auto& o : s.operands)
      for (int d = 0; d < point_dim_; ++d)
        if (o.strides[d] != 0) return;
    const std::int64_t n = s.sizes[point_dim_], step = s.base_strides[point_dim_];
    offsets_.resize(static_cast<std::size_t>(n));
    for (std::int64_t j = 0; j < n; j += kIndexBlock)
      for (std::size_t k = 0; k < s.operands.size(); ++k) {
        const IndexOperand& o = s.operands[k];
        IndexGrid grid;
        grid.data_stride = o.strides[point_dim_];
        grid.data = o.data + j * grid.data_stride;
        grid.columns = std::min(kIndexBlock, n - j);
        grid.start = j * step;
        grid.step = step;
        if (index_offsets(offsets_.data() + j, grid, o, k > 0)) check_bounds(s);
      }
  }
  /// Offsets for the part of `s` that starts at `begin` of `dim`; nullptr if they are not kept.
  const std::int64_t* from(int dim, std::int64_t begin) const {
    if (offsets_.empty()) return nullptr;
    return offsets_.data() + (dim == point_dim_ ? begin : 0);
  }
  /// Offsets of a part that begins later already contain the linear share of the dims before.
  bool linear_included(int dim) const { return !offsets_.empty() && dim == point_dim_; }

 private:
  int point_dim_;
  std::vector<std::int64_t> offsets_;
};

std::int64_t grain_along(const IndexSpace& s, int dim, std::int64_t numel) {
  const std::int64_t per = numel / s.sizes[dim];
  return std::max<std::int64_t>(1, (kGrain + per - 1) / per);
}

int dim_for_reading(const IndexSpace& s) {
  int best = 0;
  for (int d = 0; d < s.ndim; ++d) {
    if (s.sizes[d] >= 64) return d;
    if (s.sizes[d] > s.sizes[best]) best = d;
  }
  return best;
}

/// The largest dim whose coordinates lead to different base elements, -1 if there is none.
int dim_for_writing(const IndexSpace& s) {
  int best = -1;
  for (int d = 0; d < s.ndim; ++d)
    if (s.base_strides[d] != 0 && (best < 0 || s.sizes[d] > s.sizes[best])) best = d;
  return best;
}

void run_part(const IndexSpace& s, const IndexAction& action, const KeptOffsets& kept, int dim, std::int64_t begin,
              std::int64_t end) {
  IndexSpace part = s.narrow(dim, begin, end);
  if (kept.linear_included(dim)) part.base = s.base;
  if (!Runner(part, action, kept.from(dim, begin), {}).run()) check_bounds(s);
}

/// Shares a write out by destination: every thread sees all points and applies those in its range.
bool write_by_range(const IndexSpace& s, const IndexAction& action) {
  std::int64_t bytes = s.item;
  for (const auto& o : s.operands) {
    if (o.shape != nullptr) return false;
    bytes += (o.size - 1) * o.stride;
  }
  for (int d = 0; d < Runner::row_dims_of(s); ++d) bytes += (s.sizes[d] - 1) * s.base_strides[d];
  const std::int64_t parts = get_num_threads();
  if (bytes < kRangeBytes || parts < 2) return false;
  const std::int64_t share = (bytes + parts - 1) / parts;
  parallel_for(0, parts, 1, [&](std::int64_t b, std::int64_t e) {
    Runner(s, action, nullptr, {b * share, e * share}).run();
  });
  return true;
}

}  // namespace

void check_bounds(const IndexSpace& space) {
  const auto& all = space.operands;
  const bool none = space.unread && space.numel() == 0;
  const bool pointless = std::any_of(all.begin(), all.end(), [](const IndexOperand& o) { return o.numel == 0; });
  for (const auto& o : all)
    if (o.numel > 0 && !(none && (pointless || o.size > 0))) check_operand(space, o);
}

/// Rows of a result too large for the caches go past them.
void stream_rows(char* base, const std::int64_t* offsets, char* flat, std::int64_t flat_stride, std::int64_t n,
                 std::int64_t bytes) {
  const auto misaligned = static_cast<std::uint64_t>(bytes) | static_cast<std::uint64_t>(flat_stride) |
                          reinterpret_cast<std::uintptr_t>(flat);
  if (bytes < 256 || misaligned % 64 != 0) return read_action(1).rows(base, offsets, flat, flat_stride, n, bytes);
  const auto stream = block_ops().stream;
  for (std::int64_t j = 0; j < n; ++j) stream(flat + j * flat_stride, base + offsets[j], bytes);
  block_ops().stream_fence();
}

void run_read(IndexSpace s, const IndexAction& copy) {
  const std::int64_t numel = s.numel();
  IndexAction action = copy;
  if (numel * s.item >= kStreamBytes) action.rows = &stream_rows;
  if (numel == 0) return check_bounds(s);
  s.simplify();
  const KeptOffsets kept(s, action);
  if (numel <= kGrain || s.ndim == 0) {
    if (!Runner(s, action, kept.from(-1, 0), {}).run()) check_bounds(s);
    return;
  }
  const int dim = dim_for_reading(s);
  parallel_for(0, s.sizes[dim], grain_along(s, dim, numel),
               [&](std::int64_t b, std::int64_t e) { run_part(s, action, kept, dim, b, e); });
}

void run_write(IndexSpace s, const IndexAction& action) {
  const std::int64_t numel = s.numel();
  check_bounds(s);
  if (numel == 0) return;
  s.simplify();
  const KeptOffsets kept(s, action);
  const int dim = dim_for_writing(s);
  if (numel > kGrain && get_num_threads() > 1) {
    // Threads that write to one cache line slow each other down.
    const std::int64_t line =
        dim < 0 ? 1 : std::max<std::int64_t>(1, 64 / std::max<std::int64_t>(s.base_strides[dim], 1));
    if (dim >= 0 && s.sizes[dim] >= get_num_threads() * line) {
      parallel_for(0, s.sizes[dim], std::max(grain_along(s, dim, numel), line),
                   [&](std::int64_t b, std::int64_t e) { run_part(s, action, kept, dim, b, e); });
      return;
    }
    if (write_by_range(s, action)) return;
  }
  Runner(s, action, kept.from(-1, 0), {}).run();
}

}  // namespace athanor::cpu
