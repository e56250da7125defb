// QR, singular values, eigenvalues, triangular systems, and what follows from them. Factors are compared by what does
// not depend on their signs.
#include "op_table/rows.h"

namespace athanor::op_table::decompositions {

namespace {

using Matrix = std::vector<Values>;

Row decomposition_row(const char* name, const char* overload = "") {
  Row r = gradient_row_of(name, overload, {kFloat, kDouble});
  r.tolerance = 100;
  r.absolute = 100;
  r.exact_layouts = false;
  return r;
}

/// fn on each matrix of `a`; what it gives, one after another, in matrices of rows × columns.
Array each(const Array& a, std::int64_t rows, std::int64_t columns, const std::function<Matrix(const Matrix&)>& fn) {
  Shape shape(a.shape.begin(), a.shape.end() - 2);
  const std::int64_t m = a.shape[a.shape.size() - 2], n = a.shape.back();
  std::int64_t batch = 1;
  for (const std::int64_t size : shape) batch *= size;
  if (rows >= 0) shape.push_back(rows);
  if (columns >= 0) shape.push_back(columns);
  Array out(shape);
  out.values.clear();
  for (std::int64_t b = 0; b < batch; ++b) {
    Matrix one(static_cast<std::size_t>(m));
    for (std::int64_t i = 0; i < m; ++i)
      one[static_cast<std::size_t>(i)].assign(a.values.begin() + (b * m + i) * n,
                                              a.values.begin() + (b * m + i + 1) * n);
    for (const Values& row : fn(one)) out.values.insert(out.values.end(), row.begin(), row.end());
  }
  return out;
}

Matrix transpose_of(const Matrix& a) {
  Matrix out(a.empty() ? 0 : a[0].size());
  for (const Values& row : a)
    for (std::size_t j = 0; j < row.size(); ++j) out[j].push_back(row[j]);
  return out;
}

Matrix times(const Matrix& a, const Matrix& b) {
  Matrix out;
  for (const Values& row : a) {
    out.emplace_back(b.empty() ? 0 : b[0].size());
    for (std::size_t k = 0; k < row.size(); ++k)
      for (std::size_t j = 0; j < out.back().size(); ++j) out.back()[j] += row[k] * b[k][j];
  }
  return out;
}

Matrix unit(std::size_t n) {
  Matrix out(n, Values(n));
  for (std::size_t i = 0; i < n; ++i) out[i][i] = 1;
  return out;
}

/// Eigenvalues, the least first, and eigenvectors as rows, by rotations of rows and columns.
std::pair<Values, Matrix> eigen(Matrix a) {
  const std::size_t n = a.size();
  Matrix v = unit(n);
  for (int sweep = 0; sweep < 40; ++sweep)
    for (std::size_t p = 0; p < n; ++p)
      for (std::size_t q = p + 1; q < n; ++q) {
        const double angle = 0.5 * std::atan2(2 * a[p][q], a[q][q] - a[p][p]), c = std::cos(angle), s = std::sin(angle);
        const auto turn = [&](double& x, double& y) {
          const double old = x;
          x = c * old - s * y;
          y = s * old + c * y;
        };
        for (std::size_t k = 0; k < n; ++k) turn(a[k][p], a[k][q]);
        for (std::size_t k = 0; k < n; ++k) turn(a[p][k], a[q][k]), turn(v[p][k], v[q][k]);
      }
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return a[x][x] < a[y][y]; });
  std::pair<Values, Matrix> out;
  for (const std::size_t i : order) out.first.push_back(a[i][i]), out.second.push_back(v[i]);
  return out;
}

/// The greatest first.
Values values_of(const Matrix& a) {
  const Matrix t = transpose_of(a);
  Values out = eigen(a.size() < t.size() ? times(a, t) : times(t, a)).first;
  std::reverse(out.begin(), out.end());
  for (double& x : out) x = std::sqrt(std::max(x, 0.0));
  return out;
}

std::int64_t rows_of(const Array& a) { return a.shape[a.shape.size() - 2]; }
std::int64_t columns_of(const Array& a) { return a.shape.back(); }
std::int64_t least_of(const Array& a) { return std::min(rows_of(a), columns_of(a)); }

