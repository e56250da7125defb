// The public functions: the default group, groups made of it, the collectives by torch.distributed's names. Ranks are
// processes.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <thread>

#include "athanor/distributed/collectives.h"
#include "athanor/distributed/spawn.h"
#include "distributed/forwarding_store.h"
#include "distributed/ranks.h"
#include "tests/distributed/processes.h"
#include "tests/distributed/served_store.h"

namespace athanor::distributed {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

template <class F>
std::string error_of(F&& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// In the children a failed expectation has to become an error.
#define REQUIRE(condition) ATHANOR_CHECK(condition, "line ", __LINE__, ": " #condition)

void require_substring(const std::string& text, const char* part, int line) {
  ATHANOR_CHECK(text.find(part) != std::string::npos, "line ", line, ": expected '", part, "' in: ", text);
}
#define REQUIRE_SUBSTRING(text, part) require_substring(text, part, __LINE__)

// Runs `body` in `size` processes with a default group.
void in_processes(int size, const std::function<void(int)>& body, milliseconds timeout = std::chrono::seconds(20)) {
  EXPECT_EQ(error_of([&] {
              spawn(
                  [&](int rank) {
                    InitOptions options;
                    options.rank = rank;
                    options.world_size = size;
                    options.timeout = timeout;
                    init_process_group(options);
                    body(rank);
                  },
                  size);
            }),
            "");
}

TEST(DefaultGroup, ServesTheCollectivesByPyTorchsNames) {
  in_processes(3, [](int rank) {
    REQUIRE(is_available() && is_initialized());
    REQUIRE(get_rank() == rank && get_world_size() == 3 && get_backend() == "tcp");
    Tensor t = full({2}, rank + 1.0);
    all_reduce(t, ReduceOp::SUM);
    REQUIRE(t.equal(full({2}, 6.0)));
    broadcast(t.fill_(rank), 2);
    REQUIRE(t.equal(full({2}, 2.0)));
    reduce(t.fill_(1), 1, ReduceOp::SUM);
    REQUIRE(t[0].item<float>() == (rank == 1 ? 3 : 1));
    std::vector<Tensor> list = {empty({1}), empty({1}), empty({1})};
    all_gather(list, full({1}, rank + 5.0));
    REQUIRE(list[0].item<float>() == 5 && list[2].item<float>() == 7);
    gather(full({1}, rank * 2.0), rank == 0 ? TensorList(list) : TensorList(), 0);
    REQUIRE(rank != 0 || list[2].item<float>() == 4);
    Tensor own = empty({1});
    scatter(own, rank == 1 ? TensorList(list) : TensorList(), 1);
    REQUIRE(own.item<float>() == static_cast<float>(rank + 5));
    Tensor together = empty({3, 1});
    all_gather_into_tensor(together, full({1}, rank + 1.0));
    REQUIRE(together.sum().item<float>() == 6);
    reduce_scatter_tensor(own, together);
    REQUIRE(own.item<float>() == 3.0f * static_cast<float>(rank + 1));
    reduce_scatter(own, {ones({1}), ones({1}), ones({1})});
    REQUIRE(own.item<float>() == 3);
    Tensor swapped = empty({3});
    all_to_all_single(swapped, full({3}, rank * 1.0));
    REQUIRE(swapped[1].item<float>() == 1);
    all_to_all({list[0], list[1], list[2]}, {full({1}, rank * 1.0), full({1}, rank * 1.0), full({1}, rank * 1.0)});
    REQUIRE(list[2].item<float>() == 2);
    const WorkPtr work = all_reduce(own, ReduceOp::MAX, nullptr, true);
    work->wait();
    barrier(group::WORLD);
    monitored_barrier();
    destroy_process_group();
    REQUIRE(!is_initialized());
  });
}

TEST(DefaultGroup, IsMissingBeforeInitAndAfterDestroyAndCanBeMadeAgain) {
  EXPECT_THAT(error_of([] { barrier(); }), HasSubstr("init_process_group"));
  EXPECT_THAT(error_of([] { destroy_process_group(); }), HasSubstr("no process group"));
  store_backend::register_once();
  const auto store = std::make_shared<HashStore>();
  for (int round = 0; round < 3; ++round) {
    InitOptions options;
    options.backend = "store";
    options.store = store;
    options.rank = 0;
    options.world_size = 1;
    init_process_group(options);
    // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): held when the library has let go of it
    const ProcessGroupPtr held = default_group();
    EXPECT_THAT(error_of([&] { init_process_group(options); }), HasSubstr("destroy_process_group first"));
    Tensor t = ones({2});
    all_reduce(t);
    destroy_process_group();
    EXPECT_FALSE(is_initialized());
    EXPECT_THAT(error_of([&] { held->barrier(); }), HasSubstr("it was destroyed"));
  }
}

// The launcher's store lives on between two groups of the same processes.
TEST(DefaultGroup, CanBeMadeAgainOverALaunchersStore) {
  ATHANOR_SKIP_IF_FORKS_ARE_UNSEEN();
  const ServedStore store;
  EXPECT_EQ(error_of([&] {
              spawn(
                  [&](int rank) {
                    ::setenv("MASTER_ADDR", "127.0.0.1", 1);
                    ::setenv("MASTER_PORT", std::to_string(store.port()).c_str(), 1);
                    ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
                    for (int round = 0; round < 3; ++round) {
                      init_process_group("tcp", "env://", 2, rank, std::chrono::seconds(20));
                      Tensor t = ones({1});
                      all_reduce(t);
                      REQUIRE(t.item<float>() == 2);
                      destroy_process_group();
                    }
                  },
                  2);
            }),
            "");
}

TEST(DefaultGroup, RefusesArgumentsThatCannotWork) {
  InitOptions options;
  options.store = std::make_shared<HashStore>();
  EXPECT_THAT(error_of([&] { init_process_group(options); }), HasSubstr("rank and world_size"));
  options.rank = 2, options.world_size = 2;
  EXPECT_THAT(error_of([&] { init_process_group(options); }), HasSubstr("rank 2 of 2"));
  options.rank = 0, options.world_size = 1, options.init_method = "env://";
  EXPECT_THAT(error_of([&] { init_process_group(options); }), HasSubstr("one of them"));
  options.init_method = "", options.timeout = milliseconds(0);
  EXPECT_THAT(error_of([&] { init_process_group(options); }), HasSubstr("timeout"));
  EXPECT_THAT(error_of([&] { init_process_group("no_such", "", 1, 0, milliseconds(1000), "", options.store); }),
              HasSubstr("'no_such' is unknown"));
  EXPECT_FALSE(is_initialized());
}

TEST(Groups, MapRanksAndRunSideBySide) {
  in_processes(4, [](int rank) {
    const ProcessGroupPtr odd = new_group({3, 1}), even = new_group({0, 2}), all = new_group();
    const ProcessGroupPtr own = rank % 2 == 1 ? odd : even;
    REQUIRE(get_process_group_ranks(odd) == (std::vector<int>{3, 1}));
    REQUIRE(get_group_rank(odd, 3) == 0 && get_global_rank(odd, 1) == 1);
    REQUIRE(get_rank(odd) == (rank == 3 ? 0 : rank == 1 ? 1 : -1));
    REQUIRE(get_world_size(even) == 2 && get_world_size(all) == 4);
    REQUIRE(odd->timeout() == default_group()->timeout());
    Tensor a = full({3}, rank * 1.0), b = full({3}, rank * 1.0);
    const WorkPtr first = all_reduce(a, ReduceOp::SUM, own, true);
    all_reduce(b, ReduceOp::SUM, all);
    first->wait();
    REQUIRE(a[0].item<float>() == (rank % 2 == 1 ? 4 : 2));
    REQUIRE(b[0].item<float>() == 6);
    // Ranks are the world's, whatever the group.
    Tensor c = full({1}, rank * 1.0);
    broadcast(c, rank % 2 == 1 ? 3 : 2, own);
    REQUIRE(c.item<float>() == (rank % 2 == 1 ? 3 : 2));
    if (rank % 2 == 1) REQUIRE_SUBSTRING(error_of([&] { broadcast(c, 0, odd); }), "rank 0 is no member");
    if (rank % 2 == 0) REQUIRE_SUBSTRING(error_of([&] { barrier(odd); }), "no member of process group");
    if (rank == 1) send(c, 3, odd, 7);
    if (rank == 3) REQUIRE(recv(c, kAnySourceRank, odd, 7) == 1);
    const auto [pair, pairs] = new_subgroups(2);
    REQUIRE(get_process_group_ranks(pair) == (std::vector<int>{rank / 2 * 2, rank / 2 * 2 + 1}) && pairs.size() == 2);
    // Only the members meet.
    GroupOptions local;
    local.use_local_synchronization = true;
    if (rank < 2) {
      const ProcessGroupPtr few = new_group({0, 1}, local);
      barrier(few);
      const ProcessGroupPtr nested = split_group(few, {1});
      REQUIRE(get_rank(nested) == (rank == 1 ? 0 : -1));
      destroy_process_group(few);
      REQUIRE_SUBSTRING(error_of([&] { barrier(few); }), "destroyed");
    }
    REQUIRE_SUBSTRING(error_of([&] { new_group({0, 4}); }), "rank 4 in a world of 4");
    REQUIRE_SUBSTRING(error_of([&] { new_group({1, 1}); }), "given twice");
    barrier();
  });
}

TEST(Groups, InheritTheTimeoutAndKeepIt) {
  in_processes(
      2,
      [](int rank) {
        const ProcessGroupPtr inherited = new_group({0, 1}), own = new_group({0, 1}, milliseconds(200));
        REQUIRE(inherited->timeout() == milliseconds(5000) && own->timeout() == milliseconds(200));
        if (rank == 0) REQUIRE_SUBSTRING(error_of([&] { barrier(own); }), "200 ms");
        barrier(inherited);
      },
      milliseconds(5000));
}

TEST(Groups, OfDifferentRanksOnDifferentRanksAreRefused) {
  in_processes(2, [](int rank) {
    const std::string error = error_of([&] { new_group(rank == 0 ? std::vector<int>{0, 1} : std::vector<int>{1, 0}); });
    REQUIRE_SUBSTRING(error, "in the same order with the same ranks");
  });
}

TEST(Groups, AreNotWaitedForWhenAMemberIsGone) {
  const ServedStore store;
  const auto ends = run_processes(
      3,
      [&](int rank) {
        ProcessGroupOptions options;
        options.rank = rank;
        options.size = 3;
        options.name = "parent";
        options.timeout = std::chrono::seconds(50);
        const auto parent = std::make_shared<ProcessGroup>(store.connect(), options);
        Tensor x = ones({1});
        parent->all_reduce(x);
        if (rank == 1) ::kill(::getpid(), SIGKILL);
        const std::string error = error_of([&] { split_group(parent, {2, 1, 0}, {}); });
        REQUIRE_SUBSTRING(error, "rank 1 is gone");
        REQUIRE_SUBSTRING(error, "2 of 3 members");
        REQUIRE_SUBSTRING(error, "rank 1 did not");
      },
      std::chrono::seconds(40));
  for (const int rank : {0, 2}) EXPECT_TRUE(ends[static_cast<std::size_t>(rank)].good()) << ends[rank].error;
}

TEST(Groups, NameTheMembersThatDoNotCall) {
  in_processes(3, [](int rank) {
    if (rank != 1) {
      GroupOptions options;
      options.timeout = milliseconds(200);
      const std::string error = error_of([&] { split_group(nullptr, {0, 1, 2}, options); });
      REQUIRE_SUBSTRING(error, "rank 1");
      REQUIRE_SUBSTRING(error, "did not");
    }
    barrier();
  });
}

TEST(MonitoredBarrier, NamesWhoDidNotCome) {
  in_processes(4, [](int rank) {
    for (const bool all : {false, true}) {
      if (rank < 2) {
        const std::string error = error_of([&] { monitored_barrier(nullptr, milliseconds(100), all); });
        REQUIRE_SUBSTRING(error, all ? "rank 2, 3 did not come within 100 ms" : "rank 2 did not come");
        REQUIRE_SUBSTRING(error, "groups_test.cpp:");
      }
      barrier();
    }
  });
}

TEST(MonitoredBarrier, LeavesNothingInTheStore) {
  for (const int size : {1, 3})
    in_processes(size, [](int) {
      Store& store = *default_group()->store();
      barrier();
      const std::int64_t before = store.num_keys();
      barrier();
      for (int i = 0; i < 20; ++i) monitored_barrier();
      barrier();
      const Deadline deadline = Deadline::after(std::chrono::seconds(10));
      while (store.num_keys() > before && !deadline.expired()) std::this_thread::yield();
      const std::int64_t left = store.num_keys();
      barrier();
      ATHANOR_CHECK(left == before, left, " keys after, ", before, " before");
    });
}

TEST(Groups, LeaveNoTraceOfTheirAgreementButTheRanks) {
  in_processes(3, [](int rank) {
    new_group();
    new_group({0, 1});
    barrier();  // a rank that is no member may be here before the members have begun
    for (const char* name : {"group/1", "group/2"}) {
      Store& store = *default_group()->store();
      const std::string key = athanor::detail::str("groups/", name, "/");
      const auto some = [&] {
        return store.check({key + "verdict"}) || store.check({key + "came"}) || store.check({key + "read"}) ||
               store.check({athanor::detail::str(key, "came/", rank)});
      };
      REQUIRE(!some());
      store.wait({key + "ranks"}, std::chrono::seconds(10));
    }
    barrier();
  });
}

TEST(DefaultGroup, MeetsInAStoreThatTheUserMade) {
  const ServedStore store;
  const auto ends = run_processes(2, [&](int rank) {
    InitOptions options;
    options.store = std::make_shared<ForwardingStore>(store.connect());
    options.rank = rank;
    options.world_size = 2;
    options.timeout = std::chrono::seconds(20);
    init_process_group(options);
    const Tensor sum = ones({3});
    all_reduce(sum);
    REQUIRE(sum.sum().item<float>() == 6);
    monitored_barrier();
    const ProcessGroupPtr one = new_group({1});
    REQUIRE(get_rank(one) == (rank == 1 ? 0 : -1));
    destroy_process_group();
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.good()) << end.error;
}

TEST(BatchIsendIrecv, ExchangesInWhateverOrderItIsListed) {
  in_processes(3, [](int rank) {
    const int right = (rank + 1) % 3, left = (rank + 2) % 3;
    Tensor out = full({1000}, rank * 1.0), in = empty({1000});
    std::vector<P2POp> ops = {{isend, out, right}, {irecv, in, left}};
    if (rank == 1) std::swap(ops[0], ops[1]);
    for (const WorkPtr& work : batch_isend_irecv(ops)) work->wait();
    REQUIRE(in.equal(full({1000}, left * 1.0)));
    REQUIRE_SUBSTRING(error_of([] { batch_isend_irecv({}); }), "empty");
  });
}

TEST(Coalesced, GivesWhatSingleCallsGive) {
  in_processes(2, [](int rank) {
    std::vector<Tensor> tensors = {full({2, 3}, rank + 1.0), full({}, rank * 2.0), empty({0}),
                                   zeros({4, 2}).select(1, 1)};
    all_reduce_coalesced(tensors);
    REQUIRE(tensors[0].equal(full({2, 3}, 3.0)) && tensors[1].item<float>() == 2);
    tensors[0].fill_(rank);
    const WorkPtr work = broadcast_coalesced(tensors, 1, nullptr, true);
    work->wait();
    REQUIRE(tensors[0].equal(ones({2, 3})));
    const std::vector<std::vector<Tensor>> out = {{empty({2}), empty({2})}, {empty({3}), empty({3})}};
    all_gather_coalesced(out, {full({2}, rank * 1.0), full({3}, rank + 10.0)});
    REQUIRE(out[0][1].equal(ones({2})) && out[1][0].equal(full({3}, 10.0)));
    std::vector<Tensor> outs = {empty({2, 2}), empty({6})};
    all_gather_into_tensor_coalesced(outs, {full({2}, rank * 1.0), full({3}, rank * 1.0)});
    REQUIRE(outs[0].sum().item<float>() == 2 && outs[1].sum().item<float>() == 3);
    std::vector<Tensor> parts = {empty({2}), empty({3})};
    reduce_scatter_tensor_coalesced(parts, {arange(4).to(kFloat), ones({6})});
    REQUIRE(parts[0][0].item<float>() == static_cast<float>(4 * rank) && parts[1].equal(full({3}, 2.0)));
    REQUIRE_SUBSTRING(error_of([] { all_reduce_coalesced({ones({1}), ones({1}, kInt)}); }), "one dtype");
  });
}

TEST(OldSpellings, WorkAndWarnOnce) {
  testing::internal::CaptureStderr();
  in_processes(2, [](int rank) {
    Tensor t = full({1}, rank + 1.0);
    all_reduce(t, reduce_op::SUM);
    all_reduce(t, reduce_op::MAX, group::WORLD);
    REQUIRE(t.item<float>() == 3);
    std::vector<Tensor> list = {full({1}, 4.0), full({1}, 5.0)};
    if (rank == 0) scatter(t, 0, list);
    if (rank == 1) scatter(t, 0);
    REQUIRE(t.item<float>() == static_cast<float>(4 + rank));
    if (rank == 0) gather(t, 0, list);
    if (rank == 1) gather(t, 0);
    REQUIRE(rank == 1 || list[1].item<float>() == 5);
    std::shared_ptr<DistributedRequest> request = isend(t, 1 - rank);
    recv(t, 1 - rank);
    request->wait();
  });
  const std::string lines = testing::internal::GetCapturedStderr();
  std::size_t warnings = 0;
  for (std::size_t at = lines.find("reduce_op is PyTorch 0.4's spelling"); at != std::string::npos; ++warnings)
    at = lines.find("reduce_op is PyTorch 0.4's spelling", at + 1);
  EXPECT_EQ(warnings, 2u) << "one per process in:\n" << lines;
  EXPECT_THAT(lines, AllOf(HasSubstr("scatter(tensor, src, list)"), HasSubstr("gather(tensor, dst, list)")));
}

}  // namespace
}  // namespace athanor::distributed
