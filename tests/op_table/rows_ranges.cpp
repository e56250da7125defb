// Tensors made from a rule, and grids of them. The first input only says dtype and device.
#include "op_table/taken.h"

namespace athanor::op_table {

namespace {

std::vector<Sample> dtype_only() { return {{{Array({}, 0.0)}, false}}; }

Row made_row(const char* name, const char* overload, DTypes dtypes) {
  Row r{name, overload, std::move(dtypes), same_type};
  r.gradient = false;
  return r;
}

Case made(std::string name, std::function<Tensor(const TensorOptions&)> call, Array expected) {
  return moving(
      std::move(name), dtype_only(), [call](const Tensors& x) { return call(x[0].options()); },
      [expected](const Arrays&) { return expected; });
}

Array arithmetic(double start, double step, std::int64_t n) {
  Array a({n});
  for (std::int64_t i = 0; i < n; ++i) a[i] = start + step * static_cast<double>(i);
  return a;
}

void add_aranges() {
  Row r = made_row("arange", "", kNumbers);
  r.cases = {made(
                 "some", [](const TensorOptions& o) { return arange(100, o); }, arithmetic(0, 1, 100)),
             made(
                 "none", [](const TensorOptions& o) { return arange(0, o); }, arithmetic(0, 1, 0))};
  r.refusals = {{"a negative end", [] { arange(-1); }, "inconsistent with step sign"},
                {"an end that is not a number", [] { arange(NAN); }, "unsupported range"},
                {"an endless range", [] { arange(INFINITY); }, "unsupported range"},
                {"more elements than can be counted", [] { arange(1e30); }, "invalid size"},
                {"bool", [] { arange(2, kBool); }, "not implemented for 'Bool'"}};
  add_row(r);

  r = made_row("arange", "start", kNumbers);
  r.cases = {made(
                 "", [](const TensorOptions& o) { return arange(3, 60, o); }, arithmetic(3, 1, 57)),
             made(
                 "none", [](const TensorOptions& o) { return arange(3, 3, o); }, arithmetic(0, 1, 0))};
  r.refusals = {{"an end before the start", [] { arange(3, 2); }, "3 -> 2 by 1"}};
  add_row(r);

  r = made_row("arange", "start_step", kNumbers);
  r.cases = {made(
                 "up", [](const TensorOptions& o) { return arange(3, 60, 7, o); }, arithmetic(3, 7, 9)),
             made(
                 "down", [](const TensorOptions& o) { return arange(60, 3, -7, o); }, arithmetic(60, -7, 9)),
             made(
                 "end reached", [](const TensorOptions& o) { return arange(0, 9, 3, o); }, arithmetic(0, 3, 3))};
  add_row(r);
}

void add_spaces() {
  Row r = made_row("linspace", "", kNumbers);
  r.cases = {made(
                 "", [](const TensorOptions& o) { return linspace(0, 96, 5, o); }, arithmetic(0, 24, 5)),
             made(
                 "one", [](const TensorOptions& o) { return linspace(7, 9, 1, o); }, arithmetic(7, 0, 1)),
             made(
                 "none", [](const TensorOptions& o) { return linspace(7, 9, 0, o); }, arithmetic(0, 0, 0)),
             made(
                 "falling", [](const TensorOptions& o) { return linspace(10, 0, 11, o); }, arithmetic(10, -1, 11))};
  r.refusals = {{"negative steps", [] { linspace(0, 1, -1); }, "non-negative, got -1"},
                {"an end that the dtype does not hold", [] { linspace(0, 256, 3, kByte); }, "without overflow"}};
  add_row(r);

  r = made_row("logspace", "", kNumbers);
  r.cases = {
      made(
          "", [](const TensorOptions& o) { return logspace(0, 2, 3, 10, o); }, Array({3}, {1.0, 10.0, 100.0})),
      made(
          "base 2", [](const TensorOptions& o) { return logspace(6, 0, 3, 2, o); }, Array({3}, {64.0, 8.0, 1.0})),
      made(
          "none", [](const TensorOptions& o) { return logspace(0, 1, 0, 2, o); }, Array({0}, Values{}))};
  r.refusals = {{"negative steps", [] { logspace(0, 1, -1); }, "non-negative, got -1"}};
  add_row(r);
}

Array identity(std::int64_t n, std::int64_t m) {
  Array a({n, m});
  for (std::int64_t i = 0; i < std::min(n, m); ++i) a.at({i, i}) = 1;
  return a;
}

void add_eyes() {
  Row r = made_row("eye", "", kAll);
  r.cases = {made(
                 "", [](const TensorOptions& o) { return eye(4, o); }, identity(4, 4)),
             made(
                 "none", [](const TensorOptions& o) { return eye(0, o); }, identity(0, 0))};
  r.refusals = {{"a negative size", [] { eye(-2); }, "n must be greater or equal to 0, got -2"}};
  add_row(r);
  r = made_row("eye", "m", kAll);
  r.cases = {made(
                 "wide", [](const TensorOptions& o) { return eye(2, 5, o); }, identity(2, 5)),
             made(
                 "tall", [](const TensorOptions& o) { return eye(5, 2, o); }, identity(5, 2)),
             made(
                 "no columns", [](const TensorOptions& o) { return eye(5, 0, o); }, identity(5, 0))};
  r.refusals = {{"a negative size", [] { eye(2, -1); }, "m must be greater or equal to 0, got -1"}};
  add_row(r);
}

Array triangle(std::int64_t rows, std::int64_t columns, std::int64_t offset, bool upper) {
  Values i_of, j_of;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      if (upper ? j - i >= offset : j - i <= offset) {
        i_of.push_back(static_cast<double>(i));
        j_of.push_back(static_cast<double>(j));
      }
  const auto n = static_cast<std::int64_t>(i_of.size());
  i_of.insert(i_of.end(), j_of.begin(), j_of.end());
  return Array({2, n}, i_of);
}

template <class F>
void add_triangle(const char* name, F fn, bool upper) {
  Row r = made_row(name, "", {kInt, kLong});
  for (const auto& [rows, columns] : {std::pair{3, 4}, {4, 3}, {1, 1}, {0, 3}, {3, 0}, {37, 21}})
    for (const int offset : {0, 1, -1, 3, -3, 50, -50}) {
      const std::int64_t n = rows, m = columns, k = offset;
      r.cases.push_back(made(
          detail::str(n, " by ", m, ", offset ", k), [=](const TensorOptions& o) { return fn(n, m, k, o); },
          triangle(n, m, k, upper)));
    }
  r.refusals = {{"negative rows", [=] { fn(-1, 2, 0, kLong); }, "row must be non-negative, got -1"},
                {"negative columns", [=] { fn(1, -2, 0, kLong); }, "col must be non-negative, got -2"}};
  add_row(r);
}

void add_empties() {
  // What they hold is not defined, so it is filled.
  Row r = made_row("empty_permuted", "", kAll);
  r.cases = {made(
      "",
      [](const TensorOptions& o) {
        return empty_permuted({2, 3, 4}, {2, 0, 1}, o).fill_(1);
      },
      Array({2, 3, 4}, 1.0))};
  r.refusals = {{"a repeated dim",
                 [] {
                   empty_permuted({2, 3}, {0, 0});
                 },
                 "Duplicate dim"},
                {"too few dims",
                 [] {
                   empty_permuted({2, 3}, {0});
                 },
                 "len(size) = 2"},
                {"a dim out of range",
                 [] {
                   empty_permuted({2, 3}, {0, 2});
                 },
                 "got 2 at index 1"}};
  add_row(r);
  r = made_row("new_empty_strided", "", kAll);
  r.cases = {moving(
      "", dtype_only(),
      [](const Tensors& x) {
        return x[0].new_empty_strided({2, 3}, {1, 2}).fill_(1);
      },
      [](const Arrays&) {
        return Array({2, 3}, 1.0);
      })};
  r.refusals = {{"a negative stride", [] { ones({1}).new_empty_strided({2}, {-1}); }, "negative strides"},
                {"more strides than sizes",
                 [] {
                   ones({1}).new_empty_strided({2}, {1, 1});
                 },
                 "1 sizes and 2 strides"}};
  add_row(r);
}

std::vector<Sample> vectors() {
  return {{{uniform({2}, -4, 4), uniform({3}, -4, 4, 2), uniform({}, -4, 4, 3)}},
          {{uniform({0}, -4, 4), uniform({3}, -4, 4, 2), uniform({2}, -4, 4, 3)}, false}};
}

/// Coordinate k of a grid of the inputs; with_xy exchanges the first two dims.
Arrays grid(const Arrays& in, bool with_xy) {
  Shape shape;
  for (const Array& a : in) shape.push_back(a.numel());
  if (with_xy) std::swap(shape[0], shape[1]);
  Arrays out;
  for (std::size_t k = 0; k < in.size(); ++k) {
    const std::size_t d = with_xy && k < 2 ? 1 - k : k;
    out.push_back(taken(reshaped(in[k], {in[k].numel()}), shape, [d](const Shape& to) { return Shape{to[d]}; }));
  }
  return out;
}

void add_grids() {
  Row r = moving_row("meshgrid", "", false);
  r.cases = {{"",
              vectors(),
              [](const Tensors& x) { return meshgrid(x); },
              [](const Arrays& in) { return grid(in, false); },
              {},
              {}}};
  r.refusals = {{"no tensors", [] { meshgrid(Tensors{}); }, "non-empty"},
                {"a matrix",
                 [] {
                   meshgrid(Tensors{ones({2, 2})});
                 },
                 "got shape [2, 2]"},
                {"several dtypes",
                 [] {
                   meshgrid(Tensors{ones({2}), arange(2)});
                 },
                 "same dtype"}};
  add_row(r);
  r = moving_row("meshgrid", "indexing", false);
  r.cases = {{"ij",
              vectors(),
              [](const Tensors& x) { return meshgrid(x, "ij"); },
              [](const Arrays& in) { return grid(in, false); },
              {},
              {}},
             {"xy",
              vectors(),
              [](const Tensors& x) { return meshgrid(x, "xy"); },
              [](const Arrays& in) { return grid(in, true); },
              {},
              {}}};
  r.refusals = {{"an unknown indexing", [] { meshgrid(Tensors{ones({2})}, "yx"); }, "received: yx"}};
  add_row(r);

  r = moving_row("cartesian_prod", "", false);
  r.cases = {moving(
                 "three", {{{uniform({2}, -4, 4), uniform({3}, -4, 4, 2), uniform({2}, -4, 4, 3)}}},
                 [](const Tensors& x) { return cartesian_prod(x); },
                 [](const Arrays& in) {
                   Array out({12, 3});
                   for (std::int64_t i = 0; i < 12; ++i) {
                     out.at({i, 0}) = in[0][i / 6];
                     out.at({i, 1}) = in[1][i / 2 % 3];
                     out.at({i, 2}) = in[2][i % 2];
                   }
                   return out;
                 }),
             moving(
                 "one", {sample({3})}, [](const Tensors& x) { return cartesian_prod(x); },
                 [](const Arrays& in) { return in[0]; })};
  r.refusals = {{"a matrix", [] { cartesian_prod(Tensors{ones({2, 2})}); }, "got shape [2, 2]"}};
  add_row(r);

  r = moving_row("combinations", "", false);
  auto pairs = [](bool repeat) {
    return [repeat](const Arrays& in) {
      Values v;
      for (std::int64_t i = 0; i < in[0].numel(); ++i)
        for (std::int64_t j = repeat ? i : i + 1; j < in[0].numel(); ++j) {
          v.push_back(in[0][i]);
          v.push_back(in[0][j]);
        }
      return Array({static_cast<std::int64_t>(v.size() / 2), 2}, v);
    };
  };
  const std::vector<Sample> s = {sample({4}), {{uniform({1}, -4, 4)}, false}, {{uniform({0}, -4, 4)}, false}};
  r.cases = {
      moving(
          "pairs", s, [](const Tensors& x) { return combinations(x[0]); }, pairs(false)),
      moving(
          "pairs with replacement", s, [](const Tensors& x) { return combinations(x[0], 2, true); }, pairs(true)),
      moving(
          "all of three", {sample({3})}, [](const Tensors& x) { return combinations(x[0], 3); },
          [](const Arrays& in) {
            return reshaped(in[0], {1, 3});
          })};
  r.refusals = {{"a negative count", [] { combinations(ones({2}), -1); }, "got -1"},
                {"a matrix",
                 [] {
                   combinations(ones({2, 2}));
                 },
                 "got shape [2, 2]"}};
  add_row(r);
}

const bool added_ranges = [] {
  add_aranges();
  add_spaces();
  add_eyes();
  add_triangle(
      "tril_indices", [](auto... a) { return tril_indices(a...); }, false);
  add_triangle(
      "triu_indices", [](auto... a) { return triu_indices(a...); }, true);
  add_empties();
  add_grids();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
