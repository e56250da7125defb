// Reading and writing by index.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

std::size_t axis(const Array& a, std::int64_t dim) { return static_cast<std::size_t>(dim < 0 ? dim + a.dim() : dim); }
std::int64_t wrapped(double i, std::int64_t n) { return static_cast<std::int64_t>(i) + (i < 0 ? n : 0); }

/// self and an int64 index (and more of self's dtype).
Sample indexed(const Shape& self, Array index, const std::vector<Shape>& more = {}, bool gradient = true) {
  Sample s{{uniform(self, -3, 3), Input(std::move(index), kLong)}, gradient};
  for (std::size_t i = 0; i < more.size(); ++i)
    s.inputs.emplace_back(uniform(more[i], -3, 3, static_cast<unsigned>(i + 7)));
  return s;
}

/// fn(out element, source element's index) for every entry of a 1-d index along dim.
Array along(const Arrays& in, std::int64_t dim, const std::function<void(double& at, const Shape& from)>& fn) {
  Array out = in[0];
  const std::size_t d = axis(out, dim);
  Shape s = out.shape;
  s[d] = in[1].numel();
  for (std::int64_t i = 0; i < numel_of(s); ++i) {
    const Shape from = index_of(i, s);
    Shape to = from;
    to[d] = wrapped(in[1][from[d]], out.shape[d]);
    fn(out.at(to), from);
  }
  return out;
}

void add_along_dim() {
  Row r = gradient_row_of("index_select", "", kAll);
  const Array repeated({4}, {2, 0, 2, 1});
  for (const std::int64_t dim : {1, 0}) {
    Case c = case_of(
        "dim " + std::to_string(dim),
        {indexed({3, 3}, repeated), indexed({3, 3, 2}, repeated), indexed({3, 3}, Array({0}), {}, false),
         indexed({41, 41}, integers({67}, 0, 40), {}, false), indexed({3, 3}, Array({}, 1), {}, false)},
        [=](const Tensors& x) { return x[0].index_select(dim, x[1]); },
        [=](const Arrays& in) {
          const auto d = static_cast<std::size_t>(dim);
          Shape s = in[0].shape;
          s[d] = in[1].numel();
          return picked(in[0], s, [&](Shape i) {
            i[d] = static_cast<std::int64_t>(in[1][i[d]]);
            return i;
          });
        });
    c.out = [=](Tensor& o, const Tensors& x) { index_select_out(o, x[0], dim, x[1]); };
    r.cases.push_back(c);
  }
  r.refusals = {{"an index out of range", [] { ones({2}).index_select(0, full({1}, 2, kLong)); }, "out of bounds"},
                {"a matrix as index",
                 [] {
                   ones({2}).index_select(0, ones({1, 1}, kLong));
                 },
                 "supposed to be a vector"},
                {"a floating index", [] { ones({2}).index_select(0, ones({1})); }, "int32/int64"}};
  add_row(r);

  const Array no_repeats({2}, {2, 0});
  r = gradient_row_of("index_add", "", kAll);
  for (const std::int64_t alpha : {1, 2}) {
    Case c = case_of(
        "alpha " + std::to_string(alpha),
        {indexed({2, 3}, repeated, {{2, 4}}), indexed({2, 3, 2}, repeated, {{2, 4, 2}}),
         indexed({2, 3}, Array({0}), {{2, 0}}, false), indexed({5, 41}, integers({67}, 0, 40), {{5, 67}}, false)},
        [=](const Tensors& x) { return x[0].index_add(1, x[1], x[2], alpha); },
        [=](const Arrays& in) {
          return along(in, 1,
                       [&](double& at, const Shape& from) { at += static_cast<double>(alpha) * in[2].at(from); });
        });
    c.inplace = [=](Tensor& self, const Tensors& x) { self.index_add_(1, x[1], x[2], alpha); };
    c.out = [=](Tensor& o, const Tensors& x) { index_add_out(o, x[0], 1, x[1], x[2], alpha); };
    r.cases.push_back(c);
  }
  r.tolerance = 4;
  r.absolute = 20;
  r.refusals = {
      {"another number of indices", [] { ones({3}).index_add(0, ones({2}, kLong), ones({3})); },
       "Number of indices (2)"},
      {"an index out of range", [] { ones({3}).index_add(0, full({1}, 3, kLong), ones({1})); }, "out of bounds"},
      {"another dtype", [] { ones({3}).index_add(0, ones({1}, kLong), ones({1}, kDouble)); }, "same dtype"}};
  add_row(r);

  r = gradient_row_of("index_copy", "", kAll);
  r.cases = {case_of(
      "",
      {indexed({2, 3}, no_repeats, {{2, 2}}), indexed({2, 3, 2}, no_repeats, {{2, 2, 2}}),
       indexed({2, 3}, Array({0}), {{2, 0}}, false)},
      [](const Tensors& x) { return x[0].index_copy(1, x[1], x[2]); },
      [](const Arrays& in) { return along(in, 1, [&](double& at, const Shape& from) { at = in[2].at(from); }); })};
  r.cases[0].inplace = [](Tensor& self, const Tensors& x) { self.index_copy_(1, x[1], x[2]); };
  r.refusals = {
      {"an index out of range", [] { ones({3}).index_copy(0, full({1}, 3, kLong), ones({1})); }, "out of bounds"},
      {"another dtype", [] { ones({3}).index_copy(0, ones({1}, kLong), ones({1}, kLong)); }, "same dtype"}};
  add_row(r);

  r = gradient_row_of("index_fill", "", kAll);
  r.cases = {case_of(
      "",
      {indexed({2, 3}, no_repeats), indexed({2, 3, 2}, Array({3}, {-1, 1, 1})), indexed({2, 3}, Array({0}), {}, false)},
      [](const Tensors& x) { return x[0].index_fill(1, x[1], 7); },
      [](const Arrays& in) { return along(in, 1, [](double& at, const Shape&) { at = 7; }); })};
  r.cases[0].inplace = [](Tensor& self, const Tensors& x) { self.index_fill_(1, x[1], 7); };
  r.refusals = {{"an index out of range", [] { ones({3}).index_fill(0, full({1}, 3, kLong), 1); }, "out of bounds"}};
  add_row(r);
}

