// Views and what reads a tensor in another shape.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

Row view_row(const char* name, const char* overload = "") {
  Row r = gradient_row_of(name, overload, kAll);
  r.is_view = true;
  return r;
}

void add_shapes() {
  Row r = view_row("view");
  // A dim can be cut whatever its stride; merging dims needs memory in order.
  r.cases = {case_of(
                 "cut", shaped({{2, 6}, {3, 6}, {0, 6}, {41, 6}}),
                 [](const Tensors& x) {
                   return x[0].view({-1, 3, 2});
                 },
                 [](const Arrays& in) {
                   return with_shape(in[0], {in[0].shape[0], 3, 2});
                 }),
             case_of(
                 "merged", shaped({{2, 3, 2}, {2, 0, 2}, {5, 7, 11}}, 1),
                 [](const Tensors& x) {
                   return x[0].contiguous().view({x[0].size(0), -1});
                 },
                 [](const Arrays& in) {
                   return with_shape(in[0], {in[0].shape[0], in[0].shape[1] * in[0].shape[2]});
                 }),
             case_of(
                 "one element", shaped({{}, {1, 1}}),
                 [](const Tensors& x) {
                   return x[0].view({1, 1, 1});
                 },
                 [](const Arrays& in) {
                   return with_shape(in[0], {1, 1, 1});
                 })};
  r.refusals = {{"another number of elements",
                 [] {
                   ones({2, 3}).view({4});
                 },
                 "invalid for input of size 6"},
                {"two unknown sizes",
                 [] {
                   ones({2, 3}).view({-1, -1});
                 },
                 "only one dimension can be inferred"},
                {"strides that do not allow it",
                 [] {
                   ones({2, 3}).t().view({6});
                 },
                 "Use .reshape(...) instead"}};
  add_row(r);

  r = gradient_row_of("reshape", "", kAll);
  r.cases = {case_of(
                 "", shaped({{2, 6}, {3, 4}, {0, 4}, {41, 6}}),
                 [](const Tensors& x) {
                   return reshape(x[0], {-1, 2});
                 },
                 [](const Arrays& in) {
                   return with_shape(in[0], {in[0].numel() / 2, 2});
                 }),
             case_of(
                 "to 0-d", shaped({{}, {1, 1}}), [](const Tensors& x) { return reshape(x[0], IntArrayRef{}); },
                 [](const Arrays& in) { return with_shape(in[0], {}); })};
  r.refusals = {{"a size that does not fit",
                 [] {
                   reshape(ones({2, 3}), {4, 2});
                 },
                 "invalid for input of size 6"},
                {"an unknown size beside 0",
                 [] {
                   reshape(ones({0}), {0, -1});
                 },
                 "ambiguous"}};
  add_row(r);

  r = gradient_row_of("flatten", "", kAll);
  r.cases = {case_of(
                 "all", shaped({{2, 3}, {}, {2, 0}, {3, 7, 5}}), [](const Tensors& x) { return flatten(x[0]); },
                 [](const Arrays& in) { return with_shape(in[0], {in[0].numel()}); }),
             case_of(
                 "inner dims", shaped({{2, 3, 2, 2}, {2, 3, 0, 2}, {4, 3, 5, 7}}, 1),
                 [](const Tensors& x) { return flatten(x[0], 1, -2); },
                 [](const Arrays& in) {
                   const Shape& s = in[0].shape;
                   return with_shape(in[0], {s[0], s[1] * s[2], s[3]});
                 })};
  r.refusals = {{"dims in the wrong order",
                 [] {
                   flatten(ones({2, 3}), 1, 0);
                 },
                 "start_dim cannot come after end_dim"}};
  add_row(r);
}

void add_expansions() {
  Row r = view_row("expand");
  auto grown = [](const Arrays& in) { return expanded(in[0], {2, 3, 4}); };
  r.cases = {case_of(
                 "", shaped({{3, 1}, {2, 1, 4}, {}, {4}}, 3),
                 [](const Tensors& x) {
                   return x[0].expand({2, 3, 4});
                 },
                 grown),
             case_of(
                 "kept sizes", shaped({{1, 4}, {3, 4}}),
                 [](const Tensors& x) {
                   return x[0].expand({2, -1, 4});
                 },
                 [](const Arrays& in) {
                   return expanded(in[0], {2, in[0].shape[0], 4});
                 }),
             case_of(
                 "to nothing", shaped({{1, 2}}, 0),
                 [](const Tensors& x) {
                   return x[0].expand({0, 2});
                 },
                 [](const Arrays& in) {
                   return expanded(in[0], {0, 2});
                 })};
  r.refusals = {{"a size that does not fit",
                 [] {
                   ones({2, 3}).expand({2, 4});
                 },
                 "must match the existing size (3)"},
                {"too few sizes",
                 [] {
                   ones({2, 3}).expand({3});
                 },
                 "must be greater or equal"},
                {"-1 for a new dim",
                 [] {
                   ones({3}).expand({-1, 3});
                 },
                 "not allowed in a leading"}};
  add_row(r);
  r = view_row("expand_as");
  r.cases = {case_of(
      "", shaped({{3, 1}, {}, {4}}, 2),
      [](const Tensors& x) {
        return x[0].expand_as(zeros({2, 3, 4}));
      },
      grown)};
  r.refusals = {{"a shape that does not fit", [] { ones({2}).expand_as(ones({3})); }, "must match the existing size"}};
  add_row(r);
}

