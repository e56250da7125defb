// Functions of two tensors, or a tensor and a number: arithmetic, comparison, logic, bits, powers.
#include <numeric>
#include <optional>

#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

using Fn2 = double (*)(double, double);
using Binary = std::function<Tensor(const Tensor&, const Tensor&)>;
using BinaryIn = std::function<void(Tensor&, const Tensor&)>;
using BinaryOut = std::function<void(Tensor&, const Tensor&, const Tensor&)>;

Reference pairs(Fn2 fn) {
  return [fn](const Arrays& in) { return Arrays{map(in, [fn](const Values& v) { return fn(v[0], v[1]); })}; };
}

Case two(std::vector<Sample> samples, Binary call, Fn2 reference, BinaryIn in = {}, BinaryOut out = {}) {
  Case c{"", std::move(samples), [call](const Tensors& x) { return Tensors{call(x[0], x[1])}; }, pairs(reference), {},
         {}};
  if (in) c.inplace = [in](Tensor& self, const Tensors& x) { in(self, x[1]); };
  if (out) c.out = [out](Tensor& o, const Tensors& x) { out(o, x[0], x[1]); };
  return c;
}

/// One operand is the number `s`.
Case with_number(const char* name, std::vector<Sample> samples, std::function<Tensor(const Tensor&)> call, double s,
                 Fn2 reference, std::function<void(Tensor&)> in = {},
                 std::function<void(Tensor&, const Tensor&)> out = {}) {
  Case c{
      name,
      std::move(samples),
      [call](const Tensors& x) { return Tensors{call(x[0])}; },
      [reference, s](const Arrays& a) { return Arrays{map(a, [&](const Values& v) { return reference(v[0], s); })}; },
      {},
      {}};
  if (in) c.inplace = [in](Tensor& self, const Tensors&) { in(self); };
  if (out) c.out = [out](Tensor& o, const Tensors& x) { out(o, x[0]); };
  return c;
}

#define F2(body) +[]([[maybe_unused]] double a, [[maybe_unused]] double b) -> double { return body; }
#define CALL(op) [](const Tensor& a, const Tensor& b) { return op(a, b); }
#define IN(op) [](Tensor& self, const Tensor& b) { op##_(self, b); }
#define OUT(op) [](Tensor& o, const Tensor& a, const Tensor& b) { op##_out(o, a, b); }
#define CALL_S(op, s) [](const Tensor& a) { return op(a, s); }
#define IN_S(op, s) [](Tensor& self) { op##_(self, s); }
#define OUT_S(op, s) [](Tensor& o, const Tensor& a) { op##_out(o, a, s); }

Row row(const char* name, const char* overload, DTypes dtypes, ResultType result, bool gradient, Case c) {
  Row r{name, overload, std::move(dtypes), std::move(result)};
  r.gradient = gradient;
  r.cases.push_back(std::move(c));
  r.refuses_others = r.overload != "Scalar";  // bool with a number gives int64
  return r;
}

Fn2 kAdd = F2(a + b), kSub = F2(a - b), kMul = F2(a * b), kDiv = F2(a / b);
double floor_div(double a, double b) {
  if (b == 0) return a / b;
  double m = std::fmod(a, b), d = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) d -= 1;
  if (d == 0) return std::copysign(0.0, a / b);
  const double f = std::floor(d);
  return d - f > 0.5 ? f + 1 : f;
}
double remainder_of(double a, double b) {
  const double m = std::fmod(a, b);
  return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}

