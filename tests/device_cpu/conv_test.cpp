#include "athanor/ops/kernels/conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/conv_winograd.h"
#include "each_target.h"
#include "strided_array.h"

namespace athanor {
namespace {

using testing::StridedArray;
using testing::wrapped;
using Index = std::vector<std::int64_t>;

const View kNone{};

struct Case {
  int spatial;
  std::int64_t batch, in_channels, out_channels;
  Index size, kernel, stride, padding, dilation, output_padding;
  std::int64_t groups;
  bool transposed;
};

Case conv2d(std::int64_t n, std::int64_t c, std::int64_t k, std::int64_t h, std::int64_t w, std::int64_t r,
            std::int64_t stride = 1, std::int64_t pad = 0, std::int64_t dil = 1, std::int64_t groups = 1,
            bool transposed = false, std::int64_t out_pad = 0) {
  return {2, n, c, k, {h, w}, {r, r}, {stride, stride}, {pad, pad}, {dil, dil}, {out_pad, out_pad}, groups, transposed};
}

std::int64_t out_size(const Case& c, int e) {
  const std::int64_t reach = c.dilation[e] * (c.kernel[e] - 1);
  if (c.transposed) return (c.size[e] - 1) * c.stride[e] - 2 * c.padding[e] + reach + 1 + c.output_padding[e];
  return (c.size[e] + 2 * c.padding[e] - reach - 1) / c.stride[e] + 1;
}

Index shape(std::int64_t n, std::int64_t c, const Index& spatial) {
  Index s{n, c};
  s.insert(s.end(), spatial.begin(), spatial.end());
  return s;
}

/// Tensors of one case; orders other than row-major exercise strides.
struct Tensors {
  Index out_spatial;
  StridedArray in, weight, bias, out;
  ConvParams params;

  static Index out_of(const Case& c) {
    Index s;
    for (int e = 0; e < c.spatial; ++e) s.push_back(out_size(c, e));
    return s;
  }
  static Index weight_shape(const Case& c) {
    return c.transposed ? shape(c.in_channels, c.out_channels / c.groups, c.kernel)
                        : shape(c.out_channels, c.in_channels / c.groups, c.kernel);
  }
  Tensors(DType t, const Case& c, bool channels_last, std::int64_t gap = 0)
      : out_spatial(out_of(c)),
        in(t, shape(c.batch, c.in_channels, c.size), order(c.spatial, channels_last), gap),
        weight(t, weight_shape(c), order(c.spatial, channels_last), gap),
        bias(t, {c.out_channels}),
        out(t, shape(c.batch, c.out_channels, out_spatial), order(c.spatial, channels_last), gap) {
    in.fill(1), weight.fill(2), bias.fill(3), out.fill(4);
    params.spatial = c.spatial;
    params.groups = c.groups;
    params.transposed = c.transposed;
    for (int e = 0; e < c.spatial; ++e) {
      params.stride[e] = c.stride[e];
      params.padding[e] = c.padding[e];
      params.dilation[e] = c.dilation[e];
      params.output_padding[e] = c.output_padding[e];
    }
  }
  static std::vector<int> order(int spatial, bool channels_last) {
    if (!channels_last) return {};
    std::vector<int> o{0};
    for (int e = 0; e < spatial; ++e) o.push_back(2 + e);
    o.push_back(1);
    return o;
  }
};

/// A row-major array of doubles with the shape of another.
struct Plain {
  explicit Plain(const StridedArray& like)
      : shape(like.sizes()),
        value(static_cast<std::size_t>(
            std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()))) {}
  std::size_t place(const Index& i) const {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < i.size(); ++d) at = at * shape[d] + i[d];
    return static_cast<std::size_t>(at);
  }
  double& operator[](const Index& i) { return value[place(i)]; }
  Index shape;
  std::vector<double> value;
};

Plain copy_of(const StridedArray& array) {
  Plain copy(array);
  array.each_index([&](const Index& i) { copy[i] = array.at(i); });
  return copy;
}

std::size_t plane(const Index& shape) {
  std::int64_t n = 1;
  for (std::size_t d = 2; d < shape.size(); ++d) n *= shape[d];
  return static_cast<std::size_t>(n);
}

