#pragma once
/// Array: a plain row-major float64 array, and the naive loops that references are written with.

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace athanor::op_table {

using Shape = std::vector<std::int64_t>;

struct Array {
  Shape shape;
  std::vector<double> values;

  Array() = default;
  explicit Array(Shape s, double fill = 0);
  Array(Shape s, std::vector<double> v);
  std::int64_t numel() const { return static_cast<std::int64_t>(values.size()); }
  std::int64_t dim() const { return static_cast<std::int64_t>(shape.size()); }
  double& operator[](std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
  double operator[](std::int64_t i) const { return values[static_cast<std::size_t>(i)]; }
  double& at(const Shape& index) { return values[static_cast<std::size_t>(offset(index))]; }
  double at(const Shape& index) const { return values[static_cast<std::size_t>(offset(index))]; }
  std::int64_t offset(const Shape& index) const;
};

using Arrays = std::vector<Array>;

std::int64_t numel_of(const Shape& shape);
/// The index of element i in row-major order.
Shape index_of(std::int64_t i, const Shape& shape);
/// The common shape of all under broadcasting.
Shape broadcast(const std::vector<Shape>& shapes);
/// The array repeated to `shape`.
Array expanded(const Array& a, const Shape& shape);

using Values = std::vector<double>;

/// fn of the corresponding elements of all arrays, broadcast.
Array map(const Arrays& in, const std::function<double(const Values&)>& fn);
/// fn of every line along dim (negative dims count from the end); fn returns a line of any length, the same for all.
Array lines(const Array& a, std::int64_t dim, const std::function<Values(const Values&)>& fn);
/// fn of the elements that share all indices but those of dims (row-major order); dims dropped unless keepdim. Empty
/// dims mean all.
Array reduce(const Array& a, const Shape& dims, bool keepdim, const std::function<double(const Values&)>& fn);

/// Deterministic sample values.
Array uniform(const Shape& shape, double low, double high, unsigned seed = 1);
/// Integers low … high.
Array integers(const Shape& shape, std::int64_t low, std::int64_t high, unsigned seed = 1);
/// Well separated values in random order: no ties, no near-ties.
Array distinct(const Shape& shape, double step = 0.25, unsigned seed = 1);
/// NaN, infinities, zeros of both signs, huge and tiny numbers.
Array special();

}  // namespace athanor::op_table