Array singular(const Array& a) {
  return each(a, least_of(a), -1, [](const Matrix& m) { return Matrix{values_of(m)}; });
}
Array units(const Array& a, std::int64_t n) {
  return each(a, n, n, [&](const Matrix&) { return unit(static_cast<std::size_t>(n)); });
}
/// (aᵀ a)⁻¹ aᵀ, or aᵀ (a aᵀ)⁻¹, by eigenvectors.
Array pseudo_inverse(const Array& a) {
  return each(a, columns_of(a), rows_of(a), [](const Matrix& m) {
    const Matrix t = transpose_of(m);
    const bool wide = m.size() < t.size();
    const auto [l, v] = eigen(wide ? times(m, t) : times(t, m));
    Matrix scaled = v;
    for (std::size_t i = 0; i < v.size(); ++i)
      for (double& x : scaled[i]) x /= l[i];
    const Matrix inverse = times(transpose_of(v), scaled);
    return wide ? times(t, inverse) : times(inverse, t);
  });
}

/// With a dim of batches, for the driver repeats what stands along the first one.
std::vector<Sample> matrices(bool square = false) {
  std::vector<Sample> out = {{{uniform({1, 3, 3}, -1, 1, 3)}},
                             {{uniform({2, 2, 2}, -1, 1, 5)}},
                             {{Array({0, 2, 2})}, false},
                             {{uniform({1, 45, 45}, -1, 1, 9)}, false}};
  if (square) return out;
  out.push_back({{uniform({1, 4, 2}, -1, 1, 11)}});
  out.push_back({{uniform({1, 2, 3}, -1, 1, 13)}});
  out.push_back({{uniform({1, 50, 33}, -1, 1, 15)}, false});
  out.push_back({{uniform({2, 30, 41}, -1, 1, 17)}, false});
  return out;
}

Case with_results(const char* name, std::vector<Sample> samples, Call call, Reference reference) {
  return {name, std::move(samples), std::move(call), std::move(reference), {}, {}};
}
Tensor gram(const Tensor& columns) { return matmul(columns.mT(), columns); }

Refusal vector(const std::function<void(const Tensor&)>& fn) {
  return {"a vector", [=] { fn(ones({2})); }, "at least 2 dimensions"};
}
Refusal not_square(const std::function<void(const Tensor&)>& fn) {
  return {"a matrix that is not square", [=] { fn(ones({2, 3})); }, "square"};
}
Refusal infinite(const std::function<void(const Tensor&)>& fn) {
  return {"an infinite matrix", [=] { fn(full({2, 2}, INFINITY)); }, "non-finite"};
}

void add_qr() {
  Row r = decomposition_row("linalg_qr");
  for (const char* mode : {"reduced", "complete"}) {
    std::vector<Sample> samples = matrices();
    const bool complete = mode[0] == 'c';
    if (complete)
      for (Sample& s : samples) s.gradient = s.gradient && rows_of(s.inputs[0].array) <= columns_of(s.inputs[0].array);
    r.cases.push_back(with_results(
        mode, samples,
        [=](const Tensors& x) {
          const auto [q, upper] = linalg_qr(x[0], mode);
          // Of R the sizes: those of Rᵀ R, and below its diagonal nothing.
          return Tensors{matmul(q, upper), gram(q), gram(upper), upper.tril(-1)};
        },
        [=](const Arrays& in) {
          const std::int64_t k = complete ? rows_of(in[0]) : least_of(in[0]), n = columns_of(in[0]);
          return Arrays{in[0], units(in[0], k),
                        each(in[0], n, n, [](const Matrix& m) { return times(transpose_of(m), m); }),
                        each(in[0], k, n, [&](const Matrix&) {
                          return Matrix(static_cast<std::size_t>(k), Values(static_cast<std::size_t>(n)));
                        })};
        }));
  }
  std::vector<Sample> samples = matrices();
  for (Sample& s : samples) s.gradient = false;
  r.cases.push_back(with_results(
      "r", samples,
      [](const Tensors& x) {
        const auto [q, upper] = linalg_qr(x[0], "r");
        return Tensors{q, gram(upper)};
      },
      [](const Arrays& in) {
        const std::int64_t n = columns_of(in[0]);
        return Arrays{Array({0}), each(in[0], n, n, [](const Matrix& m) { return times(transpose_of(m), m); })};
      }));
  r.refusals = {vector([](const Tensor& a) { linalg_qr(a); }),
                {"an unknown mode",
                 [] {
                   linalg_qr(ones({2, 2}), "raw");
                 },
                 "unrecognized mode 'raw'"},
                {"the gradient of R alone",
                 [] {
                   std::get<1>(linalg_qr(ones({2, 2}).requires_grad_(true), "r")).sum().backward();
                 },
                 "mode='reduced'"},
                {"the gradient of a basis that the matrix does not determine",
                 [] {
                   std::get<1>(linalg_qr(ones({3, 2}).requires_grad_(true), "complete")).sum().backward();
                 },
                 "not differentiable"}};
  add_row(r);
}

