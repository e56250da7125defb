// Losses.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

constexpr std::int64_t kReductions[] = {0, 1, 2};
const char* const kReductionNames[] = {"none", "mean", "sum"};

double total(const Values& v) { return std::accumulate(v.begin(), v.end(), 0.0); }

Array reduced(const Array& each, std::int64_t reduction) {
  if (reduction == 0) return each;
  const double sum = total(each.values);
  return Array({}, Values{reduction == 2 ? sum : sum / static_cast<double>(each.numel())});
}

Row loss_row(const char* name, DTypes dtypes = kFloats) {
  Row r = gradient_row_of(name, "", std::move(dtypes));
  r.tolerance = 8;
  r.absolute = 20;
  r.exact_layouts = false;
  r.refuses_others = false;
  return r;
}

/// What class indices select. Classes are dim 1, or dim 0 of a vector.
struct Classes {
  std::int64_t outer, count, inner;
  explicit Classes(const Array& x)
      : outer(x.dim() == 1 ? 1 : x.shape[0]), count(x.dim() == 1 ? x.shape[0] : x.shape[1]), inner(1) {
    for (std::size_t d = 2; d < x.shape.size(); ++d) inner *= x.shape[d];
  }
  std::int64_t at(std::int64_t position, std::int64_t c) const {
    return (position / inner * count + c) * inner + position % inner;
  }
};

/// Cross entropy of log-probabilities; weight may be null.
Arrays class_loss(const Array& logp, const Array& target, const Array* weight, std::int64_t reduction,
                  std::int64_t ignore, double smoothing) {
  const Classes k(logp);
  Array each(target.shape);
  double sum = 0, weights = 0;
  for (std::int64_t p = 0; p < target.numel(); ++p) {
    const auto t = static_cast<std::int64_t>(target[p]);
    if (t == ignore) continue;
    const double w = weight ? (*weight)[t] : 1;
    double smooth = 0;
    for (std::int64_t c = 0; c < k.count; ++c) smooth -= logp[k.at(p, c)] * (weight ? (*weight)[c] : 1);
    each[p] = -(1 - smoothing) * w * logp[k.at(p, t)] + smoothing / static_cast<double>(k.count) * smooth;
    sum += each[p];
    weights += w;
  }
  const Array whole({}, Values{weights});
  if (reduction == 0) return {each, whole};
  return {Array({}, Values{reduction == 2 ? sum : sum / weights}), whole};
}

Array log_softmax_of(const Array& x) {
  const Classes k(x);
  Array out(x.shape);
  for (std::int64_t p = 0; p < k.outer * k.inner; ++p) {
    double m = -INFINITY, s = 0;
    for (std::int64_t c = 0; c < k.count; ++c) m = std::max(m, x[k.at(p, c)]);
    for (std::int64_t c = 0; c < k.count; ++c) s += std::exp(x[k.at(p, c)] - m);
    for (std::int64_t c = 0; c < k.count; ++c) out[k.at(p, c)] = x[k.at(p, c)] - m - std::log(s);
  }
  return out;
}

/// Logits of `shape`, a class each, and perhaps weights.
Sample classes(const Shape& shape, bool weighted, bool gradient = true) {
  Shape target = shape;
  target.erase(target.begin() + (shape.size() == 1 ? 0 : 1));
  const std::int64_t count = shape.size() == 1 ? shape[0] : shape[1];
  Sample s{{uniform(shape, -2, 2), Input(integers(target, 0, count - 1, 5), kLong)}, gradient};
  // Not differentiable, as in PyTorch: a dtype of its own keeps finite differences off.
  if (weighted) s.inputs.emplace_back(uniform({count}, 0.5, 2, 7), kDouble);
  return s;
}

using ClassFn = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, std::int64_t, std::int64_t);

