// Reductions: sums, means, products, norms, truth, extremes, variance.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

using Folded = std::function<double(const Values&)>;

/// Any shape, an empty line and an empty result among them.
std::vector<Sample> full_samples(double low, double high) {
  return {{{uniform({}, low, high)}},
          {{uniform({5}, low, high)}},
          {{uniform({2, 3}, low, high)}},
          {{uniform({2, 3, 2}, low, high)}},
          {{uniform({0}, low, high)}, false},
          {{uniform({2, 0, 3}, low, high)}, false},
          {{uniform({67}, low, high)}, false},
          {{uniform({7, 3, 11}, low, high)}, false},
          {{uniform({41, 130}, low, high)}, false}};
}
/// At least two dims, for reductions over dim 1 and over {0, -1}.
std::vector<Sample> dim_samples(double low, double high, bool with_empty_line = true) {
  std::vector<Sample> list = {{{uniform({2, 3}, low, high)}},           {{uniform({2, 3, 2}, low, high)}},
                              {{uniform({0, 3}, low, high)}, false},    {{uniform({7, 33, 5}, low, high)}, false},
                              {{uniform({41, 130}, low, high)}, false}, {{uniform({130, 41}, low, high)}, false}};
  if (with_empty_line) list.push_back({{uniform({3, 0, 2}, low, high)}, false});
  return list;
}
/// No ties: extremes have one place.
std::vector<Sample> distinct_samples() {
  return {{{distinct({2, 3})}},
          {{distinct({2, 3, 2})}},
          {{distinct({0, 3})}, false},
          {{distinct({7, 5, 3})}, false, {kShort, kInt, kLong, kFloat, kDouble}}};
}

Folded sum_of = [](const Values& v) {
  double s = 0;
  for (const double x : v) s += x;
  return s;
};
Folded folded_mean = [](const Values& v) { return sum_of(v) / static_cast<double>(v.size()); };
Folded prod_of = [](const Values& v) {
  double p = 1;
  for (const double x : v) p *= x;
  return p;
};
Folded max_of = [](const Values& v) { return *std::max_element(v.begin(), v.end()); };
Folded min_of = [](const Values& v) { return *std::min_element(v.begin(), v.end()); };
Folded all_of = [](const Values& v) -> double {
  return std::all_of(v.begin(), v.end(), [](double x) { return x != 0; });
};
Folded any_of = [](const Values& v) -> double {
  return std::any_of(v.begin(), v.end(), [](double x) { return x != 0; });
};
Folded nonzero_of = [](const Values& v) -> double {
  return static_cast<double>(std::count_if(v.begin(), v.end(), [](double x) { return x != 0; }));
};
Folded lse_of = [](const Values& v) -> double {
  if (v.empty()) return -INFINITY;
  const double m = max_of(v);
  if (std::isinf(m)) return m;
  double s = 0;
  for (const double x : v) s += std::exp(x - m);
  return m + std::log(s);
};
Folded folded_variance(double correction) {
  return [correction](const Values& v) {
    const double m = folded_mean(v);
    double s = 0;
    for (const double x : v) s += (x - m) * (x - m);
    return s / std::max(0.0, static_cast<double>(v.size()) - correction);
  };
}
Folded norm_of(double p) {
  return [p](const Values& v) {
    if (p == 0) return nonzero_of(v);
    double s = std::isinf(p) && p < 0 ? INFINITY : 0;
    for (const double x : v)
      s = std::isinf(p) ? (p > 0 ? std::max(s, std::fabs(x)) : std::min(s, std::fabs(x)))
                        : s + std::pow(std::fabs(x), p);
    return std::isinf(p) ? s : std::pow(s, 1 / p);
  };
}

Reference fold(Shape dims, bool keepdim, Folded fn) {
  return [=](const Arrays& in) { return Arrays{reduce(in[0], dims, keepdim, fn)}; };
}

