// init_process_group, destroy_process_group, and again at the same place, by ranks of which one is faster.
#include <gtest/gtest.h>

#include "athanor/distributed/collectives.h"
#include "athanor/distributed/groups.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/ops/tensor.h"
#include "distributed/helpers.h"
#include "distributed/ports.h"
#include "tests/distributed/processes.h"

namespace athanor::distributed {
namespace {

using athanor::detail::str;
using std::chrono::milliseconds;

struct Case {
  const char* name;
  const char* scheme;
  int slow;           ///< the rank that takes its time between a round's work and destroy_process_group
  bool held = false;  ///< whether rank 0 holds on to its old groups
};

class MeetAgain : public testing::TestWithParam<Case> {};

TEST_P(MeetAgain, OneRankBeingFaster) {
  const Case& c = GetParam();
  const TemporaryFolder folder;
  const int port = free_port();
  const std::string scheme = c.scheme;
  std::string url = "env://";
  if (scheme == "tcp") url = str("tcp://127.0.0.1:", port);
  if (scheme == "file") url = "file://" + folder / "meet";
  int left[2];  // a byte for each round that the faster rank has left
  ASSERT_EQ(::pipe(left), 0);
  const auto ends = run_processes(
      2,
      [&](int rank) {
        if (scheme == "env") {
          ::setenv("RANK", std::to_string(rank).c_str(), 1);
          ::setenv("WORLD_SIZE", "2", 1);
          ::setenv("MASTER_ADDR", "127.0.0.1", 1);
          ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
        }
        std::vector<ProcessGroupPtr> held;
        for (int round = 0; round < 2; ++round) {
          InitOptions options;
          options.init_method = url;
          options.timeout = std::chrono::seconds(30);
          if (scheme != "env") {
            options.rank = rank;
            options.world_size = 2;
          }
          init_process_group(options);
          Tensor x = full({1}, round + 1.0);
          all_reduce(x);
          ATHANOR_CHECK(x.item<double>() == 2 * (round + 1.0), "round ", round, ": ", x.item<double>());
          char byte = 'x';
          if (c.held && rank == 0) held.push_back(default_group());
          if (rank == c.slow) {
            static_cast<void>(!::read(left[0], &byte, 1));
            // The other one is on its way to the next round: what it meets there meanwhile is the point.
            std::this_thread::sleep_for(milliseconds(150));
          }
          destroy_process_group();
          if (rank != c.slow) static_cast<void>(!::write(left[1], &byte, 1));
        }
      },
      std::chrono::seconds(60));
  for (const RankEnd& end : ends) EXPECT_TRUE(end.good()) << end.error;
  ::close(left[0]);
  ::close(left[1]);
}

INSTANTIATE_TEST_SUITE_P(All, MeetAgain,
                         testing::Values(Case{"env_slow_server", "env", 0}, Case{"env_fast_server", "env", 1},
                                         Case{"env_server_held", "env", 0, true}, Case{"tcp_slow_server", "tcp", 0},
                                         Case{"tcp_fast_server", "tcp", 1}, Case{"file_slow_first", "file", 0},
                                         Case{"file_fast_first", "file", 1}),
                         [](const auto& info) { return info.param.name; });

// After a failure, too: rank 1 comes too late for the first meeting, and both try again.
TEST(MeetAgain, AfterAMeetingThatFailed) {
  const int port = free_port();
  int failed[2];
  ASSERT_EQ(::pipe(failed), 0);
  const auto ends = run_processes(2, [&](int rank) {
    InitOptions options;
    options.init_method = str("tcp://127.0.0.1:", port);
    options.rank = rank;
    options.world_size = 2;
    char byte = 'x';
    if (rank == 0) {
      options.timeout = milliseconds(100);
      std::string error;
      try {
        init_process_group(options);
      } catch (const std::exception& caught) {
        error = caught.what();
      }
      ATHANOR_CHECK(error.find("missing: rank 1") != std::string::npos, error);
      static_cast<void>(!::write(failed[1], &byte, 1));
    } else {
      static_cast<void>(!::read(failed[0], &byte, 1));
    }
    options.timeout = std::chrono::seconds(30);
    init_process_group(options);
    Tensor x = ones({1});
    all_reduce(x);
    destroy_process_group();
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.good()) << end.error;
  ::close(failed[0]);
  ::close(failed[1]);
}

}  // namespace
}  // namespace athanor::distributed
