// Random numbers and dropout. A row's values are truths about the numbers: their range, their moments, and that the
// same seed gives the same numbers. The numbers themselves come last; they have no reference, but must be the same bits
// on the host and on a queue.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

Tensor one_if(bool on, const Tensor& like) { return full({}, on, like.options().dtype(kBool)); }

/// Makes numbers of dtype, device and (for fillers) shape of like.
using Draw = std::function<Tensor(const Tensor& like)>;
/// What must hold of many numbers.
using Truth = std::function<bool(const Values&)>;

double sample_mean(const Values& v) { return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size()); }
double sample_variance(const Values& v) {
  const double m = sample_mean(v);
  double s = 0;
  for (const double x : v) s += (x - m) * (x - m);
  return s / static_cast<double>(v.size());
}
/// Mean and variance within six standard errors (kurtosis bounded by that of an exponential), the dtype's rounding
/// added.
Truth moments(double mean, double var) {
  return [=](const Values& v) {
    if (v.size() < 100) return true;
    const auto n = static_cast<double>(v.size());
    const double error = 6 * std::sqrt(var / n);
    return std::fabs(sample_mean(v) - mean) <= error + 0.01 * std::fabs(mean) &&
           std::fabs(sample_variance(v) - var) <= 6 * var * std::sqrt(8 / n) + 0.02 * var;
  };
}
Truth within(double low, double high, bool whole = false) {
  return [=](const Values& v) {
    return std::all_of(v.begin(), v.end(),
                       [=](double x) { return x >= low && x <= high && (!whole || x == std::floor(x)); });
  };
}
Truth both(Truth a, Truth b) {
  return [=](const Values& v) { return a(v) && b(v); };
}

/// A row of truths: the number's dtype, the truths themselves, the same numbers from the same seed, others from
/// another.
Row random_row(const char* name, const char* overload, const Draw& draw, const Truth& truth, DTypes dtypes = kFloats) {
  Row r{name, overload, std::move(dtypes), bool_type};
  r.refuses_others = false;
  r.cases = {
      {"",
       {{{uniform({}, 0, 1)}}, {{uniform({3, 5}, 0, 1)}}, {{uniform({0, 3}, 0, 1)}}, {{uniform({70, 67}, 0, 1)}}},
       [=](const Tensors& x) {
         manual_seed(7);
         const Tensor first = draw(x[0]), next = draw(x[0]);
         manual_seed(7);
         const Tensor again = draw(x[0]);
         const bool fresh = first.numel() < 100 || !equal(first, next);
         return Tensors{one_if(truth(to_array(first).values), x[0]), one_if(equal(first, again), x[0]),
                        one_if(fresh, x[0]), first};
       },
       [](const Arrays&) {
         const Array yes({}, Values{1});
         return Arrays{yes, yes, yes};
       },
       {},
       {}}};
  return r;
}

using Fill = std::function<void(Tensor&)>;

Draw filler(const Fill& fill) {
  return [=](const Tensor& like) {
    Tensor t = zeros_like(like);
    fill(t);
    return t;
  };
}

