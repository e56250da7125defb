#pragma once
/// Operands of bfloat16 in the order in which matrix units and dot products of pairs read them: tiles of 16 rows of 64
/// bytes, what is missing filled with zeros. Strides count elements; in each operand one of the two is 1.

#include <cstdint>

#include "athanor/device/cpu/gemm.h"

namespace athanor::bf16 {

inline constexpr std::int64_t kTile = 16;       ///< rows of a tile, columns of a sum
inline constexpr std::int64_t kSteps = 32;      ///< inner values a tile holds
inline constexpr std::int64_t kBlock = 32;      ///< rows and columns of a block of 2 × 2 sums
inline constexpr std::int64_t kTileSize = 512;  ///< values of a tile

/// Rows or columns follow each other, values of one without gap.
inline bool plain(std::int64_t row, std::int64_t col) { return (col == 1 && row >= 0) || (row == 1 && col >= 0); }

/// Whether a problem is one of products of bfloat16 whose operands can be packed and whose output runs along its rows.
inline bool packable(const GemmProblem& g) {
  return g.dtype == DType::BFloat16 && g.c_col == 1 && plain(g.a_row, g.a_col) && plain(g.b_row, g.b_col);
}

/// Up to 32 rows by k values: for each 32 values, tiles of rows 0 to 15 and of rows 16 to 31.
void pack_rows(const std::uint16_t* a, std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t k,
               std::uint16_t* to);

/// k by `cols` columns, 32 to a block; blocks lie `block` values apart. For each 32 values of k, tiles of columns 0 to
/// 15 and of 16 to 31, whose rows have two successive values of each column side by side.
void pack_columns(const std::uint16_t* b, std::int64_t row, std::int64_t col, std::int64_t k, std::int64_t cols,
                  std::uint16_t* to, std::int64_t block);

/// Turns over 32 × 32 sums that lie in rows of 32.
void transpose_sums(const float* from, float* to);

}  // namespace athanor::bf16