void add_orders() {
  Row r = view_row("transpose");
  r.cases = {
      case_of(
          "", shaped({{2, 3}, {2, 3, 2}, {0, 3}, {7, 3, 41}}), [](const Tensors& x) { return x[0].transpose(0, -1); },
          [](const Arrays& in) { return transposed(in[0], 0, in[0].shape.size() - 1); }),
      case_of(
          "0-d", shaped({{}}, 1), [](const Tensors& x) { return x[0].transpose(0, -1); },
          [](const Arrays& in) { return in[0]; })};
  r.refusals = {{"a dim out of range", [] { ones({2, 3}).transpose(0, 2); }, "Dimension out of range"}};
  add_row(r);
  r = view_row("t");
  r.cases = {case_of(
                 "matrix", shaped({{2, 3}, {0, 3}, {37, 11}}, 1), [](const Tensors& x) { return x[0].t(); },
                 [](const Arrays& in) { return transposed(in[0], 0, 1); }),
             case_of(
                 "vector", shaped({{3}, {}}), [](const Tensors& x) { return x[0].t(); },
                 [](const Arrays& in) { return in[0]; })};
  r.refusals = {{"three dims", [] { ones({2, 3, 4}).t(); }, "<= 2 dimensions"}};
  add_row(r);
  r = view_row("permute");
  r.cases = {case_of(
                 "", shaped({{2, 3, 2}, {3, 1, 2}, {2, 0, 3}, {5, 7, 11}}),
                 [](const Tensors& x) {
                   return x[0].permute({2, 0, -2});
                 },
                 [](const Arrays& in) {
                   const Shape& s = in[0].shape;
                   return picked(in[0], {s[2], s[0], s[1]}, [](const Shape& i) { return Shape{i[1], i[2], i[0]}; });
                 }),
             case_of(
                 "0-d", shaped({{}}, 1), [](const Tensors& x) { return x[0].permute({}); },
                 [](const Arrays& in) { return in[0]; })};
  r.refusals = {{"too few dims",
                 [] {
                   ones({2, 3}).permute({0});
                 },
                 "input.dim() = 2 is not equal to len(dims) = 1"},
                {"a dim twice",
                 [] {
                   ones({2, 3}).permute({0, -2});
                 },
                 "repeated dim"}};
  add_row(r);
}

void add_single_dims() {
  Row r = view_row("unsqueeze");
  for (const std::int64_t dim : {0, 1, -1})
    r.cases.push_back(case_of(
        "dim " + std::to_string(dim), shaped({{2, 3}, {3}, {0, 2}}),
        [=](const Tensors& x) { return x[0].unsqueeze(dim); },
        [=](const Arrays& in) {
          Shape s = in[0].shape;
          s.insert(dim < 0 ? s.end() : s.begin() + dim, 1);
          return with_shape(in[0], s);
        }));
  r.cases.push_back(case_of(
      "0-d", shaped({{}}, 1), [](const Tensors& x) { return x[0].unsqueeze(0); },
      [](const Arrays& in) { return with_shape(in[0], {1}); }));
  r.refusals = {{"a dim out of range", [] { ones({2}).unsqueeze(3); }, "expected to be in range of [-2, 1]"}};
  add_row(r);
  auto without = [](Shape s, std::int64_t dim) {
    if (!s.empty() && s[static_cast<std::size_t>(dim)] == 1) s.erase(s.begin() + dim);
    return s;
  };
  r = view_row("squeeze", "dim");
  r.cases = {case_of(
                 "", shaped({{2, 1, 3}, {2, 3, 2}, {0, 1, 2}}), [](const Tensors& x) { return x[0].squeeze(1); },
                 [=](const Arrays& in) { return with_shape(in[0], without(in[0].shape, 1)); }),
             case_of(
                 "0-d", shaped({{}, {1}}), [](const Tensors& x) { return x[0].squeeze(0); },
                 [=](const Arrays& in) { return with_shape(in[0], without(in[0].shape, 0)); })};
  r.refusals = {{"a dim out of range", [] { ones({2}).squeeze(1); }, "Dimension out of range"}};
  add_row(r);
  r = view_row("squeeze");
  r.cases = {case_of(
      "", shaped({{2, 1, 3, 1}, {1, 1}, {}, {1, 0}, {2, 3}}, 3), [](const Tensors& x) { return x[0].squeeze(); },
      [](const Arrays& in) {
        Shape s;
        for (const std::int64_t n : in[0].shape)
          if (n != 1) s.push_back(n);
        return with_shape(in[0], s);
      })};
  add_row(r);
}

