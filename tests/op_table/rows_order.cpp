// Scans, sorting, selecting by rank.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

using Places = std::vector<std::size_t>;
using LineFn = std::function<Values(const Values&)>;

/// The indices in stable ascending (or descending) order, NaN greatest.
Places ordered(const Values& v, bool descending = false) {
  Places p(v.size());
  std::iota(p.begin(), p.end(), std::size_t{0});
  std::stable_sort(p.begin(), p.end(), [&](std::size_t a, std::size_t b) {
    const double x = v[descending ? b : a], y = v[descending ? a : b];
    return std::isnan(x) ? false : std::isnan(y) || x < y;
  });
  return p;
}

Values picked(const Values& v, const Places& p) {
  Values out;
  for (const std::size_t i : p) out.push_back(v[i]);
  return out;
}
Values numbers(const Places& p) { return {p.begin(), p.end()}; }

Reference per_line(std::int64_t dim, const LineFn& fn) {
  return one([=](const Arrays& in) { return lines(in[0], dim, fn); });
}

using PlacesFn = std::function<Places(const Values&)>;

/// Values and indices of what fn selects from each line.
Reference selected(std::int64_t dim, const PlacesFn& fn) {
  return [=](const Arrays& in) {
    return Arrays{lines(in[0], dim, [&](const Values& v) { return picked(v, fn(v)); }),
                  lines(in[0], dim, [&](const Values& v) { return numbers(fn(v)); })};
  };
}

/// The same without the dim: fn selects one.
Reference reduced(std::int64_t dim, bool keep, const PlacesFn& fn) {
  return [=](const Arrays& in) {
    return Arrays{reduce(in[0], {dim}, keep, [&](const Values& v) { return v[fn(v)[0]]; }),
                  reduce(in[0], {dim}, keep, [&](const Values& v) { return static_cast<double>(fn(v)[0]); })};
  };
}

Tensors both(const std::tuple<Tensor, Tensor>& t) { return {std::get<0>(t), std::get<1>(t)}; }

/// Without ties for gradients; with ties, NaN and all shapes for values. Lines along the last dim have at least
/// `least`.
std::vector<Sample> order_samples(bool may_be_empty = true) {
  const double nan = NAN, inf = INFINITY;
  std::vector<Sample> s = {{{distinct({}, 0.25)}},
                           {{distinct({5}, 0.25, 2)}},
                           {{distinct({3, 4}, 0.25, 3)}},
                           {{distinct({2, 3, 3}, 0.25, 4)}},
                           {{integers({5, 70}, 0, 3)}, false},
                           {{integers({2, 300}, -100, 100)}, false},
                           {{uniform({1, 5000}, -50, 50)}, false},
                           {{Array({2, 6}, {3, nan, -0.0, 0.0, nan, -inf, inf, 1, 1, nan, -2, 1})}, false, kFloats},
                           {{Array({9}, {1, 0, 1, 1, 0, 0, 1, 0, 1})}, false, kOnlyBool},
                           {{Array({0, 3})}, false}};
  if (may_be_empty) s.push_back({{Array({3, 0})}, false});
  return s;
}