Row reduction(const char* name, const char* overload, DTypes dtypes, ResultType result) {
  Row r{name, overload, std::move(dtypes), std::move(result)};
  r.gradient = true;
  r.tolerance = 4;
  r.absolute = 20;  // sums of up to 5330 elements cancel
  r.exact_layouts = false;
  return r;
}

/// A case over all elements.
Case whole(std::vector<Sample> s, std::function<Tensor(const Tensor&)> call, Folded fn) {
  return {
      "", std::move(s), [call](const Tensors& x) { return Tensors{call(x[0])}; }, fold({}, false, std::move(fn)), {},
      {}};
}

/// Cases over dim 1 and over {0, -1} kept, through call(x, dims, keepdim) and out(o, x, dims, keepdim).
template <class CallDim, class OutDim>
void add_dim_cases(Row& r, const std::vector<Sample>& s, CallDim call, OutDim out, Folded fn) {
  for (const auto& [dims, keepdim] : {std::pair<Shape, bool>{{1}, false}, {{0, -1}, true}, {{0}, true}}) {
    const Shape d = dims;
    const bool keep = keepdim;
    Case c{"dims of " + std::to_string(d.size()) + (keep ? " kept" : ""),
           s,
           [=](const Tensors& x) { return Tensors{call(x[0], IntArrayRef(d), keep)}; },
           fold(d, keep, fn),
           {},
           {}};
    if constexpr (!std::is_same_v<OutDim, std::nullptr_t>)
      c.out = [=](Tensor& o, const Tensors& x) { out(o, x[0], IntArrayRef(d), keep); };
    r.cases.push_back(std::move(c));
  }
}

void add_sum_reductions() {
  Row r = reduction("sum", "", kAll, sum_type);
  r.cases.push_back(whole(
      full_samples(-2, 2), [](const Tensor& x) { return sum(x); }, sum_of));
  r.cases.push_back({"dtype",
                     {{{uniform({3, 5}, -2, 2)}, false, {kFloat, kHalf}}},
                     [](const Tensors& x) { return Tensors{sum(x[0], kDouble).to(x[0].dtype())}; },
                     fold({}, false, sum_of),
                     {},
                     {}});
  add_row(r);
  r = reduction("sum", "dim_IntList", kAll, sum_type);
  add_dim_cases(
      r, dim_samples(-2, 2), [](const Tensor& x, IntArrayRef d, bool k) { return sum(x, d, k); },
      [](Tensor& o, const Tensor& x, IntArrayRef d, bool k) { sum_out(o, x, d, k); }, sum_of);
  r.refusals = {{"a dim twice",
                 [] {
                   sum(ones({2, 2}), {0, -2});
                 },
                 "multiple times"},
                {"a dim out of range",
                 [] {
                   sum(ones({2, 2}), {2});
                 },
                 "sum"}};
  add_row(r);
  r = reduction("mean", "", kFloats, same_type);
  r.cases.push_back(whole(
      full_samples(-2, 2), [](const Tensor& x) { return mean(x); }, folded_mean));
  r.refusals = {{"integers", [] { mean(ones({2}, kLong)); }, "could not infer output dtype"}};
  add_row(r);
  r = reduction("mean", "dim", kFloats, same_type);
  add_dim_cases(
      r, dim_samples(-2, 2), [](const Tensor& x, IntArrayRef d, bool k) { return mean(x, d, k); },
      [](Tensor& o, const Tensor& x, IntArrayRef d, bool k) { mean_out(o, x, d, k); }, folded_mean);
  add_row(r);

  auto drop_nan = [](Folded fn) {
    return Folded([fn](const Values& v) {
      Values kept;
      for (const double x : v)
        if (!std::isnan(x)) kept.push_back(x);
      return fn(kept);
    });
  };
  const Sample with_nan{{Array({2, 3}, {1, NAN, 3, NAN, NAN, 2.5})}, false, kFloats};
  std::vector<Sample> s = dim_samples(-2, 2);
  s.push_back(with_nan);
  r = reduction("nansum", "", kAll, sum_type);
  add_dim_cases(
      r, s, [](const Tensor& x, IntArrayRef d, bool k) { return nansum(x, d, k); },
      [](Tensor& o, const Tensor& x, IntArrayRef d, bool k) { nansum_out(o, x, d, k); }, drop_nan(sum_of));
  add_row(r);
  r = reduction("nanmean", "", kFloats, same_type);
  add_dim_cases(
      r, s, [](const Tensor& x, IntArrayRef d, bool k) { return nanmean(x, d, k); },
      [](Tensor& o, const Tensor& x, IntArrayRef d, bool k) { nanmean_out(o, x, d, k); }, drop_nan(folded_mean));
  add_row(r);

  s = dim_samples(-2, 2);
  s.push_back({{Array({2, 2}, {-INFINITY, -INFINITY, INFINITY, 1})}, false, kFloats});
  r = reduction("logsumexp", "", kAll, float_type);
  add_dim_cases(
      r, s, [](const Tensor& x, IntArrayRef d, bool k) { return logsumexp(x, d, k); },
      [](Tensor& o, const Tensor& x, IntArrayRef d, bool k) { logsumexp_out(o, x, d, k); }, lse_of);
  add_row(r);
}

