// Solving, inverses, determinants, Cholesky factors.
#include <algorithm>
#include <numeric>

#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

const DTypes kPrecise = {kFloat, kDouble};

Row matrix_row(const char* name) {
  Row r = gradient_row_of(name, "", kPrecise);
  r.tolerance = 50;
  r.absolute = 50;
  r.exact_layouts = false;
  return r;
}

/// Random matrices that are far from singular.
Array regular(const Shape& shape, unsigned seed = 1) {
  Array a = uniform(shape, -1, 1, seed);
  const std::int64_t n = shape.back();
  for (std::int64_t i = 0; i < a.numel(); ++i)
    if (i / n % n == i % n) a[i] += i % 2 ? 3 : -3;
  return a;
}

/// Gauss-Jordan with full rows exchanged; gives the determinant.
double eliminate(Values& a, Values& b, std::int64_t n, std::int64_t m) {
  double det = 1;
  auto at = [](Values& v, std::int64_t i, std::int64_t j, std::int64_t w) -> double& {
    return v[static_cast<std::size_t>(i * w + j)];
  };
  for (std::int64_t k = 0; k < n; ++k) {
    std::int64_t best = k;
    for (std::int64_t i = k; i < n; ++i)
      if (std::abs(at(a, i, k, n)) > std::abs(at(a, best, k, n))) best = i;
    if (best != k) {
      det = -det;
      for (std::int64_t j = 0; j < n; ++j) std::swap(at(a, k, j, n), at(a, best, j, n));
      for (std::int64_t j = 0; j < m; ++j) std::swap(at(b, k, j, m), at(b, best, j, m));
    }
    const double p = at(a, k, k, n);
    det *= p;
    if (p == 0) return 0;
    for (std::int64_t i = 0; i < n; ++i) {
      if (i == k) continue;
      const double f = at(a, i, k, n) / p;
      for (std::int64_t j = 0; j < n; ++j) at(a, i, j, n) -= f * at(a, k, j, n);
      for (std::int64_t j = 0; j < m; ++j) at(b, i, j, m) -= f * at(b, k, j, m);
    }
    for (std::int64_t j = 0; j < n; ++j) at(a, k, j, n) /= p;
    for (std::int64_t j = 0; j < m; ++j) at(b, k, j, m) /= p;
  }
  return det;
}

/// x with a x = b, batches one after another; a's batch repeats if it is shorter.
Array solved(const Array& a, const Array& b) {
  const std::int64_t n = a.shape.back(), m = b.shape.back();
  Array out(b.shape);
  for (std::int64_t start = 0; start < b.numel(); start += n * m) {
    const std::int64_t from = start / (n * m) * n * n % std::max<std::int64_t>(a.numel(), 1);
    Values matrix(a.values.begin() + from, a.values.begin() + from + n * n);
    Values right(b.values.begin() + start, b.values.begin() + start + n * m);
    eliminate(matrix, right, n, m);
    std::copy(right.begin(), right.end(), out.values.begin() + start);
  }
  return out;
}

Array determinants(const Array& a) {
  const std::int64_t n = a.shape.back();
  Array out(Shape(a.shape.begin(), a.shape.end() - 2));
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    Values matrix(a.values.begin() + i * n * n, a.values.begin() + (i + 1) * n * n), none;
    out[i] = eliminate(matrix, none, n, 0);
  }
  return out;
}

Array identities(const Shape& shape) {
  Array out(shape);
  const std::int64_t n = shape.back();
  for (std::int64_t i = 0; i < out.numel(); ++i) out[i] = i / n % n == i % n ? 1 : 0;
  return out;
}

Refusal not_square(const std::function<void(const Tensor&)>& fn) {
  return {"a matrix that is not square", [=] { fn(ones({2, 3})); }, "square"};
}
Refusal singular(const std::function<void(const Tensor&)>& fn) {
  return {"a singular matrix", [=] { fn(ones({2, 2})); }, "singular"};
}

