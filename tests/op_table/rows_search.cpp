// Distinct values, places in sorted sequences, counts, differences.
#include <map>
#include <set>

#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

Tensors three(const std::tuple<Tensor, Tensor, Tensor>& t) { return {std::get<0>(t), std::get<1>(t), std::get<2>(t)}; }

/// Values, inverse and counts of slices; `at(i)` is the i-th slice of n.
Arrays grouped(std::int64_t n, bool consecutive, const Shape& inverse_shape,
               const std::function<Values(std::int64_t)>& at, const std::function<Shape(std::int64_t)>& shape_of) {
  std::vector<Values> distinct;
  std::vector<double> inverse, counts;
  if (consecutive) {
    for (std::int64_t i = 0; i < n; ++i) {
      if (distinct.empty() || distinct.back() != at(i)) {
        distinct.push_back(at(i));
        counts.push_back(0);
      }
      inverse.push_back(static_cast<double>(distinct.size()) - 1);
      ++counts.back();
    }
  } else {
    std::map<Values, double> found;
    for (std::int64_t i = 0; i < n; ++i) ++found[at(i)];
    for (const auto& [slice, count] : found) {
      distinct.push_back(slice);
      counts.push_back(count);
    }
    for (std::int64_t i = 0; i < n; ++i)
      inverse.push_back(static_cast<double>(std::distance(found.begin(), found.find(at(i)))));
  }
  const auto k = static_cast<std::int64_t>(distinct.size());
  Array values(shape_of(k));
  std::size_t place = 0;
  for (const Values& slice : distinct)
    for (const double v : slice) values.values[place++] = v;
  return {values, Array(inverse_shape, inverse), Array({k}, counts)};
}

Arrays distinct_elements(const Array& a, bool consecutive) {
  return grouped(
      a.numel(), consecutive, a.shape, [&](std::int64_t i) { return Values{a[i]}; },
      [](std::int64_t k) { return Shape{k}; });
}

Arrays distinct_rows(const Array& a, bool consecutive) {
  const std::int64_t n = a.shape[0], width = n ? a.numel() / n : 0;
  return grouped(
      n, consecutive, {n},
      [&](std::int64_t i) { return Values(a.values.begin() + i * width, a.values.begin() + (i + 1) * width); },
      [&](std::int64_t k) {
        Shape s = a.shape;
        s[0] = k;
        return s;
      });
}

DType value_and_indices(DType t, std::size_t i) { return i == 0 ? t : kLong; }

void add_unique() {
  const std::vector<Sample> any = {
      {{integers({}, 1, 5)}},      {{integers({40}, 0, 5, 2)}},       {{integers({7, 30}, -20, 20, 3)}},
      {{uniform({3, 50}, -1, 1)}}, {{integers({500}, -120, 120, 4)}}, {{Array({0})}},
      {{uniform({6000}, -9, 9)}}};
  const std::vector<Sample> rows = {
      {{integers({40, 2}, 0, 2, 2)}}, {{integers({30, 2, 2}, 0, 1, 3)}}, {{integers({9}, 0, 3)}}, {{Array({0, 2})}}};
  for (const bool consecutive : {false, true}) {
    Row r{consecutive ? "unique_consecutive" : "unique", "", kAll, value_and_indices};
    r.cases.push_back({"elements",
                       any,
                       [=](const Tensors& x) {
                         return three(consecutive ? unique_consecutive(x[0], true, true)
                                                  : unique(x[0], true, true, true));
                       },
                       [=](const Arrays& in) { return distinct_elements(in[0], consecutive); },
                       {},
                       {}});
    r.cases.push_back({"slices",
                       rows,
                       [=](const Tensors& x) {
                         return three(consecutive ? unique_consecutive(x[0], true, true, 0)
                                                  : unique(x[0], true, true, true, 0));
                       },
                       [=](const Arrays& in) { return distinct_rows(in[0], consecutive); },
                       {},
                       {}});
    add_row(r);
  }
  Row r{"unique_dim", "", kAll, value_and_indices};
  r.cases.push_back({"",
                     rows,
                     [](const Tensors& x) { return three(unique_dim(x[0], 0, true, true, true)); },
                     [](const Arrays& in) { return distinct_rows(in[0], false); },
                     {},
                     {}});
  r.refusals = {{"an empty slice", [] { unique_dim(ones({3, 0}), 0); }, "There are 0 sized dimensions"}};
  add_row(r);
}

