// Losses of margins, triplets, several labels and alignments; bags of embeddings.
#include <functional>

#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

const char* const kMarginReductions[] = {"none", "mean", "sum"};

Array margin_reduced(const Array& each, std::int64_t reduction) {
  if (reduction == 0) return each;
  const double sum = std::accumulate(each.values.begin(), each.values.end(), 0.0);
  return Array({}, Values{reduction == 2 ? sum : sum / static_cast<double>(each.numel())});
}

Row margin_row(const char* name, const char* overload = "", DTypes dtypes = kFloats) {
  Row r = gradient_row_of(name, overload, std::move(dtypes));
  r.tolerance = 10;
  r.absolute = 20;
  r.exact_layouts = false;
  r.refuses_others = false;
  return r;
}

using MarginCall = std::function<Tensor(const Tensors&, std::int64_t)>;
using Each = std::function<Array(const Arrays&)>;

/// The loss under every reduction; `each` gives it without.
void add_reductions(Row& r, const std::string& name, const std::vector<Sample>& samples, const MarginCall& call,
                    const Each& each) {
  for (const std::int64_t reduction : {0, 1, 2})
    r.cases.push_back(case_of(
        name + " " + kMarginReductions[reduction], samples, [=](const Tensors& x) { return call(x, reduction); },
        [=](const Arrays& in) { return margin_reduced(each(in), reduction); }));
}

Values row_at(const Array& a, std::int64_t i) {
  const std::int64_t m = a.shape.back();
  return Values(a.values.begin() + i * m, a.values.begin() + (i + 1) * m);
}
double dot(const Values& a, const Values& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }
double distance(const Values& a, const Values& b, double p, double eps) {
  double s = 0;
  for (std::size_t i = 0; i < a.size(); ++i) s += std::pow(std::abs(a[i] - b[i] + eps), p);
  return std::pow(s, 1 / p);
}

void add_cosine() {
  Row r = margin_row("cosine_embedding_loss");
  const Input target(Array({4}, {1, -1, -1, 1}), kLong);
  add_reductions(
      r, "rows", {{{uniform({4, 3}, 0.5, 2), uniform({4, 3}, 0.2, 2, 3), target}}},
      [](const Tensors& x, std::int64_t red) { return cosine_embedding_loss(x[0], x[1], x[2], 0.25, red); },
      [](const Arrays& in) {
        Array out({4});
        for (std::int64_t i = 0; i < 4; ++i) {
          const Values a = row_at(in[0], i), b = row_at(in[1], i);
          const double c = dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
          out[i] = in[2][i] == 1 ? 1 - c : std::max(0.0, c - 0.25);
        }
        return out;
      });
  r.cases.push_back(case_of(
      "one pair", {{{uniform({3}, 0.5, 2), uniform({3}, 0.2, 2, 3), Input(Array({}, Values{1}), kLong)}}},
      [](const Tensors& x) { return cosine_embedding_loss(x[0], x[1], x[2]); },
      [](const Arrays& in) {
        return Array({}, Values{1 - dot(in[0].values, in[1].values) /
                                        std::sqrt(dot(in[0].values, in[0].values) * dot(in[1].values, in[1].values))});
      }));
  r.refusals = {{"targets that do not fit", [] { cosine_embedding_loss(ones({2}), ones({2}), ones({2})); },
                 "1D target tensor expects 2D"}};
  add_row(r);
}

void add_triplet() {
  Row r = margin_row("triplet_margin_loss");
  for (const bool swap : {false, true})
    for (const double p : {2.0, 1.0})
      add_reductions(
          r, std::string(swap ? "swap " : "") + std::to_string(p),
          {{{distinct({4, 3}, 0.3), distinct({4, 3}, 0.2, 3), distinct({4, 3}, 0.23, 7)}}},
          [=](const Tensors& x, std::int64_t red) {
            return triplet_margin_loss(x[0], x[1], x[2], 1.25, p, 1e-3, swap, red);
          },
          [=](const Arrays& in) {
            Array out({4});
            for (std::int64_t i = 0; i < 4; ++i) {
              const Values a = row_at(in[0], i), b = row_at(in[1], i), c = row_at(in[2], i);
              double far = distance(a, c, p, 1e-3);
              if (swap) far = std::min(far, distance(b, c, p, 1e-3));
              out[i] = std::max(0.0, 1.25 + distance(a, b, p, 1e-3) - far);
            }
            return out;
          });
  r.refusals = {{"dims that differ",
                 [] {
                   triplet_margin_loss(ones({2, 2}), ones({2}), ones({2, 2}));
                 },
                 "same number of dimensions"}};
  add_row(r);
}

