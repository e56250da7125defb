#pragma once
/// Ranks that die or hang, and what must become of the others: they end by themselves, in good order or with an error
/// that names the victim, the call and its place, and nothing is left behind.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <regex>
#include <string_view>
#include <thread>

#include "athanor/base/cpus.h"
#include "athanor/base/env.h"
#include "athanor/distributed/groups.h"
#include "athanor/distributed/process_group.h"
#include "athanor/distributed/store/tcp_store.h"
#include "tests/distributed/faulty_store.h"
#include "tests/distributed/helpers.h"
#include "tests/distributed/ports.h"
#include "tests/distributed/processes.h"

namespace athanor::distributed::faults {

using athanor::detail::str;
using std::chrono::milliseconds;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlow = 10;
#else
inline constexpr int kSlow = 1;
#endif

inline constexpr const char* kInit = "init";
inline constexpr const char* kTeardown = "teardown";

/// Who fails, how and when.
struct Plan {
  std::string name;
  int ranks = 3, victim = 1;
  bool kill = true;               // or stop
  bool victim_has_store = false;  // so that it goes with it
  std::vector<int> apart;         // ranks on hosts of their own
  milliseconds timeout{2500};
  milliseconds raises_within{1000};  // of a rank that was killed, on a machine that is not busy
  int only_timed = -1;               // the rank to which that applies, if not to all
  unsigned seed = 0;
  bool may_end = false;  // the victim may be done before it fails

  /// The victim fails as it enters this phase for the `count`th time; of kInit and kTeardown, in its `count`th question
  /// to the store. Empty: its work makes it fail.
  std::string phase;
  int count = 1;
  /// So long after that instead, wherever it is by then; without a phase, so long after the ranks were started.
  std::optional<std::chrono::microseconds> after;

  std::string text() const {
    std::string when = phase.empty() ? std::string() : str(" in ", phase, " ", count);
    if (after) when += str(" after ", after->count(), " us");
    return str(name, ": ", ranks, " ranks, ", apart.size(), " of them apart, rank ", victim,
               kill ? " killed" : " stopped", victim_has_store ? " with the store" : "", when);
  }
};

/// In memory that a test and its ranks share.
template <class T>
class Shared {
 public:
  Shared() : one_(new (::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) T) {}
  ~Shared() {
    one_->~T();
    ::munmap(one_, sizeof(T));
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* operator->() const { return one_; }
  T& operator*() const { return *one_; }

 private:
  T* one_;
};

/// A number that one process leaves for others.
class SharedNumber {
 public:
  void set(int value) { *number_ = value; }
  /// Once it is set; 0 if that takes longer.
  int get(milliseconds patience) const {
    for (const Deadline deadline = Deadline::after(patience); *number_ == 0 && !deadline.expired();)
      std::this_thread::sleep_for(milliseconds(1));
    return *number_;
  }

 private:
  Shared<std::atomic<int>> number_;
};

/// What the ranks of a run note. Times are of the steady clock, which all processes share, in nanoseconds.
struct Notes {
  struct OfRank {
    std::atomic<const char*> phase{kInit};  // of a text that was there before the ranks were forked
    std::atomic<std::int64_t> raised{0};
  };
  SharedNumber port;
  std::atomic<std::int64_t> fault{0};
  std::array<OfRank, 8> ranks;
};

inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Deadline::Clock::now().time_since_epoch()).count();
}

/// A rank in its run.
class Scene {
 public:
  Scene(const Plan& plan, Notes& notes, int rank) : plan(plan), rank(rank), notes_(notes) {}
  const Plan& plan;
  const int rank;
  ProcessGroupPtr group;