void add_svd() {
  for (const bool old : {false, true}) {
    Row r = decomposition_row(old ? "svd" : "linalg_svd");
    for (const bool full : {false, true})
      r.cases.push_back(with_results(
          full ? "full" : "reduced", matrices(),
          [=](const Tensors& x) {
            auto [u, s, v] = old ? svd(x[0], !full) : linalg_svd(x[0], full);
            if (!old) v = v.mT();
            const std::int64_t k = s.size(-1);
            const Tensor u1 = u.narrow(-1, 0, k), v1 = v.narrow(-1, 0, k);
            return Tensors{s, matmul(u1 * s.unsqueeze(-2), v1.mT()), gram(u1), gram(v1), gram(u.detach()), square(u1)};
          },
          [=](const Arrays& in) {
            const std::int64_t m = rows_of(in[0]), k = least_of(in[0]);
            const Array squares = each(in[0], m, k, [=](const Matrix& a) {
              Matrix rows = eigen(times(a, transpose_of(a))).second;
              std::reverse(rows.begin(), rows.end());
              rows.resize(static_cast<std::size_t>(k));
              for (Values& row : rows)
                for (double& x : row) x *= x;
              return transpose_of(rows);
            });
            return Arrays{singular(in[0]), in[0], units(in[0], k), units(in[0], k), units(in[0], full ? m : k),
                          squares};
          }));
    const auto call = [=](const Tensor& a) { old ? svd(a) : linalg_svd(a); };
    r.refusals = {vector(call), infinite(call)};
    if (!old)
      r.refusals.push_back({"a driver", [] { linalg_svd(ones({2, 2}), true, "gesvd"); }, "only supported on CUDA"});
    add_row(r);
  }
  Row r = decomposition_row("linalg_svdvals");
  r.cases = {case_of(
      "", matrices(), [](const Tensors& x) { return linalg_svdvals(x[0]); },
      [](const Arrays& in) { return singular(in[0]); })};
  r.refusals = {vector([](const Tensor& a) { linalg_svdvals(a); }),
                infinite([](const Tensor& a) { linalg_svdvals(a); })};
  add_row(r);
}

