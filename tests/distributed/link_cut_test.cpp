// The network between two ranks is cut: neither hears of it, and both must end by their deadline.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <atomic>
#include <thread>

#include "athanor/distributed/error.h"
#include "athanor/distributed/process_group.h"
#include "athanor/distributed/store/tcp_store.h"
#include "athanor/ops/tensor.h"
#include "tests/distributed/processes.h"

namespace athanor::distributed::link_cut_test {
namespace {

using athanor::detail::str;
using std::chrono::milliseconds;

bool sh(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

// Two network namespaces joined by a cable.
class Cable {
 public:
  Cable() : id_(str(::getpid())) {
    good_ = sh("ip netns add " + name(0)) && sh("ip netns add " + name(1)) &&
            sh("ip link add " + end(0) + " netns " + name(0) + " type veth peer name " + end(1) + " netns " + name(1));
    for (int side = 0; good_ && side < 2; ++side)
      good_ = sh(inside(side) + "ip addr add " + address(side) + "/24 dev " + end(side)) &&
              sh(inside(side) + "ip link set " + end(side) + " up") && sh(inside(side) + "ip link set lo up");
  }
  ~Cable() {
    for (int side = 0; side < 2; ++side) sh("ip netns del " + name(side));
  }
  Cable(const Cable&) = delete;
  Cable& operator=(const Cable&) = delete;

  bool good() const { return good_; }
  static std::string address(int side) { return side == 0 ? "10.253.9.1" : "10.253.9.2"; }
  void enter(int side) const {
    const int fd = ::open(("/var/run/netns/" + name(side)).c_str(), O_RDONLY | O_CLOEXEC);
    ATHANOR_CHECK(fd >= 0 && ::setns(fd, CLONE_NEWNET) == 0, "setns");
    ::close(fd);
  }
  // Packets vanish; nobody is told.
  bool cut() const { return sh(inside(0) + "ip link set " + end(0) + " down"); }

 private:
  std::string name(int side) const { return "athanor-cut" + id_ + (side == 0 ? "a" : "b"); }
  std::string end(int side) const { return "ac" + id_ + (side == 0 ? "a" : "b"); }
  std::string inside(int side) const { return "ip netns exec " + name(side) + " "; }

  std::string id_;
  bool good_ = false;
};

constexpr milliseconds kTimeout{1500};
// A report is asked of the other rank for a second; half of one more for a machine that is busy.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr milliseconds kReport{10'000};
#else
constexpr milliseconds kReport{2000};
#endif

// What both ranks say when the link is cut while they do `act` again and again.
std::vector<RankEnd> ends_of_a_cut(const std::function<void(ProcessGroup&)>& act) {
  const Cable cable;
  if (!cable.good()) return {};
  return run_processes(2, [&](int rank) {
    cable.enter(rank);
    TCPStoreOptions options;
    options.port = 29'400;  // nobody else is in the namespace
    options.is_server = rank == 0;
    options.timeout = std::chrono::seconds(10);
    const auto store = std::make_shared<TCPStore>(Cable::address(0), options);
    ProcessGroupOptions group_options;
    group_options.rank = rank;
    group_options.size = 2;
    group_options.name = "cut";
    group_options.timeout = kTimeout;
    ProcessGroup group(store, group_options);
    Deadline cut = Deadline::after(milliseconds(100));
    bool done = false;
    auto before = std::chrono::steady_clock::now();
    try {
      while (true) {
        if (rank == 0 && !done && cut.expired()) done = cable.cut();
        before = std::chrono::steady_clock::now();
        act(group);
      }
    } catch (const DistError& error) {
      const auto took = std::chrono::steady_clock::now() - before;
      ATHANOR_CHECK(took < kTimeout + kReport, "it took ", std::chrono::duration_cast<milliseconds>(took).count(),
                    " ms to end with: ", error.what());
      throw;
    }
  });
}

void expect_named(const std::vector<RankEnd>& ends, const std::string& what, const std::string& number) {
  for (int rank = 0; rank < 2; ++rank) {
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(WIFEXITED(end.status) && !end.good()) << end.status << ": " << end.error;
    for (const std::string& part : {str("rank ", 1 - rank), what, number, std::string("link_cut_test.cpp:")})
      EXPECT_NE(end.error.find(part), std::string::npos) << "no '" << part << "' in: " << end.error;
    EXPECT_EQ(end.error.find(" ms to end with"), std::string::npos) << end.error;
  }
}

TEST(Faults, CutLinkEndsACollectiveAtTheDeadlineOnBothSides) {
  for (const std::int64_t count : {10, 3'000'000}) {
    const auto ends = ends_of_a_cut([&](ProcessGroup& group) {
      Tensor x = ones({count});
      group.all_reduce(x);
    });
    if (ends.empty()) GTEST_SKIP() << "needs root and iproute2 for network namespaces";
    expect_named(ends, "all_reduce", "number ");
  }
}

TEST(Faults, CutLinkEndsMessagesAtTheDeadlineOnBothSides) {
  const auto ends = ends_of_a_cut([](ProcessGroup& group) {
    Tensor x = ones({1000}), y = empty({1000});
    const WorkPtr sent = group.isend(x, 1 - group.rank(), 7);
    group.recv(y, 1 - group.rank(), 7);
    sent->wait();
  });
  if (ends.empty()) GTEST_SKIP() << "needs root and iproute2 for network namespaces";
  expect_named(ends, "recv", "tag 7");
}

// Groups are made, used once and left again and again; the cut comes at some moment of that.
TEST(Faults, CutLinkEndsSetUpAndTearDownAtTheDeadlineOnBothSides) {
  for (const int moment : {0, 11, 47}) {
    SCOPED_TRACE(str("cut after ", moment, " ms"));
    const Cable cable;
    if (!cable.good()) GTEST_SKIP() << "needs root and iproute2 for network namespaces";
    const auto ends = run_processes(
        2,
        [&](int rank) {
          cable.enter(rank);
          std::thread cutter;
          if (rank == 0)
            cutter = std::thread([&] {
              std::this_thread::sleep_for(milliseconds(moment));  // the moment is what is being varied
              cable.cut();
            });
          auto before = std::chrono::steady_clock::now();
          std::string error;
          try {
            TCPStoreOptions options;
            options.port = 29'400;
            options.is_server = rank == 0;
            options.timeout = kTimeout;
            const auto store = std::make_shared<TCPStore>(Cable::address(0), options);
            for (int i = 0;; ++i) {
              before = std::chrono::steady_clock::now();
              ProcessGroupOptions group_options;
              group_options.rank = rank;
              group_options.size = 2;
              group_options.name = str("round ", i);
              group_options.timeout = kTimeout;
              ProcessGroup group(store, group_options);
              Tensor x = ones({100});
              group.all_reduce(x);
              group.shutdown();
            }
          } catch (const DistError& caught) {
            error = caught.what();
          }
          const auto took = std::chrono::steady_clock::now() - before;
          if (cutter.joinable()) cutter.join();
          // One deadline for the group, one for what it asks of the store, and a second for a report.
          ATHANOR_CHECK(took < 2 * kTimeout + milliseconds(2000), "it took ",
                        std::chrono::duration_cast<milliseconds>(took).count(), " ms to end with: ", error);
          throw DistError(error, ATHANOR_WHERE);
        },
        std::chrono::seconds(30));
    for (const RankEnd& end : ends) {
      EXPECT_TRUE(WIFEXITED(end.status) && !end.good()) << end.status << ": " << end.error;
      EXPECT_EQ(end.error.find(" ms to end with"), std::string::npos) << end.error;
      // Whom it waited for, or the store it asked.
      EXPECT_TRUE(end.error.find("rank ") != std::string::npos ||
                  end.error.find(Cable::address(0)) != std::string::npos)
          << end.error;
    }
  }
}

}  // namespace
}  // namespace athanor::distributed::link_cut_test
