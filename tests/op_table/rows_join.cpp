// Joining, cutting and rearranging.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

/// Arrays joined along dim; those of shape {0} are left out.
Array joined(const Arrays& all, std::int64_t dim) {
  Arrays parts;
  for (const Array& a : all)
    if (a.shape != Shape{0}) parts.push_back(a);
  if (parts.empty()) return Array(Shape{0});
  const auto d = static_cast<std::size_t>(dim < 0 ? dim + parts[0].dim() : dim);
  Shape shape = parts[0].shape;
  shape[d] = 0;
  for (const Array& a : parts) shape[d] += a.shape[d];
  Array out(shape);
  std::int64_t at = 0;
  for (const Array& a : parts) {
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      Shape index = index_of(i, a.shape);
      index[d] += at;
      out.at(index) = a[i];
    }
    at += a.shape[d];
  }
  return out;
}

Array lifted(Array a, std::int64_t dims) {
  if (dims >= 1 && a.dim() == 0) a.shape = {1};
  if (dims >= 2 && a.dim() == 1) a.shape.insert(a.shape.begin(), 1);
  if (dims >= 3 && a.dim() == 2) a.shape.push_back(1);
  return a;
}
Arrays all_lifted(const Arrays& in, std::int64_t dims) {
  Arrays out;
  for (const Array& a : in) out.push_back(lifted(a, dims));
  return out;
}

Sample inputs(const std::vector<Shape>& shapes, bool gradient = true) {
  Sample s{{}, gradient};
  for (std::size_t i = 0; i < shapes.size(); ++i)
    s.inputs.emplace_back(uniform(shapes[i], -3, 3, static_cast<unsigned>(i + 1)));
  return s;
}

using Join = Tensor (*)(TensorList);

void add_cat() {
  const std::vector<Sample> along_1 = {inputs({{2, 3}, {2, 1}, {2, 2}}), inputs({{2, 3, 2}, {2, 1, 2}}),
                                       inputs({{2, 0}, {2, 3}}),         inputs({{3, 37}, {3, 41}}, false),
                                       inputs({{0, 2}, {0, 3}}, false),  inputs({{41, 30}, {41, 3}}, false)};
  const std::vector<Sample> along_0 = {inputs({{2}, {3}, {0}}), inputs({{2, 3}}), inputs({{0}, {0}}, false),
                                       inputs({{300}, {411}}, false)};
  for (const char* name : {"cat", "concat"}) {
    Row r = gradient_row_of(name, "", kAll);
    const bool is_cat = r.name == "cat";
    for (const std::int64_t dim : {1, 0}) {
      Case c = case_of(
          "dim " + std::to_string(dim), dim == 1 ? along_1 : along_0,
          [=](const Tensors& x) { return is_cat ? cat(x, dim) : concat(x, dim); },
          [=](const Arrays& in) { return joined(in, dim); });
      if (is_cat) c.out = [=](Tensor& o, const Tensors& x) { cat_out(o, x, dim); };
      r.cases.push_back(c);
    }
    r.cases.push_back(case_of(
        "last dim", {inputs({{2, 3}, {2, 1}})}, [=](const Tensors& x) { return is_cat ? cat(x, -1) : concat(x, -1); },
        [](const Arrays& in) { return joined(in, 1); }));
    r.refusals = {{"nothing", [=] { is_cat ? cat(Tensors{}) : concat(Tensors{}); }, "non-empty list"},
                  {"0-d tensors",
                   [] {
                     cat(Tensors{ones({}), ones({})});
                   },
                   "zero-dimensional tensor (at position 0)"},
                  {"sizes that differ",
                   [] {
                     cat(Tensors{ones({2, 3}), ones({3, 4})}, 1);
                   },
                   "Expected size 2 but got size 3"},
                  {"other numbers of dims",
                   [] {
                     cat(Tensors{ones({2, 3}), ones({2})});
                   },
                   "same number of dimensions"}};
    add_row(r);
  }
  Row r = gradient_row_of("cat_same_dtype", "", kAll);
  r.cases = {case_of(
      "", along_1, [](const Tensors& x) { return cat_same_dtype(x, 1); },
      [](const Arrays& in) { return joined(in, 1); })};
  add_row(r);

  r = gradient_row_of("stack", "", kAll);
  for (const std::int64_t dim : {0, 1, -1}) {
    Case c = case_of(
        "dim " + std::to_string(dim),
        {inputs({{2, 3}, {2, 3}}), inputs({{3}, {3}, {3}}), inputs({{0, 2}, {0, 2}}, false),
         inputs({{37, 11}, {37, 11}}, false)},
        [=](const Tensors& x) { return stack(x, dim); },
        [=](const Arrays& in) {
          const std::int64_t d = dim < 0 ? in[0].dim() : dim;
          Arrays parts = in;
          for (Array& a : parts) a.shape.insert(a.shape.begin() + d, 1);
          return joined(parts, d);
        });
    c.out = [=](Tensor& o, const Tensors& x) { stack_out(o, x, dim); };
    r.cases.push_back(c);
  }
  r.refusals = {{"nothing", [] { stack(Tensors{}); }, "non-empty TensorList"},
                {"shapes that differ",
                 [] {
                   stack(Tensors{ones({2}), ones({3})});
                 },
                 "[3] at entry 1"}};
  add_row(r);

  const std::vector<Sample> any = {inputs({{}, {}}), inputs({{2}, {2}}), inputs({{2, 3}, {2, 3}}),
                                   inputs({{2, 3, 2}, {2, 3, 2}}, false)};
  const std::tuple<const char*, Join, std::int64_t, std::int64_t> kinds[] = {
      {"hstack", +[](TensorList x) { return hstack(x); }, 1, 1},
      {"vstack", +[](TensorList x) { return vstack(x); }, 2, 0},
      {"dstack", +[](TensorList x) { return dstack(x); }, 3, 2}};
  for (const auto& [name, fn, dims, dim] : kinds) {
    r = gradient_row_of(name, "", kAll);
    const Join call = fn;
    const std::int64_t least = dims, along = dim;
    r.cases = {case_of(
        "", any, [=](const Tensors& x) { return call(x); },
        [=](const Arrays& in) {
          const Arrays parts = all_lifted(in, least);
          return joined(parts, parts[0].dim() == 1 ? 0 : along);
        })};
    r.refusals = {{"nothing", [=] { call(Tensors{}); }, "non-empty"}};
    add_row(r);
  }
}