void add_arithmetic() {
  const auto general = binary_samples(-3, 3, -3, 3), positive = binary_samples(-3, 3, 0.6, 3, false);
  Row r = row("add", "", kAll, same_type, true, two(general, CALL(add), kAdd, IN(add), OUT(add)));
  r.cases.push_back(two(
      binary_samples(-3, 3, -3, 3, false), [](const Tensor& a, const Tensor& b) { return add(a, b, 2); }, F2(a + 2 * b),
      [](Tensor& s, const Tensor& b) { add_(s, b, 2); },
      [](Tensor& o, const Tensor& a, const Tensor& b) { add_out(o, a, b, 2); }));
  r.refusals = {
      {"shapes that do not broadcast", [] { add(ones({2}), ones({3})); }, "add"},
      {"a float alpha for integers", [] { add(ones({2}, kLong), ones({2}, kLong), 0.5); }, "alpha must not be"},
      {"a truth value for alpha", [] { add(ones({2}), ones({2}), true); }, "Boolean alpha only supported"},
      {"an undefined operand", [] { add(ones({2}), Tensor()); }, "undefined"}};
  add_row(r);
  add_row(row("add", "Scalar", kNumbers, same_type, true,
              with_number("", unary_samples(-3, 3), CALL_S(add, 2), 2, kAdd, IN_S(add, 2), OUT_S(add, 2))));
  r = row("sub", "", kNumbers, same_type, true, two(general, CALL(sub), kSub, IN(sub), OUT(sub)));
  r.cases.push_back(two(
      binary_samples(-3, 3, -3, 3, false), [](const Tensor& a, const Tensor& b) { return sub(a, b, 2); }, F2(a - 2 * b),
      [](Tensor& s, const Tensor& b) { sub_(s, b, 2); },
      [](Tensor& o, const Tensor& a, const Tensor& b) { sub_out(o, a, b, 2); }));
  const Tensor bools = ones({2}, kBool), floats = ones({2});
  r.refusals = {{"two bools", [=] { sub(bools, bools); }, "with two bool tensors is not supported"},
                {"a bool less a float", [=] { sub(bools, floats); }, "with a bool tensor is not supported"},
                {"a float less a bool", [=] { sub(floats, bools); }, "with a bool tensor is not supported"},
                {"in place", [=] { floats.clone().sub_(bools); }, "with a bool tensor is not supported"}};
  add_row(r);
  r = row("sub", "Scalar", kNumbers, same_type, true,
          with_number("", unary_samples(-3, 3), CALL_S(sub, 2), 2, kSub, IN_S(sub, 2), OUT_S(sub, 2)));
  r.refusals = {{"a number from bools", [=] { sub(bools, 1); }, "with a bool tensor is not supported"},
                {"bools from a number", [=] { rsub(bools, 1); }, "with a bool tensor is not supported"},
                {"a truth value", [=] { sub(floats, true); }, "with a bool tensor is not supported"}};
  add_row(r);
  add_row(row("rsub", "", kNumbers, same_type, true, two(general, CALL(rsub), F2(b - a))));
  add_row(row("rsub", "Scalar", kNumbers, same_type, true,
              with_number("", unary_samples(-3, 3), CALL_S(rsub, 2), 2, F2(b - a))));
  add_row(row("mul", "", kAll, same_type, true, two(general, CALL(mul), kMul, IN(mul), OUT(mul))));
  add_row(row("mul", "Scalar", kNumbers, same_type, true,
              with_number("", unary_samples(-3, 3), CALL_S(mul, 2), 2, kMul, IN_S(mul, 2), OUT_S(mul, 2))));
  add_row(
      row("div", "", kAll, float_type, true, two(binary_samples(-3, 3, 0.6, 3), CALL(div), kDiv, IN(div), OUT(div))));
  add_row(row("div", "Scalar", kAll, float_type, true,
              with_number("", unary_samples(-3, 3), CALL_S(div, 2), 2, kDiv, IN_S(div, 2), OUT_S(div, 2))));
  add_row(
      row("rdiv", "", kAll, float_type, true, with_number("", unary_samples(0.6, 3), CALL_S(rdiv, 2), 2, F2(b / a))));
}

/// Integers without a zero divisor; fractions away from the jumps.
std::vector<Sample> division_samples() {
  std::vector<Sample> list = {
      {{Array({6}, {-7.3, 5.2, -3.4, 3.7, 8.1, -8.9}), Array({6}, {2, -2.3, 3.1, -3, 4.6, -4.7})}},
      {{Array({2, 3}, {-7.3, 5.2, -3.4, 3.7, 8.1, -8.9}), Array({3}, {2, -2.3, 3.1})}},
      {{integers({40, 3}, -100, 100), integers({3}, 1, 9)}, false},
      {{Array(Shape{0}), Array({1}, 2.0)}, false},
      {{Array({}, 7.4), Array({}, 2.0)}}};
  list.push_back({{Array({5}, {1, -1, 0.0, INFINITY, NAN}), Array({5}, {0.0, 0.0, 0.0, 2, 2})}, false, kFloats});
  return list;
}

