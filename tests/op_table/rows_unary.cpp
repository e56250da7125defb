// Functions of one tensor, element by element.
#include <numbers>

#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

constexpr double kPi = std::numbers::pi;

struct UnaryOptions {
  DTypes dtypes = kNumbers + kOnlyBool;
  ResultType result = float_type;
  double tolerance = 1, absolute = 1;
  bool gradient = true, second = true, special = true;
};

Row make(const char* name, double low, double high, const UnaryOptions& o, Case c) {
  c.samples = unary_samples(low, high, o.special);
  Row r{name, "", o.dtypes, o.result};
  r.gradient = o.gradient;
  r.second_gradient = o.second;
  r.tolerance = o.tolerance;
  r.absolute = o.absolute;
  r.cases.push_back(std::move(c));
  return r;
}

Reference unary_reference(double (*fn)(double)) {
  return [fn](const Arrays& in) { return Arrays{map(in, [fn](const Values& v) { return fn(v[0]); })}; };
}

// FUNCTION: only the function; INPLACE: also name_; ALL: also name_ and name_out.
#define FUNCTION(op, low, high, reference, ...)          \
  add_row(make(#op, low, high, UnaryOptions __VA_ARGS__, \
               Case{"", {}, [](const Tensors& x) { return Tensors{op(x[0])}; }, unary_reference(reference), {}, {}}))
