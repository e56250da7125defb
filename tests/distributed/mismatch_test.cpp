// Ranks that disagree on the sizes of parts, over every backend: no rank gets values that nobody sent.
#include <gmock/gmock.h>

#include <cstdlib>

#include "athanor/distributed/backend.h"
#include "athanor/ops/tensor.h"
#include "distributed/ranks.h"
#include "tests/distributed/processes.h"
#include "tests/distributed/served_store.h"

namespace athanor::distributed {
namespace {

using athanor::detail::str;
using testing::HasSubstr;

struct Way {
  const char* name;
  const char* backend;
  const char* transport = "auto";
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class Mismatch : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (!is_backend_available(GetParam().backend)) GTEST_SKIP() << "backend " << GetParam().backend << " is not here";
  }
  // Processes, since what is tried here used to end them. Every rank must throw; the errors come back.
  std::vector<std::string> errors_of(int ranks, const std::function<void(ProcessGroup&)>& call, bool all = true) {
    const ServedStore store;
    const auto ends = run_processes(ranks, [&](int rank) {
      ::setenv("ATHANOR_TRANSPORT", GetParam().transport, 1);
      ProcessGroupOptions options;
      options.backend = GetParam().backend;
      options.rank = rank;
      options.size = ranks;
      options.name = "mismatch";
      options.timeout = std::chrono::seconds(20);
      const auto group = std::make_shared<ProcessGroup>(store.connect(), options);
      group->barrier();
      call(*group);
      group->barrier();  // a rank that only sent, or got all it asked for, learns here of the others' error
    });
    std::vector<std::string> errors;
    for (const RankEnd& end : ends) {
      EXPECT_TRUE(WIFEXITED(end.status)) << "status " << end.status;
      if (all) {
        EXPECT_FALSE(end.good());
      }
      errors.push_back(end.error);
    }
    return errors;
  }
};

TEST_P(Mismatch, AllToAllSingleOfOtherSplitSizesNamesBothRanksAndSizes) {
  for (const std::int64_t scale : {1, 20'000})  // the larger ones are read from the other's memory
    for (const bool async : {false, true}) {
      const auto errors = errors_of(2, [&](ProcessGroup& g) {
        // Rank 0 sends 2 rows to rank 1, which expects 3.
        const std::vector<std::int64_t> sends = g.rank() == 0 ? std::vector<std::int64_t>{2 * scale, 2 * scale}
                                                              : std::vector<std::int64_t>{1 * scale, 2 * scale};
        const std::vector<std::int64_t> expects = g.rank() == 0 ? std::vector<std::int64_t>{2 * scale, 1 * scale}
                                                                : std::vector<std::int64_t>{3 * scale, 2 * scale};
        const Tensor in = ones({sends[0] + sends[1]}), out = empty({expects[0] + expects[1]});
        const WorkPtr work = g.all_to_all_single(out, in, expects, sends, async);
        if (work) work->wait();
      });
      for (const std::string& error : errors)
        EXPECT_THAT(error, HasSubstr(str("rank 0 sends rank 1 ", 2 * scale, " elements (", 8 * scale,
                                         " bytes), but rank 1 expects ", 3 * scale, " (", 12 * scale, " bytes)")));
    }
}

TEST_P(Mismatch, AllToAllOfListsNamesThePairAmongSeveralRanks) {
  for (const int ranks : {3, 5}) {
    const auto errors = errors_of(ranks, [](ProcessGroup& g) {
      std::vector<Tensor> in, out;
      for (int r = 0; r < g.size(); ++r) {
        in.push_back(ones({4}));
        out.push_back(empty({g.rank() == 2 && r == 1 ? 5 : 4}));
      }
      g.all_to_all(out, in);
    });
    for (const std::string& error : errors)
      EXPECT_THAT(error, HasSubstr("rank 1 sends rank 2 4 elements (16 bytes), but rank 2 expects 5 (20 bytes)"));
  }
}

TEST_P(Mismatch, UnevenAllGatherOfEqualTotalsShowsBothRanksParts) {
  const auto errors = errors_of(2, [](ProcessGroup& g) {
    // Both bring 3, and each thinks that the other brings 2.
    std::vector<Tensor> out = {empty({g.rank() == 0 ? 3 : 2}), empty({g.rank() == 0 ? 2 : 3})};
    g.all_gather(out, ones({3}));
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error,
                testing::AllOf(HasSubstr("rank 0 called all_gather of float32 [3] with parts of [3, 2] elements"),
                               HasSubstr("rank 1 called all_gather of float32 [3] with parts of [2, 3] elements")));
}

TEST_P(Mismatch, UnevenReduceScatterOfEqualTotalsShowsBothRanksParts) {
  const auto errors = errors_of(2, [](ProcessGroup& g) {
    const std::int64_t first = g.rank() == 0 ? 4 : 3;
    g.reduce_scatter(empty({4}), {ones({first}), ones({7 - first})});
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, testing::AllOf(HasSubstr("parts of [4, 3] elements"), HasSubstr("parts of [3, 4] elements")));
}

TEST_P(Mismatch, ShapesOfAsManyElementsAreNotSummed) {
  const auto errors = errors_of(2, [](ProcessGroup& g) { g.all_reduce(g.rank() == 0 ? ones({2, 3}) : ones({3, 2})); });
  for (const std::string& error : errors)
    EXPECT_THAT(error, testing::AllOf(HasSubstr("[2, 3]"), HasSubstr("[3, 2]"), HasSubstr("do not match")));
}

// A gather's other ranks only send, and may be gone before the root finds out.
TEST_P(Mismatch, IsSaidEvenIfTheOtherRankHasEnded) {
  const auto errors = errors_of(
      2,
      [](ProcessGroup& g) {
        std::vector<Tensor> out;
        if (g.rank() == 0) out = {empty({2}), empty({2})};
        if (g.rank() == 0) g.store()->set("there", std::string("yes"));
        g.gather(out, ones({g.rank() == 0 ? 2 : 3}), 0);
        g.store()->wait({"there"});
        if (g.rank() == 1) ::_exit(0);
      },
      false);
  EXPECT_THAT(errors[0], testing::AllOf(HasSubstr("do not match"), HasSubstr("gather with root 0 of float32 [2]")));
}

TEST_P(Mismatch, OfAMessageIsTheReceiversErrorAndTheSenderGoesOn) {
  const auto errors = errors_of(
      2,
      [](ProcessGroup& g) {
        Tensor small = empty({3}), whole = zeros({5});
        if (g.rank() == 0) {
          g.send(ones({5}), 1, 7);
          g.send(ones({5}, kInt), 1, 7);
          g.send(ones({5}), 1, 7);
        } else {
          for (const Tensor& into : {small, whole}) {
            try {
              g.recv(into, 0, 7);
              throw Error("a message of another size or dtype was taken");
            } catch (const DistError& error) {
              ATHANOR_CHECK(std::string(error.what()).find("rank 0 sent 5 × ") != std::string::npos, error.what());
            }
          }
          g.recv(whole, 0, 7);
          ATHANOR_CHECK(whole.equal(ones({5})), whole);
        }
      },
      false);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

INSTANTIATE_TEST_SUITE_P(Backends, Mismatch,
                         testing::Values(Way{"SharedMemory", "tcp"}, Way{"Sockets", "tcp", "tcp"}, Way{"Gloo", "gloo"},
                                         Way{"GlooOverSockets", "gloo", "tcp"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace athanor::distributed