void add_eigh() {
  for (const bool only : {false, true}) {
    Row r = decomposition_row(only ? "linalg_eigvalsh" : "linalg_eigh");
    for (const char* triangle : {"L", "u"})
      r.cases.push_back(with_results(
          triangle, matrices(true),
          [=](const Tensors& x) {
            // Symmetric in the input, so that finite differences are.
            const Tensor a = x[0] + x[0].mT();
            if (only) return Tensors{linalg_eigvalsh(a, triangle)};
            const Tensor half = triangle[0] == 'L' ? a.tril() : a.triu();
            const auto [l, v] = linalg_eigh(x[0].requires_grad() ? a : half, triangle);
            return Tensors{l, matmul(v * l.unsqueeze(-2), v.mT()), gram(v), square(v)};
          },
          [=](const Arrays& in) {
            const std::int64_t n = rows_of(in[0]);
            const auto doubled = [](const Matrix& m) {
              Matrix t = transpose_of(m);
              for (std::size_t i = 0; i < m.size(); ++i)
                for (std::size_t j = 0; j < m.size(); ++j) t[i][j] += m[i][j];
              return t;
            };
            const Array l = each(in[0], n, -1, [&](const Matrix& m) { return Matrix{eigen(doubled(m)).first}; });
            if (only) return Arrays{l};
            const Array squares = each(in[0], n, n, [&](const Matrix& m) {
              Matrix rows = eigen(doubled(m)).second;
              for (Values& row : rows)
                for (double& x : row) x *= x;
              return transpose_of(rows);
            });
            return Arrays{l, each(in[0], n, n, doubled), units(in[0], n), squares};
          }));
    const auto call = [=](const Tensor& a, const char* half) {
      only ? (void)linalg_eigvalsh(a, half) : (void)linalg_eigh(a, half);
    };
    r.refusals = {not_square([=](const Tensor& a) { call(a, "L"); }),
                  {"an unknown triangle",
                   [=] {
                     call(ones({2, 2}), "x");
                   },
                   "'L' or 'U', but got x"}};
    add_row(r);
  }
}

/// Far from singular, with triangles of which one must not be read.
Array system(const Shape& shape, unsigned seed) {
  Array a = uniform(shape, -0.5, 0.5, seed);
  const std::int64_t n = shape.back();
  for (std::int64_t i = 0; i < a.numel(); ++i)
    if (i / n % n == i % n) a[i] += i % 2 ? 2 : -2;
  return a;
}

/// x of a x = b where a's triangle alone is there.
Array substituted(const Array& a, const Array& b, bool upper, bool ones) {
  const std::int64_t n = columns_of(a), m = columns_of(b);
  Array x = b;
  for (std::int64_t start = 0; start < b.numel(); start += n * m) {
    const std::int64_t from = start / m * n % std::max<std::int64_t>(a.numel(), 1);
    for (std::int64_t step = 0; step < n; ++step)
      for (std::int64_t j = 0, i = upper ? n - 1 - step : step; j < m; ++j) {
        double& to = x[start + i * m + j];
        for (std::int64_t k = upper ? i + 1 : 0; k < (upper ? n : i); ++k)
          to -= a[from + i * n + k] * x[start + k * m + j];
        if (!ones) to /= a[from + i * n + i];
      }
  }
  return x;
}

std::vector<Sample> systems() {
  return {{{uniform({3, 2}, -1, 1), system({3, 3}, 3)}},
          {{uniform({2, 2, 2}, -1, 1), system({2, 2, 2}, 5)}},
          {{uniform({2, 3, 1}, -1, 1), system({3, 3}, 7)}},
          {{Array({0, 2}), Array({0, 0})}, false},
          {{uniform({40, 3}, -1, 1), system({40, 40}, 9)}, false}};
}

