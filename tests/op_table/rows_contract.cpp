// Products over named or chosen dims, and of several matrices.
#include <map>

#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

Row contraction_row(const char* name, DTypes dtypes = kNumbers) {
  Row r = gradient_row_of(name, "", std::move(dtypes));
  r.tolerance = 8;
  r.absolute = 20;  // sums cancel
  r.exact_layouts = false;
  return r;
}

/// Operands of these shapes, small enough for sums in int8.
Sample of(const std::vector<Shape>& shapes, bool gradient = true) {
  Sample s{{}, gradient};
  for (std::size_t i = 0; i < shapes.size(); ++i)
    s.inputs.emplace_back(uniform(shapes[i], -2, 2, static_cast<unsigned>(i + 1)));
  return s;
}

/// "ab,bc->ac" by a loop over all values of all labels; sizes of 1 repeat.
Array labelled(const std::string& equation, const Arrays& in) {
  std::vector<std::string> terms{""};
  const std::size_t arrow = equation.find("->");
  for (const char c : equation.substr(0, arrow)) {
    if (c == ',')
      terms.emplace_back();
    else
      terms.back().push_back(c);
  }
  const std::string output = equation.substr(arrow + 2);
  std::map<char, std::int64_t> sizes;
  for (std::size_t i = 0; i < in.size(); ++i)
    for (std::size_t d = 0; d < terms[i].size(); ++d) {
      std::int64_t& s = sizes.emplace(terms[i][d], 1).first->second;
      if (in[i].shape[d] != 1) s = in[i].shape[d];
    }
  std::string labels;
  Shape all, shape;
  for (const auto& [label, size] : sizes) {
    labels.push_back(label);
    all.push_back(size);
  }
  for (const char c : output) shape.push_back(sizes.at(c));
  Array out(shape);
  auto place = [&](const std::string& term, const Shape& at, const Shape& limits) {
    Shape index;
    for (std::size_t d = 0; d < term.size(); ++d) index.push_back(limits[d] == 1 ? 0 : at[labels.find(term[d])]);
    return index;
  };
  for (std::int64_t i = 0; i < numel_of(all); ++i) {
    const Shape at = index_of(i, all);
    double v = 1;
    for (std::size_t k = 0; k < in.size(); ++k) v *= in[k].at(place(terms[k], at, in[k].shape));
    out.at(place(output, at, shape)) += v;
  }
  return out;
}

struct Labelled {
  const char* equation;
  const char* meaning;  ///< the same with every dim named
  std::vector<Sample> samples;
};