/// Parts of the given lengths along dim.
Arrays cut(const Array& a, std::size_t dim, const Shape& lengths) {
  Arrays out;
  std::int64_t at = 0;
  for (const std::int64_t n : lengths) {
    out.push_back(sliced(a, dim, at, n));
    at += n;
  }
  return out;
}

Row cut_row(const char* name, const char* overload = "") {
  Row r = gradient_row_of(name, overload, kAll);
  r.is_view = true;
  return r;
}

Case cut_case(std::string name, std::vector<Sample> samples, std::function<std::vector<Tensor>(const Tensor&)> call,
              std::size_t dim, Shape lengths) {
  return {std::move(name),
          std::move(samples),
          [call](const Tensors& x) { return call(x[0]); },
          [=](const Arrays& in) { return cut(in[0], dim, lengths); },
          {},
          {}};
}

void add_cuts() {
  const std::vector<Sample> fives = shaped({{5}, {5, 2}, {5, 0}, {5, 41}}, 2);
  const std::vector<Sample> inner = shaped({{2, 5}, {3, 5, 2}, {0, 5}}, 2);
  Row r = cut_row("split_with_sizes");
  r.cases = {cut_case("", fives,
                      [](const Tensor& x) {
                        return x.split_with_sizes({2, 0, 3});
                      },
                      0, {2, 0, 3}),
             cut_case("dim", inner,
                      [](const Tensor& x) {
                        return x.split_with_sizes({1, 4}, 1);
                      },
                      1, {1, 4})};
  r.refusals = {{"sizes that do not add up",
                 [] {
                   ones({5}).split_with_sizes({2, 2});
                 },
                 "sum exactly to 5"},
                {"a negative size",
                 [] {
                   ones({5}).split_with_sizes({-1, 6});
                 },
                 "non-negative"}};
  add_row(r);
  r = cut_row("split");
  r.cases = {cut_case("", fives, [](const Tensor& x) { return x.split(2); }, 0, {2, 2, 1}),
             cut_case("dim", inner, [](const Tensor& x) { return x.split(5, 1); }, 1, {5}),
             cut_case("empty", shaped({{0, 2}}, 0), [](const Tensor& x) { return x.split(0); }, 0, {0})};
  r.refusals = {{"no size", [] { ones({5}).split(0); }, "split_size be positive"},
                {"0-d", [] { ones({}).split(1); }, "at least a 1-dimensional"}};
  add_row(r);
  r = cut_row("split", "sizes");
  r.cases = {cut_case("", inner, [](const Tensor& x) { return x.split({2, 3}, 1); }, 1, {2, 3})};
  r.refusals = {{"sizes that do not add up", [] { ones({5}).split({2, 2}); }, "sum exactly to 5"}};
  add_row(r);
  r = cut_row("chunk");
  r.cases = {cut_case("", fives, [](const Tensor& x) { return x.chunk(3); }, 0, {2, 2, 1}),
             cut_case("fewer than asked for", inner, [](const Tensor& x) { return x.chunk(4, 1); }, 1, {2, 2, 1}),
             cut_case("empty", shaped({{0, 2}}, 0), [](const Tensor& x) { return x.chunk(2); }, 0, {0, 0})};
  r.refusals = {{"no chunks", [] { ones({5}).chunk(0); }, "greater than 0"}};
  add_row(r);
  r = cut_row("tensor_split");
  r.cases = {cut_case("", fives, [](const Tensor& x) { return x.tensor_split(3); }, 0, {2, 2, 1}),
             cut_case("more than there are", inner, [](const Tensor& x) { return x.tensor_split(6, 1); }, 1,
                      {1, 1, 1, 1, 1, 0})};
  r.refusals = {{"no sections", [] { ones({5}).tensor_split(0); }, "larger than 0"}};
  add_row(r);
  r = cut_row("unbind");
  r.cases = {{"",
              inner,
              [](const Tensors& x) { return x[0].unbind(1); },
              [](const Arrays& in) {
                Arrays parts = cut(in[0], 1, {1, 1, 1, 1, 1});
                for (Array& a : parts) a.shape.erase(a.shape.begin() + 1);
                return parts;
              },
              {},
              {}}};
  r.refusals = {{"0-d", [] { ones({}).unbind(); }, "has no dimensions"}};
  add_row(r);
}