void add_membership() {
  const std::vector<Sample> s = {{{integers({3, 4}, 0, 9), integers({5}, 0, 9, 2)}},
                                 {{integers({}, 0, 9), integers({2, 2}, 0, 9, 2)}},
                                 {{integers({4}, 0, 9), Array({0})}},
                                 {{Array({0}), integers({4}, 0, 9)}},
                                 {{Array({3}, {NAN, 1, -0.0}), Array({2}, {NAN, 0.0})}, false, kFloats}};
  const auto member = [](const Arrays& in, bool invert) {
    const std::set<double> known = [&] {
      std::set<double> k;
      for (const double v : in[1].values)
        if (!std::isnan(v)) k.insert(v);
      return k;
    }();
    return Arrays{map({in[0]}, [&](const Values& v) {
      const bool found = !std::isnan(v[0]) && known.count(v[0]);
      return found != invert ? 1.0 : 0.0;
    })};
  };
  Row r{"isin", "Tensor_Tensor", kAll, bool_type};
  for (const bool invert : {false, true})
    r.cases.push_back({invert ? "inverted" : "",
                       s,
                       [=](const Tensors& x) { return Tensors{isin(x[0], x[1], false, invert)}; },
                       [=](const Arrays& in) { return member(in, invert); },
                       {},
                       [=](Tensor& o, const Tensors& x) { isin_out(o, x[0], x[1], false, invert); }});
  add_row(r);
  r = Row{"isin", "Tensor_Scalar", kAll, bool_type};
  r.cases.push_back(
      {"",
       {{{integers({3, 4}, 0, 3)}}, {{Array({0})}}},
       [](const Tensors& x) { return Tensors{isin(x[0], Scalar(1))}; },
       one([](const Arrays& in) { return map(in, [](const Values& v) { return v[0] == 1 ? 1.0 : 0.0; }); }),
       {},
       [](Tensor& o, const Tensors& x) { isin_out(o, x[0], Scalar(1)); }});
  add_row(r);
  r = Row{"isin", "Scalar_Tensor", kAll, bool_type};
  r.cases.push_back({"",
                     {{{integers({3, 4}, 0, 3)}}, {{Array({0})}}},
                     [](const Tensors& x) { return Tensors{isin(Scalar(1), x[0])}; },
                     one([](const Arrays& in) {
                       const auto& v = in[0].values;
                       return Array({}, {std::find(v.begin(), v.end(), 1.0) != v.end() ? 1.0 : 0.0});
                     }),
                     {},
                     {}});
  add_row(r);
}

/// The number of leading elements of the last dim's line that are less (or not greater) than each value, as bisection
/// finds it to which a NaN on either side is less.
Array places_of(const Array& sequence, const Array& values, bool right) {
  const std::int64_t n = sequence.shape.back();
  const std::int64_t row = sequence.dim() > 1 ? values.shape.back() : std::max<std::int64_t>(1, values.numel());
  Array out(values.shape);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    std::int64_t begin = 0, end = n;
    while (begin < end) {
      const std::int64_t middle = (begin + end) / 2;
      const double s = sequence[i / row * n + middle], v = values[i];
      (right ? s > v : s >= v) ? end = middle : begin = middle + 1;
    }
    out[i] = static_cast<double>(begin);
  }
  return out;
}

Array ascending(const Shape& shape, unsigned seed) {
  return lines(integers(shape, -3, 3, seed), -1, [](Values v) {
    std::sort(v.begin(), v.end());
    return v;
  });
}

