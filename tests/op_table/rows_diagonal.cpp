// Diagonals.
#include "op_table/taken.h"

namespace athanor::op_table {

namespace {

std::int64_t diagonal_length(std::int64_t rows, std::int64_t columns, std::int64_t offset) {
  return std::max<std::int64_t>(0, offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns));
}

/// The diagonal of dims 0 and 1 of `in` as its last dim.
Array diagonal_of(const Array& in, std::int64_t offset) {
  Shape shape(in.shape.begin() + 2, in.shape.end());
  shape.push_back(diagonal_length(in.shape[0], in.shape[1], offset));
  return taken(in, shape, [offset](const Shape& to) {
    Shape from = {to.back() + std::max<std::int64_t>(0, -offset), to.back() + std::max<std::int64_t>(0, offset)};
    from.insert(from.end(), to.begin(), to.end() - 1);
    return from;
  });
}

/// The vector `in` on a diagonal of a square matrix.
Array matrix_with(const Array& in, std::int64_t offset) {
  const std::int64_t n = in.numel() + std::abs(offset);
  return taken(in, {n, n}, [offset](const Shape& to) -> std::optional<Shape> {
    if (to[1] - to[0] != offset) return std::nullopt;
    return Shape{std::min(to[0], to[1])};
  });
}

void add_reading() {
  Row r = moving_row("diagonal");
  for (const std::int64_t k : {0, 1, -1, 2, -2, 9, -9})
    r.cases.push_back(moving(
        detail::str("offset ", k), {sample({2, 3}), sample({3, 2}), sample({0, 3})},
        [k](const Tensors& x) { return x[0].diagonal(k); }, [k](const Arrays& in) { return diagonal_of(in[0], k); }));
  r.cases.push_back(moving(
      "outer dims", {sample({2, 3, 2})}, [](const Tensors& x) { return x[0].diagonal(1, -1, 0); },
      [](const Arrays& in) {
        return taken(in[0], {3, 1}, [](const Shape& to) { return Shape{to[1] + 1, to[0], to[1]}; });
      }));
  r.refusals = {{"a vector", [] { ones({3}).diagonal(); }, "but got 1"},
                {"one dim twice",
                 [] {
                   ones({2, 3}).diagonal(0, 1, -1);
                 },
                 "diagonal dimensions cannot be identical"}};
  add_row(r);

  r = Row{"trace", "", kAll, sum_type};
  r.gradient = true;
  r.cases = {moving(
      "", {sample({2, 3}), sample({3, 3}), sample({0, 3})}, [](const Tensors& x) { return trace(x[0]); },
      [](const Arrays& in) {
        double sum = 0;
        for (const double v : diagonal_of(in[0], 0).values) sum += v;
        Array out{Shape{}};
        out[0] = sum;
        return out;
      })};
  r.refusals = {{"a vector", [] { trace(ones({3})); }, "expected a matrix"}};
  add_row(r);
}

void add_building() {
  Row r = moving_row("diag", "", false);
  for (const std::int64_t k : {0, 2, -1}) {
    Case build = moving(
        detail::str("build, offset ", k), {sample({3}), sample({0})}, [k](const Tensors& x) { return diag(x[0], k); },
        [k](const Arrays& in) { return matrix_with(in[0], k); });
    build.out = [k](Tensor& o, const Tensors& x) { diag_out(o, x[0], k); };
    r.cases.push_back(build);
    r.cases.push_back(moving(
        detail::str("read, offset ", k), {sample({3, 4}), sample({4, 2})},
        [k](const Tensors& x) { return diag(x[0], k); }, [k](const Arrays& in) { return diagonal_of(in[0], k); }));
  }
  r.refusals = {{"three dims", [] { diag(ones({2, 2, 2})); }, "Got 3D"}, {"0-d", [] { diag(ones({})); }, "Got 0D"}};
  add_row(r);

  r = moving_row("diagflat", "", false);
  r.cases = {moving(
      "", {sample({}), sample({2, 2}), sample({0})}, [](const Tensors& x) { return diagflat(x[0], 1); },
      [](const Arrays& in) { return matrix_with(reshaped(in[0], {in[0].numel()}), 1); })};
  add_row(r);

  r = moving_row("diag_embed", "", false);
  r.cases = {moving(
                 "last dims", {sample({2, 3})}, [](const Tensors& x) { return diag_embed(x[0], -1); },
                 [](const Arrays& in) {
                   return taken(in[0], {2, 4, 4}, [](const Shape& to) -> std::optional<Shape> {
                     if (to[2] - to[1] != -1) return std::nullopt;
                     return Shape{to[0], to[2]};
                   });
                 }),
             moving(
                 "first and last", {sample({2, 3})}, [](const Tensors& x) { return diag_embed(x[0], 1, 0, -1); },
                 [](const Arrays& in) {
                   return taken(in[0], {4, 2, 4}, [](const Shape& to) -> std::optional<Shape> {
                     if (to[2] - to[0] != 1) return std::nullopt;
                     return Shape{to[1], to[0]};
                   });
                 })};
  r.refusals = {{"0-d", [] { diag_embed(ones({})); }, "Dimension out of range"},
                {"one dim twice", [] { diag_embed(ones({2}), 0, 0, 0); }, "cannot be identical"},
                {"an offset beyond memory", [] { diag_embed(ones({2}), INT64_MIN); }, "too large"}};
  add_row(r);

  r = moving_row("diagonal_scatter", "", false);
  r.cases = {moving(
      "", {{{uniform({3, 3}, -4, 4), uniform({2}, -4, 4, 2)}}},
      [](const Tensors& x) { return diagonal_scatter(x[0], x[1], 1); },
      [](const Arrays& in) {
        Array out = in[0];
        for (std::int64_t i = 0; i < 2; ++i) out.at({i, i + 1}) = in[1][i];
        return out;
      })};
  r.refusals = {{"a source of another shape",
                 [] {
                   diagonal_scatter(zeros({2, 3}), ones({3}));
                 },
                 "src size = [3], slice size = [2]"}};
  add_row(r);
}

const bool added_diagonal = [] {
  add_reading();
  add_building();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
