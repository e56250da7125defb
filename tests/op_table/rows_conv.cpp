// Convolutions: one naive loop over three spatial dims, of which missing ones have size 1.
#include "op_table/rows.h"

namespace athanor::op_table {

namespace {

struct Settings {
  Shape stride, padding, dilation, output_padding;
  std::int64_t groups = 1;
  bool transposed = false;
};

/// Three values from one or from one per dim; missing leading dims get `none`.
Shape three(const Shape& values, std::size_t spatial, std::int64_t none) {
  Shape out(3, none);
  for (std::size_t d = 0; d < spatial; ++d) out[3 - spatial + d] = values.size() == 1 ? values[0] : values[d];
  return out;
}

Array five_dims(Array a, std::size_t spatial) {
  if (a.shape.size() == spatial + 1) a.shape.insert(a.shape.begin(), 1);
  while (a.shape.size() < 5) a.shape.insert(a.shape.begin() + 2, 1);
  return a;
}

/// Calls fn(output index, input index, weight index) for every product of the convolution.
template <class F>
void each_product(const Shape& in, const Shape& weight, const Shape& out, const Settings& s, std::size_t spatial,
                  F&& fn) {
  const Shape stride = three(s.stride, spatial, 1), pad = three(s.padding, spatial, 0),
              dil = three(s.dilation, spatial, 1);
  const std::int64_t in_per = in[1] / s.groups, out_per = out[1] / s.groups;
  // A transposed convolution scatters what the plain one gathers: its input takes the output's place.
  const Shape& small = s.transposed ? in : out;
  const Shape& large = s.transposed ? out : in;
  for (std::int64_t n = 0; n < in[0]; ++n)
    for (std::int64_t g = 0; g < s.groups; ++g)
      for (std::int64_t i = 0; i < in_per; ++i)
        for (std::int64_t o = 0; o < out_per; ++o)
          for (std::int64_t p = 0; p < small[2] * small[3] * small[4]; ++p)
            for (std::int64_t k = 0; k < weight[2] * weight[3] * weight[4]; ++k) {
              const Shape at = index_of(p, {small[2], small[3], small[4]}),
                          tap = index_of(k, {weight[2], weight[3], weight[4]});
              Shape far(3);
              bool inside = true;
              for (std::size_t d = 0; d < 3; ++d) {
                far[d] = at[d] * stride[d] - pad[d] + tap[d] * dil[d];
                inside = inside && far[d] >= 0 && far[d] < large[d + 2];
              }
              if (!inside) continue;
              const Shape &x = s.transposed ? at : far, &y = s.transposed ? far : at;
              const std::int64_t ic = g * in_per + i, oc = g * out_per + o;
              fn(Shape{n, oc, y[0], y[1], y[2]}, Shape{n, ic, x[0], x[1], x[2]},
                 s.transposed ? Shape{ic, o, tap[0], tap[1], tap[2]} : Shape{oc, i, tap[0], tap[1], tap[2]});
            }
}

Shape result_shape(const Shape& in, const Shape& weight, const Settings& s, std::size_t spatial) {
  const Shape stride = three(s.stride, spatial, 1), pad = three(s.padding, spatial, 0),
              dil = three(s.dilation, spatial, 1),
              extra = three(s.output_padding.empty() ? Shape{0} : s.output_padding, spatial, 0);
  Shape out{in[0], s.transposed ? weight[1] * s.groups : weight[0]};
  for (std::size_t d = 0; d < 3; ++d) {
    const std::int64_t reach = dil[d] * (weight[d + 2] - 1) + 1;
    out.push_back(s.transposed ? (in[d + 2] - 1) * stride[d] - 2 * pad[d] + reach + extra[d]
                               : (in[d + 2] + 2 * pad[d] - reach) / stride[d] + 1);
  }
  return out;
}

/// The plain or transposed convolution of `spatial` dims; unbatched if the input lacks the batch dim.
Array convolved(const Array& input, const Array& weight, const Array* bias, const Settings& s, std::size_t spatial) {
  const Array x = five_dims(input, spatial), w = five_dims(weight, spatial);
  Array out(result_shape(x.shape, w.shape, s, spatial));
  each_product(x.shape, w.shape, out.shape, s, spatial,
               [&](const Shape& o, const Shape& i, const Shape& k) { out.at(o) += x.at(i) * w.at(k); });
  if (bias)
    for (std::int64_t i = 0; i < out.numel(); ++i) out[i] += (*bias)[index_of(i, out.shape)[1]];
  Shape shape(out.shape.begin(), out.shape.begin() + 2);
  shape.insert(shape.end(), out.shape.end() - static_cast<std::ptrdiff_t>(spatial), out.shape.end());
  if (input.shape.size() == spatial + 1) shape.erase(shape.begin());
  return with_shape(out, shape);
}

/// Input, weight and bias of those shapes.
Sample operands(const Shape& input, const Shape& weight, std::int64_t bias, bool gradient = true,
                const DTypes& only = {}) {
  Sample s{{uniform(input, -2, 2), uniform(weight, -2, 2, 2)}, gradient, only};
  if (bias) s.inputs.emplace_back(uniform({bias}, -2, 2, 3));
  return s;
}

Row conv_row(const char* name) {
  Row r = gradient_row_of(name, "", kFloats);
  r.tolerance = 10;
  r.absolute = 40;  // sums cancel
  r.exact_layouts = false;
  r.refuses_others = false;
  return r;
}

using Conv = std::function<Tensor(const Tensor& x, const Tensor& w, const Tensor& b, const Settings& s)>;

void add_case(Row& r, const std::string& name, std::vector<Sample> samples, const Conv& fn, const Settings& s,
              std::size_t spatial) {
  r.cases.push_back(case_of(
      name, std::move(samples), [=](const Tensors& x) { return fn(x[0], x[1], x.size() > 2 ? x[2] : Tensor(), s); },
      [=](const Arrays& in) { return convolved(in[0], in[1], in.size() > 2 ? &in[2] : nullptr, s, spatial); }));
}

void add_plain() {
  const Conv fns[] = {[](const Tensor& x, const Tensor& w, const Tensor& b, const Settings& s) {
                        return conv1d(x, w, b, s.stride, s.padding, s.dilation, s.groups);
                      },
                      [](const Tensor& x, const Tensor& w, const Tensor& b, const Settings& s) {
                        return conv2d(x, w, b, s.stride, s.padding, s.dilation, s.groups);
                      },
                      [](const Tensor& x, const Tensor& w, const Tensor& b, const Settings& s) {
                        return conv3d(x, w, b, s.stride, s.padding, s.dilation, s.groups);
                      }};
  const char* names[] = {"conv1d", "conv2d", "conv3d"};
  for (std::size_t n = 1; n <= 3; ++n) {
    Row r = conv_row(names[n - 1]);
    const Conv& fn = fns[n - 1];
    auto shape = [&](Shape lead, std::int64_t size) {
      lead.insert(lead.end(), n, size);
      return lead;
    };
    const std::int64_t small = n == 3 ? 3 : 4;
    add_case(r, "",
             {operands(shape({2, 1}, small), shape({2, 1}, 2), 2), operands(shape({2}, small), shape({2, 2}, 3), 0),
              operands(shape({0, 2}, 4), shape({3, 2}, 2), 3, false),
              operands(shape({3, 5}, n == 3 ? 5 : 9), shape({7, 5}, 3), 7, false)},
             fn, {{1}, {0}, {1}, {}, 1, false}, n);
    add_case(
        r, "stride and padding",
        {operands(shape({1, 2}, small), shape({2, 2}, 3), 2), operands(shape({2, 3}, 7), shape({4, 3}, 3), 0, false)},
        fn, {{2}, {1}, {1}, {}, 1, false}, n);
    add_case(
        r, "dilated groups",
        {operands(shape({1, 2}, small), shape({4, 1}, 2), 4), operands(shape({2, 4}, 6), shape({6, 2}, 2), 6, false)},
        fn, {{1}, {1}, {2}, {}, 2, false}, n);
    add_case(
        r, "kernel of one",
        {operands(shape({2, 3}, 2), shape({2, 3}, 1), 2), operands(shape({3, 17}, 5), shape({19, 17}, 1), 0, false)},
        fn, {{1}, {0}, {1}, {}, 1, false}, n);
    add_case(r, "depthwise", {operands(shape({1, 3}, 3), shape({3, 1}, 2), 3)}, fn, {{1}, {1}, {1}, {}, 3, false}, n);
    add_case(r, "wide depthwise", {operands(shape({2, 17}, 5), shape({17, 1}, 3), 17, false)}, fn,
             {{1}, {1}, {1}, {}, 17, false}, n);
    const Shape x = shape({1, 3}, 5), w = shape({2, 3}, 2), big = shape({2, 3}, 6), wide = shape({2, 4}, 2);
    const Settings plain{{1}, {0}, {1}, {}, 1, false}, halves{{1}, {0}, {1}, {}, 2, false},
        still{{0}, {0}, {1}, {}, 1, false};
    r.refusals = {{"other channels", [=] { fn(ones(x), ones(wide), {}, plain); }, "to have 4 channels, but got 3"},
                  {"a kernel larger than the input", [=] { fn(ones(x), ones(big), {}, plain); },
                   "can't be greater than actual input size"},
                  {"groups that do not divide", [=] { fn(ones(x), ones(w), {}, halves); }, "Given groups=2"},
                  {"no stride", [=] { fn(ones(x), ones(w), {}, still); }, "non-positive stride"},
                  {"a bias of another size", [=] { fn(ones(x), ones(w), ones({3}), plain); }, "2 elements"},
                  {"another dtype", [=] { fn(ones(x), ones(w, kDouble), {}, plain); }, "should be the same"}};
    add_row(r);
  }
  Row r = conv_row("convolution");
  auto direct = [](const Tensor& x, const Tensor& w, const Tensor& b, const Settings& s) {
    return convolution(x, w, b, s.stride, s.padding, s.dilation, s.transposed, s.output_padding, s.groups);
  };
  add_case(r, "", {operands({2, 2, 4}, {2, 2, 3}, 2), operands({2, 2, 5}, {4, 2, 3}, 0)}, direct,
           {{2}, {1}, {1}, {0}, 1, false}, 1);
  add_case(r, "sizes that differ by dim",
           {operands({1, 2, 4, 3}, {2, 2, 3, 2}, 2), operands({2, 2, 9, 7}, {3, 2, 3, 2}, 3, false)}, direct,
           {{2, 1}, {1, 0}, {1, 2}, {0, 0}, 1, false}, 2);
  add_case(r, "transposed", {operands({1, 2, 3, 2}, {2, 2, 3, 2}, 2)}, direct,
           {{2, 1}, {1, 0}, {1, 1}, {1, 0}, 1, true}, 2);
  add_row(r);
}

void add_transposed() {
  const Conv fns[] = {[](const Tensor& x, const Tensor& w, const Tensor& b, const Settings& s) {
                        return conv_transpose1d(x, w, b, s.stride, s.padding, s.output_padding, s.groups, s.dilation);
                      },
                      [](const Tensor& x, const Tensor& w, const Tensor& b, const Settings& s) {
                        return conv_transpose2d(x, w, b, s.stride, s.padding, s.output_padding, s.groups, s.dilation);
                      },
                      [](const Tensor& x, const Tensor& w, const Tensor& b, const Settings& s) {
                        return conv_transpose3d(x, w, b, s.stride, s.padding, s.output_padding, s.groups, s.dilation);
                      }};
  const char* names[] = {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"};
  for (std::size_t n = 1; n <= 3; ++n) {
    Row r = conv_row(names[n - 1]);
    const Conv& fn = fns[n - 1];
    auto shape = [&](Shape lead, std::int64_t size) {
      lead.insert(lead.end(), n, size);
      return lead;
    };
    add_case(r, "",
             {operands(shape({2, 1}, 3), shape({1, 2}, 2), 2), operands(shape({2}, 2), shape({2, 2}, 2), 0),
              operands(shape({3, 5}, n == 3 ? 3 : 7), shape({5, 4}, 3), 4, false)},
             fn, {{1}, {0}, {1}, {0}, 1, true}, n);
    add_case(r, "stride, padding, output padding",
             {operands(shape({1, 2}, 2), shape({2, 2}, 3), 2), operands(shape({2, 3}, 4), shape({3, 4}, 3), 0, false)},
             fn, {{2}, {1}, {1}, {1}, 1, true}, n);
    add_case(r, "dilated groups",
             {operands(shape({1, 2}, 2), shape({2, 2}, 2), 4), operands(shape({2, 4}, 3), shape({4, 3}, 2), 6, false)},
             fn, {{1}, {1}, {2}, {0}, 2, true}, n);
    const Shape x = shape({1, 3}, 5), w = shape({3, 2}, 2), wide = shape({4, 2}, 2);
    const Settings plain{{1}, {0}, {1}, {0}, 1, true}, padded{{1}, {0}, {1}, {1}, 1, true};
    r.refusals = {{"other channels", [=] { fn(ones(x), ones(wide), {}, plain); }, "to have 4 channels, but got 3"},
                  {"output padding not below stride", [=] { fn(ones(x), ones(w), {}, padded); },
                   "output padding must be smaller"}};
    add_row(r);
  }
}

/// The two gradients: sums over the same products.
void add_backward() {
  Row r = conv_row("convolution_backward_input");
  Row w = conv_row("convolution_backward_weight");
  struct Kind {
    const char* name;
    Shape input, weight;
    Settings s;
  };
  const Kind kinds[] = {{"plain", {2, 2, 4, 3}, {2, 2, 3, 2}, {{2, 1}, {1, 0}, {1, 1}, {0, 0}, 1, false}},
                        {"transposed", {1, 2, 3, 2}, {2, 1, 3, 2}, {{2, 1}, {1, 0}, {1, 1}, {1, 0}, 2, true}}};
  for (const Kind& kind : kinds) {
    const Kind k = kind;
    const Shape x5 = five_dims(Array(k.input), 2).shape, w5 = five_dims(Array(k.weight), 2).shape;
    const Shape out = result_shape(x5, w5, k.s, 2);
    const Shape grad{out[0], out[1], out[3], out[4]};
    const Settings s = k.s;
    r.cases.push_back(case_of(
        k.name, {{{uniform(grad, -2, 2), uniform(k.weight, -2, 2, 2)}}},
        [=](const Tensors& x) {
          return convolution_backward_input(x[0], x[1], k.input, s.stride, s.padding, s.dilation, s.transposed,
                                            s.output_padding, s.groups);
        },
        [=](const Arrays& in) {
          const Array g = with_shape(in[0], out), weight = with_shape(in[1], w5);
          Array dx(x5);
          each_product(x5, w5, out, s, 2,
                       [&](const Shape& o, const Shape& i, const Shape& t) { dx.at(i) += g.at(o) * weight.at(t); });
          return with_shape(dx, k.input);
        }));
    w.cases.push_back(
        {k.name,
         {{{uniform(grad, -2, 2), uniform(k.input, -2, 2, 2)}}},
         [=](const Tensors& x) {
           auto [dw, db] = convolution_backward_weight(x[0], x[1], k.weight, s.stride, s.padding, s.dilation,
                                                       s.transposed, s.output_padding, s.groups, true);
           return Tensors{dw, db};
         },
         [=](const Arrays& in) {
           const Array g = with_shape(in[0], out), x = with_shape(in[1], x5);
           Array dw(w5);
           each_product(x5, w5, out, s, 2,
                        [&](const Shape& o, const Shape& i, const Shape& t) { dw.at(t) += g.at(o) * x.at(i); });
           const Array db = reduce(in[0], {0, 2, 3}, false,
                                   [](const Values& v) { return std::accumulate(v.begin(), v.end(), 0.0); });
           return Arrays{with_shape(dw, k.weight), db};
         },
         {},
         {}});
  }
  r.refusals = {
      {"sizes of no convolution",
       [] {
         convolution_backward_input(ones({1, 2, 3}), ones({2, 2, 2}), {1, 2, 9}, {1}, {0}, {1}, false, {0}, 1);
       },
       "do not belong to one convolution"}};
  w.refusals = {
      {"sizes of no convolution",
       [] {
         convolution_backward_weight(ones({1, 2, 3}), ones({1, 2, 9}), {2, 2, 2}, {1}, {0}, {1}, false, {0}, 1, true);
       },
       "do not belong to one convolution"}};
  add_row(r);
  add_row(w);
}

const bool added_conv = [] {
  add_plain();
  add_transposed();
  add_backward();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
