// Hosts with several networks between them: data of collectives is spread over those that are named.
#include "athanor/distributed/transport/stripes.h"

#include <gtest/gtest.h>

#include "athanor/base/log.h"
#include "athanor/distributed/error.h"
#include "athanor/ops/tensor.h"
#include "tests/distributed/cables.h"
#include "tests/distributed/processes.h"

namespace athanor::distributed::stripes_test {
namespace {

using athanor::detail::str;
using std::chrono::milliseconds;
using std::chrono::seconds;

// "eth0=10.0.0.1/24"
StripeEnd end_of(const std::vector<std::string>& texts, bool spread = true, int streams = 0) {
  StripeEnd end;
  end.spread = spread;
  end.streams = streams;
  for (const std::string& text : texts) {
    const std::size_t name = text.find('='), slash = text.find('/');
    std::string reason;
    const auto found = resolve_host(text.substr(name + 1, slash - name - 1), 80, Deadline::after(seconds(1)), reason);
    end.addresses.push_back({found.at(0), std::stoi(text.substr(slash + 1)), text.substr(0, name)});
  }
  return end;
}

std::string text_of(const Stripes& stripes) {
  std::string all = str(stripes.streams, " streams");
  for (const Route& route : stripes.routes) {
    std::string from = route.from.text(), to = route.to.text();
    from.resize(from.rfind(':'));
    to.resize(to.rfind(':'));
    all += str("; ", from, " to ", to);
  }
  return all;
}

TEST(Stripes, JoinInterfacesOfOneNetworkWhateverTheirNamesAndOrder) {
  const StripeEnd a = end_of({"eth0=10.0.1.1/24", "eth1=10.0.2.1/24", "eth2=10.0.3.1/24"});
  const StripeEnd b = end_of({"ens5=10.0.3.2/24", "ens6=10.0.1.2/24", "ens7=10.0.2.2/24"});
  EXPECT_EQ(text_of(stripes_between(a, b)),
            "6 streams; 10.0.1.1 to 10.0.1.2; 10.0.2.1 to 10.0.2.2; 10.0.3.1 to 10.0.3.2");
  EXPECT_EQ(text_of(stripes_between(b, a)),
            "6 streams; 10.0.3.2 to 10.0.3.1; 10.0.1.2 to 10.0.1.1; 10.0.2.2 to 10.0.2.1");
}

TEST(Stripes, JoinTheOthersInTheOrderInWhichTheyAreNamed) {
  const StripeEnd a = end_of({"a0=10.1.0.1/24", "a1=10.2.0.1/24", "a2=10.9.0.1/24"});
  const StripeEnd b = end_of({"b0=10.9.0.2/24", "b1=10.3.0.2/24", "b2=10.4.0.2/24"});
  EXPECT_EQ(text_of(stripes_between(a, b)),
            "6 streams; 10.9.0.1 to 10.9.0.2; 10.1.0.1 to 10.3.0.2; 10.2.0.1 to 10.4.0.2");
}

TEST(Stripes, TakeIPv6WhereThatIsWhatInterfacesShare) {
  const StripeEnd a = end_of({"eth0=10.0.1.1/24", "eth1=10.0.2.1/24", "eth0=fd00:1::1/64", "eth1=fd00:2::1/64"});
  const StripeEnd b = end_of({"eth0=10.0.1.2/24", "eth1=fd00:2::2/64"});
  EXPECT_EQ(text_of(stripes_between(a, b)), "4 streams; 10.0.1.1 to 10.0.1.2; [fd00:2::1] to [fd00:2::2]");
}

// 172.17.0.1 is any machine's own bridge.
TEST(Stripes, NeverJoinAnAddressWithItself) {
  const StripeEnd a = end_of({"eth0=10.0.1.1/24", "docker0=172.17.0.1/16"});
  const StripeEnd b = end_of({"eth0=10.0.1.2/24", "docker0=172.17.0.1/16"});
  EXPECT_EQ(text_of(stripes_between(a, b)), "2 streams");
}

TEST(Stripes, AreOnlyThereIfBothWantThemAndHaveSeveralInterfaces) {
  const std::vector<std::string> two = {"eth0=10.0.1.1/24", "eth1=10.0.2.1/24"};
  const std::vector<std::string> others = {"eth0=10.0.1.2/24", "eth1=10.0.2.2/24"};
  EXPECT_EQ(text_of(stripes_between(end_of(two), end_of(others, false))), "2 streams");
  EXPECT_EQ(text_of(stripes_between(end_of(two, false), end_of(others))), "2 streams");
  EXPECT_EQ(text_of(stripes_between(end_of(two), end_of({others[1]}))), "2 streams");
  EXPECT_EQ(text_of(stripes_between(end_of(two), end_of({}))), "2 streams");
}

TEST(Stripes, HaveAsManyStreamsAsTheLowerOfBothNumbersSays) {
  const std::vector<std::string> two = {"eth0=10.0.1.1/24", "eth1=10.0.2.1/24"};
  const std::vector<std::string> others = {"eth0=10.0.1.2/24", "eth1=10.0.2.2/24"};
  EXPECT_EQ(stripes_between(end_of(two, true, 3), end_of(others)).streams, 3);
  EXPECT_EQ(stripes_between(end_of(two, true, 9), end_of(others)).streams, 4);
  EXPECT_EQ(stripes_between(end_of(two, true, 9), end_of(others, true, 7)).streams, 7);
  EXPECT_EQ(stripes_between(end_of(two, false, 5), end_of(others, false)).streams, 2);
  std::vector<std::string> many, more;
  for (int i = 0; i < 20; ++i) {
    many.push_back(str("eth", i, "=10.0.", i, ".1/24"));
    more.push_back(str("eth", i, "=10.0.", i, ".2/24"));
  }
  const Stripes most = stripes_between(end_of(many), end_of(more));
  EXPECT_EQ(most.streams, kMaxStreams);
  EXPECT_EQ(most.routes.size(), static_cast<std::size_t>(kMaxStreams));
}

constexpr std::int64_t kCount = 2'000'000;  // 8 MB each way
// So much that a moment in which one of the networks stands still does not decide.
constexpr int kTimes = 4;

struct Sums {
  std::vector<RankEnd> ends;
  double shares[2][2] = {};  // of each side's bytes, over each cable
};

// Two ranks of two hosts add up what they have. `prepare` is called in each rank's process, at its side.
Sums sums_over(const Cables& cables, const std::function<void(int)>& prepare,
               const std::function<void(ProcessGroup&)>& more = {}, milliseconds timeout = seconds(30)) {
  long long before[2][2], total[2] = {};
  for (int side = 0; side < 2; ++side)
    for (int i = 0; i < 2; ++i) before[side][i] = cables.sent_bytes(side, i);
  Sums sums;
  sums.ends = run_processes(2, [&](int rank) {
    cables.enter(rank);
    prepare(rank);
    const auto group = group_of_two(store_over(cables, rank, seconds(20)), rank, "striped", timeout);
    const Tensor numbers = arange(kCount, dtype(kFloat32)).remainder(1000), wanted = numbers * 2 + 1;
    for (int i = 0; i < kTimes; ++i) {
      const Tensor x = numbers + rank;
      group->all_reduce(x);
      ATHANOR_CHECK(x.equal(wanted), "rank ", rank, " has a wrong sum");
    }
    if (more) more(*group);
    group->shutdown();
  });
  for (int side = 0; side < 2; ++side) {
    for (int i = 0; i < 2; ++i) total[side] += cables.sent_bytes(side, i) - before[side][i];
    for (int i = 0; i < 2; ++i)
      sums.shares[side][i] =
          static_cast<double>(cables.sent_bytes(side, i) - before[side][i]) / static_cast<double>(total[side]);
  }
  return sums;
}

void expect_all_good(const Sums& sums) {
  for (const RankEnd& end : sums.ends) EXPECT_TRUE(end.good()) << end.status << ": " << end.error;
}

void expect_shares(const Sums& sums, double first, double within) {
  for (int side = 0; side < 2; ++side)
    EXPECT_NEAR(sums.shares[side][0], first, within) << "of what side " << side << " sent";
}

std::function<void(int)> names_all(const Cables& cables) {
  return [&cables](int rank) { ::setenv("ATHANOR_SOCKET_IFNAME", cables.ends(rank).c_str(), 1); };
}

TEST(Striping, SpreadsDataOverAllInterfacesThatAreNamed) {
  for (const bool v6 : {false, true}) {
    SCOPED_TRACE(v6 ? "IPv6" : "IPv4");
    const Cables cables(2, v6);
    if (!cables.good()) GTEST_SKIP() << Cables::kNeeds;
    ASSERT_TRUE(cables.limit(0, "400mbit") && cables.limit(1, "400mbit"));
    const Sums sums = sums_over(cables, names_all(cables));
    expect_all_good(sums);
    expect_shares(sums, 0.5, 0.2);
  }
}

TEST(Striping, GivesAFasterNetworkMoreOfTheData) {
  const Cables cables(2);
  if (!cables.good()) GTEST_SKIP() << Cables::kNeeds;
  ASSERT_TRUE(cables.limit(0, "200mbit") && cables.limit(1, "20mbit"));
  const Sums sums = sums_over(cables, names_all(cables));
  expect_all_good(sums);
  // In equal turns it would be 0.5, without the slower one 1.
  expect_shares(sums, 0.8, 0.1);
}

TEST(Striping, IsLeftAloneUnlessInterfacesAreNamed) {
  const Cables cables(2);
  if (!cables.good()) GTEST_SKIP() << Cables::kNeeds;
  const Sums sums = sums_over(cables, [](int) { ::unsetenv("ATHANOR_SOCKET_IFNAME"); });
  expect_all_good(sums);
  expect_shares(sums, 1, 0.05);
}

int occurrences(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(Striping, DealsConnectionsInTurn) {
  const Cables cables(2);
  if (!cables.good()) GTEST_SKIP() << Cables::kNeeds;
  for (const int streams : {0, 1, 3}) {
    SCOPED_TRACE(streams);
    const int wanted = streams == 0 ? 4 : streams;
    const Sums sums = sums_over(
        cables,
        [&](int rank) {
          ::setenv("ATHANOR_SOCKET_IFNAME", cables.ends(rank).c_str(), 1);
          if (rank == 1 && streams > 0) ::setenv("ATHANOR_TCP_STREAMS", std::to_string(streams).c_str(), 1);
          set_log_level(LogLevel::Debug);
          testing::internal::CaptureStderr();
        },
        [&](ProcessGroup& group) {
          const std::string text = testing::internal::GetCapturedStderr();
          for (int i = 0; i < wanted; ++i) {
            const std::string connection = str(", connection ", i, ": ", cables.address(group.rank(), i % 2), ":");
            ATHANOR_CHECK(occurrences(text, connection) == 1, "no '", connection, "' in: ", text);
          }
          ATHANOR_CHECK(occurrences(text, ", connection ") == wanted, "others besides in: ", text);
        });
    expect_all_good(sums);
  }
}

// Cable 1 is of no use: the rank `warned` says so once (-1: both do), and cable 0 carries everything.
void expect_to_do_without(const Cables& cables, int warned, const std::string& warning,
                          milliseconds timeout = seconds(30)) {
  const Deadline bound = Deadline::after(seconds(15));
  const Sums sums = sums_over(
      cables,
      [&](int rank) {
        ::setenv("ATHANOR_SOCKET_IFNAME", cables.ends(rank).c_str(), 1);
        testing::internal::CaptureStderr();
      },
      [&](ProcessGroup& group) {
        const std::string text = testing::internal::GetCapturedStderr();
        const int count = occurrences(text, "warning");
        ATHANOR_CHECK(count == (group.rank() == warned || warned < 0 ? 1 : 0), "rank ", group.rank(), " says: ", text);
        ATHANOR_CHECK(count == 0 || text.find(warning) != std::string::npos, "no '", warning, "' in: ", text);
      },
      timeout);
  EXPECT_FALSE(bound.expired());
  expect_all_good(sums);
  expect_shares(sums, 1, 0.05);
}

TEST(Striping, DoesWithoutANetworkThatSwallowsPackets) {
  for (const int side : {0, 1}) {
    SCOPED_TRACE(str("on the way from side ", side));
    const Cables cables(2);
    if (!cables.good()) GTEST_SKIP() << Cables::kNeeds;
    ASSERT_TRUE(cables.lead_astray(side, 1));
    expect_to_do_without(cables, 1, str("from ", cables.address(1, 1), " to rank 0 at ", cables.address(0, 1)));
  }
}

// Of what time a group has, the other networks need some.
TEST(Striping, DoesWithoutANetworkThatSwallowsPacketsThoughTheTimeoutIsShort) {
  const Cables cables(2);
  if (!cables.good()) GTEST_SKIP() << Cables::kNeeds;
  ASSERT_TRUE(cables.lead_astray(1, 1));
  expect_to_do_without(cables, 1, str("from ", cables.address(1, 1), " to rank 0 at ", cables.address(0, 1)),
                       milliseconds(2000));
}

TEST(Striping, DoesWithoutAnInterfaceThatIsDownAtOneSideOrBoth) {
  for (const int sides : {1, 2}) {
    const Cables cables(2);
    if (!cables.good()) GTEST_SKIP() << Cables::kNeeds;
    for (int side = 0; side < sides; ++side)
      ASSERT_TRUE(cables.at(side, "ip link set " + cables.end(side, 1) + " down"));
    expect_to_do_without(cables, -1, "left out, since down, without an address or without a carrier: ac");
  }
}

}  // namespace
}  // namespace athanor::distributed::stripes_test