void add_multi_margin() {
  Row r = margin_row("multi_margin_loss");
  const Input target(Array({3}, {0, 2, 3}), kLong);
  for (const std::int64_t p : {1, 2})
    for (const bool weighted : {false, true})
      add_reductions(
          r, std::to_string(p) + (weighted ? " weights" : ""),
          {{{distinct({3, 4}, 0.3), target, Input(Array({4}, {0.5, 1, 2, 1.5}), kDouble)}}},
          [=](const Tensors& x, std::int64_t red) {
            return multi_margin_loss(x[0], x[1], p, 0.8, weighted ? x[2].to(x[0].dtype()) : Tensor(), red);
          },
          [=](const Arrays& in) {
            Array out({3});
            for (std::int64_t i = 0; i < 3; ++i) {
              const Values x = row_at(in[0], i);
              const auto y = static_cast<std::size_t>(in[1][i]);
              for (std::size_t c = 0; c < 4; ++c)
                if (c != y)
                  out[i] += std::pow(std::max(0.0, 0.8 - x[y] + x[c]), p) * (weighted ? in[2].values[y] : 1) / 4;
            }
            return out;
          });
  r.cases.push_back(case_of(
      "one row", {{{distinct({4}, 0.3), Input(Array({}, Values{1}), kLong)}}},
      [](const Tensors& x) { return multi_margin_loss(x[0], x[1]); },
      [](const Arrays& in) {
        double s = 0;
        for (const std::size_t c : {0, 2, 3}) s += std::max(0.0, 1 - in[0].values[1] + in[0].values[c]) / 4;
        return Array({}, Values{s});
      }));
  r.refusals = {{"another power",
                 [] {
                   multi_margin_loss(ones({2, 3}), zeros({2}, kLong), 3);
                 },
                 "only p == 1 and p == 2"},
                {"a class out of range",
                 [] {
                   multi_margin_loss(ones({2, 3}), full({2}, 3, kLong));
                 },
                 "out of bounds"},
                {"targets that do not fit",
                 [] {
                   multi_margin_loss(ones({2, 3}), zeros({3}, kLong));
                 },
                 "inconsistent target size"}};
  add_row(r);

  r = margin_row("multilabel_margin_loss");
  auto each = [](const Arrays& in) {
    const bool single = in[0].dim() == 1;
    Array out(single ? Shape{} : Shape{in[0].shape[0]});
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      const Values x = row_at(in[0], i), t = row_at(in[1], i);
      std::vector<bool> listed(x.size());
      std::vector<std::size_t> labels;
      for (const double y : t) {
        if (y < 0) break;
        labels.push_back(static_cast<std::size_t>(y));
        listed[labels.back()] = true;
      }
      for (const std::size_t y : labels)
        for (std::size_t c = 0; c < x.size(); ++c)
          if (!listed[c]) out[i] += std::max(0.0, 1 - x[y] + x[c]) / static_cast<double>(x.size());
    }
    return out;
  };
  add_reductions(
      r, "",
      {{{distinct({3, 4}, 0.3), Input(Array({3, 4}, {3, 0, -1, 1, -1, 2, 0, 1, 0, 1, 2, 3}), kLong)}},
       {{distinct({4}, 0.3), Input(Array({4}, {2, -1, 0, 1}), kLong)}}},
      [](const Tensors& x, std::int64_t red) { return multilabel_margin_loss(x[0], x[1], red); }, each);
  r.refusals = {{"targets that do not fit",
                 [] {
                   multilabel_margin_loss(ones({2, 3}), zeros({2}, kLong));
                 },
                 "inconsistent target size"},
                {"targets that are not indices",
                 [] {
                   multilabel_margin_loss(ones({2, 3}), ones({2, 3}));
                 },
                 "dtype int64"}};
  add_row(r);

  r = margin_row("multilabel_soft_margin_loss");
  for (const bool weighted : {false, true})
    add_reductions(
        r, weighted ? "weights" : "", {{{uniform({3, 4}, -2, 2), uniform({3, 4}, 0, 1, 3), uniform({4}, 0.5, 2, 5)}}},
        [=](const Tensors& x, std::int64_t red) {
          return multilabel_soft_margin_loss(x[0], x[1], weighted ? x[2] : Tensor(), red);
        },
        [=](const Arrays& in) {
          Array out({3});
          for (std::int64_t i = 0; i < 12; ++i) {
            const double p = 1 / (1 + std::exp(-in[0][i])), t = in[1][i];
            out[i / 4] -= (t * std::log(p) + (1 - t) * std::log(1 - p)) * (weighted ? in[2][i % 4] : 1) / 4;
          }
          return out;
        });
  r.refusals = {{"a number", [] { multilabel_soft_margin_loss(ones({}), ones({})); }, "at least one dim"}};
  add_row(r);
}