void add_fillers() {
  Row r = random_row("uniform_", "", filler([](Tensor& t) { t.uniform_(-2, 4); }), both(within(-2, 4), moments(1, 3)));
  r.refusals = {{"an empty range", [] { zeros({2}).uniform_(1, 0); }, "found from=1 > to=0"},
                {"integers", [] { zeros({2}, kLong).uniform_(); }, "expected a floating dtype"}};
  add_row(r);
  r = random_row("normal_", "", filler([](Tensor& t) { t.normal_(2, 3); }), moments(2, 9));
  r.refusals = {{"a negative deviation", [] { zeros({2}).normal_(0, -1); }, "std >= 0.0"}};
  add_row(r);
  r = random_row("log_normal_", "", filler([](Tensor& t) { t.log_normal_(0, 0.25); }),
                 both(within(0, 100), moments(std::exp(0.03125), (std::exp(0.0625) - 1) * std::exp(0.0625))));
  r.refusals = {{"no deviation", [] { zeros({2}).log_normal_(0, 0); }, "std > 0.0"}};
  add_row(r);
  r = random_row("exponential_", "", filler([](Tensor& t) { t.exponential_(2); }),
                 both(within(0, 1000), moments(0.5, 0.25)));
  r.refusals = {{"no rate", [] { zeros({2}).exponential_(0); }, "lambda > 0.0"}};
  add_row(r);
  // No moments: the quartiles are median -+ sigma.
  r = random_row("cauchy_", "", filler([](Tensor& t) { t.cauchy_(1, 2); }), [](const Values& v) {
    if (v.size() < 100) return true;
    auto below = [&](double q) {
      return static_cast<double>(std::count_if(v.begin(), v.end(), [q](double x) { return x < q; })) /
             static_cast<double>(v.size());
    };
    return std::fabs(below(-1) - 0.25) < 0.05 && std::fabs(below(1) - 0.5) < 0.05 && std::fabs(below(3) - 0.75) < 0.05;
  });
  r.refusals = {{"no width", [] { zeros({2}).cauchy_(0, 0); }, "sigma > 0.0"}};
  add_row(r);
  r = random_row("geometric_", "", filler([](Tensor& t) { t.geometric_(0.5); }),
                 both(within(1, 1000, true), moments(2, 2)), kFloats + kIntegers);
  r.refusals = {{"p of 1", [] { zeros({2}).geometric_(1); }, "in (0, 1)"}};
  add_row(r);
  r = random_row(
      "random_", "", filler([](Tensor& t) { t.random_(); }),
      [](const Values& v) {
        return within(0, 9.3e18, true)(v) && (v.size() < 100 || *std::max_element(v.begin(), v.end()) >= 1);
      },
      kAll);
  add_row(r);
  r = random_row("random_", "to", filler([](Tensor& t) { t.random_(100); }),
                 both(within(0, 99, true), moments(49.5, 833.25)), kNumbers);
  r.refusals = {{"nothing below 0", [] { zeros({2}).random_(0); }, "from=0 >= to=0"},
                {"more than the dtype holds", [] { zeros({2}, kChar).random_(1000); }, "out of bounds for int8"}};
  add_row(r);
  r = random_row("random_", "from", filler([](Tensor& t) { t.random_(3, std::optional<std::int64_t>(53)); }),
                 both(within(3, 52, true), moments(27.5, 208.25)), kNumbers);
  r.refusals = {{"an empty range", [] { zeros({2}).random_(3, std::optional<std::int64_t>(3)); }, "from=3 >= to=3"}};
  add_row(r);
  r = random_row("bernoulli_", "float", filler([](Tensor& t) { t.bernoulli_(0.25); }),
                 both(within(0, 1, true), moments(0.25, 0.1875)), kAll);
  r.refusals = {{"p above 1", [] { zeros({2}).bernoulli_(1.5); }, "in [0, 1]"}};
  add_row(r);
  r = random_row("bernoulli_", "Tensor",
                 filler([](Tensor& t) { t.bernoulli_(full({}, 0.25, t.options().dtype(kFloat))); }),
                 both(within(0, 1, true), moments(0.25, 0.1875)), kAll);
  r.refusals = {{"integers as p", [] { zeros({2}).bernoulli_(ones({2}, kLong)); }, "floating dtype"}};
  add_row(r);
}

