#pragma once
/// The table of rows that Embedding and EmbeddingBag look up.

#include <cstdint>
#include <optional>

#include "athanor/ops/tensor.h"

namespace athanor::nn::detail {

/// Counts a negative padding row from the front. Throws Error if there is no such row.
void check_padding(std::optional<std::int64_t>& padding, std::int64_t rows);
/// `given` if it is defined and (rows, width), else a new table without values. Throws Error for another shape.
Tensor embedding_table(const Tensor& given, std::int64_t rows, std::int64_t width);
/// Normal values, zeros in the padding row.
void fill_embedding_table(const Tensor& table, const std::optional<std::int64_t>& padding);

}  // namespace athanor::nn::detail
