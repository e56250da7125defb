// where, clamps, interpolation, fused products.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

Row gradient_row(const char* name, const char* overload, DTypes dtypes) {
  Row r{name, overload, std::move(dtypes), same_type};
  r.gradient = true;
  r.refuses_others = false;
  return r;
}

Array mask(const Shape& shape, unsigned seed = 3) { return integers(shape, 0, 1, seed); }

double clipped(double x, double low, double high) { return std::isnan(x) ? x : std::min(std::max(x, low), high); }

void add_where() {
  auto choose = one([](const Arrays& in) { return map(in, [](const Values& v) { return v[0] != 0 ? v[1] : v[2]; }); });
  Row r = gradient_row("where", "self", kAll);
  r.cases.push_back({"",
                     {{{Input(mask({2, 3}), kBool), uniform({2, 3}, -3, 3), uniform({2, 3}, -3, 3, 2)}},
                      {{Input(mask({3}), kBool), uniform({2, 1}, -3, 3), uniform({}, -3, 3, 2)}},
                      {{Input(mask({}), kBool), uniform({}, -3, 3), uniform({}, -3, 3, 2)}},
                      {{Input(mask({0}), kBool), uniform({0}, -3, 3), uniform({1}, -3, 3, 2)}, false},
                      {{Input(mask({37, 3}), kBool), uniform({3}, -3, 3), uniform({37, 1}, -3, 3, 2)}, false},
                      {{Input(mask({9001}), kBool), uniform({9001}, -3, 3), uniform({9001}, -3, 3, 2)}, false}},
                     [](const Tensors& x) { return Tensors{where(x[0], x[1], x[2])}; },
                     choose,
                     {},
                     [](Tensor& o, const Tensors& x) { where_out(o, x[0], x[1], x[2]); }});
  r.refusals = {{"a condition that is not bool", [] { where(ones({2}), ones({2}), ones({2})); }, "boolean tensor"}};
  add_row(r);

  const std::vector<Sample> s = {{{Input(mask({2, 3}), kBool), uniform({2, 3}, -3, 3)}},
                                 {{Input(mask({2, 1}), kBool), uniform({3}, -3, 3)}},
                                 {{Input(mask({0}), kBool), uniform({0}, -3, 3)}, false}};
  r = gradient_row("where", "ScalarSelf", kNumbers);
  r.cases.push_back(
      {"",
       s,
       [](const Tensors& x) { return Tensors{where(x[0], 2, x[1])}; },
       one([](const Arrays& in) { return map(in, [](const Values& v) { return v[0] != 0 ? 2 : v[1]; }); }),
       {},
       {}});
  add_row(r);
  r = gradient_row("where", "ScalarOther", kNumbers);
  r.cases.push_back(
      {"",
       s,
       [](const Tensors& x) { return Tensors{where(x[0], x[1], 2)}; },
       one([](const Arrays& in) { return map(in, [](const Values& v) { return v[0] != 0 ? v[1] : 2; }); }),
       {},
       {}});
  add_row(r);
  r = Row{"where", "Scalar", kOnlyBool, [](DType, std::size_t) { return kFloat; }};
  r.refuses_others = false;
  r.cases.push_back(
      {"",
       {{{Input(mask({2, 3}), kBool)}}},
       [](const Tensors& x) { return Tensors{where(x[0], 1.5, 2.5)}; },
       one([](const Arrays& in) { return map(in, [](const Values& v) { return v[0] != 0 ? 1.5 : 2.5; }); }),
       {},
       {}});
  add_row(r);
}

