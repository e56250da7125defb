// Which ranks share memory, and what becomes of them when it cannot be had.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <sstream>
#include <thread>

#include "athanor/distributed/error.h"
#include "athanor/distributed/net/interfaces.h"
#include "athanor/distributed/process_group.h"
#include "athanor/distributed/store/tcp_store.h"
#include "athanor/distributed/transport/segment.h"
#include "athanor/ops/tensor.h"
#include "distributed/forwarding_store.h"
#include "distributed/variables.h"
#include "tests/distributed/processes.h"

namespace athanor::distributed {
namespace {

using athanor::detail::str;
using std::chrono::milliseconds;
using std::chrono::seconds;

TCPStoreOptions of_server(int port) {
  TCPStoreOptions options;
  options.port = port;
  options.is_server = port == 0;
  return options;
}

// Calls `body` with the group of each of `ranks` processes; `wrapped` makes of a rank's store what its group uses.
std::vector<RankEnd> run_group(int ranks, const std::function<void(ProcessGroup&)>& body,
                               const std::function<std::shared_ptr<Store>(int, std::shared_ptr<Store>)>& wrapped = {},
                               seconds timeout = seconds(50)) {
  const TCPStore server("127.0.0.1", of_server(0));
  return run_processes(ranks, [&](int rank) {
    std::shared_ptr<Store> store = std::make_shared<TCPStore>("127.0.0.1", of_server(server.port()));
    if (wrapped) store = wrapped(rank, store);
    ProcessGroupOptions options;
    options.rank = rank;
    options.size = ranks;
    options.name = "test";
    options.timeout = timeout;
    ProcessGroup group(store, options);
    body(group);
  });
}

void expect_all_good(const std::vector<RankEnd>& ends) {
  for (std::size_t rank = 0; rank < ends.size(); ++rank)
    EXPECT_TRUE(ends[rank].good()) << "rank " << rank << ": " << ends[rank].error;
}

TEST(SharedMemory, ThatTheLowestRankCannotMakeIsEverybodysErrorAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  const auto ends = run_group(3, [](ProcessGroup& group) {
    try {
      group.allocate_shared(std::size_t{1} << 58);
    } catch (const DistError&) {
      // That this process ends is not what the others hear of.
      group.store()->set(str("ended/", group.rank()), "");
      group.store()->wait({"ended/0", "ended/1", "ended/2"}, seconds(30));
      throw;
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(25));
  for (const RankEnd& end : ends) {
    EXPECT_FALSE(end.good());
    EXPECT_NE(end.error.find("of shared memory"), std::string::npos) << end.error;
  }
}

TEST(SharedMemory, IsSharedWhateverTheLauncherSaysOfLocalRanks) {
  const ScopedVariable ranks("LOCAL_WORLD_SIZE", "1"), rank("LOCAL_RANK", "0");
  expect_all_good(run_group(2, [](ProcessGroup& group) {
    ATHANOR_CHECK(group.allocate_shared(100) != nullptr, "rank ", group.rank(), " shares no memory");
  }));
}

TEST(Segment, ThatCouldBeCutShortIsRefused) {
  constexpr std::size_t kBytes = 8192;
  const auto file = [](unsigned seals) {
    Descriptor fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(fd.get(), kBytes), 0);
    EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    return fd;
  };
  const unsigned all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  for (const unsigned seals : {0U, unsigned{F_SEAL_GROW} | F_SEAL_SEAL, unsigned{F_SEAL_SHRINK} | F_SEAL_GROW})
    EXPECT_THROW(Segment::map(file(seals), kBytes), DistError) << seals;
  EXPECT_THROW(Segment::map(file(all), kBytes + 1), DistError);
  EXPECT_THROW(Segment::map(Descriptor(::open("/dev/zero", O_RDWR | O_CLOEXEC)), kBytes), DistError);
  EXPECT_TRUE(Segment::map(file(all), kBytes));
}

TEST(NetworkKey, ThatCannotBeReadIsLikeNoOther) {
  EXPECT_EQ(network_key(), network_key());
  EXPECT_NE(network_key("/no/such/file"), network_key("/no/such/file"));
  EXPECT_NE(network_key("/dev/null"), network_key("/dev/null"));
}

// To ranks of one half, those of the other half seem to be neighbours, at unix addresses at which nobody listens.
class CopiedMachines final : public ForwardingStore {
 public:
  CopiedMachines(int rank, std::shared_ptr<Store> store) : ForwardingStore(std::move(store)), half_(rank / 2) {}
  Value get(const std::string& key, milliseconds timeout) override {
    Value value = ForwardingStore::get(key, timeout);
    const std::size_t at = key.find("mesh/");
    if (at == std::string::npos || std::stoi(key.substr(at + 5)) / 2 == half_) return value;
    std::istringstream words(std::string(value.begin(), value.end()));
    std::string network, host, unix_name, rest;
    words >> network >> host >> unix_name;
    std::getline(words, rest);
    const std::string changed = str(network, " ", host, " ", unix_name, "-elsewhere", rest);
    return {changed.begin(), changed.end()};
  }

 private:
  int half_;
};

TEST(SharedMemory, IsNotExpectedBetweenMachinesStartedFromOneSnapshot) {
  const auto start = std::chrono::steady_clock::now();
  expect_all_good(run_group(
      4,
      [](ProcessGroup& group) {
        for (const std::int64_t n : {1, 100'000}) {
          const Tensor sum = ones({n});
          group.all_reduce(sum);
          ATHANOR_CHECK(sum.sum().item<float>() == static_cast<float>(4 * n), "wrong sum");
        }
        ATHANOR_CHECK(group.allocate_shared(100) == nullptr, "it shares memory");
      },
      [](int rank, std::shared_ptr<Store> store) { return std::make_shared<CopiedMachines>(rank, std::move(store)); }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(25));
}

// To rank 1 the other one seems to have ended, and another program to have got its port.
class OutlivedPort final : public ForwardingStore {
 public:
  explicit OutlivedPort(std::shared_ptr<Store> store)
      : ForwardingStore(std::move(store)), listener_(Listener::on_port(0, "127.0.0.1")), server_([this] { serve(); }) {}
  ~OutlivedPort() override {
    over_ = true;
    server_.join();
  }
  Value get(const std::string& key, milliseconds timeout) override {
    Value value = ForwardingStore::get(key, timeout);
    if (key.find("mesh/0") == std::string::npos) return value;
    std::istringstream words(std::string(value.begin(), value.end()));
    std::string network, host, unix_name, token, port, streams, spread;
    words >> network >> host >> unix_name >> token >> port >> streams >> spread;
    const std::string changed =
        str(network, " ", host, " ", unix_name, "-ended ", token, " ", listener_.port(), " ", streams, " ", spread);
    return {changed.begin(), changed.end()};
  }

 private:
  void serve() {
    std::vector<Socket> guests;
    while (!over_) {
      if (!wait_for(listener_.fd(), POLLIN, Deadline::after(milliseconds(20)))) continue;
      try {
        guests.push_back(listener_.accept(Deadline::after(seconds(1))));
        const std::string nonsense(1000, 'x');
        guests.back().send_all(nonsense.data(), nonsense.size(), Deadline::after(seconds(1)));
      } catch (const DistNetworkError&) {  // hung up already
      }
    }
  }

  Listener listener_;
  std::atomic<bool> over_{false};
  std::thread server_;
};

TEST(SharedMemory, IsNotLookedForElsewhereBecauseAStrangerHasThePort) {
  const auto ends = run_group(
      2, [](ProcessGroup&) {},
      [](int rank, std::shared_ptr<Store> store) {
        return rank == 1 ? std::make_shared<OutlivedPort>(std::move(store)) : std::move(store);
      },
      seconds(5));
  for (const RankEnd& end : ends) EXPECT_FALSE(end.good());
  EXPECT_NE(ends[1].error.find("rank 0 is gone: nobody listens where rank 1 was to find it"), std::string::npos)
      << ends[1].error;
}

}  // namespace
}  // namespace athanor::distributed
