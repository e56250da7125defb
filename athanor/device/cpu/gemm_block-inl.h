// One block of a product on one thread: packs, runs register tiles, finishes. Compiled once per SIMD target; included
// by kernel files after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_GEMM_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_GEMM_BLOCK_INL_H_
#undef ATHANOR_DEVICE_CPU_GEMM_BLOCK_INL_H_
#else
#define ATHANOR_DEVICE_CPU_GEMM_BLOCK_INL_H_
#endif
// clang-format on

#include <cmath>
#include <type_traits>

#include "athanor/device/cpu/gemm_block.h"
#include "athanor/device/cpu/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

template <class T>
T apply(Epilogue epilogue, T x) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (epilogue) {
      case Epilogue::None:
        return x;
      case Epilogue::Relu:
        return x < T(0) ? T(0) : x;
      case Epilogue::Gelu:
        return T(0.5) * x * (T(1) + std::erf(x * T(0.70710678118654752440)));
      case Epilogue::GeluTanh:
        return T(0.5) * x * (T(1) + std::tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x)));
      case Epilogue::Sigmoid:
        return T(1) / (T(1) + std::exp(-x));
      case Epilogue::Tanh:
        return std::tanh(x);
      case Epilogue::Silu:
        return x / (T(1) + std::exp(-x));
    }
  }
  return x;
}

/// What happens to a sum on its way to the output. Integers are computed modulo 2^bits as unsigned values.
template <class T, class Out>
struct Finish {
  const GemmProblem& g;
  T alpha, beta;
  bool biased, plain;

  explicit Finish(const GemmProblem& problem) : g(problem) {
    if constexpr (std::is_integral_v<T>) {
      alpha = static_cast<T>(g.alpha.to<std::int64_t>());
      beta = static_cast<T>(g.beta.to<std::int64_t>());
    } else {
      alpha = g.alpha.to<T>();
      beta = g.beta.to<T>();
    }
    biased = g.bias && beta != T(0);
    plain = alpha == T(1) && !biased && g.epilogue == Epilogue::None;
  }

  Out relu(Out x) const {
    if constexpr (std::is_integral_v<T>)
      return is_signed(g.dtype) && static_cast<std::make_signed_t<Out>>(x) < 0 ? Out(0) : x;
    else
      return x < Out(0) ? Out(0) : x;
  }

  /// Rows [i, i + rows) × columns [j, j + cols) of the output from sums at `from`, which may be the output itself.
  void operator()(std::int64_t i, std::int64_t j, std::int64_t rows, std::int64_t cols, const T* from,
                  std::int64_t step) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      Out* c = static_cast<Out*>(const_cast<void*>(static_cast<const void*>(g.c))) + (i + r) * g.c_row + j * g.c_col;
      const Out* bias = biased ? static_cast<const Out*>(g.bias) + (i + r) * g.bias_row + j * g.bias_col : nullptr;
      row(from + r * step, c, bias, cols);
    }
  }

 private:
  void row(const T* from, Out* c, const Out* bias, std::int64_t cols) const {
    if (g.epilogue != Epilogue::None && g.epilogue != Epilogue::Relu) {
      for (std::int64_t j = 0; j < cols; ++j)
        c[j * g.c_col] =
            convert<Out>(apply(g.epilogue, alpha * from[j] + (bias ? beta * convert<T>(bias[j * g.bias_col]) : T(0))));
      return;
    }
    if (g.c_col == 1 && (!bias || g.bias_col == 1)) {
      if (bias)
#pragma GCC ivdep
        for (std::int64_t j = 0; j < cols; ++j) c[j] = convert<Out>(alpha * from[j] + beta * convert<T>(bias[j]));
      else
#pragma GCC ivdep
        for (std::int64_t j = 0; j < cols; ++j) c[j] = convert<Out>(alpha * from[j]);
    } else {
      for (std::int64_t j = 0; j < cols; ++j)
        c[j * g.c_col] = convert<Out>(alpha * from[j] + (bias ? beta * convert<T>(bias[j * g.bias_col]) : T(0)));
    }
    if (g.epilogue == Epilogue::Relu)
#pragma GCC ivdep
      for (std::int64_t j = 0; j < cols; ++j) c[j * g.c_col] = relu(c[j * g.c_col]);
  }
};

/// sums[i·kCols + j] = dot of row i of a with row j of b, both running along k.
template <class T, int kRows, int kCols>
HWY_NOINLINE void dot_tile(std::int64_t k, const T* HWY_RESTRICT a, std::int64_t a_row, const T* HWY_RESTRICT b,
                           std::int64_t b_col, T* HWY_RESTRICT sums) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = kVector<T>;
  V sum[kRows][kCols];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < kCols; ++j) sum[i][j] = hn::Zero(d);
  std::int64_t p = 0;