/// Calls fn(in, weight, out) with the places in Plain arrays of the factors of every product of the convolution.
template <class F>
void each_product(const Case& c, const Tensors& x, F&& fn) {
  const std::int64_t in_group = c.in_channels / c.groups, out_group = c.out_channels / c.groups;
  // For a transposed convolution the roles of in and out swap.
  const Plain from(c.transposed ? x.out : x.in), to(c.transposed ? x.in : x.out), weight(x.weight);
  const std::int64_t to_group = c.transposed ? in_group : out_group, from_group = c.transposed ? out_group : in_group;
  const std::size_t from_plane = plane(from.shape), taps = plane(weight.shape);
  Index i(from.shape.size()), w(i.size());
  (c.transposed ? x.in : x.out).each_index([&](const Index& o) {
    const std::size_t here = to.place(o);
    i[0] = o[0], i[1] = o[1] / to_group * from_group;
    w[0] = o[1], w[1] = 0;
    for (std::size_t tap = 0; tap < taps; ++tap) {
      bool inside = true;
      for (std::int64_t e = c.spatial - 1, rest = static_cast<std::int64_t>(tap); e >= 0; rest /= c.kernel[e--]) {
        w[2 + e] = rest % c.kernel[e];
        i[2 + e] = o[2 + e] * c.stride[e] - c.padding[e] + w[2 + e] * c.dilation[e];
        inside = inside && i[2 + e] >= 0 && i[2 + e] < from.shape[2 + e];
      }
      if (!inside) continue;
      std::size_t there = from.place(i), factor = weight.place(w);
      for (std::int64_t ch = 0; ch < from_group; ++ch, there += from_plane, factor += taps)
        c.transposed ? fn(here, factor, there) : fn(there, factor, here);
    }
  });
}

void expect_equal(StridedArray& got, Plain& want, DType t, double terms, const char* what) {
  ASSERT_TRUE(got.margins_intact()) << what;
  const double rounding = t == DType::Half ? 5e-4 : t == DType::BFloat16 ? 4e-3 : t == DType::Float ? 6e-8 : 1e-15;
  got.each_index([&](const Index& i) {
    if (is_integral(t))
      ASSERT_EQ(got.at(i), wrapped(static_cast<std::int64_t>(want[i]), t)) << what;
    else
      ASSERT_NEAR(got.at(i), want[i],
                  2 * rounding * (std::fabs(want[i]) + .01) + (t == DType::Double ? 1e-15 : 2e-7) * (8 + terms))
          << what;
  });
}

void check(DType t, const Case& c, bool channels_last = false, std::int64_t gap = 0, Epilogue epilogue = Epilogue::None,
           bool with_bias = true) {
  std::string text = std::to_string(c.spatial) + "d " + dtype_name(t) + (channels_last ? " channels-last" : "");
  for (const Index* v : {&c.size, &c.kernel, &c.stride, &c.padding, &c.dilation}) detail::append(text += " ", *v);
  SCOPED_TRACE(text + " channels " + std::to_string(c.in_channels) + "," + std::to_string(c.out_channels) + " groups " +
               std::to_string(c.groups) + (c.transposed ? " transposed" : ""));
  Tensors x(t, c, channels_last, gap);

  const Plain in = copy_of(x.in), weight = copy_of(x.weight), gradient = copy_of(x.out);
  Plain y(x.out);
  if (with_bias) x.out.each_index([&](const Index& i) { y[i] = x.bias.at({i[1]}); });
  each_product(c, x, [&](std::size_t i, std::size_t w, std::size_t o) { y.value[o] += in.value[i] * weight.value[w]; });
  if (epilogue == Epilogue::Relu)
    for (double& v : y.value) v = std::max(v, 0.0);
  const double terms = static_cast<double>(std::max(c.in_channels, c.out_channels) * c.kernel[0] * c.kernel[0]);
  StridedArray out = x.out;
  conv_forward_kernel.get(kCPU)(out.view(), x.in.view(), x.weight.view(), with_bias ? x.bias.view() : kNone, x.params,
                                epilogue);
  expect_equal(out, y, t, terms, "forward");

  Plain dx(x.in), dw(x.weight), db(x.bias);
  each_product(c, x, [&](std::size_t i, std::size_t w, std::size_t o) {
    dx.value[i] += gradient.value[o] * weight.value[w];
    dw.value[w] += gradient.value[o] * in.value[i];
  });
  x.out.each_index([&](const Index& o) { db[{o[1]}] += x.out.at(o); });
  StridedArray din = x.in;
  conv_backward_input_kernel.get(kCPU)(din.view(), x.out.view(), x.weight.view(), x.params);
  expect_equal(din, dx, t, terms, "gradient of the input");
  StridedArray dweight = x.weight, dbias = x.bias;
  conv_backward_weight_kernel.get(kCPU)(dweight.view(), with_bias ? dbias.view() : kNone, x.out.view(), x.in.view(),
                                        x.params, kNone);
  const double positions = static_cast<double>(x.out.values().size());
  expect_equal(dweight, dw, t, positions, "gradient of the weight");
  if (!channels_last && gap == 0 && !is_half(t)) {
    StridedArray sum = x.weight;
    conv_backward_weight_kernel.get(kCPU)(sum.view(), kNone, x.out.view(), x.in.view(), x.params, sum.view());
    Plain total = dw;
    x.weight.each_index([&](const Index& i) { total[i] += x.weight.at(i); });
    expect_equal(sum, total, t, positions, "gradient added to another");
  }
  if (with_bias) expect_equal(dbias, db, t, positions, "gradient of the bias");
}