  bool is_victim() const { return rank == plan.victim; }
  /// Says what the rank is about to do; `phase` is a literal.
  void enter(const char* phase) {
    notes_.ranks[static_cast<std::size_t>(rank)].phase = phase;
    if (!is_victim() || phase != plan.phase || through_store() || ++entered_ != plan.count) return;
    if (!plan.after) return fail();
    std::thread([this] {
      std::this_thread::sleep_for(*plan.after);  // the moment is what is being varied
      fail();
    }).detach();
  }
  /// The victim's end, or long sleep.
  void fail() {
    notes_.fault = now_ns();
    ::kill(::getpid(), plan.kill ? SIGKILL : SIGSTOP);
    while (plan.kill) ::pause();
  }
  bool through_store() const { return !plan.after && (plan.phase == kInit || plan.phase == kTeardown); }

 private:
  Notes& notes_;
  int entered_ = 0;
};

/// What all ranks do, and the pattern of the place that an error of its collectives names.
struct Work {
  std::function<void(Scene&)> run;
  std::string place;
};

inline std::size_t count_of(const std::string& folder) {
  std::error_code ignored;
  const std::filesystem::directory_iterator entries(folder, ignored);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

/// Named shared memory that is the library's by its name, or one of the processes'. Other programs leave theirs there.
inline bool shared_memory_of(const std::vector<pid_t>& pids) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find("athanor") != std::string::npos) return true;
    for (const pid_t pid : pids)
      if (std::regex_search(name, std::regex(str("(^|[^0-9])", pid, "([^0-9]|$)")))) return true;
  }
  return false;
}

inline bool abstract_sockets_of(const std::vector<pid_t>& pids) {
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);)
    for (const pid_t pid : pids)
      if (line.find(str("@athanor-", pid, "-")) != std::string::npos) return true;
  return false;
}

/// Whether an error of a group at work says in which call: collectives by name, number and place, messages by tag.
inline bool names_a_call(const std::string& error, const std::string& place) {
  const std::regex call(
      "(broadcast|all_reduce|reduce|all_gather|gather|scatter|reduce_scatter|all_to_all|barrier)[^\n]*, "
      "number [0-9]+ of the group, " +
      place + "|(send to|recv from) [^\n]*, " + place + ", tag [0-9]+");
  return std::regex_search(error, call);
}

/// How many times as long as on an idle machine things may take on this one, by what wants to run on each processor.
inline int busyness() {
  constexpr int kMost = 10;
  double lately = 0, ignored = 0, now = 0;
  std::ifstream("/proc/loadavg") >> lately >> ignored >> ignored >> now;
  return std::clamp(static_cast<int>(std::max(lately, now) / usable_cpus()), 1, kMost);
}

inline constexpr std::string_view kAtWork = "at work: ";

/// Of one rank, in its process.
inline void run_rank(const Plan& plan, const Work& work, Notes& notes, int rank) {
  const bool apart = std::find(plan.apart.begin(), plan.apart.end(), rank) != plan.apart.end();
  ::setenv("ATHANOR_TRANSPORT", apart ? "tcp" : "auto", 1);
  Scene scene(plan, notes, rank);
  TCPStoreOptions access;
  access.timeout = plan.timeout;
  access.is_server = plan.victim_has_store && scene.is_victim();
  access.port = access.is_server ? free_port() : notes.port.get(plan.timeout);
  if (access.port == 0) throw Error(str("rank ", plan.victim, " did not serve the store"));
  const auto store =
      std::make_shared<FaultyStore>(std::make_shared<TCPStore>("127.0.0.1", access), [&] { scene.fail(); });
  if (access.is_server) notes.port.set(access.port);
  const auto fail_through_store = [&](const char* phase) {
    scene.enter(phase);
    if (scene.is_victim() && scene.through_store() && plan.phase == phase) store->fail_at(plan.count);
  };
  InitOptions options;
  options.store = store;
  options.rank = rank;
  options.world_size = plan.ranks;
  options.timeout = plan.timeout;
  fail_through_store(kInit);
  init_process_group(options);
  scene.group = default_group();
  try {
    work.run(scene);
  } catch (const std::exception& error) {
    notes.ranks[static_cast<std::size_t>(rank)].raised = now_ns();
    throw Error(str(kAtWork, error.what()));
  }
  scene.group = nullptr;
  fail_through_store(kTeardown);
  destroy_process_group();
  scene.enter("done");
  // Who is done with the store may still be asked for it.
  if (access.is_server)
    while (true) ::pause();
}