void add_scans() {
  const auto running = [](double start, auto join) {
    return LineFn([=](const Values& v) {
      Values out;
      double total = start;
      for (const double x : v) out.push_back(total = join(total, x));
      return out;
    });
  };
  const LineFn sums = running(0, [](double a, double b) { return a + b; });
  const LineFn products = running(1, [](double a, double b) { return a * b; });
  Row r{"cumsum", "", kAll, sum_type};
  r.gradient = true;
  r.tolerance = 4;
  r.absolute = 4;
  std::vector<Sample> s = unary_samples(-2, 2, false);
  for (const std::int64_t dim : {-1, 0}) {
    r.cases.push_back({dim ? "last" : "first", s, [=](const Tensors& x) { return Tensors{cumsum(x[0], dim)}; },
                       per_line(dim, sums), [=](Tensor& x, const Tensors&) { x.cumsum_(dim); },
                       [=](Tensor& o, const Tensors& x) { cumsum_out(o, x[0], dim); }});
  }
  r.refusals = {{"a dim that is not there", [] { cumsum(ones({2}), 1); }, "Dimension out of range"}};
  add_row(r);
  r = Row{"cumprod", "", kAll, sum_type};
  r.gradient = true;
  r.tolerance = 16;
  s = {{{uniform({}, 0.5, 2)}},
       {{uniform({5}, 0.5, 2)}},
       {{uniform({2, 3}, 0.5, 2)}},
       {{Array({2, 3}, {1.5, 0, 2, 3, -1, 2})}},
       {{Array({2, 3}, {1.5, 0, 0, 0, -1, 2})}},
       {{uniform({3, 37}, 0.8, 1.25)}, false},
       {{Array({2, 0})}, false}};
  for (const std::int64_t dim : {-1, 0}) {
    r.cases.push_back({dim ? "last" : "first", s, [=](const Tensors& x) { return Tensors{cumprod(x[0], dim)}; },
                       per_line(dim, products), [=](Tensor& x, const Tensors&) { x.cumprod_(dim); },
                       [=](Tensor& o, const Tensors& x) { cumprod_out(o, x[0], dim); }});
  }
  add_row(r);
  r = Row{"logcumsumexp", "", kAll, float_type};
  r.gradient = true;
  r.tolerance = 16;
  r.absolute = 4;
  s = unary_samples(-3, 3, false);
  s.push_back({{Array({5}, {-INFINITY, -INFINITY, 2, INFINITY, 1})}, false, kFloats});
  s.push_back({{Array({4}, {1, NAN, 2, 3})}, false, kFloats});
  r.cases.push_back({"",
                     s,
                     [](const Tensors& x) { return Tensors{logcumsumexp(x[0], -1)}; },
                     per_line(-1, running(-INFINITY,
                                          [](double a, double b) {
                                            if (std::isnan(a) || std::isnan(b)) return a + b;
                                            const double m = std::max(a, b);
                                            return std::isinf(m) ? m : m + std::log(std::exp(a - m) + std::exp(b - m));
                                          })),
                     {},
                     [](Tensor& o, const Tensors& x) { logcumsumexp_out(o, x[0], -1); }});
  add_row(r);
  for (const bool largest : {true, false}) {
    r = Row{largest ? "cummax" : "cummin", "", kAll, value_and_index};
    r.gradient = true;
    const PlacesFn places = [largest](const Values& v) {
      Places out;
      std::size_t best = 0;
      for (std::size_t i = 0; i < v.size(); ++i) {
        if (std::isnan(v[i]) || (!std::isnan(v[best]) && (largest ? v[i] >= v[best] : v[i] <= v[best]))) best = i;
        out.push_back(best);
      }
      return out;
    };
    for (const std::int64_t dim : {-1, 0})
      r.cases.push_back({dim ? "last" : "first",
                         order_samples(),
                         [=](const Tensors& x) { return both(largest ? cummax(x[0], dim) : cummin(x[0], dim)); },
                         selected(dim, places),
                         {},
                         {},
                         [=](Tensor& v, Tensor& i, const Tensors& x) {
                           largest ? cummax_out(v, i, x[0], dim) : cummin_out(v, i, x[0], dim);
                         }});
    add_row(r);
  }
}