void add_solve() {
  Row r = matrix_row("linalg_solve");
  r.absolute = 100;  // rounding in one order or another leaves that much of 70 rows
  r.cases = {
      case_of(
          "matrices",
          {{{uniform({3, 2}, -1, 1), regular({3, 3})}},
           {{uniform({2, 2, 1}, -1, 1), regular({2, 2, 2})}},
           {{uniform({2, 3, 2}, -1, 1), regular({3, 3})}},
           {{uniform({0, 2}, -1, 1), regular({0, 0})}, false},
           {{uniform({70, 67}, -1, 1), regular({70, 70})}, false},
           {{uniform({131, 3}, -1, 1), regular({131, 131})}, false}},
          [](const Tensors& x) { return linalg_solve(x[1], x[0]); },
          [](const Arrays& in) { return solved(in[1], in[0]); }),
      case_of(
          "vectors", {{{uniform({3}, -1, 1), regular({3, 3})}}, {{uniform({2, 3}, -1, 1), regular({2, 3, 3})}}},
          [](const Tensors& x) { return linalg_solve(x[1], x[0]); },
          [](const Arrays& in) {
            Shape column = in[0].shape;
            column.push_back(1);
            return with_shape(solved(in[1], with_shape(in[0], column)), in[0].shape);
          }),
      case_of(
          "from the right", {{{uniform({3, 2}, -1, 1), regular({2, 2})}}},
          [](const Tensors& x) { return linalg_solve(x[1], x[0], false); },
          [](const Arrays& in) { return transposed(solved(transposed(in[1], 0, 1), transposed(in[0], 0, 1)), 0, 1); })};
  r.refusals = {not_square([](const Tensor& a) { linalg_solve(a, a); }),
                singular([](const Tensor& a) { linalg_solve(a, a); }),
                {"shapes that do not fit",
                 [] {
                   linalg_solve(ones({2, 2}), ones({3, 2}));
                 },
                 "Incompatible shapes"},
                {"two dtypes",
                 [] {
                   linalg_solve(ones({2, 2}), ones({2, 2}, kDouble));
                 },
                 "same dtype"}};
  add_row(r);
  for (const bool alias : {false, true}) {
    auto call = [=](const Tensor& a) { return alias ? inverse(a) : linalg_inv(a); };
    r = matrix_row(alias ? "inverse" : "linalg_inv");
    r.cases = {case_of(
        "",
        {{{regular({1, 3, 3})}},
         {{regular({2, 2, 2})}},
         {{regular({0, 2, 2})}, false},
         {{regular({1, 67, 67})}, false}},
        [=](const Tensors& x) { return call(x[0]); },
        [](const Arrays& in) { return solved(in[0], identities(in[0].shape)); })};
    r.refusals = {not_square(call), singular(call)};
    add_row(r);
  }
}

void add_determinants() {
  const std::vector<Sample> samples = {{{regular({1, 3, 3})}},
                                       {{regular({2, 2, 2})}},
                                       {{regular({0, 2, 2})}, false},
                                       {{regular({0, 0})}, false},
                                       {{regular({9, 9})}, false},
                                       {{Array({2, 2}, Values{1, 2, 2, 4})}, false},
                                       {{Array({2, 2}, Values{0, 1, 1, 0})}}};
  std::vector<Sample> with_singular = samples;
  with_singular.push_back({{Array({2, 3, 3}, Values{1, 2, 3, 2, 4, 6, 1, 0, 1, 3, 1, 0, 0, 2, 1, 1, 0, 2})}});
  with_singular.push_back({{Array({3, 3}, Values{1, 1, 1, 1, 1, 1, 1, 1, 1})}});
  with_singular.push_back({{Array({2, 2}, Values{0, 0, 0, 0})}});
  with_singular.push_back({{Array({1, 1}, Values{0})}});
  for (const bool alias : {false, true}) {
    auto call = [=](const Tensor& a) { return alias ? det(a) : linalg_det(a); };
    Row r = matrix_row(alias ? "det" : "linalg_det");
    r.cases = {case_of(
        "", with_singular, [=](const Tensors& x) { return call(x[0]); },
        [](const Arrays& in) { return determinants(in[0]); })};
    r.refusals = {not_square(call)};
    add_row(r);
    auto both = [=](const Tensor& a) { return alias ? slogdet(a) : linalg_slogdet(a); };
    r = matrix_row(alias ? "slogdet" : "linalg_slogdet");
    r.cases = {{"",
                samples,
                [=](const Tensors& x) {
                  auto [s, l] = both(x[0]);
                  return Tensors{s, l};
                },
                [](const Arrays& in) {
                  const Array d = determinants(in[0]);
                  return Arrays{map({d}, [](const Values& v) { return v[0] > 0   ? 1
                                                                      : v[0] < 0 ? -1
                                                                                 : 0; }),
                                map({d}, [](const Values& v) { return std::log(std::abs(v[0])); })};
                },
                {},
                {},
                [=](Tensor& sign, Tensor& log, const Tensors& x) {
                  alias ? slogdet_out(sign, log, x[0]) : linalg_slogdet_out(sign, log, x[0]);
                }}};
    r.refusals = {not_square([=](const Tensor& a) { both(a); })};
    add_row(r);
  }
  Row r = matrix_row("logdet");
  r.cases = {case_of(
                 "",
                 {{{regular({2, 2, 2})}},
                  {{regular({0, 0})}, false},
                  {{Array({2, 2}, Values{1, 2, 2, 4})}, false},
                  {{Array({2, 2}, Values{0, 1, 1, 0})}, false}},
                 [](const Tensors& x) { return logdet(matmul(x[0], x[0] * 1)); },
                 [](const Arrays& in) {
                   return map({determinants(in[0])}, [](const Values& v) { return std::log(v[0] * v[0]); });
                 }),
             case_of(
                 "negative", {{{Array({1, 2, 2}, Values{0, 1, 1, 0})}, false}},
                 [](const Tensors& x) { return logdet(x[0]); }, [](const Arrays&) { return Array({1}, Values{NAN}); })};
  r.refusals = {not_square([](const Tensor& a) { logdet(a); })};
  add_row(r);
}