void add_class_loss(ClassFn fn, bool of_logits, double smoothing, Row& r) {
  for (const std::int64_t reduction : kReductions)
    for (const bool weighted : {false, true}) {
      std::vector<Sample> s = {classes({3, 4}, weighted), classes({2, 3, 2}, weighted, false),
                               classes({5, 7, 3, 2}, weighted, false), classes({33, 41}, weighted, false)};
      if (smoothing == 0) s.push_back(classes({4}, weighted));
      if (reduction != 1) s.push_back(classes({0, 4}, weighted, false));
      // An ignored class would divide by zero where it is the only one.
      const std::int64_t ignore = reduction == 1 ? -100 : 1;
      r.cases.push_back({std::string(kReductionNames[reduction]) + (weighted ? ", weights" : "") +
                             (smoothing > 0 ? ", smoothed" : ""),
                         s,
                         [=](const Tensors& x) {
                           return Tensors{
                               fn(x[0], x[1], weighted ? x[2].to(x[0].dtype()) : Tensor(), reduction, ignore)};
                         },
                         [=](const Arrays& in) {
                           return Arrays{class_loss(of_logits ? log_softmax_of(in[0]) : in[0], in[1],
                                                    weighted ? &in[2] : nullptr, reduction, ignore, smoothing)[0]};
                         },
                         {},
                         {}});
    }
  Sample ignored = classes({4, 3}, false);
  ignored.inputs[1] = Input(Array({4}, {0, 2, 2, 1}), kLong);
  r.cases.push_back({"some ignored",
                     {ignored},
                     [=](const Tensors& x) { return Tensors{fn(x[0], x[1], Tensor(), 1, 2)}; },
                     [=](const Arrays& in) {
                       return Arrays{
                           class_loss(of_logits ? log_softmax_of(in[0]) : in[0], in[1], nullptr, 1, 2, smoothing)[0]};
                     },
                     {},
                     {}});
  r.refusals = {{"a class out of range",
                 [=] {
                   fn(ones({2, 3}), full({2}, 3, kLong), Tensor(), 1, -100);
                 },
                 "out of bounds"},
                {"targets that are not indices",
                 [=] {
                   fn(ones({2, 3}), ones({2}), Tensor(), 1, -100);
                 },
                 "class indices"},
                {"targets of another shape",
                 [=] {
                   fn(ones({2, 3}), ones({3}, kLong), Tensor(), 1, -100);
                 },
                 "Expected target size [2]"},
                {"weights of another size",
                 [=] {
                   fn(ones({2, 3}), ones({2}, kLong), ones({2}), 1, -100);
                 },
                 "for all 3 classes"},
                {"weights that require grad",
                 [=] {
                   fn(ones({2, 3}), ones({2}, kLong), ones({3}).requires_grad_(), 1, -100);
                 },
                 "pass weight.detach()"},
                {"an unknown reduction",
                 [=] {
                   fn(ones({2, 3}), ones({2}, kLong), Tensor(), 3, -100);
                 },
                 "not a valid value for reduction"}};
}

void add_class_losses() {
  const std::pair<const char*, ClassFn> kinds[] = {
      {"nll_loss", +[](const Tensor& x, const Tensor& t, const Tensor& w, std::int64_t r,
                       std::int64_t i) { return nll_loss(x, t, w, r, i); }},
      {"nll_loss2d", +[](const Tensor& x, const Tensor& t, const Tensor& w, std::int64_t r, std::int64_t i) {
         return nll_loss2d(x, t, w, r, i);
       }}};
  for (const auto& [name, fn] : kinds) {
    Row r = loss_row(name);
    add_class_loss(fn, false, 0, r);
    add_row(r);
  }
  Row r = loss_row("nll_loss_forward");
  r.result = [](DType t, std::size_t i) { return i == 0 ? t : t == kDouble ? kDouble : kFloat; };
  // The weight's total is not differentiable.
  r.cases = {{"",
              {classes({3, 4}, true, false), classes({2, 3, 2}, true, false)},
              [](const Tensors& x) {
                auto [loss, weight] = nll_loss_forward(x[0], x[1], x[2].to(x[0].dtype()), 1, 1);
                return Tensors{loss, weight};
              },
              [](const Arrays& in) { return class_loss(in[0], in[1], &in[2], 1, 1, 0); },
              {},
              {}}};
  r.gradient = false;
  for (Sample& s : r.cases[0].samples) s.only = {kFloat, kDouble};  // half weights are rounded before they are summed
  add_row(r);

  r = loss_row("cross_entropy_loss");
  add_class_loss(
      +[](const Tensor& x, const Tensor& t, const Tensor& w, std::int64_t red, std::int64_t i) {
        return cross_entropy_loss(x, t, w, red, i);
      },
      true, 0, r);
  add_class_loss(
      +[](const Tensor& x, const Tensor& t, const Tensor& w, std::int64_t red, std::int64_t i) {
        return cross_entropy_loss(x, t, w, red, i, 0.25);
      },
      true, 0.25, r);
  for (const std::int64_t reduction : kReductions)
    r.cases.push_back(case_of(
        std::string("probabilities, ") + kReductionNames[reduction],
        {{{uniform({3, 4}, -2, 2), uniform({3, 4}, 0.1, 0.4, 2), uniform({4}, 0.5, 2, 3)}},
         {{uniform({4}, -2, 2), uniform({4}, 0.1, 0.4, 2), uniform({4}, 0.5, 2, 3)}},
         {{uniform({2, 4, 5}, -2, 2), uniform({2, 4, 5}, 0.1, 0.4, 2), uniform({4}, 0.5, 2, 3)}, false}},
        [=](const Tensors& x) { return cross_entropy_loss(x[0], x[1], x[2], reduction, -100, 0.1); },
        [=](const Arrays& in) {
          const Array logp = log_softmax_of(in[0]);
          const Classes k(logp);
          Shape shape = in[0].shape;
          shape.erase(shape.begin() + (shape.size() == 1 ? 0 : 1));
          Array each(shape);
          double sum = 0;
          for (std::int64_t p = 0; p < each.numel(); ++p) {
            for (std::int64_t c = 0; c < k.count; ++c)
              each[p] -= in[2][c] * logp[k.at(p, c)] * (in[1][k.at(p, c)] * 0.9 + 0.1 / static_cast<double>(k.count));
            sum += each[p];
          }
          if (reduction == 0) return each;
          return Array({}, Values{reduction == 2 ? sum : sum / static_cast<double>(each.numel())});
        }));
  r.refusals.push_back({"a smoothing above 1",
                        [] {
                          cross_entropy_loss(ones({2, 3}), ones({2}, kLong), {}, 1, -100, 1.5);
                        },
                        "between 0.0 and 1.0"});
  add_row(r);
}