/// For every element of index along dim: fn(self element named by it, index of the index's element).
Array scattered(const Arrays& in, std::int64_t dim, const std::function<void(double& at, const Shape& from)>& fn) {
  Array out = in[0];
  const std::size_t d = axis(out, dim);
  for (std::int64_t i = 0; i < in[1].numel(); ++i) {
    const Shape from = index_of(i, in[1].shape);
    Shape to = from;
    to[d] = static_cast<std::int64_t>(in[1][i]);
    fn(out.at(to), from);
  }
  return out;
}

void add_gather_scatter() {
  const Array some({2, 4}, {2, 0, 2, 1, 1, 1, 0, 2}), once({2, 2}, {2, 0, 1, 2});
  const Array large = integers({11, 67}, 0, 40);
  Row r = gradient_row_of("gather", "", kAll);
  Case c = case_of(
      "",
      {indexed({2, 3}, some), indexed({3, 3, 2}, integers({2, 4, 2}, 0, 2)), indexed({2, 3}, Array({0, 2}), {}, false),
       indexed({2, 3}, Array({2, 0}), {}, false), indexed({11, 41}, large, {}, false)},
      [](const Tensors& x) { return x[0].gather(1, x[1]); },
      [](const Arrays& in) {
        return picked(in[0], in[1].shape, [&](Shape i) {
          i[1] = static_cast<std::int64_t>(in[1].at(i));
          return i;
        });
      });
  c.out = [](Tensor& o, const Tensors& x) { gather_out(o, x[0], 1, x[1]); };
  r.cases = {c, case_of(
                    "0-d", {indexed({}, Array({}, Values{0}))}, [](const Tensors& x) { return x[0].gather(0, x[1]); },
                    [](const Arrays& in) { return in[0]; })};
  r.refusals = {{"an index out of range", [] { ones({2}).gather(0, full({1}, 2, kLong)); }, "out of bounds"},
                {"another number of dims",
                 [] {
                   ones({2}).gather(0, ones({1, 1}, kLong));
                 },
                 "same number of dimensions"},
                {"a floating index", [] { ones({2}).gather(0, ones({1})); }, "int32/int64"}};
  add_row(r);

  auto three = [&](const char* name, const Array& index, std::function<Tensor(const Tensors&)> call,
                   std::function<Array(const Arrays&)> ref, std::function<void(Tensor&, const Tensors&)> in,
                   std::function<void(Tensor&, const Tensors&)> out) {
    Row row = gradient_row_of(name, "", kAll);
    row.tolerance = 4;
    row.absolute = 20;
    row.cases = {case_of("",
                         {indexed({2, 3}, index, {index.shape}), indexed({2, 3}, Array({2, 1}, {1, 0}), {{2, 3}}),
                          indexed({2, 3}, Array({0, 2}), {{2, 2}}, false)},
                         std::move(call), std::move(ref))};
    row.cases[0].inplace = std::move(in);
    row.cases[0].out = std::move(out);
    row.refusals = {
        {"an index out of range", [] { ones({2}).scatter(0, full({1}, 2, kLong), ones({1})); }, "out of bounds"},
        {"another dtype", [] { ones({2}).scatter(0, ones({1}, kLong), ones({1}, kDouble)); }, "same dtype"},
        {"a larger index",
         [] {
           ones({2, 2}).scatter(0, ones({2, 3}, kLong), ones({2, 3}));
         },
         "to be smaller"}};
    return row;
  };
  add_row(three(
      "scatter", once, [](const Tensors& x) { return x[0].scatter(1, x[1], x[2]); },
      [](const Arrays& in) { return scattered(in, 1, [&](double& at, const Shape& from) { at = in[2].at(from); }); },
      [](Tensor& self, const Tensors& x) { self.scatter_(1, x[1], x[2]); },
      [](Tensor& o, const Tensors& x) { scatter_out(o, x[0], 1, x[1], x[2]); }));
  r = three(
      "scatter_add", some, [](const Tensors& x) { return x[0].scatter_add(1, x[1], x[2]); },
      [](const Arrays& in) { return scattered(in, 1, [&](double& at, const Shape& from) { at += in[2].at(from); }); },
      [](Tensor& self, const Tensors& x) { self.scatter_add_(1, x[1], x[2]); },
      [](Tensor& o, const Tensors& x) { scatter_add_out(o, x[0], 1, x[1], x[2]); });
  r.cases[0].samples.push_back(indexed({11, 41}, large, {{11, 67}}, false));
  add_row(r);
  r = gradient_row_of("scatter", "value", kAll);
  r.cases = {case_of(
      "",
      {indexed({2, 3}, some), indexed({3, 3, 2}, integers({2, 4, 2}, 0, 2)), indexed({2, 3}, Array({0, 2}), {}, false)},
      [](const Tensors& x) { return x[0].scatter(1, x[1], 7); },
      [](const Arrays& in) { return scattered(in, 1, [](double& at, const Shape&) { at = 7; }); })};
  r.cases[0].inplace = [](Tensor& self, const Tensors& x) { self.scatter_(1, x[1], 7); };
  r.refusals = {{"an index out of range", [] { ones({2}).scatter(0, full({1}, 2, kLong), 1); }, "out of bounds"}};
  add_row(r);

  r = gradient_row_of("take_along_dim", "", kAll);
  r.cases = {case_of(
                 "dim", {indexed({2, 3}, some), indexed({1, 3}, some), indexed({2, 3}, Array({1, 2}, {2, 0}))},
                 [](const Tensors& x) { return x[0].take_along_dim(x[1], 1); },
                 [](const Arrays& in) {
                   const std::int64_t rows = std::max(in[0].shape[0], in[1].shape[0]);
                   const Array self = expanded(in[0], {rows, in[0].shape[1]});
                   const Array index = expanded(in[1], {rows, in[1].shape[1]});
                   return picked(self, index.shape, [&](Shape i) {
                     i[1] = static_cast<std::int64_t>(index.at(i));
                     return i;
                   });
                 }),
             case_of(
                 "flattened", {indexed({2, 3}, Array({2, 2}, {5, 0, 1, 5}))},
                 [](const Tensors& x) { return x[0].take_along_dim(x[1]); },
                 [](const Arrays& in) {
                   Array out({in[1].numel()});
                   for (std::int64_t i = 0; i < out.numel(); ++i) out[i] = in[0][static_cast<std::int64_t>(in[1][i])];
                   return out;
                 })};
  r.refusals = {{"another number of dims",
                 [] {
                   ones({2}).take_along_dim(ones({1, 1}, kLong), 0);
                 },
                 "same number of dimensions"}};
  add_row(r);

  r = gradient_row_of("take", "", kAll);
  const Array places({2, 2}, {5, 0, -1, 5});
  c = case_of(
      "", {indexed({2, 3}, places), indexed({6}, Array({}, 2)), indexed({2, 3}, Array({0}), {}, false)},
      [](const Tensors& x) { return x[0].take(x[1]); },
      [](const Arrays& in) {
        return map({in[1]}, [&](const Values& v) { return in[0][wrapped(v[0], in[0].numel())]; });
      });
  c.out = [](Tensor& o, const Tensors& x) { take_out(o, x[0], x[1]); };
  r.cases = {c};
  r.refusals = {{"an index out of range", [] { ones({2}).take(full({1}, 2, kLong)); }, "out of range"}};
  add_row(r);
  r = gradient_row_of("put", "", kAll);
  r.tolerance = 4;
  r.absolute = 20;
  for (const bool add : {false, true}) {
    c = case_of(
        add ? "accumulated" : "",
        {indexed({2, 3}, add ? places : Array({2, 2}, {5, 0, -2, 1}), {{4}}), indexed({6}, Array({}, 2), {{}}),
         indexed({2, 3}, Array({0}), {{0}}, false)},
        [=](const Tensors& x) { return x[0].put(x[1], x[2], add); },
        [=](const Arrays& in) {
          Array out = in[0];
          for (std::int64_t i = 0; i < in[1].numel(); ++i) {
            double& at = out[wrapped(in[1][i], out.numel())];
            at = in[2][i] + (add ? at : 0);
          }
          return out;
        });
    c.inplace = [=](Tensor& self, const Tensors& x) { self.put_(x[1], x[2], add); };
    r.cases.push_back(c);
  }
  r.refusals = {
      {"another number of values", [] { ones({2}).put(zeros({1}, kLong), ones({2})); }, "same number of elements"},
      {"an index out of range", [] { ones({2}).put(full({1}, 2, kLong), ones({1})); }, "out of range"}};
  add_row(r);
}