void add_random_creation() {
  const Truth unit = both(within(0, 1), moments(0.5, 1.0 / 12)), standard = moments(0, 1);
  // A generator of its own: the seed belongs to it.
  auto with_generator = [](const char* name, const char* overload,
                           const std::function<Tensor(const Tensor&, Generator)>& make, const Truth& truth,
                           DTypes dtypes = kFloats) {
    Row r = random_row(
        name, overload, [=](const Tensor& like) { return make(like, default_generator()); }, truth, dtypes);
    Case own = r.cases[0];
    own.name = "its own generator";
    own.call = [=](const Tensors& x) {
      manual_seed(1);
      const Tensor first = make(x[0], Generator(5));
      manual_seed(2);
      const Tensor again = make(x[0], Generator(5)), other = make(x[0], Generator(6));
      return Tensors{one_if(truth(to_array(first).values), x[0]), one_if(equal(first, again), x[0]),
                     one_if(first.numel() < 100 || !equal(first, other), x[0]), first};
    };
    r.cases.push_back(own);
    add_row(r);
  };
  add_row(random_row(
      "rand", "", [](const Tensor& x) { return rand(x.sizes(), x.options()); }, unit));
  with_generator(
      "rand", "generator", [](const Tensor& x, Generator g) { return rand(x.sizes(), g, x.options()); }, unit);
  add_row(random_row(
      "randn", "", [](const Tensor& x) { return randn(x.sizes(), x.options()); }, standard));
  with_generator(
      "randn", "generator", [](const Tensor& x, Generator g) { return randn(x.sizes(), g, x.options()); }, standard);
  add_row(random_row(
      "rand_like", "", [](const Tensor& x) { return rand_like(x); }, unit));
  add_row(random_row(
      "randn_like", "", [](const Tensor& x) { return randn_like(x); }, standard));
  const Truth to_50 = both(within(0, 49, true), moments(24.5, 208.25)),
              from_3 = both(within(3, 52, true), moments(27.5, 208.25));
  Row r = random_row(
      "randint", "", [](const Tensor& x) { return randint(50, x.sizes(), x.options()); }, to_50, kNumbers);
  r.refusals = {{"an empty range", [] { randint(0, {2}); }, "from=0 >= to=0"}};
  add_row(r);
  with_generator(
      "randint", "generator", [](const Tensor& x, Generator g) { return randint(50, x.sizes(), g, x.options()); },
      to_50, kNumbers);
  r = random_row(
      "randint", "low", [](const Tensor& x) { return randint(3, 53, x.sizes(), x.options()); }, from_3, kNumbers);
  r.refusals = {{"an empty range", [] { randint(3, 2, {2}); }, "from=3 >= to=2"}};
  add_row(r);
  with_generator(
      "randint", "low_generator",
      [](const Tensor& x, Generator g) { return randint(3, 53, x.sizes(), g, x.options()); }, from_3, kNumbers);
  add_row(random_row(
      "randint_like", "", [](const Tensor& x) { return randint_like(x, 50); }, to_50, kNumbers));
  add_row(random_row(
      "randint_like", "low", [](const Tensor& x) { return randint_like(x, 3, 53); }, from_3, kNumbers));
  const Truth each_once = [](const Values& v) {
    Values sorted = v;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < v.size(); ++i)
      if (sorted[i] != static_cast<double>(i)) return false;
    return v.size() < 100 || v != sorted;
  };
  const DTypes wide = {kInt, kLong, kFloat, kDouble};
  r = random_row(
      "randperm", "", [](const Tensor& x) { return randperm(x.numel(), x.options()); }, each_once, wide);
  r.refusals = {{"a negative count", [] { randperm(-1); }, "non-negative"},
                {"more than the dtype holds", [] { randperm(300, kByte); }, "too large for uint8"}};
  add_row(r);
  with_generator(
      "randperm", "generator", [](const Tensor& x, Generator g) { return randperm(x.numel(), g, x.options()); },
      each_once, wide);
}

void add_distributions() {
  const Truth quarter = both(within(0, 1, true), moments(0.25, 0.1875));
  Row r = random_row(
      "bernoulli", "", [](const Tensor& x) { return bernoulli(full_like(x, 0.25)); }, quarter);
  r.refusals = {{"integers", [] { bernoulli(ones({2}, kLong)); }, "floating dtype"}};
  add_row(r);
  add_row(random_row(
      "bernoulli", "p", [](const Tensor& x) { return bernoulli(x, 0.25); }, quarter, kAll));
  const Truth two_three = moments(2, 9);
  r = random_row(
      "normal", "float_float", [](const Tensor& x) { return normal(2, 3, x.sizes(), std::nullopt, x.options()); },
      two_three);
  r.refusals = {{"a negative deviation", [] { normal(0, -1, {2}); }, "std >= 0.0"}};
  add_row(r);
  add_row(random_row(
      "normal", "Tensor_float", [](const Tensor& x) { return normal(full_like(x, 2), 3); }, two_three));
  add_row(random_row(
      "normal", "float_Tensor", [](const Tensor& x) { return normal(2, full_like(x, 3)); }, two_three));
  add_row(random_row(
      "normal", "Tensor_Tensor", [](const Tensor& x) { return normal(full_like(x, 2), full({}, 3, x.options())); },
      two_three));

  // Weights 1, 0, 3: index 2 three times as often as 0, never 1.
  r = Row{"multinomial", "", kFloats, bool_type};
  r.refuses_others = false;
  r.cases = {{"with replacement",
              {{{Array({3}, {1, 0, 3})}}, {{Array({2, 3}, {1, 0, 3, 0, 2, 0})}}},
              [](const Tensors& x) {
                manual_seed(7);
                const Tensor drawn = multinomial(x[0], 1000, true);
                manual_seed(7);
                const bool same = equal(drawn, multinomial(x[0], 1000, true));
                // Each count within six standard deviations; what has no weight never comes.
                const Array a = to_array(drawn), w = to_array(x[0]);
                bool right = a.shape.back() == 1000 && drawn.dtype() == kLong;
                for (std::int64_t row = 0; row < w.numel() / 3; ++row) {
                  const double total = w[row * 3] + w[row * 3 + 1] + w[row * 3 + 2];
                  for (std::int64_t k = 0; k < 3; ++k) {
                    const auto count = static_cast<double>(
                        std::count(a.values.begin() + row * 1000, a.values.begin() + row * 1000 + 1000, k));
                    const double share = w[row * 3 + k] / total;
                    right = right && std::fabs(count - 1000 * share) <= 6 * std::sqrt(1000 * share * (1 - share));
                  }
                }
                return Tensors{one_if(right, x[0]), one_if(same, x[0]), drawn};
              },
              [](const Arrays&) {
                return Arrays{Array({}, 1), Array({}, 1)};
              },
              {},
              {}},
             {"without replacement",
              {{{uniform({41}, 0.5, 1)}}, {{uniform({3, 41}, 0.5, 1)}}},
              [](const Tensors& x) {
                manual_seed(7);
                const Tensor drawn = multinomial(x[0], 41);
                const Array a = to_array(drawn);
                bool once = true;
                for (std::int64_t row = 0; row < a.numel() / 41; ++row) {
                  Values v(a.values.begin() + row * 41, a.values.begin() + row * 41 + 41);
                  std::sort(v.begin(), v.end());
                  for (std::size_t i = 0; i < 41; ++i) once = once && v[i] == static_cast<double>(i);
                }
                return Tensors{one_if(once, x[0]), drawn};
              },
              [](const Arrays&) { return Arrays{Array({}, 1)}; },
              {},
              {}}};
  for (Case& c : r.cases)
    for (Sample& s : c.samples) s.gradient = false;
  r.refusals = {{"more than there are", [] { multinomial(ones({3}), 4); }, "without replacement, got 4 of 3"},
                {"no samples", [] { multinomial(ones({3}), 0); }, "n_sample <= 0"},
                {"three dims",
                 [] {
                   multinomial(ones({1, 2, 3}), 1);
                 },
                 "1 or 2 dim"},
                {"a negative weight", [] { multinomial(full({3}, -1.0), 1); }, "multinomial"}};
  add_row(r);
}

