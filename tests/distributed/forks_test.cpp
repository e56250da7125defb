// A process that dies is gone for the others, whatever children of it live on.
#include <dirent.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "athanor/distributed/error.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/distributed/process_group.h"
#include "athanor/distributed/store/file_store.h"
#include "athanor/distributed/store/tcp_store.h"
#include "athanor/ops/tensor.h"
#include "tests/distributed/helpers.h"
#include "tests/distributed/processes.h"
#include "tests/distributed/served_store.h"
#include "tests/fork_guard.h"

namespace athanor::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The pipes of the test would keep it waiting.
void close_pipes() {
  std::vector<int> pipes;
  DIR* folder = ::opendir("/proc/self/fd");
  for (const dirent* entry = nullptr; (entry = ::readdir(folder)) != nullptr;) {
    const int fd = std::atoi(entry->d_name);
    char to[64] = "";
    if (fd > 2 && ::readlinkat(::dirfd(folder), entry->d_name, to, sizeof to - 1) > 0 &&
        std::string(to).starts_with("pipe:"))
      pipes.push_back(fd);
  }
  ::closedir(folder);
  for (const int fd : pipes) ::close(fd);
}

// A child that lives until it is killed, though not for ever. Its process id.
pid_t start_survivor() {
  const pid_t child = ::fork();
  if (child != 0) return child;
  close_pipes();
  ::alarm(60);
  while (true) ::pause();
}

class KilledParent : public testing::TestWithParam<const char*> {};