using Pair = std::function<Tensor(const Tensor&, const Tensor&, std::int64_t)>;
using PairRef = std::function<double(double, double)>;

/// A loss of two tensors, element by element.
void add_pair(const char* name, const std::vector<std::pair<std::string, std::pair<Pair, PairRef>>>& variants,
              double low, double high, double target_low, double target_high, bool broadcasts,
              std::vector<Refusal> refusals, bool whole_targets = false) {
  Row r = loss_row(name);
  for (const auto& [label, both] : variants)
    for (const std::int64_t reduction : kReductions) {
      const Pair fn = both.first;
      const PairRef ref = both.second;
      auto target = [&](const Shape& s, unsigned seed) {
        Array t = uniform(s, target_low, target_high, seed);
        if (whole_targets)
          for (double& v : t.values) v = v < 0 ? -1 : 1;
        return t;
      };
      std::vector<Sample> s;
      for (const Shape& shape : {Shape{2, 3}, Shape{}, Shape{37, 5}, Shape{301}})
        s.push_back({{uniform(shape, low, high, 3), target(shape, 4)}, numel_of(shape) < 10 && !whole_targets});
      if (reduction != 1) s.push_back({{uniform({0, 2}, low, high), target({0, 2}, 4)}, false});
      if (broadcasts) s.push_back({{uniform({2, 3}, low, high, 5), target({3}, 6)}, !whole_targets});
      r.cases.push_back(case_of(
          label + (label.empty() ? "" : ", ") + kReductionNames[reduction], s,
          [=](const Tensors& x) { return fn(x[0], x[1], reduction); },
          [=](const Arrays& in) {
            return reduced(map({in[0], in[1]}, [&](const Values& v) { return ref(v[0], v[1]); }), reduction);
          }));
      if (whole_targets) {
        // Signs are no place for finite differences.
        Array signs({2, 3}, {1, -1, 1, -1, -1, 1});
        r.cases.push_back(r.cases.back());
        Case& c = r.cases.back();
        c.name += ", gradient";
        c.samples = {{{uniform({2, 3}, low, high, 3)}}};
        c.call = [=](const Tensors& x) {
          return Tensors{fn(x[0], to_tensor(signs, x[0].dtype()).to(x[0].device(), x[0].dtype()), reduction)};
        };
        c.reference = [=](const Arrays& in) {
          return Arrays{reduced(map({in[0], signs}, [&](const Values& v) { return ref(v[0], v[1]); }), reduction)};
        };
      }
    }
  r.refusals = std::move(refusals);
  r.refusals.push_back({"an unknown reduction",
                        [fn = variants[0].second.first] { fn(full({2}, 0.5), full({2}, 0.5), 3); },
                        "not a valid value for reduction"});
  add_row(r);
}

