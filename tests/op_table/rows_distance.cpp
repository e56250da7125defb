// Distances, windows, and writing by index with a reduction.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

Row vector_row(const char* name) {
  Row r = gradient_row_of(name, "", kFloats);
  r.tolerance = 10;
  r.absolute = 10;
  r.exact_layouts = false;
  return r;
}

double norm_of(const Values& v, double p) {
  double s = 0;
  for (const double x : v) {
    const double a = std::abs(x);
    s = p == 0 ? s + (a != 0) : std::isinf(p) ? std::max(s, a) : s + std::pow(a, p);
  }
  return p == 0 || std::isinf(p) ? s : std::pow(s, 1 / p);
}

/// Row i of a (…, n, m) array's matrix number b.
Values row_of(const Array& a, std::int64_t b, std::int64_t i) {
  const std::int64_t m = a.shape.back(), n = a.shape[a.shape.size() - 2];
  const std::int64_t at = (a.shape.size() == 2 ? i : (b * n + i)) * m;
  return Values(a.values.begin() + at, a.values.begin() + at + m);
}
Values difference(Values a, const Values& b, double eps = 0) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += eps - b[i];
  return a;
}

void add_cdist() {
  Row r = vector_row("cdist");
  r.tolerance = 30;
  r.absolute = 300;  // by a product, squares cancel
  for (const double p : {2.0, 1.0, 3.0, 0.0, static_cast<double>(INFINITY)})
    for (const std::int64_t mode : {0, 1, 2}) {
      if (p != 2 && mode != 0) continue;
      std::vector<Sample> samples = {{{uniform({3, 2}, -2, 2), uniform({2, 2}, -2, 2, 5)}, p != 0},
                                     {{uniform({2, 3, 2}, -2, 2), uniform({2, 2, 2}, -2, 2, 5)}, p != 0},
                                     {{distinct({0, 2}), distinct({3, 2})}, false},
                                     {{distinct({2, 0}), distinct({3, 0})}, false},
                                     {{uniform({31, 4}, -2, 2), uniform({5, 4}, -2, 2, 7)}, false, {kFloat, kDouble}}};
      // A distance of zero has no slope, and by a product half types lose it.
      if (mode == 1)
        for (Sample& s : samples) s.only = {kFloat, kDouble};
      r.cases.push_back(case_of(
          "p " + std::to_string(p) + " mode " + std::to_string(mode), samples,
          [=](const Tensors& x) { return cdist(x[0], x[1], p, mode); },
          [=](const Arrays& in) {
            Shape shape = in[0].shape;
            const std::int64_t n = shape[shape.size() - 2], m = in[1].shape[in[1].shape.size() - 2];
            shape.back() = m;
            Array out(shape);
            for (std::int64_t i = 0; i < out.numel(); ++i) {
              const std::int64_t b = i / std::max<std::int64_t>(n * m, 1);
              out[i] = norm_of(difference(row_of(in[0], b, i / m % n), row_of(in[1], b, i % m)), p);
            }
            return out;
          }));
    }
  r.refusals = {{"columns that differ",
                 [] {
                   cdist(ones({2, 3}), ones({2, 2}));
                 },
                 "same number of columns"},
                {"vectors", [] { cdist(ones({2}), ones({2})); }, "at least 2D"},
                {"a negative p",
                 [] {
                   cdist(ones({2, 2}), ones({2, 2}), -1);
                 },
                 "non-negative p"}};
  add_row(r);

  r = vector_row("pdist");
  for (const double p : {2.0, 1.0, 2.5, static_cast<double>(INFINITY)})
    r.cases.push_back(case_of(
        "p " + std::to_string(p),
        {{{uniform({4, 3}, -2, 2)}}, {{distinct({1, 3})}, false}, {{distinct({0, 3})}, false}},
        [=](const Tensors& x) { return pdist(x[0], p); },
        [=](const Arrays& in) {
          Values v;
          for (std::int64_t i = 0; i < in[0].shape[0]; ++i)
            for (std::int64_t j = i + 1; j < in[0].shape[0]; ++j)
              v.push_back(norm_of(difference(row_of(in[0], 0, i), row_of(in[0], 0, j)), p));
          return Array({static_cast<std::int64_t>(v.size())}, v);
        }));
  r.refusals = {{"a cube", [] { pdist(ones({2, 2, 2})); }, "only supports 2D"}};
  add_row(r);
}