void add_products() {
  const Sample zeros_inside{{Array({2, 3}, {1.5, 0, 2, 3, -1, 2})}}, two_zeros{{Array({2, 3}, {1.5, 0, 0, 3, -1, 2})}};
  std::vector<Sample> s = {{{uniform({}, 0.5, 2)}},         {{uniform({5}, 0.5, 2)}},           zeros_inside, two_zeros,
                           {{uniform({0}, 0.5, 2)}, false}, {{uniform({37}, 0.8, 1.25)}, false}};
  Row r = reduction("prod", "", kAll, sum_type);
  r.tolerance = 16;
  r.cases.push_back(whole(
      s, [](const Tensor& x) { return prod(x); }, prod_of));
  add_row(r);
  r = reduction("prod", "dim_int", kAll, sum_type);
  r.tolerance = 16;
  s = {{{uniform({2, 3}, 0.5, 2)}},
       zeros_inside,
       two_zeros,
       {{uniform({2, 3, 2}, 0.5, 2)}},
       {{uniform({3, 0}, 0, 1)}, false},
       {{uniform({3, 37}, 0.8, 1.25)}, false}};
  for (const bool keep : {false, true})
    r.cases.push_back({keep ? "kept" : "",
                       s,
                       [keep](const Tensors& x) { return Tensors{prod(x[0], 1, keep)}; },
                       fold({1}, keep, prod_of),
                       {},
                       [keep](Tensor& o, const Tensors& x) { prod_out(o, x[0], 1, keep); }});
  add_row(r);
}