void add_searches() {
  std::vector<Sample> s = {{{integers({3, 4}, -4, 4), ascending({7}, 2)}},
                           {{integers({}, -4, 4), ascending({7}, 3)}},
                           {{integers({5}, -4, 4), Array({0})}},
                           {{Array({0}), ascending({3}, 2)}},
                           {{uniform({5000}, -4, 4), ascending({300}, 2)}},
                           {{Array({4}, {NAN, INFINITY, -INFINITY, 0}), Array({4}, {-1, 0, NAN, NAN})}, false, kFloats},
                           {{Array({4}, {NAN, INFINITY, -INFINITY, 0}), Array({3}, {NAN, 0, 1})}, false, kFloats},
                           {{Array({4}, {NAN, INFINITY, -INFINITY, 0}), Array({3}, {-1, 0, 1})}, false, kFloats}};
  DTypes signed_types = kFloats + kSigned;
  Row r{"bucketize", "Tensor", signed_types, long_type};
  r.refuses_others = false;
  for (const bool right : {false, true})
    r.cases.push_back({right ? "right" : "",
                       s,
                       [=](const Tensors& x) { return Tensors{bucketize(x[0], x[1], false, right)}; },
                       one([=](const Arrays& in) { return places_of(in[1], in[0], right); }),
                       {},
                       [=](Tensor& o, const Tensors& x) { bucketize_out(o, x[0], x[1], false, right); }});
  r.refusals = {{"boundaries of two dims", [] { bucketize(ones({2}), ones({2, 2})); }, "must be 1 dimension"}};
  add_row(r);
  for (Sample& sample : s) std::swap(sample.inputs[0], sample.inputs[1]);
  s.push_back({{ascending({2, 3, 6}, 5), integers({2, 3, 4}, -4, 4)}});
  r = Row{"searchsorted", "Tensor", signed_types, long_type};
  r.refuses_others = false;
  for (const bool right : {false, true})
    r.cases.push_back({right ? "right" : "",
                       s,
                       [=](const Tensors& x) { return Tensors{searchsorted(x[0], x[1], false, right)}; },
                       one([=](const Arrays& in) { return places_of(in[0], in[1], right); }),
                       {},
                       [=](Tensor& o, const Tensors& x) { searchsorted_out(o, x[0], x[1], false, right); }});
  r.refusals = {
      {"shapes that do not fit",
       [] {
         searchsorted(ones({2, 3}), ones({3, 3}));
       },
       "the first N-1 dimensions"},
      {"a side that is none", [] { searchsorted(ones({2}), ones({2}), false, false, "up"); }, "'left' or 'right'"},
      {"opposites", [] { searchsorted(ones({2}), ones({2}), false, true, "left"); }, "can't be set to opposites"},
      {"a sorter of another size",
       [] { searchsorted(ones({2}), ones({2}), false, false, std::nullopt, zeros({3}, kLong)); },
       "must have the same size"}};
  add_row(r);
  for (const bool bucket : {false, true}) {
    r = Row{bucket ? "bucketize" : "searchsorted", "Scalar", signed_types, long_type};
    r.refuses_others = false;
    r.cases.push_back({"",
                       {{{ascending({9}, 2)}}},
                       [=](const Tensors& x) {
                         return Tensors{bucket ? bucketize(Scalar(1), x[0], false, true)
                                               : searchsorted(x[0], Scalar(1), false, true)};
                       },
                       one([](const Arrays& in) { return places_of(in[0], Array({}, 1), true); }),
                       {},
                       {}});
    add_row(r);
  }
}