void add_pairs() {
  Row r = vector_row("pairwise_distance");
  r.absolute = 30;
  for (const double p : {2.0, 1.0})
    for (const bool keepdim : {false, true})
      r.cases.push_back(case_of(
          std::to_string(p) + (keepdim ? " keepdim" : ""),
          {{{uniform({3, 4}, -2, 2), uniform({3, 4}, -2, 2, 3)}},
           {{uniform({3, 4}, -2, 2), uniform({1, 4}, -2, 2, 3)}},
           {{uniform({4}, -2, 2), uniform({4}, -2, 2, 3)}},
           {{uniform({0, 4}, -2, 2), uniform({0, 4}, -2, 2)}, false}},
          [=](const Tensors& x) { return pairwise_distance(x[0], x[1], p, 0.5, keepdim); },
          [=](const Arrays& in) {
            const Array d = map(in, [](const Values& v) { return v[0] - v[1] + 0.5; });
            return reduce(d, {d.dim() - 1}, keepdim, [=](const Values& v) { return norm_of(v, p); });
          }));
  add_row(r);

  r = vector_row("cosine_similarity");
  for (const std::int64_t dim : {1, 0, -1})
    r.cases.push_back(case_of(
        "dim " + std::to_string(dim),
        {{{uniform({2, 3}, 0.5, 2), uniform({2, 3}, -2, 2, 3)}},
         {{uniform({2, 3}, 0.5, 2), uniform({1, 3}, -2, 2, 3)}},
         {{uniform({41, 3, 7}, 0.5, 2), uniform({41, 3, 7}, -2, 2, 3)}, false},
         {{Array({2, 3}), uniform({2, 3}, 1, 2)}, false, {kFloat, kDouble, kBFloat16}}},
        [=](const Tensors& x) { return cosine_similarity(x[0], x[1], dim); },
        [=](const Arrays& in) {
          const Shape shape = broadcast({in[0].shape, in[1].shape});
          const Array a = expanded(in[0], shape), b = expanded(in[1], shape);
          const Shape dims{dim < 0 ? a.dim() + dim : dim};
          auto total = [&](const Array& x, const Array& y) {
            return reduce(map({x, y}, [](const Values& v) { return v[0] * v[1]; }), dims, false,
                          [](const Values& v) { return std::accumulate(v.begin(), v.end(), 0.0); });
          };
          return map({total(a, b), total(a, a), total(b, b)}, [](const Values& v) {
            return v[0] / (std::max(std::sqrt(v[1]), 1e-8) * std::max(std::sqrt(v[2]), 1e-8));
          });
        }));
  r.refusals = {{"shapes that do not broadcast",
                 [] {
                   cosine_similarity(ones({2, 3}), ones({2, 4}));
                 },
                 "cosine_similarity"}};
  add_row(r);

  r = vector_row("renorm");
  for (const double p : {2.0, 1.0}) {
    Case c = case_of(
        std::to_string(p), {{{distinct({3, 4})}}, {{distinct({2, 3, 2})}}, {{distinct({0, 3})}, false}},
        [=](const Tensors& x) { return renorm(x[0], p, 1, 1.5); },
        [=](const Arrays& in) {
          Array out = in[0];
          for (std::int64_t j = 0; j < in[0].shape[1]; ++j) {
            Values v;
            for (std::int64_t i = 0; i < in[0].numel(); ++i)
              if (index_of(i, in[0].shape)[1] == j) v.push_back(in[0][i]);
            const double n = norm_of(v, p);
            for (std::int64_t i = 0; i < in[0].numel(); ++i)
              if (index_of(i, in[0].shape)[1] == j && n > 1.5) out[i] *= 1.5 / (n + 1e-7);
          }
          return out;
        });
    c.inplace = [=](Tensor& self, const Tensors&) { self.renorm_(p, 1, 1.5); };
    r.cases.push_back(c);
  }
  r.refusals = {{"vectors", [] { renorm(ones({3}), 2, 0, 1); }, "at least 2 dimensions, got shape [3]"},
                {"a norm of order 0",
                 [] {
                   renorm(ones({3, 3}), 0, 0, 1);
                 },
                 "non-positive norm"},
                {"a negative bound",
                 [] {
                   renorm(ones({3, 3}), 2, 0, -1);
                 },
                 "maxnorm to be >= 0"}};
  add_row(r);
}