void add_flips() {
  const std::vector<Sample> s = shaped({{2, 3}, {2, 3, 2}, {0, 3}, {7, 33}, {3, 41, 17}}, 2);
  auto flipped = [](const Array& a, const Shape& dims) {
    return picked(a, a.shape, [&](Shape i) {
      for (const std::int64_t d : dims)
        i[static_cast<std::size_t>(d)] = a.shape[static_cast<std::size_t>(d)] - 1 - i[static_cast<std::size_t>(d)];
      return i;
    });
  };
  Row r = gradient_row_of("flip", "", kAll);
  r.cases = {case_of(
                 "", s,
                 [](const Tensors& x) {
                   return x[0].flip({0, 1});
                 },
                 [=](const Arrays& in) {
                   return flipped(in[0], {0, 1});
                 }),
             case_of(
                 "last", s, [](const Tensors& x) { return x[0].flip({-1}); },
                 [=](const Arrays& in) { return flipped(in[0], {in[0].dim() - 1}); }),
             case_of(
                 "no dims", s, [](const Tensors& x) { return x[0].flip(IntArrayRef{}); },
                 [](const Arrays& in) { return in[0]; })};
  r.refusals = {{"a dim twice",
                 [] {
                   ones({2, 2}).flip({0, -2});
                 },
                 "multiple times"},
                {"a dim out of range",
                 [] {
                   ones({2, 2}).flip({2});
                 },
                 "Dimension out of range"}};
  add_row(r);
  r = gradient_row_of("fliplr", "", kAll);
  r.cases = {case_of(
      "", s, [](const Tensors& x) { return x[0].fliplr(); }, [=](const Arrays& in) { return flipped(in[0], {1}); })};
  r.refusals = {{"one dim", [] { ones({2}).fliplr(); }, ">= 2-d"}};
  add_row(r);
  r = gradient_row_of("flipud", "", kAll);
  r.cases = {case_of(
      "", s, [](const Tensors& x) { return x[0].flipud(); }, [=](const Arrays& in) { return flipped(in[0], {0}); })};
  r.refusals = {{"0-d", [] { ones({}).flipud(); }, ">= 1-d"}};
  add_row(r);

  auto rolled = [](const Array& a, std::int64_t shift, std::size_t dim) {
    const std::int64_t n = a.shape[dim];
    return picked(a, a.shape, [=](Shape i) {
      i[dim] = ((i[dim] - shift) % n + n) % n;
      return i;
    });
  };
  auto both = [=](const Arrays& in) { return rolled(rolled(in[0], 1, 0), -5, 1); };
  r = gradient_row_of("roll_dims", "", kAll);
  r.cases = {case_of(
      "", s,
      [](const Tensors& x) {
        return roll_dims(x[0], {1, -5}, {0, 1});
      },
      both)};
  add_row(r);
  r = gradient_row_of("roll", "", kAll);
  r.cases = {
      case_of(
          "dims", s,
          [](const Tensors& x) {
            return x[0].roll({1, -5}, {0, 1});
          },
          both),
      case_of(
          "flattened", shaped({{2, 3}, {}, {0}, {5, 41}}, 2), [](const Tensors& x) { return x[0].roll({2}); },
          [=](const Arrays& in) { return with_shape(rolled(with_shape(in[0], {in[0].numel()}), 2, 0), in[0].shape); })};
  r.refusals = {{"no shifts", [] { ones({2}).roll(IntArrayRef{}); }, "`shifts` required"},
                {"a dim of none", [] { ones({}).roll(0, 0); }, "but tensor has no dimensions"},
                {"a shift too few",
                 [] {
                   ones({2, 2}).roll({1}, {0, 1});
                 },
                 "must align"}};
  add_row(r);
}

