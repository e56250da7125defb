#include <gtest/gtest.h>

#include <numeric>

#include "athanor/data/partition.h"
#include "counting.h"

namespace athanor::data {

// Expected values: CPython 3.11's random.Random.
TEST(PythonRandom, ShufflesAsCPython) {
  const auto shuffled = [](std::uint64_t seed, std::size_t n) {
    std::vector<std::size_t> x(n);
    std::iota(x.begin(), x.end(), std::size_t{0});
    PythonRandom(seed).shuffle(x);
    return x;
  };
  EXPECT_EQ(shuffled(1234, 20),
            (std::vector<std::size_t>{19, 13, 4, 9, 16, 7, 6, 8, 17, 18, 5, 12, 15, 11, 10, 1, 2, 0, 3, 14}));
  EXPECT_EQ(shuffled(0, 20),
            (std::vector<std::size_t>{10, 18, 16, 14, 0, 17, 11, 2, 3, 9, 5, 7, 4, 19, 6, 15, 8, 1, 13, 12}));
  EXPECT_EQ(shuffled((std::uint64_t{1} << 40) + 5, 20),
            (std::vector<std::size_t>{9, 7, 17, 13, 4, 18, 5, 6, 10, 11, 3, 14, 12, 15, 2, 1, 0, 8, 19, 16}));
  const auto all = shuffled(1234, 60000);
  EXPECT_EQ(std::vector<std::size_t>(all.begin(), all.begin() + 5),
            (std::vector<std::size_t>{33712, 36159, 45528, 25849, 53734}));
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < all.size(); ++i) sum += i * all[i] % 1000003;
  EXPECT_EQ(sum, 30035432117U);
  EXPECT_TRUE(shuffled(7, 0).empty());
}

TEST(PythonRandom, DrawsWideBitsAndFractionsAsCPython) {
  PythonRandom random(1234);
  std::vector<std::size_t> x(20);
  random.shuffle(x);
  EXPECT_EQ(random.bits(50), 102779205430623U);
  EXPECT_EQ(random.uniform(), 0.18309064740993164);
  EXPECT_THROW(random.bits(65), ValueError);
  EXPECT_THROW(random.below(0), ValueError);
}

TEST(DataPartitioner, MakesTheTutorialsParts) {
  const datasets::TensorDataset data(counting({20}));
  const DataPartitioner<datasets::TensorDataset> parts(data);
  ASSERT_EQ(parts.partitions().size(), 3U);
  EXPECT_EQ(parts.partitions()[0], (std::vector<std::size_t>{19, 13, 4, 9, 16, 7, 6, 8, 17, 18, 5, 12, 15, 11}));
  EXPECT_EQ(parts.partitions()[1], (std::vector<std::size_t>{10, 1, 2, 0}));
  EXPECT_EQ(parts.partitions()[2], (std::vector<std::size_t>{3, 14}));
  auto second = parts.use(1);
  EXPECT_EQ(second.size(), 4U);
  EXPECT_EQ(second.get(1).data.item<std::int64_t>(), 1);
  EXPECT_THROW(parts.use(3), IndexError);
}

TEST(DataPartitioner, RoundingLeavesExamplesOver) {
  const auto parts = partition_indices(100, {1.0 / 3, 1.0 / 3, 1.0 / 3});
  for (const auto& part : parts) EXPECT_EQ(part.size(), 33U);
  EXPECT_EQ(partition_indices(10, {0.7, 0.7})[1].size(), 3U);  // a slice past the end
  EXPECT_EQ(partition_indices(0, {1.0})[0].size(), 0U);
  EXPECT_THROW(partition_indices(10, {-0.1}), ValueError);
  EXPECT_THROW(partition_indices(10, {std::numeric_limits<double>::quiet_NaN()}), ValueError);
}

}  // namespace athanor::data