void add_counts() {
  const auto histogram = [](const Array& a, double lo, double hi, std::int64_t bins) {
    if (lo == hi && a.numel()) {
      lo = *std::min_element(a.values.begin(), a.values.end());
      hi = *std::max_element(a.values.begin(), a.values.end());
    }
    if (lo == hi) --lo, ++hi;
    Array out({bins});
    for (const double v : a.values)
      if (v >= lo && v <= hi)
        ++out[std::min(bins - 1, static_cast<std::int64_t>((v - lo) / (hi - lo) * static_cast<double>(bins)))];
    return out;
  };
  Row r{"histc", "", kNumbers, same_type};
  // Values in the middle of bins: the borders depend on rounding.
  const std::vector<Sample> s = {
      {{integers({}, 0, 7)}}, {{integers({50}, 0, 7)}}, {{integers({3, 40}, 0, 7)}}, {{Array({0})}}};
  r.cases.push_back({"range",
                     s,
                     [](const Tensors& x) { return Tensors{histc(x[0], 4, Scalar(0), Scalar(4))}; },
                     one([=](const Arrays& in) { return histogram(in[0], 0, 4, 4); }),
                     {},
                     [](Tensor& o, const Tensors& x) { histc_out(o, x[0], 4, Scalar(0), Scalar(4)); }});
  r.cases.push_back({"of the data",
                     {{{integers({}, 3, 3)}}, {{Array({5}, {0, 8, 1, 3, 8})}}, {{Array({0})}}},
                     [](const Tensors& x) { return Tensors{histc(x[0], 8)}; },
                     one([=](const Arrays& in) { return histogram(in[0], 0, 0, 8); }),
                     {},
                     {}});
  r.refusals = {{"no bins", [] { histc(ones({2}), 0); }, "bins must be > 0"},
                {"a range the wrong way round", [] { histc(ones({2}), 3, 2, 1); }, "max must be larger than min"},
                {"an infinite range", [] { histc(full({2}, INFINITY), 3); }, "is not finite"}};
  add_row(r);
  r = Row{"bincount", "", kIntegers, long_type};
  r.cases.push_back({"",
                     {{{integers({50}, 0, 7)}}, {{Array({0})}}, {{integers({1}, 3, 3)}}},
                     [](const Tensors& x) { return Tensors{bincount(x[0], Tensor(), 3)}; },
                     one([](const Arrays& in) {
                       Array out({3});
                       for (const double v : in[0].values) {
                         const auto at = static_cast<std::size_t>(v);
                         if (at >= out.values.size()) out.values.resize(at + 1);
                         ++out.values[at];
                       }
                       out.shape = {static_cast<std::int64_t>(out.values.size())};
                       return out;
                     }),
                     {},
                     {}});
  r.refusals = {
      {"a negative element", [] { bincount(full({2}, -1, kLong)); }, "non-negative integral inputs"},
      {"two dims",
       [] {
         bincount(ones({2, 2}, kLong));
       },
       "1-d non-negative integral inputs"},
      {"a negative length", [] { bincount(ones({2}, kLong), Tensor(), -1); }, "minlength should be >= 0"},
      {"weights of another length", [] { bincount(ones({2}, kLong), ones({3})); }, "the same length as input"}};
  add_row(r);
}

Values differences(const Values& v) {
  Values out;
  for (std::size_t i = 1; i < v.size(); ++i) out.push_back(v[i] - v[i - 1]);
  return out;
}

