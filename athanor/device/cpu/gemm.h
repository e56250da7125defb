#pragma once
/// The matrix product behind matmul and the convolutions: blocked, vectorized for every dtype, any strides, copies of
/// bounded size (36 MB a thread at most, for float32 on matrix units; else a block of both operands and a megabyte).
/// Splits its output over threads; the order of every sum depends on the shape alone, so results do not depend on the
/// number of threads, except that float32 products of middle size, and without matrix units large ones and those of
/// bfloat16, go to oneDNN where that is faster. Large float32 products with matrix units: see gemm_f32_amx.h.

#include "athanor/ops/kernels/matmul.h"

namespace athanor {

/// c (m × n) = epilogue(alpha · a (m × k) @ b (k × n) + beta · bias). Strides are in elements. `bias` may be null, have
/// strides of 0, or be `c` itself with c's strides. c shares no element with a or b.
struct GemmProblem {
  DType dtype = DType::Float;
  std::int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  std::int64_t a_row = 0, a_col = 0;
  const void* b = nullptr;
  std::int64_t b_row = 0, b_col = 0;
  void* c = nullptr;
  std::int64_t c_row = 0, c_col = 0;
  const void* bias = nullptr;
  std::int64_t bias_row = 0, bias_col = 0;
  Scalar alpha = 1, beta = 0;
  Epilogue epilogue = Epilogue::None;
  /// If not 0, the inner dimension lies in parts of so many steps, each so far from the one before: the product is the
  /// sum of theirs. k is a multiple. Only for float32 and float64, without AVX-512.
  std::int64_t k_part = 0, a_part = 0, b_part = 0;
};

/// `count` products whose operands lie at fixed distances (in elements, 0 to share one).
struct GemmBatch {
  std::int64_t count = 1, a = 0, b = 0, c = 0, bias = 0;
};

namespace detail {
/// So many elements further on.
inline const void* advance(const void* p, std::int64_t elements, DType t) {
  return static_cast<const char*>(p) + elements * static_cast<std::int64_t>(item_size(t));
}
inline void* advance(void* p, std::int64_t elements, DType t) {
  return static_cast<char*>(p) + elements * static_cast<std::int64_t>(item_size(t));
}
}  // namespace detail

/// Computes the products on the calling thread's team. dtype: any but bool.
void gemm(const GemmProblem& problem, const GemmBatch& batch = {});

}  // namespace athanor