void add_clamps() {
  auto one_input = [](const char* name, const std::vector<Sample>& s, Call call, std::function<double(double)> fn,
                      std::function<void(Tensor&)> in, std::function<void(Tensor&, const Tensor&)> out) {
    return Case{name,
                s,
                std::move(call),
                one([fn](const Arrays& a) { return map(a, [fn](const Values& v) { return fn(v[0]); }); }),
                [in](Tensor& self, const Tensors&) { in(self); },
                [out](Tensor& o, const Tensors& x) { out(o, x[0]); }};
  };
  const std::vector<Sample> s = unary_samples(-4.4, 4.4);
  using S = std::optional<Scalar>;
  Row r = gradient_row("clamp", "", kFloats + kSigned);
  auto make = [&](const char* label, S low, S high) {
    auto fn = [low, high](double x) {
      return clipped(x, low ? low->toDouble() : -INFINITY, high ? high->toDouble() : INFINITY);
    };
    r.cases.push_back(one_input(
        label, s, [=](const Tensors& x) { return Tensors{clamp(x[0], low, high)}; }, fn,
        [=](Tensor& self) { clamp_(self, low, high); },
        [=](Tensor& o, const Tensor& x) { clamp_out(o, x, low, high); }));
  };
  make("both", S(-2), S(3));
  make("min", S(-2), S());
  make("max", S(), S(3));
  make("crossed", S(3), S(-2));
  r.refusals = {{"no bound", [] { clamp(ones({2}), S()); }, "must not be None"}};
  add_row(r);
  r = gradient_row("clamp_min", "", kFloats + kSigned);
  r.cases.push_back(one_input(
      "", s, [](const Tensors& x) { return Tensors{clamp_min(x[0], 1)}; },
      [](double x) { return clipped(x, 1, INFINITY); }, [](Tensor& self) { clamp_min_(self, 1); },
      [](Tensor& o, const Tensor& x) { clamp_min_out(o, x, 1); }));
  add_row(r);
  r = gradient_row("clamp_max", "", kFloats + kSigned);
  r.cases.push_back(one_input(
      "", s, [](const Tensors& x) { return Tensors{clamp_max(x[0], 1)}; },
      [](double x) { return clipped(x, -INFINITY, 1); }, [](Tensor& self) { clamp_max_(self, 1); },
      [](Tensor& o, const Tensor& x) { clamp_max_out(o, x, 1); }));
  add_row(r);

  const std::vector<Sample> pairs = binary_samples(-3, 3, -3, 3, false);
  r = gradient_row("clamp_min", "Tensor", kNumbers);
  r.cases.push_back({"", pairs, [](const Tensors& x) { return Tensors{clamp_min(x[0], x[1])}; },
                     one([](const Arrays& a) { return map(a, [](const Values& v) { return std::max(v[0], v[1]); }); }),
                     [](Tensor& self, const Tensors& x) { clamp_min_(self, x[1]); },
                     [](Tensor& o, const Tensors& x) { clamp_min_out(o, x[0], x[1]); }});
  add_row(r);
  r = gradient_row("clamp_max", "Tensor", kNumbers);
  r.cases.push_back({"", pairs, [](const Tensors& x) { return Tensors{clamp_max(x[0], x[1])}; },
                     one([](const Arrays& a) { return map(a, [](const Values& v) { return std::min(v[0], v[1]); }); }),
                     [](Tensor& self, const Tensors& x) { clamp_max_(self, x[1]); },
                     [](Tensor& o, const Tensors& x) { clamp_max_out(o, x[0], x[1]); }});
  add_row(r);
  r = gradient_row("clamp", "Tensor", kNumbers);
  r.cases.push_back({"both",
                     {{{uniform({2, 3}, -4, 4), uniform({3}, -2, 0, 2), uniform({2, 1}, 0.5, 2, 3)}},
                      {{uniform({2, 3}, -4, 4), uniform({3}, -2, 2, 2), uniform({2, 3}, -2, 2, 3)}},
                      {{uniform({0}, -4, 4), uniform({0}, -2, 0), uniform({}, 0, 2)}, false}},
                     [](const Tensors& x) { return Tensors{clamp(x[0], x[1], x[2])}; },
                     one([](const Arrays& a) {
                       return map(a, [](const Values& v) { return std::min(std::max(v[0], v[1]), v[2]); });
                     }),
                     [](Tensor& self, const Tensors& x) { clamp_(self, x[1], x[2]); },
                     [](Tensor& o, const Tensors& x) { clamp_out(o, x[0], x[1], x[2]); }});
  r.cases.push_back({"max", pairs, [](const Tensors& x) { return Tensors{clamp(x[0], Tensor(), x[1])}; },
                     one([](const Arrays& a) { return map(a, [](const Values& v) { return std::min(v[0], v[1]); }); }),
                     [](Tensor& self, const Tensors& x) { clamp_(self, Tensor(), x[1]); },
                     [](Tensor& o, const Tensors& x) { clamp_out(o, x[0], Tensor(), x[1]); }});
  add_row(r);
}