constexpr DType kAll[] = {DType::Float, DType::Double, DType::BFloat16, DType::Half, DType::Byte,
                          DType::Char,  DType::Short,  DType::Int,      DType::Long};

TEST(Conv, EveryDtype) {
  for (DType t : kAll) {
    check(t, conv2d(2, 3, 5, 9, 11, 3, 1, 1));
    check(t, conv2d(2, 4, 6, 9, 8, 3, 2, 1, 1, 2), true);
    check(t, conv2d(2, 4, 6, 5, 6, 3, 2, 1, 1, 2, true, 1));
  }
}

TEST(Conv, StridesPaddingDilationGroups) {
  for (std::int64_t r : {1, 2, 3, 5})
    for (std::int64_t stride : {1, 2, 3})
      for (std::int64_t pad : {0, 1, 3})
        for (std::int64_t dil : {1, 2})
          for (std::int64_t groups : {1, 2}) {
            if (dil * (r - 1) + 1 > 8 + 2 * pad) continue;
            check(DType::Float, conv2d(2, 4, 6, 8, 13, r, stride, pad, dil, groups));
          }
}

TEST(Conv, TransposedWithStridesAndOutputPadding) {
  for (std::int64_t r : {1, 2, 3, 4})
    for (std::int64_t stride : {1, 2, 3})
      for (std::int64_t pad : {0, 1})
        for (std::int64_t out_pad : {0, 1})
          for (std::int64_t dil : {1, 2}) {
            const Case c = conv2d(2, 4, 6, 5, 7, r, stride, pad, dil, 2, true, out_pad);
            if (out_size(c, 0) < 1 || (out_pad >= stride && out_pad >= dil)) continue;
            check(DType::Float, c);
          }
}

TEST(Conv, OneAndThreeDimensions) {
  for (DType t : {DType::Float, DType::Double, DType::Int}) {
    check(t, {1, 2, 3, 4, {50}, {7}, {2}, {3}, {1}, {0}, 1, false});
    check(t, {1, 2, 3, 4, {20}, {4}, {3}, {1}, {2}, {1}, 1, true});
    check(t, {3, 2, 2, 3, {4, 5, 6}, {3, 2, 3}, {1, 2, 1}, {1, 0, 2}, {1, 1, 2}, {0, 0, 0}, 1, false});
    check(t, {3, 1, 2, 3, {3, 4, 3}, {2, 3, 2}, {2, 1, 2}, {0, 1, 1}, {1, 2, 1}, {1, 0, 0}, 1, true});
  }
}

TEST(Conv, VolumesOfMiddlingSize) {
  for (const Case& c : {Case{3, 2, 1, 8, {10, 11, 12}, {3, 4, 3}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}, {0, 0, 0}, 1, false},
                        {3, 2, 3, 20, {9, 10, 8}, {3, 3, 2}, {2, 2, 2}, {1, 1, 0}, {1, 1, 1}, {0, 0, 0}, 1, false},
                        {3, 1, 16, 17, {6, 7, 8}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, 1, false},
                        {3, 2, 20, 5, {6, 9, 7}, {2, 3, 3}, {2, 1, 3}, {0, 1, 1}, {1, 1, 1}, {0, 0, 0}, 1, false},
                        {3, 2, 9, 16, {7, 8, 7}, {2, 2, 3}, {1, 1, 1}, {1, 1, 2}, {2, 2, 2}, {0, 0, 0}, 1, false},
                        {3, 1, 15, 24, {4, 8, 8}, {4, 1, 2}, {2, 1, 2}, {3, 0, 1}, {1, 1, 1}, {0, 0, 0}, 1, false},
                        {3, 4, 33, 16, {1, 9, 9}, {3, 1, 1}, {1, 1, 1}, {1, 0, 0}, {1, 1, 1}, {0, 0, 0}, 1, false}})
    for (bool last : {false, true}) {
      check(DType::Float, c, last);
      Case transposed = c;
      transposed.transposed = true;
      check(DType::Float, transposed, last);
    }
}