void add_differences() {
  Row r{"diff", "", kNumbers, same_type};
  r.gradient = true;
  const std::vector<Sample> s = {{{uniform({5}, -9, 9)}},
                                 {{uniform({3, 4}, -9, 9)}},
                                 {{uniform({2, 3, 3}, -9, 9)}},
                                 {{uniform({2, 1}, -9, 9)}, false},
                                 {{Array({2, 0})}, false}};
  const DTypes exact = {kDouble, kFloat, kLong, kInt};
  for (const std::int64_t dim : {-1, 0}) {
    std::vector<Sample> used = s;
    for (Sample& sample : used) sample.only = exact;
    r.cases.push_back({dim ? "last" : "first",
                       used,
                       [=](const Tensors& x) { return Tensors{diff(x[0], 1, dim)}; },
                       one([=](const Arrays& in) { return lines(in[0], dim, differences); }),
                       {},
                       [=](Tensor& o, const Tensors& x) { diff_out(o, x[0], 1, dim); }});
    r.cases.push_back({dim ? "twice last" : "twice first",
                       used,
                       [=](const Tensors& x) { return Tensors{diff(x[0], 2, dim)}; },
                       one([=](const Arrays& in) {
                         return lines(in[0], dim, [](const Values& v) { return differences(differences(v)); });
                       }),
                       {},
                       {}});
  }
  r.dtypes = exact;
  r.refuses_others = false;
  r.tolerance = 64;
  r.absolute = 16;
  r.refusals = {{"a 0-d input", [] { diff(ones({})); }, "at least one-dimensional"},
                {"a negative order", [] { diff(ones({2}), -1); }, "order must be non-negative"}};
  add_row(r);
  const auto area = [](const Values& y, double dx) {
    double sum = 0;
    for (std::size_t i = 1; i < y.size(); ++i) sum += (y[i - 1] + y[i]) / 2 * dx;
    return sum;
  };
  const auto running = [=](const Values& y, double dx) {
    Values out;
    for (std::size_t i = 2; i <= y.size(); ++i)
      out.push_back(area(Values(y.begin(), y.begin() + static_cast<std::ptrdiff_t>(i)), dx));
    return out;
  };
  const std::vector<Sample> spaced = {{{uniform({5}, -2, 2)}},
                                      {{uniform({3, 4}, -2, 2)}},
                                      {{uniform({2, 1}, -2, 2)}, false},
                                      {{Array({2, 0})}, false},
                                      {{Array({0})}, false}};
  const auto float_row = [](const char* name, const char* overload) {
    Row row{name, overload, kFloats, same_type};
    row.gradient = true;
    row.refuses_others = false;
    row.tolerance = 32;
    row.absolute = 32;
    return row;
  };
  r = float_row("trapezoid", "dx");
  r.cases.push_back(
      {"",
       spaced,
       [](const Tensors& x) { return Tensors{trapezoid(x[0], Scalar(0.5))}; },
       one([=](const Arrays& in) { return reduce(in[0], {-1}, false, [&](const Values& v) { return area(v, 0.5); }); }),
       {},
       {}});
  add_row(r);
  r = float_row("cumulative_trapezoid", "dx");
  r.cases.push_back(
      {"",
       spaced,
       [](const Tensors& x) { return Tensors{cumulative_trapezoid(x[0], Scalar(0.5))}; },
       one([=](const Arrays& in) { return lines(in[0], -1, [&](const Values& v) { return running(v, 0.5); }); }),
       {},
       {}});
  add_row(r);
  // Evenly spaced points: the same as a spacing.
  const std::vector<Sample> points = {{{uniform({4}, -2, 2), Array({4}, {0, 0.5, 1, 1.5})}},
                                      {{uniform({3, 4}, -2, 2), Array({4}, {0, 0.5, 1, 1.5})}},
                                      {{Array({2, 0}), Array({0})}, false},
                                      {{Array({2, 0}), Array({2, 0})}, false}};
  r = float_row("trapezoid", "x");
  r.exact_layouts = false;
  r.cases.push_back(
      {"",
       points,
       [](const Tensors& x) { return Tensors{trapezoid(x[0], x[1])}; },
       one([=](const Arrays& in) { return reduce(in[0], {-1}, false, [&](const Values& v) { return area(v, 0.5); }); }),
       {},
       {}});
  r.refusals = {{"points of another number", [] { trapezoid(ones({3}), ones({4})); }, "one `x` value for each"}};
  add_row(r);
  r = float_row("cumulative_trapezoid", "x");
  r.cases.push_back(
      {"",
       points,
       [](const Tensors& x) { return Tensors{cumulative_trapezoid(x[0], x[1])}; },
       one([=](const Arrays& in) { return lines(in[0], -1, [&](const Values& v) { return running(v, 0.5); }); }),
       {},
       {}});
  add_row(r);
}

const bool added_search = [] {
  add_unique();
  add_membership();
  add_searches();
  add_counts();
  add_differences();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