Sample masked(const Shape& self, const Shape& mask, const std::vector<Shape>& more = {}, bool gradient = true) {
  Sample s{{uniform(self, -3, 3), Input(integers(mask, 0, 1, 3), kBool)}, gradient};
  for (const Shape& m : more) s.inputs.emplace_back(uniform(m, -3, 3, 9));
  return s;
}

void add_masks() {
  const std::vector<Sample> plain = {masked({2, 3}, {2, 3}), masked({2, 3}, {3}), masked({}, {}),
                                     masked({0, 3}, {3}, {}, false), masked({37, 41}, {37, 1}, {}, false)};
  Row r = gradient_row_of("masked_fill", "", kAll);
  r.cases = {case_of(
      "", plain, [](const Tensors& x) { return x[0].masked_fill(x[1], 7); },
      [](const Arrays& in) { return map(in, [](const Values& v) { return v[1] != 0 ? 7 : v[0]; }); })};
  r.cases[0].inplace = [](Tensor& self, const Tensors& x) { self.masked_fill_(x[1], 7); };
  r.refusals = {{"a mask that is not bool", [] { ones({2}).masked_fill(ones({2}), 1); }, "boolean masks"}};
  add_row(r);
  r = gradient_row_of("masked_fill", "Tensor", kAll);
  r.cases = {case_of(
      "", {masked({2, 3}, {2, 3}, {{}}), masked({2, 3}, {3}, {{}}), masked({0, 3}, {3}, {{}}, false)},
      [](const Tensors& x) { return x[0].masked_fill(x[1], x[2]); },
      [](const Arrays& in) { return map(in, [](const Values& v) { return v[1] != 0 ? v[2] : v[0]; }); })};
  r.cases[0].inplace = [](Tensor& self, const Tensors& x) { self.masked_fill_(x[1], x[2]); };
  r.refusals = {
      {"a value with dims", [] { ones({2}).masked_fill(ones({2}, kBool), ones({2})); }, "0-dimensional value"}};
  add_row(r);
  r = gradient_row_of("masked_select", "", kAll);
  Case c = case_of(
      "",
      {masked({2, 3}, {2, 3}), masked({2, 3}, {3}), masked({3}, {2, 1}), masked({0, 3}, {3}, {}, false),
       masked({37, 41}, {37, 1}, {}, false)},
      [](const Tensors& x) { return x[0].masked_select(x[1]); },
      [](const Arrays& in) {
        const Shape common = broadcast({in[0].shape, in[1].shape});
        const Array self = expanded(in[0], common), mask = expanded(in[1], common);
        Array out(Shape{0});
        for (std::int64_t i = 0; i < self.numel(); ++i)
          if (mask[i] != 0) out.values.push_back(self[i]);
        out.shape = {static_cast<std::int64_t>(out.values.size())};
        return out;
      });
  c.out = [](Tensor& o, const Tensors& x) { masked_select_out(o, x[0], x[1]); };
  r.cases = {c};
  r.refusals = {{"a mask that is not bool", [] { ones({2}).masked_select(ones({2})); }, "BoolTensor"}};
  add_row(r);
  r = gradient_row_of("masked_scatter", "", kAll);
  r.cases = {case_of(
      "", {masked({2, 3}, {2, 3}, {{6}}), masked({2, 3}, {3}, {{4, 2}}), masked({37, 41}, {37, 1}, {{1600}}, false)},
      [](const Tensors& x) { return x[0].masked_scatter(x[1], x[2]); },
      [](const Arrays& in) {
        Array out = in[0];
        const Array mask = expanded(in[1], out.shape);
        std::int64_t next = 0;
        for (std::int64_t i = 0; i < out.numel(); ++i)
          if (mask[i] != 0) out[i] = in[2][next++];
        return out;
      })};
  r.cases[0].inplace = [](Tensor& self, const Tensors& x) { self.masked_scatter_(x[1], x[2]); };
  r.refusals = {{"too few values", [] { ones({3}).masked_scatter(ones({3}, kBool), ones({2})); }, "masked_scatter"}};
  add_row(r);

  auto places = [](const Arrays& in) {
    Array out({0, in[0].dim()});
    for (std::int64_t i = 0; i < in[0].numel(); ++i)
      if (in[0][i] != 0) {
        for (const std::int64_t k : index_of(i, in[0].shape)) out.values.push_back(static_cast<double>(k));
        ++out.shape[0];
      }
    return out;
  };
  const std::vector<Sample> zeros_among = {{{integers({2, 3}, 0, 1)}}, {{integers({7, 5, 11}, 0, 1)}},
                                           {{Array({}, 1)}},           {{Array({}, Values{0})}},
                                           {{Array({0, 3})}},          {{integers({301}, 0, 1)}}};
  for (const bool is_nonzero : {true, false}) {
    r = Row{is_nonzero ? "nonzero" : "argwhere", "", kAll, long_type};
    r.cases = {case_of(
        "", zeros_among, [=](const Tensors& x) { return is_nonzero ? x[0].nonzero() : x[0].argwhere(); }, places)};
    add_row(r);
  }
  r = Row{"nonzero_numpy", "", kAll, long_type};
  r.cases = {{"",
              {{{integers({2, 3}, 0, 1)}}, {{integers({7, 5, 11}, 0, 1)}}, {{Array({0, 3})}}},
              [](const Tensors& x) { return x[0].nonzero_numpy(); },
              [=](const Arrays& in) {
                const Array rows = places(in);
                Arrays out;
                for (std::int64_t d = 0; d < in[0].dim(); ++d)
                  out.push_back(picked(rows, {rows.shape[0]}, [&](const Shape& i) { return Shape{i[0], d}; }));
                return out;
              },
              {},
              {}}};
  add_row(r);
}

