// Convolutions of random shapes in float32 and the halves against float64, whose kernels are others: results,
// gradients, and that nothing beside them is written.
#include <random>

#include "athanor/device/cpu/pointwise_tables.h"
#include "numeric.h"

namespace athanor {
namespace {

struct RandomConv {
  std::mt19937 random;
  std::int64_t dims = 2, groups = 1;
  bool transposed = false, with_bias = false, last = false;
  std::vector<std::int64_t> input, weight, stride, padding, dilation, output_padding;

  /// `depthwise`: a channel in each group, and mostly one result of it.
  RandomConv(unsigned seed, bool depthwise) : random(seed) {
    dims = one_in(3) ? 3 : 2;
    transposed = one_in(3), with_bias = one_in(2), last = one_in(2);
    if (one_in(6)) groups = 2;
    std::int64_t from = channels() * groups, to = channels() * groups;
    if (depthwise) {
      groups = from;
      to = one_in(6) ? 2 * from : from;
      if (one_in(4)) dims = 1;
    }
    input = {one_in(16) ? 0 : between(1, 4), from};
    weight = transposed ? std::vector{from, to / groups} : std::vector{to, from / groups};
    for (std::int64_t e = 0; e < dims; ++e) {
      input.push_back(dims == 3 ? between(3, 9) : depthwise ? between(1, 40) : between(4, 24));
      weight.push_back(between(1, depthwise && dims < 3 ? 7 : 4));
      stride.push_back(between(1, 3));
      padding.push_back(between(0, weight.back() - 1));
      dilation.push_back(one_in(4) ? 2 : 1);
      output_padding.push_back(between(0, std::max(stride.back(), dilation.back()) - 1));
    }
  }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<unsigned>(high - low + 1));
  }
  bool one_in(unsigned n) { return random() % n == 0; }
  std::int64_t channels() {
    constexpr std::int64_t kChannels[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 24, 32, 33, 48};
    return kChannels[random() % std::size(kChannels)];
  }
  /// Whether the kernel fits and the result has positions.
  bool has_result() const {
    for (std::size_t e = 0; e < stride.size(); ++e) {
      const std::int64_t reach = dilation[e] * (weight[2 + e] - 1), size = input[2 + e];
      if (transposed ? (size - 1) * stride[e] - 2 * padding[e] + reach + output_padding[e] < 0
                     : size + 2 * padding[e] < reach + 1)
        return false;
    }
    return true;
  }
  Tensor call(const Tensor& x, const Tensor& w, const Tensor& b) const {
    if (dims == 1)
      return transposed ? conv_transpose1d(x, w, b, stride, padding, output_padding, groups, dilation)
                        : conv1d(x, w, b, stride, padding, dilation, groups);
    if (dims == 2)
      return transposed ? conv_transpose2d(x, w, b, stride, padding, output_padding, groups, dilation)
                        : conv2d(x, w, b, stride, padding, dilation, groups);
    return transposed ? conv_transpose3d(x, w, b, stride, padding, output_padding, groups, dilation)
                      : conv3d(x, w, b, stride, padding, dilation, groups);
  }
  std::string text() const {
    return detail::str(transposed ? "transposed" : "plain", last ? ", channels-last" : "", with_bias ? ", bias" : "",
                       ", input ", IntArrayRef(input), " weight ", IntArrayRef(weight), " groups ", groups, " stride ",
                       IntArrayRef(stride), " padding ", IntArrayRef(padding), " dilation ", IntArrayRef(dilation));
  }
};

/// Tensors of some sizes with room between them for results of these sizes.
std::vector<Tensor> sentinels(const std::vector<IntArrayRef>& sizes, DType t) {
  std::vector<Tensor> all, kept;
  for (int i = 0; i < 8; ++i)
    for (const IntArrayRef& s : sizes) all.push_back(full(s, 7.0, t));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i / sizes.size() % 2 == 1) kept.push_back(all[i]);
  return kept;
}

/// The same values, one channel after the other in memory for `last`.
Tensor ordered(const Tensor& v, bool last) {
  if (!last) return v.contiguous();
  if (v.dim() == 3) return v.transpose(1, 2).contiguous().transpose(1, 2);
  return v.contiguous(v.dim() == 5 ? MemoryFormat::ChannelsLast3d : MemoryFormat::ChannelsLast);
}