TEST(Conv, OddSizesAndTails) {
  for (const Case& c : {conv2d(1, 1, 1, 1, 1, 1), conv2d(3, 1, 32, 13, 28, 3), conv2d(2, 17, 33, 7, 7, 3, 1, 1),
                        conv2d(1, 10, 20, 12, 12, 5), conv2d(5, 3, 7, 1, 40, 1), conv2d(2, 40, 15, 17, 6, 3, 1, 2),
                        conv2d(33, 8, 16, 2, 2, 2), conv2d(2, 30, 35, 14, 14, 1), conv2d(1, 3, 8, 30, 27, 7, 2, 3)})
    for (bool last : {false, true}) check(DType::Float, c, last);
}

TEST(Conv, KernelsThatReachBeyondThePlane) {
  for (DType t : {DType::Float, DType::Double, DType::Half, DType::Int})
    for (bool last : {false, true})
      for (std::int64_t r : {3, 5})
        for (std::int64_t stride : {1, 2, 3})
          for (std::int64_t dil : {1, 2}) {
            check(t, conv2d(3, 4, 6, 1, 1, r, stride, dil * (r / 2), dil), last);
            check(t, conv2d(3, 4, 6, 2, 1, r, stride, dil * (r / 2), dil, 2), last);
            check(t, conv2d(2, 4, 6, 1, 1, r, 1, dil * (r / 2), dil, 1, true), last);
          }
  check(DType::Float, {3, 2, 3, 4, {1, 2, 3}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, 1, false});
  check(DType::Float, {1, 2, 3, 4, {2}, {7}, {2}, {5}, {1}, {0}, 1, false});
}

TEST(Conv, ManyChannelsSpanSeveralBlocks) {
  check(DType::Float, conv2d(2, 150, 20, 6, 7, 3, 1, 1));
  check(DType::Float, conv2d(1, 20, 90, 10, 10, 3));
  check(DType::Half, conv2d(1, 130, 8, 6, 6, 3));
}

TEST(Conv, LargePlanesAreCutIntoStrips) {
  check(DType::Float, conv2d(1, 20, 2, 110, 90, 3, 1, 1));
  check(DType::Float, conv2d(1, 12, 2, 130, 110, 3, 2, 2));
  check(DType::Float, conv2d(1, 3, 12, 60, 56, 3, 2, 1, 1, 1, true, 1));
}

TEST(Conv, LargeActivationsComeBackFromBlocks) {
  check(DType::Float, conv2d(2, 3, 64, 196, 196, 2, 2));      // the output
  check(DType::Float, conv2d(1, 32, 16, 200, 200, 2, 2));     // the input's gradient
  check(DType::BFloat16, conv2d(1, 16, 64, 190, 190, 1, 1));  // in two bytes each
}

TEST(Conv, ThreeByThreeWithManyChannels) {
  for (bool last : {false, true})
    for (std::int64_t pad : {0, 1, 2}) {
      check(DType::Float, conv2d(2, 16, 17, 8, 9, 3, 1, pad), last);
      check(DType::Float, conv2d(1, 33, 40, 7, 6, 3, 1, pad), last);
      check(DType::Float, conv2d(1, 20, 70, 6, 17, 3, 1, pad), last);
    }
  check(DType::Float, conv2d(3, 40, 36, 7, 7, 3, 1, 1, 1, 2));
  check(DType::Float, conv2d(2, 16, 16, 6, 6, 3, 1, 1, 1, 1, true));
  check(DType::Float, conv2d(1, 16, 16, 40, 50, 3, 1, 1), false, 0, Epilogue::Relu);
}

TEST(Conv, ThreeByThreeErrorStaysSmall) {
  // Winograd's algorithm must stay within 1e-5 of the result's magnitude, and near what the direct sum loses.
  const Case c = conv2d(2, 64, 32, 14, 14, 3, 1, 1);
  Tensors x(DType::Float, c, false);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (StridedArray* a : {&x.in, &x.weight, &x.out}) a->each_index([&](const Index& i) { a->put(i, normal(random)); });
  const Plain in = copy_of(x.in), weight = copy_of(x.weight), gradient = copy_of(x.out);
  Plain y(x.out), dx(x.in), dw(x.weight);
  each_product(c, x, [&](std::size_t i, std::size_t w, std::size_t o) {
    y.value[o] += in.value[i] * weight.value[w];
    dx.value[i] += gradient.value[o] * weight.value[w];
    dw.value[w] += gradient.value[o] * in.value[i];
  });
  StridedArray out = x.out, din = x.in, dweight = x.weight;
  conv_forward_kernel.get(kCPU)(out.view(), x.in.view(), x.weight.view(), kNone, x.params, Epilogue::None);
  conv_backward_input_kernel.get(kCPU)(din.view(), x.out.view(), x.weight.view(), x.params);
  conv_backward_weight_kernel.get(kCPU)(dweight.view(), kNone, x.out.view(), x.in.view(), x.params, kNone);
  auto expect_close = [](StridedArray& got, Plain& want) {
    double square = 0, error = 0, top = 0, worst = 0;
    got.each_index([&](const Index& i) {
      const double e = std::fabs(got.at(i) - want[i]);
      square += want[i] * want[i], error += e * e;
      top = std::max(top, std::fabs(want[i])), worst = std::max(worst, e);
    });
    EXPECT_LT(std::sqrt(error / square), 5e-6);
    EXPECT_LT(worst / top, 1e-5);
  };
  expect_close(out, y);
  expect_close(din, dx);
  expect_close(dweight, dw);
}