void add_pair_losses() {
  add_pair("mse_loss",
           {{"",
             {[](const Tensor& x, const Tensor& t, std::int64_t r) { return mse_loss(x, t, r); },
              [](double x, double t) { return (x - t) * (x - t); }}}},
           -3, 3, -3, 3, true, {});
  add_pair("l1_loss",
           {{"",
             {[](const Tensor& x, const Tensor& t, std::int64_t r) { return l1_loss(x, t, r); },
              [](double x, double t) { return std::fabs(x - t); }}}},
           -3, 3, -3, 3, true, {});
  auto smooth = [](double beta) {
    return std::pair<Pair, PairRef>{
        [=](const Tensor& x, const Tensor& t, std::int64_t r) { return smooth_l1_loss(x, t, r, beta); },
        [=](double x, double t) {
          const double d = std::fabs(x - t);
          return d < beta ? d * d / 2 / beta : d - beta / 2;
        }};
  };
  add_pair("smooth_l1_loss", {{"", smooth(1)}, {"beta 2.5", smooth(2.5)}, {"beta 0", smooth(0)}}, -3, 3, -3, 3, true,
           {{"a negative beta", [] { smooth_l1_loss(ones({2}), ones({2}), 1, -1); }, "negative values for beta"}});
  auto huber = [](double delta) {
    return std::pair<Pair, PairRef>{
        [=](const Tensor& x, const Tensor& t, std::int64_t r) { return huber_loss(x, t, r, delta); },
        [=](double x, double t) {
          const double d = std::fabs(x - t);
          return d <= delta ? d * d / 2 : delta * (d - delta / 2);
        }};
  };
  add_pair("huber_loss", {{"", huber(1)}, {"delta 2.5", huber(2.5)}}, -3, 3, -3, 3, true,
           {{"no delta", [] { huber_loss(ones({2}), ones({2}), 1, 0); }, "non-positive values for delta"}});
  auto kl = [](bool log_target) {
    return std::pair<Pair, PairRef>{
        [=](const Tensor& x, const Tensor& t, std::int64_t r) { return kl_div(x, t, r, log_target); },
        [=](double x, double t) { return log_target ? std::exp(t) * (t - x) : t * (std::log(t) - x); }};
  };
  add_pair("kl_div", {{"", kl(false)}, {"logarithms", kl(true)}}, -3, -0.5, 0.2, 0.9, true, {});
  auto poisson = [](bool log_input, bool full_term) {
    return std::pair<Pair, PairRef>{[=](const Tensor& x, const Tensor& t, std::int64_t r) {
                                      return poisson_nll_loss(x, t, log_input, full_term, 1e-2, r);
                                    },
                                    [=](double x, double t) {
                                      double loss = log_input ? std::exp(x) - t * x : x - t * std::log(x + 1e-2);
                                      if (full_term && t > 1)
                                        loss += t * std::log(t) - t + 0.5 * std::log(2 * M_PI * t);
                                      return loss;
                                    }};
  };
  add_pair("poisson_nll_loss",
           {{"", poisson(true, false)}, {"rates", poisson(false, false)}, {"full", poisson(true, true)}}, 0.5, 2, 1.2,
           4, true, {});
  auto hinge = [](double margin) {
    return std::pair<Pair, PairRef>{
        [=](const Tensor& x, const Tensor& t, std::int64_t r) { return hinge_embedding_loss(x, t, margin, r); },
        [=](double x, double t) { return t == 1 ? x : std::max(0.0, margin - x); }};
  };
  add_pair("hinge_embedding_loss", {{"", hinge(1)}, {"margin 2", hinge(2)}}, -3, 3, -1, 1, false, {}, true);
  add_pair("soft_margin_loss",
           {{"",
             {[](const Tensor& x, const Tensor& t, std::int64_t r) { return soft_margin_loss(x, t, r); },
              [](double x, double t) { return std::log1p(std::exp(-t * x)); }}}},
           -3, 3, -1, 1, false, {}, true);
}

double binary(double p, double t) {
  return -(t * std::max(-100.0, std::log(p)) + (1 - t) * std::max(-100.0, std::log1p(-p)));
}

