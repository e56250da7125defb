#pragma once
/// Extremes with their places in dense memory.

#include <cstdint>

#include "athanor/tensor/dtype.h"

namespace athanor::cpu {

/// A better element replaces the best so far if it is strictly better; NaN is better than any number. Element types are
/// those of the dtype asked for; bests hold such elements.
struct ArgReducer {
  /// The extreme of the n > 0 elements at `in`, and the first place of it.
  void (*row)(void* best, std::int64_t* place, const void* in, std::int64_t n);
  /// Improves best[c], place[c] by in[r * stride + c], whose place is first + r. rows < 2^31.
  void (*columns)(void* best, std::int64_t* place, const void* in, std::int64_t stride, std::int64_t rows,
                  std::int64_t columns, std::int64_t first);
  /// Improves best[i], place[i] by others of later places.
  void (*join)(void* best, std::int64_t* place, const void* other_best, const std::int64_t* other_place,
               std::int64_t n);
};

/// `compute`: any dtype but the halves and bool.
ArgReducer arg_reducer(DType compute, bool max);

/// Greatest number of columns that ArgReducer::columns takes.
inline constexpr std::int64_t kArgStrip = 512;

}  // namespace athanor::cpu