void add_advanced() {
  // self[index 1, :, index 2] with indices that broadcast, and self[:, index].
  const Array rows({2, 1}, {2, 0}), columns({3}, {1, -1, 0});
  auto with_two = [&](bool gradient, const std::vector<Shape>& more = {}) {
    Sample s{{uniform({3, 2, 2}, -3, 3), Input(rows, kLong), Input(columns, kLong)}, gradient};
    for (const Shape& m : more) s.inputs.emplace_back(uniform(m, -3, 3, 4));
    return s;
  };
  auto place = [](const Arrays& in, const Shape& i) {  // i: 2, 3, 2
    return Shape{wrapped(in[1][i[0]], 3), i[2], wrapped(in[2][i[1]], 2)};
  };
  Row r = gradient_row_of("index_with", "", kAll);
  r.cases = {case_of(
                 "two indices apart", {with_two(true)},
                 [](const Tensors& x) {
                   return index_with(x[0], Tensors{x[1], Tensor(), x[2]});
                 },
                 [=](const Arrays& in) {
                   return picked(in[0], {2, 3, 2}, [&](const Shape& i) { return place(in, i); });
                 }),
             case_of(
                 "one index",
                 {indexed({2, 3}, Array({4}, {2, 0, 2, -3})), indexed({2, 3, 2}, Array({2, 2}, {2, 0, 2, 1})),
                  indexed({2, 3}, Array({0}), {}, false), indexed({5, 3, 41}, integers({67}, 0, 2), {}, false)},
                 [](const Tensors& x) {
                   return index_with(x[0], Tensors{Tensor(), x[1]});
                 },
                 [](const Arrays& in) {
                   Shape s{in[0].shape[0]};
                   s.insert(s.end(), in[1].shape.begin(), in[1].shape.end());
                   s.insert(s.end(), in[0].shape.begin() + 2, in[0].shape.end());
                   return picked(in[0], s, [&](const Shape& i) {
                     const auto n = static_cast<std::ptrdiff_t>(in[1].shape.size());
                     Shape from{i[0], wrapped(in[1].at(Shape(i.begin() + 1, i.begin() + 1 + n)), in[0].shape[1])};
                     from.insert(from.end(), i.begin() + 1 + n, i.end());
                     return from;
                   });
                 })};
  r.refusals = {{"an index out of range", [] { index_with(ones({2}), Tensors{full({1}, 2, kLong)}); }, "out of bounds"},
                {"too many indices",
                 [] {
                   index_with(ones({2}), Tensors{ones({1}, kLong), ones({1}, kLong)});
                 },
                 "too many indices"},
                {"indices that do not broadcast",
                 [] {
                   index_with(ones({2, 2}), Tensors{zeros({2}, kLong), zeros({3}, kLong)});
                 },
                 "broadcast"}};
  add_row(r);

  r = gradient_row_of("index_put_with", "", kAll);
  r.tolerance = 4;
  r.absolute = 20;
  for (const bool add : {false, true}) {
    Case c = case_of(
        add ? "accumulated" : "", {with_two(true, {{2, 3, 2}}), with_two(true, {{3, 1}}), with_two(false, {{}})},
        [=](const Tensors& x) {
          return index_put_with(x[0], Tensors{x[1], Tensor(), x[2]}, x[3], add);
        },
        [=](const Arrays& in) {
          Array out = in[0];
          const Array values = expanded(in[3], {2, 3, 2});
          for (std::int64_t i = 0; i < values.numel(); ++i) {
            double& at = out.at(place(in, index_of(i, values.shape)));
            at = values[i] + (add ? at : 0);
          }
          return out;
        });
    // Columns 1 and -1 are one place: what is written last stays, which leaves no gradient to compare.
    if (!add)
      for (Sample& s : c.samples) s.inputs[2] = Input(Array({3, 1, 1}, {1, -1, 0}), kLong);
    r.cases.push_back(c);
  }
  const Array distinct_columns({2}, {1, 0});
  Case& put = r.cases[0];
  put.samples = {
      {{uniform({3, 2, 2}, -3, 3), Input(rows, kLong), Input(distinct_columns, kLong), uniform({2, 2, 2}, -3, 3, 4)}},
      {{uniform({3, 2, 2}, -3, 3), Input(rows, kLong), Input(distinct_columns, kLong), uniform({2, 1}, -3, 3, 4)}}};
  put.reference = [=](const Arrays& in) {
    Array out = in[0];
    const Array values = expanded(in[3], {2, 2, 2});
    for (std::int64_t i = 0; i < values.numel(); ++i) out.at(place(in, index_of(i, values.shape))) = values[i];
    return Arrays{out};
  };
  for (std::size_t k = 0; k < 2; ++k)
    r.cases[k].inplace = [=](Tensor& self, const Tensors& x) {
      index_put_with_(self, Tensors{x[1], Tensor(), x[2]}, x[3], k == 1);
    };
  r.refusals = {{"values that do not fit", [] { index_put_with(ones({3}), Tensors{zeros({2}, kLong)}, ones({3})); },
                 "shape mismatch"},
                {"another dtype", [] { index_put_with(ones({3}), Tensors{zeros({2}, kLong)}, ones({2}, kLong)); },
                 "source and destination dtypes match"}};
  add_row(r);
}

