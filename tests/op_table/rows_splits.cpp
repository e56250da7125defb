// Tensors cut at places, stacked by columns, put along a diagonal, turned, and their entries repeated.
#include "athanor/ops/factory.h"
#include "op_table/taken.h"

namespace athanor::op_table {

namespace {

using Bounds = std::vector<std::pair<std::int64_t, std::int64_t>>;

Case cutting(std::string name, std::vector<Sample> samples, Call call, std::int64_t dim, Bounds bounds) {
  return {std::move(name),
          std::move(samples),
          std::move(call),
          [dim, bounds](const Arrays& in) {
            Arrays out;
            for (const auto& [begin, end] : bounds) out.push_back(cut(in[0], dim, begin, end));
            return out;
          },
          {},
          {}};
}

void add_tensor_split() {
  Row r = moving_row("tensor_split", "indices");
  r.cases = {cutting("rising", {sample({5, 2})},
                     [](const Tensors& x) {
                       return x[0].tensor_split({1, 3});
                     },
                     0, {{0, 1}, {1, 3}, {3, 5}}),
             cutting("falling", {sample({2, 5})},
                     [](const Tensors& x) {
                       return x[0].tensor_split({3, 1}, -1);
                     },
                     1, {{0, 3}, {3, 3}, {1, 5}}),
             cutting("out of range", {sample({5})},
                     [](const Tensors& x) {
                       return x[0].tensor_split({-1, 9});
                     },
                     0, {{0, 4}, {4, 5}, {5, 5}}),
             cutting("nowhere", {sample({5})}, [](const Tensors& x) { return x[0].tensor_split(IntArrayRef{}); }, 0,
                     {{0, 5}})};
  r.refusals = {{"0-d", [] { ones({}).tensor_split({1, 2}); }, "at least a 1-dimensional tensor"}};
  add_row(r);

  r = moving_row("tensor_split", "tensor_indices_or_sections");
  r.cases = {cutting("indices", {sample({5, 2})},
                     [](const Tensors& x) {
                       return x[0].tensor_split(tensor({1, 3}));
                     },
                     0, {{0, 1}, {1, 3}, {3, 5}}),
             cutting("sections", {sample({5, 2})}, [](const Tensors& x) { return x[0].tensor_split(tensor(2)); }, 0,
                     {{0, 3}, {3, 5}})};
  r.refusals = {{"a matrix",
                 [] {
                   ones({5}).tensor_split(ones({1, 1}, kLong));
                 },
                 "got a tensor with 2 dims"},
                {"a floating tensor", [] { ones({5}).tensor_split(ones({1})); }, "dtype of long, but got Float"}};
  add_row(r);
}

void add_named_splits() {
  Row r = moving_row("hsplit");
  r.cases = {cutting("matrix", {sample({2, 4})}, [](const Tensors& x) { return x[0].hsplit(2); }, 1, {{0, 2}, {2, 4}}),
             cutting("vector", {sample({4})}, [](const Tensors& x) { return x[0].hsplit(2); }, 0, {{0, 2}, {2, 4}})};
  r.refusals = {{"0-d", [] { ones({}).hsplit(1); }, "at least 1 dimension"},
                {"uneven parts", [] { ones({5}).hsplit(2); }, "dimension 5 is not divisible by the split_size 2"},
                {"no parts", [] { ones({4}).hsplit(0); }, "not divisible by the split_size 0"}};
  add_row(r);
  r = moving_row("hsplit", "array");
  r.cases = {cutting("", {sample({2, 4})},
                     [](const Tensors& x) {
                       return x[0].hsplit({1, 3});
                     },
                     1, {{0, 1}, {1, 3}, {3, 4}})};
  r.refusals = {{"0-d", [] { ones({}).hsplit({1, 2}); }, "at least 1 dimension"}};
  add_row(r);
  r = moving_row("vsplit");
  r.cases = {cutting("", {sample({4, 2})}, [](const Tensors& x) { return x[0].vsplit(2); }, 0, {{0, 2}, {2, 4}})};
  r.refusals = {{"a vector", [] { ones({4}).vsplit(2); }, "at least 2 dimension"},
                {"uneven parts",
                 [] {
                   ones({3, 2}).vsplit(2);
                 },
                 "along dimension 0"}};
  add_row(r);
  r = moving_row("vsplit", "array");
  r.cases = {cutting("", {sample({4, 2})},
                     [](const Tensors& x) {
                       return x[0].vsplit({1, 3});
                     },
                     0, {{0, 1}, {1, 3}, {3, 4}})};
  r.refusals = {{"a vector", [] { ones({4}).vsplit({1, 2}); }, "at least 2 dimension"}};
  add_row(r);
  r = moving_row("dsplit");
  r.cases = {cutting("", {sample({2, 2, 4})}, [](const Tensors& x) { return x[0].dsplit(2); }, 2, {{0, 2}, {2, 4}})};
  r.refusals = {{"a matrix",
                 [] {
                   ones({2, 2}).dsplit(2);
                 },
                 "at least 3 dimension"},
                {"uneven parts",
                 [] {
                   ones({2, 3, 3}).dsplit(2);
                 },
                 "along dimension 2"}};
  add_row(r);
  r = moving_row("dsplit", "array");
  r.cases = {cutting("", {sample({2, 1, 4})},
                     [](const Tensors& x) {
                       return x[0].dsplit({1, 3});
                     },
                     2, {{0, 1}, {1, 3}, {3, 4}})};
  r.refusals = {{"a matrix", [] { ones({2, 2}).dsplit({1, 2}); }, "at least 3 dimension"}};
  add_row(r);
}

void add_joins() {
  Row r = moving_row("column_stack", "", false);
  Case c = moving(
      "",
      {{{uniform({2}, -4, 4), uniform({2, 3}, -4, 4, 2)}}, {{uniform({0}, -4, 4), uniform({0, 3}, -4, 4, 2)}, false}},
      [](const Tensors& x) { return column_stack(x); },
      [](const Arrays& in) {
        Array out({in[0].shape[0], 4});
        for (std::int64_t i = 0; i < out.shape[0]; ++i) {
          out.at({i, 0}) = in[0][i];
          for (std::int64_t j = 0; j < 3; ++j) out.at({i, j + 1}) = in[1].at({i, j});
        }
        return out;
      });
  c.out = [](Tensor& o, const Tensors& x) { column_stack_out(o, x); };
  r.cases = {c, moving(
                    "numbers", {{{uniform({}, -4, 4), uniform({}, -4, 4, 2)}}},
                    [](const Tensors& x) { return column_stack(x); },
                    [](const Arrays& in) {
                      return Array({1, 2}, {in[0][0], in[1][0]});
                    })};
  r.refusals = {{"no tensors", [] { column_stack(Tensors{}); }, "non-empty"}};
  add_row(r);

  r = moving_row("block_diag", "", false);
  r.cases = {moving(
      "",
      {{{uniform({2, 1}, -4, 4), uniform({3}, -4, 4, 2), uniform({}, -4, 4, 3)}},
       {{uniform({2, 0}, -4, 4), uniform({3}, -4, 4, 2), uniform({}, -4, 4, 3)}, false}},
      [](const Tensors& x) { return block_diag(x); },
      [](const Arrays& in) {
        const std::int64_t first = in[0].shape[1];
        Array out({4, first + 4});
        for (std::int64_t i = 0; i < 2 && first; ++i) out.at({i, 0}) = in[0][i];
        for (std::int64_t j = 0; j < 3; ++j) out.at({2, first + j}) = in[1][j];
        out.at({3, first + 3}) = in[2][0];
        return out;
      })};
  r.refusals = {{"three dims",
                 [] {
                   block_diag(Tensors{ones({2, 2, 2})});
                 },
                 "Input 0 has 3 dimensions"},
                {"no tensors", [] { block_diag(Tensors{}); }, "at least one tensor"}};
  add_row(r);
}

void add_turns() {
  Row r = moving_row("rot90", "", false);
  const std::vector<Sample> s = {sample({2, 3}), sample({0, 3})};
  const auto turned = [](Array a, std::int64_t k) {
    for (; k > 0; --k)
      a = taken(a, {a.shape[1], a.shape[0]}, [n = a.shape[1]](const Shape& to) { return Shape{to[1], n - 1 - to[0]}; });
    return a;
  };
  for (const std::int64_t k : {0, 1, 2, 3, 5, -1})
    r.cases.push_back(moving(
        detail::str(k, " turns"), s, [k](const Tensors& x) { return rot90(x[0], k); },
        [=](const Arrays& in) { return turned(in[0], (k + 4) % 4); }));
  r.cases.push_back(moving(
      "from the last dim to the first", {sample({2, 3})},
      [](const Tensors& x) {
        return rot90(x[0], 1, {-1, 0});
      },
      [=](const Arrays& in) { return turned(in[0], 3); }));
  r.refusals = {{"a vector", [] { rot90(ones({4})); }, "total dims = 1"},
                {"one dim",
                 [] {
                   rot90(ones({2, 2}), 1, IntArrayRef{0});
                 },
                 "but got dims = 1"},
                {"one dim twice",
                 [] {
                   rot90(ones({2, 2}), 1, {0, -2});
                 },
                 "dim0 = 0 and dim1 = -2"},
                {"a dim out of range",
                 [] {
                   rot90(ones({2, 2}), 1, {0, 3});
                 },
                 "but got 3"}};
  add_row(r);

  r = Row{"repeat_interleave", "Tensor", {kInt, kLong}, same_type};
  r.cases = {moving(
      "", {{{integers({5}, 0, 3)}, false}, {{integers({0}, 0, 3)}, false}},
      [](const Tensors& x) { return repeat_interleave(x[0]); },
      [](const Arrays& in) {
        Values v;
        for (std::int64_t i = 0; i < in[0].numel(); ++i)
          v.insert(v.end(), static_cast<std::size_t>(in[0][i]), static_cast<double>(i));
        return Array({static_cast<std::int64_t>(v.size())}, v);
      })};
  r.refusals = {{"a matrix", [] { repeat_interleave(ones({2, 2}, kLong)); }, "got shape [2, 2]"}};
  add_row(r);
}

const bool added_splits = [] {
  add_tensor_split();
  add_named_splits();
  add_joins();
  add_turns();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
