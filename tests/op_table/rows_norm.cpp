// Normalisations.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

double mean_of(const Values& v) { return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size()); }
double var_of(const Values& v) {
  const double m = mean_of(v);
  double s = 0;
  for (const double x : v) s += (x - m) * (x - m);
  return s / static_cast<double>(v.size());
}

/// The elements put into groups by number, and what comes back.
Array grouped(const Array& x, std::int64_t groups, const std::function<std::int64_t(std::int64_t)>& group,
              const std::function<Values(const Values&, std::int64_t)>& fn) {
  std::vector<Values> members(static_cast<std::size_t>(groups));
  std::vector<std::vector<std::int64_t>> where(static_cast<std::size_t>(groups));
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    members[static_cast<std::size_t>(group(i))].push_back(x[i]);
    where[static_cast<std::size_t>(group(i))].push_back(i);
  }
  Array out(x.shape);
  for (std::int64_t g = 0; g < groups; ++g) {
    const Values y = fn(members[static_cast<std::size_t>(g)], g);
    for (std::size_t k = 0; k < y.size(); ++k) out[where[static_cast<std::size_t>(g)][k]] = y[k];
  }
  return out;
}
Values normalised(const Values& v, double mean, double var, double eps) {
  Values out;
  for (const double x : v) out.push_back((x - mean) / std::sqrt(var + eps));
  return out;
}

/// Runs of `size` elements normalised.
Array by_runs(const Array& x, std::int64_t size, double eps, bool centered) {
  return grouped(
      x, x.numel() / std::max<std::int64_t>(size, 1), [=](std::int64_t i) { return i / size; },
      [=](const Values& v, std::int64_t) {
        double squares = 0;
        for (const double e : v) squares += e * e / static_cast<double>(v.size());
        return centered ? normalised(v, mean_of(v), var_of(v), eps) : normalised(v, 0, squares, eps);
      });
}
/// x times weight plus bias, which belong to the last dims.
Array affine(const Array& x, const Array& weight, const Array* bias) {
  const std::int64_t n = weight.numel();
  Array out = x;
  for (std::int64_t i = 0; i < x.numel(); ++i) out[i] = x[i] * weight[i % n] + (bias ? (*bias)[i % n] : 0);
  return out;
}
/// The same per channel (dim 1).
Array channel_affine(const Array& x, const Array& weight, const Array& bias) {
  const std::int64_t c = x.shape[1], inner = x.numel() / std::max<std::int64_t>(x.shape[0] * c, 1);
  Array out = x;
  for (std::int64_t i = 0; i < x.numel(); ++i) out[i] = x[i] * weight[i / inner % c] + bias[i / inner % c];
  return out;
}

Row norm_row(const char* name) {
  Row r = gradient_row_of(name, "", kFloats);
  r.tolerance = 10;
  r.absolute = 20;
  r.exact_layouts = false;
  return r;
}

constexpr double kEps = 0.125;

Sample with_affine(const Shape& shape, const Shape& weight, bool bias = true, bool gradient = true) {
  Sample s{{uniform(shape, -2, 2), uniform(weight, 0.5, 2, 2)}, gradient};
  if (bias) s.inputs.emplace_back(uniform(weight, -1, 1, 3));
  return s;
}

