#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "athanor/data/samplers.h"

namespace athanor::data::samplers {
namespace {

template <class S>
std::vector<std::size_t> epoch(S& sampler, std::size_t batch = 4) {
  std::vector<std::size_t> all;
  sampler.reset();
  while (auto indices = sampler.next(batch)) all.insert(all.end(), indices->begin(), indices->end());
  return all;
}

std::vector<std::size_t> range(std::size_t begin, std::size_t end) {
  std::vector<std::size_t> all(end - begin);
  std::iota(all.begin(), all.end(), begin);
  return all;
}

}  // namespace

TEST(RandomSampler, CountsOnceEachEvenWithoutReset) {
  RandomSampler sampler(10, Generator(1));
  std::set<std::size_t> seen;
  while (auto indices = sampler.next(3)) seen.insert(indices->begin(), indices->end());
  EXPECT_EQ(seen.size(), 10U);
  sampler.reset(4);
  EXPECT_EQ(sampler.next(100)->size(), 4U);
  EXPECT_FALSE(sampler.next(1));
}

TEST(WeightedRandomSampler, DrawsInProportion) {
  WeightedRandomSampler sampler({1, 0, 3, 0}, 40000, true, Generator(2));
  std::map<std::size_t, int> count;
  for (const std::size_t i : epoch(sampler, 1000)) ++count[i];
  EXPECT_EQ(count.size(), 2U);
  EXPECT_NEAR(count[2], 30000, 450);  // five deviations
  const auto first = epoch(sampler), second = epoch(sampler);
  EXPECT_NE(first, second);
}

TEST(WeightedRandomSampler, WithoutReplacementPrefersTheHeavy) {
  int heavy_first = 0;
  WeightedRandomSampler sampler({1, 9, 0, 0.5}, 3, false, Generator(3));
  for (int i = 0; i < 2000; ++i) {
    const auto drawn = epoch(sampler);
    EXPECT_EQ(std::set<std::size_t>(drawn.begin(), drawn.end()), (std::set<std::size_t>{0, 1, 3}));
    heavy_first += drawn[0] == 1;
  }
  EXPECT_NEAR(heavy_first, 2000 * 9 / 10.5, 80);
}

TEST(WeightedRandomSampler, BadWeightsAreNamed) {
  EXPECT_THROW(WeightedRandomSampler({1, -1}, 2), ValueError);
  EXPECT_THROW(WeightedRandomSampler({0, 0}, 2), ValueError);
  EXPECT_THROW(WeightedRandomSampler({}, 2), ValueError);
  EXPECT_THROW(WeightedRandomSampler({1, std::numeric_limits<double>::infinity()}, 2), ValueError);
  EXPECT_THROW(WeightedRandomSampler({1, 0, 1}, 3, false), ValueError);
  EXPECT_THROW(WeightedRandomSampler({1, 1}, 0), ValueError);
  EXPECT_THROW(WeightedRandomSampler({1, 1}, 2).reset(5), ValueError);
}

TEST(Samplers, StateBeforeTheFirstEpochIsThatOfTheEpochToCome) {
  RandomSampler sampler(20, Generator(4)), other(20, Generator(5));
  const SamplerState state = sampler.state();
  other.restore(state);
  sampler.reset();
  EXPECT_EQ(sampler.next(20), other.next(20));
  sampler.reset();
  EXPECT_NE(sampler.state().generator.offset, state.generator.offset);
  // An epoch of another size is another one.
  RandomSampler resized(20, Generator(4));
  resized.state();
  resized.reset(3);
  EXPECT_EQ(resized.next(20)->size(), 3U);
}

TEST(StreamSampler, RequestsAreSizes) {
  StreamSampler sampler(8);
  EXPECT_EQ(sampler.next(5).value().size(), 5U);
  const std::size_t rest = sampler.next(5).value();
  EXPECT_EQ(rest, 3U);
  EXPECT_FALSE(sampler.next(5));
}

TEST(Samplers, ContinueWhereTheyWereSaved) {
  const auto check = [](auto sampler, auto other) {
    sampler.reset();
    sampler.next(4);
    const SamplerState state = sampler.state();
    other.restore(state);
    while (auto rest = sampler.next(3)) EXPECT_EQ(rest, other.next(3));
    EXPECT_FALSE(other.next(3));
  };
  check(RandomSampler(20, Generator(4)), RandomSampler(20, Generator(5)));
  check(SequentialSampler(20), SequentialSampler(20));
  check(WeightedRandomSampler({1, 2, 3}, 20, true, Generator(4)), WeightedRandomSampler({1, 2, 3}, 20));
  check(BatchSampler(RandomSampler(20, Generator(4)), 5), BatchSampler(RandomSampler(20, Generator(5)), 5));
  DistributedRandomSampler a(40, 2, 1), b(40, 2, 1);
  a.set_epoch(3);
  check(a, b);
}

TEST(BatchSampler, HasASizeOfItsOwn) {
  BatchSampler sampler(SequentialSampler(7), 3);
  EXPECT_EQ(sampler.next(100)->size(), 3U);
  BatchSampler full(SequentialSampler(7), 3, true);
  EXPECT_EQ(epoch(full).size(), 6U);
  EXPECT_THROW(BatchSampler(SequentialSampler(7), 0), ValueError);
}

TEST(StreamSampler, AsksForSizes) {
  StreamSampler sampler(10);
  EXPECT_EQ(sampler.next(4), 4U);
  EXPECT_EQ(sampler.next(4), 4U);
  EXPECT_EQ(sampler.next(4), 2U);
  EXPECT_FALSE(sampler.next(4));
}

TEST(DistributedSampler, SharesAreEqualAndCoverEverything) {
  for (const bool duplicates : {true, false}) {
    std::vector<std::size_t> all, shuffled;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      DistributedSequentialSampler in_order(10, 3, rank, duplicates);
      const auto part = epoch(in_order);
      EXPECT_EQ(part.size(), duplicates ? 4U : 3U);
      EXPECT_EQ(part.size(), in_order.local_sample_count());
      all.insert(all.end(), part.begin(), part.end());
      DistributedRandomSampler random(10, 3, rank, duplicates);
      const auto mixed = epoch(random);
      shuffled.insert(shuffled.end(), mixed.begin(), mixed.end());
    }
    auto expected = range(0, duplicates ? 10 : 9);
    if (duplicates) expected.insert(expected.end(), {0, 1});
    EXPECT_EQ(all, expected);
    EXPECT_NE(all, shuffled);
    std::sort(expected.begin(), expected.end());
    std::sort(shuffled.begin(), shuffled.end());
    EXPECT_EQ(shuffled, expected);
  }
  EXPECT_THROW(DistributedRandomSampler(10, 3, 3), ValueError);
}

