#include "athanor/distributed/rendezvous/rendezvous.h"
#include "athanor/distributed/groups.h"

#include <gmock/gmock.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <thread>

#include "athanor/distributed/error.h"
#include "athanor/distributed/net/interfaces.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/distributed/rendezvous/slurm.h"
#include "athanor/distributed/store/hash_store.h"
#include "athanor/distributed/store/tcp_store.h"
#include "distributed/helpers.h"
#include "distributed/ports.h"

namespace athanor::distributed {
namespace {

using std::chrono::milliseconds;

struct Outcome {
  RendezvousResult result;
  std::string error;
};

// Each of `options` in a thread of its own, as processes would come.
std::vector<Outcome> meet(const std::string& url, const std::vector<RendezvousOptions>& options) {
  std::vector<Outcome> outcomes(options.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < options.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        outcomes[i].result = rendezvous(url, options[i]);
      } catch (const Error& error) {
        outcomes[i].error = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

std::vector<RendezvousOptions> ranks(const std::vector<int>& wanted, milliseconds timeout = milliseconds(20000)) {
  std::vector<RendezvousOptions> all;
  for (const int rank : wanted) {
    RendezvousOptions options;
    options.rank = rank;
    options.world_size = static_cast<int>(wanted.size());
    options.timeout = timeout;
    all.push_back(options);
  }
  return all;
}

// All met, hold every rank once, and share a store.
void expect_whole(const std::vector<Outcome>& outcomes) {
  std::set<int> seen;
  for (const Outcome& outcome : outcomes) {
    ASSERT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.result.world_size, static_cast<int>(outcomes.size()));
    seen.insert(outcome.result.rank);
  }
  EXPECT_EQ(seen.size(), outcomes.size());
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), static_cast<int>(outcomes.size()) - 1);
  outcomes.front().result.store->set("shared", "yes");
  EXPECT_EQ(outcomes.back().result.store->get_text("shared"), "yes");
}

class TcpHosts : public testing::TestWithParam<const char*> {};

TEST_P(TcpHosts, RanksMeet) {
  const auto outcomes = meet(athanor::detail::str("tcp://", GetParam(), ":", free_port()), ranks({2, 0, 1}));
  if (std::string(GetParam()) == "[::1]" && outcomes[0].error.find("Cannot assign") != std::string::npos)
    GTEST_SKIP() << "this machine has no IPv6 loopback";
  expect_whole(outcomes);
  EXPECT_EQ(outcomes[0].result.rank, 2);
}

INSTANTIATE_TEST_SUITE_P(All, TcpHosts, testing::Values("127.0.0.1", "[::1]", "localhost"),
                         [](const auto& info) { return athanor::detail::str("host", info.index); });

// Long before the deadline: the ranks that only one of them knows of will not come.
TEST(Rendezvous, OfDifferentWorldSizesIsRefusedAtOnceOnAllRanks) {
  for (const auto& [first, second] : {std::pair(2, 3), std::pair(3, 2)}) {
    auto options = ranks({0, 1}, std::chrono::minutes(2));
    options[0].world_size = first;
    options[1].world_size = second;
    const auto start = Deadline::Clock::now();
    const auto outcomes = meet(athanor::detail::str("tcp://127.0.0.1:", free_port()), options);
    EXPECT_LT(Deadline::Clock::now() - start, std::chrono::seconds(30));
    for (const Outcome& outcome : outcomes)
      EXPECT_NE(outcome.error.find(athanor::detail::str("the world has ", first, " ranks as rank 0 was told, but ",
                                                        second, " as rank 1 was")),
                std::string::npos)
          << outcome.error;
  }
}

TEST(Rendezvous, MissingRanksAreNamed) {
  auto options = ranks({0, 1, 2, 3}, milliseconds(1000));
  options.resize(2);
  for (const Outcome& outcome : meet(athanor::detail::str("tcp://127.0.0.1:", free_port()), options)) {
    EXPECT_NE(outcome.error.find("2 of 4 ranks came"), std::string::npos) << outcome.error;
    EXPECT_NE(outcome.error.find("missing: rank 2, 3"), std::string::npos) << outcome.error;
  }
}

TEST(Rendezvous, RankGivenTwiceIsAnError) {
  const auto outcomes =
      meet(athanor::detail::str("tcp://127.0.0.1:", free_port()), ranks({0, 1, 1}, milliseconds(2000)));
  const bool first = outcomes[1].error.find("rank 1 is taken") != std::string::npos;
  const bool second = outcomes[2].error.find("rank 1 is taken") != std::string::npos;
  EXPECT_NE(first, second) << outcomes[0].error << "\n" << outcomes[1].error << "\n" << outcomes[2].error;
}

TEST(Rendezvous, GroupNamesShareOneAddressOneAfterTheOther) {
  const std::string url = athanor::detail::str("tcp://127.0.0.1:", free_port());
  auto first = ranks({0, 1}), second = ranks({0, 1});
  for (auto& options : first) options.group_name = "a";
  for (auto& options : second) options.group_name = "b";
  const auto a = meet(url, first);
  expect_whole(a);
  expect_whole(meet(url, second));
}

TEST(Rendezvous, QueryGivesRankAndSize) {
  RendezvousOptions options;
  const auto result =
      rendezvous(athanor::detail::str("tcp://localhost:", free_port(), "?rank=0&world_size=1"), options);
  EXPECT_EQ(result.rank, 0);
  EXPECT_EQ(result.world_size, 1);
}

TEST(Rendezvous, WhatCannotWorkIsRefusedAtOnce) {
  const auto refuse = [](const std::string& url, int rank, int size, const std::string& part) {
    RendezvousOptions options;
    options.rank = rank;
    options.world_size = size;
    try {
      rendezvous(url, options);
      ADD_FAILURE() << url << " was accepted";
    } catch (const ValueError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refuse("localhost:29500", 0, 1, "expected scheme://");
  refuse("smoke://signals", 0, 1, "unknown scheme 'smoke'");
  refuse("tcp://localhost", 0, 1, "port");
  refuse("tcp://localhost:0", 0, 1, "port");
  refuse("tcp://localhost:99999", 0, 1, "port");
  refuse("tcp://::1:29500", 0, 1, "brackets");
  refuse("tcp://localhost:29500", -1, 2, "rank is missing");
  refuse("tcp://localhost:29500", 0, -1, "world_size is missing");
  refuse("tcp://localhost:29500", 2, 2, "rank 2 in a world of 2");
  refuse("tcp://localhost:29500?rank=1", 0, 2, "rank=1 in the URL, but 0");
  refuse("tcp://localhost:29500?rank=x", -1, 2, "should be a number");
  refuse("file://relative", 0, 1, "expected file:///absolute/path");
}

TEST(Rendezvous, UserMadeSchemeIsUsed) {
  static auto store = std::make_shared<HashStore>();
  register_rendezvous_handler("mine", [](const RendezvousUrl& url, const RendezvousOptions& options) {
    EXPECT_EQ(url.location, "here");
    EXPECT_EQ(url.query.at("colour"), "red");
    return RendezvousResult{store, options.rank, options.world_size};
  });
  EXPECT_EQ(rendezvous("mine://here?colour=red", ranks({0})[0]).store, store);
  EXPECT_THROW(register_rendezvous_handler("mine", nullptr), ValueError);
}

TEST(FileRendezvous, RanksGivenSelfAssignedOrBothAndTheFileGoes) {
  const TemporaryFolder folder;
  for (const auto& wanted : {std::vector<int>{1, 2, 0}, {-1, -1, -1}, {-1, 1, -1, 3}, {0}, {-1}}) {
    {
      const auto outcomes = meet("file://" + folder / "meet", ranks(wanted));
      expect_whole(outcomes);
      for (std::size_t i = 0; i < wanted.size(); ++i)
        EXPECT_TRUE(wanted[i] < 0 || outcomes[i].result.rank == wanted[i]) << outcomes[i].result.rank;
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "meet"));
  }
}

TEST(FileRendezvous, GroupsShareOneFile) {
  const TemporaryFolder folder;
  auto options = ranks({-1, -1, -1, -1});
  for (std::size_t i = 0; i < 4; ++i) {
    options[i].world_size = 2;
    options[i].group_name = i % 2 == 0 ? "even" : "odd";
  }
  const auto outcomes = meet("file://" + folder / "meet", options);
  expect_whole({outcomes[0], outcomes[2]});
  expect_whole({outcomes[1], outcomes[3]});
}

TEST(FileRendezvous, TooFewAndTooManyAreErrors) {
  const TemporaryFolder folder;
  auto few = ranks({-1, -1, -1}, milliseconds(200));
  few.resize(2);
  for (const Outcome& outcome : meet("file://" + folder / "few", few))
    EXPECT_NE(outcome.error.find("2 of 3 processes came before"), std::string::npos) << outcome.error;
  auto known = ranks({2, 0, -1}, milliseconds(200));
  known.resize(2);
  for (const Outcome& outcome : meet("file://" + folder / "known", known))
    EXPECT_NE(outcome.error.find("2 of 3 processes came (rank 0, 2; missing: rank 1)"), std::string::npos)
        << outcome.error;
  auto many = ranks({-1, -1, -1}, milliseconds(5000));
  for (auto& options : many) options.world_size = 2;
  int refused = 0;
  for (const Outcome& outcome : meet("file://" + folder / "many", many))
    refused += outcome.error.find("process number 3 of a world of 2") != std::string::npos ? 1 : 0;
  EXPECT_EQ(refused, 1);
}

class Multicast : public testing::TestWithParam<const char*> {
 protected:
  // A port of its own keeps tests that run at the same time apart, beside their group names.
  std::string url_ = athanor::detail::str("tcp://", GetParam(), ":", free_port());
  bool unsupported(const std::vector<Outcome>& outcomes) const {
    return outcomes[0].error.find("no interface with") != std::string::npos ||
           outcomes[0].error.find("cannot bind") != std::string::npos;
  }
};

TEST_P(Multicast, RanksAreSelfAssigned) {
  const auto outcomes = meet(url_, ranks({-1, -1, -1}));
  if (unsupported(outcomes)) GTEST_SKIP() << outcomes[0].error;
  expect_whole(outcomes);
}

TEST_P(Multicast, GivenRanksAreKept) {
  const auto outcomes = meet(url_, ranks({-1, 0, -1, 2}));
  if (unsupported(outcomes)) GTEST_SKIP() << outcomes[0].error;
  expect_whole(outcomes);
  EXPECT_EQ(outcomes[1].result.rank, 0);
  EXPECT_EQ(outcomes[3].result.rank, 2);
}

TEST_P(Multicast, GroupNamesShareOneAddress) {
  auto options = ranks({-1, -1, -1, -1});
  for (std::size_t i = 0; i < 4; ++i) {
    options[i].world_size = 2;
    options[i].group_name = i % 2 == 0 ? "even" : "odd";
  }
  const auto outcomes = meet(url_, options);
  if (unsupported(outcomes)) GTEST_SKIP() << outcomes[0].error;
  expect_whole({outcomes[0], outcomes[2]});
  expect_whole({outcomes[1], outcomes[3]});
}

TEST_P(Multicast, LonelyProcessGivesUpAtTheDeadline) {
  auto options = ranks({-1, -1}, milliseconds(300));
  options.resize(1);
  const auto outcomes = meet(url_, options);
  if (unsupported(outcomes)) GTEST_SKIP() << outcomes[0].error;
  EXPECT_NE(outcomes[0].error.find("1 of 2 processes announced themselves"), std::string::npos) << outcomes[0].error;
  EXPECT_NE(outcomes[0].error.find("one without a rank at "), std::string::npos) << outcomes[0].error;
}

// The one that finds out first must not leave the other one waiting.
TEST_P(Multicast, ARankGivenTwiceIsAnErrorAtOnceForBoth) {
  auto options = ranks({0, 0}, std::chrono::minutes(2));
  const auto start = Deadline::Clock::now();
  const auto outcomes = meet(url_, options);
  if (unsupported(outcomes)) GTEST_SKIP() << outcomes[0].error;
  EXPECT_LT(Deadline::Clock::now() - start, std::chrono::seconds(30));
  for (const Outcome& outcome : outcomes)
    EXPECT_NE(outcome.error.find("rank 0 was given to two processes"), std::string::npos) << outcome.error;
}

INSTANTIATE_TEST_SUITE_P(All, Multicast, testing::Values("239.77.77.77", "[ff02::7777]"),
                         [](const auto& info) { return info.index == 0 ? "v4" : "v6"; });

// env:// reads the environment, which belongs to a process.
std::string in_child(const std::map<std::string, std::string>& environment, const std::function<void()>& body) {
  int pipe[2];
  EXPECT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                             "SLURM_PROCID", "SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS",
                             "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "JOB_COMPLETION_INDEX", "TORCHELASTIC_USE_AGENT_STORE",
                             "LOCAL_RANK", "PET_NPROC_PER_NODE", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})
      ::unsetenv(name);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    std::string outcome = "ok";
    try {
      body();
    } catch (const std::exception& error) {
      outcome = error.what();
    }
    [[maybe_unused]] const auto written = ::write(pipe[1], outcome.data(), outcome.size());
    ::_exit(0);
  }
  ::close(pipe[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(pipe[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  ::close(pipe[0]);
  ::waitpid(child, nullptr, 0);
  return text;
}

// In a network namespace of its own there is nothing but loopback.
TEST_P(Multicast, MeetsOnAMachineWithOnlyLoopback) {
  const std::string outcome = in_child({}, [&] {
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    const bool apart = ::unshare(CLONE_NEWNET) == 0;
    const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ATHANOR_CHECK(apart && ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0, "not permitted");
    for (const Outcome& one : meet(url_, ranks({-1, -1, -1})))
      ATHANOR_CHECK(one.error.empty() && one.result.store, one.error);
  });
  if (outcome.find("not permitted") != std::string::npos) GTEST_SKIP() << "a namespace of one's own needs root";
  EXPECT_EQ(outcome, "ok");
}

TEST(EnvRendezvous, ReadsTheLaunchersVariables) {
  const std::string port = std::to_string(free_port());
  for (const auto& environment : {std::map<std::string, std::string>{{"RANK", "0"}, {"WORLD_SIZE", "1"}},
                                  {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
                                  {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}},
                                  {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}},
                                  {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "7"}},
                                  {{"JOB_COMPLETION_INDEX", "0"}, {"WORLD_SIZE", "1"}}}) {
    auto whole = environment;
    whole["MASTER_PORT"] = port;
    EXPECT_EQ(in_child(whole,
                       [] {
                         const auto result = rendezvous("env://");
                         ATHANOR_CHECK(result.rank == 0 && result.world_size == 1, "wrong rank");
                       }),
              "ok");
  }
}

TEST(EnvRendezvous, ProgramsCanAskWhetherALauncherStartedThem) {
  const auto size = [](const std::map<std::string, std::string>& environment) {
    return in_child(environment, [] { throw std::runtime_error(std::to_string(launched_world_size().value_or(0))); });
  };
  EXPECT_EQ(size({}), "0");
  EXPECT_EQ(size({{"WORLD_SIZE", "1"}}), "1");
  EXPECT_EQ(size({{"WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}}), "2");
  EXPECT_EQ(size({{"WORLD_SIZE", ""}, {"OMPI_COMM_WORLD_SIZE", "3"}}), "3");
  EXPECT_EQ(size({{"PMI_SIZE", "4"}}), "4");
  EXPECT_EQ(size({{"SLURM_STEP_NUM_TASKS", "5"}, {"SLURM_NTASKS", "6"}}), "5");
  EXPECT_EQ(size({{"SLURM_NTASKS", "6"}, {"SLURM_PROCID", "0"}}), "0") << "a batch script is no task";
  EXPECT_NE(size({{"WORLD_SIZE", "0"}}).find("WORLD_SIZE='0'"), std::string::npos);
}

TEST(EnvRendezvous, TheRankOnThisHostIsWhatTheLauncherSays) {
  const auto local = [](std::map<std::string, std::string> environment) {
    for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"})
      environment.emplace(name, "");  // these count as unset
    return in_child(environment, [] { throw std::runtime_error(std::to_string(get_node_local_rank())); });
  };
  EXPECT_EQ(local({}), "-1");
  EXPECT_EQ(local({{"LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}), "1");
  EXPECT_EQ(local({{"LOCAL_RANK", ""}, {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}, {"SLURM_LOCALID", "0"}}), "2");
  EXPECT_EQ(local({{"MPI_LOCALRANKID", "3"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}}), "3");
  EXPECT_EQ(local({{"SLURM_LOCALID", "4"}, {"SLURM_STEP_NUM_TASKS", "8"}}), "4");
  EXPECT_EQ(local({{"SLURM_LOCALID", "0"}}), "-1") << "a batch script is no task";
  EXPECT_THAT(local({{"OMPI_COMM_WORLD_LOCAL_RANK", "two"}}), testing::HasSubstr("OMPI_COMM_WORLD_LOCAL_RANK='two'"));
}

TEST(EnvRendezvous, WhatIsMissingIsNamed) {
  const auto run = [](const std::map<std::string, std::string>& environment) {
    return in_child(environment, [] { rendezvous("env://"); });
  };
  EXPECT_NE(run({}).find("RANK is not set"), std::string::npos);
  EXPECT_NE(run({{"RANK", ""}}).find("RANK is not set"), std::string::npos);
  EXPECT_NE(run({{"RANK", "0"}}).find("WORLD_SIZE is not set"), std::string::npos);
  EXPECT_NE(run({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).find("MASTER_ADDR is not set on rank 1"), std::string::npos);
  EXPECT_NE(run({{"RANK", "0"}, {"WORLD_SIZE", "2"}}).find("MASTER_PORT is not set"), std::string::npos);
  EXPECT_NE(run({{"RANK", "two"}, {"WORLD_SIZE", "2"}}).find("RANK='two'"), std::string::npos);
  EXPECT_NE(run({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).find("rank 2 in a world of 2"), std::string::npos);
}

TEST(EnvRendezvous, TheUrlHasTheLastWord) {
  const std::map<std::string, std::string> job = {
      {"RANK", "7"}, {"WORLD_SIZE", "9"}, {"MASTER_PORT", std::to_string(free_port())}};
  EXPECT_EQ(in_child(job,
                     [] {
                       const auto result = rendezvous("env://?rank=0&world_size=1");
                       ATHANOR_CHECK(result.rank == 0 && result.world_size == 1, "wrong rank");
                     }),
            "ok");
  EXPECT_NE(in_child(job, [] { rendezvous("env://", ranks({0})[0]); }).find("RANK=7"), std::string::npos);
}

TEST(EnvRendezvous, NumbersOfNodesAreNotTakenForRanks) {
  std::map<std::string, std::string> pod = {
      {"RANK", "0"}, {"WORLD_SIZE", "4"}, {"PET_NPROC_PER_NODE", "2"}, {"MASTER_PORT", std::to_string(free_port())}};
  const std::string said = in_child(pod, [] { rendezvous("env://"); });
  EXPECT_NE(said.find("PET_NPROC_PER_NODE=2"), std::string::npos) << said;
  EXPECT_NE(said.find("athanor run"), std::string::npos) << said;
  pod["WORLD_SIZE"] = "1";
  pod["LOCAL_RANK"] = "0";  // a launcher has been here
  EXPECT_EQ(in_child(pod, [] { rendezvous("env://"); }), "ok");
  pod.erase("LOCAL_RANK");
  pod["PET_NPROC_PER_NODE"] = "1";
  EXPECT_EQ(in_child(pod, [] { rendezvous("env://"); }), "ok");
}

TEST(Slurm, TheFirstHostIsReadFromAnyList) {
  const auto first = [](const std::string& list) {
    return in_child({{"SLURM_STEP_NODELIST", list}}, [] { throw std::runtime_error(slurm::first_host()); });
  };
  EXPECT_EQ(first("node1"), "node1");
  EXPECT_EQ(first("a,b[1-2]"), "a");
  EXPECT_EQ(first("gnode[10,20-23],other"), "gnode10");
  EXPECT_EQ(first("node[1-2]-ib"), "node1-ib");
  EXPECT_EQ(first("node[1-2]-ib,login"), "node1-ib");
  EXPECT_EQ(first("rack[03-04]node[001,007]"), "rack03node001");
  EXPECT_EQ(first("broken[7"), "broken7");
}

TEST(Slurm, TasksOfEachNodeAreReadFromTheirList) {
  const auto all = [](const std::string& list) {
    std::vector<int> tasks;
    for (int node = 0; node < 4; ++node) tasks.push_back(slurm::tasks_of_node(list, node).value_or(-1));
    return tasks;
  };
  EXPECT_EQ(all("4"), (std::vector<int>{4, -1, -1, -1}));
  EXPECT_EQ(all("2,1"), (std::vector<int>{2, 1, -1, -1}));
  EXPECT_EQ(all("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(all("1,3(x3)"), (std::vector<int>{1, 3, 3, 3}));
  for (const char* nonsense : {"", "x", "2(x", "2(x)", "0", "-1(x4)"})
    EXPECT_EQ(all(nonsense), std::vector<int>(4, -1)) << nonsense;
}

// A rank that was killed and started again, as pods are.
class RestartedRank : public testing::Test {
 protected:
  static constexpr std::chrono::seconds kPatience{30};
  RestartedRank() {
    TCPStoreOptions options;
    options.port = 0;
    options.is_server = true;
    options.timeout = kPatience;
    store_ = std::make_unique<TCPStore>("localhost", options);
  }
  static void meet_in(Store& store, int rank, int size) {
    const Deadline deadline = Deadline::after(kPatience);
    meeting::meet_all(store, meeting::claim_place(store, rank, size, deadline, "test"), rank, size, deadline, "test");
  }
  /// A process that claims rank 1 of `size` and is killed once it has.
  void claim_and_die(int size) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a failed test leaves nobody behind
      TCPStoreOptions options;
      options.port = store_->port();
      TCPStore store("localhost", options);
      try {
        meet_in(store, 1, size);
      } catch (const std::exception&) {
      }
      while (true) ::pause();
    }
    const bool claimed = was_claimed();
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ASSERT_TRUE(claimed);
  }
  bool was_claimed() {
    try {
      store_->wait({"rendezvous/rank/1"});
      return true;
    } catch (const DistError&) {
      return false;
    }
  }
  std::string meet_as(int rank, int size) {
    try {
      meet_in(*store_, rank, size);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "ok";
  }
  std::unique_ptr<TCPStore> store_;
};

TEST_F(RestartedRank, TakesItsPredecessorsPlaceWhileOthersAreAwaited) {
  claim_and_die(3);
  const std::string predecessor = store_->get_text("rendezvous/rank/1");
  std::vector<std::string> outcomes(3);
  std::vector<std::thread> threads;
  const auto start = [&](int r) {
    threads.emplace_back([&, r] { outcomes[static_cast<std::size_t>(r)] = meet_as(r, 3); });
  };
  start(1);
  // The others may have met with the predecessor otherwise.
  const Deadline deadline = Deadline::after(kPatience);
  while (store_->get_text("rendezvous/rank/1") == predecessor && !deadline.expired()) std::this_thread::yield();
  start(0);
  start(2);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(outcomes, std::vector<std::string>(3, "ok"));
}

TEST_F(RestartedRank, IsRefusedAtOnceWhenTheOthersHaveMet) {
  claim_and_die(2);
  EXPECT_EQ(meet_as(0, 2), "ok");
  const std::string outcome = meet_as(1, 2);
  EXPECT_NE(outcome.find("rank 1 is taken by process"), std::string::npos) << outcome;
  EXPECT_NE(outcome.find("the others are at work already"), std::string::npos) << outcome;
}

// Under torchrun the agent listens at MASTER_PORT already.
TEST(EnvRendezvous, JoinsTheAgentsStoreAsAClient) {
  TCPStoreOptions agent;
  agent.port = 0;
  agent.is_server = true;
  TCPStore store("localhost", agent);
  EXPECT_EQ(in_child({{"RANK", "0"},
                      {"WORLD_SIZE", "1"},
                      {"MASTER_ADDR", "localhost"},
                      {"MASTER_PORT", std::to_string(store.port())},
                      {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
                     [] {
                       const auto own = std::dynamic_pointer_cast<PrefixStore>(rendezvous("env://").store);
                       own->underlying_store()->set("from the worker", "hello");
                     }),
            "ok");
  store.set_timeout(std::chrono::seconds(5));
  EXPECT_EQ(store.get_text("athanor/0/0/from the worker"), "hello");
}

}  // namespace
}  // namespace athanor::distributed