/// What is wrong with the end of a survivor; nothing if all is well.
inline std::string problem_of(const Plan& plan, const Work& work, const Notes& notes, int rank, const RankEnd& end) {
  if (!WIFEXITED(end.status)) return str("hung or crashed, status ", end.status, ": ", end.error);
  if (end.good()) return {};
  const bool at_work = end.error.starts_with(kAtWork);
  // While ranks meet, a store that is gone may be all they know, and those who give up because of it cannot tell why.
  const bool only_store = !at_work && plan.victim_has_store;
  if (!only_store && end.error.find(str("rank ", plan.victim)) == std::string::npos)
    return str("does not name the victim: ", end.error);
  if (!at_work) return {};
  if (!names_a_call(end.error, work.place)) return str("does not name the call and its place: ", end.error);
  const auto took = milliseconds((notes.ranks[static_cast<std::size_t>(rank)].raised - notes.fault) / 1'000'000);
  const bool timed = plan.kill && (plan.only_timed < 0 || plan.only_timed == rank);
  if (timed && took > plan.raises_within * kSlow * busyness())
    return str("raised after ", took.count(), " ms: ", end.error);
  return {};
}

inline std::string problem_with_port(int port) {
  try {
    const Listener again = Listener::on_port(port);
    return {};
  } catch (const std::exception& error) {
    return str("the store's port is not free: ", error.what());
  }
}

/// How a run went.
struct Outcome {
  std::string problems;         // none: as it should
  std::string phase;            // of the victim, as it failed
  std::vector<RankEnd> ends{};  // of all ranks
};

/// Runs the work on all ranks, with the fault.
inline Outcome run_with_fault(const Plan& plan, const Work& work) {
  const TemporaryFolder folder;
  const Shared<Notes> notes;
  std::optional<TCPStore> store;
  if (!plan.victim_has_store) {
    TCPStoreOptions server;
    server.port = free_port();
    server.is_server = true;
    notes->port.set(store.emplace("127.0.0.1", server).port());
  }
  std::vector<pid_t> pids;
  const auto start = Deadline::Clock::now();
  Outcome outcome;
  outcome.ends = run_processes(
      plan.ranks,
      [&](int rank) {
        ::setenv("TMPDIR", (folder / "").c_str(), 1);
        run_rank(plan, work, *notes, rank);
      },
      std::chrono::seconds(40) * kSlow,
      [&](const std::vector<pid_t>& started) {
        pids = started;
        if (!plan.after || !plan.phase.empty()) return;
        std::this_thread::sleep_for(*plan.after);  // the moment is what is being varied
        notes->fault = now_ns();
        ::kill(started[static_cast<std::size_t>(plan.victim)], plan.kill ? SIGKILL : SIGSTOP);
      },
      plan.victim);
  store.reset();
  outcome.phase = notes->ranks[static_cast<std::size_t>(plan.victim)].phase.load();
  const auto wrong = [&](const std::string& what) {
    if (!what.empty()) outcome.problems += str("\n  ", what);
  };
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const std::string problem =
        rank == plan.victim ? std::string()
                            : problem_of(plan, work, *notes, rank, outcome.ends[static_cast<std::size_t>(rank)]);
    if (!problem.empty()) wrong(str("rank ", rank, " ", problem));
  }
  if (notes->fault == 0 && !plan.may_end) wrong("the victim did not fail");
  // The timeout of a stopped rank, all work that was left to be done, and as much again on a busy machine.
  if (Deadline::Clock::now() - start > std::chrono::seconds(30) * kSlow) wrong("it took too long");
  if (abstract_sockets_of(pids)) wrong("a socket is left");
  if (shared_memory_of(pids)) wrong("something is left in /dev/shm");
  if (count_of(folder / "") != 0) wrong("something is left in the folder of temporary files");
  if (const int port = notes->port.get(milliseconds(0))) wrong(problem_with_port(port));
  if (!outcome.problems.empty())
    outcome.problems = str(plan.text(), ", which was in ", outcome.phase, outcome.problems, "\n");
  return outcome;
}