void add_layer_norms() {
  Row r = norm_row("layer_norm");
  const std::vector<Shape> shapes = {{3, 4}, {2, 2, 3}, {0, 4}, {5, 67}, {33, 130}, {3, 1}};
  auto last = [](const Array& a) { return a.shape.back(); };
  r.cases = {
      case_of(
          "", shaped(shapes), [](const Tensors& x) { return layer_norm(x[0], {x[0].size(-1)}, {}, {}, kEps); },
          [=](const Arrays& in) { return by_runs(in[0], last(in[0]), kEps, true); }),
      case_of(
          "weight and bias",
          {with_affine({3, 4}, {4}), with_affine({2, 3, 67}, {67}, true, false), with_affine({0, 4}, {4}, true, false)},
          [](const Tensors& x) { return layer_norm(x[0], x[1].sizes(), x[1], x[2], kEps); },
          [=](const Arrays& in) { return affine(by_runs(in[0], in[1].numel(), kEps, true), in[1], &in[2]); }),
      case_of(
          "two dims", {with_affine({2, 2, 3}, {2, 3}), with_affine({5, 7, 11}, {7, 11}, true, false)},
          [](const Tensors& x) { return layer_norm(x[0], x[1].sizes(), x[1], x[2], kEps); },
          [=](const Arrays& in) { return affine(by_runs(in[0], in[1].numel(), kEps, true), in[1], &in[2]); })};
  r.refusals = {{"another normalized_shape",
                 [] {
                   layer_norm(ones({2, 3}), {2});
                 },
                 "expected input with shape [*, [2]]"},
                {"a weight of another shape",
                 [] {
                   layer_norm(ones({2, 3}), {3}, ones({2}));
                 },
                 "expected weight to be of shape"},
                {"no dims",
                 [] {
                   layer_norm(ones({2, 3}), {});
                 },
                 "at least 1-dimensional"}};
  add_row(r);

  r = norm_row("native_layer_norm");
  r.gradient = false;  // layer_norm's; the statistics are not differentiable
  r.result = [](DType t, std::size_t i) { return i == 0 || t == kDouble ? t : kFloat; };
  r.cases = {{"",
              {with_affine({3, 4}, {4}), with_affine({2, 3, 67}, {67})},
              [](const Tensors& x) {
                auto [y, m, s] = native_layer_norm(x[0], x[1].sizes(), x[1], x[2], kEps);
                return Tensors{y, m, s};
              },
              [=](const Arrays& in) {
                return Arrays{affine(by_runs(in[0], in[1].numel(), kEps, true), in[1], &in[2]),
                              reduce(in[0], {-1}, true, mean_of), reduce(in[0], {-1}, true, [](const Values& v) {
                                return 1 / std::sqrt(var_of(v) + kEps);
                              })};
              },
              {},
              {}}};
  add_row(r);

  r = norm_row("rms_norm");
  r.cases = {case_of(
                 "", shaped(shapes), [](const Tensors& x) { return rms_norm(x[0], {x[0].size(-1)}, {}, kEps); },
                 [=](const Arrays& in) { return by_runs(in[0], last(in[0]), kEps, false); }),
             case_of(
                 "weight", {with_affine({3, 4}, {4}, false), with_affine({5, 7, 11}, {7, 11}, false, false)},
                 [](const Tensors& x) { return rms_norm(x[0], x[1].sizes(), x[1], kEps); },
                 [=](const Arrays& in) { return affine(by_runs(in[0], in[1].numel(), kEps, false), in[1], nullptr); }),
             case_of(
                 "the dtype's epsilon", {{{uniform({3, 4}, 5, 9)}, true, {kFloat, kDouble}}},
                 [](const Tensors& x) { return rms_norm(x[0], {4}); },
                 [=](const Arrays& in) { return by_runs(in[0], 4, 1e-9, false); })};
  r.refusals = {{"another normalized_shape", [] { rms_norm(ones({2, 3}), {2}); }, "expected input with shape"}};
  add_row(r);
}