void add_interpolation() {
  Row r = gradient_row("lerp", "Scalar", kFloats);
  r.absolute = 4;
  r.cases.push_back(
      {"", binary_samples(-3, 3, -3, 3, false), [](const Tensors& x) { return Tensors{lerp(x[0], x[1], 0.3)}; },
       one([](const Arrays& a) { return map(a, [](const Values& v) { return v[0] + 0.3 * (v[1] - v[0]); }); }),
       [](Tensor& self, const Tensors& x) { lerp_(self, x[1], 0.3); },
       [](Tensor& o, const Tensors& x) { lerp_out(o, x[0], x[1], 0.3); }});
  r.refusals = {{"two dtypes", [] { lerp(ones({2}), ones({2}, kDouble), 0.5); }, "dtype"}};
  add_row(r);
  const std::vector<Sample> triples = {
      {{uniform({2, 3}, -3, 3), uniform({2, 3}, -3, 3, 2), uniform({2, 3}, 0.5, 3, 3)}},
      {{uniform({2, 3}, -3, 3), uniform({3}, -3, 3, 2), uniform({2, 1}, 0.5, 3, 3)}},
      {{uniform({}, -3, 3), uniform({}, -3, 3, 2), uniform({}, 0.5, 3, 3)}},
      {{uniform({3, 37}, -3, 3), uniform({3, 37}, -3, 3, 2), uniform({37}, 0.5, 3, 3)}, false},
      {{uniform({9001}, -3, 3), uniform({9001}, -3, 3, 2), uniform({9001}, 0.5, 3, 3)}, false},
      {{uniform({0}, -3, 3), uniform({0}, -3, 3, 2), uniform({1}, 0.5, 3, 3)}, false}};
  r = gradient_row("lerp", "Tensor", kFloats);
  r.absolute = 4;
  r.cases.push_back(
      {"", triples, [](const Tensors& x) { return Tensors{lerp(x[0], x[1], x[2])}; },
       one([](const Arrays& a) { return map(a, [](const Values& v) { return v[0] + v[2] * (v[1] - v[0]); }); }),
       [](Tensor& self, const Tensors& x) { lerp_(self, x[1], x[2]); },
       [](Tensor& o, const Tensors& x) { lerp_out(o, x[0], x[1], x[2]); }});
  add_row(r);
  r = gradient_row("addcmul", "", kFloats + kSigned);
  r.absolute = 8;
  r.cases.push_back(
      {"", triples, [](const Tensors& x) { return Tensors{addcmul(x[0], x[1], x[2], 2)}; },
       one([](const Arrays& a) { return map(a, [](const Values& v) { return v[0] + 2 * v[1] * v[2]; }); }),
       [](Tensor& self, const Tensors& x) { addcmul_(self, x[1], x[2], 2); },
       [](Tensor& o, const Tensors& x) { addcmul_out(o, x[0], x[1], x[2], 2); }});
  add_row(r);
  r = gradient_row("addcdiv", "", kFloats);
  r.absolute = 8;
  r.cases.push_back(
      {"", triples, [](const Tensors& x) { return Tensors{addcdiv(x[0], x[1], x[2], 2)}; },
       one([](const Arrays& a) { return map(a, [](const Values& v) { return v[0] + 2 * v[1] / v[2]; }); }),
       [](Tensor& self, const Tensors& x) { addcdiv_(self, x[1], x[2], 2); },
       [](Tensor& o, const Tensors& x) { addcdiv_out(o, x[0], x[1], x[2], 2); }});
  r.refusals = {
      {"integers", [] { addcdiv(ones({2}, kLong), ones({2}, kLong), ones({2}, kLong)); }, "integer division"}};
  add_row(r);
}

const bool added_ternary = [] {
  add_where();
  add_clamps();
  add_interpolation();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