void add_divisions() {
  const auto s = division_samples();
  const DTypes types = kFloats + kSigned;
  auto relaxed = [](Row r) {
    r.refuses_others = false;  // uint8 wraps the negative samples
    r.tolerance = 4;
    return r;
  };
  Row r = relaxed(row("floor_divide", "", types, same_type, true,
                      two(s, CALL(floor_divide), floor_div, IN(floor_divide), OUT(floor_divide))));
  r.refusals = {
      {"integer division by zero", [] { floor_divide(ones({2}, kLong), zeros({2}, kLong)); }, "ZeroDivisionError"}};
  add_row(r);
  const std::vector<Sample> u = {
      {{Array({6}, {-7.3, 5.2, -3.4, 3.7, 8.1, -8.9})}}, {{Array(Shape{0})}, false}, {{Array({}, 7.4)}}};
  add_row(relaxed(row(
      "floor_divide", "Scalar", types, same_type, true,
      with_number("", u, CALL_S(floor_divide, -3), -3, floor_div, IN_S(floor_divide, -3), OUT_S(floor_divide, -3)))));
  r = relaxed(row("div", "Tensor_mode", types, same_type, true,
                  two(
                      s, [](const Tensor& a, const Tensor& b) { return div(a, b, "trunc"); }, F2(std::trunc(a / b)),
                      [](Tensor& x, const Tensor& b) { div_(x, b, "trunc"); },
                      [](Tensor& o, const Tensor& a, const Tensor& b) { div_out(o, a, b, "trunc"); })));
  r.cases.push_back(two(
      s, [](const Tensor& a, const Tensor& b) { return div(a, b, "floor"); }, floor_div,
      [](Tensor& x, const Tensor& b) { div_(x, b, "floor"); },
      [](Tensor& o, const Tensor& a, const Tensor& b) { div_out(o, a, b, "floor"); }));
  r.refusals = {{"an unknown mode", [] { div(ones({2}), ones({2}), "round"); }, "rounding_mode"}};
  add_row(r);
  add_row(relaxed(row("div", "Scalar_mode", types, same_type, true,
                      with_number(
                          "", u, [](const Tensor& a) { return div(a, 3, "trunc"); }, 3, F2(std::trunc(a / b)),
                          [](Tensor& x) { div_(x, 3, "trunc"); }))));
  add_row(relaxed(row("remainder", "", types, same_type, true,
                      two(s, CALL(remainder), remainder_of, IN(remainder), OUT(remainder)))));
  add_row(relaxed(
      row("remainder", "Scalar", types, same_type, true,
          with_number("", u, CALL_S(remainder, -3), -3, remainder_of, IN_S(remainder, -3), OUT_S(remainder, -3)))));
  add_row(
      relaxed(row("fmod", "", types, same_type, true, two(s, CALL(fmod), F2(std::fmod(a, b)), IN(fmod), OUT(fmod)))));
  add_row(relaxed(row("fmod", "Scalar", types, same_type, true,
                      with_number("", u, CALL_S(fmod, 3), 3, F2(std::fmod(a, b)), IN_S(fmod, 3), OUT_S(fmod, 3)))));
}

