#include "athanor/device/cpu/gemm.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/gemm_amx.h"
#include "athanor/device/cpu/gemm_block.h"
#include "athanor/device/cpu/gemm_f32_amx.h"
#include "athanor/device/cpu/gemm_pairs.h"
#include "athanor/device/cpu/onednn.h"
#include "athanor/device/cpu/wide_vectors.h"

namespace athanor {
namespace detail {
namespace {

struct Scratch {
  void* data;
  std::size_t size;
};
// Constant-initialized and trivially destroyed: a thread's objects may compute while they are destroyed.
constinit thread_local Scratch scratch[kScratchSlots] = {};

/// Has the calling thread's scratch freed after the last of its objects is gone; the process's end frees that of main.
void free_at_thread_end() {
  static const auto key = [] {
    pthread_key_t made{};
    const auto free_all = [](void* all) {
      for (int i = 0; i < kScratchSlots; ++i) std::free(std::exchange(static_cast<Scratch*>(all)[i], {}).data);
    };
    return pthread_key_create(&made, free_all) == 0 ? std::optional(made) : std::nullopt;
  }();
  if (key) pthread_setspecific(*key, scratch);
}

/// See GemmPlan::deep. Measured with a second cache of 2 MB, which holds what it has to with room to spare. Of two
/// plain operands only the largest: oneDNN's sgemm packs the left one faster.
bool pays_deep(const GemmProblem& g) {
#ifdef _SC_LEVEL2_CACHE_SIZE
  static const bool suits = cpu::vectors_fill_lines() && sysconf(_SC_LEVEL2_CACHE_SIZE) >= 2 << 20;
#else
  constexpr bool suits = false;
#endif
  if (!suits || g.dtype != DType::Float || g.k < 1024) return false;
  return std::min(g.m, g.n) >= (g.a_col == 1 && g.b_col == 1 ? 2048 : 512);
}

/// Products of which no operand is worth packing, for processors with vectors of a line: see gemm_wide-inl.h. Each
/// panel of four vectors of columns passes by all of a and c: there is one, or both stay in the second cache.
bool reads_in_place(const GemmProblem& g) {
  if ((g.dtype != DType::Float && g.dtype != DType::Double) || (g.a_col != 1 && g.a_row != 1)) return false;
  const auto bytes = static_cast<std::int64_t>(item_size(g.dtype)), lanes = 64 / bytes;
  const bool near = g.n == 4 * lanes || (g.n * g.m + g.k * g.m) * bytes <= 512 << 10;
  return near && g.b_col == 1 && g.c_col == 1 && g.m > 14 && g.n >= 4 * lanes && g.n % lanes == 0 && g.k <= 1024 &&
         g.k * g.b_row * bytes <= 128 << 10;
}

/// Rows of a and columns of b of which each lies in one piece.
bool are_dots(const GemmProblem& g) { return is_floating_point(g.dtype) && g.a_col == 1 && g.b_row == 1; }

/// Whether there are so few rows that dot products cost less than packing b for tiles. Tiles have less to do for short
/// products, where many columns share what packing costs and lie next to each other in c. Found with AVX2.
bool pays_dots(const GemmProblem& g) {
  if (!are_dots(g) || g.m > 16) return false;
  if (g.n < 32 || g.c_col != 1) return true;
  if (item_size(g.dtype) < 4) return g.k >= (cpu::vectors_fill_lines() ? 16 : 8);  // a vector: it is converted whole
  return g.k > (g.dtype == DType::Float ? 8 : 4) * (g.m - 2);
}

/// Whether there are so few columns that dot products with them as rows cost less than tiles, whose columns are whole
/// vectors (of AVX2). What instructions for bfloat16 multiply stays as it is.
bool turns_to_dots(const GemmProblem& g) {
  if (!are_dots(g) || g.m <= (g.n < 4 ? g.n : 16)) return false;
  if (g.dtype == DType::BFloat16 && cpu::multiplies_bfloat16()) return false;
  if (g.n < (g.dtype == DType::Double ? 4 : 8)) return true;
  if (g.k < 16 || g.dtype == DType::Double) return false;
  return g.dtype == DType::Float ? g.n > 8 && g.n < 12 : g.n < 16;
}

}  // namespace

void* thread_scratch(int slot, std::size_t bytes) {
  Scratch& s = scratch[slot];
  if (bytes > s.size) {
    free_at_thread_end();
    std::free(std::exchange(s, {}).data);
    // Panels are read in many strides at once: huge pages keep the address translations of a block in reach.
    constexpr std::size_t kHuge = std::size_t{2} << 20;
    const std::size_t unit = bytes > kHuge / 4 ? kHuge : 4096;
    const std::size_t rounded = (bytes + unit - 1) / unit * unit;
    s.data = std::aligned_alloc(unit, rounded);
    if (!s.data) throw std::bad_alloc();
    if (unit == kHuge) madvise(s.data, rounded, MADV_HUGEPAGE);
    s.size = rounded;
  }
  return s.data;
}

GemmPlan plan_gemm(const GemmProblem& g) {
  GemmPlan plan;
  const bool narrow = item_size(g.dtype) < 4;  // sums are wider than elements
  const bool floating = g.dtype == DType::Float || g.dtype == DType::Double;
  if (g.k_part != 0) return plan;  // both operands packed
  if (amx::suits(g) || amx::suits_floats(g)) {
    plan.form = GemmPlan::Form::Matrix;
    return plan;
  }
  if (pairs::suits(g)) {
    plan.form = GemmPlan::Form::Pairs;
    return plan;
  }
  // What the first cache holds with room to spare is read where it is by twice the usual number of rows.
  const bool near = g.k * g.b_row * static_cast<std::int64_t>(item_size(g.dtype)) <= 16 << 10;
  plan.pack_b = narrow || g.b_col != 1 || g.m > (near ? 64 : 32);
  const bool wide = cpu::vectors_fill_lines();
  // Rows or steps a multiple of 2048 bytes apart lie in a few sets of the cache and push each other out. (Of float64 a
  // tile has 14 rows of up to 192 steps: in every other run of sets, less than half of what those hold.)
  const std::int64_t apart = g.a_col == 1 ? g.a_row : g.a_col, sets = wide && g.dtype == DType::Double ? 4096 : 2048;
  const bool crowded = g.n > 64 && g.k > 16 && apart * static_cast<std::int64_t>(item_size(g.dtype)) % sets == 0;
  // Packing pays once enough tiles read a panel; narrow vectors have more tiles in a row and, with few rows in each,
  // use only part of a cache line of columns of a.
  const std::int64_t unpacked = !wide && g.a_row == 1 ? 128 : 256;
  plan.pack_a = narrow || !(g.a_row == 1 || g.a_col == 1) || g.n > unpacked || crowded;
  if (!is_floating_point(g.dtype)) return plan;
  if (pays_dots(g))
    plan.form = GemmPlan::Form::Dots;
  else if (floating && g.b_col == 1 && g.k <= 4)
    plan.form = GemmPlan::Form::FewSteps;
  else if (g.b_col == 1 && g.m <= 4)
    plan.form = GemmPlan::Form::FewRows;
  else if (plan.pack_a && plan.pack_b && pays_deep(g))
    plan.deep = true;
  else
    plan.in_place = wide && !crowded && reads_in_place(g);
  return plan;
}

namespace {

void run_block(const GemmProblem& g, const GemmPlan& plan) {
  if (plan.form == GemmPlan::Form::Matrix && g.dtype == DType::Float)
    return amx::multiply_floats(g, [](const GemmProblem& part) { gemm_block_f32(part, {}); });
  if (plan.form == GemmPlan::Form::Matrix) return amx::gemm_block(g);
  if (plan.form == GemmPlan::Form::Pairs) return pairs::gemm_block(g);
  if (g.dtype == DType::Double) return gemm_block_f64(g, plan);
  if (is_floating_point(g.dtype)) return gemm_block_f32(g, plan);
  gemm_block_int(g, plan);
}

/// Rows [i, i + m) × columns [j, j + n) of product `at`.
GemmProblem part(const GemmProblem& g, const GemmBatch& batch, std::int64_t at, std::int64_t i, std::int64_t m,
                 std::int64_t j, std::int64_t n) {
  GemmProblem p = g;
  p.m = m;
  p.n = n;
  p.a = advance(g.a, at * batch.a + i * g.a_row, g.dtype);
  p.b = advance(g.b, at * batch.b + j * g.b_col, g.dtype);
  p.c = advance(g.c, at * batch.c + i * g.c_row + j * g.c_col, g.dtype);
  if (g.bias) p.bias = advance(g.bias, at * batch.bias + i * g.bias_row + j * g.bias_col, g.dtype);
  return p;
}

/// How the output of one product is cut: `rows` × `cols` pieces.
struct Grid {
  std::int64_t rows = 1, cols = 1;
};

/// Cuts for `team` threads so that the packing done twice is least; without packing, by rows where there are enough:
/// the shares are those of an element-wise operation on the result.
Grid cut(const GemmProblem& g, const GemmPlan& plan, std::int64_t team) {
  Grid best;
  double least = -1;
  const double b_cost = plan.deep && g.b_col == 1 ? 0.5 : 1;  // which the tiles pack beside their arithmetic
  for (std::int64_t r = 1; r <= team; ++r) {
    if (team % r != 0) continue;
    const std::int64_t c = team / r;
    if (r > (g.m + 7) / 8 || c > (g.n + 15) / 16) continue;
    const bool packs = plan.form != GemmPlan::Form::FewSteps;
    const double cost = packs ? b_cost * static_cast<double>(r) * static_cast<double>(g.n) +
                                    static_cast<double>(c) * static_cast<double>(g.m)
                              : static_cast<double>(c);
    if (least < 0 || cost < least) {
      least = cost;
      best = {r, c};
    }
  }
  return best;
}

/// To the product of the transposed operands.
void turn(GemmProblem& g, GemmBatch& distance) {
  std::swap(g.m, g.n);
  std::swap(g.a, g.b);
  std::swap(g.a_row, g.b_col);
  std::swap(g.a_col, g.b_row);
  std::swap(g.a_part, g.b_part);
  std::swap(g.c_row, g.c_col);
  std::swap(g.bias_row, g.bias_col);
  std::swap(distance.a, distance.b);
}

/// Boundary `i` of `pieces` over `size`, on multiples of `unit` where there is enough.
std::int64_t boundary(std::int64_t size, std::int64_t pieces, std::int64_t i, std::int64_t unit) {
  const std::int64_t units = (size + unit - 1) / unit;
  if (units < pieces) return size * i / pieces;
  return std::min(units * i / pieces * unit, size);
}

}  // namespace
}  // namespace detail

void gemm(const GemmProblem& problem, const GemmBatch& batch) {
  if (problem.m == 0 || problem.n == 0 || batch.count == 0) return;
  ATHANOR_CHECK(problem.k_part == 0 || (item_size(problem.dtype) >= 4 && is_floating_point(problem.dtype) &&
                                        problem.k % problem.k_part == 0 && !cpu::vectors_fill_lines()),
                "gemm: no parts of ", problem.k_part, " steps of ", problem.k, " for ", problem.dtype);
  GemmProblem g = problem;
  GemmBatch distance = batch;
  // The tiles store along rows of c, and skinny products are cheapest with few rows.
  if ((g.c_row == 1 && g.c_col != 1) || (g.n == 1 && g.m > 1)) detail::turn(g, distance);
  if (g.k_part == 0 && detail::turns_to_dots(g)) detail::turn(g, distance);
  const detail::GemmPlan plan = detail::plan_gemm(g);
  using Form = detail::GemmPlan::Form;
  const bool matrix = plan.form == Form::Matrix, paired = plan.form == Form::Pairs;
  if (g.dtype == DType::Float && !matrix && !plan.deep && g.k_part == 0) {
    if (onednn::matmul(g, distance)) return;
    if (g.epilogue == Epilogue::None && batch.count == 1 && onednn::sgemm(g)) return;
  }
  // Where the processor has no instructions for bfloat16, oneDNN emulates them, at a fifth of the speed of float32.
  if (g.dtype == DType::BFloat16 && cpu::multiplies_bfloat16() && !matrix && !(paired && pairs::pays(g)) &&
      onednn::matmul(g, distance))
    return;

  // Multiply-adds that pay for waking a thread. Thin products move more memory for each; besides, the optimizer splits
  // their weights and gradients over the threads, and fetching those from another core's cache is dear.
  const bool thin = !matrix && !paired && plan.form != Form::Tiles;
  const double tiled = cpu::vectors_fill_lines() ? 400e3 : 128e3;
  const double per_thread = matrix ? (g.dtype == DType::Float ? 4e6 : 1e6) : paired ? 800e3 : thin ? 40e3 : tiled;
  const double work =
      static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(std::max<std::int64_t>(g.k, 1));
  const double all = work * static_cast<double>(batch.count);
  std::int64_t team = in_parallel_region() ? 1 : get_num_threads();
  if (all < per_thread * static_cast<double>(team))
    team = std::max<std::int64_t>(1, static_cast<std::int64_t>(all / per_thread));
  const detail::Grid grid = detail::cut(g, plan, batch.count >= 4 * team ? 1 : team);
  const std::int64_t pieces = grid.rows * grid.cols;
  const std::int64_t tasks = pieces * batch.count, unit = matrix ? 32 : 14;
  const std::int64_t across = (g.n + 31) / 32 < grid.cols ? 16 : 32;  // whole vectors, panels if there are enough
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t at = t / pieces, r = t % pieces / grid.cols, c = t % grid.cols;
      const std::int64_t i = detail::boundary(g.m, grid.rows, r, unit),
                         i2 = detail::boundary(g.m, grid.rows, r + 1, unit);
      const std::int64_t j = detail::boundary(g.n, grid.cols, c, across),
                         j2 = detail::boundary(g.n, grid.cols, c + 1, across);
      if (i < i2 && j < j2) detail::run_block(detail::part(g, distance, at, i, i2 - i, j, j2 - j), plan);
    }
  };
  if (team == 1)
    run(0, tasks);
  else
    parallel_for(0, tasks, (tasks + team - 1) / team, run);
}

}  // namespace athanor