TEST(Conv, WithoutWinogradANanReachesItsOwnOutputsOnly) {
  const auto nans = [] {
    Tensors x(DType::Float, conv2d(1, 16, 16, 14, 14, 3, 1, 1), false);
    for (StridedArray* a : {&x.in, &x.weight}) a->each_index([&](const Index& i) { a->put(i, 1); });
    x.in.put({0, 3, 6, 6}, std::numeric_limits<double>::quiet_NaN());
    conv_forward_kernel.get(kCPU)(x.out.view(), x.in.view(), x.weight.view(), kNone, x.params, Epilogue::None);
    int count = 0;
    x.out.each_index([&](const Index& i) { count += std::isnan(x.out.at(i)) ? 1 : 0; });
    return count;
  };
  ASSERT_TRUE(detail::winograd_enabled());
  const int with = nans();
  detail::set_winograd_enabled(false);
  const int without = nans();
  detail::set_winograd_enabled(true);
  EXPECT_GT(with, 16 * 9);
  EXPECT_EQ(without, 16 * 9);
}

TEST(Conv, FewChannels) {
  for (const Case& c :
       {conv2d(5, 1, 10, 28, 28, 5), conv2d(6, 10, 20, 12, 12, 5), conv2d(4, 1, 32, 15, 28, 3),
        conv2d(4, 3, 7, 9, 37, 3, 1, 1), conv2d(17, 4, 3, 4, 5, 2), conv2d(4, 5, 6, 16, 11, 3, 2, 1),
        conv2d(4, 5, 6, 16, 11, 3, 3, 2, 2), conv2d(4, 6, 9, 13, 12, 5, 1, 4, 2, 3), conv2d(5, 2, 33, 10, 9, 4, 1, 3),
        conv2d(4, 8, 3, 2, 70, 2, 1, 1), conv2d(4, 3, 4, 5, 5, 1), conv2d(4, 2, 3, 3, 4, 2, 1, 6)}) {
    check(DType::Float, c);
    check(DType::Float, c, false, 0, Epilogue::Relu, false);
    check(DType::Float, c, true);
    Case transposed = c;
    transposed.transposed = true;
    if (out_size(transposed, 0) > 0 && out_size(transposed, 1) > 0) check(DType::Float, transposed);
  }
}

TEST(Conv, InfinityStaysWithItsTapsWhereChannelsAreFew) {
  const Case c = conv2d(4, 2, 3, 9, 10, 3);
  Tensors x(DType::Float, c, false);
  x.in.put({1, 0, 8, 9}, std::numeric_limits<double>::infinity());
  conv_forward_kernel.get(kCPU)(x.out.view(), x.in.view(), x.weight.view(), x.bias.view(), x.params, Epilogue::None);
  x.out.each_index([&](const Index& i) {
    EXPECT_EQ(std::isfinite(x.out.at(i)), !(i[0] == 1 && i[2] == 6 && i[3] == 7)) << i[0] << i[1] << i[2] << i[3];
  });
  x.out.fill(4);
  x.out.put({3, 1, 0, 0}, std::numeric_limits<double>::infinity());
  conv_backward_input_kernel.get(kCPU)(x.in.view(), x.out.view(), x.weight.view(), x.params);
  x.in.each_index([&](const Index& i) {
    EXPECT_EQ(std::isfinite(x.in.at(i)), !(i[0] == 3 && i[2] < 3 && i[3] < 3)) << i[0] << i[1] << i[2] << i[3];
  });
}