void add_comparisons() {
  std::vector<Sample> s = binary_samples(-2, 2, -2, 2);
  s.push_back({{integers({6, 5}, -2, 2), integers({5}, -2, 2)}, false});
  auto compare = [&](const char* name, Binary call, Fn2 fn, BinaryIn in, BinaryOut out) {
    add_row(row(name, "", kAll, bool_type, false, two(s, std::move(call), fn, std::move(in), std::move(out))));
  };
  compare("eq", CALL(eq), F2(a == b), IN(eq), OUT(eq));
  compare("ne", CALL(ne), F2(a != b), IN(ne), OUT(ne));
  compare("lt", CALL(lt), F2(a < b), IN(lt), OUT(lt));
  compare("le", CALL(le), F2(a <= b), IN(le), OUT(le));
  compare("gt", CALL(gt), F2(a > b), IN(gt), OUT(gt));
  compare("ge", CALL(ge), F2(a >= b), IN(ge), OUT(ge));
  compare("logical_and", CALL(logical_and), F2(a != 0 && b != 0), IN(logical_and), OUT(logical_and));
  compare("logical_or", CALL(logical_or), F2(a != 0 || b != 0), IN(logical_or), OUT(logical_or));
  compare("logical_xor", CALL(logical_xor), F2((a != 0) != (b != 0)), IN(logical_xor), OUT(logical_xor));
  std::vector<Sample> u = unary_samples(-2, 2);
  u.push_back({{integers({30}, -2, 2)}, false});
  auto number = [&](const char* name, std::function<Tensor(const Tensor&)> call, Fn2 fn,
                    std::function<void(Tensor&)> in, std::function<void(Tensor&, const Tensor&)> out) {
    add_row(row(name, "Scalar", kAll, bool_type, false,
                with_number("", u, std::move(call), 1, fn, std::move(in), std::move(out))));
  };
  number("eq", CALL_S(eq, 1), F2(a == b), IN_S(eq, 1), OUT_S(eq, 1));
  number("ne", CALL_S(ne, 1), F2(a != b), IN_S(ne, 1), OUT_S(ne, 1));
  number("lt", CALL_S(lt, 1), F2(a < b), IN_S(lt, 1), OUT_S(lt, 1));
  number("le", CALL_S(le, 1), F2(a <= b), IN_S(le, 1), OUT_S(le, 1));
  number("gt", CALL_S(gt, 1), F2(a > b), IN_S(gt, 1), OUT_S(gt, 1));
  number("ge", CALL_S(ge, 1), F2(a >= b), IN_S(ge, 1), OUT_S(ge, 1));
}

double bits(double a, double b, std::int64_t (*fn)(std::int64_t, std::int64_t)) {
  return static_cast<double>(fn(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b)));
}
#define BITS(body) \
  F2(bits(         \
      a, b, +[](std::int64_t x, std::int64_t y) -> std::int64_t { return body; }))

void add_bits() {
  const DTypes whole = kIntegers + kOnlyBool;
  std::vector<Sample> s = {{{integers({40}, 0, 100), integers({40}, 0, 100, 2)}},
                           {{integers({3, 5}, 0, 100), integers({5}, 0, 100, 2)}},
                           {{Array({}, 6.0), Array({}, 3.0)}},
                           {{Array(Shape{0}), Array(Shape{0})}}};
  const std::vector<Sample> u = {{{integers({40}, 0, 100)}}, {{Array({}, 6.0)}}, {{Array(Shape{0})}}};
  auto two_forms = [&](const char* name, Binary call, Fn2 fn, BinaryIn in, BinaryOut out,
                       std::function<Tensor(const Tensor&)> call_s, std::function<void(Tensor&)> in_s,
                       std::function<void(Tensor&, const Tensor&)> out_s) {
    add_row(row(name, "", whole, same_type, false, two(s, std::move(call), fn, std::move(in), std::move(out))));
    Row r = row(name, "Scalar", kIntegers, same_type, false,
                with_number("", u, std::move(call_s), 6, fn, std::move(in_s), std::move(out_s)));
    r.refuses_others = false;  // bool with an integer gives int64
    add_row(r);
  };
  two_forms("bitwise_and", CALL(bitwise_and), BITS(x & y), IN(bitwise_and), OUT(bitwise_and), CALL_S(bitwise_and, 6),
            IN_S(bitwise_and, 6), OUT_S(bitwise_and, 6));
  two_forms("bitwise_or", CALL(bitwise_or), BITS(x | y), IN(bitwise_or), OUT(bitwise_or), CALL_S(bitwise_or, 6),
            IN_S(bitwise_or, 6), OUT_S(bitwise_or, 6));
  two_forms("bitwise_xor", CALL(bitwise_xor), BITS(x ^ y), IN(bitwise_xor), OUT(bitwise_xor), CALL_S(bitwise_xor, 6),
            IN_S(bitwise_xor, 6), OUT_S(bitwise_xor, 6));
  std::vector<Sample> shifts = {{{integers({40}, 0, 100), integers({40}, 0, 6, 2)}},
                                {{Array({}, 6.0), Array({}, 3.0)}}};
  add_row(row("bitwise_left_shift", "", kIntegers, same_type, false,
              two(shifts, CALL(bitwise_left_shift), BITS(x << y), IN(bitwise_left_shift), OUT(bitwise_left_shift))));
  add_row(row("bitwise_right_shift", "", kIntegers, same_type, false,
              two(shifts, CALL(bitwise_right_shift), BITS(x >> y), IN(bitwise_right_shift), OUT(bitwise_right_shift))));
  Row r = row("bitwise_left_shift", "Tensor_Scalar", kIntegers, same_type, false,
              with_number("", u, CALL_S(bitwise_left_shift, 2), 2, BITS(x << y), IN_S(bitwise_left_shift, 2),
                          OUT_S(bitwise_left_shift, 2)));
  r.refuses_others = false;
  add_row(r);
  r = row("bitwise_right_shift", "Tensor_Scalar", kIntegers, same_type, false,
          with_number("", u, CALL_S(bitwise_right_shift, 2), 2, BITS(x >> y), IN_S(bitwise_right_shift, 2),
                      OUT_S(bitwise_right_shift, 2)));
  r.refuses_others = false;
  add_row(r);
  add_row(row("gcd", "", kIntegers, same_type, false, two(s, CALL(gcd), BITS(std::gcd(x, y)), IN(gcd), OUT(gcd))));
  r = row("lcm", "", {kShort, kInt, kLong}, same_type, false,
          two(s, CALL(lcm), BITS(std::lcm(x, y)), IN(lcm), OUT(lcm)));
  r.refuses_others = false;  // the multiples do not fit into 8 bits
  add_row(r);
}

