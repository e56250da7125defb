// softmax and its kin.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

Values softmax_of(const Values& v) {
  double m = -INFINITY, total = 0;
  for (const double x : v) m = std::isnan(x) ? x : std::max(m, x);
  Values out;
  for (const double x : v) total += std::exp(x - m);
  for (const double x : v) out.push_back(std::exp(x - m) / total);
  return out;
}
Values log_softmax_of(const Values& v) {
  double m = -INFINITY, total = 0;
  for (const double x : v) m = std::isnan(x) ? x : std::max(m, x);
  Values out;
  for (const double x : v) total += std::exp(x - m);
  for (const double x : v) out.push_back(x - m - std::log(total));
  return out;
}

std::vector<Sample> samples(bool gradient) {
  std::vector<Sample> s = shaped({{2, 3}, {2, 3, 2}, {0, 3}, {3, 67}, {5, 41, 7}, {41, 130}, {3, 0}}, gradient ? 2 : 0);
  s.push_back({{Array({2, 3}, {-INFINITY, -INFINITY, -INFINITY, 1, -INFINITY, 2})}, false});
  s.push_back({{Array({2, 3}, {INFINITY, 1, 2, NAN, 1, 2})}, false});
  s.push_back({{Array({1, 4}, {60000, 59000, -60000, 0})}, false});
  return s;
}

using Fn = Tensor (*)(const Tensor&, std::int64_t, std::optional<DType>);
using Out = void (*)(Tensor&, const Tensor&, std::int64_t);

void add(const char* name, const char* overload, Fn fn, Out out, double sign, Values (*reference)(const Values&)) {
  Row r = gradient_row_of(name, overload, kFloats);
  r.tolerance = 4;
  r.exact_layouts = false;
  auto along = [=](const Array& a, std::int64_t dim) {
    return lines(map({a}, [=](const Values& v) { return sign * v[0]; }), dim, reference);
  };
  for (const std::int64_t dim : {1, 0, -1}) {
    Case c = case_of(
        "dim " + std::to_string(dim), samples(dim != -1), [=](const Tensors& x) { return fn(x[0], dim, std::nullopt); },
        [=](const Arrays& in) { return along(in[0], dim); });
    if (out) c.out = [=](Tensor& o, const Tensors& x) { out(o, x[0], dim); };
    r.cases.push_back(c);
  }
  r.cases.push_back(case_of(
      "0-d", shaped({{}}, 1), [=](const Tensors& x) { return fn(x[0], 0, std::nullopt); },
      [=](const Arrays& in) { return with_shape(along(with_shape(in[0], {1}), 0), {}); }));
  r.cases.push_back(case_of(
      "in float64", shaped({{3, 5}}, 1), [=](const Tensors& x) { return fn(x[0], 1, kDouble).to(x[0].dtype()); },
      [=](const Arrays& in) { return along(in[0], 1); }));
  r.refusals = {{"integers",
                 [=] {
                   fn(ones({2, 3}, kLong), 1, std::nullopt);
                 },
                 "floating dtype"},
                {"a dim out of range",
                 [=] {
                   fn(ones({2, 3}), 2, std::nullopt);
                 },
                 "Dimension out of range"}};
  add_row(r);
}

const bool added_softmax = [] {
  add(
      "softmax", "int", +[](const Tensor& x, std::int64_t d, std::optional<DType> t) { return softmax(x, d, t); },
      +[](Tensor& o, const Tensor& x, std::int64_t d) { softmax_out(o, x, d); }, 1, softmax_of);
  add(
      "log_softmax", "int",
      +[](const Tensor& x, std::int64_t d, std::optional<DType> t) { return log_softmax(x, d, t); },
      +[](Tensor& o, const Tensor& x, std::int64_t d) { log_softmax_out(o, x, d); }, 1, log_softmax_of);
  add(
      "softmin", "", +[](const Tensor& x, std::int64_t d, std::optional<DType> t) { return softmin(x, d, t); }, nullptr,
      -1, softmax_of);
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