void add_gaussian() {
  Row r = margin_row("gaussian_nll_loss");
  for (const bool full : {false, true})
    for (const int form : {0, 1, 2})
      add_reductions(
          r, std::string(full ? "full " : "") + std::to_string(form),
          {{{uniform({3, 2}, -2, 2), uniform({3, 2}, -2, 2, 3),
             uniform(form == 0   ? Shape{3, 2}
                     : form == 1 ? Shape{3}
                                 : Shape{3, 1},
                     0.5, 2, 5)}}},
          [=](const Tensors& x, std::int64_t red) { return gaussian_nll_loss(x[0], x[1], x[2], full, 1e-6, red); },
          [=](const Arrays& in) {
            Array out({3, 2});
            for (std::int64_t i = 0; i < 6; ++i) {
              const double v = in[2][form == 0 ? i : i / 2];
              out[i] = 0.5 * (std::log(v) + std::pow(in[0][i] - in[1][i], 2) / v + (full ? std::log(2 * M_PI) : 0));
            }
            return out;
          });
  r.refusals = {{"a negative variance", [] { gaussian_nll_loss(ones({2}), ones({2}), -ones({2})); }, "negative entry"},
                {"variances that do not fit",
                 [] {
                   gaussian_nll_loss(ones({2, 3}), ones({2, 3}), ones({3}));
                 },
                 "incorrect size"}};
  add_row(r);
}

/// Minus the log of the summed probability of all paths of classes that become `labels` when repeats are merged and
/// blanks dropped: every path tried.
double by_enumeration(const Array& logp, std::int64_t n, std::int64_t steps, const std::vector<std::int64_t>& labels,
                      std::int64_t blank) {
  const std::int64_t batch = logp.shape[1], classes = logp.shape[2];
  double total = 0;
  const auto paths = static_cast<std::int64_t>(std::pow(static_cast<double>(classes), static_cast<double>(steps)));
  for (std::int64_t path = 0; path < paths; ++path) {
    std::vector<std::int64_t> said;
    double p = 0;
    std::int64_t before = -1, rest = path;
    for (std::int64_t t = 0; t < steps; ++t, rest /= classes) {
      const std::int64_t c = rest % classes;
      p += logp[(t * batch + n) * classes + c];
      if (c != before && c != blank) said.push_back(c);
      before = c;
    }
    if (said == labels) total += std::exp(p);
  }
  return -std::log(total);
}

