#include "numeric.h"

namespace athanor {
namespace {

using test::error_of;
using test::expect_close;
using test::gradcheck;
using test::gradgradcheck;
using test::list;
using test::values;

struct Geometry {
  std::vector<std::int64_t> input, weight, stride, padding, dilation, output_padding;
  std::int64_t groups = 1;
  bool transposed = false;
};

/// Row-major walk over `sizes`.
template <class F>
void each(const std::vector<std::int64_t>& sizes, F f) {
  std::vector<std::int64_t> at(sizes.size(), 0);
  std::int64_t n = 1;
  for (const auto s : sizes) n *= s;
  for (std::int64_t i = 0; i < n; ++i) {
    f(at);
    for (std::size_t d = sizes.size(); d-- > 0;) {
      if (++at[d] < sizes[d]) break;
      at[d] = 0;
    }
  }
}

std::size_t flat(const std::vector<std::int64_t>& at, const std::vector<std::int64_t>& sizes) {
  std::int64_t out = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) out = out * sizes[d] + at[d];
  return static_cast<std::size_t>(out);
}

/// The definition: every (input, kernel) pair that belongs to an output adds to it.
Tensor naive(const Tensor& input, const Tensor& weight, const Tensor& bias, const Geometry& g) {
  const std::size_t n = g.stride.size();
  const auto in = input.sizes().vec(), w = weight.sizes().vec();
  std::vector<std::int64_t> out{in[0], g.transposed ? w[1] * g.groups : w[0]};
  for (std::size_t d = 0; d < n; ++d) {
    const std::int64_t reach = g.dilation[d] * (w[d + 2] - 1) + 1;
    out.push_back(g.transposed ? (in[d + 2] - 1) * g.stride[d] - 2 * g.padding[d] + reach + g.output_padding[d]
                               : (in[d + 2] + 2 * g.padding[d] - reach) / g.stride[d] + 1);
  }
  const auto x = list(input), k = list(weight);
  const auto b = bias.defined() ? list(bias) : std::vector<double>(static_cast<std::size_t>(out[1]), 0.0);
  std::int64_t total = 1;
  for (const auto s : out) total *= s;
  std::vector<double> y(static_cast<std::size_t>(total));
  // "small" is the side with one entry per window position: output, or input if transposed.
  const auto& small = g.transposed ? in : out;
  const auto& large = g.transposed ? out : in;
  const std::int64_t small_per = small[1] / g.groups, large_per = large[1] / g.groups;
  std::vector<std::int64_t> kernel(w.begin() + 2, w.end());
  each(small, [&](const std::vector<std::int64_t>& s) {
    const std::int64_t group = s[1] / small_per;
    for (std::int64_t c = 0; c < large_per; ++c)
      each(kernel, [&](const std::vector<std::int64_t>& tap) {
        std::vector<std::int64_t> l{s[0], group * large_per + c};
        for (std::size_t d = 0; d < n; ++d) {
          const std::int64_t p = s[d + 2] * g.stride[d] - g.padding[d] + tap[d] * g.dilation[d];
          if (p < 0 || p >= large[d + 2]) return;
          l.push_back(p);
        }
        std::vector<std::int64_t> at{s[1], c};
        at.insert(at.end(), tap.begin(), tap.end());
        const double weight_value = k[flat(at, w)];
        if (g.transposed)
          y[flat(l, out)] += x[flat(s, in)] * weight_value;
        else
          y[flat(s, out)] += x[flat(l, in)] * weight_value;
      });
  });
  each(out, [&](const std::vector<std::int64_t>& at) { y[flat(at, out)] += b[static_cast<std::size_t>(at[1])]; });
  return tensor(y, kDouble).reshape(out);
}

Tensor run(const Tensor& x, const Tensor& w, const Tensor& b, const Geometry& g) {
  return convolution(x, w, b, g.stride, g.padding, g.dilation, g.transposed, g.output_padding, g.groups);
}

std::vector<Geometry> geometries() {
  return {
      {{2, 3, 7}, {4, 3, 3}, {1}, {0}, {1}, {0}},
      {{2, 4, 9}, {6, 2, 3}, {2}, {2}, {2}, {0}, 2},
      {{2, 3, 6, 5}, {4, 3, 3, 2}, {1, 1}, {0, 0}, {1, 1}, {0, 0}},
      {{1, 2, 7, 8}, {3, 2, 3, 3}, {2, 1}, {1, 2}, {1, 2}, {0, 0}},
      {{2, 4, 5, 5}, {4, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, 4},
      {{1, 2, 4, 5, 4}, {3, 2, 2, 3, 2}, {1, 2, 1}, {1, 0, 1}, {1, 1, 2}, {0, 0, 0}},
      {{2, 3, 5}, {3, 4, 3}, {2}, {1}, {1}, {1}, 1, true},
      {{1, 4, 3, 4}, {4, 2, 3, 2}, {2, 3}, {1, 0}, {1, 2}, {1, 0}, 2, true},
      {{1, 2, 2, 3, 2}, {2, 2, 2, 2, 2}, {1, 2, 2}, {0, 1, 0}, {1, 1, 1}, {0, 1, 0}, 1, true},
  };
}

}  // namespace

TEST(Convolution, AgreesWithItsDefinition) {
  for (const Geometry& g : geometries()) {
    const std::int64_t channels = g.transposed ? g.weight[1] * g.groups : g.weight[0];
    for (const DType t : {kFloat, kDouble}) {
      const Tensor x = values(g.input, t, 1), w = values(g.weight, t, 2), b = values({channels}, t, 3);
      expect_close(run(x, w, b, g), naive(x, w, b, g), 1e-4, 1e-5);
      expect_close(run(x, w, Tensor(), g), naive(x, w, Tensor(), g), 1e-4, 1e-5);
    }
  }
}

TEST(Convolution, GradientsToSecondOrder) {
  for (const Geometry& g : geometries()) {
    const std::int64_t channels = g.transposed ? g.weight[1] * g.groups : g.weight[0];
    Tensor x = values(g.input).requires_grad_(), w = values(g.weight, kDouble, 2).requires_grad_();
    Tensor b = values({channels}, kDouble, 3).requires_grad_();
    const auto f = [&g](const std::vector<Tensor>& in) { return run(in[0], in[1], in[2], g); };
    gradcheck(f, {x, w, b});
    if (x.numel() * w.numel() < 4000) gradgradcheck(f, {x, w, b});
  }
}

TEST(Convolution, EmptyBatchGivesEmptyResultAndZeroWeightGradient) {
  Tensor w = values({4, 3, 3, 3}, kFloat).requires_grad_();
  const Tensor y = conv2d(zeros({0, 3, 5, 5}), w);
  EXPECT_EQ(y.sizes().vec(), (std::vector<std::int64_t>{0, 4, 3, 3}));
  y.sum().backward();
  expect_close(w.grad(), zeros({4, 3, 3, 3}));
}

TEST(Convolution, TakesUnbatchedStridedAndChannelsLastInput) {
  const Tensor x = values({2, 3, 6, 6}, kFloat, 1), w = values({4, 3, 3, 3}, kFloat, 2);
  const Tensor expected = conv2d(x, w, {}, 1, 1);
  expect_close(conv2d(x.select(0, 1), w, {}, 1, 1), expected.select(0, 1));
  const Tensor wide = values({2, 3, 6, 12}, kFloat, 3);
  wide.slice(3, 0, 12, 2).copy_(x);
  expect_close(conv2d(wide.slice(3, 0, 12, 2), w, {}, 1, 1), expected);
  const Tensor last = conv2d(x.contiguous(MemoryFormat::ChannelsLast), w, {}, 1, 1);
  EXPECT_TRUE(last.is_contiguous(MemoryFormat::ChannelsLast));
  expect_close(last, expected);
}

// As the gradient of a sum is: any dims of any operand may have a stride of 0.
TEST(Convolution, TakesExpandedOperandsAsTheirCopies) {
  const auto expanded = [](std::vector<std::int64_t> sizes, int dims, DType t, int seed) {
    const std::vector<std::int64_t> whole = sizes;
    for (std::size_t d = 0; d < sizes.size(); ++d)
      if (dims >> d & 1) sizes[d] = 1;
    return values(sizes, t, seed).expand(whole);
  };
  for (const DType t : {kFloat, kDouble})
    for (const auto& [batch, from, to, kernel] : {std::tuple{3, 40, 48, 1}, {1, 40, 9, 1}, {2, 6, 8, 1}, {2, 6, 40, 3}})
      for (int dims = 0; dims < 16; ++dims) {
        const Tensor x = expanded({batch, from, 9, 10}, dims, t, 1),
                     w = expanded({to, from, kernel, kernel}, dims, t, 2);
        const Tensor b = expanded({to}, dims, t, 3);
        const std::int64_t less = kernel - 1;
        const Tensor dy = expanded({batch, to, 9 - less, 10 - less}, dims, t, 4);
        const auto results = [&](const auto& take) {
          const Tensor in = take(x).requires_grad_(), weight = take(w).requires_grad_(),
                       bias = take(b).requires_grad_();
          const Tensor y = conv2d(in, weight, bias);
          auto all = autograd::grad({y}, {in, weight, bias}, {take(dy)});
          all.push_back(y.detach());
          return all;
        };
        const auto got = results([](const Tensor& v) { return v.detach(); });
        const auto want = results([](const Tensor& v) { return v.clone(); });
        for (std::size_t i = 0; i < got.size(); ++i) {
          SCOPED_TRACE(std::to_string(dims) + " output " + std::to_string(i));
          expect_close(got[i], want[i], 1e-4, 1e-4);
        }
      }
}

TEST(Convolution, OfHalvesWhoseStridesLeaveOutRows) {
  const Tensor x = values({3, 33, 71, 68}, kBFloat16, 1), w = values({24, 33, 1, 3}, kBFloat16, 2);
  const Tensor want = conv2d(x.to(kDouble), w.to(kDouble), {}, 3, {0, 2});
  for (const MemoryFormat order : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
    const Tensor got = conv2d(x.contiguous(order), w, {}, 3, {0, 2}).to(kDouble);
    EXPECT_LE((got - want).abs().max().item<double>(), 1e-2 * (want.abs().max().item<double>() + 1));
  }
}

TEST(Convolution, BadInputNamesShapes) {
  const Tensor x = ones({2, 3, 6, 6}), w = ones({4, 3, 3, 3});
  EXPECT_NE(error_of([&] {
              conv2d(ones({2, 1, 6, 6}), w);
            })
                .find("Given groups=1, weight of size [4, 3, 3, 3], expected input[2, 1, 6, 6] to have 3 channels, but "
                      "got 1 channels instead"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              conv2d(ones({2, 3, 6}).select(0, 0), w);
            }).find("Expected 3D (unbatched) or 4D (batched)"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              conv2d(x, ones({4, 3, 9, 9}));
            }).find("Kernel size can't be greater than actual input size"),
            std::string::npos);
  EXPECT_NE(error_of([&] { conv2d(x, w, ones({3})); }).find("expected bias to be 1-dimensional with 4 elements"),
            std::string::npos);
  EXPECT_NE(error_of([&] { conv2d(x, w, {}, 0); }).find("non-positive stride"), std::string::npos);
  EXPECT_NE(error_of([&] { conv2d(x, w, {}, 1, -1); }).find("negative padding"), std::string::npos);
  EXPECT_NE(error_of([&] { conv2d(x, w, {}, {1, 2, 3}); }).find("stride=[1, 2, 3]"), std::string::npos);
  EXPECT_NE(error_of([&] { conv2d(x, w.to(kDouble)); }).find("should be the same"), std::string::npos);
  EXPECT_THROW(conv2d(x, w, {}, 1, 0, 1, 2), Error);
  EXPECT_THROW(conv_transpose2d(x, ones({3, 2, 3, 3}), {}, 1, 0, 1), Error);
  EXPECT_THROW(
      convolution_backward_input(ones({2, 4, 9, 9}), w, {2, 3, 6, 6}, {1, 1}, {0, 0}, {1, 1}, false, {0, 0}, 1), Error);
}

TEST(ConvTranspose, OfABatchOfNoneMayHaveNoSize) {
  EXPECT_EQ(conv_transpose1d(ones({0, 2, 4}), ones({2, 3, 1}), {}, 1, 2).sizes(), (IntArrayRef{0, 3, 0}));
  EXPECT_EQ(conv_transpose2d(ones({0, 2, 4, 4}), ones({2, 3, 3, 3}), {}, 1, 3).sizes(), (IntArrayRef{0, 3, 0, 0}));
  EXPECT_THROW(conv_transpose1d(ones({0, 2, 4}), ones({2, 3, 1}), {}, 1, 3), Error) << "less than none";
  EXPECT_THROW(conv_transpose1d(ones({1, 2, 4}), ones({2, 3, 1}), {}, 1, 2), Error);
}

}  // namespace athanor