void add_norms() {
  const std::vector<Sample> s = {{{Array({2, 3}, {1.5, -0.4, 2, -3, 1.1, 0.6})}},
                                 {{uniform({7, 33}, 0.1, 2)}, false},
                                 {{uniform({0, 3}, 0, 1)}, false}};
  auto finish = [](Row& r) {
    r.tolerance = 8;
    add_row(r);
  };
  Row r = reduction("linalg_vector_norm", "", kFloats, same_type);
  for (const double p :
       {2.0, 1.0, 0.0, 3.0, 1.5, 0.5, -1.0, static_cast<double>(INFINITY), -static_cast<double>(INFINITY)})
    r.cases.push_back({"p=" + std::to_string(p),
                       s,
                       [p](const Tensors& x) { return Tensors{linalg_vector_norm(x[0], p, {1})}; },
                       fold({1}, false, norm_of(p)),
                       {},
                       [p](Tensor& o, const Tensors& x) { linalg_vector_norm_out(o, x[0], p, {1}); }});
  r.refusals = {{"integers", [] { linalg_vector_norm(ones({2}, kLong)); }, "norm"}};
  finish(r);
  r = reduction("norm", "", kFloats, same_type);
  r.cases.push_back(whole(
      {s[0], s[1]}, [](const Tensor& x) { return norm(x); }, norm_of(2)));
  finish(r);
  r = reduction("norm", "ScalarOpt_dtype", kFloats, [](DType, std::size_t) { return kDouble; });
  r.cases.push_back(whole(
      {s[0], s[1]}, [](const Tensor& x) { return norm(x, 1, kDouble); }, norm_of(1)));
  r.refuses_others = false;
  finish(r);
  r = reduction("norm", "ScalarOpt_dim", kFloats, same_type);
  r.cases.push_back({"",
                     s,
                     [](const Tensors& x) { return Tensors{norm(x[0], 3, {1}, true)}; },
                     fold({1}, true, norm_of(3)),
                     {},
                     [](Tensor& o, const Tensors& x) { norm_out(o, x[0], 3, {1}, true); }});
  finish(r);
  r = reduction("norm", "ScalarOpt_dim_dtype", kFloats, [](DType, std::size_t) { return kDouble; });
  r.cases.push_back({"",
                     s,
                     [](const Tensors& x) { return Tensors{norm(x[0], 2, {1}, false, kDouble)}; },
                     fold({1}, false, norm_of(2)),
                     {},
                     {}});
  r.refuses_others = false;
  finish(r);
  r = reduction("dist", "", kFloats, same_type);
  r.cases.push_back({"",
                     {{{uniform({2, 3}, -2, 2), uniform({3}, -2, 2, 7)}}},
                     [](const Tensors& x) { return Tensors{dist(x[0], x[1], 3)}; },
                     one([](const Arrays& in) {
                       return reduce(map(in, [](const Values& v) { return v[0] - v[1]; }), {}, false, norm_of(3));
                     }),
                     {},
                     {}});
  finish(r);
}

void add_truth() {
  auto truth = [](DType t, std::size_t) { return t == kByte ? kByte : kBool; };
  std::vector<Sample> s = {{{integers({3, 4}, 0, 2)}}, {{integers({3, 4}, 1, 2)}}, {{integers({3, 4}, 0, 0)}},
                           {{integers({2, 0}, 0, 1)}}, {{integers({0, 2}, 0, 1)}}, {{integers({5, 67}, 1, 2)}}};
  s.push_back({{Array({1, 3}, {NAN, 0.0, -0.0})}, false, kFloats});
  auto base = [&](const char* name, const char* overload) {
    Row r = reduction(name, overload, kAll, truth);
    r.gradient = false;
    return r;
  };
  Row r = base("all", "");
  r.cases.push_back(whole(
      s, [](const Tensor& x) { return all(x); }, all_of));
  r.cases[0].samples.push_back({{integers({}, 0, 0)}});
  add_row(r);
  r = base("any", "");
  r.cases.push_back(whole(
      s, [](const Tensor& x) { return any(x); }, any_of));
  add_row(r);
  r = base("all", "dim");
  r.cases.push_back({"",
                     s,
                     [](const Tensors& x) { return Tensors{all(x[0], 1)}; },
                     fold({1}, false, all_of),
                     {},
                     [](Tensor& o, const Tensors& x) { all_out(o, x[0], 1); }});
  add_row(r);
  r = base("any", "dim");
  r.cases.push_back({"",
                     s,
                     [](const Tensors& x) { return Tensors{any(x[0], 0, true)}; },
                     fold({0}, true, any_of),
                     {},
                     [](Tensor& o, const Tensors& x) { any_out(o, x[0], 0, true); }});
  add_row(r);
  r = base("all", "dims");
  add_dim_cases(
      r, s, [](const Tensor& x, IntArrayRef d, bool k) { return all(x, OptionalIntArrayRef(d), k); },
      [](Tensor& o, const Tensor& x, IntArrayRef d, bool k) { all_out(o, x, OptionalIntArrayRef(d), k); }, all_of);
  add_row(r);
  r = base("any", "dims");
  add_dim_cases(
      r, s, [](const Tensor& x, IntArrayRef d, bool k) { return any(x, OptionalIntArrayRef(d), k); },
      [](Tensor& o, const Tensor& x, IntArrayRef d, bool k) { any_out(o, x, OptionalIntArrayRef(d), k); }, any_of);
  add_row(r);
  r = base("count_nonzero", "");
  r.result = long_type;
  r.cases.push_back(whole(
      s, [](const Tensor& x) { return count_nonzero(x); }, nonzero_of));
  r.cases.push_back({"dim",
                     s,
                     [](const Tensors& x) { return Tensors{count_nonzero(x[0], std::optional<std::int64_t>(1))}; },
                     fold({1}, false, nonzero_of),
                     {},
                     {}});
  add_row(r);
  r = base("count_nonzero", "dim_IntList");
  r.result = long_type;
  r.cases.push_back({"",
                     s,
                     [](const Tensors& x) {
                       return Tensors{count_nonzero(x[0], {0, 1})};
                     },
                     fold({0, 1}, false, nonzero_of),
                     {},
                     {}});
  add_row(r);
}