void add_view_parts() {
  struct Part {
    std::optional<std::int64_t> start, end;
    std::int64_t step, from, length;  // of five entries
  };
  const std::vector<Part> parts = {{1, 4, 1, 1, 3},   {std::nullopt, std::nullopt, 2, 0, 3},
                                   {-4, -1, 2, 1, 2}, {3, 3, 1, 3, 0},
                                   {4, 2, 1, 4, 0},   {-99, 99, 3, 0, 2}};
  Row r = view_row("slice");
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const Part p = parts[k];
    r.cases.push_back(case_of(
        "part " + std::to_string(k), shaped({{2, 5}, {3, 5, 2}, {0, 5}}, k < 3 ? 2 : 0),
        [=](const Tensors& x) { return x[0].slice(1, p.start, p.end, p.step); },
        [=](const Arrays& in) { return sliced(in[0], 1, p.from, p.length, p.step); }));
  }
  r.refusals = {{"no step", [] { ones({2}).slice(0, 0, 2, 0); }, "step must be positive"},
                {"0-d", [] { ones({}).slice(0, 0, 1); }, "0-dim tensor"}};
  add_row(r);

  r = view_row("select");
  for (const std::int64_t index : {1, -1})
    r.cases.push_back(case_of(
        "index " + std::to_string(index), shaped({{2, 3}, {2, 3, 2}, {0, 3}}),
        [=](const Tensors& x) { return x[0].select(1, index); },
        [=](const Arrays& in) {
          Array part = sliced(in[0], 1, (index + 3) % 3, 1);
          part.shape.erase(part.shape.begin() + 1);
          return part;
        }));
  r.refusals = {{"an index out of range",
                 [] {
                   ones({2, 3}).select(1, 3);
                 },
                 "out of bounds for dimension 1 with size 3"},
                {"0-d", [] { ones({}).select(0, 0); }, "0-dim tensor"}};
  add_row(r);

  r = view_row("narrow");
  r.cases = {case_of(
                 "", shaped({{4, 2}, {5}, {4, 0}}), [](const Tensors& x) { return x[0].narrow(0, 1, 2); },
                 [](const Arrays& in) { return sliced(in[0], 0, 1, 2); }),
             case_of(
                 "from the end", shaped({{4, 2}}), [](const Tensors& x) { return x[0].narrow(0, -3, 2); },
                 [](const Arrays& in) { return sliced(in[0], 0, 1, 2); }),
             case_of(
                 "nothing", shaped({{4, 2}}, 0), [](const Tensors& x) { return x[0].narrow(0, 4, 0); },
                 [](const Arrays& in) { return sliced(in[0], 0, 4, 0); })};
  r.refusals = {{"a part beyond the end", [] { ones({4}).narrow(0, 3, 2); }, "exceeds dimension size (4)"},
                {"a negative length", [] { ones({4}).narrow(0, 3, -1); }, "non-negative"},
                {"0-d", [] { ones({}).narrow(0, 0, 1); }, "0-dim tensor"}};
  add_row(r);

  // Strides are those of memory, so inputs in other layouts are brought in order first.
  r = view_row("as_strided");
  r.cases = {
      case_of(
          "transposed with a gap", shaped({{3, 4}, {2, 2, 3}}),
          [](const Tensors& x) {
            return x[0].contiguous().as_strided({2, 3}, {1, 4}, 1);
          },
          [](const Arrays& in) {
            return picked(with_shape(in[0], {12}), {2, 3}, [](const Shape& i) { return Shape{1 + i[0] + 4 * i[1]}; });
          }),
      case_of(
          "elements read twice", shaped({{6}}, 0),
          [](const Tensors& x) {
            return x[0].contiguous().as_strided({4, 3}, {1, 1});
          },
          [](const Arrays& in) {
            return picked(in[0], {4, 3}, [](const Shape& i) { return Shape{i[0] + i[1]}; });
          }),
      case_of(
          "nothing", shaped({{6}}, 0),
          [](const Tensors& x) {
            return x[0].contiguous().as_strided({0, 3}, {3, 1});
          },
          [](const Arrays&) {
            return Array({0, 3});
          })};
  r.refusals = {{"more than there is",
                 [] {
                   ones({6}).as_strided({2, 3}, {4, 1});
                 },
                 "need 7 elements"},
                {"a negative stride", [] { ones({6}).as_strided({2}, {-1}, 3); }, "negative strides"},
                {"a stride too few",
                 [] {
                   ones({6}).as_strided({2, 3}, {1});
                 },
                 "2 sizes and 1 strides"}};
  add_row(r);
}

const bool added_view = [] {
  add_shapes();
  add_expansions();
  add_orders();
  add_single_dims();
  add_view_parts();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
