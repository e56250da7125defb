#pragma once
/// What the rows_*.cpp files share.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "op_table/table.h"

namespace athanor::op_table {

/// A reference with one result.
template <class F>
Reference one(F&& fn) {
  return [fn](const Arrays& in) { return Arrays{fn(in)}; };
}

/// A row whose gradients are checked.
Row gradient_row_of(const char* name, const char* overload, DTypes dtypes, ResultType result = same_type);

/// A case with one result and neither an in-place nor an out= form.
Case case_of(std::string name, std::vector<Sample> samples, std::function<Tensor(const Tensors&)> call,
             std::function<Array(const Arrays&)> reference);

/// The array of `shape` whose element at an index is a's at from(index).
Array picked(const Array& a, const Shape& shape, const std::function<Shape(const Shape&)>& from);
Array with_shape(Array a, Shape shape);
Array transposed(const Array& a, std::size_t d0, std::size_t d1);
/// Entries start … start + length - 1 of dim, every step-th.
Array sliced(const Array& a, std::size_t dim, std::int64_t start, std::int64_t length, std::int64_t step = 1);
/// One sample per shape, one input each; the first `with_gradient` are used for gradients.
std::vector<Sample> shaped(const std::vector<Shape>& shapes, std::size_t with_gradient = 2);

}  // namespace athanor::op_table
