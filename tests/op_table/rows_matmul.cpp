// Products product_of vectors, matrices and batches.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

/// Matrices product_of the last two dims multiplied; batch dims broadcast.
Array product(const Array& a, const Array& b) {
  const Shape batch = broadcast({Shape(a.shape.begin(), a.shape.end() - 2), Shape(b.shape.begin(), b.shape.end() - 2)});
  const std::int64_t m = a.shape[a.shape.size() - 2], k = a.shape.back(), n = b.shape.back();
  auto full = [&](const Array& x, std::int64_t rows, std::int64_t columns) {
    Shape s = batch;
    s.push_back(rows);
    s.push_back(columns);
    return expanded(x, s);
  };
  const Array left = full(a, m, k), right = full(b, k, n);
  Array out = full(Array({1, 1}), m, n);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const std::int64_t column = i % n, row = i / n % m, matrix = i / n / m;
    for (std::int64_t j = 0; j < k; ++j)
      out[i] += left[(matrix * m + row) * k + j] * right[(matrix * k + j) * n + column];
  }
  return out;
}

/// As PyTorch's matmul: vectors become a row on the left, a column on the right.
Array general_product(Array a, Array b) {
  const bool row = a.dim() == 1, column = b.dim() == 1;
  if (row) a.shape.insert(a.shape.begin(), 1);
  if (column) b.shape.push_back(1);
  Array out = product(a, b);
  if (column) out.shape.pop_back();
  if (row) out.shape.erase(out.shape.end() - (column ? 1 : 2));
  return out;
}

Array added_to(const Array& self, const Array& p, double beta, double alpha) {
  return map({expanded(self, p.shape), p},
             [=](const Values& v) { return (beta == 0 ? 0 : beta * v[0]) + alpha * v[1]; });
}

/// Operands product_of those shapes, small enough for sums in int8 to be what the wrapped reference is.
Sample product_of(const std::vector<Shape>& shapes, bool gradient = true, const DTypes& only = {}) {
  Sample s{{}, gradient, only};
  for (std::size_t i = 0; i < shapes.size(); ++i)
    s.inputs.emplace_back(uniform(shapes[i], -2, 2, static_cast<unsigned>(i + 1)));
  return s;
}

Row product_row(const char* name, const char* overload = "") {
  Row r = gradient_row_of(name, overload, kNumbers);
  r.tolerance = 8;
  r.absolute = 20;  // sums cancel
  r.exact_layouts = false;
  return r;
}

const DTypes kWide = {kFloat, kDouble, kBFloat16, kLong};

using Two = Tensor (*)(const Tensor&, const Tensor&);
using TwoOut = void (*)(Tensor&, const Tensor&, const Tensor&);

Row two(const char* name, std::vector<Sample> samples, Two fn, TwoOut out,
        const std::function<Array(const Arrays&)>& ref) {
  Row r = product_row(name);
  Case c = case_of(
      "", std::move(samples), [=](const Tensors& x) { return fn(x[0], x[1]); }, ref);
  c.out = [=](Tensor& o, const Tensors& x) { out(o, x[0], x[1]); };
  r.cases = {c};
  return r;
}