TEST_P(KilledParent, IsGoneForItsPeersThoughAChildLives) {
  const ServedStore store;
  constexpr int kVictim = 1;
  const auto ends = run_processes(3, [&](int rank) {
    ::setenv("ATHANOR_TRANSPORT", GetParam(), 1);
    ProcessGroupOptions options;
    options.rank = rank;
    options.size = 3;
    options.name = "forks";
    options.timeout = seconds(40);
    ProcessGroup group(store.connect(), options);
    Tensor x = ones({4});
    group.all_reduce(x);
    if (rank == kVictim) {
      const pid_t survivor = start_survivor();
      store.connect()->set("survivor", std::to_string(survivor));
      ::kill(::getpid(), SIGKILL);
    }
    const auto start = std::chrono::steady_clock::now();
    try {
      group.all_reduce(x);
    } catch (const std::exception& error) {
      const auto took = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
      throw Error(athanor::detail::str(took.count(), " ms: ", error.what()));
    }
  });
  ::kill(std::stoi(store.connect()->get_text("survivor")), SIGKILL);
  // Who hears of it from the other rank, before the connection shows it, waits for the record of the dead one.
  int reported_at_once = 0;
  for (const std::size_t rank : {0, 2}) {
    const std::string& said = ends[rank].error;
    EXPECT_NE(said.find("rank 1 is gone"), std::string::npos) << said;
    EXPECT_NE(said.find("all_reduce"), std::string::npos) << said;
    reported_at_once += said.find("rank 1: it is gone") != std::string::npos ? 1 : 0;
    EXPECT_LT(std::atoi(said.c_str()), 10'000) << said;
  }
  EXPECT_GE(reported_at_once, 1) << ends[0].error << "\n" << ends[2].error;
}

INSTANTIATE_TEST_SUITE_P(All, KilledParent, testing::Values("auto", "tcp"),
                         [](const auto& info) { return info.index == 0 ? "shared" : "sockets"; });

TEST(Forks, APortIsFreeWhenItsProcessEndsThoughAChildLives) {
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    TCPStoreOptions options;
    options.port = 0;
    options.is_server = true;
    const TCPStore store("127.0.0.1", options);
    const int said[2] = {store.port(), start_survivor()};
    static_cast<void>(!::write(told[1], said, sizeof said));
    while (true) ::pause();
  }
  int said[2] = {0, 0};
  ASSERT_EQ(::read(told[0], said, sizeof said), static_cast<ssize_t>(sizeof said));
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  // The child may not have run yet, and lets go when it does.
  std::string taken = "?";
  for (const Deadline deadline = Deadline::after(seconds(20)); !taken.empty() && !deadline.expired();) {
    try {
      Listener::on_port(said[0]);
      taken.clear();
    } catch (const DistNetworkError& error) {
      taken = error.what();
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(taken, "");
  ::kill(said[1], SIGKILL);
  ::close(told[0]);
  ::close(told[1]);
}

TEST(Forks, AChildUsesAStoreOverConnectionsOfItsOwn) {
  TCPStoreOptions options;
  options.port = 0;
  options.is_server = true;
  TCPStore store("127.0.0.1", options);
  store.set("from", "parent");
  const auto ends = run_processes(2, [&](int rank) {
    for (int i = 0; i < 50; ++i) store.add("sum", 1);
    ATHANOR_CHECK(store.get_text("from") == "parent", "wrong value");
    store.set(athanor::detail::str("child ", rank), "was here");
  });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.good()) << end.error;
  EXPECT_EQ(store.add("sum", 0), 100);
  EXPECT_EQ(store.get_text("child 1"), "was here");
}

TEST(Forks, AChildMayEndWithTheStoreThatItsParentServes) {
  TCPStoreOptions options;
  options.port = 0;
  options.is_server = true;
  auto store = std::make_unique<TCPStore>("127.0.0.1", options);
  const auto ends = run_processes(
      1, [&](int) { store.reset(); }, seconds(20));
  EXPECT_TRUE(ends[0].good()) << ends[0].error;
  store->set("still", "there");
  EXPECT_EQ(store->get_text("still"), "there");
}

TEST(Forks, ParentAndChildrenChangeAFileStoreOneAfterTheOther) {
  const TemporaryFolder folder;
  FileStore store(folder / "store");
  store.set("from", "parent");
  constexpr int kTurns = 300;
  const auto ends = run_processes(
      2,
      [&](int rank) {
        ATHANOR_CHECK(store.get_text("from") == "parent", "wrong value");
        for (int i = 0; i < kTurns; ++i) store.add("sum", 1);
        store.set(athanor::detail::str("child ", rank), "was here");
      },
      seconds(60),
      [&](const std::vector<pid_t>&) {
        for (int i = 0; i < kTurns; ++i) store.add("sum", 1);
      });
  for (const RankEnd& end : ends) EXPECT_TRUE(end.good()) << end.error;
  EXPECT_EQ(store.add("sum", 0), 3 * kTurns);
  EXPECT_EQ(store.get_text("child 1"), "was here");
}

TEST(Forks, AChildUsesAFileStoreThatAnotherThreadOfItsParentWasUsing) {
  ATHANOR_SKIP_IF_FORKS_ARE_UNSEEN();
  const TemporaryFolder folder;
  FileStore store(folder / "store");
  std::atomic<bool> ended{false};
  std::thread user([&] {
    for (const Deadline limit = Deadline::after(seconds(40)); !ended && !limit.expired(); std::this_thread::yield())
      store.add("turns", 1);
  });
  constexpr int kChildren = 20;
  const auto ends = run_processes(
      kChildren, [&](int) { store.add("children", 1); }, seconds(30));
  ended = true;
  user.join();
  for (const RankEnd& end : ends) EXPECT_TRUE(end.good()) << end.status << ": " << end.error;
  EXPECT_EQ(store.add("children", 0), kChildren);
}

TEST(Forks, AChildThatEndsWithItsParentsFileStoreLeavesItAlone) {
  const TemporaryFolder folder;
  auto store = std::make_unique<FileStore>(folder / "store");
  store->set("still", "there");
  const auto ends = run_processes(1, [&](int) { store.reset(); });
  EXPECT_TRUE(ends[0].good()) << ends[0].error;
  ASSERT_TRUE(std::filesystem::exists(folder / "store"));
  EXPECT_EQ(FileStore(folder / "store").get_text("still"), "there");
}

TEST(Forks, AChildKeepsTheFileStoreThatItUses) {
  const TemporaryFolder folder;
  auto store = std::make_unique<FileStore>(folder / "store");
  int turn[2];
  ASSERT_EQ(::pipe(turn), 0);
  const auto ends = run_processes(
      1,
      [&](int) {
        store->set("from", "child");
        ATHANOR_CHECK(::write(turn[1], "1", 1) == 1, "write");
        // The parent's store ends meanwhile.
        while (!std::filesystem::exists(folder / "go")) std::this_thread::yield();
        ATHANOR_CHECK(store->get_text("from") == "child", "wrong value");
        store.reset();
        ATHANOR_CHECK(!std::filesystem::exists(folder / "store"), "the last user should remove the file");
      },
      seconds(60),
      [&](const std::vector<pid_t>&) {
        char word = 0;
        EXPECT_EQ(::read(turn[0], &word, 1), 1);
        store.reset();
        EXPECT_TRUE(std::filesystem::exists(folder / "store"));
        std::filesystem::create_directory(folder / "go");
      });
  EXPECT_TRUE(ends[0].good()) << ends[0].error;
  ::close(turn[0]);
  ::close(turn[1]);
}

TEST(Forks, AChildIsToldThatItsParentsFileStoreIsGone) {
  const TemporaryFolder folder;
  auto store = std::make_unique<FileStore>(folder / "store");
  const auto ends = run_processes(
      1,
      [&](int) {
        while (std::filesystem::exists(folder / "store")) std::this_thread::yield();
        store->check({"anything"});
      },
      seconds(60), [&](const std::vector<pid_t>&) { store.reset(); });
  EXPECT_NE(ends[0].error.find("this process was forked, and the file has been removed"), std::string::npos)
      << ends[0].error;
}

}  // namespace
}  // namespace athanor::distributed