void add_extreme_reductions() {
  const std::vector<Sample> s = distinct_samples();
  const std::vector<Sample> full = {
      {{distinct({})}}, {{distinct({5})}}, {{distinct({2, 3})}}, {{uniform({7, 33}, -100, 100)}, false}};
  const Sample with_nan{{Array({2, 3}, {1, NAN, 3, 4, 5, 2.5})}, false, kFloats};
  auto nan_max = Folded([](const Values& v) -> double {
    return std::any_of(v.begin(), v.end(), [](double x) { return std::isnan(x); }) ? NAN : max_of(v);
  });
  auto nan_min = Folded([](const Values& v) -> double {
    return std::any_of(v.begin(), v.end(), [](double x) { return std::isnan(x); }) ? NAN : min_of(v);
  });
  std::vector<Sample> some = s;
  some.erase(some.begin() + 2);  // its results over dim 0 would be extremes of nothing
  some.push_back(with_nan);
  Row r = reduction("amax", "", kAll, same_type);
  add_dim_cases(
      r, some, [](const Tensor& x, IntArrayRef d, bool k) { return amax(x, d, k); },
      [](Tensor& o, const Tensor& x, IntArrayRef d, bool k) { amax_out(o, x, d, k); }, nan_max);
  r.refusals = {{"an empty dim", [] { amax(ones({2, 0}), {1}); }, "non-zero size"}};
  add_row(r);
  r = reduction("amin", "", kAll, same_type);
  add_dim_cases(
      r, some, [](const Tensor& x, IntArrayRef d, bool k) { return amin(x, d, k); },
      [](Tensor& o, const Tensor& x, IntArrayRef d, bool k) { amin_out(o, x, d, k); }, nan_min);
  add_row(r);
  r = reduction("max", "", kAll, same_type);
  r.cases.push_back(whole(
      full, [](const Tensor& x) { return max(x); }, max_of));
  // Ties share the gradient, which finite differences cannot see.
  r.refusals = {{"nothing", [] { max(ones({0})); }, "input.numel() == 0"}};
  add_row(r);
  r = reduction("min", "", kAll, same_type);
  r.cases.push_back(whole(
      full, [](const Tensor& x) { return min(x); }, min_of));
  r.refusals = {{"nothing", [] { min(ones({0})); }, "input.numel() == 0"}};
  add_row(r);

  auto place = [](bool largest) {
    return Folded([largest](const Values& v) {
      std::size_t best = 0;
      for (std::size_t i = 1; i < v.size(); ++i) {
        if (std::isnan(v[best])) break;
        if (std::isnan(v[i]) || (largest ? v[i] > v[best] : v[i] < v[best])) best = i;
      }
      return static_cast<double>(best);
    });
  };
  auto with_place = [](Shape d, bool keep, Folded value, Folded index) {
    return [=](const Arrays& in) { return Arrays{reduce(in[0], d, keep, value), reduce(in[0], d, keep, index)}; };
  };
  std::vector<Sample> ties = s;
  ties.push_back({{integers({5, 9}, 0, 2)}, false});
  ties.push_back(with_nan);
  ties.push_back({{uniform({}, -3, 3)}});
  for (const bool largest : {true, false}) {
    r = reduction(largest ? "max" : "min", "dim", kAll, value_and_index);
    for (const bool keep : {false, true}) {
      auto call = [=](const Tensors& x) {
        auto [v, i] = largest ? max(x[0], -1, keep) : min(x[0], -1, keep);
        return Tensors{v, i};
      };
      r.cases.push_back({keep ? "kept" : "",
                         ties,
                         call,
                         with_place({-1}, keep, largest ? nan_max : nan_min, place(largest)),
                         {},
                         {},
                         [=](Tensor& v, Tensor& i, const Tensors& x) {
                           largest ? max_out(v, i, x[0], -1, keep) : min_out(v, i, x[0], -1, keep);
                         }});
    }
    r.refusals = {{"an empty dim", [=] { largest ? max(ones({2, 0}), 1) : min(ones({2, 0}), 1); }, "non-zero size"}};
    add_row(r);
    r = reduction(largest ? "argmax" : "argmin", "", kAll, long_type);
    r.gradient = false;
    r.cases.push_back(
        {"dim",
         ties,
         [=](const Tensors& x) { return Tensors{largest ? argmax(x[0], -1) : argmin(x[0], -1)}; },
         fold({-1}, false, place(largest)),
         {},
         [=](Tensor& o, const Tensors& x) { largest ? argmax_out(o, x[0], -1) : argmin_out(o, x[0], -1); }});
    r.cases.push_back({"flat",
                       {ties[0], ties[1], {{integers({5, 9}, 0, 2)}}, with_nan, {{uniform({}, -3, 3)}}},
                       [=](const Tensors& x) { return Tensors{largest ? argmax(x[0]) : argmin(x[0])}; },
                       fold({}, false, place(largest)),
                       {},
                       {}});
    r.refusals = {{"nothing", [=] { largest ? argmax(ones({0})) : argmin(ones({0})); }, "input.numel() == 0"}};
    add_row(r);
  }
  r = reduction("aminmax", "", kAll, same_type);
  r.cases.push_back({"dim",
                     some,
                     [](const Tensors& x) {
                       auto [low, high] = aminmax(x[0], 1);
                       return Tensors{low, high};
                     },
                     [=](const Arrays& in) {
                       return Arrays{reduce(in[0], {1}, false, nan_min), reduce(in[0], {1}, false, nan_max)};
                     },
                     {},
                     {},
                     [](Tensor& low, Tensor& high, const Tensors& x) { aminmax_out(low, high, x[0], 1); }});
  r.cases.push_back({"all",
                     full,
                     [](const Tensors& x) {
                       auto [low, high] = aminmax(x[0]);
                       return Tensors{low, high};
                     },
                     [=](const Arrays& in) {
                       return Arrays{reduce(in[0], {}, false, min_of), reduce(in[0], {}, false, max_of)};
                     },
                     {},
                     {},
                     [](Tensor& low, Tensor& high, const Tensors& x) { aminmax_out(low, high, x[0]); }});
  add_row(r);
}

