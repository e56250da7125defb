#include "athanor/data/augmentations.h"

#include <gtest/gtest.h>

#include <cmath>

#include "counting.h"

namespace athanor::data::transforms {

namespace {

Tensor colors(IntArrayRef sizes) {
  manual_seed(3);
  return randint(0, 256, sizes, kByte);
}

double at(const Tensor& t, std::int64_t c, std::int64_t y, std::int64_t x) {
  return t.select(0, c).select(0, y).select(0, x).item<double>();
}

}  // namespace

TEST(Pad, EveryModeAsNumPyPads) {
  const Tensor x = counting({1, 1, 3}, kFloat);
  EXPECT_TRUE(equal(Pad<>(Padding(2, 0, 1, 0), 9)(x).reshape({-1}), tensor({9.0F, 9.0F, 0.0F, 1.0F, 2.0F, 9.0F})));
  EXPECT_TRUE(equal(Pad<>(Padding(2, 0), 0, PaddingMode::Edge)(x).reshape({-1}),
                    tensor({0.0F, 0.0F, 0.0F, 1.0F, 2.0F, 2.0F, 2.0F})));
  EXPECT_TRUE(equal(Pad<>(Padding(2, 0), 0, PaddingMode::Reflect)(x).reshape({-1}),
                    tensor({2.0F, 1.0F, 0.0F, 1.0F, 2.0F, 1.0F, 0.0F})));
  EXPECT_TRUE(equal(Pad<>(Padding(2, 0, 3, 0), 0, PaddingMode::Symmetric)(x).reshape({-1}),
                    tensor({1.0F, 0.0F, 0.0F, 1.0F, 2.0F, 2.0F, 1.0F, 0.0F})));
  EXPECT_EQ(Pad<>(1)(x.to(kByte)).sizes().vec(), (std::vector<std::int64_t>{1, 3, 5}));
  EXPECT_EQ(Pad<>(Padding(1, 2, 3, 4), 0, PaddingMode::Edge)(x).sizes().vec(), (std::vector<std::int64_t>{1, 7, 7}));
  EXPECT_THROW(Pad<>(Padding(3, 0), 0, PaddingMode::Reflect)(x), ValueError);
  EXPECT_THROW(Pad<>(-1)(x), ValueError);
}

TEST(Grayscale, WeighsTheColours) {
  const Tensor x = colors({3, 4, 5}), gray = Grayscale<>()(x), three = Grayscale<>(3)(x);
  EXPECT_EQ(gray.sizes().vec(), (std::vector<std::int64_t>{1, 4, 5}));
  for (int y = 0; y < 4; ++y)
    for (int i = 0; i < 5; ++i) {
      const double expected = 0.2989 * at(x, 0, y, i) + 0.587 * at(x, 1, y, i) + 0.114 * at(x, 2, y, i);
      EXPECT_NEAR(at(gray, 0, y, i), std::floor(expected), 1);
      EXPECT_EQ(at(three, 2, y, i), at(gray, 0, y, i));
    }
  EXPECT_TRUE(equal(Grayscale<>()(gray), gray));
  EXPECT_THROW(Grayscale<>()(colors({2, 4, 5})), ValueError);
  EXPECT_THROW(Grayscale<>(2)(x), ValueError);
}

TEST(ColorJitter, AdjustmentsFollowTheirFormulas) {
  const Tensor x = colors({3, 4, 5});
  const Tensor gray = functional::rgb_to_grayscale(x);
  const double mean = gray.to(kDouble).mean().item<double>();
  for (const double f : {0.0, 0.4, 1.0, 1.7}) {
    const Tensor bright = functional::adjust_brightness(x, f), contrast = functional::adjust_contrast(x, f),
                 saturated = functional::adjust_saturation(x, f);
    for (int c = 0; c < 3; ++c)
      for (int y = 0; y < 4; ++y)
        for (int i = 0; i < 5; ++i) {
          const auto byte = [](double v) { return std::floor(std::clamp(v, 0.0, 255.0)); };
          const double v = at(x, c, y, i);
          EXPECT_NEAR(at(bright, c, y, i), byte(v * f), 1);
          EXPECT_NEAR(at(contrast, c, y, i), byte(v * f + mean * (1 - f)), 1);
          EXPECT_NEAR(at(saturated, c, y, i), byte(v * f + at(gray, 0, y, i) * (1 - f)), 1);
        }
  }
  const Tensor floats = x.to(kFloat).div(255);
  EXPECT_TRUE(allclose(functional::adjust_brightness(floats, 2), (floats * 2).clamp(0, 1)));
  EXPECT_TRUE(equal(functional::adjust_contrast(x, 1), x));
  EXPECT_THROW(functional::adjust_brightness(x, -1), ValueError);
  EXPECT_THROW(functional::adjust_hue(x, 0.6), ValueError);
  EXPECT_THROW(functional::adjust_brightness(x.to(kInt), 1), TypeError);
}

TEST(ColorJitter, TurnsHues) {
  // Red, green, blue, yellow, gray; a third of the circle on, each becomes the next, yellow becomes cyan.
  const Tensor x = tensor({255, 0, 0, 255, 90, 0, 255, 0, 255, 90, 0, 0, 255, 0, 90}, kByte).view({3, 1, 5});
  const Tensor expected = tensor({0, 0, 255, 0, 90, 255, 0, 0, 255, 90, 0, 255, 0, 255, 90}, kByte).view({3, 1, 5});
  const Tensor turned = functional::adjust_hue(x, 1.0 / 3);
  EXPECT_LE((turned.to(kInt) - expected.to(kInt)).abs().max().item<int>(), 1) << turned;
  const Tensor y = colors({2, 3, 8, 8}), back = functional::adjust_hue(functional::adjust_hue(y, 0.5), -0.5);
  EXPECT_LE((back.to(kInt) - y.to(kInt)).abs().max().item<int>(), 3);
  EXPECT_LE((functional::adjust_hue(y, 0).to(kInt) - y.to(kInt)).abs().max().item<int>(), 1);
}

TEST(ColorJitter, StaysInItsRanges) {
  const Tensor x = full({3, 2, 2}, 100, kByte);
  manual_seed(1);
  ColorJitter<> jitter(0.2);
  int below = 0;
  for (int i = 0; i < 200; ++i) {
    const int v = jitter(x)[0][0][0].item<int>();
    ASSERT_GE(v, 79);
    ASSERT_LE(v, 120);
    below += v < 100;
  }
  EXPECT_GT(below, 50);
  EXPECT_LT(below, 150);
  EXPECT_TRUE(equal(ColorJitter<>()(x), x));
  // Gray has none of these; its weights add up to 0.9999, which cuts 100 to 99.
  EXPECT_LE((ColorJitter<>(0, 0.5, 0.5, 0.5)(x).to(kInt) - 100).abs().max().item<int>(), 1);
  EXPECT_THROW(ColorJitter<>(0, 0, 0, 0.6), ValueError);
  EXPECT_THROW(ColorJitter<>(-1), ValueError);
}

TEST(RandomResizedCrop, TakesPartsOfTheAllowedAreaAndRatio) {
  // Two planes that count rows and columns show which part was taken.
  const std::int64_t n = 64;
  const Tensor rows = arange(n, kFloat).view({1, n, 1}).expand({1, n, n}),
               columns = arange(n, kFloat).view({1, 1, n}).expand({1, n, n});
  const Tensor x = cat({rows, columns}, 0);
  manual_seed(5);
  RandomResizedCrop<> crop(32, {0.25, 0.5}, {0.5, 2});
  for (int i = 0; i < 100; ++i) {
    const Tensor y = crop(x);
    ASSERT_EQ(y.sizes().vec(), (std::vector<std::int64_t>{2, 32, 32}));
    const double height = (at(y, 0, 20, 0) - at(y, 0, 12, 0)) * 4, width = (at(y, 1, 0, 20) - at(y, 1, 0, 12)) * 4;
    EXPECT_GT(height * width, 0.2 * n * n);
    EXPECT_LT(height * width, 0.56 * n * n);
    EXPECT_GT(width / height, 0.45);
    EXPECT_LT(width / height, 2.2);
  }
  // Where no part fits, the middle one.
  const Tensor wide = arange(100, kFloat).view({1, 1, 100});
  EXPECT_TRUE(equal(RandomResizedCrop<>(ImageSize(1, 2), {1, 1}, {1, 2})(wide), wide.narrow(2, 49, 2)));
  EXPECT_THROW(RandomResizedCrop<>(0), ValueError);
  EXPECT_THROW(RandomResizedCrop<>(8, {0.5, 0.2}), ValueError);
}

TEST(Rotate, QuarterTurnsAreExact) {
  const Tensor x = colors({3, 5, 5});
  for (const auto interpolation : {Interpolation::Nearest, Interpolation::Bilinear}) {
    EXPECT_TRUE(equal(functional::rotate(x, 90, interpolation), x.rot90(1, {1, 2})));
    EXPECT_TRUE(equal(functional::rotate(x, 180, interpolation), x.rot90(2, {1, 2})));
    EXPECT_TRUE(equal(functional::rotate(x, 0, interpolation), x));
  }
  const Tensor oblong = colors({1, 2, 4});
  const Tensor turned = functional::rotate(oblong, 90, Interpolation::Nearest, true);
  EXPECT_TRUE(equal(turned, oblong.rot90(1, {1, 2}))) << turned << oblong;
}

// torch.nn.functional.grid_sample on torchvision's grid, in double.
TEST(Rotate, AgreesWithTheAffineGrid) {
  const Tensor x = colors({2, 6, 9});
  const double degrees = 33, angle = -degrees * std::acos(-1.0) / 180;
  const Tensor theta =
      tensor({std::cos(angle), std::sin(angle) * 6 / 9, 0.0, -std::sin(angle) * 9 / 6, std::cos(angle), 0.0})
          .to(kDouble)
          .view({1, 2, 3});
  const Tensor grid = affine_grid_generator(theta, {1, 2, 6, 9}, false);
  const Tensor expected = grid_sampler(x.to(kDouble).unsqueeze(0), grid, 0, 0, false).squeeze(0).round().to(kByte);
  EXPECT_LE(
      (functional::rotate(x, degrees, Interpolation::Bilinear).to(kInt) - expected.to(kInt)).abs().max().item<int>(),
      1);
  const Tensor nearest = grid_sampler(x.to(kDouble).unsqueeze(0), grid, 1, 0, false).squeeze(0).to(kByte);
  EXPECT_TRUE(equal(functional::rotate(x, degrees), nearest));
  // The corners are outside.
  EXPECT_EQ(at(functional::rotate(x, 45, Interpolation::Nearest, false, 7), 0, 0, 0), 7);
  // 9 cos 33° + 6 sin 33° = 10.8 and 6 cos 33° + 9 sin 33° = 9.9, about a middle between and on whole pixels.
  const Tensor whole = functional::rotate(x, degrees, Interpolation::Nearest, true);
  EXPECT_EQ(whole.sizes().vec(), (std::vector<std::int64_t>{2, 10, 11}));
}

TEST(RandomRotation, DrawsFromItsInterval) {
  manual_seed(2);
  const Tensor x = colors({1, 5, 5});
  EXPECT_TRUE(equal(RandomRotation<>(Interval{90, 90})(x), x.rot90(1, {1, 2})));
  EXPECT_EQ(RandomRotation<>(10)(x).sizes(), x.sizes());
  EXPECT_THROW(RandomRotation<>(-1), ValueError);
}

TEST(RandomErasing, ErasesARectangleOfTheAllowedArea) {
  manual_seed(4);
  const Tensor x = ones({2, 30, 40});
  RandomErasing<> erasing(1, {0.1, 0.2}, {0.5, 2}, {5, 6});
  for (int i = 0; i < 100; ++i) {
    const Tensor y = erasing(x);
    const double erased = (y[0] == 5).sum().item<double>();
    EXPECT_GT(erased, 0.08 * 1200);
    EXPECT_LT(erased, 0.23 * 1200);
    EXPECT_TRUE(equal(y[1] == 6, y[0] == 5));
    // As many rows times columns as pixels: one rectangle.
    EXPECT_EQ(((y[0] == 5).any(0)).sum().item<double>() * ((y[0] == 5).any(1)).sum().item<double>(), erased);
  }
  EXPECT_TRUE(equal(x, ones({2, 30, 40})));
  EXPECT_TRUE(equal(RandomErasing<>(0)(x), x));
  EXPECT_THROW(RandomErasing<>(1, {0.1, 0.2}, {0.3, 3.3}, {1, 2, 3})(x), ValueError);
}

TEST(RandomApply, AppliesWithItsProbability) {
  manual_seed(6);
  const Tensor x = colors({3, 2, 2});
  int changed = 0;
  RandomApply<> apply(TensorLambda<>([](Tensor t) { return t + 1; }), 0.3);
  RandomGrayscale<> gray(0.3);
  int grays = 0;
  for (int i = 0; i < 1000; ++i) {
    changed += !equal(apply(x), x);
    grays += !equal(gray(x), x);
  }
  EXPECT_NEAR(changed, 300, 75);  // five deviations
  EXPECT_NEAR(grays, 300, 75);
}

TEST(Augmentations, ComposeWithTheOthers) {
  Compose<> all(RandomResizedCrop<>(8), RandomHorizontalFlip<>(), ColorJitter<>(0.4, 0.4, 0.4, 0.1), ToTensor<>(),
                Normalize<>({0.5, 0.5, 0.5}, {0.2, 0.2, 0.2}), RandomErasing<>(1));
  EXPECT_EQ(all(colors({3, 20, 30})).sizes().vec(), (std::vector<std::int64_t>{3, 8, 8}));
}

}  // namespace athanor::data::transforms
