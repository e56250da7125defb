// Convolutions of random shapes in float32 against float64, whose kernels are others: results, gradients, and that
// nothing beside them is written.
#include <random>

#include "numeric.h"

namespace athanor {
namespace {

struct RandomConv {
  std::mt19937 random;
  std::int64_t dims = 2, groups = 1;
  bool transposed = false, with_bias = false, last = false;
  std::vector<std::int64_t> input, weight, stride, padding, dilation, output_padding;

  explicit RandomConv(unsigned seed) : random(seed) {
    dims = one_in(3) ? 3 : 2;
    transposed = one_in(3), with_bias = one_in(2), last = one_in(2);
    if (one_in(6)) groups = 2;
    const std::int64_t from = channels() * groups, to = channels() * groups;
    input = {one_in(16) ? 0 : between(1, 4), from};
    weight = transposed ? std::vector{from, to / groups} : std::vector{to, from / groups};
    for (std::int64_t e = 0; e < dims; ++e) {
      input.push_back(dims == 3 ? between(3, 9) : between(4, 24));
      weight.push_back(between(1, 4));
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
std::vector<Tensor> sentinels(const std::vector<IntArrayRef>& sizes) {
  std::vector<Tensor> all, kept;
  for (int i = 0; i < 8; ++i)
    for (const IntArrayRef& s : sizes) all.push_back(full(s, 7.0, kFloat));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (i / sizes.size() % 2 == 1) kept.push_back(all[i]);
  return kept;
}

}  // namespace

TEST(ConvolutionOfRandomShape, AgreesWithFloat64AndWritesNothingElse) {
  int ran = 0;
  for (unsigned seed = 0; seed < 250; ++seed) {
    const RandomConv c(seed);
    if (!c.has_result()) continue;
    ++ran;
    SCOPED_TRACE(c.text());
    manual_seed(seed);
    const std::int64_t out_channels = c.transposed ? c.weight[1] * c.groups : c.weight[0];
    const Tensor x = randn(c.input, kDouble), w = randn(c.weight, kDouble), b = randn({out_channels}, kDouble);
    Tensor gradient;
    const auto results = [&](DType t, bool last) {
      const auto format = c.dims == 3 ? MemoryFormat::ChannelsLast3d : MemoryFormat::ChannelsLast;
      const auto ordered = [&](const Tensor& v) { return last ? v.to(t).contiguous(format) : v.to(t); };
      std::vector<Tensor> inputs{ordered(x).detach().requires_grad_(), ordered(w).detach().requires_grad_()};
      if (c.with_bias) inputs.push_back(b.to(t).detach().requires_grad_());
      const Tensor y = c.call(inputs[0], inputs[1], c.with_bias ? inputs[2] : Tensor());
      if (!gradient.defined()) gradient = randn(y.sizes(), kDouble);
      std::vector<Tensor> all = autograd::grad({y}, inputs, {ordered(gradient)});
      all.push_back(y.detach());
      return all;
    };
    const std::vector<Tensor> want = results(kDouble, false);
    const std::vector<Tensor> beside = sentinels({c.input, c.weight, gradient.sizes()});
    const std::vector<Tensor> got = results(kFloat, c.last);
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].sizes(), want[i].sizes());
      if (want[i].numel() == 0) continue;
      const double most = want[i].abs().max().item<double>();
      ASSERT_LE((got[i].to(kDouble) - want[i]).abs().max().item<double>(), 2e-5 * (most + 1)) << "result " << i;
    }
    for (const Tensor& t : beside) ASSERT_TRUE(t.numel() == 0 || t.eq(7).all().item<bool>());
  }
  EXPECT_GT(ran, 200);
}

}  // namespace athanor