void add_sorts() {
  Row r{"sort", "", kAll, value_and_index};
  r.gradient = true;
  for (const bool descending : {false, true})
    for (const std::int64_t dim : {-1, 0})
      r.cases.push_back({std::string(descending ? "descending " : "") + (dim ? "last" : "first"),
                         order_samples(),
                         [=](const Tensors& x) { return both(sort(x[0], dim, descending)); },
                         selected(dim, [=](const Values& v) { return ordered(v, descending); }),
                         {},
                         {},
                         [=](Tensor& v, Tensor& i, const Tensors& x) { sort_out(v, i, x[0], dim, descending); }});
  r.refusals = {{"a dim that is not there", [] { sort(ones({2}), 2); }, "Dimension out of range"}};
  const std::vector<Case> descending_cases(r.cases.begin() + 2, r.cases.end());
  add_row(r);
  r.overload = "stable";
  r.cases = descending_cases;
  r.refusals.clear();
  for (Case& c : r.cases) {
    const std::int64_t dim = c.name == "descending last" ? -1 : 0;
    c.call = [=](const Tensors& x) { return both(sort(x[0], std::optional<bool>(true), dim, true)); };
    c.outs = [=](Tensor& v, Tensor& i, const Tensors& x) {
      sort_out(v, i, x[0], std::optional<bool>(true), dim, true);
    };
  }
  add_row(r);
  for (const bool stable : {false, true}) {
    r = Row{"argsort", stable ? "stable" : "", kAll, long_type};
    for (const bool descending : {false, true})
      r.cases.push_back({descending ? "descending" : "",
                         order_samples(),
                         [=](const Tensors& x) {
                           return Tensors{stable ? argsort(x[0], true, -1, descending) : argsort(x[0], -1, descending)};
                         },
                         per_line(-1, [=](const Values& v) { return numbers(ordered(v, descending)); }),
                         {},
                         {}});
    add_row(r);
  }
  r = Row{"msort", "", kAll, same_type};
  r.gradient = true;
  r.cases.push_back({"",
                     order_samples(),
                     [](const Tensors& x) { return Tensors{msort(x[0])}; },
                     per_line(0, [](const Values& v) { return picked(v, ordered(v)); }),
                     {},
                     [](Tensor& o, const Tensors& x) { msort_out(o, x[0]); }});
  add_row(r);
}