#pragma GCC unroll 1
  for (; p + kLanes <= k; p += kLanes) {
    V row[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) row[i] = hn::LoadU(d, a + i * a_row + p);
#pragma GCC unroll 8
    for (int j = 0; j < kCols; ++j) {
      const V col = hn::LoadU(d, b + j * b_col + p);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sum[i][j] = hn::MulAdd(row[i], col, sum[i][j]);
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kCols; ++j) {
      T total = hn::GetLane(hn::SumOfLanes(d, sum[i][j]));
      for (std::int64_t q = p; q < k; ++q) total += a[i * a_row + q] * b[j * b_col + q];
      sums[i * kCols + j] = total;
    }
}

template <class T>
void dot_block(const GemmProblem& g, const Finish<T, T>& finish) {
  const T *a = static_cast<const T*>(g.a), *b = static_cast<const T*>(g.b);
  T sums[16];
  for (std::int64_t j = 0; j < g.n;) {
    const T* bj = b + j * g.b_col;
    const int cols = g.n - j >= 4 ? 4 : 1;
    for (std::int64_t i = 0; i < g.m;) {
      const T* ai = a + i * g.a_row;
      const int rows = g.m - i >= 4 ? 4 : g.m - i >= 2 ? 2 : 1;
      if (cols == 4)
        (rows == 4   ? dot_tile<T, 4, 4>
         : rows == 2 ? dot_tile<T, 2, 4>
                     : dot_tile<T, 1, 4>)(g.k, ai, g.a_row, bj, g.b_col, sums);
      else
        (rows == 4   ? dot_tile<T, 4, 1>
         : rows == 2 ? dot_tile<T, 2, 1>
                     : dot_tile<T, 1, 1>)(g.k, ai, g.a_row, bj, g.b_col, sums);
      finish(i, j, rows, cols, sums, cols);
      i += rows;
    }
    j += cols;
  }
}

inline constexpr std::int64_t kBlockRowsOfTiles = 24;  // rows of a that stay in the second-level cache
inline constexpr std::int64_t kBlockCols = 2048;       // columns of packed b, at most

/// In: element type of the operands. T: type of the sums.
template <class In, class T>
class BlockRun {
 public:
  BlockRun(const GemmProblem& g, const detail::GemmPlan& plan)
      : g_(g), plan_(plan), finish_(g), a_(static_cast<const In*>(g.a)), b_(static_cast<const In*>(g.b)) {
    row_tiles_ = (g.m + kTileRows - 1) / kTileRows;
    if (plan.direct) {
      if constexpr (std::is_same_v<In, T>) sums_ = static_cast<T*>(g.c);
      step_ = g.c_row;
    } else {
      step_ = (g.n + kTileCols<T> - 1) / kTileCols<T> * kTileCols<T>;
      sums_ = static_cast<T*>(detail::thread_scratch(0, sizeof(T) * static_cast<std::size_t>(g.m * step_)));
    }
  }

  void run() {
    const std::int64_t blocks = (g_.k + plan_.k_block - 1) / plan_.k_block;
    for (std::int64_t j = 0; j < g_.n; j += kBlockCols)
      for (std::int64_t block = 0; block < blocks; ++block) {
        k_begin_ = block * g_.k / blocks;
        k_ = (block + 1) * g_.k / blocks - k_begin_;
        first_ = block == 0;
        last_ = block + 1 == blocks;
        columns(j, std::min(kBlockCols, g_.n - j));
      }
  }

 private:
  static constexpr int kCols = kTileCols<T>;

  std::int64_t row_of(std::int64_t t) const { return t * g_.m / row_tiles_; }
  const In* b_at(std::int64_t j) const { return b_ + k_begin_ * g_.b_row + j * g_.b_col; }

  void columns(std::int64_t j, std::int64_t cols) {
    if (plan_.pack_b) {
      const std::int64_t panels = (cols + kCols - 1) / kCols;
      packed_b_ = static_cast<T*>(detail::thread_scratch(1, sizeof(T) * static_cast<std::size_t>(panels * kCols * k_)));
      for (std::int64_t p = 0; p < panels; ++p) pack_panel(j + p * kCols, packed_b_ + p * kCols * k_);
    } else {
      packed_b_ = static_cast<T*>(detail::thread_scratch(1, sizeof(T) * static_cast<std::size_t>(kCols * k_)));
      if (const std::int64_t tail = cols % kCols) pack_panel(j + cols - tail, packed_b_);
    }
    for (std::int64_t t = 0; t < row_tiles_; t += kBlockRowsOfTiles)
      rows(j, cols, t, std::min(t + kBlockRowsOfTiles, row_tiles_));
  }