TEST(Conv, LargeStridedAndPointwise) {
  for (bool last : {false, true})
    for (const Case& c :
         {conv2d(2, 64, 48, 24, 24, 1), conv2d(2, 80, 64, 12, 11, 1), conv2d(2, 40, 64, 32, 31, 1, 2),
          conv2d(2, 64, 96, 14, 15, 1, 2), conv2d(1, 32, 48, 25, 24, 3, 2, 1), conv2d(2, 3, 64, 41, 40, 7, 2, 3),
          conv2d(24, 1, 32, 28, 27, 3), conv2d(4, 5, 17, 40, 39, 3, 1, 1), conv2d(1, 32, 64, 19, 18, 3, 2, 2, 2, 2),
          conv2d(1, 24, 40, 14, 13, 5, 1, 2)}) {
      check(DType::Float, c, last);
      check(DType::BFloat16, c, last);
    }
  check(DType::Float, conv2d(1, 40, 32, 13, 12, 3, 2, 1, 1, 1, true, 1));
  check(DType::Float, conv2d(2, 64, 48, 24, 24, 1), false, 1);
  check(DType::Float, conv2d(2, 64, 48, 24, 24, 1), false, 0, Epilogue::Relu, false);
}

TEST(Conv, StridedAndFewChannelsOfMiddlingSize) {
  for (const Case& c :
       {conv2d(4, 1, 8, 28, 27, 5, 2, 1), conv2d(3, 3, 32, 17, 16, 4, 2, 1), conv2d(2, 3, 40, 20, 21, 3, 1, 1),
        conv2d(3, 3, 20, 15, 16, 5, 1, 2), conv2d(6, 4, 10, 19, 18, 3, 2), conv2d(6, 5, 17, 19, 18, 4, 3, 1),
        conv2d(5, 6, 9, 20, 19, 5, 2, 2), conv2d(3, 9, 12, 19, 18, 3, 2, 1), conv2d(3, 16, 1, 27, 28, 5, 2, 2),
        conv2d(2, 20, 24, 13, 12, 2, 2), conv2d(5, 33, 17, 17, 18, 1, 2), conv2d(2, 16, 13, 13, 14, 4),
        conv2d(1, 32, 16, 14, 13, 3, 1, 2, 2), conv2d(1, 15, 30, 12, 11, 5, 1, 2), conv2d(2, 31, 16, 16, 15, 3, 2, 4)})
    for (bool last : {false, true}) {
      check(DType::Float, c, last);
      Case transposed = c;
      transposed.transposed = true;
      check(DType::Float, transposed, last);
    }
}

TEST(Conv, OneTapWithoutStrideOfAnyShape) {
  const int before = get_num_threads();
  for (int threads : {1, 3}) {
    set_num_threads(threads);
    for (const Case& c :
         {conv2d(3, 1, 1, 5, 4, 1), conv2d(20, 3, 2, 9, 8, 1), conv2d(1, 40, 9, 41, 40, 1), conv2d(1, 3, 5, 1, 1, 1),
          conv2d(18, 17, 16, 7, 6, 1), conv2d(5, 33, 5, 16, 1, 1), conv2d(3, 12, 36, 5, 6, 1, 1, 0, 1, 3),
          conv2d(2, 48, 20, 1, 1, 1, 2), conv2d(17, 4, 80, 6, 6, 1)})
      for (bool transposed : {false, true})
        for (bool last : {false, true}) {
          Case one = c;
          one.transposed = transposed;
          check(DType::Float, one, last);
          check(DType::Double, one, last, 0, Epilogue::None, false);
        }
    for (const Case& c : {conv2d(2, 70, 66, 20, 21, 1), conv2d(1, 130, 64, 20, 21, 1),
                          conv2d(2, 64, 64, 24, 24, 1, 1, 0, 1, 2)})  // large enough for oneDNN, or a group of its own
      check(DType::Float, c);
    check(DType::Float, conv2d(3, 40, 24, 9, 10, 1), false, 1);
    check(DType::Float, conv2d(3, 40, 48, 9, 10, 1), true, 1);
    check(DType::Float, conv2d(3, 40, 48, 9, 10, 1), false, 0, Epilogue::Relu);
    check(DType::Half, conv2d(3, 20, 48, 9, 10, 1));
    check(DType::Float, {1, 3, 30, 7, {50}, {1}, {1}, {0}, {1}, {0}, 1, false});
    check(DType::Float, {3, 2, 7, 30, {4, 5, 6}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, 1, false});
  }
  set_num_threads(before);
}