void add_group_norms() {
  auto by_groups = [](const Array& x, std::int64_t groups) {
    return by_runs(x, x.numel() / std::max<std::int64_t>(x.shape[0] * groups, 1), kEps, true);
  };
  Row r = norm_row("group_norm");
  r.cases = {case_of(
                 "", shaped({{2, 4}, {2, 4, 3}, {3, 4, 5, 7}, {2, 8, 41}}),
                 [](const Tensors& x) { return group_norm(x[0], 2, {}, {}, kEps); },
                 [=](const Arrays& in) { return by_groups(in[0], 2); }),
             case_of(
                 "weight and bias",
                 {with_affine({2, 4, 2}, {4}), with_affine({3, 4, 5, 7}, {4}, true, false),
                  with_affine({0, 4, 2}, {4}, true, false)},
                 [](const Tensors& x) { return group_norm(x[0], 2, x[1], x[2], kEps); },
                 [=](const Arrays& in) { return channel_affine(by_groups(in[0], 2), in[1], in[2]); })};
  r.refusals = {{"channels that do not divide",
                 [] {
                   group_norm(ones({2, 3, 4}), 2);
                 },
                 "divisible by num_groups"},
                {"no groups",
                 [] {
                   group_norm(ones({2, 3, 4}), 0);
                 },
                 "greater than 0"},
                {"a weight of another shape",
                 [] {
                   group_norm(ones({2, 4}), 2, ones({2}));
                 },
                 "expected weight to be of shape"}};
  add_row(r);

  r = norm_row("instance_norm");
  r.cases = {case_of(
                 "", shaped({{2, 3, 4}, {2, 2, 2, 2}, {3, 4, 5, 7}}, 2),
                 [](const Tensors& x) { return instance_norm(x[0], {}, {}, {}, {}, true, 0.1, kEps); },
                 [=](const Arrays& in) { return by_groups(in[0], in[0].shape[1]); }),
             case_of(
                 "weight and bias", {with_affine({2, 3, 4}, {3}), with_affine({3, 4, 5, 7}, {4}, true, false)},
                 [](const Tensors& x) { return instance_norm(x[0], x[1], x[2], {}, {}, true, 0.1, kEps); },
                 [=](const Arrays& in) { return channel_affine(by_groups(in[0], in[0].shape[1]), in[1], in[2]); })};
  // Running statistics: means over the samples of each sample's own; one sample's variance is unbiased.
  const Sample running{
      {uniform({2, 3, 4}, -2, 2), Input(uniform({3}, -1, 1, 2), kDouble), Input(uniform({3}, 0.5, 2, 3), kDouble)},
      false,
      {kDouble}};
  r.cases.push_back({"running statistics",
                     {running},
                     [](const Tensors& x) {
                       const Tensor m = x[1].clone(), v = x[2].clone();
                       const Tensor y = instance_norm(x[0], {}, {}, m, v, true, 0.25, kEps);
                       return Tensors{y, m, v, instance_norm(x[0], {}, {}, m, v, false, 0.25, kEps)};
                     },
                     [=](const Arrays& in) {
                       const Array means = reduce(in[0], {2}, false, mean_of), vars = reduce(in[0], {2}, false, var_of);
                       Array m = in[1], v = in[2], eval = in[0];
                       for (std::int64_t c = 0; c < 3; ++c) {
                         m[c] = 0.75 * m[c] + 0.25 * (means[c] + means[3 + c]) / 2;
                         v[c] = 0.75 * v[c] + 0.25 * (vars[c] + vars[3 + c]) / 2 * 4 / 3;
                       }
                       for (std::int64_t i = 0; i < eval.numel(); ++i)
                         eval[i] = (eval[i] - m[i / 4 % 3]) / std::sqrt(v[i / 4 % 3] + kEps);
                       return Arrays{by_groups(in[0], 3), m, v, eval};
                     },
                     {},
                     {}});
  r.refusals = {{"no statistics to use",
                 [] {
                   instance_norm(ones({2, 3, 4}), {}, {}, {}, {}, false, 0.1, 1e-5);
                 },
                 "running_mean and running_var to be defined"}};
  add_row(r);
}

/// Input, weight, bias, running mean and variance; the last two are float32 or float64 and not differentiable.
Sample batch(const Shape& shape, bool gradient = true) {
  const std::int64_t c = shape[1];
  return {{uniform(shape, -2, 2), uniform({c}, 0.5, 2, 2), uniform({c}, -1, 1, 3),
           Input(uniform({c}, -1, 1, 4), kDouble), Input(uniform({c}, 0.5, 2, 5), kDouble)},
          gradient};
}

using BatchNorm = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool);

/// What follows batch norm: nothing, relu, or relu of its sum with the input.
enum class After { Nothing, Relu, AddRelu };

