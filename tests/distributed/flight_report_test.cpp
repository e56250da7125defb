// What all ranks are doing, told by one that gets SIGUSR1.
#include <gmock/gmock.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "athanor/distributed/flight_recorder.h"
#include "athanor/distributed/groups.h"
#include "athanor/distributed/store/hash_store.h"
#include "athanor/distributed/store/tcp_store.h"
#include "athanor/ops/tensor.h"
#include "tests/distributed/faults.h"
#include "tests/distributed/processes.h"
#include "tests/distributed/served_store.h"

namespace athanor::distributed {
namespace {

using athanor::detail::str;
using testing::AllOf;
using testing::HasSubstr;

// What SIGUSR1 makes this process print, once it says `wanted`.
std::string told_on_sigusr1(const std::string& wanted) {
  const int saved = ::dup(STDERR_FILENO);
  int ends[2];
  ATHANOR_CHECK(::pipe(ends) == 0, "pipe");
  ::dup2(ends[1], STDERR_FILENO);
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  std::string text;
  while (text.find(wanted) == std::string::npos && !deadline.expired()) {
    text.clear();
    ::kill(::getpid(), SIGUSR1);
    char buffer[4096];
    while (text.find("rank 1: ") == std::string::npos || text.back() != '\n') {
      struct pollfd entry = {ends[0], POLLIN, 0};
      if (::poll(&entry, 1, 5000) != 1) break;
      text.append(buffer, static_cast<std::size_t>(std::max<ssize_t>(0, ::read(ends[0], buffer, sizeof buffer))));
    }
  }
  ::dup2(saved, STDERR_FILENO);
  return text;
}

TEST(FlightRecorder, OfAllRanksIsToldByTheOneThatGetsSigusr1) {
  const ServedStore store;
  const auto ends = run_processes(2, [&](int rank) {
    InitOptions options;
    options.store = store.connect();
    options.rank = rank, options.world_size = 2;
    init_process_group(options);
    const Tensor x = ones({7});
    default_group()->all_reduce(x);
    if (rank == 1) {  // the other one waits in the second call, where no signal comes
      const std::string text = told_on_sigusr1("then #2 all_reduce");
      for (const char* line :
           {"what the ranks were doing:", "rank 0: completed up to number 1; then #2 all_reduce(SUM)",
            "rank 1: completed up to number 1 (#1 all_reduce(SUM)"})
        ATHANOR_CHECK(text.find(line) != std::string::npos, "'", line, "' is not in:\n", text);
    }
    default_group()->all_reduce(x);
    destroy_process_group();
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.good()) << end.error;
}

// Rank 0 is killed, and the store, which is in its process, goes with it. The others raise, and rank 1 gets SIGUSR1.
TEST(FlightRecorder, OfTheRanksThatAreLeftIsToldWhenTheStoreGoesWithItsRank) {
  faults::SharedNumber port, told;
  constexpr std::chrono::seconds kPatience{30};
  const auto ends = run_processes(3, [&](int rank) {
    TCPStoreOptions at;
    at.is_server = rank == 0;
    at.port = rank == 0 ? 0 : port.get(kPatience);
    const auto store = std::make_shared<TCPStore>("127.0.0.1", at);
    if (rank == 0) port.set(store->port());
    InitOptions options;
    options.store = store;
    options.rank = rank, options.world_size = 3;
    init_process_group(options);
    const Tensor x = ones({7});
    default_group()->all_reduce(x);
    if (rank == 0) {
      default_group()->recv(x, 1);  // the others are in the next call, or about to be
      ::kill(::getpid(), SIGKILL);
    }
    if (rank == 1) default_group()->send(x, 0);
    std::string error;
    try {
      default_group()->all_reduce(x);
    } catch (const DistError& what) {
      error = what.what();
    }
    for (const char* line : {"rank 0: it is gone", "rank 1: completed up to number 1; then #2 all_reduce(SUM)",
                             "rank 2: completed up to number 1; then #2 all_reduce(SUM)"})
      ATHANOR_CHECK(error.find(line) != std::string::npos, "'", line, "' is not in:\n", error);
    if (rank == 1) {
      const std::string text = told_on_sigusr1("rank 2: completed up to number 1; then #2 all_reduce(SUM)");
      told.set(1);
      ATHANOR_CHECK(text.find("rank 2: completed up to number 1; then #2") != std::string::npos, "got:\n", text);
      ATHANOR_CHECK(text.find("rank 0: it is gone") != std::string::npos, "got:\n", text);
    } else {
      told.get(kPatience);
    }
  });
  EXPECT_EQ(WTERMSIG(ends[0].status), SIGKILL);
  EXPECT_TRUE(ends[1].good()) << ends[1].error;
  EXPECT_TRUE(ends[2].good()) << ends[2].error;
}

// What comes over the group's own connections wakes the thread that answers, and another thread may read it first.
TEST(FlightRecorder, IsToldByARankWhoseOtherThreadsHearTheGroupFirst) {
  const ServedStore served;
  faults::SharedNumber done;
  constexpr std::chrono::seconds kPatience{10};
  const auto ends = run_processes(2, [&](int rank) {
    const auto store = served.connect();
    InitOptions options;
    options.store = store;
    options.rank = rank, options.world_size = 2;
    init_process_group(options);
    internals::stop_flight_signal();
    internals::start_flight_signal(store, rank, 2, default_group());
    default_group()->barrier();
    StateTalk& talk = *default_group()->talk();
    if (rank == 0) {
      const Deadline deadline = Deadline::after(std::chrono::seconds(50));
      while (done.get(std::chrono::milliseconds(0)) == 0 && !deadline.expired()) talk.hear();
    } else {
      for (int round = 0; round < 20; ++round) {
        for (int i = 0; i < 200; ++i) talk.tell_state("here");
        const std::string told = internals::ask_ranks_from_outside(store, 2, {}, str("round ", round), kPatience);
        ATHANOR_CHECK(told.find("rank 0: completed") != std::string::npos, "round ", round, ":\n", told);
      }
      done.set(1);
    }
    default_group()->barrier();
    destroy_process_group();
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.good()) << end.error;
}

TEST(FlightRecorder, IsToldOnceWhenSeveralRanksAreAskedTogether) {
  const auto store = std::make_shared<HashStore>();
  internals::FlightQuestions first(store, 0, 2), second(store, 1, 2);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::thread answers([&] { second.answer_until(ends[0]); });
  const std::string told = first.ask(std::chrono::seconds(10));
  ASSERT_EQ(::write(ends[1], "q", 1), 1);
  answers.join();
  EXPECT_THAT(told, AllOf(HasSubstr("rank 0: in no group"), HasSubstr("rank 1: in no group")));
  EXPECT_EQ(second.ask(std::chrono::seconds(10)), "what all ranks are doing is told by rank 0");
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace athanor::distributed