void add_variance() {
  const std::vector<Sample> s = {{{uniform({2, 3}, -2, 2)}},
                                 {{uniform({2, 3, 4}, -2, 2)}},
                                 {{uniform({7, 33}, 5, 6)}, false},
                                 {{uniform({0, 3}, 0, 1)}, false}};
  auto root = [](Folded f) { return Folded([f](const Values& v) { return std::sqrt(f(v)); }); };
  for (const bool is_std : {false, true}) {
    auto fn = [&](double c) { return is_std ? root(folded_variance(c)) : folded_variance(c); };
    const char* name = is_std ? "std" : "var";
    const char* with_mean = is_std ? "std_mean" : "var_mean";
    auto base = [](const char* n, const char* overload) {
      Row r = reduction(n, overload, kFloats, same_type);
      r.tolerance = 8;
      return r;
    };
    auto both = [](Shape d, bool keep, Folded f) {
      return [=](const Arrays& in) { return Arrays{reduce(in[0], d, keep, f), reduce(in[0], d, keep, folded_mean)}; };
    };
    auto pair = [](std::tuple<Tensor, Tensor> t) { return Tensors{std::get<0>(t), std::get<1>(t)}; };
    const std::vector<Sample> full = {s[0], s[1], s[2]};
    Row r = base(name, "");
    r.cases.push_back(whole(
        full, [=](const Tensor& x) { return is_std ? std(x, false) : var(x, false); }, fn(0)));
    r.refusals = {{"integers", [=] { is_std ? std(ones({2}, kLong), true) : var(ones({2}, kLong), true); },
                   "only support floating point"}};
    add_row(r);
    r = base(name, "dim");
    r.cases.push_back(
        {"",
         s,
         [=](const Tensors& x) { return Tensors{is_std ? std(x[0], {1}, true, true) : var(x[0], {1}, true, true)}; },
         fold({1}, true, fn(1)),
         {},
         [=](Tensor& o, const Tensors& x) {
           is_std ? std_out(o, x[0], {1}, true, true) : var_out(o, x[0], {1}, true, true);
         }});
    add_row(r);
    r = base(name, "correction");
    r.cases.push_back(whole(
        full, [=](const Tensor& x) { return is_std ? x.std() : x.var(); }, fn(1)));
    const std::optional<Scalar> half(0.5);
    r.cases.push_back(
        {"correction",
         s,
         [=](const Tensors& x) { return Tensors{is_std ? std(x[0], {1}, half) : var(x[0], {1}, half)}; },
         fold({1}, false, fn(0.5)),
         {},
         [=](Tensor& o, const Tensors& x) { is_std ? std_out(o, x[0], {1}, half) : var_out(o, x[0], {1}, half); }});
    add_row(r);
    r = base(with_mean, "");
    r.cases.push_back({"",
                       full,
                       [=](const Tensors& x) { return pair(is_std ? std_mean(x[0], true) : var_mean(x[0], true)); },
                       both({}, false, fn(1)),
                       {},
                       {}});
    add_row(r);
    r = base(with_mean, "dim");
    r.cases.push_back({"",
                       s,
                       [=](const Tensors& x) {
                         return pair(is_std ? std_mean(x[0], {1}, false, true) : var_mean(x[0], {1}, false, true));
                       },
                       both({1}, true, fn(0)),
                       {},
                       {}});
    add_row(r);
    r = base(with_mean, "correction");
    r.cases.push_back(
        {"",
         s,
         [=](const Tensors& x) { return pair(is_std ? std_mean(x[0], {1}, half) : var_mean(x[0], {1}, half)); },
         both({1}, false, fn(0.5)),
         {},
         {}});
    add_row(r);
  }
}

void add_sum_to_size() {
  Row r = reduction("sum_to_size", "", kNumbers, same_type);
  r.refuses_others = false;
  r.dtypes = kFloats + DTypes{kLong};
  r.cases.push_back({"",
                     {{{uniform({2, 3, 4}, -2, 2)}}},
                     [](const Tensors& x) {
                       return Tensors{x[0].sum_to_size({3, 1})};
                     },
                     one([](const Arrays& in) {
                       Array a = reduce(in[0], {0, 2}, true, sum_of);
                       a.shape = {3, 1};
                       return a;
                     }),
                     {},
                     {}});
  r.refusals = {{"a size that does not fit", [] { ones({2, 3}).sum_to_size({2}); }, "not expandable"}};
  add_row(r);
}

const bool added_reduce = [] {
  add_sum_reductions();
  add_products();
  add_norms();
  add_truth();
  add_extreme_reductions();
  add_variance();
  add_sum_to_size();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
