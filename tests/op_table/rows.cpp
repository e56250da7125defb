#include "op_table/rows.h"

namespace athanor::op_table {

Row gradient_row_of(const char* name, const char* overload, DTypes dtypes, ResultType result) {
  Row r{name, overload, std::move(dtypes), std::move(result)};
  r.gradient = true;
  return r;
}

Case case_of(std::string name, std::vector<Sample> samples, std::function<Tensor(const Tensors&)> call,
             std::function<Array(const Arrays&)> reference) {
  return {std::move(name),
          std::move(samples),
          [call](const Tensors& x) { return Tensors{call(x)}; },
          [reference](const Arrays& in) { return Arrays{reference(in)}; },
          {},
          {}};
}

Array picked(const Array& a, const Shape& shape, const std::function<Shape(const Shape&)>& from) {
  Array out(shape);
  for (std::int64_t i = 0; i < out.numel(); ++i) out[i] = a.at(from(index_of(i, shape)));
  return out;
}
Array with_shape(Array a, Shape shape) {
  a.shape = std::move(shape);
  return a;
}
Array transposed(const Array& a, std::size_t d0, std::size_t d1) {
  Shape shape = a.shape;
  std::swap(shape[d0], shape[d1]);
  return picked(a, shape, [d0, d1](Shape i) {
    std::swap(i[d0], i[d1]);
    return i;
  });
}
Array sliced(const Array& a, std::size_t dim, std::int64_t start, std::int64_t length, std::int64_t step) {
  Shape shape = a.shape;
  shape[dim] = length;
  return picked(a, shape, [=](Shape i) {
    i[dim] = start + i[dim] * step;
    return i;
  });
}
std::vector<Sample> shaped(const std::vector<Shape>& shapes, std::size_t with_gradient) {
  std::vector<Sample> out;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    out.push_back({{uniform(shapes[i], -3, 3, static_cast<unsigned>(i + 1))}, i < with_gradient});
  return out;
}

}  // namespace athanor::op_table