Array tiled(Array a, Shape repeats) {
  while (a.dim() < static_cast<std::int64_t>(repeats.size())) a.shape.insert(a.shape.begin(), 1);
  while (a.dim() > static_cast<std::int64_t>(repeats.size())) repeats.insert(repeats.begin(), 1);
  Shape shape = a.shape;
  for (std::size_t d = 0; d < shape.size(); ++d) shape[d] *= repeats[d];
  return picked(a, shape, [&](Shape i) {
    for (std::size_t d = 0; d < i.size(); ++d) i[d] %= a.shape[d];
    return i;
  });
}

void add_repeats() {
  Row r = gradient_row_of("repeat", "", kAll);
  r.cases = {case_of(
                 "", shaped({{2, 3}, {3}, {}, {0, 2}, {7, 11}}, 3),
                 [](const Tensors& x) {
                   return x[0].repeat({2, 1, 3});
                 },
                 [](const Arrays& in) {
                   return tiled(in[0], {2, 1, 3});
                 }),
             case_of(
                 "to nothing", shaped({{2, 3}}, 1),
                 [](const Tensors& x) {
                   return x[0].repeat({0, 2});
                 },
                 [](const Arrays&) {
                   return Array({0, 6});
                 })};
  r.refusals = {{"too few",
                 [] {
                   ones({2, 3}).repeat({2});
                 },
                 "can not be smaller than number of dimensions"},
                {"a negative count", [] { ones({2}).repeat({-1}); }, "negative dimension"}};
  add_row(r);
  r = gradient_row_of("tile", "", kAll);
  r.cases = {case_of(
                 "", shaped({{2, 3}, {3}, {}, {0, 2}}, 3),
                 [](const Tensors& x) {
                   return x[0].tile({2, 2});
                 },
                 [](const Arrays& in) {
                   return tiled(in[0], {2, 2});
                 }),
             case_of(
                 "fewer than dims", shaped({{2, 3, 2}}), [](const Tensors& x) { return x[0].tile({2}); },
                 [](const Arrays& in) { return tiled(in[0], {2}); })};
  add_row(r);

  auto interleaved = [](const Array& a, const Values& counts, std::size_t dim) {
    Shape from;
    for (std::int64_t i = 0; i < a.shape[dim]; ++i)
      for (double k = 0; k < counts[counts.size() == 1 ? 0 : static_cast<std::size_t>(i)]; ++k) from.push_back(i);
    Shape shape = a.shape;
    shape[dim] = static_cast<std::int64_t>(from.size());
    return picked(a, shape, [&](Shape i) {
      i[dim] = from[static_cast<std::size_t>(i[dim])];
      return i;
    });
  };
  const Array counts({3}, {2, 0, 3});
  auto with_counts = [&](const Shape& shape, bool gradient = true) {
    return Sample{{Input(uniform(shape, -3, 3)), Input(counts, kLong)}, gradient};
  };
  const std::vector<Sample> s = {with_counts({2, 3}), with_counts({2, 3, 2}), with_counts({0, 3}, false),
                                 with_counts({5, 3, 41}, false)};
  auto dim_1 = [=](const Arrays& in) { return interleaved(in[0], in[1].values, 1); };
  r = gradient_row_of("repeat_interleave_dim", "", kAll);
  r.cases = {case_of(
      "", s, [](const Tensors& x) { return repeat_interleave_dim(x[0], x[1], 1, 5); }, dim_1)};
  add_row(r);
  r = gradient_row_of("repeat_interleave", "", kAll);
  r.cases = {case_of(
                 "dim", s, [](const Tensors& x) { return x[0].repeat_interleave(x[1], 1); }, dim_1),
             case_of(
                 "size known", {s[1]}, [](const Tensors& x) { return x[0].repeat_interleave(x[1], -2, 5); }, dim_1),
             case_of(
                 "flattened", {with_counts({3}), with_counts({3, 1})},
                 [](const Tensors& x) { return x[0].repeat_interleave(x[1]); },
                 [=](const Arrays& in) { return interleaved(with_shape(in[0], {in[0].numel()}), in[1].values, 0); })};
  r.refusals = {
      {"counts that are not integers", [] { ones({2}).repeat_interleave(ones({2}), 0); }, "Long or Int"},
      {"another number of counts", [] { ones({2}).repeat_interleave(ones({3}, kLong), 0); }, "same size as input"}};
  add_row(r);
  r = gradient_row_of("repeat_interleave", "int", kAll);
  r.cases = {
      case_of(
          "dim", shaped({{2, 3}, {0, 2}, {4, 41}}, 1), [](const Tensors& x) { return x[0].repeat_interleave(2, 1); },
          [=](const Arrays& in) { return interleaved(in[0], {2}, 1); }),
      case_of(
          "flattened", shaped({{2, 3}, {}, {0}}), [](const Tensors& x) { return x[0].repeat_interleave(3); },
          [=](const Arrays& in) { return interleaved(with_shape(in[0], {in[0].numel()}), {3}, 0); })};
  add_row(r);
}