void add_binary() {
  Row r = loss_row("binary_cross_entropy");
  // Rounded half inputs near 0 and 1 leave little of the logarithm of 1 - p.
  for (const std::int64_t reduction : kReductions) {
    r.cases.push_back(case_of(
        kReductionNames[reduction],
        {{{uniform({2, 3}, 0.1, 0.9), uniform({2, 3}, 0.1, 0.9, 2)}},
         {{uniform({}, 0.1, 0.9), uniform({}, 0.1, 0.9, 2)}},
         {{uniform({37, 5}, 0.1, 0.9), uniform({37, 5}, 0, 1, 2)}, false},
         {{Array({2, 2}, {0, 1, 0, 1}), Array({2, 2}, {0, 0, 1, 1})}, false}},
        [=](const Tensors& x) { return binary_cross_entropy(x[0], x[1], {}, reduction); },
        [=](const Arrays& in) {
          return reduced(map({in[0], in[1]}, [](const Values& v) { return binary(v[0], v[1]); }), reduction);
        }));
    r.cases.push_back(case_of(
        std::string("weights, ") + kReductionNames[reduction],
        {{{uniform({2, 3}, 0.1, 0.9), uniform({2, 3}, 0.1, 0.9, 2), uniform({3}, 0.5, 2, 3)}}},
        [=](const Tensors& x) { return binary_cross_entropy(x[0], x[1], x[2], reduction); },
        [=](const Arrays& in) {
          return reduced(map(in, [](const Values& v) { return v[2] * binary(v[0], v[1]); }), reduction);
        }));
  }
  r.refusals = {
      {"targets of another shape",
       [] {
         binary_cross_entropy(full({2, 3}, 0.5), ones({3}));
       },
       "[3]"},
      {"inputs above 1", [] { binary_cross_entropy(full({2}, 1.5), ones({2})); }, "elements of input"},
      {"NaN", [] { binary_cross_entropy(full({2}, std::nan("")), ones({2})); }, "elements of input"},
      {"targets below 0", [] { binary_cross_entropy(full({2}, 0.5), full({2}, -1.0)); }, "elements of target"}};
  add_row(r);
  r = loss_row("binary_cross_entropy_with_logits");
  auto softplus = [](double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); };
  for (const std::int64_t reduction : kReductions) {
    r.cases.push_back(case_of(
        kReductionNames[reduction],
        {{{uniform({2, 3}, -3, 3), uniform({2, 3}, 0, 1, 2)}},
         {{uniform({37, 5}, -30, 30), uniform({37, 5}, 0, 1, 2)}, false}},
        [=](const Tensors& x) { return binary_cross_entropy_with_logits(x[0], x[1], {}, {}, reduction); },
        [=](const Arrays& in) {
          return reduced(map(in, [&](const Values& v) { return softplus(v[0]) - v[1] * v[0]; }), reduction);
        }));
    r.cases.push_back(case_of(
        std::string("weights, ") + kReductionNames[reduction],
        {{{uniform({2, 3}, -3, 3), uniform({2, 3}, 0, 1, 2), uniform({2, 1}, 0.5, 2, 3), uniform({3}, 0.5, 2, 4)}}},
        [=](const Tensors& x) { return binary_cross_entropy_with_logits(x[0], x[1], x[2], x[3], reduction); },
        [=](const Arrays& in) {
          return reduced(map(in,
                             [&](const Values& v) {
                               return v[2] * (v[3] * v[1] * softplus(-v[0]) + (1 - v[1]) * softplus(v[0]));
                             }),
                         reduction);
        }));
  }
  r.refusals = {{"targets of another shape", [] { binary_cross_entropy_with_logits(ones({2, 3}), ones({3})); }, "[3]"}};
  add_row(r);

  r = loss_row("margin_ranking_loss");
  for (const std::int64_t reduction : kReductions)
    r.cases.push_back(case_of(
        kReductionNames[reduction],
        {{{uniform({2, 3}, -3, 3), uniform({2, 3}, -3, 3, 2)}},
         {{uniform({67}, -3, 3), uniform({67}, -3, 3, 2)}, false}},
        [=](const Tensors& x) {
          return margin_ranking_loss(x[0], x[1], full(x[0].sizes(), -1, x[0].options()), 0.5, reduction);
        },
        [=](const Arrays& in) {
          return reduced(map(in, [](const Values& v) { return std::max(0.0, v[0] - v[1] + 0.5); }), reduction);
        }));
  add_row(r);
}

const bool added_loss = [] {
  add_class_losses();
  add_pair_losses();
  add_binary();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