void add_cholesky() {
  for (const bool alias : {false, true}) {
    Row r = matrix_row(alias ? "cholesky" : "linalg_cholesky");
    for (const bool upper : {false, true}) {
      auto call = [=](const Tensor& a) { return alias ? cholesky(a, upper) : linalg_cholesky(a, upper); };
      r.cases.push_back(case_of(
          upper ? "upper" : "lower",
          {{{regular({1, 3, 3})}}, {{regular({2, 2, 2})}}, {{regular({0, 0})}, false}, {{regular({1, 41, 41})}, false}},
          // Symmetric in the input, so that finite differences are.
          [=](const Tensors& x) { return call(matmul(x[0], x[0].mT())); },
          [=](const Arrays& in) {
            Array out(in[0].shape);
            const std::int64_t n = std::max<std::int64_t>(in[0].shape.back(), 1);
            for (std::int64_t start = 0; start < out.numel(); start += n * n)
              for (std::int64_t i = 0; i < n; ++i)
                for (std::int64_t j = 0; j <= i; ++j) {
                  double s = 0;
                  for (std::int64_t k = 0; k < n; ++k) s += in[0][start + i * n + k] * in[0][start + j * n + k];
                  for (std::int64_t k = 0; k < j; ++k) s -= out[start + i * n + k] * out[start + j * n + k];
                  out[start + i * n + j] = i == j ? std::sqrt(s) : s / out[start + j * n + j];
                }
            return upper ? transposed(out, out.shape.size() - 2, out.shape.size() - 1) : out;
          }));
      if (upper) continue;
      r.refusals = {not_square([=](const Tensor& a) { call(a); }),
                    {"a matrix that is not positive-definite", [=] { call(-eye(2)); }, "leading minor of order 1"},
                    {"one of a batch",
                     [=] {
                       call(stack({eye(2), -eye(2)}));
                     },
                     "(Batch element 1)"}};
    }
    r.refuses_others = false;
    add_row(r);
  }
}

/// Singular values, the greatest first: the sizes of the rows (or columns, if those are fewer) once rotations have made
/// them orthogonal.
Values singular_values(const Values& a, std::int64_t m, std::int64_t n) {
  const std::int64_t k = std::min(m, n), length = std::max(m, n);
  std::vector<Values> rows(static_cast<std::size_t>(k));
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t l = 0; l < length; ++l)
      rows[static_cast<std::size_t>(i)].push_back(a[static_cast<std::size_t>(m <= n ? i * n + l : l * n + i)]);
  const auto dot = [](const Values& x, const Values& y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
  };
  for (int sweep = 0; sweep < 30; ++sweep)
    for (std::size_t p = 0; p < rows.size(); ++p)
      for (std::size_t q = p + 1; q < rows.size(); ++q) {
        Values &x = rows[p], &y = rows[q];
        const double angle = 0.5 * std::atan2(2 * dot(x, y), dot(y, y) - dot(x, x));
        const double c = std::cos(angle), s = std::sin(angle);
        for (std::size_t l = 0; l < x.size(); ++l) {
          const double u = x[l], v = y[l];
          x[l] = c * u - s * v, y[l] = s * u + c * v;
        }
      }
  Values out;
  for (const Values& row : rows) out.push_back(std::sqrt(dot(row, row)));
  std::sort(out.rbegin(), out.rend());
  return out;
}