void add_extremes() {
  auto larger = F2(std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b));
  auto smaller = F2(std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b));
  std::vector<Sample> s = binary_samples(-3, 3, -3, 3);
  add_row(row("maximum", "", kAll, same_type, true, two(s, CALL(maximum), larger, {}, OUT(maximum))));
  add_row(row("minimum", "", kAll, same_type, true, two(s, CALL(minimum), smaller, {}, OUT(minimum))));
  add_row(row("max", "other", kAll, same_type, true, two(s, CALL(max), larger, {}, OUT(max))));
  add_row(row("min", "other", kAll, same_type, true, two(s, CALL(min), smaller, {}, OUT(min))));
  Row r = row("fmax", "", kNumbers, same_type, true, two(s, CALL(fmax), F2(std::fmax(a, b)), {}, OUT(fmax)));
  r.refuses_others = false;
  add_row(r);
  r = row("fmin", "", kNumbers, same_type, true, two(s, CALL(fmin), F2(std::fmin(a, b)), {}, OUT(fmin)));
  r.refuses_others = false;
  add_row(r);
}

void add_powers() {
  Row r = row("pow", "Tensor_Tensor", kFloats, same_type, true,
              two(binary_samples(0.3, 2, -2, 2), CALL(pow), F2(std::pow(a, b)), IN(pow), OUT(pow)));
  r.tolerance = 4;
  r.refuses_others = false;
  Case whole = two({{{integers({30}, -3, 3), integers({30}, 0, 4, 2)}, false}}, CALL(pow), F2(std::pow(a, b)), IN(pow),
                   OUT(pow));
  for (Sample& s : whole.samples) s.only = {kShort, kInt, kLong};
  r.dtypes = kFloats + DTypes{kShort, kInt, kLong};
  for (Sample& s : r.cases[0].samples) s.only = kFloats;
  r.cases.push_back(whole);
  add_row(r);

  r = row("pow", "Tensor_Scalar", kFloats, same_type, true, {});
  r.cases.clear();
  r.refuses_others = false;
  r.tolerance = 4;
  auto power = [&](double e, double low) {
    Case c = with_number(
        "", unary_samples(low, 2), [e](const Tensor& a) { return pow(a, e); }, e, F2(std::pow(a, b)),
        [e](Tensor& s) { pow_(s, e); }, [e](Tensor& o, const Tensor& a) { pow_out(o, a, e); });
    c.name = "exponent " + std::to_string(e);
    if (e == 0.5 || e == -0.5) c.samples.pop_back();  // sqrt and pow differ at -0 and -inf
    r.cases.push_back(c);
  };
  for (const double e : {2.0, 3.0, 0.0, -2.0, -1.0}) power(e, -2);
  for (Case& c : r.cases)
    for (Sample& s : c.samples)
      if (c.name.find('-') != std::string::npos)
        for (double& v : s.inputs[0].array.values) v = std::fabs(v) < 0.3 ? 0.7 : v;
  for (const double e : {0.5, 2.5, -0.5}) power(e, 0.3);
  Case whole2 = with_number(
      "integers", {{{integers({30}, -4, 4)}, false, {kInt, kLong}}}, [](const Tensor& a) { return pow(a, 3); }, 3,
      F2(std::pow(a, b)), [](Tensor& s) { pow_(s, 3); }, [](Tensor& o, const Tensor& a) { pow_out(o, a, 3); });
  r.cases.push_back(whole2);
  r.refusals = {{"a negative power of integers", [] { pow(ones({2}, kLong), -1); }, "negative integer powers"}};
  for (std::size_t i = 0; i + 1 < r.cases.size(); ++i)
    for (Sample& s : r.cases[i].samples)
      if (s.only.empty())
        s.only = kFloats;
      else
        std::erase_if(s.only, [](DType t) { return !is_floating_point(t); });
  r.dtypes = kFloats + DTypes{kInt, kLong};
  add_row(r);

  r = row("pow", "Scalar", kFloats, same_type, true, {});
  r.cases.clear();
  r.refuses_others = false;
  r.tolerance = 4;
  r.cases.push_back(with_number(
      "base 2.5", unary_samples(-2, 2), [](const Tensor& a) { return pow(2.5, a); }, 2.5, F2(std::pow(b, a)), {},
      [](Tensor& o, const Tensor& a) { pow_out(o, 2.5, a); }));
  r.cases.push_back(with_number(
      "base 0", unary_samples(0.5, 2, false), [](const Tensor& a) { return pow(0.0, a); }, 0, F2(std::pow(b, a)), {},
      [](Tensor& o, const Tensor& a) { pow_out(o, 0.0, a); }));
  add_row(r);

  auto always_double = [](DType, std::size_t) { return kDouble; };
  r = row("float_power", "", kFloats + kIntegers, always_double, true,
          two(binary_samples(0.3, 2, -2, 2, false), CALL(float_power), F2(std::pow(a, b))));
  r.refuses_others = false;
  add_row(r);
  r = row("float_power", "Scalar", kFloats + kIntegers, always_double, true,
          with_number("", unary_samples(0.3, 2, false), CALL_S(float_power, 1.5), 1.5, F2(std::pow(a, b))));
  r.refuses_others = false;
  add_row(r);
  r = row("ldexp", "", kFloats, same_type, true,
          two(binary_samples(-2, 2, -3, 3, false), CALL(ldexp), F2(a * std::exp2(b)), IN(ldexp), OUT(ldexp)));
  r.refuses_others = false;
  r.tolerance = 4;
  add_row(r);
}

