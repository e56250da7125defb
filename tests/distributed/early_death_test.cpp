// A rank that dies while the others wait for it through the store, not on a connection to it.
#include <gtest/gtest.h>

#include <csignal>

#include "athanor/distributed/collectives.h"
#include "athanor/distributed/groups.h"
#include "athanor/distributed/rendezvous/rendezvous.h"
#include "athanor/distributed/store/tcp_store.h"
#include "distributed/faults.h"
#include "distributed/ports.h"

namespace athanor::distributed {
namespace {

using athanor::detail::str;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kRanks = 3;

// The ranks but `victim` must raise an error with each of `words`, long before the timeout.
void expect_told(const std::function<void(int)>& body, int victim, const std::vector<std::string>& words) {
  const faults::Shared<std::atomic<std::int64_t>> died;
  const auto ends = run_processes(
      kRanks,
      [&](int rank) {
        try {
          if (rank == victim) *died = faults::now_ns();
          body(rank);
        } catch (const std::exception& error) {
          throw Error(str("after ", (faults::now_ns() - *died) / 1'000'000, " ms: ", error.what()));
        }
      },
      seconds(50) * faults::kSlow, {}, victim);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == victim) continue;
    const std::string& error = ends[static_cast<std::size_t>(rank)].error;
    for (const std::string& word : words) EXPECT_NE(error.find(word), std::string::npos) << "rank " << rank << error;
    const auto took = parse_integer(error.substr(6, error.find(" ms") - 6)).value_or(INT64_MAX);
    EXPECT_LT(took, 1000 * faults::kSlow * faults::busyness()) << "rank " << rank << error;
  }
}

class EarlyDeath : public testing::TestWithParam<const char*> {};

TEST_P(EarlyDeath, BetweenMeetingAndConnectingIsToldByTheStore) {
  const int port = free_port();
  const std::string place = str("tcp://127.0.0.1:", port);
  const auto join = [&](int rank) {
    ::setenv("ATHANOR_TRANSPORT", GetParam(), 1);
    if (rank == 2) {
      RendezvousOptions options;
      options.rank = rank;
      options.world_size = kRanks;
      options.timeout = seconds(40);
      const RendezvousResult met = rendezvous(place, options);
      ::kill(::getpid(), SIGKILL);
    }
    init_process_group("tcp", place, kRanks, rank, seconds(40));
  };
  expect_told(join, 2, {"rank 2"});
}
INSTANTIATE_TEST_SUITE_P(Transports, EarlyDeath, testing::Values("auto", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(MonitoredBarrier, NoticesADeadRankAtOnce) {
  for (const int victim : {0, 2})
    for (const bool all : {false, true}) {
      SCOPED_TRACE(str("rank ", victim, all ? ", all waited for" : ""));
      const std::string place = str("tcp://127.0.0.1:", free_port());
      expect_told(
          [&](int rank) {
            init_process_group("tcp", place, kRanks, rank, seconds(40));
            if (rank == victim) ::kill(::getpid(), SIGKILL);
            monitored_barrier(nullptr, seconds(40), all);
          },
          victim, {"monitored_barrier", str("rank ", victim)});
    }
}

TEST(TCPStore, AppendsWhatItWasToldWhenAClientEnds) {
  TCPStoreOptions options;
  options.port = 0;
  options.is_server = true;
  TCPStore server("127.0.0.1", options);
  options.is_server = false;
  options.port = server.port();
  server.set("test/list", "a,");
  const auto value = [](const char* text) { return Store::Value(text, text + 2); };
  {
    PrefixStore first("test", std::make_shared<TCPStore>("127.0.0.1", options));
    EXPECT_TRUE(first.append_at_end("list", value("b,")));
    EXPECT_TRUE(first.append_at_end("end", value("c,")));
    EXPECT_EQ(server.get_text("test/list"), "a,");
    EXPECT_FALSE(server.check({"test/end"}));
  }
  EXPECT_EQ(server.get_text("test/end"), "c,");
  server.wait({"test/list"});
  const Deadline deadline = Deadline::after(seconds(10));
  while (server.get_text("test/list") != "a,b," && !deadline.expired()) std::this_thread::yield();
  EXPECT_EQ(server.get_text("test/list"), "a,b,");
}

}  // namespace
}  // namespace athanor::distributed