double matrix_norm_of(const Values& a, std::int64_t m, std::int64_t n, const std::string& order) {
  double total = 0;
  if (order == "fro") {
    for (const double x : a) total += x * x;
    return std::sqrt(total);
  }
  if (order == "2" || order == "-2" || order == "nuc") {
    const Values s = singular_values(a, m, n);
    if (s.empty()) return 0;
    return order == "nuc" ? std::accumulate(s.begin(), s.end(), 0.0) : order == "2" ? s.front() : s.back();
  }
  const bool columns = order == "1" || order == "-1", least = order[0] == '-';
  for (std::int64_t i = 0; i < (columns ? n : m); ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < (columns ? m : n); ++j)
      sum += std::abs(a[static_cast<std::size_t>(columns ? j * n + i : i * n + j)]);
    total = i == 0 ? sum : least ? std::min(total, sum) : std::max(total, sum);
  }
  return total;
}

Array matrix_norms_of(const Array& a, const std::string& order) {
  const std::int64_t m = a.shape[a.shape.size() - 2], n = a.shape.back();
  Array out(Shape(a.shape.begin(), a.shape.end() - 2));
  for (std::int64_t i = 0; i < out.numel(); ++i)
    out[i] = matrix_norm_of(Values(a.values.begin() + i * m * n, a.values.begin() + (i + 1) * m * n), m, n, order);
  return out;
}

void add_matrix_norms() {
  const double inf = INFINITY;
  const std::vector<std::pair<const char*, double>> orders = {{"2", 2},   {"-2", -2},   {"1", 1},
                                                              {"-1", -1}, {"inf", inf}, {"-inf", -inf}};
  const std::vector<Sample> samples = {{{uniform({3, 2}, -1, 1, 3)}},
                                       {{uniform({2, 4}, -1, 1, 5)}},
                                       {{regular({3, 3})}},
                                       {{uniform({40, 23}, -1, 1, 7)}, false}};
  std::vector<Sample> batches = samples, with_empty = samples;
  with_empty.push_back({{Array({0, 2})}, false});
  batches.push_back({{uniform({2, 3, 2}, -1, 1, 9)}});
  batches.push_back({{uniform({0, 3, 2}, -1, 1, 9)}, false});
  for (const bool named : {false, true})
    for (const bool any : {false, true}) {
      Row r = matrix_row(any ? "linalg_norm" : "linalg_matrix_norm");
      r.overload = !named ? "" : any ? "ord_str" : "str_ord";
      r.refuses_others = !any && !named;  // "fro" takes halves
      const auto add = [&](const std::string& order, const auto& ord) {
        r.cases.push_back(case_of(
            order,
            !any              ? batches
            : order[0] == '-' ? samples
                              : with_empty,
            [=](const Tensors& x) { return any ? linalg_norm(x[0], ord) : linalg_matrix_norm(x[0], ord); },
            [=](const Arrays& in) { return matrix_norms_of(in[0], order); }));
        r.cases.back().out = [=](Tensor& o, const Tensors& x) {
          any ? linalg_norm_out(o, x[0], ord) : linalg_matrix_norm_out(o, x[0], ord);
        };
      };
      if (named) {
        add("fro", std::string_view("fro"));
        add("nuc", std::string_view("nuc"));
      } else {
        for (const auto& [name, ord] : orders) add(name, Scalar(ord));
      }
      const auto call = [=](const Tensor& a) { named ? linalg_matrix_norm(a, "nuc") : linalg_matrix_norm(a, 2); };
      if (!any)
        r.refusals = {{"a vector", [=] { call(ones({2})); }, "at least 2 dimensions"},
                      {"an infinite matrix",
                       [=] {
                         call(full({2, 2}, INFINITY));
                       },
                       "non-finite"}};
      else
        r.refusals = {{"a cube",
                       [=] {
                         named ? linalg_norm(ones({2, 2, 2}), "nuc") : linalg_norm(ones({2, 2, 2}), Scalar(2));
                       },
                       "linalg.norm"}};
      add_row(r);
    }
}

const bool added_linalg = [] {
  add_matrix_norms();
  add_solve();
  add_determinants();
  add_cholesky();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