/// Results and gradients in `t` lie within `tolerance` of those in float64 of the same numbers.
void expect_agreement(const RandomConv& c, unsigned seed, DType t, double tolerance) {
  SCOPED_TRACE(detail::str(dtype_name(t), " ", c.text()));
  manual_seed(seed);
  const std::int64_t out_channels = c.transposed ? c.weight[1] * c.groups : c.weight[0];
  const Tensor x = randn(c.input, kDouble).to(t), w = randn(c.weight, kDouble).to(t),
               b = randn({out_channels}, kDouble).to(t);
  Tensor gradient;
  const auto results = [&](DType as, bool last) {
    std::vector<Tensor> inputs{ordered(x.to(as), last).detach().requires_grad_(),
                               ordered(w.to(as), last).detach().requires_grad_()};
    if (c.with_bias) inputs.push_back(b.to(as).detach().requires_grad_());
    const Tensor y = c.call(inputs[0], inputs[1], c.with_bias ? inputs[2] : Tensor());
    if (!gradient.defined()) gradient = randn(y.sizes(), kDouble).to(t);
    std::vector<Tensor> all = autograd::grad({y}, inputs, {ordered(gradient.to(as), last)});
    all.push_back(y.detach());
    return all;
  };
  const std::vector<Tensor> want = results(kDouble, false);
  const std::vector<Tensor> beside = sentinels({c.input, c.weight, gradient.sizes()}, t);
  const std::vector<Tensor> got = results(t, c.last);
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i].sizes(), want[i].sizes());
    if (want[i].numel() == 0) continue;
    const double most = want[i].abs().max().item<double>();
    ASSERT_LE((got[i].to(kDouble) - want[i]).abs().max().item<double>(), tolerance * (most + 1)) << "result " << i;
  }
  for (const Tensor& s : beside) ASSERT_TRUE(s.numel() == 0 || s.eq(7).all().item<bool>());
}

/// Of the seeds below `seeds`, how many had a result.
int expect_agreements(unsigned seeds, bool depthwise, DType t, double tolerance) {
  int ran = 0;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    const RandomConv c(seed, depthwise);
    if (!c.has_result()) continue;
    ++ran;
    expect_agreement(c, seed, t, tolerance);
    if (testing::Test::HasFatalFailure()) break;
  }
  return ran;
}

}  // namespace

TEST(ConvolutionOfRandomShape, AgreesWithFloat64AndWritesNothingElse) {
  EXPECT_GT(expect_agreements(250, false, kFloat, 2e-5), 200);
}

// The first layers of nets for digits: sums of few products, gradients of weights in tiles of their own.
TEST(ConvolutionOfRandomShape, OfOneChannelAgreesWithFloat64WithEveryInstructionSet) {
  const std::vector<std::int64_t> kernels[] = {{1, 5}, {2, 3}, {1, 7}, {2, 4}, {3, 3}, {2, 5}};
  for (int n = 0; cpu::use_simd_target(n); ++n) {
    SCOPED_TRACE(n);
    unsigned seed = 0;
    for (const auto& kernel : kernels)
      for (const std::int64_t to : {1, 2, 3, 4, 7, 10, 32}) {
        RandomConv c(++seed, false);
        c.dims = 2, c.groups = 1, c.transposed = c.last = false;
        c.input = {c.between(4, 9), 1, c.between(5, 12), c.between(7, 30)};
        c.weight = {to, 1, kernel[0], kernel[1]};
        c.stride = c.dilation = {1, 1};
        c.padding = {c.between(0, 1), c.between(0, 1)};
        expect_agreement(c, seed, kFloat, 2e-5);
        ASSERT_FALSE(HasFatalFailure());
      }
    RandomConv large(0, false);
    large.dims = 2, large.groups = 1, large.transposed = large.last = false;
    large.input = {20, 1, 29, 27}, large.weight = {31, 1, 3, 3};
    large.stride = large.dilation = {1, 1}, large.padding = {0, 1};
    expect_agreement(large, 0, kFloat, 2e-5);
  }
  cpu::use_simd_target(0);
}

TEST(ConvolutionOfRandomShape, OfHalvesAgreesWithFloat64) {
  EXPECT_GT(expect_agreements(80, false, kBFloat16, 1e-2), 60);
  EXPECT_GT(expect_agreements(40, false, kHalf, 2e-3), 30);
}

TEST(DepthwiseConvolutionOfRandomShape, AgreesWithFloat64AndWritesNothingElse) {
  EXPECT_GT(expect_agreements(300, true, kFloat, 2e-5), 200);
}

TEST(DepthwiseConvolutionOfRandomShape, OfHalvesAgreesWithFloat64) {
  EXPECT_GT(expect_agreements(100, true, kBFloat16, 1e-2), 60);
  EXPECT_GT(expect_agreements(40, true, kHalf, 2e-3), 25);
}

TEST(ConvolutionOfRandomShape, AgreesWithFloat64WithEveryInstructionSet) {
  for (int n = 0; cpu::use_simd_target(n); ++n) {
    SCOPED_TRACE(n);
    EXPECT_GT(expect_agreements(100, false, kFloat, 2e-5), 70);
    EXPECT_GT(expect_agreements(100, true, kFloat, 2e-5), 70);
  }
  cpu::use_simd_target(0);
}

}  // namespace athanor
