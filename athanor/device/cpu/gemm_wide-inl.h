// Products whose operands are read where they lie, by tiles of few rows and four vectors of columns. Such a tile loads
// 10 operands for 24 multiply-adds, one of 14 rows and two vectors 16 for 28: where a neighbour on the same core takes
// part of the load ports, it keeps a tenth more of its speed. Compiled once per SIMD target; included by kernel files
// after hwy/highway.h.

// clang-format off
#if defined(ATHANOR_DEVICE_CPU_GEMM_WIDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATHANOR_DEVICE_CPU_GEMM_WIDE_INL_H_
#undef ATHANOR_DEVICE_CPU_GEMM_WIDE_INL_H_
#else
#define ATHANOR_DEVICE_CPU_GEMM_WIDE_INL_H_
#endif
// clang-format on

#include <cstdint>
#include <utility>

#include "athanor/device/cpu/gemm_finish-inl.h"
#include "athanor/device/cpu/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace athanor::HWY_NAMESPACE {

inline constexpr int kWideRows = 6, kWideVectors = 4;

/// The columns from j on in tiles of at most `most` rows; `tile_of(rows, form)` is the function for one.
template <class T, class TileOf>
void wide_columns(const GemmProblem& g, const Finish<T, T>& finish, std::int64_t j, std::int64_t most,
                  const TileOf& tile_of) {
  const AForm form = g.a_col == 1 ? AForm::Rows : AForm::Columns;
  const std::int64_t a_step = form == AForm::Rows ? g.a_row : g.a_col;
  TileEnd<T> end;
  if (finish.biased) end.col_add = static_cast<const T*>(g.bias) + j;
  end.relu = g.epilogue == Epilogue::Relu;
  const RowTiles tiles(g.m, most);
  for (std::int64_t t = 0; t < tiles.count; ++t) {
    const std::int64_t i = tiles.begin(t);
    tile_of(tiles.height(t), form)(g.k, static_cast<const T*>(g.a) + i * g.a_row, a_step,
                                   static_cast<const T*>(g.b) + j, g.b_row, nullptr,
                                   static_cast<T*>(g.c) + i * g.c_row + j, g.c_row, finish.plain ? nullptr : &end);
  }
}

/// The whole of a block of a product for which detail::reads_in_place holds, if its columns fill vectors and its finish
/// is one in registers.
template <class T>
void wide_block(const GemmProblem& g, const Finish<T, T>& finish) {
  constexpr std::int64_t kCols = kWideVectors * kVector<T>;
  std::int64_t j = 0;
  for (; j + kCols <= g.n; j += kCols)
    wide_columns<T>(g, finish, j, kWideRows, [](int rows, AForm form) {
      constexpr std::make_integer_sequence<int, kWideRows> all{};
      return form == AForm::Rows ? pick_tile<T, kWideVectors, AForm::Rows>(rows, all)
                                 : pick_tile<T, kWideVectors, AForm::Columns>(rows, all);
    });
  for (; j < g.n; j += kTileCols<T>) {
    const int vectors = g.n - j > kVector<T> ? 2 : 1;
    wide_columns<T>(g, finish, j, kTileRows,
                    [vectors](int rows, AForm form) { return tile_for<T>(rows, vectors, form); });
  }
}

}  // namespace athanor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