/// Whether y is what becomes of x when it is dropped (or kept).
using Dropped = std::function<bool(double x, double y)>;
using Drop = std::function<Tensor(const Tensor&)>;

void add_dropout(const char* name, const Drop& drop, const std::function<void(Tensor&)>& inplace,
                 const Dropped& is_dropped, const Dropped& is_kept, bool channels, bool schema_inplace,
                 std::vector<Refusal> refusals) {
  Row r{name, "", kFloats, bool_type};
  r.gradient = true;
  r.refuses_others = false;
  auto call = [=](const Tensors& x) {
    manual_seed(11);
    const Tensor y = drop(x[0]);
    const Array a = to_array(x[0]), b = to_array(y);
    std::int64_t gone = 0, wrong = 0, mixed = 0;
    const std::int64_t inner = channels ? a.numel() / std::max<std::int64_t>(a.shape[0] * a.shape[1], 1) : 1;
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      const bool out = is_dropped(a[i], b[i]), in = is_kept(a[i], b[i]);
      gone += out;
      wrong += !out && !in;
      mixed += out != is_dropped(a[i / inner * inner], b[i / inner * inner]);
    }
    const std::int64_t draws = a.numel() / std::max<std::int64_t>(inner, 1);
    const double share = static_cast<double>(gone) / static_cast<double>(std::max<std::int64_t>(a.numel(), 1));
    const bool fair = draws < 300 || std::fabs(share - 0.25) < 6 * std::sqrt(0.1875 / static_cast<double>(draws));
    return Tensors{one_if(wrong == 0 && mixed == 0, x[0]), one_if(fair, x[0]), y};
  };
  const std::vector<Shape> shapes = {{2, 3}, {2, 3, 2}, {0, 3}, {40, 33, 3}};
  std::vector<Sample> s;
  for (std::size_t i = 0; i < shapes.size(); ++i)
    s.push_back({{uniform(shapes[i], 0.5, 3, static_cast<unsigned>(i))}, i < 2});
  r.cases = {{"", s, call, [](const Arrays&) { return Arrays{Array({}, 1), Array({}, 1)}; }, {}, {}}};
  if (schema_inplace) {
    // The in-place form draws the same numbers. It has nothing to do for an empty tensor.
    std::vector<Sample> filled = {s[0], s[1], s[3]};
    r.cases.push_back({"in place",
                       filled,
                       [=](const Tensors& x) {
                         manual_seed(11);
                         return Tensors{drop(x[0])};
                       },
                       [](const Arrays&) { return Arrays{}; },
                       [=](Tensor& self, const Tensors&) {
                         manual_seed(11);
                         inplace(self);
                       },
                       {}});
  }
  r.refusals = std::move(refusals);
  add_row(r);
}

