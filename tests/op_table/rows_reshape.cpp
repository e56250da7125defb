// Dims moved, cut, merged, added and dropped; windows; copies with a part replaced.
#include "athanor/ops/factory.h"
#include "op_table/taken.h"

namespace athanor::op_table {

namespace {

std::vector<Sample> shapes(const std::vector<Shape>& list) {
  std::vector<Sample> out;
  for (const Shape& s : list) out.push_back(sample(s));
  return out;
}

Array into(const Shape& shape, const Arrays& in) { return reshaped(in[0], shape); }

void add_same_elements() {
  Row r = moving_row("view_as");
  r.cases = {moving(
      "",
      {{{uniform({2, 6}, -4, 4), Input(Array({3, 4}), kFloat)}},
       {{uniform({0, 6}, -4, 4), Input(Array({2, 0}), kFloat)}, false}},
      [](const Tensors& x) { return x[0].contiguous().view_as(x[1]); },
      [](const Arrays& in) { return reshaped(in[0], in[1].shape); })};
  r.refusals = {{"another number of elements", [] { ones({2}).view_as(ones({3})); }, "[3] is invalid for input"}};
  add_row(r);
  r = moving_row("reshape_as");
  r.cases = {moving(
      "",
      {{{uniform({2, 6}, -4, 4), Input(Array({3, 4}), kFloat)}},
       {{uniform({1}, -4, 4), Input(Array(Shape{}), kFloat)}}},
      [](const Tensors& x) { return x[0].reshape_as(x[1]); },
      [](const Arrays& in) { return reshaped(in[0], in[1].shape); })};
  add_row(r);
  r = moving_row("ravel");
  r.cases = {moving(
      "", shapes({{}, {3}, {2, 3}, {2, 0, 3}}), [](const Tensors& x) { return ravel(x[0]); },
      [](const Arrays& in) { return into({in[0].numel()}, in); })};
  add_row(r);

  r = moving_row("unflatten");
  r.cases = {moving(
                 "middle", shapes({{2, 6, 3}, {2, 6, 0}}),
                 [](const Tensors& x) {
                   return x[0].unflatten(1, {3, 2});
                 },
                 [](const Arrays& in) {
                   return into({2, 3, 2, in[0].shape[2]}, in);
                 }),
             moving(
                 "one size inferred", shapes({{6}}),
                 [](const Tensors& x) {
                   return x[0].unflatten(-1, {1, -1, 2});
                 },
                 [](const Arrays& in) {
                   return into({1, 3, 2}, in);
                 })};
  r.refusals = {{"another product",
                 [] {
                   ones({6}).unflatten(0, {2, 4});
                 },
                 "Provided sizes [2, 4] don't multiply up"},
                {"no sizes", [] { ones({6}).unflatten(0, IntArrayRef{}); }, "non-empty"},
                {"two sizes to infer",
                 [] {
                   ones({6}).unflatten(0, {-1, -1});
                 },
                 "only one dimension can be inferred"},
                {"an ambiguous size",
                 [] {
                   ones({0}).unflatten(0, {0, -1});
                 },
                 "ambiguous"},
                {"a dim out of range",
                 [] {
                   ones({6}).unflatten(2, {2, 3});
                 },
                 "[-1, 0], but got 2"}};
  add_row(r);

  r = moving_row("atleast_1d");
  r.cases = {moving(
      "", shapes({{}, {3}, {2, 3}}), [](const Tensors& x) { return atleast_1d(x[0]); },
      [](const Arrays& in) { return in[0].dim() ? in[0] : into({1}, in); })};
  add_row(r);
  r = moving_row("atleast_2d");
  r.cases = {moving(
      "", shapes({{}, {3}, {2, 3}}), [](const Tensors& x) { return atleast_2d(x[0]); },
      [](const Arrays& in) {
        return in[0].dim() > 1 ? in[0] : into({1, in[0].numel()}, in);
      })};
  add_row(r);
  const auto as_3d = [](const Array& a) {
    if (a.dim() > 2) return a;
    return a.dim() == 2 ? reshaped(a, {a.shape[0], a.shape[1], 1}) : reshaped(a, {1, a.numel(), 1});
  };
  r = moving_row("atleast_3d");
  r.cases = {moving(
      "", shapes({{}, {3}, {2, 3}, {2, 1, 2}}), [](const Tensors& x) { return atleast_3d(x[0]); },
      [as_3d](const Arrays& in) { return as_3d(in[0]); })};
  add_row(r);
  const std::vector<Sample> lists = {{{uniform({}, -4, 4), uniform({3}, -4, 4, 2), uniform({2, 3}, -4, 4, 3)}}};
  r = moving_row("atleast_1d", "Sequence", false);
  r.cases = {{"",
              lists,
              [](const Tensors& x) { return atleast_1d(x); },
              [](const Arrays& in) {
                return Arrays{reshaped(in[0], {1}), in[1], in[2]};
              },
              {},
              {}}};
  add_row(r);
  r = moving_row("atleast_2d", "Sequence", false);
  r.cases = {{"",
              lists,
              [](const Tensors& x) { return atleast_2d(x); },
              [](const Arrays& in) {
                return Arrays{reshaped(in[0], {1, 1}), reshaped(in[1], {1, 3}), in[2]};
              },
              {},
              {}}};
  add_row(r);
  r = moving_row("atleast_3d", "Sequence", false);
  r.cases = {{"",
              lists,
              [](const Tensors& x) { return atleast_3d(x); },
              [as_3d](const Arrays& in) {
                return Arrays{as_3d(in[0]), as_3d(in[1]), as_3d(in[2])};
              },
              {},
              {}}};
  add_row(r);

  r = moving_row("squeeze", "dims");
  r.cases = {moving(
                 "", shapes({{1, 2, 1, 1}}),
                 [](const Tensors& x) {
                   return x[0].squeeze({0, 1, -1});
                 },
                 [](const Arrays& in) {
                   return into({2, 1}, in);
                 }),
             moving(
                 "0-d", shapes({{}}), [](const Tensors& x) { return x[0].squeeze(IntArrayRef{0}); },
                 [](const Arrays& in) { return in[0]; })};
  r.refusals = {{"a repeated dim",
                 [] {
                   ones({1, 1}).squeeze({0, -2});
                 },
                 "dim 0 appears multiple times"},
                {"a dim out of range",
                 [] {
                   ones({1}).squeeze({0, 3});
                 },
                 "but got 3"}};
  add_row(r);
}

void add_broadcasts() {
  Row r = moving_row("broadcast_to");
  r.cases = {moving(
      "", shapes({{1, 3}, {2, 3}, {3}, {}}),
      [](const Tensors& x) {
        return broadcast_to(x[0], {2, 3});
      },
      [](const Arrays& in) {
        return expanded(in[0], {2, 3});
      })};
  r.refusals = {{"a size that does not fit", [] { broadcast_to(ones({2}), {3}); }, "expanded size of the tensor (3)"}};
  add_row(r);
  r = moving_row("broadcast_tensors", "", false);
  r.cases = {{"",
              {{{uniform({2, 1}, -4, 4), uniform({3}, -4, 4, 2), uniform({}, -4, 4, 3)}}},
              [](const Tensors& x) { return broadcast_tensors(x); },
              [](const Arrays& in) {
                return Arrays{expanded(in[0], {2, 3}), expanded(in[1], {2, 3}), expanded(in[2], {2, 3})};
              },
              {},
              {}}};
  r.refusals = {{"shapes that do not fit", [] { broadcast_tensors(Tensors{ones({2}), ones({3})}); }, "[2] and [3]"}};
  add_row(r);
}

void add_moves() {
  Row r = moving_row("movedim");
  r.cases = {moving(
                 "two", shapes({{2, 3, 4}, {2, 3, 0}}),
                 [](const Tensors& x) {
                   return movedim(x[0], {2, 0}, {0, 1});
                 },
                 [](const Arrays& in) {
                   const Shape& s = in[0].shape;
                   return taken(in[0], {s[2], s[0], s[1]}, [](const Shape& t) { return Shape{t[1], t[2], t[0]}; });
                 }),
             moving(
                 "none", shapes({{2, 3}}), [](const Tensors& x) { return movedim(x[0], IntArrayRef{}, IntArrayRef{}); },
                 [](const Arrays& in) { return in[0]; })};
  r.refusals = {{"other numbers of dims",
                 [] {
                   movedim(ones({2, 3}), {0}, {0, 1});
                 },
                 "source ([0] dims)"},
                {"a repeated source",
                 [] {
                   movedim(ones({2, 3}), {0, -2}, {0, 1});
                 },
                 "repeated dim in `source`"},
                {"a repeated destination",
                 [] {
                   movedim(ones({2, 3}), {0, 1}, {1, 1});
                 },
                 "repeated dim in `destination`"}};
  add_row(r);
  r = moving_row("movedim", "int");
  r.cases = {moving(
                 "", shapes({{2, 3, 4}}), [](const Tensors& x) { return movedim(x[0], 0, -1); },
                 [](const Arrays& in) {
                   return taken(in[0], {3, 4, 2}, [](const Shape& t) { return Shape{t[2], t[0], t[1]}; });
                 }),
             moving(
                 "0-d", shapes({{}}), [](const Tensors& x) { return movedim(x[0], 0, -1); },
                 [](const Arrays& in) { return in[0]; })};
  r.refusals = {{"a dim out of range", [] { movedim(ones({2, 3}), 0, 5); }, "[-2, 1], but got 5"}};
  add_row(r);
  const auto transposed = [](const Arrays& in) {
    const Shape& s = in[0].shape;
    Shape to = s;
    std::swap(to[s.size() - 1], to[s.size() - 2]);
    return taken(in[0], to, [](Shape t) {
      std::swap(t[t.size() - 1], t[t.size() - 2]);
      return t;
    });
  };
  r = moving_row("mT");
  r.cases = {moving(
      "", shapes({{2, 3}, {2, 3, 4}}), [](const Tensors& x) { return x[0].mT(); }, transposed)};
  r.refusals = {{"a vector", [] { ones({2}).mT(); }, "Got 1-D tensor"}};
  add_row(r);
  r = moving_row("adjoint");
  r.cases = {moving(
      "", shapes({{2, 3}, {2, 3, 4}}), [](const Tensors& x) { return adjoint(x[0]); }, transposed)};
  r.refusals = {{"a vector", [] { adjoint(ones({2})); }, "Got 1-D tensor"}};
  add_row(r);
}

void add_parts() {
  Row r = moving_row("narrow", "Tensor");
  r.cases = {moving(
      "", shapes({{2, 5}}), [](const Tensors& x) { return narrow(x[0], 1, tensor(-4), 3); },
      [](const Arrays& in) { return cut(in[0], 1, 1, 4); })};
  r.refusals = {{"a start of one dim", [] { narrow(ones({3}), 0, tensor({1}), 1); }, "0-dim integral"},
                {"a floating start", [] { narrow(ones({3}), 0, tensor(1.0), 1); }, "0-dim integral"}};
  add_row(r);

  r = moving_row("unfold");
  for (const auto& [size, step] : {std::pair{3, 1}, {2, 2}, {2, 3}, {0, 1}, {3, 2}, {5, 7}}) {
    const std::int64_t n = size, by = step;
    r.cases.push_back(moving(
        detail::str(n, " by ", by), shapes({{2, 5, 2}, {0, 5, 2}}),
        [=](const Tensors& x) { return x[0].unfold(1, n, by); },
        [=](const Arrays& in) {
          return taken(in[0], {in[0].shape[0], (5 - n) / by + 1, 2, n}, [=](const Shape& t) {
            return Shape{t[0], t[1] * by + t[3], t[2]};
          });
        }));
  }
  r.cases.push_back(moving(
      "0-d", shapes({{}}), [](const Tensors& x) { return x[0].unfold(0, 1, 1); },
      [](const Arrays& in) { return into({1}, in); }));
  r.refusals = {{"a window that is too large", [] { ones({5}).unfold(0, 6, 1); }, "is 5 but size is 6"},
                {"a negative window", [] { ones({5}).unfold(0, -1, 1); }, "size is -1 but must be >= 0"},
                {"no step", [] { ones({5}).unfold(0, 2, 0); }, "step is 0 but must be > 0"}};
  add_row(r);

  r = moving_row("view", "dtype");
  r.gradient = false;
  const auto bytes = [](const Tensors& x) { return x[0].contiguous().view(kByte).view(x[0].dtype()); };
  r.cases = {moving("to bytes and back", shapes({{3}, {2, 3}, {2, 0}}), bytes, [](const Arrays& in) { return in[0]; }),
             moving(
                 "the same", shapes({{}, {2, 3}}), [](const Tensors& x) { return x[0].view(x[0].dtype()); },
                 [](const Arrays& in) { return in[0]; })};
  r.refusals = {{"a 0-d tensor", [] { ones({}).view(kShort); }, "self.dim() cannot be 0 to view Float as Short"},
                {"a last dim with gaps",
                 [] {
                   ones({3, 2}).t().view(kShort);
                 },
                 "self.stride(-1) must be 1"},
                {"a last dim that does not divide",
                 [] {
                   ones({2, 3}).view(kDouble);
                 },
                 "divisible by 2"},
                {"an odd offset", [] { ones({4}).slice(0, 1, 3).view(kDouble); }, "self.storage_offset() must be"},
                {"an odd stride",
                 [] {
                   ones({4, 5}).slice(1, 0, 4).view(kDouble);
                 },
                 "self.stride(0) must be"}};
  add_row(r);
}

void add_scatters() {
  Row r = moving_row("select_scatter", "", false);
  const auto pairs = [](const Shape& self, const Shape& src) {
    return std::vector<Sample>{{{uniform(self, -4, 4), uniform(src, -4, 4, 2)}}};
  };
  r.cases = {moving(
      "", pairs({2, 3, 2}, {2, 2}), [](const Tensors& x) { return select_scatter(x[0], x[1], 1, -1); },
      [](const Arrays& in) {
        Array out = in[0];
        for (std::int64_t i = 0; i < 4; ++i) out.at({i / 2, 2, i % 2}) = in[1][i];
        return out;
      })};
  r.refusals = {{"a source of another shape",
                 [] {
                   select_scatter(zeros({2, 3}), ones({2}), 0, 0);
                 },
                 "src size = [2], slice size = [3]"},
                {"an index out of range",
                 [] {
                   select_scatter(zeros({2, 3}), ones({3}), 0, 5);
                 },
                 "index 5 is out of"}};
  add_row(r);
  r = moving_row("slice_scatter", "", false);
  r.cases = {moving(
                 "", pairs({2, 5}, {2, 2}), [](const Tensors& x) { return slice_scatter(x[0], x[1], 1, 1, -1, 2); },
                 [](const Arrays& in) {
                   Array out = in[0];
                   for (std::int64_t i = 0; i < 4; ++i) out.at({i / 2, 1 + i % 2 * 2}) = in[1][i];
                   return out;
                 }),
             moving(
                 "all", pairs({3}, {3}), [](const Tensors& x) { return slice_scatter(x[0], x[1]); },
                 [](const Arrays& in) { return in[1]; })};
  r.refusals = {{"a source of another shape",
                 [] {
                   slice_scatter(zeros({2, 3}), ones({2}), 0, 0);
                 },
                 "src size = [2], slice size = [2, 3]"}};
  add_row(r);
  r = moving_row("as_strided_scatter", "", false);
  r.cases = {moving(
      "", pairs({2, 4}, {2, 2}),
      [](const Tensors& x) {
        return as_strided_scatter(x[0].contiguous(), x[1], {2, 2}, {1, 3}, 2);
      },
      [](const Arrays& in) {
        Array out = in[0];
        for (std::int64_t i = 0; i < 4; ++i) out[2 + i / 2 + i % 2 * 3] = in[1][i];
        return out;
      })};
  r.refusals = {{"a source of another shape", [] { as_strided_scatter(zeros({4}), ones({3}), {2}, {2}, 1); },
                 "src size = [3], slice size = [2]"},
                {"memory with gaps", [] { as_strided_scatter(zeros({4}).slice(0, 0, 4, 2), ones({1}), {1}, {1}); },
                 "call contiguous() first"}};
  add_row(r);
}

const bool added_reshape = [] {
  add_same_elements();
  add_broadcasts();
  add_moves();
  add_parts();
  add_scatters();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
