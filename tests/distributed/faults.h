#pragma once
/// Ranks that die or hang at a random moment, and what must become of the others.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string_view>
#include <thread>

#include "athanor/base/env.h"
#include "athanor/distributed/backend.h"
#include "athanor/distributed/process_group.h"
#include "athanor/distributed/store/tcp_store.h"
#include "tests/distributed/processes.h"

namespace athanor::distributed::faults {

using athanor::detail::str;
using std::chrono::milliseconds;

struct Plan {
  unsigned seed;
  int ranks, victim;
  bool kill;              // or stop
  bool victim_has_store;  // so that it goes with it
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
    victim_has_store = kill && below(2) == 0;
  }
  std::string text() const {
    return str("seed ", seed, ": ", ranks, " ranks, ", apart.size(), " of them apart, rank ", victim,
               kill ? " killed" : " stopped", victim_has_store ? " with the store" : "", " after ", delay.count(),
               " ms");
  }
};

inline std::size_t count_of(const char* folder) {
  std::error_code ignored;
  std::size_t count = 0;
  for (const auto& unused : std::filesystem::directory_iterator(folder, ignored)) {
    static_cast<void>(unused);
    ++count;
  }
  return count;
}

inline bool abstract_sockets_of(const std::vector<pid_t>& pids) {
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);)
    for (const pid_t pid : pids)
      if (line.find(str("@athanor-", pid, "-")) != std::string::npos) return true;
  return false;
}

/// A number that one process leaves for others.
class SharedNumber {
 public:
  SharedNumber()
      : number_(new (::mmap(nullptr, sizeof *number_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                    std::atomic<int>(0)) {}
  ~SharedNumber() { ::munmap(number_, sizeof *number_); }
  SharedNumber(const SharedNumber&) = delete;
  SharedNumber& operator=(const SharedNumber&) = delete;
  void set(int value) { number_->store(value); }
  /// Once it is set.
  int get(milliseconds patience) const {
    for (const Deadline deadline = Deadline::after(patience); number_->load() == 0 && !deadline.expired();)
      std::this_thread::sleep_for(milliseconds(1));
    return number_->load();
  }

 private:
  std::atomic<int>* number_;
};

/// Whether an error of a group at work says in which call.
inline bool names_a_call(const std::string& error) {
  for (int op = 0; op <= static_cast<int>(OpType::Recv); ++op)
    if (error.find(op_name(static_cast<OpType>(op))) != std::string::npos) return true;
  return false;
}

/// Runs `work(group, seed)` on all ranks, with the fault. Survivors end by themselves, in good order or with an error
/// that names the victim, and nothing is left behind.
inline void run_with_fault(const Plan& plan, const std::function<void(const ProcessGroupPtr&, unsigned)>& work) {
  TCPStoreOptions server;
  server.port = 0;
  server.is_server = true;
  std::optional<TCPStore> store;
  SharedNumber port;
  if (!plan.victim_has_store) port.set(store.emplace("127.0.0.1", server).port());
  const std::size_t shared_before = count_of("/dev/shm");
  std::vector<pid_t> pids;
  Deadline::Clock::time_point fault;
  constexpr std::string_view kAtWork = "at work: ";
  const auto ends = run_processes(
      plan.ranks,
      [&](int rank) {
        const bool apart = std::find(plan.apart.begin(), plan.apart.end(), rank) != plan.apart.end();
        ::setenv("ATHANOR_TRANSPORT", apart ? "tcp" : "auto", 1);
        ProcessGroupOptions options;
        options.rank = rank;
        options.size = plan.ranks;
        options.name = "faults";
        options.timeout = milliseconds(2500);
        TCPStoreOptions access;
        access.timeout = options.timeout;
        access.is_server = plan.victim_has_store && rank == plan.victim;
        access.port = access.is_server ? 0 : port.get(options.timeout);
        if (access.port == 0 && !access.is_server) throw Error(str("rank ", plan.victim, " did not serve the store"));
        const auto own = std::make_shared<TCPStore>("127.0.0.1", access);
        if (access.is_server) port.set(own->port());
        const auto group = std::make_shared<ProcessGroup>(own, options);
        try {
          work(group, plan.seed);
        } catch (const std::exception& error) {
          throw Error(str(kAtWork, error.what()));
        }
        group->shutdown();
        // Who is done with the store may still be asked for it.
        if (access.is_server)
          while (true) ::pause();
      },
      std::chrono::seconds(40),
      [&](const std::vector<pid_t>& started) {
        pids = started;
        std::this_thread::sleep_for(plan.delay);  // the moment is what is being varied
        ::kill(started[static_cast<std::size_t>(plan.victim)], plan.kill ? SIGKILL : SIGSTOP);
        fault = Deadline::Clock::now();
      },
      plan.victim);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    if (rank == plan.victim) continue;
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(WIFEXITED(end.status)) << "rank " << rank << " hung or crashed, status " << end.status << ": "
                                       << end.error;
    if (end.good()) continue;
    const bool at_work = end.error.starts_with(kAtWork);
    // While ranks meet, a store that is gone may be all they know, and those who give up because of it cannot tell why.
    const bool only_store = !at_work && plan.victim_has_store;
    EXPECT_TRUE(only_store || end.error.find(str("rank ", plan.victim)) != std::string::npos)
        << "rank " << rank << ": " << end.error;
    EXPECT_TRUE(!at_work || names_a_call(end.error)) << "rank " << rank << ": " << end.error;
  }
  // The timeout of a stopped rank, all work that was left to be done, and as much again on a busy machine.
  EXPECT_LT(Deadline::Clock::now() - fault, std::chrono::seconds(30));
  EXPECT_FALSE(abstract_sockets_of(pids));
  EXPECT_LE(count_of("/dev/shm"), shared_before);
}

/// ATHANOR_FAULT_RUNS=200 tries more moments than the usual 16.
inline void run_with_faults(int usual, const std::function<void(const ProcessGroupPtr&, unsigned)>& work) {
  const auto runs = env::integer("ATHANOR_FAULT_RUNS", 1, 100'000).value_or(usual);
  const auto first = env::integer("ATHANOR_FAULT_FIRST", 1, 1'000'000).value_or(1);
  for (auto seed = first; seed < first + runs; ++seed) {
    const Plan plan(static_cast<unsigned>(seed));
    SCOPED_TRACE(plan.text());
    run_with_fault(plan, work);
    if (testing::Test::HasFailure()) break;
  }
}

}  // namespace athanor::distributed::faults