void add_plain_products() {
  auto mul_all = [](const Arrays& in) { return general_product(in[0], in[1]); };
  Row r = two(
      "mm",
      {product_of({{2, 3}, {3, 2}}), product_of({{1, 1}, {1, 1}}), product_of({{0, 3}, {3, 2}}, false),
       product_of({{2, 0}, {0, 3}}, false), product_of({{7, 33}, {33, 5}}, false),
       product_of({{65, 130}, {130, 70}}, false, kWide), product_of({{1, 67}, {67, 41}}, false)},
      +[](const Tensor& a, const Tensor& b) { return mm(a, b); },
      +[](Tensor& o, const Tensor& a, const Tensor& b) { mm_out(o, a, b); }, mul_all);
  r.refusals = {{"inner sizes that differ",
                 [] {
                   mm(ones({2, 3}), ones({2, 3}));
                 },
                 "cannot be multiplied (2x3 and 2x3)"},
                {"vectors",
                 [] {
                   mm(ones({3}), ones({3, 2}));
                 },
                 "self must be a matrix"},
                {"two dtypes",
                 [] {
                   mm(ones({2, 2}), ones({2, 2}, kDouble));
                 },
                 "same dtype"}};
  add_row(r);
  r = two(
      "bmm",
      {product_of({{2, 2, 3}, {2, 3, 2}}), product_of({{1, 1, 2}, {1, 2, 3}}),
       product_of({{0, 2, 3}, {0, 3, 2}}, false), product_of({{2, 2, 0}, {2, 0, 2}}, false),
       product_of({{5, 7, 33}, {5, 33, 3}}, false)},
      +[](const Tensor& a, const Tensor& b) { return bmm(a, b); },
      +[](Tensor& o, const Tensor& a, const Tensor& b) { bmm_out(o, a, b); }, mul_all);
  r.refusals = {{"batches that differ",
                 [] {
                   bmm(ones({2, 2, 3}), ones({3, 3, 2}));
                 },
                 "to be: [2, 3] but got: [3, 3]"},
                {"matrices",
                 [] {
                   bmm(ones({2, 3}), ones({3, 2}));
                 },
                 "must be 3D tensors"}};
  add_row(r);
  r = two(
      "mv", {product_of({{2, 3}, {3}}), product_of({{3, 0}, {0}}, false), product_of({{41, 67}, {67}}, false)},
      +[](const Tensor& a, const Tensor& b) { return mv(a, b); },
      +[](Tensor& o, const Tensor& a, const Tensor& b) { mv_out(o, a, b); }, mul_all);
  r.refusals = {{"sizes that differ", [] { mv(ones({2, 3}), ones({2})); }, "size mismatch"}};
  add_row(r);
  for (const bool is_dot : {true, false}) {
    r = two(
        is_dot ? "dot" : "vdot",
        {product_of({{3}, {3}}), product_of({{0}, {0}}, false), product_of({{301}, {301}}, false)},
        is_dot ? +[](const Tensor& a, const Tensor& b) { return dot(a, b); }
               : +[](const Tensor& a, const Tensor& b) { return vdot(a, b); },
        is_dot ? +[](Tensor& o, const Tensor& a, const Tensor& b) { dot_out(o, a, b); }
               : +[](Tensor& o, const Tensor& a, const Tensor& b) { vdot_out(o, a, b); },
        mul_all);
    r.refusals = {{"sizes that differ", [] { dot(ones({2}), ones({3})); }, "inconsistent tensor size"},
                  {"matrices",
                   [] {
                     dot(ones({2, 2}), ones({2, 2}));
                   },
                   "1D tensors expected"}};
    add_row(r);
    r = two(
        is_dot ? "outer" : "ger",
        {product_of({{2}, {3}}), product_of({{0}, {3}}, false), product_of({{37}, {41}}, false)},
        is_dot ? +[](const Tensor& a, const Tensor& b) { return outer(a, b); }
               : +[](const Tensor& a, const Tensor& b) { return ger(a, b); },
        is_dot ? +[](Tensor& o, const Tensor& a, const Tensor& b) { outer_out(o, a, b); }
               : +[](Tensor& o, const Tensor& a, const Tensor& b) { ger_out(o, a, b); },
        [](const Arrays& in) {
          return product(with_shape(in[0], {in[0].numel(), 1}), with_shape(in[1], {1, in[1].numel()}));
        });
    r.refusals = {{"matrices", [] { outer(ones({2, 2}), ones({2})); }, "Expected 1-D"}};
    r.refuses_others = false;
    add_row(r);
  }
  r = two(
      "matmul",
      {product_of({{3}, {3}}), product_of({{2, 3}, {3}}), product_of({{3}, {3, 2}}), product_of({{2, 3}, {3, 2}}),
       product_of({{2, 2, 3}, {3, 2}}), product_of({{2, 2, 3}, {3}}), product_of({{2, 3}, {2, 3, 2}}),
       product_of({{3}, {2, 3, 2}}), product_of({{2, 1, 2, 3}, {2, 3, 2}}), product_of({{2, 0, 3}, {3, 2}}, false),
       product_of({{3, 2, 0}, {3, 0, 2}}, false), product_of({{0, 2, 3}, {3, 2}}, false),
       product_of({{5, 1, 7, 33}, {3, 33, 2}}, false), product_of({{2, 33}, {5, 33, 41}}, false)},
      +[](const Tensor& a, const Tensor& b) { return matmul(a, b); },
      +[](Tensor& o, const Tensor& a, const Tensor& b) { matmul_out(o, a, b); }, mul_all);
  r.refusals = {{"0-d", [] { matmul(ones({}), ones({2})); }, "at least 1D"},
                {"inner sizes that differ",
                 [] {
                   matmul(ones({2, 2, 3}), ones({4, 2}));
                 },
                 "cannot be multiplied"},
                {"batches that do not broadcast",
                 [] {
                   matmul(ones({2, 2, 3}), ones({3, 3, 2}));
                 },
                 "matmul"}};
  add_row(r);
}