TEST(Conv, OneTapThatSkipsPixels) {
  for (const Case& c : {conv2d(3, 20, 24, 9, 10, 1, 2), conv2d(2, 33, 17, 8, 7, 1, 3), conv2d(2, 66, 64, 48, 47, 1, 2),
                        conv2d(2, 12, 36, 5, 6, 1, 2, 0, 1, 3), conv2d(2, 9, 33, 132, 126, 1, 2)})
    for (bool last : {false, true}) {
      for (DType t : {DType::Float, DType::Double}) check(t, c, last);
      Case transposed = c;
      transposed.transposed = true;
      check(DType::Float, transposed, last);
    }
  for (DType t : kAll) check(t, conv2d(2, 7, 5, 4, 6, 1, 2), false, 1);
  check(DType::Float, {1, 1, 4, 3, {5}, {2}, {9}, {10}, {10}, {0}, 1, false});  // a window of padding alone remains
  check(DType::Float, {3, 2, 7, 30, {4, 5, 6}, {1, 1, 1}, {1, 2, 3}, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, 1, false}, true);
}

TEST(Conv, ImagesAreTheInnerDimensionOfOneProduct) {
  const int before = get_num_threads();
  testing::on_each_target([] {
    for (int threads : {1, 3}) {
      set_num_threads(threads);
      for (const Case& c : {conv2d(5, 40, 70, 7, 6, 1), conv2d(13, 40, 21, 3, 3, 1), conv2d(20, 66, 130, 9, 10, 1),
                            conv2d(2, 131, 140, 21, 20, 1), conv2d(9, 44, 60, 5, 5, 1, 1, 0, 1, 2)})
        for (DType t : {DType::Float, DType::Double}) check(t, c);
      check(DType::Float, conv2d(150, 24, 20, 4, 5, 1), false, 0, Epilogue::None, false);
    }
  });
  set_num_threads(before);
}

TEST(Conv, SmallImagesShareAProductAndItsSums) {
  const int before = get_num_threads();
  for (int threads : {1, 3}) {
    set_num_threads(threads);
    for (DType t : {DType::Float, DType::Double, DType::Int})
      for (const Case& c :
           {conv2d(7, 9, 66, 7, 7, 3, 2, 1), conv2d(5, 70, 67, 5, 4, 2, 2), conv2d(7, 8, 64, 4, 6, 3, 1, 1),
            conv2d(4, 64, 65, 5, 5, 4, 2, 1), conv2d(3, 130, 128, 3, 3, 3, 1, 1, 1, 2)})
        check(t, c);
    check(DType::Float, conv2d(7, 9, 66, 7, 7, 3, 2, 1), true);
    check(DType::Float, conv2d(7, 9, 66, 7, 7, 3, 2, 1), false, 1);
  }
  set_num_threads(before);
}

TEST(Conv, RowsOfStrideTwoAreSplitAtAnyWidthAndPadding) {
  for (std::int64_t width : {14, 15, 16, 17, 31, 32, 33, 50})
    for (std::int64_t r : {2, 3, 5})
      for (std::int64_t pad : {0, 1, 2, 4}) {
        check(DType::Float, conv2d(1, 2, 3, 6, width, r, 2, pad));
        check(DType::Int, conv2d(2, 1, 2, 5, width, r, 2, pad));
      }
  check(DType::Float, {1, 3, 2, 3, {70}, {5}, {2}, {3}, {1}, {0}, 1, false});
}

TEST(Conv, DilatedHalvesWhoseChannelsDoNotFillBlocks) {
  for (bool last : {false, true})
    for (const Case& c : {conv2d(2, 33, 32, 20, 19, 3, 1, 0, 2), conv2d(2, 40, 24, 17, 16, 3, 1, 1, 3),
                          conv2d(1, 66, 16, 22, 21, 2, 1, 2, 2), conv2d(2, 24, 33, 11, 16, 3, 1, 1, 2, 1, true)})
      check(DType::BFloat16, c, last);
}

TEST(Conv, Depthwise) {
  check(DType::Float, conv2d(2, 9, 9, 11, 12, 3, 1, 1, 1, 9));
  check(DType::Float, conv2d(2, 6, 12, 11, 12, 3, 2, 1, 1, 6));
}

TEST(Conv, GapsBetweenElements) {
  check(DType::Float, conv2d(2, 3, 5, 9, 11, 3, 1, 1), false, 1);
  check(DType::Float, conv2d(2, 3, 5, 9, 11, 3, 2, 1), true, 2);
}

TEST(Conv, WithoutBias) { check(DType::Float, conv2d(2, 3, 5, 9, 11, 3, 1, 1), false, 0, Epilogue::None, false); }

TEST(Conv, ReluEpilogue) {
  for (DType t : {DType::Float, DType::Half, DType::Int, DType::Long})
    for (bool last : {false, true}) check(t, conv2d(2, 3, 20, 9, 11, 3, 1, 1), last, 0, Epilogue::Relu);
}