double bessel(double x) {
  double s = 0;
  // The integral (1/π) ∫ exp(x cos t) dt by the trapezoidal rule, which converges geometrically here.
  constexpr int kSteps = 400;
  for (int k = 0; k < kSteps; ++k) s += std::exp(x * std::cos(2 * M_PI * k / kSteps));
  return s / kSteps;
}

void add_windows() {
  using Fn = std::function<Tensor(std::int64_t, bool, const TensorOptions&)>;
  struct Window {
    const char* name;
    Fn fn;
    std::function<double(double, double)> value;
  };
  const Window windows[] = {
      {"hann_window", [](std::int64_t n, bool p, const TensorOptions& o) { return hann_window(n, p, o); },
       [](double i, double m) { return std::pow(std::sin(M_PI * i / m), 2); }},
      {"hamming_window",
       [](std::int64_t n, bool p, const TensorOptions& o) { return hamming_window(n, p, 0.6, 0.4, o); },
       [](double i, double m) { return 0.6 - 0.4 * std::cos(2 * M_PI * i / m); }},
      {"blackman_window", [](std::int64_t n, bool p, const TensorOptions& o) { return blackman_window(n, p, o); },
       [](double i, double m) { return 0.42 - 0.5 * std::cos(2 * M_PI * i / m) + 0.08 * std::cos(4 * M_PI * i / m); }},
      {"bartlett_window", [](std::int64_t n, bool p, const TensorOptions& o) { return bartlett_window(n, p, o); },
       [](double i, double m) { return 1 - std::abs(2 * i / m - 1); }},
      {"kaiser_window", [](std::int64_t n, bool p, const TensorOptions& o) { return kaiser_window(n, p, 8, o); },
       [](double i, double m) {
         return bessel(8 * std::sqrt(std::max(0.0, 1 - std::pow(2 * i / m - 1, 2)))) / bessel(8);
       }}};
  for (const Window& w : windows) {
    Row r{w.name, "", kFloats};
    r.refuses_others = false;
    const Fn fn = w.fn;
    const auto value = w.value;
    for (const std::int64_t n : {0, 1, 2, 5, 8})
      for (const bool periodic : {true, false})
        // The input carries the dtype and the device.
        r.cases.push_back(case_of(
            std::to_string(n) + (periodic ? " periodic" : ""), {{{Array({2, 2})}, false}},
            [=](const Tensors& x) { return fn(n, periodic, x[0].options()); },
            [=](const Arrays&) {
              Array out({n});
              for (std::int64_t i = 0; i < n; ++i)
                out[i] = n == 1 ? 1 : value(static_cast<double>(i), static_cast<double>(periodic ? n : n - 1));
              return out;
            }));
    r.refusals = {{"a negative length", [=] { fn(-1, true, kFloat); }, "non-negative window_length"},
                  {"integers", [=] { fn(3, true, kLong); }, "floating point dtypes"}};
    add_row(r);
  }
}

/// Elements src[k] combined into place[k] of self.
Array combined(const Array& self, const Array& src, const std::vector<std::int64_t>& place, const std::string& how,
               bool include_self, bool whole) {
  Array out = self;
  for (std::int64_t i = 0; i < self.numel(); ++i) {
    Values v;
    if (include_self) v.push_back(self[i]);
    for (std::size_t k = 0; k < place.size(); ++k)
      if (place[k] == i) v.push_back(src[static_cast<std::int64_t>(k)]);
    if (v.size() == (include_self ? 1U : 0U)) continue;
    double x = v[0];
    for (std::size_t k = 1; k < v.size(); ++k)
      x = how == "prod" ? x * v[k] : how == "amax" ? std::max(x, v[k]) : how == "amin" ? std::min(x, v[k]) : x + v[k];
    if (how == "mean") x = whole ? std::floor(x / static_cast<double>(v.size())) : x / static_cast<double>(v.size());
    out[i] = x;
  }
  return out;
}

