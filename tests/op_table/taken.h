#pragma once
/// References of ops that only move elements.

#include <optional>

#include "op_table/rows.h"

namespace athanor::op_table {

/// Where an element of the result comes from; nothing: it is 0.
using Place = std::function<std::optional<Shape>(const Shape& to)>;

/// The array of `shape` whose element `to` is in[place(to)].
inline Array taken(const Array& in, const Shape& shape, const Place& place) {
  Array out(shape);
  for (std::int64_t i = 0; i < out.numel(); ++i)
    if (const auto from = place(index_of(i, shape))) out[i] = in.at(*from);
  return out;
}

/// The same elements in row-major order in another shape.
inline Array reshaped(Array in, Shape shape) {
  in.shape = std::move(shape);
  return in;
}

/// Elements begin, begin + step, … before end along a dim.
inline Array cut(const Array& in, std::int64_t dim, std::int64_t begin, std::int64_t end, std::int64_t step = 1) {
  Shape shape = in.shape;
  const auto d = static_cast<std::size_t>(dim);
  shape[d] = (end - begin + step - 1) / step;
  return taken(in, shape, [=](Shape to) {
    to[d] = begin + to[d] * step;
    return to;
  });
}

/// A row of an op that moves elements of any dtype; is_view: every result shares the first input's storage.
inline Row moving_row(const char* name, const char* overload = "", bool is_view = true) {
  Row r{name, overload, kAll, same_type};
  r.gradient = true;
  r.is_view = is_view;
  return r;
}

/// A case with one result.
inline Case moving(std::string name, std::vector<Sample> samples, std::function<Tensor(const Tensors&)> call,
                   std::function<Array(const Arrays&)> reference) {
  return {std::move(name),
          std::move(samples),
          [call](const Tensors& x) { return Tensors{call(x)}; },
          [reference](const Arrays& in) { return Arrays{reference(in)}; },
          {},
          {}};
}

/// One sample of one input, with its gradient tried unless it has no elements.
inline Sample sample(const Shape& shape, unsigned seed = 1) {
  return {{uniform(shape, -4, 4, seed)}, numel_of(shape) > 0};
}

}  // namespace athanor::op_table
