// What the process group adds to a backend: checks, order, queueing, staging, errors.
#include <gmock/gmock.h>

#include <atomic>

#include "athanor/distributed/flight_recorder.h"
#include "distributed/ranks.h"

namespace athanor::distributed::process_group_test {
namespace {

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

TEST(ProcessGroup, SumsOverAllRanks) {
  run_ranks(3, [](ProcessGroup& group) {
    Tensor t = full({2, 3}, group.rank() + 1.0);
    EXPECT_EQ(group.all_reduce(t), nullptr);
    EXPECT_TRUE(t.equal(full({2, 3}, 6.0)));
  });
}

TEST(ProcessGroup, WritesThroughTensorsThatAreNotContiguous) {
  run_ranks(2, [](ProcessGroup& group) {
    Tensor whole = zeros({4, 6});
    Tensor part = whole.slice(1, 1, 6, 2).t();
    part.fill_(group.rank() + 1.0);
    group.all_reduce(part);
    EXPECT_EQ(whole.sum().item<float>(), 3.0f * 12);
    EXPECT_EQ(whole.select(1, 0).sum().item<float>(), 0);
  });
}

TEST(ProcessGroup, CountsAWriteAsAChangeOfTheTensor) {
  run_ranks(2, [](ProcessGroup& group) {
    Tensor t = ones({2}), read_only = ones({2});
    const auto before = t._version();
    group.all_reduce(t);
    EXPECT_GT(t._version(), before);
    const auto untouched = read_only._version();
    group.reduce(read_only, 0);
    EXPECT_EQ(read_only._version() > untouched, group.rank() == 0);
  });
}

TEST(ProcessGroup, RunsAsynchronousCallsInTheOrderTheyWereMade) {
  run_ranks(3, [](ProcessGroup& group) {
    std::vector<Tensor> tensors;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(full({i + 1}, static_cast<double>(i * (group.rank() + 1))));
      works.push_back(group.all_reduce(tensors.back(), ReduceOp::SUM, true));
    }
    Tensor last = ones({1});
    group.all_reduce(last);  // behind the queue
    EXPECT_EQ(last.item<float>(), 3);
    for (int i = 0; i < 20; ++i) {
      const auto& work = works[static_cast<std::size_t>(i)];
      EXPECT_TRUE(work->is_completed());
      EXPECT_TRUE(work->wait());
      EXPECT_TRUE(work->is_success());
      EXPECT_TRUE(work->result()[0].equal(full({i + 1}, 6.0 * i)));
    }
  });
}

TEST(ProcessGroup, TakesCallsFromSeveralThreadsOneAfterTheOther) {
  // All threads make the same call, so any order is right.
  run_ranks(2, [](ProcessGroup& group) {
    std::vector<std::thread> threads;
    std::atomic<int> right = 0;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        for (int k = 0; k < 25; ++k) {
          Tensor t = ones({8});
          const WorkPtr work = group.all_reduce(t, ReduceOp::SUM, i % 2 == 0);
          if (work) work->wait();
          right += t.equal(full({8}, 2.0)) ? 1 : 0;
        }
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(right, 100);
  });
}

TEST(ProcessGroup, WaitWithATimeoutGivesUpAndTheCallGoesOn) {
  std::atomic<bool> go = false;
  run_ranks(2, [&](ProcessGroup& group) {
    Tensor t = ones({1});
    if (group.rank() == 1)
      while (!go) std::this_thread::yield();
    const WorkPtr work = group.all_reduce(t, ReduceOp::SUM, true);
    if (group.rank() == 0) {
      EXPECT_THAT(error_of([&] { work->wait(std::chrono::milliseconds(20)); }),
                  AllOf(HasSubstr("20 ms"), HasSubstr("all_reduce")));
      go = true;
    }
    EXPECT_TRUE(work->wait());
    EXPECT_EQ(t.item<float>(), 2);
  });
}

TEST(ProcessGroup, RefusesBadArgumentsAndStaysUsable) {
  run_ranks(2, [](ProcessGroup& group) {
    Tensor t = ones({2}), other = ones({3}), ints = ones({2}, kInt);
    EXPECT_THAT(error_of([&] { group.all_reduce(Tensor()); }), HasSubstr("all_reduce: the tensor is undefined"));
    EXPECT_THAT(error_of([&] { group.broadcast(t, 2); }),
                AllOf(HasSubstr("root rank 2"), HasSubstr("group of 2"), HasSubstr("expected 0 to 1")));
    EXPECT_THAT(error_of([&] { group.all_gather({t}, t); }), AllOf(HasSubstr("has 1 tensors"), HasSubstr("2")));
    EXPECT_THAT(error_of([&] { group.all_gather({t, t}, t); }), HasSubstr("share memory"));
    EXPECT_THAT(error_of([&] {
                  group.all_gather({ones({2}), ints}, t);
                }),
                AllOf(HasSubstr("int32"), HasSubstr("float32")));
    EXPECT_THAT(error_of([&] {
                  group.all_gather({other, other.clone()}, t);
                }),
                AllOf(HasSubstr("[3]"), HasSubstr("[2]")));
    EXPECT_THAT(error_of([&] { group.all_reduce(t, ReduceOp::BAND); }),
                AllOf(HasSubstr("BAND has no meaning for float32"), HasSubstr("integers")));
    EXPECT_THAT(error_of([&] { group.all_reduce(ints, ReduceOp::AVG); }), HasSubstr("AVG has no meaning for int32"));
    EXPECT_THAT(error_of([&] { group.all_reduce(ints, ReduceOp::premul_sum(2)); }), HasSubstr("PREMUL_SUM"));
    EXPECT_THAT(error_of([&] { group.all_reduce(ones({1}).expand({4})); }), HasSubstr("expanded"));
    EXPECT_THAT(error_of([&] { group.scatter(t, {}, group.rank()); }), HasSubstr("has 0 tensors"));
    EXPECT_THAT(error_of([&] { group.gather({t, other}, t, 1 - group.rank()); }), HasSubstr("only the root"));
    EXPECT_THAT(error_of([&] { group.send(t, group.rank()); }), HasSubstr("this rank itself"));
    EXPECT_THAT(error_of([&] { group.send(t, 1 - group.rank(), -1); }), HasSubstr("tag"));
    EXPECT_THAT(error_of([&] { group.reduce_scatter_tensor(t, other); }), HasSubstr("2 times the elements"));
    EXPECT_THAT(error_of([&] { group.all_to_all_single(t, t); }), HasSubstr("share memory"));
    EXPECT_THAT(error_of([&] {
                  group.all_to_all_single(ones({4}), ones({4}), {1, 2}, {2, 2});
                }),
                AllOf(HasSubstr("[1, 2]"), HasSubstr("4")));
    group.all_reduce(t);
    EXPECT_EQ(t[0].item<float>(), 2);
  });
}

TEST(ProcessGroup, ShowsBothSidesWhenRanksCallDifferentThings) {
  const auto mismatch = [](const std::function<void(ProcessGroup&)>& body) {
    const RankErrors errors = errors_of_ranks(2, body);
    for (const std::string& error : errors) {
      EXPECT_THAT(error, AllOf(HasSubstr("rank 0 called"), HasSubstr("rank 1 called"), HasSubstr("number 2"),
                               HasSubstr("process_group_test.cpp:"), HasSubstr("what the ranks were doing")));
    }
    return errors[0];
  };
  const auto first = [](ProcessGroup& group) { group.barrier(); };
  EXPECT_THAT(mismatch([&](ProcessGroup& g) {
                first(g);
                g.rank() == 0 ? g.all_reduce(ones({3})) : g.broadcast(ones({3}), 0);
              }),
              AllOf(HasSubstr("all_reduce(SUM) of float32 [3]"), HasSubstr("broadcast with root 0")));
  EXPECT_THAT(mismatch([&](ProcessGroup& g) {
                first(g);
                g.all_reduce(ones({3 + g.rank()}));
              }),
              AllOf(HasSubstr("[3]"), HasSubstr("[4]")));
  EXPECT_THAT(mismatch([&](ProcessGroup& g) {
                first(g);
                g.all_reduce(g.rank() == 0 ? ones({2, 3}) : ones({3, 2}));  // as many elements
              }),
              AllOf(HasSubstr("[2, 3]"), HasSubstr("[3, 2]")));
  EXPECT_THAT(mismatch([&](ProcessGroup& g) {
                first(g);
                g.all_reduce(ones({3}, g.rank() == 0 ? kInt : kFloat));
              }),
              AllOf(HasSubstr("int32"), HasSubstr("float32")));
  EXPECT_THAT(mismatch([&](ProcessGroup& g) {
                first(g);
                g.broadcast(ones({3}), g.rank());
              }),
              AllOf(HasSubstr("root 0"), HasSubstr("root 1")));
  EXPECT_THAT(mismatch([&](ProcessGroup& g) {
                first(g);
                g.all_reduce(ones({3}), g.rank() == 0 ? ReduceOp::SUM : ReduceOp::MAX);
              }),
              AllOf(HasSubstr("(SUM)"), HasSubstr("(MAX)")));
  const auto op = [](const char* name) { return ReduceOp::user(name, [](void*, const void*, std::int64_t, DType) {}); };
  EXPECT_THAT(mismatch([&](ProcessGroup& g) {
                first(g);
                g.all_reduce(ones({3}), op(g.rank() == 0 ? "left" : "right"));
              }),
              AllOf(HasSubstr("USER left"), HasSubstr("USER right")));
}

TEST(ProcessGroup, IsBrokenAfterAFailureAndSaysWhy) {
  const RankErrors errors = errors_of_ranks(2, [](ProcessGroup& g) {
    EXPECT_NE(error_of([&] { g.all_reduce(ones({3 + g.rank()})); }), "");
    g.barrier();
  });
  for (const auto& error : errors)
    EXPECT_THAT(error, AllOf(HasSubstr("cannot be used any more"), HasSubstr("calls do not match")));
}

TEST(ProcessGroup, TimesOutNamingTheCallAndWhoIsMissing) {
  ProcessGroupOptions options = over_store();
  options.timeout = std::chrono::milliseconds(1500);  // it is also what making the group may take
  std::atomic<bool> done = false;
  const RankErrors errors = errors_of_ranks(
      3,
      [&](ProcessGroup& g) {
        if (g.rank() == 2) {
          while (!done) std::this_thread::yield();
          return;
        }
        try {
          g.all_reduce(ones({5}));
        } catch (...) {
          done = true;
          throw;
        }
      },
      options);
  for (int rank : {0, 1})
    EXPECT_THAT(
        errors[static_cast<std::size_t>(rank)],
        AllOf(HasSubstr("waited 1500 ms for rank 2"), HasSubstr("float32 [5]"), HasSubstr("rank 2: left no record")));
}

TEST(ProcessGroup, AbortWakesTheOthersWithTheReason) {
  const RankErrors errors = errors_of_ranks(2, [&](ProcessGroup& g) {
    g.barrier();
    if (g.rank() == 1) return g.abort("the disk is full");
    g.recv(ones({1}), 1);
  });
  EXPECT_THAT(errors[0], HasSubstr("the disk is full"));
}

TEST(ProcessGroup, OutsidersAreTold) {
  ProcessGroupOptions options;
  options.name = "pair";
  options.size = 2;
  options.global_ranks = {1, 3};
  const auto group = ProcessGroup::outsider(options);
  EXPECT_EQ(group->rank(), -1);
  EXPECT_THAT(error_of([&] { group->all_reduce(ones({1})); }),
              AllOf(HasSubstr("no member of process group 'pair'"), HasSubstr("[1, 3]")));
  EXPECT_THAT(error_of([&] { group->recv(ones({1})); }), HasSubstr("no member"));
  EXPECT_EQ(group->group_rank_of(3), 1);
  EXPECT_THAT(error_of([&] { group->group_rank_of(0); }), HasSubstr("rank 0 is no member"));
}

TEST(ProcessGroup, SeveralGroupsWorkAtOnce) {
  const auto store = std::make_shared<HashStore>();
  run_ranks(3, [&](ProcessGroup& world) {
    ProcessGroupOptions options;
    options.backend = "store";
    options.rank = world.rank();
    options.size = 3;
    options.name = "second";
    ProcessGroup second(store, options);
    Tensor a = ones({1000}), b = ones({10});
    const WorkPtr first = world.all_reduce(a, ReduceOp::SUM, true);
    second.all_reduce(b, ReduceOp::PRODUCT);
    first->wait();
    EXPECT_EQ(a[999].item<float>(), 3);
    EXPECT_EQ(b[9].item<float>(), 1);
  });
}

TEST(ProcessGroup, ATensorOfAnotherDtypeOrAnUnknownBackendIsNamed) {
  const auto store = std::make_shared<HashStore>();
  ProcessGroupOptions options;
  options.name = "g";
  options.backend = "carrier_pigeon";
  EXPECT_THAT(error_of([&] { ProcessGroup group(store, options); }),
              AllOf(HasSubstr("'carrier_pigeon' is unknown"), HasSubstr("gloo, mpi, nccl")));
  options.backend = "nccl";
  EXPECT_THAT(error_of([&] { ProcessGroup group(store, options); }),
              AllOf(HasSubstr("plug-in"), HasSubstr("libathanor_nccl.so"), HasSubstr("ATHANOR_PLUGIN_PATH")));
  options.backend = "cuda:nccl";
  EXPECT_THAT(error_of([&] { ProcessGroup group(store, options); }), HasSubstr("none for cpu"));
  options.backend = "cpu:store,gpu:nccl";
  EXPECT_THAT(error_of([&] { ProcessGroup group(store, options); }), HasSubstr("'gpu:nccl' should be device:name"));
  store_backend::register_once();
  options.backend = "cpu:store,cuda:nccl";
  EXPECT_EQ(ProcessGroup(store, options).backend_name(), "store");
  EXPECT_TRUE(is_backend_available("store"));
  EXPECT_FALSE(is_backend_available("carrier_pigeon"));
  EXPECT_THAT(error_of([&] { register_backend("store", [](const BackendOptions&) { return nullptr; }); }),
              HasSubstr("already"));
  EXPECT_THAT(error_of([&] { register_backend("../x", [](const BackendOptions&) { return nullptr; }); }),
              HasSubstr("lower-case letters"));
}

TEST(ReduceOp, KnowsItsNameAndMeaning) {
  EXPECT_EQ(ReduceOp(ReduceOp::SUM).text(), "SUM");
  EXPECT_EQ(ReduceOp::premul_sum(0.5).text(), "PREMUL_SUM(0.5)");
  const auto user = ReduceOp::user("xor_shift", [](void*, const void*, std::int64_t, DType) {});
  EXPECT_EQ(user.text(), "USER(xor_shift)");
  EXPECT_NE(user.identity(), ReduceOp::user("other", user.function()).identity());
  EXPECT_EQ(ReduceOp::premul_sum(2).identity(), ReduceOp::premul_sum(3).identity());
  EXPECT_NE(ReduceOp(ReduceOp::MAX).identity(), ReduceOp(ReduceOp::MIN).identity());
  EXPECT_THAT(error_of([] { ReduceOp op(ReduceOp::PREMUL_SUM); }), HasSubstr("premul_sum(factor)"));
  EXPECT_THAT(error_of([] { ReduceOp op(ReduceOp::USER); }), HasSubstr("ReduceOp::user"));
  EXPECT_THAT(error_of([] { ReduceOp::user("", nullptr); }), HasSubstr("name"));
}

}  // namespace
}  // namespace athanor::distributed::process_group_test