void add_geometry() {
  auto relaxed = [](Row r, double tolerance = 2) {
    r.tolerance = tolerance;
    r.absolute = 2;
    return r;
  };
  add_row(
      relaxed(row("atan2", "", kAll, float_type, true,
                  two(binary_samples(0.3, 3, -3, -0.3), CALL(atan2), F2(std::atan2(a, b)), IN(atan2), OUT(atan2)))));
  add_row(
      relaxed(row("hypot", "", kAll, float_type, true,
                  two(binary_samples(0.3, 3, -3, -0.3), CALL(hypot), F2(std::hypot(a, b)), IN(hypot), OUT(hypot)))));
  add_row(
      row("copysign", "", kAll, float_type, true,
          two(binary_samples(0.3, 3, -3, -0.3), CALL(copysign), F2(std::copysign(a, b)), IN(copysign), OUT(copysign))));
  add_row(row(
      "copysign", "Scalar", kAll, float_type, true,
      with_number("", unary_samples(0.3, 3), CALL_S(copysign, -2), -2, F2(std::copysign(a, b)), IN_S(copysign, -2))));
  Row r =
      row("nextafter", "", {kDouble}, same_type, true,
          two(binary_samples(-3, 3, -3, 3), CALL(nextafter), F2(std::nextafter(a, b)), IN(nextafter), OUT(nextafter)));
  r.refuses_others = false;
  add_row(r);
  auto xlogy_of = F2(std::isnan(b) ? NAN : a == 0 ? 0 : a * std::log(b));
  add_row(relaxed(row("xlogy", "", kAll, float_type, true,
                      two(binary_samples(0.3, 3, 0.3, 3), CALL(xlogy), xlogy_of, IN(xlogy), OUT(xlogy)))));
  add_row(relaxed(row("xlogy", "Scalar_Other", kAll, float_type, true,
                      with_number("", unary_samples(0.3, 3), CALL_S(xlogy, 3.0), 3, xlogy_of, IN_S(xlogy, 3.0)))));
  add_row(relaxed(row("xlogy", "Scalar_Self", kAll, float_type, true,
                      with_number(
                          "", unary_samples(0.3, 3), [](const Tensor& a) { return xlogy(3.0, a); }, 3,
                          F2(std::isnan(a) ? NAN : b * std::log(a))))));
  auto lae = F2(a == b                           ? a + std::log(2.0)
                : std::isnan(a) || std::isnan(b) ? NAN
                                                 : std::max(a, b) + std::log1p(std::exp(-std::fabs(a - b))));
  auto lae2 =
      F2(a == b                           ? a + 1
         : std::isnan(a) || std::isnan(b) ? NAN
                                          : std::max(a, b) + std::log1p(std::exp2(-std::fabs(a - b))) / std::log(2.0));
  add_row(relaxed(row("logaddexp", "", kAll, float_type, true,
                      two(binary_samples(-3, 3, -3, 3), CALL(logaddexp), lae, {}, OUT(logaddexp)))));
  add_row(relaxed(row("logaddexp2", "", kAll, float_type, true,
                      two(binary_samples(-3, 3, -3, 3), CALL(logaddexp2), lae2, {}, OUT(logaddexp2)))));
  r = row("heaviside", "", kNumbers, same_type, false,
          two(binary_samples(-3, 3, -3, 3), CALL(heaviside), F2(a == 0 ? b : a > 0), IN(heaviside), OUT(heaviside)));
  r.refuses_others = false;
  add_row(r);
}