void add_einsum() {
  // One operand is summed as sum() does it: smaller integers become int64.
  Row r = contraction_row("einsum", kFloats + DTypes{kLong});
  r.refuses_others = false;
  const Labelled cases[] = {
      {"ij,jk->ik", "ij,jk->ik", {of({{2, 3}, {3, 2}}), of({{0, 3}, {3, 2}}, false), of({{2, 0}, {0, 2}}, false)}},
      {"ij,jk", "ij,jk->ik", {of({{2, 3}, {3, 2}})}},
      {"ba", "ba->ab", {of({{2, 3}}), of({{0, 3}}, false)}},
      {"aB", "aB->Ba", {of({{2, 3}})}},
      {"ii->i", "ii->i", {of({{3, 3}})}},
      {"ii", "ii->", {of({{3, 3}}), of({{0, 0}}, false)}},
      {"iij->ji", "iij->ji", {of({{2, 2, 3}})}},
      {"i,i->", "i,i->", {of({{4}, {4}}), of({{0}, {0}}, false)}},
      {"i,j->ij", "i,j->ij", {of({{2}, {3}})}},
      {",->", ",->", {of({{}, {}})}},
      {"bij,bjk->bik", "bij,bjk->bik", {of({{2, 2, 3}, {2, 3, 2}}), of({{5, 7, 9}, {5, 9, 3}}, false)}},
      {"ijk,jil->kl", "ijk,jil->kl", {of({{2, 3, 2}, {3, 2, 2}})}},
      {"abc,cd,db->a", "abc,cd,db->a", {of({{2, 2, 3}, {3, 2}, {2, 2}})}},
      {"ij,jk,kl,lm->im", "ij,jk,kl,lm->im", {of({{2, 2}, {2, 2}, {2, 2}, {2, 2}})}},
      {"ij,kl->jk", "ij,kl->jk", {of({{2, 3}, {2, 2}})}},
      {"bn,anm,bm->ba", "bn,anm,bm->ba", {of({{2, 2}, {3, 2, 2}, {2, 2}})}},
      {"i...j->...ij", "iabj->abij", {of({{2, 1, 2, 3}})}},
      {"...ij,...jk", "abij,abjk->abik", {of({{2, 1, 2, 3}, {1, 2, 3, 2}})}},
      {"...,...", "ab,ab->ab", {of({{2, 3}, {1, 3}})}},
      {"...i->...", "abi->ab", {of({{2, 1, 3}})}},
      {"b...->b", "bac->b", {of({{2, 2, 3}})}},
      {" i j , j k -> k i ", "ij,jk->ki", {of({{2, 3}, {3, 2}})}},
      {"ij,ij->ij", "ij,ij->ij", {of({{2, 3}, {1, 3}})}},
      {"ij->", "ij->", {of({{2, 3}})}},
      {"ij,ji,ij->", "ij,ji,ij->", {of({{2, 2}, {2, 2}, {2, 2}})}},
  };
  for (const Labelled& l : cases) {
    const std::string equation = l.equation, meaning = l.meaning;
    r.cases.push_back(case_of(
        equation, l.samples, [=](const Tensors& x) { return einsum(equation, x); },
        [=](const Arrays& in) { return labelled(meaning, in); }));
  }
  const Tensor m = ones({2, 3});
  r.refusals = {{"no operand", [] { einsum("i", {}); }, "at least one operand"},
                {"operands that the equation lacks",
                 [=] {
                   einsum("ij", {m, m});
                 },
                 "names 1 operands, but 2"},
                {"labels that the operand lacks", [=] { einsum("ijk->i", {m}); }, "subscripts in the equation (3)"},
                {"labels too few", [=] { einsum("i->i", {m}); }, "no ellipsis was given"},
                {"signs", [=] { einsum("i+->i", {m}); }, "subscripts must be in [a-zA-Z]"},
                {"two ellipses", [=] { einsum("......->i", {m}); }, "already found"},
                {"one dot", [=] { einsum("i.->i", {m}); }, "not part of any ellipsis"},
                {"an output label twice", [=] { einsum("ij->ii", {m}); }, "more than once in the output"},
                {"an output label from nowhere", [=] { einsum("ij->k", {m}); }, "does not appear in the equation"},
                {"sizes that differ",
                 [=] {
                   einsum("ij,jk->ik", {m, m});
                 },
                 "do not broadcast"},
                {"a repeated label of two sizes", [=] { einsum("ii", {m}); }, "don't match, 3 != 2"},
                {"two dtypes",
                 [=] {
                   einsum("ij,ij", {m, m.to(kDouble)});
                 },
                 "one dtype"}};
  add_row(r);
}

