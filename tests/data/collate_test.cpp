#include "athanor/data/collate.h"

#include <gtest/gtest.h>

#include "athanor/data/data_loader.h"
#include "athanor/ops/factory.h"

namespace athanor::data {

TEST(DefaultCollate, EveryTypeBecomesItsBatch) {
  EXPECT_TRUE(equal(default_collate(std::vector<Tensor>{ones({2}), zeros({2})}),
                    tensor({1.0F, 1.0F, 0.0F, 0.0F}).view({2, 2})));
  const Tensor doubles = default_collate(std::vector<double>{0.5, 1.5});
  EXPECT_EQ(doubles.dtype(), kDouble);
  EXPECT_EQ(default_collate(std::vector<std::int64_t>{1, 2}).dtype(), kLong);
  EXPECT_TRUE(equal(default_collate(std::vector<std::int64_t>{1, 2}), tensor({1, 2}, kLong)));
  EXPECT_EQ(default_collate(std::vector<std::string>{"a", "b"}), (std::vector<std::string>{"a", "b"}));
  const auto [numbers, names] = default_collate(std::vector<std::tuple<float, std::string>>{{1.0F, "x"}, {2.0F, "y"}});
  EXPECT_TRUE(equal(numbers, tensor({1.0F, 2.0F})));
  EXPECT_EQ(names[1], "y");
  using Item = std::map<std::string, std::pair<Tensor, int>>;
  const auto maps = default_collate(std::vector<Item>{{{"k", {ones({3}), 4}}}, {{"k", {zeros({3}), 5}}}});
  EXPECT_EQ(maps.at("k").first.sizes().vec(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(equal(maps.at("k").second, tensor({4, 5}, kInt)));
  const auto lists = default_collate(std::vector<std::vector<int>>{{1, 2, 3}, {4, 5, 6}});
  ASSERT_EQ(lists.size(), 3U);
  EXPECT_TRUE(equal(lists[2], tensor({3, 6}, kInt)));
  const auto examples = default_collate(std::vector<Example<Tensor, int>>{{ones({2}), 7}, {ones({2}), 8}});
  EXPECT_TRUE(equal(examples.target, tensor({7, 8}, kInt)));
}

TEST(DefaultCollate, RefusesWhatHasNoBatch) {
  EXPECT_THROW(default_collate(std::vector<Tensor>{}), ValueError);
  EXPECT_THROW(default_collate(std::vector<Tensor>{ones({2}), ones({3})}), Error);
  EXPECT_THROW(default_collate(std::vector<std::vector<int>>{{1}, {1, 2}}), ValueError);
  EXPECT_THROW(default_collate(std::vector<std::map<int, int>>{{{1, 1}}, {{2, 1}}}), ValueError);
}

namespace {
struct Named {
  using Type = std::map<std::string, std::int64_t>;
};
struct NamedDataset : datasets::Dataset<NamedDataset, Named::Type> {
  Named::Type get(std::size_t i) override {
    return {{"number", static_cast<std::int64_t>(i)}, {"square", static_cast<std::int64_t>(i * i)}};
  }
  std::optional<std::size_t> size() const override { return 5; }
};
}  // namespace

TEST(DefaultCollate, EndsALoadersTransforms) {
  auto loader = make_data_loader<samplers::SequentialSampler>(
      NamedDataset().map(transforms::DefaultCollate<Named::Type>()), DataLoaderOptions(3).workers(2));
  std::int64_t sum = 0;
  for (auto& batch : *loader) sum += batch.at("square").sum().item<std::int64_t>();
  EXPECT_EQ(sum, 30);
}

}  // namespace athanor::data