using Three = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Scalar&, const Scalar&);
using ThreeIn = void (*)(Tensor&, const Tensor&, const Tensor&, const Scalar&, const Scalar&);
using ThreeOut = void (*)(Tensor&, const Tensor&, const Tensor&, const Tensor&, const Scalar&, const Scalar&);

Row three(const char* name, const std::vector<Sample>& samples, Three fn, ThreeIn in, ThreeOut out,
          const std::function<Array(const Arrays&)>& product_of) {
  Row r = product_row(name);
  for (const auto& [beta, alpha] : {std::pair(1, 1), std::pair(2, 3), std::pair(0, 1)}) {
    const int b = beta, a = alpha;
    std::vector<Sample> used = samples;
    // beta 0 ignores self, NaN in it included.
    if (b == 0)
      for (Sample& s : used) {
        std::fill(s.inputs[0].array.values.begin(), s.inputs[0].array.values.end(), NAN);
        s.only = kFloats;
        s.gradient = false;
      }
    Case c = case_of(
        "beta " + std::to_string(b) + " alpha " + std::to_string(a), used,
        [=](const Tensors& x) { return fn(x[0], x[1], x[2], b, a); },
        [=](const Arrays& x) { return added_to(x[0], product_of(x), b, a); });
    c.inplace = [=](Tensor& self, const Tensors& x) { in(self, x[1], x[2], b, a); };
    c.out = [=](Tensor& o, const Tensors& x) { out(o, x[0], x[1], x[2], b, a); };
    r.cases.push_back(c);
  }
  return r;
}

