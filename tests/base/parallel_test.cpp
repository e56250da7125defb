#include "athanor/base/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "athanor/base/error.h"

namespace athanor {
namespace {

std::int64_t sum_in_parallel(std::int64_t n) {
  std::atomic<std::int64_t> sum{0};
  parallel_for(0, n, 1, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t i = b; i < e; ++i) sum += i;
  });
  return sum;
}

TEST(ParallelFor, WorksInAForkedChildAndInItsParent) {
  const ThreadTeamGuard team(2);
  ASSERT_EQ(sum_in_parallel(100), 4950);  // there is a pool now
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // rather than wait for ever
    ::_exit(sum_in_parallel(100) == 4950 && sum_in_parallel(1000) == 499500 ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  EXPECT_EQ(sum_in_parallel(100), 4950);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ParallelTeam, MembersSeeWhatOthersWroteBeforeThePointTheyAwait) {
  const ThreadTeamGuard threads(3);
  constexpr std::int64_t kPoints = 200;
  std::vector<std::int64_t> written(3 * kPoints);
  std::atomic<int> wrong{0}, members{0};
  parallel_team(3, [&](Team& team, int member) {
    ++members;
    for (std::int64_t point = 0; point < kPoints; ++point) {
      team.await(point);
      for (int other = 0; point > 0 && other < team.size(); ++other)
        if (written[other * kPoints + point - 1] != point) ++wrong;
      written[member * kPoints + point] = point + 1;
      team.pass(member, point + 1);
    }
  });
  EXPECT_EQ(members, 3);
  EXPECT_EQ(wrong, 0);
}

TEST(ParallelTeam, AnErrorOfOneEndsTheWaitingOfTheOthers) {
  const ThreadTeamGuard threads(3);
  const auto run = [] {
    parallel_team(3, [](Team& team, int member) {
      if (member == 1) throw Error("member 1 cannot");
      team.await(1);
    });
  };
  try {
    run();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("member 1 cannot"), std::string::npos);
  }
  EXPECT_FALSE(in_parallel_region());
  EXPECT_EQ(sum_in_parallel(100), 4950);
}

TEST(ParallelTeam, IsOfOneInsideParallelWork) {
  const ThreadTeamGuard threads(2);
  std::atomic<int> sizes{0};
  parallel_for(0, 2, 1, [&](std::int64_t, std::int64_t) {
    parallel_team(2, [&](Team& team, int) {
      team.await(0);
      sizes += team.size();
    });
  });
  EXPECT_EQ(sizes, 2);
  parallel_team(1, [&](Team& team, int member) { sizes += 10 * team.size() + member; });
  EXPECT_EQ(sizes, 12);
}

TEST(ParallelFor, KeepsItsThreadsWhateverTheShareOfEachCall) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "for the thread sanitizer, threads are made for every region";
#endif
  const ThreadTeamGuard team(4);
  std::mutex mutex;
  std::set<pid_t> seen;
  const auto note = [&] {
    const std::lock_guard lock(mutex);
    seen.insert(::gettid());
  };
  for (const int shares : {2, 4, 2, 3, 1, 4, 2, 4, 3, 4}) {
    parallel_for(0, shares, 1, [&](std::int64_t, std::int64_t) { note(); });
    parallel_team(shares, [&](Team& members, int) {
      EXPECT_LE(members.size(), shares);
      note();
    });
  }
  EXPECT_EQ(seen.size(), 4U);
}

TEST(ParallelFor, TeamsThatTheRuntimeCannotMakeAreRefused) {
  const int before = get_num_threads();
  EXPECT_THROW(set_num_threads(100000), Error);
  EXPECT_THROW(set_num_threads(0), Error);
  EXPECT_THROW(ThreadTeamGuard(100000), Error);
  EXPECT_EQ(get_num_threads(), before);
}

}  // namespace
}  // namespace athanor
