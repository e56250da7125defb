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
inline Row gradient_row_of(const char* name, const char* overload, DTypes dtypes, ResultType result = same_type) {
  Row r{name, overload, std::move(dtypes), std::move(result)};
  r.gradient = true;
  return r;
}

/// A case with one result and neither an in-place nor an out= form.
inline Case case_of(std::string name, std::vector<Sample> samples, std::function<Tensor(const Tensors&)> call,
                    std::function<Array(const Arrays&)> reference) {
  return {std::move(name),
          std::move(samples),
          [call](const Tensors& x) { return Tensors{call(x)}; },
          [reference](const Arrays& in) { return Arrays{reference(in)}; },
          {},
          {}};
}

/// The array of `shape` whose element at an index is a's at from(index).
inline Array picked(const Array& a, const Shape& shape, const std::function<Shape(const Shape&)>& from) {
  Array out(shape);
  for (std::int64_t i = 0; i < out.numel(); ++i) out[i] = a.at(from(index_of(i, shape)));
  return out;
}
inline Array with_shape(Array a, Shape shape) {
  a.shape = std::move(shape);
  return a;
}
inline Array transposed(const Array& a, std::size_t d0, std::size_t d1) {
  Shape shape = a.shape;
  std::swap(shape[d0], shape[d1]);
  return picked(a, shape, [d0, d1](Shape i) {
    std::swap(i[d0], i[d1]);
    return i;
  });
}
/// Entries start … start + length - 1 of dim, every step-th.
inline Array sliced(const Array& a, std::size_t dim, std::int64_t start, std::int64_t length, std::int64_t step = 1) {
  Shape shape = a.shape;
  shape[dim] = length;
  return picked(a, shape, [=](Shape i) {
    i[dim] = start + i[dim] * step;
    return i;
  });
}
/// One sample per shape, one input each; the first `with_gradient` are used for gradients.
inline std::vector<Sample> shaped(const std::vector<Shape>& shapes, std::size_t with_gradient = 2) {
  std::vector<Sample> out;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    out.push_back({{uniform(shapes[i], -3, 3, static_cast<unsigned>(i + 1))}, i < with_gradient});
  return out;
}

}  // namespace athanor::op_table