void add_tensordot() {
  Row r = contraction_row("tensordot");
  auto add = [&](const char* name, Shape a, Shape b, std::vector<Sample> samples, const char* meaning) {
    r.cases.push_back(case_of(
        name, std::move(samples), [=](const Tensors& x) { return tensordot(x[0], x[1], a, b); },
        [=](const Arrays& in) { return labelled(meaning, in); }));
  };
  add("one dim", {1}, {0}, {of({{2, 3}, {3, 2}}), of({{0, 3}, {3, 2}}, false)}, "ij,jk->ik");
  add("two dims", {0, 2}, {-1, 0}, {of({{2, 3, 2}, {2, 2, 2}})}, "iaj,jbi->ab");
  add("none", {}, {}, {of({{2}, {3}})}, "i,j->ij");
  add("all", {0, 1}, {0, 1}, {of({{2, 3}, {2, 3}})}, "ij,ij->");
  r.refusals = {
      {"lists that differ", [] { tensordot(ones({2}), ones({2}), IntArrayRef{0}, IntArrayRef{}); }, "same length"},
      {"sizes that differ", [] { tensordot(ones({2}), ones({3}), {0}, {0}); }, "contracted dimensions need to match"},
      {"a dim twice",
       [] {
         tensordot(ones({2, 2}), ones({2, 2}), {0, 0}, {0, 1});
       },
       "appears twice"}};
  add_row(r);

  r = contraction_row("inner");
  r.cases = {case_of(
                 "", {of({{2, 3}, {4, 3}}), of({{3}, {3}}), of({{2, 2, 3}, {3}}), of({{0, 3}, {2, 3}}, false)},
                 [](const Tensors& x) { return inner(x[0], x[1]); },
                 [](const Arrays& in) {
                   const std::string a = std::string("ab").substr(0, in[0].shape.size() - 1);
                   const std::string b = std::string("cd").substr(0, in[1].shape.size() - 1);
                   return labelled(a + "z," + b + "z->" + a + b, in);
                 }),
             case_of(
                 "with 0-d", {of({{}, {2, 3}})}, [](const Tensors& x) { return inner(x[0], x[1]); },
                 [](const Arrays& in) { return map(in, [](const Values& v) { return v[0] * v[1]; }); })};
  r.refusals = {{"last sizes that differ", [] { inner(ones({2}), ones({3})); }, "last dimension must match"}};
  add_row(r);

  r = contraction_row("kron", kAll);
  r.cases = {case_of(
      "", {of({{2, 3}, {2, 2}}), of({{2}, {2, 2}}), of({{}, {2}}), of({{2, 1, 2}, {3}}), of({{0, 2}, {2, 2}}, false)},
      [](const Tensors& x) { return kron(x[0], x[1]); },
      [](const Arrays& in) {
        const std::size_t n = std::max(in[0].shape.size(), in[1].shape.size());
        Shape a(n - in[0].shape.size(), 1), b(n - in[1].shape.size(), 1), shape;
        a.insert(a.end(), in[0].shape.begin(), in[0].shape.end());
        b.insert(b.end(), in[1].shape.begin(), in[1].shape.end());
        for (std::size_t d = 0; d < n; ++d) shape.push_back(a[d] * b[d]);
        Array out(shape);
        const Array x = with_shape(in[0], a), y = with_shape(in[1], b);
        for (std::int64_t i = 0; i < out.numel(); ++i) {
          Shape p = index_of(i, shape), q = p;
          for (std::size_t d = 0; d < n; ++d) {
            p[d] /= b[d];
            q[d] %= b[d];
          }
          out[i] = x.at(p) * y.at(q);
        }
        return out;
      })};
  r.refuses_others = false;
  add_row(r);
}

void add_cross() {
  auto reference = [](std::size_t dim) {
    return [dim](const Arrays& in) {
      const Shape shape = broadcast({in[0].shape, in[1].shape});
      const Array a = expanded(in[0], shape), b = expanded(in[1], shape);
      Array out(shape);
      for (std::int64_t i = 0; i < out.numel(); ++i) {
        Shape p = index_of(i, shape), q = p;
        p[dim] = (p[dim] + 1) % 3;
        q[dim] = (q[dim] + 2) % 3;
        out[i] = a.at(p) * b.at(q) - a.at(q) * b.at(p);
      }
      return out;
    };
  };
  Row r = contraction_row("linalg_cross");
  r.absolute = 4;
  r.refuses_others = false;
  r.cases = {
      case_of(
          "", {of({{3}, {3}}), of({{2, 3}, {1, 3}}), of({{0, 3}, {0, 3}}, false)},
          [](const Tensors& x) { return linalg_cross(x[0], x[1]); },
          [=](const Arrays& in) { return reference(in[0].shape.size() - 1)(in); }),
      case_of(
          "dim 0", {of({{3, 2}, {3, 2}})}, [](const Tensors& x) { return linalg_cross(x[0], x[1], 0); }, reference(0))};
  r.refusals = {{"a size that is not 3", [] { linalg_cross(ones({2}), ones({2})); }, "must have length 3"},
                {"dims that differ",
                 [] {
                   linalg_cross(ones({3}), ones({2, 3}));
                 },
                 "same number of dimensions"}};
  add_row(r);
  r = contraction_row("cross");
  r.absolute = 4;
  r.refuses_others = false;
  r.cases = {
      case_of(
          "first of size 3", {of({{2, 3, 3}, {2, 3, 3}})}, [](const Tensors& x) { return cross(x[0], x[1]); },
          reference(1)),
      case_of(
          "dim 2", {of({{2, 3, 3}, {2, 3, 3}})}, [](const Tensors& x) { return cross(x[0], x[1], 2); }, reference(2))};
  r.refusals = {{"no size 3", [] { cross(ones({2, 4}), ones({2, 4})); }, "no dimension of size 3"}};
  add_row(r);
}