void add_selections() {
  Row r{"topk", "", kAll, value_and_index};
  r.gradient = true;
  const auto first = [](std::size_t k, bool largest, bool sorted) {
    return PlacesFn([=](const Values& v) {
      Places p = ordered(v, largest);
      p.resize(std::min(k, p.size()));
      if (!sorted) std::sort(p.begin(), p.end());
      return p;
    });
  };
  for (const bool largest : {true, false})
    for (const bool sorted : {true, false})
      for (const std::int64_t k : {0, 1, 3, 65, 1000}) {
        std::vector<Sample> fitting;
        for (const Sample& s : order_samples()) {
          const Shape& shape = s.inputs[0].array.shape;
          if (k <= (shape.empty() ? 1 : shape.back()) && (k > 0 || !shape.empty())) {
            fitting.push_back(s);
            fitting.back().gradient = s.gradient && k > 0;
          }
        }
        r.cases.push_back(
            {detail::str(largest ? "largest " : "least ", sorted ? "sorted " : "", k),
             fitting,
             [=](const Tensors& x) { return both(topk(x[0], k, -1, largest, sorted)); },
             selected(-1, first(static_cast<std::size_t>(k), largest, sorted)),
             {},
             {},
             [=](Tensor& v, Tensor& i, const Tensors& x) { topk_out(v, i, x[0], k, -1, largest, sorted); }});
      }
  r.refusals = {{"too large a k",
                 [] {
                   topk(ones({2, 3}), 4);
                 },
                 "selected index k out of range"},
                {"a negative k", [] { topk(ones({3}), -1); }, "selected index k out of range"}};
  // A refused dtype is tried on the first case; it should have elements to select.
  std::swap(r.cases[0], r.cases[1]);
  add_row(r);
  const auto lowest_equal = [](const Values& v, std::size_t rank) {
    const Places p = ordered(v);
    std::size_t k = rank;
    const auto same = [&](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
    while (k > 0 && same(v[p[k - 1]], v[p[rank]])) --k;
    return Places{p[k]};
  };
  const std::vector<Sample> full = order_samples(false);
  r = Row{"kthvalue", "", kAll, value_and_index};
  r.gradient = true;
  for (const bool keep : {false, true})
    for (const std::size_t k : {1, 3}) {
      std::vector<Sample> s(k == 1 ? full.begin() : full.begin() + 1, full.end());
      r.cases.push_back({detail::str(k, keep ? " kept" : ""),
                         s,
                         [=](const Tensors& x) { return both(kthvalue(x[0], static_cast<std::int64_t>(k), -1, keep)); },
                         reduced(-1, keep, [=](const Values& v) { return lowest_equal(v, k - 1); }),
                         {},
                         {},
                         [=](Tensor& v, Tensor& i, const Tensors& x) {
                           kthvalue_out(v, i, x[0], static_cast<std::int64_t>(k), -1, keep);
                         }});
    }
  r.refusals = {{"too large a k",
                 [] {
                   kthvalue(ones({2, 3}), 4);
                 },
                 "selected number k out of range"},
                {"a k of 0", [] { kthvalue(ones({3}), 0); }, "selected number k out of range"}};
  add_row(r);
  for (const bool ignore_nan : {false, true}) {
    const PlacesFn middle = [=](const Values& v) {
      std::size_t nans = 0, first_nan = v.size();
      for (std::size_t i = v.size(); i-- > 0;)
        if (std::isnan(v[i])) {
          ++nans;
          first_nan = i;
        }
      if (nans == v.size() || (nans > 0 && !ignore_nan)) return Places{first_nan};
      return lowest_equal(v, (v.size() - nans - 1) / 2);
    };
    r = Row{ignore_nan ? "nanmedian" : "median", "dim", kAll, value_and_index};
    r.gradient = true;
    for (const std::int64_t dim : {-1, 0}) {
      std::vector<Sample> s = full;
      if (dim == 0) s.pop_back();
      r.cases.push_back({dim ? "last" : "first kept",
                         s,
                         [=](const Tensors& x) {
                           return both(ignore_nan ? nanmedian(x[0], dim, dim == 0) : median(x[0], dim, dim == 0));
                         },
                         reduced(dim, dim == 0, middle),
                         {},
                         {},
                         [=](Tensor& v, Tensor& i, const Tensors& x) {
                           ignore_nan ? nanmedian_out(v, i, x[0], dim, dim == 0)
                                      : median_out(v, i, x[0], dim, dim == 0);
                         }});
    }
    r.refusals = {{"an empty dim",
                   [=] {
                     ignore_nan ? nanmedian(ones({2, 0}), 1) : median(ones({2, 0}), 1);
                   },
                   "non-zero size"}};
    add_row(r);
    r = Row{ignore_nan ? "nanmedian" : "median", "", kAll, same_type};
    r.gradient = true;
    r.cases.push_back({"",
                       {full.begin(), full.end() - 1},
                       [=](const Tensors& x) { return Tensors{ignore_nan ? nanmedian(x[0]) : median(x[0])}; },
                       one([=](const Arrays& in) {
                         return reduce(in[0], {}, false, [&](const Values& v) { return v[middle(v)[0]]; });
                       }),
                       {},
                       {}});
    add_row(r);
  }
  r = Row{"mode", "", kAll, value_and_index};
  r.gradient = true;
  const PlacesFn most_frequent = [](const Values& v) {
    const Places p = ordered(v);
    std::size_t best = 0, length = 0;
    for (std::size_t i = 0; i < p.size();) {
      std::size_t e = i + 1;  // no NaN equals another
      while (e < p.size() && v[p[e]] == v[p[i]]) ++e;
      if (e - i > length) {
        length = e - i;
        best = p[e - 1];
      }
      i = e;
    }
    return Places{best};
  };
  for (const bool keep : {false, true})
    r.cases.push_back({keep ? "kept" : "",
                       full,
                       [=](const Tensors& x) { return both(mode(x[0], -1, keep)); },
                       reduced(-1, keep, most_frequent),
                       {},
                       {},
                       [=](Tensor& v, Tensor& i, const Tensors& x) { mode_out(v, i, x[0], -1, keep); }});
  add_row(r);
}

const bool added_order = [] {
  add_scans();
  add_sorts();
  add_selections();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