void add_embedding() {
  const Array indices({2, 3}, {0, 3, 3, 1, 0, 3});
  auto rows_of = [](const Arrays& in) {
    Shape s = in[1].shape;
    s.push_back(in[0].shape[1]);
    return picked(in[0], s, [&](const Shape& i) {
      return Shape{static_cast<std::int64_t>(in[1].at(Shape(i.begin(), i.end() - 1))), i.back()};
    });
  };
  Row r = gradient_row_of("embedding", "", kFloats);
  r.refuses_others = false;
  r.cases = {case_of(
      "",
      {indexed({4, 2}, indices), indexed({4, 3}, Array({}, 2)), indexed({4, 2}, Array({0}), {}, false),
       indexed({41, 67}, integers({37}, 0, 40), {}, false)},
      [](const Tensors& x) { return embedding(x[0], x[1]); }, rows_of)};
  r.refusals = {{"an index out of range",
                 [] {
                   embedding(ones({2, 2}), full({1}, 2, kLong));
                 },
                 "out of bounds"},
                {"a vector as weight", [] { embedding(ones({2}), ones({1}, kLong)); }, "must be 2-D"}};
  add_row(r);
  r = Row{"embedding_renorm_", "", {kFloat, kDouble}, same_type};
  r.tolerance = 8;
  r.refuses_others = false;
  for (const double p : {2.0, 1.0})
    r.cases.push_back(case_of(
        "norm " + std::to_string(p), {indexed({4, 5}, Array({3}, {0, 3, 3}))},
        [=](const Tensors& x) {
          Tensor w = x[0].clone();
          embedding_renorm_(w, x[1], 1.5, p);
          return w;
        },
        [=](const Arrays& in) {
          Array out = in[0];
          for (const std::int64_t row : {0, 3}) {
            double norm = 0;
            for (std::int64_t k = 0; k < 5; ++k) norm += std::pow(std::fabs(out[row * 5 + k]), p);
            norm = std::pow(norm, 1 / p);
            if (norm > 1.5)
              for (std::int64_t k = 0; k < 5; ++k) out[row * 5 + k] *= 1.5 / (norm + 1e-7);
          }
          return out;
        }));
  add_row(r);
  r = Row{"one_hot", "", {kLong}, long_type};
  for (const std::int64_t classes : {-1, 6})
    r.cases.push_back(case_of(
        "classes " + std::to_string(classes), {{{Array({2, 3}, {0, 3, 3, 1, 0, 2})}}, {{Array({}, 3)}}},
        [=](const Tensors& x) { return one_hot(x[0], classes); },
        [=](const Arrays& in) {
          Shape s = in[0].shape;
          s.push_back(classes < 0
                          ? 1 + static_cast<std::int64_t>(*std::max_element(in[0].values.begin(), in[0].values.end()))
                          : classes);
          Array out(s);
          for (std::int64_t i = 0; i < in[0].numel(); ++i) out[i * s.back() + static_cast<std::int64_t>(in[0][i])] = 1;
          return out;
        }));
  r.refusals = {{"a class too large", [] { one_hot(full({1}, 3, kLong), 3); }, "one_hot"},
                {"no class", [] { one_hot(zeros({0}, kLong)); }, "empty tensor"},
                {"a floating tensor", [] { one_hot(ones({2})); }, "index tensor"}};
  add_row(r);
}

const bool added_index = [] {
  add_along_dim();
  add_gather_scatter();
  add_masks();
  add_advanced();
  add_embedding();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
