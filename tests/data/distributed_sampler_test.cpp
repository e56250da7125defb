#include "athanor/data/distributed_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

namespace athanor::data {
namespace {

std::vector<std::size_t> all_of(DistributedSampler& sampler, std::size_t batch = 3) {
  std::vector<std::size_t> all;
  while (const auto some = sampler.next(batch)) all.insert(all.end(), some->begin(), some->end());
  return all;
}

DistributedSampler::Options of(std::size_t replicas, std::size_t rank, bool shuffle, bool drop_last = false) {
  return {replicas, rank, shuffle, 0, drop_last};
}

// torch.utils.data.DistributedSampler(range(10), 4, r, shuffle=False)
TEST(DistributedSampler, SharesAreStridedAndFilledUpFromTheFront) {
  const std::vector<std::vector<std::size_t>> filled{{0, 4, 8}, {1, 5, 9}, {2, 6, 0}, {3, 7, 1}},
      cut{{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  for (std::size_t rank = 0; rank < 4; ++rank) {
    DistributedSampler keep(10, of(4, rank, false)), drop(10, of(4, rank, false, true));
    EXPECT_EQ(all_of(keep), filled[rank]);
    EXPECT_EQ(all_of(drop), cut[rank]);
    EXPECT_EQ(keep.num_samples(), 3U);
    EXPECT_EQ(keep.total_size(), 12U);
    EXPECT_EQ(drop.num_samples(), 2U);
  }
}

TEST(DistributedSampler, FewExamplesGoRoundAsOftenAsNeeded) {
  for (std::size_t rank = 0; rank < 5; ++rank) {
    DistributedSampler sampler(2, of(5, rank, false));
    EXPECT_EQ(all_of(sampler), std::vector<std::size_t>{rank % 2});
    DistributedSampler none(0, of(5, rank, true));
    EXPECT_TRUE(all_of(none).empty());
  }
}

TEST(DistributedSampler, EveryEpochDealsAllExamplesInAnotherOrder) {
  std::vector<std::vector<std::size_t>> epochs;
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    std::map<std::size_t, int> seen;
    std::vector<std::size_t> order;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      DistributedSampler sampler(100, of(3, rank, true));
      sampler.set_epoch(epoch);
      sampler.reset();
      const auto mine = all_of(sampler);
      EXPECT_EQ(mine.size(), 34U);
      for (const std::size_t i : mine) ++seen[i];
      order.insert(order.end(), mine.begin(), mine.end());
    }
    EXPECT_EQ(seen.size(), 100U);
    EXPECT_EQ(std::count_if(seen.begin(), seen.end(), [](const auto& s) { return s.second == 2; }), 2);
    EXPECT_EQ(std::find(epochs.begin(), epochs.end(), order), epochs.end());
    epochs.push_back(order);
  }
  DistributedSampler seeded(100, {3, 0, true, 17, false});
  const auto other = all_of(seeded);
  EXPECT_NE(other, std::vector<std::size_t>(epochs[0].begin(), epochs[0].begin() + 34));
}

TEST(DistributedSampler, GoesOnInsideAnEpoch) {
  DistributedSampler one(50, of(2, 1, true));
  one.set_epoch(4);
  one.reset();
  one.next(7);
  const auto state = one.state();
  const auto rest = all_of(one);
  DistributedSampler two(50, of(2, 1, true));
  two.restore(state);
  EXPECT_EQ(all_of(two), rest);
  EXPECT_EQ(rest.size(), 18U);
}

TEST(DistributedSampler, WarnsOnceOfASecondEpochWithoutSetEpoch) {
  DistributedSampler sampler(10, of(2, 0, true));
  testing::internal::CaptureStderr();
  for (int i = 0; i < 4; ++i) sampler.reset();
  const std::string text = testing::internal::GetCapturedStderr();
  const auto at = text.find("set_epoch");
  EXPECT_NE(at, std::string::npos) << text;
  EXPECT_EQ(text.find("without set_epoch", text.find("without set_epoch") + 1), std::string::npos) << text;
}

std::string said_during(const std::function<void()>& act) {
  testing::internal::CaptureStderr();
  act();
  return testing::internal::GetCapturedStderr();
}

TEST(DistributedSampler, OneSetEpochBeforeTheLoopDoesNotSilenceTheWarning) {
  DistributedSampler sampler(10, of(2, 0, true));
  EXPECT_EQ(said_during([&] {
              sampler.set_epoch(0);
              sampler.reset();
            }),
            "");
  EXPECT_NE(said_during([&] { sampler.reset(); }).find("that of epoch 0"), std::string::npos);
}

TEST(DistributedSampler, SaysNothingOfEpochsThatDifferOrAreNotShuffled) {
  EXPECT_EQ(said_during([] {
              DistributedSampler shuffled(10, of(2, 0, true)), plain(10, of(2, 0, false));
              for (std::size_t epoch = 0; epoch < 3; ++epoch) {
                shuffled.set_epoch(epoch);
                shuffled.reset();
                plain.reset();
              }
            }),
            "");
}

TEST(DistributedSampler, RestoredKnowsItsEpoch) {
  DistributedSampler one(50, of(2, 1, true)), two(50, of(2, 1, true));
  one.set_epoch(4);
  one.reset();
  const auto start = one.state();
  one.next(7);
  two.restore(one.state());
  EXPECT_EQ(two.epoch(), 4U);
  EXPECT_NE(said_during([&] { two.reset(); }).find("that of epoch 4"), std::string::npos);
  DistributedSampler three(50, of(2, 1, true));
  three.restore(start);
  EXPECT_EQ(said_during([&] { three.reset(); }), "") << "the epoch had not begun yet";
}

TEST(DistributedSampler, RankBeyondTheReplicasIsRefused) {
  EXPECT_THROW(DistributedSampler(10, of(2, 2, true)), ValueError);
  EXPECT_THROW(DistributedSampler(10), Error) << "there is no default group to ask";
}

}  // namespace
}  // namespace athanor::data