void add_triangular() {
  Row r = decomposition_row("linalg_solve_triangular");
  for (const bool upper : {false, true})
    for (const bool unit : {false, true}) {
      const std::string name = std::string(upper ? "upper" : "lower") + (unit ? ", ones" : "");
      r.cases.push_back(case_of(
          name, unit ? std::vector<Sample>{systems()[0], systems()[1]} : systems(),
          [=](const Tensors& x) { return linalg_solve_triangular(x[1], x[0], upper, true, unit); },
          [=](const Arrays& in) { return substituted(in[1], in[0], upper, unit); }));
    }
  r.cases.push_back(case_of(
      "from the right", {{{uniform({2, 3}, -1, 1), system({3, 3}, 3)}}},
      [](const Tensors& x) { return linalg_solve_triangular(x[1], x[0], true, false); },
      [](const Arrays& in) {
        return transposed(substituted(transposed(in[1], 0, 1), transposed(in[0], 0, 1), false, false), 0, 1);
      }));
  r.refusals = {not_square([](const Tensor& a) { linalg_solve_triangular(a, a, true); }),
                {"shapes that do not fit",
                 [] {
                   linalg_solve_triangular(ones({2, 2}), ones({3, 2}), true);
                 },
                 "AX = B"},
                {"a vector",
                 [] {
                   linalg_solve_triangular(ones({2, 2}), ones({2}), true);
                 },
                 "at least 2 dimensions"},
                {"two dtypes",
                 [] {
                   linalg_solve_triangular(ones({2, 2}), ones({2, 2}, kDouble), true);
                 },
                 "same dtype"}};
  add_row(r);
  r = decomposition_row("cholesky_solve");
  for (const bool upper : {false, true})
    r.cases.push_back(case_of(
        upper ? "upper" : "lower", systems(), [=](const Tensors& x) { return cholesky_solve(x[0], x[1], upper); },
        [=](const Arrays& in) {
          const std::size_t last = in[1].shape.size() - 1;
          const Array other = transposed(in[1], last - 1, last);
          return substituted(upper ? in[1] : other, substituted(upper ? other : in[1], in[0], false, false), true,
                             false);
        }));
  r.refusals = {not_square([](const Tensor& a) { cholesky_solve(a, a); }),
                {"shapes that do not fit",
                 [] {
                   cholesky_solve(ones({3, 2}), ones({2, 2}));
                 },
                 "Incompatible matrix sizes"},
                {"two dtypes",
                 [] {
                   cholesky_solve(ones({2, 2}, kDouble), ones({2, 2}));
                 },
                 "same dtype"}};
  add_row(r);
}

void add_inverses() {
  const auto reference = [](const Arrays& in) { return pseudo_inverse(in[0]); };
  Row r = decomposition_row("linalg_pinv");
  r.cases = {case_of(
                 "", matrices(), [](const Tensors& x) { return linalg_pinv(x[0]); }, reference),
             case_of(
                 "hermitian", matrices(true),
                 [](const Tensors& x) { return linalg_pinv(x[0] + x[0].mT(), 0, 1e-9, true) * 2; },
                 [](const Arrays& in) {
                   return each(in[0], rows_of(in[0]), rows_of(in[0]), [](const Matrix& m) {
                     Matrix half = transpose_of(m);
                     for (std::size_t i = 0; i < m.size(); ++i)
                       for (std::size_t j = 0; j < m.size(); ++j) half[i][j] = (half[i][j] + m[i][j]) / 2;
                     const auto [l, v] = eigen(half);
                     Matrix scaled = v;
                     for (std::size_t i = 0; i < v.size(); ++i)
                       for (double& x : scaled[i]) x /= l[i];
                     return times(transpose_of(v), scaled);
                   });
                 })};
  r.refusals = {vector([](const Tensor& a) { linalg_pinv(a); }), infinite([](const Tensor& a) { linalg_pinv(a); }),
                not_square([](const Tensor& a) { linalg_pinv(a, {}, {}, true); })};
  add_row(r);
  r = decomposition_row("linalg_pinv", "rcond");
  r.cases = {case_of(
      "", matrices(), [](const Tensors& x) { return linalg_pinv(x[0], 1e-6); }, reference)};
  r.refusals = {vector([](const Tensor& a) { linalg_pinv(a, 1e-3); })};
  add_row(r);
  r = decomposition_row("pinverse");
  r.cases = {case_of(
      "", matrices(), [](const Tensors& x) { return pinverse(x[0]); }, reference)};
  r.refusals = {vector([](const Tensor& a) { pinverse(a); })};
  add_row(r);
  r = decomposition_row("linalg_lstsq");
  r.cases = {case_of(
      "",
      {{{uniform({1, 4, 2}, -1, 1, 3), uniform({1, 4, 3}, -1, 1)}},
       {{uniform({2, 2, 3}, -1, 1, 3), uniform({2, 2, 1}, -1, 1)}},
       {{Array({3, 0}), Array({3, 1})}, false},
       {{uniform({1, 40, 30}, -1, 1, 3), uniform({1, 40, 2}, -1, 1)}, false}},
      [](const Tensors& x) { return std::get<0>(linalg_lstsq(x[0], x[1])); },
      [](const Arrays& in) {
        const Array inverse = pseudo_inverse(in[0]);
        const std::int64_t n = rows_of(inverse), m = columns_of(inverse), k = columns_of(in[1]);
        Shape shape(in[1].shape);
        shape[shape.size() - 2] = n;
        Array out(shape);
        for (std::int64_t i = 0; i < out.numel(); ++i)
          for (std::int64_t l = 0; l < m; ++l)
            out[i] += inverse[i / k * m + l] * in[1][i / (n * k) * m * k + l * k + i % k];
        return out;
      })};
  r.refusals = {vector([](const Tensor& a) { linalg_lstsq(a, a); }),
                {"shapes that do not fit",
                 [] {
                   linalg_lstsq(ones({3, 2}), ones({2, 2}));
                 },
                 "should match"},
                {"an unknown driver",
                 [] {
                   linalg_lstsq(ones({3, 2}), ones({3, 2}), {}, "qr");
                 },
                 "gelsd, gelss"}};
  add_row(r);
}

