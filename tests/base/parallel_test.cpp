#include "athanor/base/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

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

TEST(ParallelFor, TeamsThatTheRuntimeCannotMakeAreRefused) {
  const int before = get_num_threads();
  EXPECT_THROW(set_num_threads(100000), Error);
  EXPECT_THROW(set_num_threads(0), Error);
  EXPECT_THROW(ThreadTeamGuard(100000), Error);
  EXPECT_EQ(get_num_threads(), before);
}

}  // namespace
}  // namespace athanor