void add_batch_norm(const char* name, BatchNorm fn, After after) {
  auto clamped = [=](Array a, const Array& input) {
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      if (after == After::AddRelu) a[i] += input[i];
      if (after != After::Nothing) a[i] = std::max(a[i], 0.0);
    }
    return a;
  };
  auto channel = [](const Array& x) {
    const std::int64_t c = x.shape[1], inner = x.numel() / std::max<std::int64_t>(x.shape[0] * c, 1);
    return [=](std::int64_t i) { return i / inner % c; };
  };
  auto trained = [=](const Array& x) {
    return grouped(x, x.shape[1], channel(x),
                   [](const Values& v, std::int64_t) { return normalised(v, mean_of(v), var_of(v), kEps); });
  };
  const std::vector<Sample> s = {batch({3, 2}), batch({2, 2, 3}), batch({2, 3, 2, 2}, false),
                                 batch({5, 7, 3, 11}, false), batch({4, 3, 2, 3, 5}, false)};
  Row r = norm_row(name);
  r.result = [](DType t, std::size_t i) { return i == 0 ? t : kFloat; };
  r.cases.push_back(case_of(
      "training", s, [=](const Tensors& x) { return fn(x[0], x[1], x[2], Tensor(), Tensor(), true); },
      [=](const Arrays& in) { return clamped(channel_affine(trained(in[0]), in[1], in[2]), in[0]); }));
  r.cases.push_back(case_of(
      "training, no weight", s,
      [=](const Tensors& x) { return fn(x[0], Tensor(), Tensor(), Tensor(), Tensor(), true); },
      [=](const Arrays& in) { return clamped(trained(in[0]), in[0]); }));
  r.cases.push_back(case_of(
      "evaluation", s, [=](const Tensors& x) { return fn(x[0], x[1], x[2], x[3], x[4], false); },
      [=](const Arrays& in) {
        return clamped(channel_affine(grouped(in[0], in[0].shape[1], channel(in[0]),
                                              [&](const Values& v, std::int64_t c) {
                                                return normalised(v, in[3][c], in[4][c], kEps);
                                              }),
                                      in[1], in[2]),
                       in[0]);
      }));
  std::vector<Sample> quiet = s;
  for (Sample& q : quiet) {
    q.gradient = false;
    q.only = {kFloat, kDouble};
  }
  r.cases.push_back({"running statistics",
                     quiet,
                     [=](const Tensors& x) {
                       const Tensor m = x[3].clone(), v = x[4].clone();
                       const Tensor y = fn(x[0], x[1], x[2], m, v, true);
                       return Tensors{y, m.to(kFloat), v.to(kFloat)};
                     },
                     [=](const Arrays& in) {
                       Array m = in[3], v = in[4];
                       grouped(in[0], in[0].shape[1], channel(in[0]), [&](const Values& e, std::int64_t c) {
                         const auto n = static_cast<double>(e.size());
                         m[c] = 0.75 * m[c] + 0.25 * mean_of(e);
                         v[c] = 0.75 * v[c] + 0.25 * var_of(e) * n / (n - 1);
                         return e;
                       });
                       return Arrays{clamped(channel_affine(trained(in[0]), in[1], in[2]), in[0]), m, v};
                     },
                     {},
                     {}});
  r.refusals = {{"one value per channel",
                 [=] {
                   fn(ones({1, 2}), {}, {}, {}, {}, true);
                 },
                 "more than 1 value per channel"},
                {"no statistics to use",
                 [=] {
                   fn(ones({2, 2}), {}, {}, {}, {}, false);
                 },
                 "must be defined in evaluation"},
                {"statistics of another size",
                 [=] {
                   fn(ones({2, 2}), {}, {}, ones({3}), ones({3}), true);
                 },
                 "should contain 2 elements"},
                {"a vector", [=] { fn(ones({2}), {}, {}, {}, {}, true); }, "at least 2 dims"}};
  add_row(r);
}

const bool added_norm = [] {
  add_layer_norms();
  add_group_norms();
  add_batch_norm(
      "batch_norm",
      +[](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& m, const Tensor& v, bool train) {
        return batch_norm(x, w, b, m, v, train, 0.25, kEps);
      },
      After::Nothing);
  add_batch_norm(
      "batch_norm_relu",
      +[](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& m, const Tensor& v, bool train) {
        return batch_norm_relu(x, w, b, m, v, train, 0.25, kEps);
      },
      After::Relu);
  add_batch_norm(
      "batch_norm_add_relu",
      +[](const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& m, const Tensor& v, bool train) {
        return batch_norm_add_relu(x, x, w, b, m, v, train, 0.25, kEps);
      },
      After::AddRelu);
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
