// Numbers that a dtype cannot hold, and sizes that no tensor can have.
#include <gmock/gmock.h>

#include <cmath>

#include "athanor/nn/functional.h"
#include "athanor/ops/tensor.h"
#include "numeric.h"

namespace athanor {
namespace {

using test::error_of;
using testing::HasSubstr;

constexpr std::int64_t kHuge = std::int64_t{1} << 62;
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

TEST(Overflow, OfANumberThatATensorIsToHoldIsRefused) {
  Tensor bytes = zeros({3}, kChar);
  const Tensor mask = ones({3}, kBool);
  EXPECT_THAT(error_of([&] { full({2}, 300, kChar); }),
              HasSubstr("fill_: value cannot be converted to type int8_t without overflow: 300"));
  EXPECT_THAT(error_of([&] { bytes.fill_(-129); }), HasSubstr("int8_t without overflow"));
  EXPECT_THAT(error_of([&] { bytes.masked_fill_(mask, 128); }), HasSubstr("masked_fill: value cannot be converted"));
  EXPECT_THAT(error_of([&] { bytes.index_put_({0}, 128); }), HasSubstr("without overflow"));
  EXPECT_THAT(error_of([&] {
                constant_pad_nd(bytes, {1, 1}, 128);
              }),
              HasSubstr("constant_pad_nd: value cannot be converted"));
  EXPECT_THAT(error_of([&] { full({2}, NAN, kLong); }), HasSubstr("int64_t without overflow"));
  EXPECT_THAT(error_of([&] { full({2}, 1e19, kLong); }), HasSubstr("int64_t without overflow"));
  EXPECT_THAT(error_of([&] { full({2}, 1e300, kFloat); }), HasSubstr("float without overflow"));
  EXPECT_THAT(error_of([&] { full({2}, 70'000, kHalf); }), HasSubstr("Half without overflow"));
  EXPECT_TRUE(equal(bytes, zeros({3}, kChar)));
}

TEST(Overflow, IsNotSeenInWhatFits) {
  EXPECT_EQ(full({1}, -1, kByte).item<int>(), 255);  // negative numbers of unsigned integers wrap
  EXPECT_EQ(full({1}, -128, kChar).item<int>(), -128);
  EXPECT_EQ(full({1}, 127.0, kChar).item<int>(), 127);
  EXPECT_EQ(full({1}, 65504, kHalf).item<float>(), 65504.0F);
  EXPECT_TRUE(full({1}, 300, kBool).item<bool>());
  for (const DType dtype : {kHalf, kBFloat16, kFloat, kDouble}) {
    EXPECT_TRUE(std::isinf(full({1}, -INFINITY, dtype).item<double>()));
    EXPECT_TRUE(std::isnan(full({1}, NAN, dtype).item<float>()));
  }
}

TEST(Overflow, OfAnElementThatIsAskedForIsRefused) {
  EXPECT_THAT(error_of([] { full({1}, 1e10, kDouble).item<int>(); }),
              HasSubstr("item: value cannot be converted to type int without overflow: 1e+10"));
  EXPECT_THAT(error_of([] { full({1}, 1e300, kDouble).item<float>(); }), HasSubstr("float without overflow"));
  EXPECT_EQ(full({1}, 1e10, kDouble).item<std::int64_t>(), 10'000'000'000);
  EXPECT_EQ(full({1}, 2.5, kDouble).item<int>(), 2);
}

TEST(Overflow, OfSizesIsRefused) {
  EXPECT_THAT(error_of([] { ones({4}).repeat({kHuge}); }), HasSubstr("repeat: 4611686018427387904 times size 4"));
  EXPECT_THAT(error_of([] { constant_pad_nd(ones({4}), {kHuge, kHuge}); }), HasSubstr("constant_pad_nd: no tensor"));
  EXPECT_NE(error_of([] { upsample_nearest1d(ones({1, 1, 4}), {1'000'000'000'000}); }), "");
  EXPECT_NE(error_of([] { upsample_linear1d(ones({1, 1, 4}), {kHuge}, false); }), "");
  for (const char* mode : {"replicate", "circular", "reflect"})
    for (const std::int64_t huge : {kHuge, kLargest})
      EXPECT_NE(error_of([&] { pad(ones({1, 1, 4}), {huge, huge}, mode); }), "") << mode << huge;
  EXPECT_THAT(error_of([] { pad(ones({1, 1, 4}), {kLargest, kLargest}, "replicate"); }), HasSubstr("pad: no tensor"));
  EXPECT_THAT(error_of([] { pad(ones({1, 1, 4}), {-kLargest - 1, kLargest}, "replicate"); }), HasSubstr("no tensor"));
  const Tensor image = ones({1, 1, 3, 3});
  EXPECT_NE(error_of([&] { im2col(image, {1, 1}, {1, 1}, {kHuge / 2, kHuge / 2}, {1, 1}); }), "");
  EXPECT_THAT(error_of([&] { im2col(image, {5, 5}, {kHuge, kHuge}, {0, 0}, {1, 1}); }), HasSubstr("no image"));
  EXPECT_THAT(error_of([&] { im2col(image, {1, 1}, {1, 1}, {kLargest, 0}, {1, 1}); }), HasSubstr("no image"));
  EXPECT_NE(error_of([&] { col2im(ones({1, 1, 4}), {2, 2}, {1, 1}, {1, 1}, {kHuge / 2, kHuge / 2}, {1, 1}); }), "");
}

TEST(Overflow, OfTheStrideOfASingleWindowIsNone) {
  const Tensor image = arange(9, kDouble).reshape({1, 1, 3, 3});
  EXPECT_TRUE(equal(im2col(image, {1, 1}, {1, 1}, {2, 2}, {kLargest, kLargest}), zeros({1, 1, 1}, kDouble)));
  EXPECT_TRUE(equal(im2col(image, {3, 3}, {1, 1}, {0, 0}, {kLargest, 3}), image.reshape({1, 9, 1})));
  Tensor x = image.clone().requires_grad_(), w = arange(9, kDouble).reshape({1, 1, 3, 3}).requires_grad_();
  const Tensor y = conv2d(x, w, {}, {kLargest, kLargest});
  EXPECT_EQ(y.sizes().vec(), (std::vector<std::int64_t>{1, 1, 1, 1}));
  EXPECT_EQ(y.item<double>(), 204);
  y.sum().backward();
  EXPECT_TRUE(equal(x.grad(), w));
  EXPECT_TRUE(equal(w.grad(), x));
}

TEST(Overflow, OfFactorsOfAPixelShuffleIsRefused) {
  for (const std::int64_t r : {std::int64_t{1} << 32, std::int64_t{1} << 31, kLargest}) {
    EXPECT_THAT(error_of([&] { pixel_shuffle(ones({1, 4, 2, 2}), r); }), HasSubstr("pixel_shuffle")) << r;
    EXPECT_THAT(error_of([&] { pixel_unshuffle(zeros({1, 4, 0, 0}), r); }), HasSubstr("pixel_unshuffle")) << r;
  }
  EXPECT_THAT(error_of([&] {
                pixel_shuffle(zeros({0, std::int64_t{1} << 56, kHuge, 1}), std::int64_t{1} << 28);
              }),
              HasSubstr("pixel_shuffle"));
}

TEST(Overflow, OfTheEndOfAPartIsRefused) {
  const Tensor x = arange(6, kDouble).reshape({3, 2});
  for (const std::int64_t start : {0, 1, -1, 3})
    EXPECT_THAT(error_of([&] { x.narrow(0, start, kLargest); }), HasSubstr("exceeds dimension size")) << start;
  for (const bool recorded : {false, true}) {
    const Tensor y = x.clone().requires_grad_(recorded);
    EXPECT_THAT(error_of([&] { y.split_with_sizes({kLargest, kLargest, 5}); }), HasSubstr("to sum exactly to 3"));
    EXPECT_THAT(error_of([&] { y.split_with_sizes({kLargest, 4, kLargest}); }), HasSubstr("to sum exactly to 3"));
  }
}

TEST(Overflow, OfStepsLeavesTheFirstElement) {
  Tensor x = arange(6, kDouble).reshape({3, 2}).requires_grad_();
  for (const std::int64_t step : {kLargest, kLargest - 1, kHuge}) {
    const Tensor y = x.slice(0, 0, 3, step);
    EXPECT_TRUE(equal(y, x.narrow(0, 0, 1))) << step;
    EXPECT_TRUE(equal(x.slice(1, 1, kLargest, step), x.narrow(1, 1, 1))) << step;
    EXPECT_EQ(x.slice(0, 3, 3, step).numel(), 0) << step;
    x.mutable_grad() = Tensor();
    y.sum().backward();
    EXPECT_TRUE(equal(x.grad(), tensor({1.0, 1.0, 0.0, 0.0, 0.0, 0.0}, kDouble).reshape({3, 2}))) << step;
    EXPECT_TRUE(equal(slice_scatter(x, zeros({1, 2}, kDouble), 0, 0, 3, step).select(0, 0), zeros({2}, kDouble)));
  }
}

TEST(Overflow, OfShapesIsRefused) {
  const Tensor none = zeros({0, 3});
  constexpr std::int64_t kRoot = std::int64_t{1} << 32;
  EXPECT_THAT(error_of([&] { none.reshape({kRoot, kRoot}); }), HasSubstr("invalid for input of size 0"));
  EXPECT_THAT(error_of([&] { ones({4}).view({kRoot, kRoot, -1}); }), HasSubstr("invalid for input of size 4"));
  EXPECT_THAT(error_of([&] { zeros({0, kHuge, kHuge}).flatten(1, 2); }), HasSubstr("flatten"));
  const Tensor wide = zeros({0, kLargest});
  EXPECT_THAT(error_of([&] { cat({wide, wide}, 1); }), HasSubstr("more than a tensor can have"));
  EXPECT_THAT(error_of([&] { block_diag({wide, wide}); }), HasSubstr("more columns than a tensor can have"));
  EXPECT_THAT(error_of([] {
                max_unpool2d(ones({1, 1, 1}), zeros({1, 1, 1}, kLong), {kRoot, kRoot});
              }),
              HasSubstr("max_unpool2d"));
  EXPECT_THAT(error_of([] {
                fractional_max_pool2d(ones({1, 1, 4, 4}), {kLargest, 2}, {2, 2}, zeros({1, 1, 2}));
              }),
              HasSubstr("too large relative to input size"));
  EXPECT_THAT(error_of([] { combinations(ones({2}), kHuge); }), HasSubstr("combinations"));
}

TEST(Overflow, OfNumbersOfPartsIsRefused) {
  const Tensor x = arange(5, kDouble), none = zeros({0});
  EXPECT_EQ(x.chunk(kLargest).size(), 5U);
  EXPECT_EQ(x.split(kLargest).size(), 1U);
  EXPECT_THAT(error_of([&] { none.chunk(kLargest); }), HasSubstr("too many"));
  EXPECT_THAT(error_of([&] { x.tensor_split(std::int64_t{1} << 40); }), HasSubstr("too many"));
  EXPECT_THAT(error_of([&] { none.hsplit(std::int64_t{1} << 40); }), HasSubstr("too many"));
  const Tensor long_one = zeros({1}).expand({std::int64_t{1} << 40});
  EXPECT_THAT(error_of([&] { long_one.split(1); }), HasSubstr("too many"));
  EXPECT_THAT(error_of([&] { long_one.unbind(); }), HasSubstr("too many"));
}

TEST(Overflow, OfCountsIsRefused) {
  const Tensor most = full({2}, kLargest, kLong);
  EXPECT_THAT(error_of([&] { bincount(most); }), HasSubstr("bincount"));
  EXPECT_THAT(error_of([&] { one_hot(most); }), HasSubstr("one_hot"));
  EXPECT_THAT(error_of([] { repeat_interleave(ones({4}), kHuge); }), HasSubstr("more than a tensor can have"));
  EXPECT_THAT(error_of([&] { repeat_interleave(zeros({0, 2}), most, 1, kLargest); }), HasSubstr("add up to more"));
  EXPECT_THAT(error_of([&] {
                repeat_interleave(zeros({0, 2}), ones({2}, kLong), 1, kLargest);
              }),
              HasSubstr("add up to 2"));
}

TEST(Overflow, OfARollIsNone) {
  Tensor x = arange(5, kDouble).requires_grad_();
  const Tensor weights = arange(5, kDouble);
  for (const std::int64_t shift : {std::numeric_limits<std::int64_t>::min(), kLargest}) {
    x.mutable_grad() = Tensor();
    (x.roll(shift, 0) * weights).sum().backward();
    EXPECT_TRUE(equal(x.grad().roll(shift, 0), weights)) << shift;
  }
}

TEST(Overflow, OfConvolutionsIsRefused) {
  const Tensor x = ones({1, 1, 5}), w = ones({1, 1, 2});
  const auto conv = [&](std::int64_t stride, std::int64_t padding, std::int64_t dilation) {
    return error_of([&] { conv1d(x, w, {}, stride, padding, dilation); });
  };
  for (const std::int64_t huge : {kHuge, kLargest}) {
    EXPECT_THAT(conv(1, huge, 1), HasSubstr("convolution: no tensor can be as large")) << huge;
    EXPECT_NE(conv(1, 0, huge), "") << huge;
    EXPECT_THAT(error_of([&] { conv_transpose1d(x, w, {}, huge); }), HasSubstr("no tensor can be as large")) << huge;
  }
  const auto same = nn::functional::Conv1dFuncOptions().padding(kSame).dilation(kLargest);
  EXPECT_THAT(error_of([&] { nn::functional::conv1d(x, ones({1, 1, 3}), same); }), HasSubstr("no tensor can be as"));
}

TEST(Overflow, OfTheElementsOfAPoolingWindowIsRefusedUnlessOnlyTheirNumberMatters) {
  const Tensor x = arange(8, kDouble).reshape({1, 1, 2, 2, 2});
  const auto window = [](std::int64_t size) { return std::vector<std::int64_t>(3, size); };
  for (const std::int64_t size : {std::int64_t{1} << 29, std::int64_t{1} << 22, std::int64_t{1} << 11}) {
    EXPECT_THAT(error_of([&] { max_pool3d(x, window(size), window(size), window(size / 2)); }), HasSubstr("max_pool"));
    EXPECT_THAT(error_of([&] { max_pool3d_with_indices(x, window(size), window(size), window(size / 2)); }),
                HasSubstr("max_pool"));
  }
  const Tensor wide = max_pool3d(x.clone().requires_grad_(), window(1 << 10), window(1 << 10), window(1 << 9));
  EXPECT_EQ(wide.item<double>(), 7);
  constexpr std::int64_t kKernel = std::int64_t{1} << 29;
  const std::vector<std::int64_t> kernel = window(kKernel), padding = window(kKernel / 2);
  EXPECT_NEAR(avg_pool3d(x, kernel, kernel, padding).item<double>() * std::pow(kKernel, 3), 28, 1e-9);
}

TEST(Overflow, MseLossHasTheGradientOfGreatDifferences) {
  Tensor x = zeros({1000});
  x[7] = 3e38;
  x.requires_grad_(true);
  for (const bool again : {false, true}) {
    const Tensor g = autograd::grad({mse_loss(x, zeros({1000}))}, {x}, {}, true, again)[0];
    EXPECT_NEAR(g[7].item<float>() / 6e35, 1, 1e-5);
    EXPECT_EQ(g[8].item<float>(), 0);
  }
  const Tensor up = full({1000}, 2e38);
  EXPECT_EQ(autograd::grad({mse_loss(x, zeros({1000}), 0)}, {x}, {up})[0][8].item<float>(), 0);
}

TEST(Overflow, OfAReluStatePassesGradientsAsReluDoes) {
  const Tensor x = tensor({NAN, 1., -1.}).to(kFloat).reshape({3, 1}).requires_grad_(true), one = ones({1, 1});
  rnn_relu_cell(x, zeros({3, 1}), one, one).sum().backward();
  EXPECT_TRUE(equal(x.grad(), tensor({1., 1., 0.}).to(kFloat).reshape({3, 1})));
}

TEST(Overflow, FrozenBatchNormPassesGradientsByInfiniteInputs) {
  Tensor x = zeros({2, 3, 4});
  x.index_put_({0, 1, 2}, INFINITY);
  x.index_put_({1, 2, 0}, NAN);
  x.requires_grad_(true);
  batch_norm(x, {}, {}, zeros({3}), ones({3}), false, 0.1, 0).sum().backward();
  EXPECT_TRUE(equal(x.grad(), ones({2, 3, 4})));
}

}  // namespace
}  // namespace athanor
