#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "athanor/base/error.h"
#include "athanor/base/parallel.h"
#include "athanor/data/synthetic_digits.h"
#include "athanor/io/idx.h"
#include "shared_data.h"

namespace athanor::data {

namespace {

constexpr std::size_t kPixels = kDigitPixels;

// Label of the nearest image, by squared distance over quarter-size images, which forgive small shifts.
class NearestImage {
 public:
  NearestImage(const std::vector<std::uint8_t>& images, std::vector<std::uint8_t> labels) : labels_(std::move(labels)) {
    for (std::size_t i = 0; i < labels_.size(); ++i) images_.push_back(shrink(images.data() + i * kPixels));
  }
  int label_of(const std::uint8_t* pixels) const {
    const Small wanted = shrink(pixels);
    std::int64_t best = INT64_MAX;
    int label = -1;
    for (std::size_t i = 0; i < images_.size(); ++i) {
      std::int64_t distance = 0;
      for (std::size_t k = 0; k < wanted.size(); ++k) {
        const std::int32_t d = wanted[k] - images_[i][k];
        distance += d * d;
      }
      if (distance < best) {
        best = distance;
        label = labels_[i];
      }
    }
    return label;
  }

 private:
  using Small = std::array<std::int32_t, 14 * 14>;
  static Small shrink(const std::uint8_t* p) {
    Small small{};
    for (std::size_t y = 0; y < 28; ++y)
      for (std::size_t x = 0; x < 28; ++x) small[y / 2 * 14 + x / 2] += p[y * 28 + x];
    return small;
  }
  std::vector<Small> images_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace

TEST(SyntheticDigits, DependOnSeedAndIndexOnly) {
  const int threads = get_num_threads();
  const SyntheticDigits all = synthetic_digits(300, 7);
  for (const int n : {1, 2, 7}) {
    set_num_threads(n);
    const SyntheticDigits again = synthetic_digits(300, 7);
    EXPECT_TRUE(again.images == all.images);
    EXPECT_EQ(again.labels, all.labels);
  }
  set_num_threads(threads);
  const SyntheticDigits part = synthetic_digits(100, 7, 150);
  EXPECT_TRUE(std::equal(part.images.begin(), part.images.end(), all.images.begin() + 150 * kDigitPixels));
  std::array<std::uint8_t, kPixels> one;
  EXPECT_EQ(synthetic_digit(7, 299, one.data()), all.labels[299]);
  EXPECT_TRUE(std::equal(one.begin(), one.end(), all.images.begin() + 299 * kDigitPixels));
  synthetic_digit_of(all.labels[299], 7, 299, one.data());
  EXPECT_TRUE(std::equal(one.begin(), one.end(), all.images.begin() + 299 * kDigitPixels));
}

TEST(SyntheticDigits, SeriesOfDifferentSeedsDiffer) {
  const SyntheticDigits a = synthetic_digits(50, 1);
  const SyntheticDigits b = synthetic_digits(50, 2);
  EXPECT_NE(a.labels, b.labels);
  EXPECT_FALSE(a.images == b.images);
}

TEST(SyntheticDigits, LabelsAreBalanced) {
  const SyntheticDigits digits = synthetic_digits(10000, 3);
  std::array<int, 10> count{};
  for (const std::uint8_t label : digits.labels) ++count.at(label);
  for (const int n : count) EXPECT_NEAR(n, 1000, 150);  // five deviations
}

TEST(SyntheticDigits, AreCentredByMassAndAsDarkAsMnist) {
  const SyntheticDigits digits = synthetic_digits(2000, 4);
  double total = 0;
  for (std::size_t i = 0; i < 2000; ++i) {
    double mass = 0, mx = 0, my = 0;
    for (std::size_t k = 0; k < kPixels; ++k) {
      const std::size_t row = k / 28;
      const double v = digits.images[i * kPixels + k];
      mass += v, mx += v * static_cast<double>(k % 28), my += v * static_cast<double>(row);
    }
    ASSERT_GT(mass, 255 * 10) << "image " << i << " is nearly empty";
    EXPECT_NEAR(mx / mass, 13.5, 0.75) << i;
    EXPECT_NEAR(my / mass, 13.5, 0.75) << i;
    total += mass;
  }
  EXPECT_NEAR(total / 2000 / kPixels / 255, 0.1307, 0.02);
}

TEST(SyntheticDigits, OneSeldomLooksLikeAnother) {
  const SyntheticDigits known = synthetic_digits(3000, 5);
  const SyntheticDigits held_out = synthetic_digits(300, 6);
  const NearestImage nearest(known.images, known.labels);
  int right = 0;
  for (std::size_t i = 0; i < 300; ++i)
    right += nearest.label_of(held_out.images.data() + i * kPixels) == held_out.labels[i];
  EXPECT_GE(right, 270);
  EXPECT_LT(right, 300) << "the nearest of 3000 images is always right: the digits hardly vary";
}

TEST(SyntheticDigits, TeachReadingRealDigits) {
  const std::string folder = find_shared_data("mnist");
  if (folder.empty()) GTEST_SKIP() << "no MNIST files found: set ATHANOR_DATA to the folder with mnist/";
  const io::Array images = io::read_idx(folder + "/t10k-images-idx3-ubyte.gz");
  const io::Array labels = io::read_idx(folder + "/t10k-labels-idx1-ubyte.gz");
  const SyntheticDigits known = synthetic_digits(4000, 8);
  const NearestImage nearest(known.images, known.labels);
  int right = 0;
  for (std::size_t i = 0; i < 500; ++i)
    right += nearest.label_of(images.values<std::uint8_t>().data() + i * 20 * kPixels) ==
             labels.values<std::uint8_t>()[i * 20];
  EXPECT_GE(right, 300);
  RecordProperty("right_of_500", right);
}

TEST(SyntheticDigits, BadArgumentsAreNamed) {
  std::array<std::uint8_t, kPixels> pixels;
  EXPECT_THROW(synthetic_digit_of(10, 0, 0, pixels.data()), ValueError);
  EXPECT_THROW(synthetic_digit_of(-1, 0, 0, pixels.data()), ValueError);
  EXPECT_THROW(synthetic_digits(-1, 0), ValueError);
  EXPECT_TRUE(synthetic_digits(0, 0).images.empty());
}

}  // namespace athanor::data
