#include "athanor/launch/report.h"

#include <gtest/gtest.h>

#include <csignal>

namespace athanor::launch {
namespace {

Failure failure_of(int rank, int signal, const std::string& message, const std::string& last_lines = "") {
  Failure failure;
  failure.rank = rank;
  failure.ending.signal = signal;
  failure.ending.exit_code = 1;
  failure.message = message;
  failure.last_lines = last_lines;
  return failure;
}

TEST(Failure, WhoBlamesAnotherWasProbablyNotTheFirst) {
  EXPECT_EQ(failure_of(2, SIGKILL, "rank 1 is gone").likely_consequence(), 0);
  EXPECT_EQ(failure_of(2, SIGABRT, "", "what():  rank 1 is gone: its process ended").likely_consequence(), 2);
  EXPECT_EQ(failure_of(2, SIGABRT, "", "double free").likely_consequence(), 0);
  EXPECT_EQ(failure_of(2, 0, "").likely_consequence(), 1);
  EXPECT_EQ(failure_of(2, 0, "index 5 out of range").likely_consequence(), 1);
  EXPECT_EQ(failure_of(2, 0, "rank 2 failed in all_reduce").likely_consequence(), 1);
  EXPECT_EQ(failure_of(2, 0, "on rank 2 of 4: rank 12 in the world").likely_consequence(), 1);
  EXPECT_EQ(failure_of(2, 0, "all_reduce: rank 12 is gone: its process ended").likely_consequence(), 2);
  EXPECT_EQ(failure_of(2, 0, "", "Traceback\nrank 0 (global rank 4) has left the process group").likely_consequence(),
            2);
  EXPECT_EQ(failure_of(2, 0, "rank", "rank 1 (unclosed").likely_consequence(), 1);
}

}  // namespace
}  // namespace athanor::launch
