#include "op_table/array.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

namespace athanor::op_table {

std::int64_t numel_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Array::Array(Shape s, double fill) : shape(std::move(s)), values(static_cast<std::size_t>(numel_of(shape)), fill) {}

Array::Array(Shape s, std::vector<double> v) : shape(std::move(s)), values(std::move(v)) {
  if (numel_of(shape) != numel()) throw std::logic_error("Array: shape and values do not agree");
}

std::int64_t Array::offset(const Shape& index) const {
  std::int64_t o = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) o = o * shape[d] + index[d];
  return o;
}

Shape index_of(std::int64_t i, const Shape& shape) {
  Shape index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0; i /= shape[d]) index[d] = i % shape[d];
  return index;
}

Shape broadcast(const std::vector<Shape>& shapes) {
  std::size_t n = 0;
  for (const Shape& s : shapes) n = std::max(n, s.size());
  Shape out(n, 1);
  for (const Shape& s : shapes)
    for (std::size_t d = 0; d < s.size(); ++d)
      if (s[s.size() - 1 - d] != 1) out[n - 1 - d] = s[s.size() - 1 - d];
  return out;
}

Array expanded(const Array& a, const Shape& shape) {
  Array out(shape);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const Shape to = index_of(i, shape);
    Shape from(a.shape.size());
    for (std::size_t d = 0; d < from.size(); ++d) from[d] = a.shape[d] == 1 ? 0 : to[to.size() - from.size() + d];
    out[i] = a.at(from);
  }
  return out;
}

Array map(const Arrays& in, const std::function<double(const Values&)>& fn) {
  std::vector<Shape> shapes;
  for (const Array& a : in) shapes.push_back(a.shape);
  Array out(broadcast(shapes));
  Arrays full;
  for (const Array& a : in) full.push_back(a.shape == out.shape ? a : expanded(a, out.shape));
  Values arguments(in.size());
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    for (std::size_t k = 0; k < in.size(); ++k) arguments[k] = full[k][i];
    out[i] = fn(arguments);
  }
  return out;
}

Array lines(const Array& a, std::int64_t dim, const std::function<Values(const Values&)>& fn) {
  if (a.shape.empty()) {
    const Values one = fn(a.values);
    return one.size() == 1 ? Array({}, one) : Array({static_cast<std::int64_t>(one.size())}, one);
  }
  const auto d = static_cast<std::size_t>(dim < 0 ? dim + a.dim() : dim);
  std::int64_t outer = 1, inner = 1;
  for (std::size_t k = 0; k < d; ++k) outer *= a.shape[k];
  for (std::size_t k = d + 1; k < a.shape.size(); ++k) inner *= a.shape[k];
  const std::int64_t n = a.shape[d];
  std::vector<Values> results;
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i) {
      Values line;
      for (std::int64_t k = 0; k < n; ++k) line.push_back(a[(o * n + k) * inner + i]);
      results.push_back(fn(line));
    }
  Array out;
  out.shape = a.shape;
  const auto m = results.empty() ? static_cast<std::int64_t>(fn(Values(static_cast<std::size_t>(n))).size())
                                 : static_cast<std::int64_t>(results[0].size());
  out.shape[d] = m;
  out.values.resize(static_cast<std::size_t>(numel_of(out.shape)));
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i)
      for (std::int64_t k = 0; k < m; ++k)
        out[(o * m + k) * inner + i] = results[static_cast<std::size_t>(o * inner + i)][static_cast<std::size_t>(k)];
  return out;
}

Array reduce(const Array& a, const Shape& dims, bool keepdim, const std::function<double(const Values&)>& fn) {
  std::vector<bool> gone(a.shape.size(), dims.empty());
  for (const std::int64_t d : dims)
    if (!a.shape.empty()) gone[static_cast<std::size_t>(d < 0 ? d + a.dim() : d)] = true;
  Shape kept = a.shape, dropped;
  for (std::size_t d = 0; d < gone.size(); ++d) {
    if (gone[d]) kept[d] = 1;
    if (!gone[d]) dropped.push_back(a.shape[d]);
  }
  Array place(kept);
  std::vector<Values> sets(place.values.size());
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    Shape index = index_of(i, a.shape);
    for (std::size_t d = 0; d < gone.size(); ++d)
      if (gone[d]) index[d] = 0;
    sets[static_cast<std::size_t>(place.offset(index))].push_back(a[i]);
  }
  for (std::int64_t i = 0; i < place.numel(); ++i) place[i] = fn(sets[static_cast<std::size_t>(i)]);
  if (!keepdim) place.shape = dropped;
  return place;
}

Array uniform(const Shape& shape, double low, double high, unsigned seed) {
  std::mt19937 numbers(seed);
  std::uniform_real_distribution<double> draw(low, high);
  Array a(shape);
  for (double& v : a.values) v = draw(numbers);
  return a;
}

Array integers(const Shape& shape, std::int64_t low, std::int64_t high, unsigned seed) {
  std::mt19937 numbers(seed);
  std::uniform_int_distribution<std::int64_t> draw(low, high);
  Array a(shape);
  for (double& v : a.values) v = static_cast<double>(draw(numbers));
  return a;
}

Array distinct(const Shape& shape, double step, unsigned seed) {
  Array a(shape);
  std::iota(a.values.begin(), a.values.end(), 0.0);
  std::mt19937 numbers(seed);
  std::shuffle(a.values.begin(), a.values.end(), numbers);
  const std::size_t half = a.values.size() / 2;
  const auto middle = static_cast<double>(half);
  for (double& v : a.values) v = (v - middle + 0.37) * step;
  return a;
}

Array special() {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const Values v = {nan, inf,   -inf,   0.0,  -0.0,  1,   -1,  0.5,  -0.5, 2,
                    -2,  60000, -60000, 1e-4, -1e-4, 1.5, 2.5, -1.5, 3,    -3};
  return Array({static_cast<std::int64_t>(v.size())}, v);
}

}  // namespace athanor::op_table