/// Runs the plans, so many of them at once, and returns what went wrong. `check`, which may find more, is called in
/// another process. A worker stops at its first problem.
inline std::string run_side_by_side(const std::vector<Plan>& plans, const Work& work, int at_once,
                                    const std::function<std::string(const Plan&, const Outcome&)>& check) {
  const auto each = static_cast<int>(plans.size()) / at_once + 1;
  const auto ends = run_processes(
      at_once,
      [&](int worker) {
        for (auto i = static_cast<std::size_t>(worker); i < plans.size(); i += static_cast<std::size_t>(at_once)) {
          const Outcome outcome = run_with_fault(plans[i], work);
          const std::string problems = outcome.problems + check(plans[i], outcome);
          if (!problems.empty()) throw Error(problems);
        }
      },
      std::chrono::seconds(60 + 10 * each) * kSlow);
  std::string all;
  for (const RankEnd& end : ends) all += end.good() ? "" : str("status ", end.status, ": ", end.error, "\n");
  return all;
}

/// A plan made of a number: half of them by the clock, half by one of the phases.
inline Plan random_plan(unsigned seed, const std::vector<const char*>& phases) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Plan plan;
  plan.seed = seed;
  plan.name = str("seed ", seed);
  plan.ranks = 2 + below(3);
  plan.victim = below(static_cast<std::size_t>(plan.ranks));
  plan.kill = below(3) != 0;
  plan.may_end = true;
  const int kind = below(3);
  for (int r = 0; r < plan.ranks; ++r)
    if (kind == 1 || (kind == 2 && below(2) == 0)) plan.apart.push_back(r);
  plan.victim_has_store = plan.kill && below(2) == 0;
  // The others then tell each other what they were doing, which takes longer where sixteen ranks share two processors.
  if (plan.victim_has_store) plan.raises_within = milliseconds(2000);
  if (below(2) == 0) {
    plan.after = milliseconds(below(120));
    return plan;
  }
  plan.phase = phases[static_cast<std::size_t>(below(phases.size()))];
  if (below(2) == 0)
    plan.after = std::chrono::microseconds(below(plan.phase == kInit ? 20'000 : 2000));
  else if (plan.phase != kTeardown)
    plan.count += below(plan.phase == kInit ? 12 : 3);
  return plan;
}

/// ATHANOR_FAULT_RUNS=200 tries more moments than the usual number, and expects a fault in every phase.
inline void run_with_faults(int usual, const std::vector<const char*>& phases, const Work& work) {
  constexpr std::size_t kMostPhases = 16;
  const auto runs = env::integer("ATHANOR_FAULT_RUNS", 1, 100'000).value_or(usual);
  const auto first = env::integer("ATHANOR_FAULT_FIRST", 1, 1'000'000).value_or(1);
  std::vector<Plan> plans;
  for (auto seed = first; seed < first + runs; ++seed)
    plans.push_back(random_plan(static_cast<unsigned>(seed), phases));
  const Shared<std::array<std::atomic<int>, kMostPhases>> hits;
  EXPECT_EQ(run_side_by_side(plans, work, 4,
                             [&](const Plan& plan, const Outcome& outcome) {
                               std::printf("%s: in %s\n", plan.text().c_str(), outcome.phase.c_str());
                               std::fflush(stdout);
                               const auto phase = std::find(phases.begin(), phases.end(), outcome.phase);
                               if (phase != phases.end()) ++(*hits)[static_cast<std::size_t>(phase - phases.begin())];
                               return std::string();
                             }),
            "");
  for (std::size_t i = 0; i < phases.size(); ++i)
    EXPECT_TRUE(runs < 200 || (*hits)[i] > 0) << "no fault in " << phases[i] << " in " << runs << " runs";
}

}  // namespace athanor::distributed::faults
