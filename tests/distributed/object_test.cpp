// Collectives of objects.
#include <gmock/gmock.h>

#include "athanor/distributed/object_collectives.h"
#include "distributed/ranks.h"

namespace athanor::distributed {
namespace {

using Settings = std::map<std::string, std::vector<double>>;

void with_world(int size, const std::function<void(int)>& body) {
  run_ranks(size, [&](ProcessGroup& group) {
    const ThreadWorldGuard world(group.shared_from_this());
    body(group.rank());
  });
}

TEST(ObjectCollectives, GatherObjectsOfDifferentSizes) {
  with_world(3, [](int rank) {
    std::vector<std::string> all = {"left over"};
    all_gather_object(all, std::string(static_cast<std::size_t>(rank * 1000), 'a'));
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0], "");
    EXPECT_EQ(all[2], std::string(2000, 'a'));
    const Settings own = {{"rank", {rank * 1.0}}, {"more", std::vector<double>(static_cast<std::size_t>(rank), 0.5)}};
    std::vector<Settings> gathered;
    gather_object(own, rank == 1 ? &gathered : nullptr, 1);
    ASSERT_EQ(gathered.size(), rank == 1 ? 3u : 0u);
    if (rank == 1) {
      EXPECT_EQ(gathered[2].at("more").size(), 2u);
    }
    EXPECT_ANY_THROW(gather_object(own, rank == 1 ? nullptr : &gathered, 1));
  });
}

TEST(ObjectCollectives, SpreadObjectsFromOneRank) {
  with_world(3, [](int rank) {
    std::vector<std::pair<int, std::string>> list;
    if (rank == 2) list = {{7, "seven"}, {8, std::string("e\0ght", 5)}};
    broadcast_object_list(list, 2);
    ASSERT_EQ(list.size(), 2u);
    EXPECT_EQ(list[1].second, std::string("e\0ght", 5));
    Tensor own;
    std::vector<Tensor> parts;
    for (int r = 0; r < 3 && rank == 0; ++r) parts.push_back(full({r, 2}, r * 1.0, kDouble).t());
    scatter_object_list(own, parts, 0);
    EXPECT_TRUE(own.equal(full({2, rank}, rank * 1.0, kDouble)));
  });
}

TEST(ObjectCollectives, SendObjectsToOneRank) {
  with_world(2, [](int rank) {
    std::vector<std::vector<bool>> none;
    std::vector<Tensor> list;
    if (rank == 0) {
      send_object_list<Tensor>({arange(5), ones({2}, kBFloat16)}, 1, nullptr, 4);
    } else {
      EXPECT_EQ(recv_object_list(list, kAnySourceRank, nullptr, 4), 0);
      ASSERT_EQ(list.size(), 2u);
      EXPECT_TRUE(list[0].equal(arange(5)));
      EXPECT_EQ(list[1].dtype(), kBFloat16);
    }
  });
}

TEST(ObjectCodec, RefusesBytesThatDoNotSpellTheType) {
  const std::string three = internals::to_bytes(std::vector<int>{1, 2, 3});
  EXPECT_EQ(internals::from_bytes<std::vector<int>>(three), (std::vector<int>{1, 2, 3}));
  for (std::size_t n = 0; n < three.size(); ++n)
    EXPECT_THROW(internals::from_bytes<std::vector<int>>(three.substr(0, n)), DistError) << n;
  EXPECT_THROW(internals::from_bytes<std::vector<int>>(three + "x"), DistError);
  // Sizes that no memory could hold.
  EXPECT_THROW(internals::from_bytes<std::string>(std::string(8, '\xff')), DistError);
  EXPECT_THROW(internals::from_bytes<std::vector<std::string>>(std::string(8, '\x7f')), DistError);
  std::string tensor = internals::to_bytes(ones({2}));
  tensor[0] = 99;
  EXPECT_THROW(internals::from_bytes<Tensor>(tensor), DistError);
  tensor = internals::to_bytes(ones({2}));
  tensor[1 + 8 + 7] = 0x70;
  EXPECT_ANY_THROW(internals::from_bytes<Tensor>(tensor));
}

}  // namespace
}  // namespace athanor::distributed