TEST(Conv, OtherEpilogues) {
  const Case c = conv2d(2, 3, 20, 9, 11, 3, 1, 1);
  for (auto [e, f] : {std::pair{Epilogue::Tanh, +[](double v) { return std::tanh(v); }},
                      std::pair{Epilogue::Sigmoid, +[](double v) { return 1 / (1 + std::exp(-v)); }}}) {
    Tensors x(DType::Float, c, false);
    StridedArray plain = x.out;
    conv_forward_kernel.get(kCPU)(plain.view(), x.in.view(), x.weight.view(), x.bias.view(), x.params, Epilogue::None);
    conv_forward_kernel.get(kCPU)(x.out.view(), x.in.view(), x.weight.view(), x.bias.view(), x.params, e);
    x.out.each_index([&, f = f](const Index& i) { ASSERT_NEAR(x.out.at(i), f(plain.at(i)), 1e-6); });
  }
}

TEST(Conv, EmptyBatchGivesZeroGradients) {
  for (bool transposed : {false, true})
    for (DType t : {DType::Float, DType::Long}) {
      const Case c = conv2d(0, 4, 6, 8, 8, 3, 1, 1, 1, 2, transposed);
      Tensors x(t, c, false);
      conv_forward_kernel.get(kCPU)(x.out.view(), x.in.view(), x.weight.view(), x.bias.view(), x.params,
                                    Epilogue::None);
      conv_backward_input_kernel.get(kCPU)(x.in.view(), x.out.view(), x.weight.view(), x.params);
      conv_backward_weight_kernel.get(kCPU)(x.weight.view(), x.bias.view(), x.out.view(), x.in.view(), x.params, kNone);
      for (double v : x.weight.values()) ASSERT_EQ(v, 0);
      for (double v : x.bias.values()) ASSERT_EQ(v, 0);
    }
}

TEST(Conv, PaddingBeyondTheKernelGivesBias) {
  // Most of the output sees only padding; the gradient of the input crops.
  check(DType::Float, conv2d(1, 2, 3, 4, 4, 2, 1, 5));
  check(DType::Float, conv2d(1, 2, 3, 4, 4, 1, 2, 3));
}

TEST(Conv, GroupsAreRightOnSeveralThreadsWhereSomePartsHaveNoTaps) {
  // Both dilated and strided, the input's gradient has one part of four with all taps, packed from rows in order.
  const int before = get_num_threads();
  set_num_threads(2);
  check(DType::Double, conv2d(1, 2, 8192, 9, 9, 3, 2, 0, 2, 2));
  set_num_threads(before);
}

TEST(Conv, SameBitsOnAnyNumberOfThreads) {
  const int before = get_num_threads();
  // Shapes of our own kernels; oneDNN's results repeat on the same number only.
  for (const Case& c :
       {conv2d(20, 1, 8, 20, 20, 3), conv2d(6, 16, 24, 20, 20, 5, 1, 2), conv2d(1, 24, 40, 30, 30, 3, 2, 1, 1, 2),
        conv2d(9, 16, 40, 10, 10, 3, 1, 1), conv2d(4, 12, 12, 16, 16, 5, 1, 2, 1, 3),
        conv2d(16, 40, 144, 8, 8, 2, 3, 0, 1, 2), conv2d(19, 20, 12, 9, 10, 1), conv2d(1, 40, 3, 40, 41, 1),
        conv2d(2, 70, 67, 20, 22, 1), conv2d(20, 66, 40, 9, 10, 1), conv2d(3, 20, 24, 9, 10, 1, 2)})
    for (DType t : {DType::Float, DType::Double}) {
      Tensors x(t, c, false);
      std::vector<std::vector<char>> first;
      for (int threads : {1, 2, 7}) {
        set_num_threads(threads);
        StridedArray out = x.out, din = x.in, dw = x.weight, db = x.bias;
        conv_forward_kernel.get(kCPU)(out.view(), x.in.view(), x.weight.view(), x.bias.view(), x.params,
                                      Epilogue::None);
        conv_backward_input_kernel.get(kCPU)(din.view(), x.out.view(), x.weight.view(), x.params);
        conv_backward_weight_kernel.get(kCPU)(dw.view(), db.view(), x.out.view(), x.in.view(), x.params, kNone);
        const std::vector<std::vector<char>> now{out.bytes(), din.bytes(), dw.bytes(), db.bytes()};
        if (first.empty()) first = now;
        EXPECT_EQ(first, now) << threads << " threads";
      }
    }
  set_num_threads(before);
}

}  // namespace
}  // namespace athanor