#define ATHANOR_THREE(name)                                                                                        \
  +[](const Tensor& s, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {                \
    return name(s, a, b, beta, alpha);                                                                             \
  },                                                                                                               \
      +[](Tensor& s, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {                  \
        s.name##_(a, b, beta, alpha);                                                                              \
      },                                                                                                           \
      +[](Tensor& o, const Tensor& s, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) { \
        name##_out(o, s, a, b, beta, alpha);                                                                       \
      }

void add_sums() {
  auto after_self = [](const Arrays& in) { return general_product(in[1], in[2]); };
  Row r = three("addmm",
                {product_of({{2, 2}, {2, 3}, {3, 2}}), product_of({{2}, {2, 3}, {3, 2}}),
                 product_of({{}, {2, 3}, {3, 2}}), product_of({{2, 1}, {2, 3}, {3, 2}}),
                 product_of({{2, 2}, {2, 0}, {0, 2}}, false), product_of({{7, 5}, {7, 33}, {33, 5}}, false)},
                ATHANOR_THREE(addmm), after_self);
  r.refusals = {{"a bias that does not fit",
                 [] {
                   addmm(ones({3}), ones({2, 3}), ones({3, 2}));
                 },
                 "cannot be expanded"},
                {"inner sizes",
                 [] {
                   addmm(ones({2}), ones({2, 3}), ones({2, 2}));
                 },
                 "cannot be multiplied"}};
  add_row(r);
  r = three(
      "baddbmm",
      {product_of({{2, 2, 2}, {2, 2, 3}, {2, 3, 2}}), product_of({{2}, {2, 2, 3}, {2, 3, 2}}),
       product_of({{0, 2, 2}, {0, 2, 3}, {0, 3, 2}}, false), product_of({{3, 7, 5}, {3, 7, 33}, {3, 33, 5}}, false)},
      ATHANOR_THREE(baddbmm), after_self);
  r.refusals = {{"a bias that does not fit",
                 [] {
                   baddbmm(ones({3}), ones({2, 2, 3}), ones({2, 3, 2}));
                 },
                 "cannot be expanded"}};
  add_row(r);
  r = three("addbmm",
            {product_of({{2, 2}, {2, 2, 3}, {2, 3, 2}}), product_of({{2}, {2, 2, 3}, {2, 3, 2}}),
             product_of({{2, 2}, {0, 2, 3}, {0, 3, 2}}, false), product_of({{7, 5}, {3, 7, 33}, {3, 33, 5}}, false)},
            ATHANOR_THREE(addbmm), [](const Arrays& in) {
              return reduce(product(in[1], in[2]), {0}, false,
                            [](const Values& v) { return std::accumulate(v.begin(), v.end(), 0.0); });
            });
  r.refusals = {{"batches that differ", [] { addbmm(ones({2, 2}), ones({2, 2, 3}), ones({3, 3, 2})); }, "but got"}};
  add_row(r);
  r = three("addmv",
            {product_of({{2}, {2, 3}, {3}}), product_of({{}, {2, 3}, {3}}), product_of({{2}, {2, 0}, {0}}, false),
             product_of({{41}, {41, 67}, {67}}, false)},
            ATHANOR_THREE(addmv), after_self);
  r.refusals = {{"sizes that differ", [] { addmv(ones({2}), ones({2, 3}), ones({2})); }, "size mismatch"}};
  add_row(r);
  r = three("addr",
            {product_of({{2, 3}, {2}, {3}}), product_of({{3}, {2}, {3}}), product_of({{0, 3}, {0}, {3}}, false),
             product_of({{37, 41}, {37}, {41}}, false)},
            ATHANOR_THREE(addr), [](const Arrays& in) {
              return product(with_shape(in[1], {in[1].numel(), 1}), with_shape(in[2], {1, in[2].numel()}));
            });
  r.refuses_others = false;
  r.refusals = {{"matrices", [] { addr(ones({2, 2}), ones({2, 2}), ones({2})); }, "Expected 1-D"}};
  add_row(r);
}

#undef ATHANOR_THREE

void add_linear() {
  Row r = product_row("linear");
  auto turned = [](const Array& w) { return transposed(w, 0, 1); };
  r.cases = {case_of(
                 "",
                 {product_of({{2, 3}, {4, 3}}), product_of({{3}, {2, 3}}), product_of({{2, 2, 3}, {2, 3}}),
                  product_of({{0, 3}, {2, 3}}, false), product_of({{5, 7, 33}, {41, 33}}, false),
                  product_of({{65, 130}, {70, 130}}, false, kWide)},
                 [](const Tensors& x) { return linear(x[0], x[1]); },
                 [=](const Arrays& in) { return general_product(in[0], turned(in[1])); }),
             case_of(
                 "bias",
                 {product_of({{2, 3}, {4, 3}, {4}}), product_of({{3}, {2, 3}, {2}}),
                  product_of({{5, 7, 33}, {41, 33}, {41}}, false)},
                 [](const Tensors& x) { return linear(x[0], x[1], x[2]); },
                 [=](const Arrays& in) { return added_to(in[2], general_product(in[0], turned(in[1])), 1, 1); })};
  r.refusals = {{"features that differ",
                 [] {
                   linear(ones({2, 3}), ones({4, 2}));
                 },
                 "must be the weight's in_features"},
                {"a bias of another size",
                 [] {
                   linear(ones({2, 3}), ones({4, 3}), ones({3}));
                 },
                 "bias of shape [4]"}};
  add_row(r);
}

const bool added_matmul = [] {
  add_plain_products();
  add_sums();
  add_linear();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
