// Addresses that lead nowhere and interfaces to choose from.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <set>

#include "athanor/base/error.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/net/interfaces.h"
#include "athanor/distributed/net/socket.h"
#include "distributed/variables.h"

namespace athanor::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// An address of IPv6 at which nobody answers, not even with a refusal: its queue of connections is full.
class BlackHole {
 public:
  BlackHole() {
    fd_.reset(::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    auto& in = reinterpret_cast<sockaddr_in6&>(address_.storage);
    in.sin6_family = AF_INET6;
    in.sin6_addr = in6addr_loopback;
    address_.length = sizeof in;
    if (!fd_ || ::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address_.storage), address_.length) != 0 ||
        ::listen(fd_.get(), 0) != 0)
      return;
    ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address_.storage), &address_.length);
    for (int i = 0; i < 8 && !dark_; ++i) {
      try {
        queue_.push_back(Socket::connect(address_, Deadline::after(milliseconds(300))));
      } catch (const DistNetworkError&) {
        dark_ = true;
      }
    }
  }
  bool dark() const { return dark_; }
  const Address& address() const { return address_; }

 private:
  Descriptor fd_;
  Address address_;
  std::vector<Socket> queue_;
  bool dark_ = false;
};

TEST(Connecting, ToANameWhoseFirstAddressIsABlackHoleTakesTheNext) {
  const BlackHole hole;
  if (!hole.dark()) GTEST_SKIP() << "no address of IPv6 that swallows connections can be made here";
  Listener listener = Listener::on_port(0, "127.0.0.1");
  const auto start = std::chrono::steady_clock::now();
  const Socket socket = Socket::connect({hole.address(), listener.address()}, Deadline::after(seconds(20)));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(3));
  EXPECT_EQ(socket.peer_text(), listener.address().text());
}

std::set<std::string> names_of(const std::vector<Interface>& interfaces) {
  std::set<std::string> names;
  for (const Interface& interface : interfaces) names.insert(interface.name);
  return names;
}

TEST(Interfaces, AreNarrowedToTheOneThatIsChosen) {
  const std::set<std::string> all = names_of(usable_interfaces());
  if (all.size() < 2) GTEST_SKIP() << "this machine has no second interface with an address";
  for (const std::string& name : all) {
    const ScopedVariable choice("ATHANOR_SOCKET_IFNAME", name);
    const ScopedVariable weaker("GLOO_SOCKET_IFNAME", "not asked");
    EXPECT_EQ(names_of(usable_interfaces()), std::set<std::string>{name});
  }
  const auto first = all.begin(), second = std::next(first);
  const ScopedVariable choice("GLOO_SOCKET_IFNAME", *second + "," + *first);
  EXPECT_EQ(names_of(usable_interfaces()), (std::set<std::string>{*first, *second}));
}

TEST(Interfaces, OthersAreAddressesThatNoRankShows) {
  const std::vector<Interface> all = usable_interfaces();
  const auto loopback = std::find_if(all.begin(), all.end(), [](const Interface& i) { return i.loopback; });
  if (loopback == all.end()) GTEST_SKIP() << "this machine has no loopback interface";
  const ScopedVariable choice("ATHANOR_SOCKET_IFNAME", loopback->name);
  EXPECT_TRUE(reachable_addresses(80).empty());
}

TEST(Interfaces, ThatAreNotHereAreAnErrorThatListsTheOthers) {
  for (const char* variable : {"ATHANOR_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    const ScopedVariable choice(variable, "lo,nosuch0");
    try {
      usable_interfaces();
      ADD_FAILURE() << "no error";
    } catch (const ValueError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(athanor::detail::str(variable, "='lo,nosuch0': no interface 'nosuch0' is up here")),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("expected some of "), std::string::npos) << text;
      EXPECT_NE(text.find("lo"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace athanor::distributed