void add_ctc() {
  // Four sequences over 3 classes: a repeat, one label, none, and one that does not fit.
  const Array logits = uniform({5, 4, 3}, -1, 1);
  const std::vector<std::int64_t> steps = {5, 4, 3, 2}, lengths = {2, 1, 0, 3};
  const std::vector<std::vector<std::int64_t>> labels = {{1, 1}, {2}, {}, {1, 2, 1}};
  const Input rows(Array({4, 3}, {1, 1, 0, 2, 0, 0, 0, 0, 0, 1, 2, 1}), kLong),
      line(Array({6}, {1, 1, 2, 1, 2, 1}), kInt);
  for (const bool tensors : {false, true}) {
    Row r = margin_row("ctc_loss", tensors ? "Tensor" : "IntList", {kFloat, kDouble});
    r.second_gradient = false;
    r.tolerance = 30;
    for (const bool flat : {false, true})
      for (const bool zero_infinity : {true, false})
        for (const std::int64_t reduction : {0, 1, 2}) {
          if (!zero_infinity && reduction != 0) continue;
          r.cases.push_back(case_of(
              std::string(flat ? "flat " : "") + (zero_infinity ? "zero_infinity " : "") + kMarginReductions[reduction],
              {{{logits, flat ? line : rows}, zero_infinity}},
              [=](const Tensors& x) {
                auto as_tensor = [](const std::vector<std::int64_t>& v) {
                  Tensor t = empty({static_cast<std::int64_t>(v.size())}, kLong);
                  std::copy(v.begin(), v.end(), t.data_ptr<std::int64_t>());
                  return t;
                };
                // Any numbers are log probabilities here: the gradient is that of free variables.
                if (tensors)
                  return ctc_loss(x[0], x[1], as_tensor(steps), as_tensor(lengths), 0, reduction, zero_infinity);
                return ctc_loss(x[0], x[1], IntArrayRef(steps), IntArrayRef(lengths), 0, reduction, zero_infinity);
              },
              [=](const Arrays& in) {
                Array each({4});
                for (std::int64_t n = 0; n < 4; ++n) {
                  const auto u = static_cast<std::size_t>(n);
                  each[n] = by_enumeration(in[0], n, steps[u], labels[u], 0);
                  if (zero_infinity && std::isinf(each[n])) each[n] = 0;
                  if (reduction == 1) each[n] /= static_cast<double>(std::max<std::int64_t>(lengths[u], 1));
                }
                return margin_reduced(each, reduction);
              }));
        }
    if (!tensors) {
      r.cases.push_back(case_of(
          "without batch, another blank", {{{uniform({4, 3}, -1, 1), Input(Array({2}, {0, 2}), kLong)}}},
          [](const Tensors& x) { return ctc_loss(x[0], x[1], IntArrayRef{4}, IntArrayRef{2}, 1, 0); },
          [](const Arrays& in) {
            return Array({}, Values{by_enumeration(with_shape(in[0], {4, 1, 3}), 0, 4, {0, 2}, 1)});
          }));
      const Tensor x = zeros({3, 1, 3}), t = ones({1, 2}, kLong);
      r.refusals = {
          {"a label out of range",
           [=] {
             ctc_loss(x, full({1, 2}, 5, kLong), IntArrayRef{3}, IntArrayRef{2});
           },
           "label 5 of sequence 0"},
          {"a blank among the labels",
           [=] {
             ctc_loss(x, zeros({1, 2}, kLong), IntArrayRef{3}, IntArrayRef{2});
           },
           "other than the blank 0"},
          {"lengths of another batch",
           [=] {
             ctc_loss(x, t, IntArrayRef{3, 3}, IntArrayRef{2});
           },
           "batch_size 1"},
          {"more steps than there are", [=] { ctc_loss(x, t, IntArrayRef{4}, IntArrayRef{2}); },
           "between 0 and 3, but got value 4"},
          {"longer targets than there are", [=] { ctc_loss(x, t, IntArrayRef{3}, IntArrayRef{3}); }, "at least 3"},
          {"too few labels in a row", [=] { ctc_loss(x, ones({1}, kLong), IntArrayRef{3}, IntArrayRef{2}); },
           "hold the sum of target_lengths"},
          {"half precision", [=] { ctc_loss(x.to(kHalf), t, IntArrayRef{3}, IntArrayRef{2}); }, "float32 or float64"},
          {"a blank out of range", [=] { ctc_loss(x, t, IntArrayRef{3}, IntArrayRef{2}, 3); }, "label range [0, 3)"}};
    }
    add_row(r);
  }
}