void add_reductions() {
  for (const bool scatters : {true, false}) {
    Row r =
        gradient_row_of(scatters ? "scatter_reduce" : "index_reduce", scatters ? "two" : "", kFloats + DTypes{kLong});
    r.exact_layouts = false;
    r.tolerance = 4;
    r.refuses_others = false;
    for (const char* how : {"sum", "prod", "mean", "amax", "amin"}) {
      if (!scatters && std::string(how) == "sum") continue;
      for (const bool include_self : {true, false}) {
        const std::string name = how;
        auto place_of = [=](const Array& self, const Array& index, const Array& src) {
          std::vector<std::int64_t> place;
          for (std::int64_t k = 0; k < src.numel(); ++k) {
            Shape at = index_of(k, src.shape);
            at[0] = static_cast<std::int64_t>(scatters ? index[k] : index[at[0]]);
            place.push_back(self.offset(at));
          }
          return place;
        };
        const Input index =
            scatters ? Input(Array({4, 2}, {0, 1, 2, 2, 0, 0, 0, 2}), kLong) : Input(Array({4}, {0, 2, 0, 0}), kLong);
        std::vector<Sample> samples = {
            {{uniform({3, 2}, 0.5, 2), index, uniform({4, 2}, -2, 2, 9)}},
            {{distinct({3, 2}, 1), index, distinct({4, 2}, 1, 9)}, false, {kLong}},
            {{distinct({3, 2}), scatters ? Input(Array({0, 2}), kLong) : Input(Array({0}), kLong), Array({0, 2})},
             false}};
        // A factor of zero has no second gradient.
        if (name == "prod")
          samples.push_back(
              {{uniform({3, 2}, 0.5, 2), index, Array({4, 2}, {0, 1, 2, 0, 3, -1, 2, 0.5})}, false, kFloats});
        auto call = [=](const Tensors& x) {
          return scatters ? scatter_reduce(x[0], 0, x[1], x[2], name, include_self)
                          : index_reduce(x[0], 0, x[1], x[2], name, include_self);
        };
        Case c = case_of(name + (include_self ? "" : " without self"), samples, call, [=](const Arrays& in) {
          bool whole = true;
          for (const double v : in[0].values) whole = whole && v == std::floor(v);
          return combined(in[0], in[2], place_of(in[0], in[1], in[2]), name, include_self, whole);
        });
        c.inplace = [=](Tensor& self, const Tensors& x) {
          if (scatters)
            self.scatter_reduce_(0, x[1], x[2], name, include_self);
          else
            self.index_reduce_(0, x[1], x[2], name, include_self);
        };
        r.cases.push_back(c);
      }
    }
    r.refusals = {{"an unknown reduction",
                   [=] {
                     const Tensor i = zeros({2}, kLong);
                     scatters ? scatter_reduce(ones({2}), 0, i, ones({2}), "median")
                              : index_reduce(ones({2}), 0, i, ones({2}), "median");
                   },
                   "reduce argument must be one of"},
                  {"an index out of range",
                   [=] {
                     const Tensor i = full({2}, 7, kLong);
                     scatters ? scatter_reduce(ones({2}), 0, i, ones({2}), "prod")
                              : index_reduce(ones({2}), 0, i, ones({2}), "prod");
                   },
                   "out of bounds"},
                  {"two dtypes",
                   [=] {
                     const Tensor i = zeros({2}, kLong);
                     scatters ? scatter_reduce(ones({2}), 0, i, ones({2}, kDouble), "prod")
                              : index_reduce(ones({2}), 0, i, ones({2}, kDouble), "prod");
                   },
                   "same dtype"}};
    add_row(r);
  }
}

const bool added_distance = [] {
  add_cdist();
  add_pairs();
  add_windows();
  add_reductions();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