  int width(std::int64_t cols) const { return cols <= kVector<T> ? kVector<T> : kCols; }

  void pack_panel(std::int64_t j, T* to) const {
    const int n = static_cast<int>(std::min<std::int64_t>(kCols, g_.n - j));
    pack_b<T>(b_at(j), g_.b_row, g_.b_col, k_, n, width(n), to);
  }

  void rows(std::int64_t j, std::int64_t cols, std::int64_t t0, std::int64_t t1) {
    const std::int64_t i0 = row_of(t0);
    T* packed_a = nullptr;
    if (plan_.pack_a) {
      packed_a = static_cast<T*>(
          detail::thread_scratch(2, sizeof(T) * static_cast<std::size_t>((row_of(t1) - i0) * k_ + kVector<T>)));
      for (std::int64_t t = t0; t < t1; ++t) {
        const std::int64_t i = row_of(t);
        pack_a<T>(a_ + i * g_.a_row + k_begin_ * g_.a_col, g_.a_row, g_.a_col, k_, static_cast<int>(row_of(t + 1) - i),
                  packed_a + (i - i0) * k_);
      }
    }
    for (std::int64_t q = 0; q < cols; q += kCols) {
      const int n = static_cast<int>(std::min<std::int64_t>(kCols, cols - q));
      const T* b = packed_b_;
      std::int64_t b_step = width(n);
      if (plan_.pack_b) {
        b += q * k_;
      } else if (n == kCols) {
        if constexpr (std::is_same_v<In, T>) b = b_at(j + q);
        b_step = g_.b_row;
      }
      for (std::int64_t t = t0; t < t1; ++t) {
        const std::int64_t i = row_of(t);
        const int m = static_cast<int>(row_of(t + 1) - i);
        const T* a = packed_a + (i - i0) * k_;
        std::int64_t a_step = m;
        AForm form = AForm::Columns;
        if (!plan_.pack_a) {
          if constexpr (std::is_same_v<In, T>) a = a_ + i * g_.a_row + k_begin_ * g_.a_col;
          form = g_.a_row == 1 ? AForm::Columns : AForm::Rows;
          a_step = g_.a_row == 1 ? g_.a_col : g_.a_row;
        }
        one_tile(i, j + q, m, n, a, a_step, form, b, b_step);
      }
    }
  }

  void one_tile(std::int64_t i, std::int64_t j, int m, int n, const T* a, std::int64_t a_step, AForm form, const T* b,
                std::int64_t b_step) const {
    const int w = width(n);
    const TileFn<T> fn = tile_for<T>(m, w / kVector<T>, form);
    T* c = sums_ + i * step_ + j;
    if (n == w || !plan_.direct) {
      fn(k_, a, a_step, b, b_step, c, step_, !first_);
    } else {
      HWY_ALIGN T edge[kTileRows * kCols];
      fn(k_, a, a_step, b, b_step, edge, w, false);
      for (int r = 0; r < m; ++r)
        for (int q = 0; q < n; ++q) c[r * step_ + q] = first_ ? edge[r * w + q] : T(c[r * step_ + q] + edge[r * w + q]);
    }
    if (last_ && !(plan_.direct && finish_.plain)) finish_(i, j, m, n, c, step_);
  }

  const GemmProblem& g_;
  const detail::GemmPlan& plan_;
  Finish<T, In> finish_;
  const In *a_, *b_;
  T* sums_ = nullptr;
  T* packed_b_ = nullptr;
  std::int64_t step_ = 0, row_tiles_ = 0, k_begin_ = 0, k_ = 0;
  bool first_ = true, last_ = true;
};

template <class In, class T>
void gemm_block(const GemmProblem& g, const detail::GemmPlan& plan) {
  const Finish<T, In> finish(g);
  if (g.k == 0) {
    const T zeros[64] = {};
    for (std::int64_t i = 0; i < g.m; ++i)
      for (std::int64_t j = 0; j < g.n; j += 64) finish(i, j, 1, std::min<std::int64_t>(64, g.n - j), zeros, 0);
    return;
  }
  if constexpr (std::is_same_v<In, T> && std::is_floating_point_v<T>)
    if (plan.dots) return dot_block<T>(g, finish);
  BlockRun<In, T>(g, plan).run();
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
