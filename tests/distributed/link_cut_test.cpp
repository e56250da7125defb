// The network between two ranks is cut: neither hears of it, and both must end by their deadline.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "athanor/distributed/error.h"
#include "athanor/ops/tensor.h"
#include "tests/distributed/cables.h"
#include "tests/distributed/processes.h"

namespace athanor::distributed::link_cut_test {
namespace {

using athanor::detail::str;
using std::chrono::milliseconds;

constexpr milliseconds kTimeout{1500};
// A report is asked of the other rank for a second; half of one more for a machine that is busy.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr milliseconds kReport{10'000};
#else
constexpr milliseconds kReport{2000};
#endif

// What both ranks say when the last cable is cut while they do `act` again and again. Several carry a part each.
std::vector<RankEnd> ends_of_a_cut(const std::function<void(ProcessGroup&)>& act, int cables = 1) {
  const Cables cable(cables);
  if (!cable.good()) return {};
  return run_processes(2, [&](int rank) {
    cable.enter(rank);
    if (cables > 1) ::setenv("ATHANOR_SOCKET_IFNAME", cable.ends(rank).c_str(), 1);
    const auto group = group_of_two(store_over(cable, rank, std::chrono::seconds(10)), rank, "cut", kTimeout);
    Deadline cut = Deadline::after(milliseconds(100));
    bool done = false;
    auto before = std::chrono::steady_clock::now();
    try {
      while (true) {
        if (rank == 0 && !done && cut.expired()) done = cable.cut(cables - 1);
        before = std::chrono::steady_clock::now();
        act(*group);
      }
    } catch (const DistError& error) {
      const auto took = std::chrono::steady_clock::now() - before;
      ATHANOR_CHECK(took < kTimeout + kReport, "it took ", std::chrono::duration_cast<milliseconds>(took).count(),
                    " ms to end with: ", error.what());
      throw;
    }
  });
}

void expect_named(const std::vector<RankEnd>& ends, const std::string& what, const std::string& number) {
  for (int rank = 0; rank < 2; ++rank) {
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(WIFEXITED(end.status) && !end.good()) << end.status << ": " << end.error;
    for (const std::string& part : {str("rank ", 1 - rank), what, number, std::string("link_cut_test.cpp:")})
      EXPECT_NE(end.error.find(part), std::string::npos) << "no '" << part << "' in: " << end.error;
    EXPECT_EQ(end.error.find(" ms to end with"), std::string::npos) << end.error;
  }
}

TEST(Faults, CutLinkEndsACollectiveAtTheDeadlineOnBothSides) {
  for (const std::int64_t count : {10, 3'000'000}) {
    const auto ends = ends_of_a_cut([&](ProcessGroup& group) {
      Tensor x = ones({count});
      group.all_reduce(x);
    });
    if (ends.empty()) GTEST_SKIP() << Cables::kNeeds;
    expect_named(ends, "all_reduce", "number ");
  }
}

// The store and the control connections still work then.
TEST(Faults, CutLinkOfSeveralEndsACollectiveAtTheDeadlineOnBothSides) {
  const auto ends = ends_of_a_cut(
      [&](ProcessGroup& group) {
        Tensor x = ones({3'000'000});
        group.all_reduce(x);
      },
      2);
  if (ends.empty()) GTEST_SKIP() << Cables::kNeeds;
  expect_named(ends, "all_reduce", "number ");
}

TEST(Faults, CutLinkEndsMessagesAtTheDeadlineOnBothSides) {
  const auto ends = ends_of_a_cut([](ProcessGroup& group) {
    Tensor x = ones({1000}), y = empty({1000});
    const WorkPtr sent = group.isend(x, 1 - group.rank(), 7);
    group.recv(y, 1 - group.rank(), 7);
    sent->wait();
  });
  if (ends.empty()) GTEST_SKIP() << Cables::kNeeds;
  expect_named(ends, "recv", "tag 7");
}

// Groups are made, used once and left again and again; the cut comes at some moment of that.
TEST(Faults, CutLinkEndsSetUpAndTearDownAtTheDeadlineOnBothSides) {
  for (const int moment : {0, 11, 47}) {
    SCOPED_TRACE(str("cut after ", moment, " ms"));
    const Cables cable;
    if (!cable.good()) GTEST_SKIP() << Cables::kNeeds;
    const auto ends = run_processes(
        2,
        [&](int rank) {
          cable.enter(rank);
          std::thread cutter;
          if (rank == 0)
            cutter = std::thread([&] {
              std::this_thread::sleep_for(milliseconds(moment));  // the moment is what is being varied
              cable.cut();
            });
          auto before = std::chrono::steady_clock::now();
          std::string error;
          try {
            const auto store = store_over(cable, rank, kTimeout);
            for (int i = 0;; ++i) {
              before = std::chrono::steady_clock::now();
              const auto group = group_of_two(store, rank, str("round ", i), kTimeout);
              Tensor x = ones({100});
              group->all_reduce(x);
              group->shutdown();
            }
          } catch (const DistError& caught) {
            error = caught.what();
          }
          const auto took = std::chrono::steady_clock::now() - before;
          if (cutter.joinable()) cutter.join();
          // One deadline for the group, one for what it asks of the store, and a second for a report.
          ATHANOR_CHECK(took < 2 * kTimeout + milliseconds(2000), "it took ",
                        std::chrono::duration_cast<milliseconds>(took).count(), " ms to end with: ", error);
          throw DistError(error, ATHANOR_WHERE);
        },
        std::chrono::seconds(30));
    for (const RankEnd& end : ends) {
      EXPECT_TRUE(WIFEXITED(end.status) && !end.good()) << end.status << ": " << end.error;
      EXPECT_EQ(end.error.find(" ms to end with"), std::string::npos) << end.error;
      // Whom it waited for, or the store it asked.
      EXPECT_TRUE(end.error.find("rank ") != std::string::npos || end.error.find(cable.address(0)) != std::string::npos)
          << end.error;
    }
  }
}

}  // namespace
}  // namespace athanor::distributed::link_cut_test