#define INPLACE(op, low, high, reference, ...)                          \
  add_row(make(#op, low, high, UnaryOptions __VA_ARGS__,                \
               Case{"",                                                 \
                    {},                                                 \
                    [](const Tensors& x) { return Tensors{op(x[0])}; }, \
                    unary_reference(reference),                         \
                    [](Tensor& self, const Tensors&) { op##_(self); },  \
                    {}}))
#define UNARY_OUT(op, low, high, reference, ...)                        \
  add_row(make(#op, low, high, UnaryOptions __VA_ARGS__,                \
               Case{"",                                                 \
                    {},                                                 \
                    [](const Tensors& x) { return Tensors{op(x[0])}; }, \
                    unary_reference(reference),                         \
                    {},                                                 \
                    [](Tensor& out, const Tensors& x) { op##_out(out, x[0]); }}))
#define ALL(op, low, high, reference, ...)                              \
  add_row(make(#op, low, high, UnaryOptions __VA_ARGS__,                \
               Case{"",                                                 \
                    {},                                                 \
                    [](const Tensors& x) { return Tensors{op(x[0])}; }, \
                    unary_reference(reference),                         \
                    [](Tensor& self, const Tensors&) { op##_(self); },  \
                    [](Tensor& out, const Tensors& x) { op##_out(out, x[0]); }}))

double sign_of(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }  // 0 for NaN, as PyTorch

/// digamma by recurrence up to 12 and the asymptotic series; trigamma likewise.
double digamma_of(double x) {
  if (x == 0) return std::copysign(INFINITY, -x);
  if (std::isinf(x)) return x > 0 ? x : NAN;
  if (x < 0) {
    if (x == std::floor(x)) return NAN;
    return digamma_of(1 - x) - kPi / std::tan(kPi * x);
  }
  double shift = 0;
  for (; x < 12; ++x) shift -= 1 / x;
  const double y = 1 / (x * x);
  return shift + std::log(x) - 0.5 / x -
         y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y * (1.0 / 132)))));
}

double trigamma_of(double x) {
  double sum = 0;
  for (; x < 20; ++x) sum += 1 / (x * x);
  const double y = 1 / (x * x);
  return sum + 1 / x + y / 2 + y / x * (1.0 / 6 - y * (1.0 / 30 - y * (1.0 / 42 - y / 30)));
}

/// By the sum of the first terms and the integral and the half of the rest, with three terms after them.
double tetragamma_of(double x) {
  double sum = 0;
  for (; x < 30; ++x) sum -= 2 / (x * x * x);
  const double y = 1 / (x * x);
  return sum - y * (1 + 1 / x + y * (0.5 - y * (1.0 / 6 - y * (1.0 / 6 - y * 0.3))));
}

double pentagamma_of(double x) {
  double sum = 0;
  for (; x < 30; ++x) sum += 6 / (x * x * x * x);
  const double y = 1 / (x * x);
  return sum + y / x * (2 + 3 / x + y * (2 - y * (1 - y * (4.0 / 3))));
}

/// The inverse of erf by Newton steps on std::erf.
double erfinv_of(double y) {
  if (!(std::fabs(y) <= 1)) return NAN;
  if (std::fabs(y) == 1) return std::copysign(INFINITY, y);
  double x = 0;
  for (int i = 0; i < 200; ++i) {
    const double step = (std::erf(x) - y) * std::sqrt(kPi) / 2 * std::exp(x * x);
    x -= std::clamp(step, -0.5, 0.5);
    if (std::fabs(step) < 1e-16) break;
  }
  return x;
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

void add_unary_arithmetic() {
  const UnaryOptions keeps{kNumbers, same_type};
  const UnaryOptions keeps_zero{kNumbers, same_type, 1, 1, true, true, true};
  ALL(
      abs, 0.3, 3, +[](double x) { return std::fabs(x); }, (keeps));
  ALL(
      neg, -3, 3, +[](double x) { return -x; }, (keeps));
  ALL(
      square, -3, 3, +[](double x) { return x * x; }, (keeps));
  ALL(sign, 0.3, 3, sign_of, ({kAll, same_type}));
  ALL(sgn, 0.3, 3, sign_of, ({kAll, same_type}));
  ALL(
      ceil, 0.1, 0.9, +[](double x) { return std::ceil(x); }, (keeps));
  ALL(
      floor, 0.1, 0.9, +[](double x) { return std::floor(x); }, (keeps));
  ALL(
      trunc, 0.1, 0.9, +[](double x) { return std::trunc(x); }, (keeps));
  ALL(
      round, 0.6, 1.4, +[](double x) { return std::nearbyint(x); }, (keeps));
  ALL(
      frac, 0.1, 0.9, +[](double x) { return x - std::trunc(x); }, ({kFloats, same_type}));
  ALL(
      sqrt, 0.2, 4, +[](double x) { return std::sqrt(x); }, ({}));
  ALL(
      rsqrt, 0.2, 4, +[](double x) { return 1 / std::sqrt(x); }, ({}));
  ALL(
      reciprocal, 0.3, 4, +[](double x) { return 1 / x; }, ({}));
  FUNCTION(
      positive, -3, 3, +[](double x) { return x; }, (keeps));
}

void add_exponentials() {
  ALL(
      exp, -3, 3, +[](double x) { return std::exp(x); }, ({}));
  ALL(
      exp2, -3, 3, +[](double x) { return std::exp2(x); }, ({}));
  ALL(
      expm1, -3, 3, +[](double x) { return std::expm1(x); }, ({}));
  ALL(
      log, 0.2, 4, +[](double x) { return std::log(x); }, ({}));
  ALL(
      log2, 0.2, 4, +[](double x) { return std::log2(x); }, ({}));
  ALL(
      log10, 0.2, 4, +[](double x) { return std::log10(x); }, ({}));
  ALL(
      log1p, -0.5, 4, +[](double x) { return std::log1p(x); }, ({}));
}

void add_trigonometry() {
  ALL(
      sin, -3, 3, +[](double x) { return std::sin(x); }, ({}));
  ALL(
      cos, -3, 3, +[](double x) { return std::cos(x); }, ({}));
  ALL(
      tan, -1.2, 1.2, +[](double x) { return std::tan(x); }, ({kAll, float_type, 4, 1, true, true, false}));
  ALL(
      asin, -0.8, 0.8, +[](double x) { return std::asin(x); }, ({}));
  ALL(
      acos, -0.8, 0.8, +[](double x) { return std::acos(x); }, ({}));
  ALL(
      atan, -3, 3, +[](double x) { return std::atan(x); }, ({}));
  ALL(
      sinh, -3, 3, +[](double x) { return std::sinh(x); }, ({}));
  ALL(
      cosh, -3, 3, +[](double x) { return std::cosh(x); }, ({}));
  ALL(
      tanh, -3, 3, +[](double x) { return std::tanh(x); }, ({}));
  ALL(
      asinh, -3, 3, +[](double x) { return std::asinh(x); }, ({}));
  ALL(
      acosh, 1.3, 4, +[](double x) { return std::acosh(x); }, ({}));
  ALL(
      atanh, -0.7, 0.7, +[](double x) { return std::atanh(x); }, ({}));
  ALL(
      sinc, 0.2, 3, +[](double x) { return x == 0 ? 1 : std::sin(kPi * x) / (kPi * x); },
      ({kAll, float_type, 4, 4, true, true, false}));
  ALL(
      deg2rad, -180, 180, +[](double x) { return x * kPi / 180; }, ({}));
  ALL(
      rad2deg, -3, 3, +[](double x) { return x * 180 / kPi; }, ({kAll, float_type, 1, 1, true, true, false}));
}

void add_special_functions() {
  ALL(
      erf, -2, 2, +[](double x) { return std::erf(x); }, ({}));
  ALL(
      erfc, -2, 2, +[](double x) { return std::erfc(x); }, ({kAll, float_type, 4}));
  ALL(erfinv, -0.8, 0.8, erfinv_of, ({kAll, float_type, 4}));
  ALL(
      lgamma, 0.3, 5, +[](double x) { return std::lgamma(x); }, ({kAll, float_type, 4, 4}));
  ALL(digamma, 0.3, 5, digamma_of, ({kAll, float_type, 4, 4, true, true, false}));
  ALL(sigmoid, -3, 3, logistic, ({}));
}

void add_tests() {
  const UnaryOptions test{kAll, bool_type, 1, 1, false};
  FUNCTION(
      isnan, -3, 3, +[](double x) -> double { return std::isnan(x); }, (test));
  FUNCTION(
      isinf, -3, 3, +[](double x) -> double { return std::isinf(x); }, (test));
  FUNCTION(
      isfinite, -3, 3, +[](double x) -> double { return std::isfinite(x); }, (test));
  UNARY_OUT(
      isposinf, -3, 3, +[](double x) -> double { return std::isinf(x) && x > 0; }, (test));
  UNARY_OUT(
      isneginf, -3, 3, +[](double x) -> double { return std::isinf(x) && x < 0; }, (test));
  UNARY_OUT(
      signbit, -3, 3, +[](double x) -> double { return std::signbit(x); }, (test));
  ALL(
      logical_not, -1.4, 1.4, +[](double x) -> double { return x == 0; }, (test));
}

/// unary_samples for functions whose poles at 0 and below the reference does not know: bools and integers are ones.
std::vector<Sample> positive_samples(double low) {
  std::vector<Sample> out = unary_samples(low, 5, false);
  for (Sample& s : out)
    if (s.only.empty()) s.only = kFloats;
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{2, 3}}) {
    Array whole = uniform(shape, 1, 5, 3);
    for (double& v : whole.values) v = std::floor(v);
    out.push_back({{whole}, false, kIntegers + kOnlyBool});
  }
  return out;
}

void add_unary_with_parameters() {
  {
    Row r{"polygamma", "", kAll, float_type};
    r.gradient = true;
    r.tolerance = r.absolute = 4;
    r.cases.push_back({"n=0",
                       unary_samples(0.3, 5, false),
                       [](const Tensors& x) { return Tensors{polygamma(0, x[0])}; },
                       unary_reference(digamma_of),
                       {},
                       {}});
    r.cases.push_back({"n=2",
                       {{{uniform({40}, 0.4, 5)}}},
                       [](const Tensors& x) { return Tensors{polygamma(2, x[0])}; },
                       unary_reference(tetragamma_of),
                       {},
                       {}});
    add_row(r);
  }
  {
    Row r{"polygamma_order", "", kAll, float_type};
    r.gradient = r.second_gradient = true;
    r.tolerance = r.absolute = 8;
    const auto order = [&](const char* label, std::int64_t n, double (*reference)(double)) {
      r.cases.push_back({label,
                         positive_samples(0.4),
                         [n](const Tensors& x) { return Tensors{polygamma_order(x[0], n)}; },
                         unary_reference(reference),
                         {},
                         {}});
    };
    order("n=1", 1, trigamma_of);
    order("n=2", 2, tetragamma_of);
    order("n=3", 3, pentagamma_of);
    r.refusals = {{"a negative order", [] { polygamma(-1, ones({2})); }, "negative n, got -1"},
                  {"order 0", [] { polygamma_order(ones({2}), 0); }, "n of at least 1, got 0"}};
    add_row(r);
  }
  {
    Row r{"trigamma", "", kAll, float_type};
    r.tolerance = r.absolute = 4;
    r.cases.push_back({"",
                       positive_samples(0.3),
                       [](const Tensors& x) { return Tensors{trigamma(x[0])}; },
                       unary_reference(trigamma_of),
                       {},
                       {}});
    r.gradient = true;
    add_row(r);
  }
  {
    Row r{"logit", "", kAll, float_type};
    r.gradient = true;
    r.tolerance = r.absolute = 4;
    r.cases.push_back({"", unary_samples(0.2, 0.8), [](const Tensors& x) { return Tensors{logit(x[0])}; },
                       unary_reference(+[](double x) { return std::log(x / (1 - x)); }),
                       [](Tensor& self, const Tensors&) { logit_(self); },
                       [](Tensor& out, const Tensors& x) { logit_out(out, x[0]); }});
    r.cases.push_back({"eps", unary_samples(0.3, 0.7), [](const Tensors& x) { return Tensors{logit(x[0], 0.25)}; },
                       unary_reference(+[](double x) {
                         const double c = std::isnan(x) ? x : std::clamp(x, 0.25, 0.75);
                         return std::log(c / (1 - c));
                       }),
                       [](Tensor& self, const Tensors&) { logit_(self, 0.25); },
                       [](Tensor& out, const Tensors& x) { logit_out(out, x[0], 0.25); }});
    add_row(r);
  }
  {
    Row r{"bitwise_not", "", kIntegers + kOnlyBool, same_type};
    std::vector<Sample> whole = unary_samples(-9, 9, false), bools = whole;
    for (Sample& s : whole)
      if (s.only.empty()) s.only = kIntegers;
    for (Sample& s : bools) {
      s.only = kOnlyBool;
      for (double& v : s.inputs[0].array.values) v = v > 0;
    }
    const auto add = [&](const char* label, const std::vector<Sample>& samples, double (*reference)(double)) {
      r.cases.push_back({label, samples, [](const Tensors& x) { return Tensors{bitwise_not(x[0])}; },
                         unary_reference(reference), [](Tensor& self, const Tensors&) { bitwise_not_(self); },
                         [](Tensor& out, const Tensors& x) { bitwise_not_out(out, x[0]); }});
    };
    add(
        "", whole, +[](double x) { return -x - 1; });
    add(
        "bool", bools, +[](double x) -> double { return x == 0; });
    r.refusals = {{"floats", [] { bitwise_not(ones({2})); }, "bitwise_not: expected an integer or bool tensor"}};
    add_row(r);
  }
  {
    Row r{"nan_to_num", "", kAll, same_type};
    r.gradient = true;
    r.cases.push_back(
        {"", unary_samples(-3, 3), [](const Tensors& x) { return Tensors{nan_to_num(x[0], 1.5, 7.0, -9.0)}; },
         unary_reference(+[](double x) { return std::isnan(x)   ? 1.5
                                                : std::isinf(x) ? (x > 0 ? 7.0 : -9.0)
                                                                : x; }),
         [](Tensor& self, const Tensors&) { nan_to_num_(self, 1.5, 7.0, -9.0); },
         [](Tensor& out, const Tensors& x) { nan_to_num_out(out, x[0], 1.5, 7.0, -9.0); }});
    add_row(r);
  }
  {
    Row r{"round", "decimals", kFloats + kIntegers, same_type};
    r.gradient = true;
    r.tolerance = 2;
    Sample exact{{Array({5}, {1.25, -2.75, 10.5, 0.375, 100.0})}, false};
    r.cases.push_back({"",
                       {exact, {{Array({2}, {0.31, 1.13})}, true, kFloats}, {{Array({2, 0})}, false}},
                       [](const Tensors& x) { return Tensors{round(x[0], 1)}; },
                       unary_reference(+[](double x) { return std::nearbyint(x * 10) / 10; }),
                       [](Tensor& self, const Tensors&) { round_(self, 1); },
                       [](Tensor& out, const Tensors& x) { round_out(out, x[0], 1); }});
    r.refusals = {{"bools", [] { round(ones({2}, kBool), 1); }, "round"}};
    add_row(r);
  }
}

const bool added_unary = [] {
  add_unary_arithmetic();
  add_exponentials();
  add_trigonometry();
  add_special_functions();
  add_tests();
  add_unary_with_parameters();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