void add_triangles() {
  for (const bool lower : {true, false}) {
    Row r = gradient_row_of(lower ? "tril" : "triu", "", kAll);
    for (const std::int64_t k : {0, 1, -1, 9}) {
      Case c = case_of(
          "diagonal " + std::to_string(k),
          shaped({{3, 3}, {2, 2, 3}, {0, 3}, {5, 2, 0}, {41, 17}, {3, 7, 12}}, k == 9 ? 0 : 2),
          [=](const Tensors& x) { return lower ? x[0].tril(k) : x[0].triu(k); },
          [=](const Arrays& in) {
            Array out = in[0];
            for (std::int64_t i = 0; i < out.numel(); ++i) {
              const Shape at = index_of(i, out.shape);
              const std::int64_t ahead = at[at.size() - 1] - at[at.size() - 2];
              if (lower ? ahead > k : ahead < k) out[i] = 0;
            }
            return out;
          });
      c.inplace = [=](Tensor& self, const Tensors&) { lower ? self.tril_(k) : self.triu_(k); };
      c.out = [=](Tensor& o, const Tensors& x) { lower ? tril_out(o, x[0], k) : triu_out(o, x[0], k); };
      r.cases.push_back(c);
    }
    r.refusals = {{"one dim", [=] { lower ? ones({2}).tril() : ones({2}).triu(); }, "at least 2 dimensions"}};
    add_row(r);
  }
}

const bool added_join = [] {
  add_cat();
  add_cuts();
  add_flips();
  add_repeats();
  add_triangles();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