void add_bags() {
  Row r = margin_row("embedding_bag");
  r.result = [](DType t, std::size_t i) { return i == 0 ? t : kLong; };
  const std::vector<std::int64_t> index = {1, 3, 1, 0, 4, 3, 2};
  const std::vector<std::int64_t> bounds = {0, 2, 2, 6, 7};
  Array indices({7}), offsets({4}), with_end({5});
  for (std::size_t i = 0; i < 7; ++i) indices.values[i] = static_cast<double>(index[i]);
  for (std::size_t i = 0; i < 5; ++i) with_end.values[i] = static_cast<double>(bounds[i]);
  std::copy_n(with_end.values.begin(), 4, offsets.values.begin());
  for (const std::int64_t mode : {0, 1, 2})
    for (const std::int64_t padding : {-1, 3})
      for (const bool weighted : {false, true})
        for (const bool last : {false, true}) {
          if (weighted && mode != 0) continue;
          std::vector<Input> in = {distinct({5, 3}, 0.5), Input(indices, kLong),
                                   Input(last ? with_end : offsets, last ? kInt : kLong)};
          if (weighted) in.emplace_back(uniform({7}, 0.5, 2, 3));
          r.cases.push_back({std::to_string(mode) + " padding " + std::to_string(padding) +
                                 (weighted ? " weights" : "") + (last ? " last" : ""),
                             {{in}},
                             [=](const Tensors& x) {
                               auto [out, bag, size, place] =
                                   embedding_bag(x[0], x[1], x[2], false, mode, false, weighted ? x[3] : Tensor(), last,
                                                 padding < 0 ? std::nullopt : std::optional<std::int64_t>(padding));
                               return Tensors{out, bag, size};
                             },
                             [=](const Arrays& a) {
                               Array out({4, 3}), bag({7}), size({4});
                               for (std::int64_t b = 0; b < 4; ++b) {
                                 const auto u = static_cast<std::size_t>(b);
                                 for (std::int64_t k = bounds[u]; k < bounds[u + 1]; ++k) {
                                   bag[k] = static_cast<double>(b);
                                   const auto row = static_cast<std::int64_t>(a[1][k]);
                                   if (row == padding) continue;
                                   for (std::int64_t d = 0; d < 3; ++d) {
                                     const double v = a[0][row * 3 + d] * (weighted ? a[3][k] : 1);
                                     double& o = out[b * 3 + d];
                                     o = mode < 2 ? o + v : size[b] == 0 ? v : std::max(o, v);
                                   }
                                   size[b] += 1;
                                 }
                                 for (std::int64_t d = 0; d < 3 && mode == 1 && size[b] > 0; ++d)
                                   out[b * 3 + d] /= size[b];
                               }
                               return Arrays{out, bag, size};
                             },
                             {},
                             {}});
        }
  const Tensor w = ones({3, 2}), i = zeros({2}, kLong), o = zeros({1}, kLong);
  r.refusals = {{"an index out of range", [=] { embedding_bag(w, full({2}, 3, kLong), o); }, "out of bounds"},
                {"offsets that fall",
                 [=] {
                   embedding_bag(w, i, to_tensor(Array({3}, {0, 2, 1}), kLong));
                 },
                 "not fall"},
                {"weights of a mean", [=] { embedding_bag(w, i, o, false, 1, false, ones({2})); },
                 "only supported for mode='sum'"},
                {"a table of one dim", [=] { embedding_bag(ones({3}), i, o); }, "2D Tensor"},
                {"an unknown mode", [=] { embedding_bag(w, i, o, false, 3); }, "mode has to be"},
                {"a padding row out of range", [=] { embedding_bag(w, i, o, false, 0, false, Tensor(), false, 3); },
                 "-3 through 2"}};
  add_row(r);
}

const bool added_loss_margin = [] {
  add_cosine();
  add_triplet();
  add_multi_margin();
  add_gaussian();
  add_ctc();
  add_bags();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
