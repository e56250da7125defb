#pragma once
/// Tries a row of the op table.

#include <utility>

#include "op_table/table.h"

namespace athanor::op_table {

/// Everything that is wrong with the op, as messages; empty if all is well.
std::vector<std::string> check_row(const Row& row);

/// Whether a sample is for the dtype.
bool takes(const Sample& s, DType t);

/// Hidden: in blocks of channels, or a view of a storage that is.
enum class Layout { Contiguous, Transposed, Strided, Expanded, Hidden };
/// A sample's inputs in the dtype, laid out in memory as asked for.
Tensors inputs_of(const Sample& s, DType t, Layout l = Layout::Contiguous);

/// Zeros of the sizes that are part of a wider tensor of zeros (along dim 1, if there is one), and the rest of that.
std::pair<Tensor, Tensor> part_of_wider(const Tensor& like);

/// Empty if `actual` (of the dtype) agrees with the float64 reference, else a message.
std::string compare(const Tensor& actual, const Array& expected, double tolerance, double absolute);
/// Empty if both have the same shape, dtype and bits (NaN equals NaN).
std::string compare_bits(const Tensor& a, const Tensor& b);

}  // namespace athanor::op_table
