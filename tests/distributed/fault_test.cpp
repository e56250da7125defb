// Ranks that die or hang at a random moment: the others end by themselves, say who it was, and leave nothing behind.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "athanor/base/env.h"
#include "athanor/distributed/process_group.h"
#include "athanor/distributed/store/tcp_store.h"
#include "athanor/ops/tensor.h"
#include "tests/distributed/processes.h"

namespace athanor::distributed {
namespace {

using athanor::detail::str;
using std::chrono::milliseconds;

struct Plan {
  unsigned seed;
  int ranks, victim;
  bool kill;  // or stop
  milliseconds delay;
  std::vector<int> apart;  // ranks on hosts of their own

  explicit Plan(unsigned number) : seed(number) {
    std::mt19937 random(number);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    ranks = 2 + below(3);
    victim = below(ranks);
    kill = below(3) != 0;
    delay = milliseconds(below(60));
    const int kind = below(3);
    for (int r = 0; r < ranks; ++r)
      if (kind == 1 || (kind == 2 && below(2) == 0)) apart.push_back(r);
  }
  std::string text() const {
    return str("seed ", seed, ": ", ranks, " ranks, ", apart.size(), " of them apart, rank ", victim,
               kill ? " killed" : " stopped", " after ", delay.count(), " ms");
  }
};

// The same random calls on every rank, until something goes wrong or all is done.
void work(ProcessGroup& group, unsigned seed) {
  std::mt19937 random(seed);
  const int n = group.size(), me = group.rank();
  for (int i = 0; i < 400; ++i) {
    const auto count = static_cast<std::int64_t>(1) << (random() % 18);
    const int root = static_cast<int>(random() % static_cast<unsigned>(n));
    Tensor x = ones({count}), y = empty({count * n});
    switch (random() % 6) {
      case 0:
        group.all_reduce(x);
        break;
      case 1:
        group.broadcast(x, root);
        break;
      case 2:
        group.all_gather_into_tensor(y, x);
        break;
      case 3:
        group.reduce_scatter_tensor(x, y.zero_());
        break;
      case 4: {
        Tensor z = empty({count});
        const WorkPtr sent = group.isend(x, (me + 1) % n), received = group.irecv(z, (me + n - 1) % n);
        received->wait();
        sent->wait();
        break;
      }
      default:
        group.all_reduce(x, ReduceOp::MAX, true)->wait();
        break;
    }
  }
}

std::size_t count_of(const char* folder) {
  std::error_code ignored;
  std::size_t count = 0;
  for (const auto& unused : std::filesystem::directory_iterator(folder, ignored)) {
    static_cast<void>(unused);
    ++count;
  }
  return count;
}

bool abstract_sockets_of(const std::vector<pid_t>& pids) {
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);)
    for (const pid_t pid : pids)
      if (line.find(str("@athanor-", pid, "-")) != std::string::npos) return true;
  return false;
}

void run(const Plan& plan) {
  TCPStoreOptions server;
  server.port = 0;
  server.is_server = true;
  const TCPStore store("127.0.0.1", server);
  const std::size_t shared_before = count_of("/dev/shm");
  std::vector<pid_t> pids;
  const auto ends = run_processes(
      plan.ranks,
      [&](int rank) {
        const bool apart = std::find(plan.apart.begin(), plan.apart.end(), rank) != plan.apart.end();
        ::setenv("ATHANOR_TRANSPORT", apart ? "tcp" : "auto", 1);
        TCPStoreOptions client;
        client.port = store.port();
        ProcessGroupOptions options;
        options.rank = rank;
        options.size = plan.ranks;
        options.name = "faults";
        options.timeout = milliseconds(2500);
        ProcessGroup group(std::make_shared<TCPStore>("127.0.0.1", client), options);
        work(group, plan.seed);
        group.shutdown();
      },
      std::chrono::seconds(40),
      [&](const std::vector<pid_t>& started) {
        pids = started;
        std::this_thread::sleep_for(plan.delay);  // the moment is what is being varied
        ::kill(started[static_cast<std::size_t>(plan.victim)], plan.kill ? SIGKILL : SIGSTOP);
      },
      plan.victim);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    if (rank == plan.victim) continue;
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(WIFEXITED(end.status)) << "rank " << rank << " hung or crashed, status " << end.status << ": "
                                       << end.error;
    if (!end.good()) {
      EXPECT_NE(end.error.find(str("rank ", plan.victim)), std::string::npos) << "rank " << rank << ": " << end.error;
    }
  }
  EXPECT_FALSE(abstract_sockets_of(pids));
  EXPECT_LE(count_of("/dev/shm"), shared_before);
}

// ATHANOR_FAULT_RUNS=200 tries more moments.
TEST(Faults, SurvivorsOfARandomFaultNameTheRankAndEnd) {
  const auto runs = env::integer("ATHANOR_FAULT_RUNS", 1, 100'000).value_or(16);
  for (unsigned seed = 1; seed <= static_cast<unsigned>(runs); ++seed) {
    const Plan plan(seed);
    SCOPED_TRACE(plan.text());
    run(plan);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace athanor::distributed