void add_numbers_of_matrices() {
  for (const bool old : {false, true}) {
    Row r = decomposition_row("linalg_matrix_rank", old ? "tol" : "");
    r.gradient = false;
    r.result = long_type;
    r.cases = {case_of(
        "",
        {{{uniform({3, 4, 2}, -1, 1, 3)}},
         {{Array({2, 2}, Values{1, 2, 2, 4})}},
         {{Array({3, 3}, Values{1, 0, 0, 0, 1e-3, 0, 0, 0, 0})}},
         {{Array({2, 2}, Values{0, 0, 0, 0})}},
         {{Array({0, 3})}}},
        [=](const Tensors& x) {
          return old ? linalg_matrix_rank(x[0], 1e-2) : linalg_matrix_rank(x[0], std::optional(1e-2));
        },
        [](const Arrays& in) {
          return each(in[0], -1, -1, [](const Matrix& m) {
            double count = 0;
            for (const double s : values_of(m)) count += s > 1e-2;
            return Matrix{{count}};
          });
        })};
    r.refusals = {vector([](const Tensor& a) { linalg_matrix_rank(a); })};
    add_row(r);
  }
  for (const bool named : {false, true}) {
    Row r = decomposition_row("linalg_cond", named ? "p_str" : "");
    const auto add = [&](const std::string& name, const auto& order, const auto& reference) {
      r.cases.push_back(case_of(
          name, matrices(true), [=](const Tensors& x) { return linalg_cond(x[0], order); },
          [=](const Arrays& in) {
            return each(in[0], -1, -1, [&](const Matrix& m) { return Matrix{{reference(m)}}; });
          }));
    };
    const auto sums = [](const Matrix& m, double power) {
      double a = 0, b = 0;
      for (const double s : values_of(m)) a += std::pow(s, power), b += std::pow(s, -power);
      return std::pow(a, 1 / power) * std::pow(b, 1 / power);
    };
    if (named) {
      add("fro", std::string_view("fro"), [=](const Matrix& m) { return sums(m, 2); });
      add("nuc", std::string_view("nuc"), [=](const Matrix& m) { return sums(m, 1); });
      r.refusals = {{"an unknown norm", [] { linalg_cond(ones({2, 2}), "two"); }, "invalid norm type: two"}};
    } else {
      const auto ratio = [](const Matrix& m) { return values_of(m).front() / values_of(m).back(); };
      add("none", std::optional<Scalar>(), ratio);
      add("-2", std::optional<Scalar>(-2), [=](const Matrix& m) { return 1 / ratio(m); });
      r.refusals = {{"an unknown norm",
                     [] {
                       linalg_cond(ones({2, 2}), 3);
                     },
                     "invalid norm type: 3"},
                    {"a wide matrix of another norm",
                     [] {
                       linalg_cond(ones({2, 3}), 1);
                     },
                     "square"}};
    }
    add_row(r);
  }
}

const bool added_linalg_decompositions = [] {
  add_qr();
  add_svd();
  add_eigh();
  add_triangular();
  add_inverses();
  add_numbers_of_matrices();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table::decompositions