void add_closeness() {
  Row r = row("isclose", "", kAll, bool_type, false, {});
  r.cases.clear();
  r.cases.push_back(
      two({{{Array({6}, {1, 2, 3, NAN, INFINITY, 0.0}), Array({6}, {1, 2.00001, 3.1, NAN, INFINITY, 1e-9})},
            false,
            {kFloat, kDouble}},
           {{integers({20}, 0, 2), integers({20}, 0, 2, 5)}},
           {{Array(Shape{0}), Array(Shape{0})}}},
          CALL(isclose), F2(a == b || (std::isfinite(a - b) && std::fabs(a - b) <= 1e-8 + 1e-5 * std::fabs(b)))));
  r.cases.push_back(two(
      {{{Array({4}, {1, NAN, INFINITY, 2}), Array({4}, {1.05, NAN, -INFINITY, 3})}, false, {kFloat, kDouble}}},
      [](const Tensor& a, const Tensor& b) { return isclose(a, b, 0.1, 0.0, true); },
      F2(a == b || (std::isnan(a) && std::isnan(b)) ||
         (std::isfinite(a - b) && std::fabs(a - b) <= 0.1 * std::fabs(b)))));
  r.refusals = {{"different dtypes", [] { isclose(ones({2}), ones({2}, kDouble)); }, "did not match"},
                {"a negative tolerance", [] { isclose(ones({2}), ones({2}), -1); }, "rtol"}};
  add_row(r);
}

const bool added_binary = [] {
  add_arithmetic();
  add_divisions();
  add_comparisons();
  add_bits();
  add_extremes();
  add_powers();
  add_geometry();
  add_closeness();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