TEST(DistributedSampler, MoreRanksThanExamplesStillShareEqually) {
  for (std::size_t rank = 0; rank < 5; ++rank) {
    DistributedSequentialSampler sampler(2, 5, rank);
    EXPECT_EQ(epoch(sampler), std::vector<std::size_t>{rank % 2});
  }
}

TEST(DistributedSampler, EveryEpochHasItsOrder) {
  DistributedRandomSampler a(50, 2, 0), b(50, 2, 0);
  const auto zero = epoch(a);
  EXPECT_EQ(zero, epoch(b));
  a.set_epoch(1);
  b.set_epoch(1);
  EXPECT_NE(epoch(a), zero);
  EXPECT_EQ(epoch(a), epoch(b));
}

TEST(SubsetRandomSampler, GivesItsIndicesInNewOrders) {
  manual_seed(8);
  SubsetRandomSampler sampler({10, 20, 30, 40, 50, 60, 70, 80});
  sampler.reset();
  const auto first = *sampler.next(8);
  sampler.reset();
  const auto second = *sampler.next(8);
  EXPECT_FALSE(sampler.next(1).has_value());
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<std::size_t>(first.begin(), first.end()), (std::set<std::size_t>{10, 20, 30, 40, 50, 60, 70, 80}));
  sampler.reset();
  sampler.next(3);
  const auto state = sampler.state();
  const auto rest = *sampler.next(5);
  sampler.restore(state);
  EXPECT_EQ(*sampler.next(5), rest);
  EXPECT_THROW(sampler.reset(3), ValueError);
}

}  // namespace athanor::data::samplers