bool near(double a, double b) { return std::fabs(a - b) <= 0.02 * std::fabs(b) + 1e-6; }

void add_dropouts() {
  const Dropped zeroed = [](double, double y) { return y == 0; },
                scaled = [](double x, double y) { return near(y, x / 0.75); };
  auto range = [](const std::function<void()>& call) {
    return std::vector<Refusal>{{"p above 1", call, "between 0 and 1, but got 1.5"}};
  };
  const auto plain = [](Tensor& t) { dropout_(t, 0.25, true); };
  const auto feature = [](Tensor& t) { feature_dropout_(t, 0.25, true); };
  auto by = [](const std::function<void(Tensor&)>& fill) {
    return [=](const Tensor& x) {
      Tensor y = x * 1;
      fill(y);
      return y;
    };
  };
  add_dropout(
      "dropout", [](const Tensor& x) { return dropout(x, 0.25, true); }, plain, zeroed, scaled, false, false,
      range([] { dropout(ones({2}), 1.5, true); }));
  add_dropout("dropout_", by(plain), plain, zeroed, scaled, false, false, range([] {
                Tensor t = ones({2});
                dropout_(t, 1.5, true);
              }));
  std::vector<Refusal> vector = range([] { feature_dropout(ones({2, 2}), 1.5, true); });
  vector.push_back({"a vector", [] { feature_dropout(ones({2}), 0.5, true); }, "at least 2 dimensions"});
  add_dropout(
      "feature_dropout", [](const Tensor& x) { return feature_dropout(x, 0.25, true); }, feature, zeroed, scaled, true,
      false, vector);
  add_dropout("feature_dropout_", by(feature), feature, zeroed, scaled, true, false, range([] {
                Tensor t = ones({2, 2});
                feature_dropout_(t, 1.5, true);
              }));
  // Dropped elements become -1.758... a + shift, kept ones a x + shift.
  const double alpha = 1.7580993408473766, a = 1 / std::sqrt((alpha * alpha * 0.25 + 1) * 0.75),
               shift = alpha * a * 0.25;
  const Dropped limited = [=](double, double y) { return near(y, shift - alpha * a); };
  const Dropped mapped = [=](double x, double y) { return near(y, a * x + shift); };
  const auto alpha_in = [](Tensor& t) { alpha_dropout_(t, 0.25, true); };
  const auto feature_in = [](Tensor& t) { feature_alpha_dropout_(t, 0.25, true); };
  add_dropout(
      "alpha_dropout", [](const Tensor& x) { return alpha_dropout(x, 0.25, true); }, alpha_in, limited, mapped, false,
      true, range([] { alpha_dropout(ones({2}), 1.5, true); }));
  add_dropout(
      "feature_alpha_dropout", [](const Tensor& x) { return feature_alpha_dropout(x, 0.25, true); }, feature_in,
      limited, mapped, true, true, range([] {
        feature_alpha_dropout(ones({2, 2}), 1.5, true);
      }));

  Row r = gradient_row_of("rrelu", "", kFloats);
  r.refuses_others = false;
  r.cases = {case_of(
      "evaluation", unary_samples(-3, 3), [](const Tensors& x) { return rrelu(x[0], 0.25, 0.75); },
      [](const Arrays& in) { return map(in, [](const Values& v) { return v[0] <= 0 ? v[0] / 2 : v[0]; }); })};
  r.cases[0].inplace = [](Tensor& self, const Tensors&) { rrelu_(self, 0.25, 0.75); };
  r.cases.push_back({"training",
                     {{{uniform({2, 3}, -3, -0.5)}, true, {kDouble}}, {{uniform({41, 3}, -3, -0.5)}, false}},
                     [](const Tensors& x) {
                       manual_seed(11);
                       const Tensor y = rrelu(x[0], 0.25, 0.75, true);
                       const Tensor slope = y.detach() / x[0].detach();
                       return Tensors{((slope - 0.5).abs() <= 0.255).to(x[0].dtype()), y};
                     },
                     [](const Arrays& in) { return Arrays{Array(in[0].shape, 1)}; },
                     {},
                     {}});
  r.refusals = {{"bounds in the wrong order", [] { rrelu(ones({2}), 0.5, 0.25); }, "less than or equal to the upper"},
                {"integers", [] { rrelu(ones({2}, kLong)); }, "not implemented for 'Long'"}};
  add_row(r);
}

const bool added_random = [] {
  add_fillers();
  add_random_creation();
  add_distributions();
  add_dropouts();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
