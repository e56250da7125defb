// Images: shuffles, columns of windows, resizing, sampling, unpooling.
#include "op_table/taken.h"

namespace athanor::op_table {

namespace {

Row image_row(const char* name, DTypes dtypes = kFloats) {
  Row r = gradient_row_of(name, "", std::move(dtypes));
  r.tolerance = 10;
  r.absolute = 10;
  r.exact_layouts = false;
  r.refuses_others = false;
  return r;
}

Sample image(const Shape& shape, bool gradient = true) {
  return {{uniform(shape, -3, 3)}, gradient && numel_of(shape) > 0};
}

void add_shuffles() {
  for (const bool up : {true, false}) {
    Row r = moving_row(up ? "pixel_shuffle" : "pixel_unshuffle", "", false);
    auto call = [=](const Tensor& x, std::int64_t f) { return up ? pixel_shuffle(x, f) : pixel_unshuffle(x, f); };
    const std::vector<Sample> samples =
        up ? std::vector<Sample>{image({2, 8, 2, 3}), image({4, 1, 2}), image({0, 4, 2, 2})}
           : std::vector<Sample>{image({2, 2, 4, 6}), image({1, 2, 4})};
    r.cases = {moving(
        "2", samples, [=](const Tensors& x) { return call(x[0], 2); },
        [=](const Arrays& in) {
          Shape shape = in[0].shape;
          const std::size_t c = shape.size() - 3;
          shape[c] = up ? shape[c] / 4 : shape[c] * 4;
          for (const std::size_t d : {c + 1, c + 2}) shape[d] = up ? shape[d] * 2 : shape[d] / 2;
          return taken(in[0], shape, [=](Shape to) {
            Shape from = to;
            if (up) {
              from[c] = to[c] * 4 + to[c + 1] % 2 * 2 + to[c + 2] % 2;
              from[c + 1] /= 2;
              from[c + 2] /= 2;
            } else {
              from[c] = to[c] / 4;
              from[c + 1] = to[c + 1] * 2 + to[c] % 4 / 2;
              from[c + 2] = to[c + 2] * 2 + to[c] % 2;
            }
            return from;
          });
        })};
    r.refusals = {{"sizes that do not divide",
                   [=] {
                     call(ones({1, 3, 3, 3}), 2);
                   },
                   "divisible"},
                  {"a matrix",
                   [=] {
                     call(ones({4, 4}), 2);
                   },
                   "at least 3 dimensions"},
                  {"a factor of 0",
                   [=] {
                     call(ones({1, 4, 4, 4}), 0);
                   },
                   "positive"}};
    add_row(r);
  }
  Row r = moving_row("channel_shuffle", "", false);
  r.cases = {moving(
      "3", {image({2, 6, 2, 2}), image({1, 6, 3}), image({0, 6, 2, 2})},
      [](const Tensors& x) { return channel_shuffle(x[0], 3); },
      [](const Arrays& in) {
        return taken(in[0], in[0].shape, [](Shape to) {
          to[1] = to[1] % 3 * 2 + to[1] / 3;
          return to;
        });
      })};
  r.refusals = {{"channels that do not divide", [] { channel_shuffle(ones({1, 4, 2, 2}), 3); }, "divisible by groups"}};
  add_row(r);
}

struct Window {
  Shape kernel, dilation, padding, stride;
  std::int64_t count(std::size_t i, std::int64_t size) const {
    return (size + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1;
  }
};

/// Calls fn(place in the image or -1, place in the columns) for every tap of every window of (N, C, H, W).
void each_tap(const Shape& s, const Window& w, const std::function<void(std::int64_t, std::int64_t)>& fn) {
  const std::int64_t oh = w.count(0, s[2]), ow = w.count(1, s[3]);
  const Shape columns{s[0], s[1], w.kernel[0], w.kernel[1], oh, ow};
  for (std::int64_t i = 0; i < numel_of(columns); ++i) {
    const Shape at = index_of(i, columns);
    const std::int64_t y = at[4] * w.stride[0] - w.padding[0] + at[2] * w.dilation[0];
    const std::int64_t x = at[5] * w.stride[1] - w.padding[1] + at[3] * w.dilation[1];
    const bool inside = y >= 0 && y < s[2] && x >= 0 && x < s[3];
    fn(inside ? ((at[0] * s[1] + at[1]) * s[2] + y) * s[3] + x : -1, i);
  }
}

void add_columns() {
  const Window windows[] = {
      {{2, 3}, {1, 1}, {0, 0}, {1, 1}}, {{2, 2}, {2, 1}, {1, 2}, {2, 3}}, {{1, 1}, {1, 1}, {0, 0}, {2, 2}}};
  Row forth = moving_row("im2col", "", false), back = image_row("col2im");
  forth.exact_layouts = true;
  for (const Window& w : windows) {
    const std::string name = std::to_string(forth.cases.size());
    const Shape size{2, 2, 5, 4};
    const std::int64_t count = w.count(0, 5) * w.count(1, 4), rows = 2 * w.kernel[0] * w.kernel[1];
    forth.cases.push_back(moving(
        name, {image(size), image({0, 2, 5, 4})},
        [=](const Tensors& x) { return im2col(x[0], w.kernel, w.dilation, w.padding, w.stride); },
        [=](const Arrays& in) {
          Array out({in[0].shape[0], rows, count});
          each_tap(in[0].shape, w, [&](std::int64_t from, std::int64_t to) { out[to] = from < 0 ? 0 : in[0][from]; });
          return out;
        }));
    back.cases.push_back(case_of(
        name, {image({2, rows, count}), image({0, rows, count})},
        [=](const Tensors& x) {
          return col2im(x[0], {5, 4}, w.kernel, w.dilation, w.padding, w.stride);
        },
        [=](const Arrays& in) {
          Array out({in[0].shape[0], 2, 5, 4});
          each_tap(out.shape, w, [&](std::int64_t to, std::int64_t from) {
            if (to >= 0) out[to] += in[0][from];
          });
          return out;
        }));
  }
  const Window w = windows[0];
  forth.cases.push_back(moving(
      "without batch", {image({2, 5, 4})},
      [=](const Tensors& x) { return im2col(x[0], w.kernel, w.dilation, w.padding, w.stride); },
      [=](const Arrays& in) {
        Array out({12, 8});
        each_tap({1, 2, 5, 4}, w, [&](std::int64_t from, std::int64_t to) { out[to] = in[0][from]; });
        return out;
      }));
  forth.refusals = {{"windows that do not fit",
                     [] {
                       im2col(ones({1, 1, 2, 2}), 3, 1, 0, 1);
                     },
                     "do not fit"},
                    {"a matrix",
                     [] {
                       im2col(ones({2, 2}), 1, 1, 0, 1);
                     },
                     "Expected 3D or 4D"}};
  back.refusals = {{"columns that do not divide",
                    [] {
                      col2im(ones({1, 3, 4}), 3, 2, 1, 0, 1);
                    },
                    "divisible by the product"},
                   {"another number of windows",
                    [] {
                      col2im(ones({1, 4, 3}), 3, 2, 1, 0, 1);
                    },
                    "2 * 2 = 4, but got input.size(2)=3"}};
  add_row(forth);
  add_row(back);
}

/// For every place of a result of `out` along an axis of `in`: sources and weights.
using Taps =
    std::function<std::vector<std::pair<std::int64_t, double>>(std::int64_t o, std::int64_t in, std::int64_t out)>;

/// One axis after another.
Array resized(Array a, const Shape& size, const std::vector<Taps>& taps) {
  for (std::size_t d = 0; d < size.size(); ++d) {
    Shape shape = a.shape;
    shape[d + 2] = size[d];
    Array out(shape);
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      Shape at = index_of(i, shape);
      for (const auto& [from, weight] : taps[d](at[d + 2], a.shape[d + 2], size[d])) {
        Shape source = at;
        source[d + 2] = from;
        out[i] += weight * a.at(source);
      }
    }
    a = out;
  }
  return a;
}

double step_of(std::int64_t in, std::int64_t out, bool align, double scale) {
  if (align) return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
  return scale > 0 ? 1 / scale : static_cast<double>(in) / static_cast<double>(out);
}
Taps nearest_taps(double scale) {
  return [=](std::int64_t o, std::int64_t in, std::int64_t out) {
    const auto from =
        static_cast<std::int64_t>(std::floor(static_cast<double>(o) * step_of(in, out, false, scale) + 1e-6));
    return std::vector<std::pair<std::int64_t, double>>{{std::min(from, in - 1), 1.0}};
  };
}
Taps blending_taps(bool cubic, bool align, double scale) {
  return [=](std::int64_t o, std::int64_t in, std::int64_t out) {
    const double step = step_of(in, out, align, scale);
    double x = align ? step * static_cast<double>(o) : step * (static_cast<double>(o) + 0.5) - 0.5;
    if (!cubic) x = std::max(x, 0.0);
    std::vector<std::pair<std::int64_t, double>> taps;
    for (auto i = static_cast<std::int64_t>(std::floor(x)) - 2; i <= std::floor(x) + 3; ++i) {
      const double d = std::abs(x - static_cast<double>(i));
      double w = std::max(0.0, 1 - d);
      if (cubic)
        w = d <= 1 ? 1.25 * d * d * d - 2.25 * d * d + 1 : d < 2 ? -0.75 * (d * d * d - 5 * d * d + 8 * d - 4) : 0;
      taps.emplace_back(std::clamp<std::int64_t>(i, 0, in - 1), w);
    }
    return taps;
  };
}

using Scales = std::vector<double>;
std::optional<double> given(double s) { return s > 0 ? std::optional<double>(s) : std::nullopt; }

struct Size {
  Shape in, out;
  Scales scales;
};

void add_resizing() {
  const std::vector<Size> sizes1 = {
      {{2, 2, 5}, {8}, {0}}, {{2, 2, 5}, {3}, {0}}, {{1, 2, 4}, {1}, {0}}, {{2, 1, 5}, {11}, {2.3}}};
  const std::vector<Size> sizes2 = {{{2, 2, 3, 4}, {5, 7}, {0, 0}},
                                    {{1, 2, 5, 6}, {3, 2}, {0, 0}},
                                    {{1, 1, 3, 4}, {3, 9}, {0, 2.4}},
                                    {{1, 3, 4, 5}, {7, 3}, {0, 0}}};
  const std::vector<Size> sizes3 = {{{1, 2, 2, 3, 3}, {4, 2, 5}, {0, 0, 0}}, {{1, 1, 3, 2, 2}, {3, 4, 5}, {0, 0, 2.5}}};
  struct Kind {
    const char* name;
    std::size_t spatial;
    int filter;  ///< 0 nearest, 1 linear, 2 cubic
    std::function<Tensor(const Tensor&, const Size&, bool)> call;
  };
  const Kind kinds[] = {
      {"upsample_nearest1d", 1, 0,
       [](const Tensor& x, const Size& s, bool) { return upsample_nearest1d(x, s.out, given(s.scales[0])); }},
      {"upsample_nearest2d", 2, 0,
       [](const Tensor& x, const Size& s, bool) {
         return upsample_nearest2d(x, s.out, given(s.scales[0]), given(s.scales[1]));
       }},
      {"upsample_nearest3d", 3, 0,
       [](const Tensor& x, const Size& s, bool) {
         return upsample_nearest3d(x, s.out, given(s.scales[0]), given(s.scales[1]), given(s.scales[2]));
       }},
      {"upsample_linear1d", 1, 1,
       [](const Tensor& x, const Size& s, bool a) { return upsample_linear1d(x, s.out, a, given(s.scales[0])); }},
      {"upsample_bilinear2d", 2, 1,
       [](const Tensor& x, const Size& s, bool a) {
         return upsample_bilinear2d(x, s.out, a, given(s.scales[0]), given(s.scales[1]));
       }},
      {"upsample_trilinear3d", 3, 1,
       [](const Tensor& x, const Size& s, bool a) {
         return upsample_trilinear3d(x, s.out, a, given(s.scales[0]), given(s.scales[1]), given(s.scales[2]));
       }},
      {"upsample_bicubic2d", 2, 2, [](const Tensor& x, const Size& s, bool a) {
         return upsample_bicubic2d(x, s.out, a, given(s.scales[0]), given(s.scales[1]));
       }}};
  for (const Kind& k : kinds) {
    Row r = image_row(k.name, k.filter == 0 ? kAll : kFloats);
    r.refuses_others = k.filter > 0 && k.spatial != 2;  // bytes: tests/ops/interpolate_test.cpp
    for (const bool align : {false, true})
      for (const Size& s : k.spatial == 1 ? sizes1 : k.spatial == 2 ? sizes2 : sizes3) {
        if (align && k.filter == 0) continue;
        const auto call = k.call;
        const int filter = k.filter;
        Shape none = s.in;
        none[0] = 0;
        r.cases.push_back(case_of(
            std::to_string(r.cases.size()), {image(s.in), image(none)},
            [=](const Tensors& x) { return call(x[0], s, align); },
            [=](const Arrays& in) {
              std::vector<Taps> taps;
              for (const double scale : s.scales)
                taps.push_back(filter == 0 ? nearest_taps(scale) : blending_taps(filter == 2, align, scale));
              return resized(in[0], s.out, taps);
            }));
      }
    const auto call = k.call;
    const Size sound = k.spatial == 1 ? sizes1[0] : k.spatial == 2 ? sizes2[0] : sizes3[0];
    Size empty_out = sound, other = sound;
    empty_out.out[0] = 0;
    other.out.push_back(2);
    r.refusals = {
        {"a result without elements", [=] { call(ones(sound.in), empty_out, false); }, "should be greater than 0"},
        {"sizes of other dims", [=] { call(ones(sound.in), other, false); }, "It is expected output_size equals to"},
        {"a vector", [=] { call(ones({3}), sound, false); }, "data tensor expected"}};
    add_row(r);
  }
}

/// Where a coordinate ends up along an axis of n elements.
double padded(double x, std::int64_t n, std::int64_t padding, bool align) {
  if (padding == 0) return x;
  const double low = align ? 0 : -0.5, high = static_cast<double>(n) - (align ? 1 : 0.5);
  if (padding == 2) {
    while (high > low && (x < low || x > high)) x = x < low ? 2 * low - x : 2 * high - x;
    if (high == low) x = 0;
  }
  return std::clamp(x, 0.0, static_cast<double>(n - 1));
}

Array sampled(const Arrays& in, std::int64_t mode, std::int64_t padding, bool align) {
  const Array &image = in[0], &grid = in[1];
  const std::size_t spatial = image.shape.size() - 2;
  Shape shape{image.shape[0], image.shape[1]};
  for (std::size_t d = 0; d < spatial; ++d) shape.push_back(grid.shape[d + 1]);
  Array out(shape);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const Shape to = index_of(i, shape);
    Shape point{to[0]};
    point.insert(point.end(), to.begin() + 2, to.end());
    point.push_back(0);
    std::vector<double> x(spatial);
    for (std::size_t d = 0; d < spatial; ++d) {
      point.back() = static_cast<std::int64_t>(spatial - 1 - d);
      const auto n = static_cast<double>(image.shape[d + 2]);
      const double g = grid.at(point);
      x[d] = align ? (g + 1) / 2 * (n - 1) : ((g + 1) * n - 1) / 2;
      if (mode != 2) x[d] = padded(x[d], image.shape[d + 2], padding, align);
      if (mode == 1) x[d] = std::nearbyint(x[d]);
    }
    const Shape around(spatial, 6);
    for (std::int64_t k = 0; k < numel_of(around); ++k) {
      const Shape step = index_of(k, around);
      Shape from{to[0], to[1]};
      double w = 1;
      for (std::size_t d = 0; d < spatial; ++d) {
        const double at = std::floor(x[d]) + static_cast<double>(step[d] - 2), t = std::abs(x[d] - at);
        w *= mode == 2 ? (t <= 1  ? 1.25 * t * t * t - 2.25 * t * t + 1
                          : t < 2 ? -0.75 * (t * t * t - 5 * t * t + 8 * t - 4)
                                  : 0)
                       : std::max(0.0, 1 - t);
        from.push_back(static_cast<std::int64_t>(mode == 2 ? padded(at, image.shape[d + 2], padding, align) : at));
      }
      bool inside = true;
      for (std::size_t d = 0; d < spatial; ++d) inside = inside && from[d + 2] >= 0 && from[d + 2] < image.shape[d + 2];
      if (inside && w != 0) out[i] += w * image.at(from);
    }
  }
  return out;
}

void add_sampling() {
  Row r = image_row("grid_sampler");
  // Coordinates in half precision lie elsewhere.
  for (const std::int64_t mode : {0, 1, 2})
    for (const std::int64_t padding : {0, 1, 2})
      for (const bool align : {false, true}) {
        std::vector<Sample> samples = {
            {{uniform({2, 2, 3, 4}, -2, 2), uniform({2, 2, 3, 2}, -1.6, 1.6, 3)}, true, {kFloat, kDouble}}};
        samples.push_back(
            {{uniform({1, 2, 2, 3, 2}, -2, 2), uniform({1, 2, 2, 2, 3}, -1.6, 1.6, 4)}, true, {kFloat, kDouble}});
        samples.push_back({{uniform({2, 1, 2, 2}, -2, 2), Array({2, 0, 3, 2})}, false});
        samples.push_back(
            {{Array({1, 1, 2, 2}, {1, 2, 3, 4}), Array({1, 1, 3, 2}, {-0.9, -0.7, 0, 0.1, 0.6, 0.7})}, false});
        r.cases.push_back(case_of(
            std::to_string(mode) + " " + std::to_string(padding) + (align ? " align" : ""), samples,
            [=](const Tensors& x) { return grid_sampler(x[0], x[1], mode, padding, align); },
            [=](const Arrays& in) { return sampled(in, mode, padding, align); }));
      }
  r.absolute = 40;
  const Tensor x = ones({1, 1, 2, 2}), g = ones({1, 2, 2, 2});
  r.refusals = {{"another batch",
                 [=] {
                   grid_sampler(x, ones({2, 2, 2, 2}), 0, 0, false);
                 },
                 "same batch size"},
                {"coordinates too many",
                 [=] {
                   grid_sampler(x, ones({1, 2, 2, 3}), 0, 0, false);
                 },
                 "size 2 in last dimension"},
                {"two dtypes", [=] { grid_sampler(x, g.to(kDouble), 0, 0, false); }, "one floating dtype"}};
  add_row(r);

  r = image_row("affine_grid_generator");
  for (const bool align : {false, true})
    for (const Shape& size : {Shape{2, 1, 3, 4}, Shape{1, 2, 2, 3, 2}, Shape{1, 1, 1, 3}}) {
      const auto n = static_cast<std::int64_t>(size.size()) - 2;
      r.cases.push_back(case_of(
          std::to_string(r.cases.size()), {{{uniform({size[0], n, n + 1}, -1, 1)}}},
          [=](const Tensors& x) { return affine_grid_generator(x[0], size, align); },
          [=](const Arrays& in) {
            Shape shape{size[0]};
            shape.insert(shape.end(), size.begin() + 2, size.end());
            shape.push_back(n);
            Array out(shape);
            for (std::int64_t i = 0; i < out.numel(); ++i) {
              const Shape at = index_of(i, shape);
              double v = in[0].at({at[0], at.back(), n});
              for (std::int64_t k = 0; k < n; ++k) {
                const auto d = static_cast<std::size_t>(n - 1 - k);  // coordinate k belongs to that spatial dim
                const auto s = static_cast<double>(size[d + 2]), p = static_cast<double>(at[d + 1]);
                const double c = s == 1 ? 0 : align ? 2 * p / (s - 1) - 1 : (2 * p + 1) / s - 1;
                v += in[0].at({at[0], at.back(), k}) * c;
              }
              out[i] = v;
            }
            return out;
          }));
    }
  r.refusals = {{"matrices that do not fit",
                 [] {
                   affine_grid_generator(ones({1, 2, 2}), {1, 1, 2, 2}, false);
                 },
                 "Expected a batch of 2D"},
                {"a size of three",
                 [] {
                   affine_grid_generator(ones({1, 2, 3}), {1, 2, 2}, false);
                 },
                 "needs 4d (spatial) or 5d"}};
  add_row(r);
}

void add_unpooling() {
  for (const std::size_t spatial : {2U, 3U}) {
    Row r = moving_row(spatial == 2 ? "max_unpool2d" : "max_unpool3d", "", false);
    const Shape size = spatial == 2 ? Shape{3, 4} : Shape{2, 2, 3};
    const std::int64_t plane = numel_of(size);
    auto call = [=](const Tensor& x, const Tensor& i) {
      return spatial == 2 ? max_unpool2d(x, i, size) : max_unpool3d(x, i, size, {1, 1, 1}, {0, 0, 0});
    };
    Shape small{2, 2};
    for (std::size_t d = 0; d < spatial; ++d) small.push_back(d == 0 ? 2 : 1);
    Array places(small);
    for (std::int64_t i = 0; i < 8; ++i) {
      const std::int64_t half = i / 2;
      places[i] = static_cast<double>(i % 2 * 5 + half);
    }
    auto reference = [=](const Arrays& in) {
      Shape shape(in[0].shape.begin(), in[0].shape.end() - static_cast<std::ptrdiff_t>(spatial));
      const std::int64_t planes = numel_of(shape), each = in[0].numel() / std::max<std::int64_t>(planes, 1);
      shape.insert(shape.end(), size.begin(), size.end());
      Array out(shape);
      for (std::int64_t i = 0; i < in[0].numel(); ++i)
        out[i / each * plane + static_cast<std::int64_t>(in[1][i])] = in[0][i];
      return out;
    };
    Shape single(small.begin() + 1, small.end());
    r.cases = {moving(
        "",
        {{{uniform(small, -3, 3), Input(places, kLong)}},
         {{uniform(single, -3, 3),
           Input(Array(single, Values(places.values.begin(), places.values.begin() + 4)), kLong)}}},
        [=](const Tensors& x) { return call(x[0], x[1]); }, reference)};
    r.refusals = {
        {"indices of another shape", [=] { call(ones(small), zeros(single, kLong)); }, "same as that of the input"},
        {"an index outside the plane", [=] { call(ones(small), full(small, 99, kLong)); }, "out of bounds"},
        {"indices that are not int64", [=] { call(ones(small), ones(small)); }, "type int64"}};
    add_row(r);
  }
}

void add_fractional() {
  for (const std::size_t spatial : {2U, 3U}) {
    Row r = image_row(spatial == 2 ? "fractional_max_pool2d" : "fractional_max_pool3d", {kFloat, kDouble});
    r.result = value_and_index;
    const Shape in = spatial == 2 ? Shape{2, 2, 7, 6} : Shape{1, 2, 4, 5, 4},
                size = spatial == 2 ? Shape{3, 2} : Shape{2, 3, 1};
    const auto n = static_cast<std::int64_t>(spatial);
    auto call = [=](const Tensors& x) {
      const Tensor samples = x[1].to(x[0].dtype());
      auto [a, b] = spatial == 2 ? fractional_max_pool2d(x[0], {2, 2}, size, samples)
                                 : fractional_max_pool3d(x[0], {2, 2, 2}, size, samples);
      return Tensors{a, b};
    };
    r.cases = {{"",
                {{{distinct(in, 0.25), Input(uniform({in[0], in[1], n}, 0.05, 0.95, 3), kDouble)}}},
                call,
                [=](const Arrays& a) {
                  Shape shape{in[0], in[1]};
                  shape.insert(shape.end(), size.begin(), size.end());
                  Array out(shape), places(shape);
                  for (std::int64_t i = 0; i < out.numel(); ++i) {
                    const Shape at = index_of(i, shape);
                    Shape begin;
                    for (std::size_t d = 0; d < spatial; ++d) {
                      const auto room = static_cast<double>(in[d + 2] - 2);
                      const double u =
                          a[1].at({at[0], at[1],
                                   spatial == 2 ? 1 - static_cast<std::int64_t>(d) : static_cast<std::int64_t>(d)});
                      const double step = size[d] > 1 ? room / static_cast<double>(size[d] - 1) : 0;
                      begin.push_back(at[d + 2] == size[d] - 1
                                          ? in[d + 2] - 2
                                          : static_cast<std::int64_t>((static_cast<double>(at[d + 2]) + u) * step) -
                                                static_cast<std::int64_t>(u * step));
                    }
                    out[i] = -INFINITY;
                    const Shape taps(spatial, 2);
                    for (std::int64_t k = 0; k < numel_of(taps); ++k) {
                      const Shape tap = index_of(k, taps);
                      Shape from{at[0], at[1]};
                      std::int64_t place = 0;
                      for (std::size_t d = 0; d < spatial; ++d) {
                        from.push_back(begin[d] + tap[d]);
                        place = place * in[d + 2] + from.back();
                      }
                      if (a[0].at(from) <= out[i]) continue;
                      out[i] = a[0].at(from);
                      places[i] = static_cast<double>(place);
                    }
                  }
                  return Arrays{out, places};
                },
                {},
                {}}};
    r.refusals = {{"samples of another shape",
                   [=] {
                     call({ones(in), ones({in[0], in[1], n + 1})});
                   },
                   "Expected random_samples of shape"},
                  {"windows larger than the input",
                   [=] {
                     Shape tiny = in;
                     tiny[2] = 1;
                     call({ones(tiny), ones({in[0], in[1], n})});
                   },
                   "too large relative to input size"}};
    add_row(r);
  }
}

const bool added_vision = [] {
  add_shuffles();
  add_columns();
  add_resizing();
  add_sampling();
  add_unpooling();
  add_fractional();
  return true;
}();

}  // namespace

}  // namespace athanor::op_table