void add_chains() {
  for (const bool chain : {false, true}) {
    Row r = contraction_row(chain ? "chain_matmul" : "linalg_multi_dot");
    r.absolute = 100;
    auto call = [=](const Tensors& x) { return chain ? chain_matmul(x) : linalg_multi_dot(x); };
    r.cases = {case_of("two", {of({{2, 3}, {3, 2}}), of({{0, 3}, {3, 2}}, false)}, call,
                       [](const Arrays& in) { return labelled("ab,bc->ac", in); }),
               case_of("four", {of({{2, 1}, {1, 3}, {3, 1}, {1, 2}}), of({{4, 2}, {2, 5}, {5, 1}, {1, 3}}, false)},
                       call, [](const Arrays& in) { return labelled("ab,bc,cd,de->ae", in); })};
    if (!chain)
      r.cases.push_back(case_of("vectors at the ends", {of({{2}, {2, 3}, {3}})}, call,
                                [](const Arrays& in) { return labelled("b,bc,c->", in); }));
    r.refusals = {{"no matrix", [=] { call({}); }, "expected"},
                  {"a cube",
                   [=] {
                     call({ones({2, 2, 2}), ones({2, 2})});
                   },
                   "shape [2, 2, 2]"},
                  {"sizes that differ",
                   [=] {
                     call({ones({2, 2}), ones({3, 2})});
                   },
                   "cannot be multiplied"}};
    if (chain) r.refusals[0].message = "Expected one or more";
    add_row(r);
  }
  for (const bool short_name : {false, true}) {
    Row r = contraction_row(short_name ? "matrix_power" : "linalg_matrix_power");
    r.absolute = 200;
    auto call = [=](const Tensors& x, std::int64_t n) {
      return short_name ? matrix_power(x[0], n) : linalg_matrix_power(x[0], n);
    };
    for (const std::int64_t n : {0, 1, 2, 5})
      r.cases.push_back(case_of(
          std::to_string(n), {of({{2, 2}}, n > 0), of({{2, 2, 2}}, n > 0), of({{0, 0}}, false)},
          [=](const Tensors& x) { return call(x, n); },
          [=](const Arrays& in) {
            Array out(in[0].shape);
            const std::int64_t k = in[0].shape.back();
            for (std::int64_t i = 0; i < out.numel(); ++i)
              out[i] =
                  i / std::max<std::int64_t>(k, 1) % std::max<std::int64_t>(k, 1) == i % std::max<std::int64_t>(k, 1)
                      ? 1
                      : 0;
            for (std::int64_t i = 0; i < n; ++i)
              out = in[0].shape.size() == 2 ? labelled("ab,bc->ac", {out, in[0]})
                                            : labelled("zab,zbc->zac", {out, in[0]});
            return out;
          }));
    r.cases.push_back(case_of(
        "-2", {{{Array({1, 2, 2}, {2, 1, 1, 3})}, true, {kFloat, kDouble}}},
        [=](const Tensors& x) { return call(x, -2); },
        [](const Arrays&) {
          return Array({1, 2, 2}, {0.4, -0.2, -0.2, 0.2});
        }));
    r.refuses_others = false;
    r.refusals = {{"a matrix that is not square", [=] { call({ones({2, 3})}, 2); }, "square"}};
    add_row(r);
  }
  Row r = contraction_row("vander");
  r.result = [](DType t, std::size_t) { return is_floating_point(t) ? t : kLong; };
  r.refuses_others = false;
  for (const bool increasing : {false, true})
    for (const std::int64_t n : {-1, 0, 1, 4})
      r.cases.push_back(case_of(
          std::to_string(n) + (increasing ? " rising" : ""), {of({{3}}, n != 0), of({{0}}, false)},
          [=](const Tensors& x) {
            return vander(x[0], n < 0 ? std::nullopt : std::optional<std::int64_t>(n), increasing);
          },
          [=](const Arrays& in) {
            const std::int64_t columns = n < 0 ? in[0].numel() : n;
            Array out({in[0].numel(), columns});
            for (std::int64_t i = 0; i < out.numel(); ++i)
              out[i] = std::pow(in[0][i / columns],
                                static_cast<double>(increasing ? i % columns : columns - 1 - i % columns));
            return out;
          }));
  r.refusals = {{"a matrix", [] { vander(ones({2, 2})); }, "one-dimensional"}};
  add_row(r);
}

const bool added_contract = [] {
  add_einsum();
  add_tensordot();
  add_cross();
  add_chains();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
