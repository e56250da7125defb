#pragma once
/// Seam of embedding_bag: rows of a table combined bag by bag.

#include "athanor/ops/kernels/kernel.h"

namespace athanor {

enum class BagMode : std::int8_t { Sum, Mean, Max };

/// out (bags, d) = the rows of weight (n, d) that indices (1-d, Long or Int) names, from bounds[b] to bounds[b + 1],
/// summed, averaged or their element-wise maximum; rows of an empty bag are 0. Rows equal to padding_idx (-1: none) do
/// not count. weights (one per index, weight's dtype) multiply in a sum, or are undefined. bag_of (one per index) and
/// sizes (bags): Long, where each index belongs and how many count. places (bags, d), Long, or undefined: the row each
/// maximum came from, -1 for empty bags. bounds: Long, bags + 1 of them, contiguous. Throws Error for indices out of
/// range and bounds that fall or leave [0, number of indices]. Half types are summed in float32 and rounded once.
extern Kernel<void(const View& out, const View& bag_of, const View& sizes, const View& places, const View& weight,
                   const View& indices, const View& bounds, const View& weights, BagMode mode,
                   std::int64_t padding_idx)>
    embedding_bag_kernel;

}  // namespace athanor
