// What stands beside another library's backend: ranks that die or give up end the others' waits, by name.
#include <gmock/gmock.h>

#include <cstdlib>
#include <functional>
#include <thread>

#include "athanor/distributed/backend.h"
#include "athanor/distributed/process_group.h"
#include "athanor/distributed/store/hash_store.h"
#include "athanor/ops/tensor.h"
#include "tests/distributed/processes.h"
#include "tests/distributed/served_store.h"

namespace athanor::distributed {
namespace {

using testing::HasSubstr;

// Far less than the group's timeout, far more than a loaded machine needs.
constexpr std::chrono::seconds kSoon{10}, kTimeout{60};

class Control : public testing::TestWithParam<const char*> {
 protected:
  // Three ranks over gloo; rank 1 does `fault`, the others `wait` in vain, and their errors come soon.
  void expect_soon(const std::function<void(ProcessGroup&)>& fault, const std::function<void(ProcessGroup&)>& wait,
                   const std::string& part) {
    if (!is_backend_available("gloo")) GTEST_SKIP() << "backend gloo is not here";
    const ServedStore store;
    const auto ends = run_processes(3, [&](int rank) {
      ::setenv("ATHANOR_TRANSPORT", GetParam(), 1);
      ProcessGroupOptions options;
      options.backend = "gloo";
      options.rank = rank;
      options.size = 3;
      options.name = "watched";
      options.timeout = kTimeout;
      const auto group = std::make_shared<ProcessGroup>(store.connect(), options);
      group->barrier();
      const auto before = std::chrono::steady_clock::now();
      try {
        rank == 1 ? fault(*group) : wait(*group);
      } catch (const Error& error) {
        const auto took = std::chrono::steady_clock::now() - before;
        ATHANOR_CHECK(took < kSoon, "it took ", std::chrono::duration_cast<std::chrono::milliseconds>(took).count(),
                      " ms to find out: ", error.what());
        throw;
      }
    });
    for (const int rank : {0, 2}) {
      const RankEnd& end = ends[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(WIFEXITED(end.status)) << "rank " << rank << ", status " << end.status;
      EXPECT_THAT(end.error, HasSubstr(part)) << "rank " << rank;
      EXPECT_THAT(end.error, testing::Not(HasSubstr("it took"))) << "rank " << rank;
    }
  }
};

TEST_P(Control, NamesARankThatWasKilledToThoseInACollective) {
  expect_soon([](ProcessGroup&) { ::raise(SIGKILL); }, [](ProcessGroup& g) { g.all_reduce(ones({3})); },
              "rank 1 is gone");
}

TEST_P(Control, NamesItToThoseWhoWaitForAnotherRanksMessage) {
  // Ranks 0 and 2 wait for each other, but rank 1 is what makes the job end.
  expect_soon([](ProcessGroup&) { ::raise(SIGKILL); },
              [](ProcessGroup& g) { g.recv(zeros({3}), g.rank() == 0 ? 2 : 0); }, "rank 1 is gone");
}

TEST_P(Control, CarriesTheReasonOfAnAbort) {
  expect_soon(
      [](ProcessGroup& g) {
        g.abort("the disk is full");
        // Until the others have had their errors, so that it is not this rank's end that they see.
        for (const int r : {0, 2}) g.store()->wait({std::to_string(r)}, kTimeout);
      },
      [](ProcessGroup& g) {
        try {
          g.all_reduce(ones({3}));
        } catch (const Error&) {
          g.store()->set(std::to_string(g.rank()), std::string("done"));
          throw;
        }
      },
      "the disk is full");
}

TEST(JobSecret, ThatABackendDoesNotAskForIsSaidOnceByOneRank) {
  if (!is_backend_available("gloo")) GTEST_SKIP() << "backend gloo is not here";
  testing::internal::CaptureStderr();
  const auto ends = run_processes(2, [&](int rank) {
    const auto store = std::make_shared<HashStore>();
    const auto pair = [&](const char* backend, const std::string& secret) {
      // Two ranks of one process: the store need not be shared with the other one.
      std::vector<std::thread> ranks;
      for (int r = 0; r < 2; ++r)
        ranks.emplace_back([&, r] {
          ProcessGroupOptions options;
          options.backend = backend, options.secret = secret, options.rank = r, options.size = 2;
          options.name = athanor::detail::str(backend, secret), options.timeout = kTimeout;
          ProcessGroup(store, options).barrier();
        });
      for (std::thread& thread : ranks) thread.join();
    };
    pair("gloo", "");
    pair("tcp", "open sesame");
    if (rank == 0) return;
    pair("gloo", "open sesame");
    pair("gloo", "another");
  });
  const std::string text = testing::internal::GetCapturedStderr();
  for (const RankEnd& end : ends) EXPECT_TRUE(end.good()) << end.error;
  const std::string words = "backend 'gloo' does not authenticate";
  ASSERT_THAT(text, HasSubstr(words));
  EXPECT_EQ(text.find(words), text.rfind(words));
}

INSTANTIATE_TEST_SUITE_P(Transports, Control, testing::Values("auto", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace athanor::distributed
