// Activations.
#include <numbers>

#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

using Scalar1 = double (*)(double);

Reference elementwise(Scalar1 fn) {
  return [fn](const Arrays& in) { return Arrays{map(in, [fn](const Values& v) { return fn(v[0]); })}; };
}

Row floats(const char* name) {
  Row r{name, "", kFloats, same_type};
  r.gradient = true;
  r.tolerance = 2;
  return r;
}

/// Away from the kinks of the piecewise ones at 0, 0.5, 3 and 6.
std::vector<Sample> samples() {
  std::vector<Sample> list = unary_samples(-4, 7);
  list.push_back({{Array({6}, {-3.6, -1.7, -0.31, 0.23, 1.9, 6.7})}});
  return list;
}

Call call(Tensor (*fn)(const Tensor&)) {
  return [fn](const Tensors& x) { return Tensors{fn(x[0])}; };
}
using InPlace = std::function<void(Tensor&, const Tensors&)>;
InPlace inplace(Tensor& (*fn)(Tensor&)) {
  return [fn](Tensor& self, const Tensors&) { fn(self); };
}
InPlace out(Tensor& (*fn)(Tensor&, const Tensor&)) {
  return [fn](Tensor& o, const Tensors& x) { fn(o, x[0]); };
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
double softplus_of(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }
double clip(double x, double low, double high) { return std::isnan(x) ? x : std::clamp(x, low, high); }
double elu_of(double x, double alpha) { return x > 0 ? x : alpha * std::expm1(x); }

void add_simple() {
  Row r = floats("relu");
  r.dtypes = kNumbers;
  r.cases.push_back({"",
                     samples(),
                     call(relu),
                     elementwise(+[](double x) { return std::isnan(x) ? x : std::max(x, 0.0); }),
                     inplace(relu_),
                     {}});
  add_row(r);

  r = floats("relu6");
  r.dtypes = kNumbers;
  r.cases.push_back(
      {"", samples(), call(relu6), elementwise(+[](double x) { return clip(x, 0, 6); }), inplace(relu6_), {}});
  add_row(r);

  r = floats("selu");
  r.cases.push_back({"",
                     samples(),
                     call(selu),
                     elementwise(+[](double x) {
                       return 1.0507009873554804934193349852946 * elu_of(x, 1.6732632423543772848170429916717);
                     }),
                     inplace(selu_),
                     {}});
  add_row(r);

  r = floats("silu");
  r.cases.push_back({"", samples(), call(silu), elementwise(+[](double x) { return x * sigmoid_of(x); }),
                     inplace(silu_), out(silu_out)});
  add_row(r);

  r = floats("mish");
  r.cases.push_back({"", samples(), call(mish), elementwise(+[](double x) { return x * std::tanh(softplus_of(x)); }),
                     inplace(mish_), out(mish_out)});
  add_row(r);

  r = floats("log_sigmoid");
  r.cases.push_back(
      {"",
       samples(),
       call(log_sigmoid),
       elementwise(+[](double x) { return -(x < 0 ? -x + std::log1p(std::exp(x)) : std::log1p(std::exp(-x))); }),
       {},
       out(log_sigmoid_out)});
  add_row(r);

  r = floats("softsign");
  r.cases.push_back({"",
                     unary_samples(0.2, 4, false),
                     call(softsign),
                     elementwise(+[](double x) { return x / (1 + std::fabs(x)); }),
                     {},
                     {}});
  r.refuses_others = false;
  r.refusals = {{"bools", [] { softsign(ones({2}, kBool)); }, "not implemented for 'Bool'"}};
  add_row(r);

  r = floats("tanhshrink");
  r.absolute = 2;
  r.refuses_others = false;
  r.refusals = {{"bools", [] { tanhshrink(ones({2}, kBool)); }, "not implemented for 'Bool'"}};
  r.cases.push_back({"", samples(), call(tanhshrink), elementwise(+[](double x) { return x - std::tanh(x); }), {}, {}});
  add_row(r);

  r = floats("hardsigmoid");
  r.cases.push_back({"", samples(), call(hardsigmoid), elementwise(+[](double x) { return clip(x + 3, 0, 6) / 6; }),
                     inplace(hardsigmoid_), out(hardsigmoid_out)});
  add_row(r);

  r = floats("hardswish");
  r.cases.push_back({"", samples(), call(hardswish), elementwise(+[](double x) { return x * clip(x + 3, 0, 6) / 6; }),
                     inplace(hardswish_), out(hardswish_out)});
  add_row(r);
}

void add_with_parameters() {
  Row r = floats("hardtanh");
  r.dtypes = kFloats + kSigned;
  r.refuses_others = false;  // uint8 cannot hold the bounds
  r.cases.push_back({"",
                     samples(),
                     [](const Tensors& x) { return Tensors{hardtanh(x[0], -2, 3)}; },
                     elementwise(+[](double x) { return clip(x, -2, 3); }),
                     [](Tensor& self, const Tensors&) { hardtanh_(self, -2, 3); },
                     {}});
  r.refusals = {{"bounds the wrong way round", [] { hardtanh(ones({2}), 1, 0); }, "min_val (1) must not be greater"}};
  add_row(r);

  r = floats("threshold");
  r.dtypes = kNumbers;
  r.cases.push_back({"",
                     samples(),
                     [](const Tensors& x) { return Tensors{threshold(x[0], 1, 5)}; },
                     elementwise(+[](double x) { return x > 1 || std::isnan(x) ? x : 5; }),
                     [](Tensor& self, const Tensors&) { threshold_(self, 1, 5); },
                     {}});
  add_row(r);

  r = floats("leaky_relu");
  r.cases.push_back({"default",
                     samples(),
                     [](const Tensors& x) { return Tensors{leaky_relu(x[0])}; },
                     elementwise(+[](double x) { return x > 0 ? x : 0.01 * x; }),
                     [](Tensor& self, const Tensors&) { leaky_relu_(self); },
                     {}});
  r.cases.push_back({"negative slope",
                     samples(),
                     [](const Tensors& x) { return Tensors{leaky_relu(x[0], -0.5)}; },
                     elementwise(+[](double x) { return x > 0 ? x : -0.5 * x; }),
                     [](Tensor& self, const Tensors&) { leaky_relu_(self, -0.5); },
                     {}});
  add_row(r);

  r = floats("elu");
  r.cases.push_back({"default",
                     samples(),
                     [](const Tensors& x) { return Tensors{elu(x[0])}; },
                     elementwise(+[](double x) { return elu_of(x, 1); }),
                     [](Tensor& self, const Tensors&) { elu_(self); },
                     {}});
  r.cases.push_back({"alpha",
                     samples(),
                     [](const Tensors& x) { return Tensors{elu(x[0], 0.5)}; },
                     elementwise(+[](double x) { return elu_of(x, 0.5); }),
                     [](Tensor& self, const Tensors&) { elu_(self, 0.5); },
                     {}});
  add_row(r);

  r = floats("celu");
  r.cases.push_back({"alpha",
                     samples(),
                     [](const Tensors& x) { return Tensors{celu(x[0], 2)}; },
                     elementwise(+[](double x) { return x > 0 ? x : 2 * std::expm1(x / 2); }),
                     [](Tensor& self, const Tensors&) { celu_(self, 2); },
                     {}});
  r.refusals = {{"alpha 0", [] { celu(ones({2}), 0); }, "alpha cannot be 0"}};
  add_row(r);

  r = floats("gelu");
  r.absolute = 2;
  std::vector<Sample> finite = unary_samples(-4, 7, false);
  finite.push_back({{Array({5}, {NAN, 50, -50, 0.0, -0.0})}, false});
  r.cases.push_back({"erf",
                     finite,
                     [](const Tensors& x) { return Tensors{gelu(x[0])}; },
                     elementwise(+[](double x) { return x * 0.5 * std::erfc(-x / std::numbers::sqrt2); }),
                     [](Tensor& self, const Tensors&) { gelu_(self); },
                     {}});
  r.cases.push_back({"tanh",
                     finite,
                     [](const Tensors& x) { return Tensors{gelu(x[0], "tanh")}; },
                     elementwise(+[](double x) {
                       const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
                       return 0.5 * x * (1 + std::tanh(u));
                     }),
                     [](Tensor& self, const Tensors&) { gelu_(self, "tanh"); },
                     {}});
  r.refusals = {{"an unknown approximation", [] { gelu(ones({2}), "erf"); }, "must be either none or tanh"}};
  add_row(r);

  r = floats("softplus");
  r.cases.push_back({"default",
                     samples(),
                     [](const Tensors& x) { return Tensors{softplus(x[0])}; },
                     elementwise(softplus_of),
                     {},
                     [](Tensor& o, const Tensors& x) { softplus_out(o, x[0]); }});
  r.cases.push_back({"beta, threshold",
                     samples(),
                     [](const Tensors& x) { return Tensors{softplus(x[0], 2, 5)}; },
                     elementwise(+[](double x) { return 2 * x > 5 ? x : std::log1p(std::exp(2 * x)) / 2; }),
                     {},
                     [](Tensor& o, const Tensors& x) { softplus_out(o, x[0], 2, 5); }});
  add_row(r);

  r = floats("hardshrink");
  r.cases.push_back({"",
                     samples(),
                     [](const Tensors& x) { return Tensors{hardshrink(x[0])}; },
                     elementwise(+[](double x) { return std::fabs(x) <= 0.5 ? 0 : x; }),
                     {},
                     [](Tensor& o, const Tensors& x) { hardshrink_out(o, x[0]); }});
  add_row(r);

  r = floats("softshrink");
  r.cases.push_back({"",
                     samples(),
                     [](const Tensors& x) { return Tensors{softshrink(x[0])}; },
                     elementwise(+[](double x) {
                       return std::isnan(x) ? x : x > 0.5 ? x - 0.5 : x < -0.5 ? x + 0.5 : 0;
                     }),
                     {},
                     [](Tensor& o, const Tensors& x) { softshrink_out(o, x[0]); }});
  r.refusals = {{"a negative lambda", [] { softshrink(ones({2}), -1); }, "greater or equal to 0"}};
  add_row(r);
}

void add_two_inputs() {
  Row r = floats("prelu");
  r.cases.push_back({"one weight",
                     {{{Array({2, 3}, {-1, 2, -0.5, 0.7, -2, 1}), Array({1}, 0.25)}},
                      {{Array({}, -1.5), Array({1}, 0.25)}},
                      {{Array(Shape{0}), Array({1}, 0.25)}, false}},
                     [](const Tensors& x) { return Tensors{prelu(x[0], x[1])}; },
                     one([](const Arrays& in) {
                       return map({in[0]}, [&](const Values& v) { return v[0] > 0 ? v[0] : in[1][0] * v[0]; });
                     }),
                     {},
                     {}});
  r.cases.push_back({"per channel",
                     {{{distinct({2, 3, 2}), Array({3}, {0.25, -0.5, 2})}}},
                     [](const Tensors& x) { return Tensors{prelu(x[0], x[1])}; },
                     one([](const Arrays& in) {
                       Array w = in[1];
                       w.shape = {w.shape[0], 1};
                       return map({in[0], w}, [](const Values& v) { return v[0] > 0 ? v[0] : v[1] * v[0]; });
                     }),
                     {},
                     {}});
  r.refusals = {{"a wrong number of weights",
                 [] {
                   prelu(ones({2, 3}), ones({2}));
                 },
                 "Mismatch of parameter numbers"},
                {"integers", [] { prelu(ones({2}, kLong), ones({1})); }, "not implemented for 'Long'"}};
  r.refuses_others = false;
  add_row(r);

  r = floats("glu");
  r.refuses_others = false;
  auto reference = [](std::int64_t dim) {
    return one([dim](const Arrays& in) {
      return lines(in[0], dim, [](const Values& v) {
        Values y;
        for (std::size_t i = 0; i < v.size() / 2; ++i) y.push_back(v[i] * sigmoid_of(v[i + v.size() / 2]));
        return y;
      });
    });
  };
  r.cases.push_back({"last",
                     {{{uniform({2, 4}, -2, 2)}}, {{uniform({3, 0}, 0, 1)}, false}},
                     [](const Tensors& x) { return Tensors{glu(x[0])}; },
                     reference(-1),
                     {},
                     {}});
  r.cases.push_back({"first",
                     {{{uniform({4, 3}, -2, 2)}}},
                     [](const Tensors& x) { return Tensors{glu(x[0], 0)}; },
                     reference(0),
                     {},
                     {}});
  r.refusals = {{"an odd size",
                 [] {
                   glu(ones({2, 3}));
                 },
                 "Halving dimension must be even"},
                {"0 dims", [] { glu(ones({})); }, "does not support 0-dimensional"},
                {"integers", [] { glu(ones({2}, kLong)); }, "not implemented for 'Long'"}};
  add_row(r);
}

const bool added_activation = [] {
  add_simple();
  add_with_parameters();
  add_two_inputs();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
