// Meetings by multicast beside noise and processes that died.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <future>
#include <random>
#include <set>
#include <span>
#include <thread>

#include "athanor/base/hash.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/distributed/rendezvous/rendezvous.h"
#include "distributed/ports.h"

namespace athanor::distributed {
namespace {

using std::chrono::seconds;

constexpr const char* kGroup = "239.77.77.78";

// Listens to a group of IPv4, and talks to it.
class Ear {
 public:
  explicit Ear(int port) : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    group_.sin_family = AF_INET;
    group_.sin_port = htons(static_cast<std::uint16_t>(port));
    ::inet_pton(AF_INET, kGroup, &group_.sin_addr);
    const int on = 1;
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ip_mreqn request{};
    request.imr_multiaddr = group_.sin_addr;
    works_ = ::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&group_), sizeof group_) == 0 &&
             ::setsockopt(fd_.get(), IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request) == 0;
    say("");
    works_ = works_ && wait_for(fd_.get(), POLLIN, Deadline::after(seconds(2)));
  }
  bool works() const { return works_; }
  void say(const std::string& bytes) {
    works_ = ::sendto(fd_.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&group_),
                      sizeof group_) >= 0 &&
             works_;
  }
  // Of the next datagram, empty if none comes in time.
  std::string hear(Deadline deadline) {
    char buffer[256];
    if (!wait_for(fd_.get(), POLLIN, deadline)) return {};
    const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    return {buffer, static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
  }

 private:
  Descriptor fd_;
  sockaddr_in group_{};
  bool works_ = true;
};

// Places in an announcement: magic, size of the world, rank, port, id, tag.
constexpr std::size_t kRank = 8, kId = 16, kTag = 32, kSize = 64;

// The announcement of another process, whose id comes before all random ones.
std::string of_another(std::string announcement, char id = 0, std::int32_t rank = -1) {
  const std::uint32_t number = htonl(static_cast<std::uint32_t>(rank));
  std::memcpy(announcement.data() + kRank, &number, sizeof number);
  std::memset(announcement.data() + kId, 0, kSize - kId);
  announcement[kTag - 1] = id;
  const std::string message = announcement + "group ";
  const Sha256Digest tag = hmac_sha256({}, std::as_bytes(std::span(message)));
  std::memcpy(announcement.data() + kTag, tag.data(), tag.size());
  return announcement;
}

class MulticastMeeting : public testing::Test {
 protected:
  void SetUp() override {
    if (!ear_.works()) GTEST_SKIP() << "no multicast of IPv4 here";
  }
  std::future<int> come(int world, int rank = -1) {
    return std::async(std::launch::async, [this, world, rank] {
      RendezvousOptions options;
      options.world_size = world;
      options.rank = rank;
      options.timeout = seconds(30);
      const RendezvousResult met = rendezvous(athanor::detail::str("tcp://", kGroup, ":", port_), options);
      met.store->add("done", 1);
      // It serves the store.
      const Deadline patience = Deadline::after(seconds(10));
      while (met.rank == 0 && met.store->add("done", 0) < world && !patience.expired()) std::this_thread::yield();
      return met.rank;
    });
  }
  // An announcement of each of so many processes.
  std::string hear_processes(std::size_t count) {
    std::set<std::string> ids;
    std::string heard;
    while (ids.size() < count && !deadline_.expired()) {
      const std::string now = ear_.hear(deadline_);
      if (now.size() != kSize) continue;
      heard = now;
      ids.insert(now.substr(kId, kTag - kId));
    }
    return heard;
  }

  Deadline deadline_ = Deadline::after(seconds(60));
  int port_ = free_port();
  Ear ear_{port_};
};

TEST_F(MulticastMeeting, DoesNotCountAProcessThatDiedAndWasStartedAgainTwice) {
  auto first = come(3), second = come(3);
  // The third announces itself, dies, and comes back.
  const std::string announcement = hear_processes(2);
  ASSERT_EQ(announcement.size(), kSize);
  ear_.say(of_another(announcement));
  auto third = come(3);
  EXPECT_EQ((std::set<int>{first.get(), second.get(), third.get()}), (std::set<int>{0, 1, 2}));
}

TEST_F(MulticastMeeting, TakesTheRankOfAProcessThatDiedForItsSuccessor) {
  auto other = come(2, 1);
  const std::string announcement = hear_processes(1);
  ASSERT_EQ(announcement.size(), kSize);
  ear_.say(of_another(announcement, 0, 0));
  auto successor = come(2, 0);
  EXPECT_EQ(other.get(), 1);
  EXPECT_EQ(successor.get(), 0);
}

TEST_F(MulticastMeeting, OfTooManyLivingProcessesIsAnErrorAtOnce) {
  auto one = come(2);
  const std::string announcement = hear_processes(1);
  ASSERT_EQ(announcement.size(), kSize);
  const auto start = Deadline::Clock::now();
  do {
    for (const char id : {0, 1}) ear_.say(of_another(announcement, id));
  } while (one.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready && !deadline_.expired());
  EXPECT_LT(Deadline::Clock::now() - start, seconds(20));
  try {
    one.get();
    FAIL() << "no error";
  } catch (const DistError& error) {
    EXPECT_NE(std::string(error.what()).find("3 processes announce themselves for a world of 2"), std::string::npos)
        << error.what();
  }
}

TEST_F(MulticastMeeting, SurvivesGarbage) {
  auto first = come(2);
  const std::string real = hear_processes(1);
  ASSERT_EQ(real.size(), kSize);
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::string noise(random() % 200, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    ear_.say(noise);
    ear_.say(real.substr(0, random() % kSize));
    ear_.say(real + noise);
    std::string forged = real;
    forged[random() % kSize] ^= static_cast<char>(1 + random() % 255);
    ear_.say(forged);
  }
  auto second = come(2);
  EXPECT_EQ(first.get() + second.get(), 1);
}

}  // namespace
}  // namespace athanor::distributed
