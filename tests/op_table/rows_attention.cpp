// Scaled dot-product attention.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

struct Options {
  bool causal = false;
  double scale = 0;  ///< 0: 1 / sqrt(depth)
  const Array* mask = nullptr;
  bool mask_selects = false;  ///< else it is added
};

/// q (B, H, L, E), k (B, G, S, E), v (B, G, S, F); the mask (B, H, L, S) or (L, S).
Array attention_of(const Array& q, const Array& k, const Array& v, const Options& o) {
  const std::int64_t b_count = q.shape[0], heads = q.shape[1], rows = q.shape[2], depth = q.shape[3];
  const std::int64_t groups = k.shape[1], columns = k.shape[2], width = v.shape[3];
  const double scale = o.scale != 0 ? o.scale : 1 / std::sqrt(static_cast<double>(depth));
  Array out({b_count, heads, rows, width});
  for (std::int64_t b = 0; b < b_count; ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t g = h / (heads / groups);
        Values score(static_cast<std::size_t>(columns), -INFINITY);
        double greatest = -INFINITY, total = 0;
        for (std::int64_t j = 0; j < columns; ++j) {
          if (o.causal && j > i) continue;
          double s = 0;
          for (std::int64_t e = 0; e < depth; ++e) s += q.at({b, h, i, e}) * k.at({b, g, j, e});
          s *= scale;
          if (o.mask) {
            const double m = o.mask->shape.size() == 2 ? o.mask->at({i, j}) : o.mask->at({b, h, i, j});
            s = o.mask_selects ? (m != 0 ? s : -INFINITY) : s + m;
          }
          score[static_cast<std::size_t>(j)] = s;
          greatest = std::max(greatest, s);
        }
        if (greatest == -INFINITY) continue;  // sees nothing: zeros
        for (double& s : score) total += s = std::exp(s - greatest);
        for (std::int64_t f = 0; f < width; ++f) {
          double sum = 0;
          for (std::int64_t j = 0; j < columns; ++j) sum += score[static_cast<std::size_t>(j)] * v.at({b, g, j, f});
          out[((b * heads + h) * rows + i) * width + f] = sum / total;
        }
      }
  return out;
}

Sample heads_of(const Shape& q, const Shape& k, const Shape& v, bool gradient = true) {
  return {{uniform(q, -2, 2), uniform(k, -2, 2, 2), uniform(v, -2, 2, 3)}, gradient};
}

/// 0 and 1, by a fixed pattern; row 1 has no 1.
Array pattern(std::int64_t rows, std::int64_t columns) {
  Array m({rows, columns});
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) m[i * columns + j] = i != 1 && (i * 7 + j * 3) % 4 != 0;
  return m;
}

const bool added_attention = [] {
  Row r = gradient_row_of("scaled_dot_product_attention", "", kFloats);
  r.tolerance = 10;
  r.absolute = 20;
  r.exact_layouts = false;
  const std::vector<Sample> plain = {heads_of({1, 2, 3, 4}, {1, 2, 5, 4}, {1, 2, 5, 2}),
                                     heads_of({2, 1, 3, 3}, {2, 1, 3, 3}, {2, 1, 3, 3}),
                                     heads_of({0, 2, 3, 4}, {0, 2, 5, 4}, {0, 2, 5, 2}, false),
                                     heads_of({1, 2, 0, 4}, {1, 2, 5, 4}, {1, 2, 5, 2}, false),
                                     heads_of({1, 2, 3, 4}, {1, 2, 0, 4}, {1, 2, 0, 2}, false),
                                     heads_of({1, 2, 61, 33}, {1, 2, 270, 33}, {1, 2, 270, 17}, false)};
  r.cases.push_back(case_of(
      "", plain, [](const Tensors& x) { return scaled_dot_product_attention(x[0], x[1], x[2]); },
      [](const Arrays& in) { return attention_of(in[0], in[1], in[2], {}); }));
  r.cases.push_back(case_of(
      "causal", plain, [](const Tensors& x) { return scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, true); },
      [](const Arrays& in) { return attention_of(in[0], in[1], in[2], {true}); }));
  r.cases.push_back(case_of(
      "heads that share keys, a scale",
      {heads_of({1, 4, 3, 2}, {1, 2, 4, 2}, {1, 2, 4, 3}), heads_of({2, 6, 5, 16}, {2, 2, 9, 16}, {2, 2, 9, 8}, false)},
      [](const Tensors& x) { return scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, false, 0.25, true); },
      [](const Arrays& in) {
        return attention_of(in[0], in[1], in[2], {false, 0.25});
      }));
  Sample chosen = heads_of({1, 2, 3, 4}, {1, 2, 5, 4}, {1, 2, 5, 2});
  chosen.inputs.emplace_back(pattern(3, 5), kBool);
  r.cases.push_back(case_of(
      "a bool mask, a row of which sees nothing", {chosen},
      [](const Tensors& x) { return scaled_dot_product_attention(x[0], x[1], x[2], x[3]); },
      [](const Arrays& in) {
        return attention_of(in[0], in[1], in[2], {false, 0, &in[3], true});
      }));
  Sample biased = heads_of({1, 2, 3, 4}, {1, 2, 5, 4}, {1, 2, 5, 2});
  biased.inputs.emplace_back(uniform({1, 2, 3, 5}, -1, 1, 4));
  r.cases.push_back(case_of(
      "a mask that is added", {biased},
      [](const Tensors& x) { return scaled_dot_product_attention(x[0], x[1], x[2], x[3]); },
      [](const Arrays& in) {
        return attention_of(in[0], in[1], in[2], {false, 0, &in[3], false});
      }));
  const Tensor q = ones({1, 2, 3, 4});
  r.refusals = {{"another depth",
                 [=] {
                   scaled_dot_product_attention(q, ones({1, 2, 3, 5}), q);
                 },
                 "same last dimension"},
                {"another length",
                 [=] {
                   scaled_dot_product_attention(q, q, ones({1, 2, 4, 4}));
                 },
                 "same sequence length"},
                {"a vector", [=] { scaled_dot_product_attention(ones({4}), q, q); }, "at least 2 dimensional"},
                {"mixed dtypes", [=] { scaled_dot_product_attention(q, q, q.to(kDouble)); }, "same dtype"},
                {"a mask and causal",
                 [=] {
                   scaled_dot_product_attention(q, q, q, ones({3, 3}, kBool), 0, true);
                 },
                 "Explicit attn_mask should not be set when is_causal=True"},
                {"a mask that does not fit",
                 [=] {
                   scaled_dot_product_attention(q, q, q, ones({2, 3}, kBool));
                 },
                 "cannot be broadcast"},
                {"heads that do not divide",
                 [=] {
                   scaled_dot_product_attention(ones({1, 3, 3, 4}), q, q, {}, 0, false, std::nullopt, true);
                 },
                 "must divide"},
                {"a dropout above 1", [=] { scaled_dot_product_attention(q, q, q, {}, 1.5); }, "between 0 and 1"}};
  add_row(r);
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
