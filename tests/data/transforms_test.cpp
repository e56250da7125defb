#include <gtest/gtest.h>

#include "athanor/data/image_transforms.h"
#include "athanor/data/randomness.h"
#include "counting.h"

namespace athanor::data::transforms {
namespace {

Tensor numbers(IntArrayRef sizes) { return counting(sizes, kFloat); }

}  // namespace

TEST(ToTensor, TurnsBytesIntoUnitFloats) {
  ToTensor<> to_tensor;
  EXPECT_TRUE(equal(to_tensor(tensor({0, 51, 255}, kByte)), tensor({0.0F, 0.2F, 1.0F})));
  EXPECT_TRUE(equal(to_tensor(tensor({0.0, 51.0}, kDouble)), tensor({0.0F, 51.0F})));
}

TEST(Normalize, OneValueOrOnePerChannel) {
  const Tensor x = numbers({2, 2, 2});
  EXPECT_TRUE(equal(Normalize<>(1, 2)(x), (x - 1) / 2));
  const Tensor y = Normalize<>({1.0, 5.0}, {2.0, 4.0})(x);
  EXPECT_TRUE(equal(y[0], (x[0] - 1) / 2));
  EXPECT_TRUE(equal(y[1], (x[1] - 5) / 4));
}

TEST(CenterCrop, CutsAndPads) {
  const Tensor x = numbers({1, 5, 4});
  EXPECT_TRUE(equal(CenterCrop<>(2)(x), x.slice(1, 2, 4).slice(2, 1, 3)));
  const Tensor wide = CenterCrop<>(ImageSize(3, 7))(x);
  EXPECT_EQ(wide.sizes().vec(), (std::vector<std::int64_t>{1, 3, 7}));
  EXPECT_EQ(wide.sum().item<float>(), x.slice(1, 1, 4).sum().item<float>());
  EXPECT_THROW(CenterCrop<>(0), ValueError);
  EXPECT_THROW(CenterCrop<>(2)(ones({3})), ValueError);
}

TEST(RandomCrop, IsAWindowOfThePaddedImage) {
  manual_seed(1);
  const Tensor x = numbers({1, 4, 4}) + 1;
  const Tensor padded = constant_pad_nd(x, {1, 1, 1, 1}, 0);
  RandomCrop<> crop(3, 1);
  int places = 0;
  for (int i = 0; i < 100; ++i) {
    const Tensor y = crop(x);
    bool found = false;
    for (int top = 0; top < 4; ++top)
      for (int left = 0; left < 4; ++left) found = found || equal(y, padded.narrow(1, top, 3).narrow(2, left, 3));
    ASSERT_TRUE(found) << y;
    places += y[0][0][0].item<float>() == 0;
  }
  EXPECT_GT(places, 10);
  EXPECT_LT(places, 90);
  EXPECT_TRUE(equal(RandomCrop<>(4)(x), x));
  EXPECT_THROW(RandomCrop<>(5)(x), ValueError);
  EXPECT_THROW(RandomCrop<>(2, -1), ValueError);
}

TEST(RandomFlips, MirrorWithTheirProbability) {
  manual_seed(2);
  const Tensor x = numbers({1, 2, 3});
  EXPECT_TRUE(equal(RandomHorizontalFlip<>(1)(x), x.flip({2})));
  EXPECT_TRUE(equal(RandomVerticalFlip<>(1)(x), x.flip({1})));
  EXPECT_TRUE(equal(RandomHorizontalFlip<>(0)(x), x));
  int flipped = 0;
  RandomHorizontalFlip<> flip(0.25);
  for (int i = 0; i < 1000; ++i) flipped += !equal(flip(x), x);
  EXPECT_NEAR(flipped, 250, 70);  // five deviations
  EXPECT_THROW(RandomVerticalFlip<>(1.5), ValueError);
}

// Expected values: torch.nn.functional.interpolate(mode="bilinear", antialias=True).
TEST(Resize, AgreesWithPyTorch) {
  const Tensor x = numbers({1, 3, 4});
  const Tensor small = Resize<>(2, 2)(x);
  EXPECT_TRUE(allclose(small, tensor({2.2142857F, 3.7857143F, 7.2142857F, 8.7857143F}).view({1, 2, 2}), 1e-5, 1e-5))
      << small;
  const Tensor large = Resize<>(4, 4)(x);
  EXPECT_TRUE(allclose(large[0].select(1, 0), tensor({0.0F, 2.5F, 5.5F, 8.0F}), 1e-5, 1e-5)) << large;
  EXPECT_EQ(Resize<>(6)(x).sizes().vec(), (std::vector<std::int64_t>{1, 6, 8}));
  const Tensor bytes = Resize<>(2, 2)(tensor({0, 255, 255, 255}, kByte).view({1, 2, 2}).repeat({1, 2, 2}));
  EXPECT_EQ(bytes.dtype(), kByte);
  EXPECT_TRUE(equal(Resize<>(3, 4)(x), x));
  EXPECT_THROW(Resize<>(3)(ones({1, 0, 4})), ValueError);
}

TEST(Compose, AppliesInOrder) {
  Compose<> both(TensorLambda<>([](Tensor t) { return t + 1; }), Normalize<>(0, 2));
  EXPECT_TRUE(equal(both(ones({2})), ones({2})));
}

TEST(Draws, DependOnEpochAndPositionOnly) {
  const PhiloxState epoch{5, 9};
  const auto draw = [&](std::size_t position) {
    const data::detail::BatchRandomness own(epoch, position);
    return draw_uniform() + static_cast<double>(draw_below(100));
  };
  EXPECT_EQ(draw(3), draw(3));
  EXPECT_NE(draw(3), draw(4));
  manual_seed(4);
  const double first = draw_uniform();
  EXPECT_NE(draw_uniform(), first);
  manual_seed(4);
  draw(3);  // draws of a batch leave the default generator alone
  EXPECT_EQ(draw_uniform(), first);
  EXPECT_THROW(draw_below(0), ValueError);
}

}  // namespace athanor::data::transforms
