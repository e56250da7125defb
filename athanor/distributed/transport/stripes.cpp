#include "athanor/distributed/transport/stripes.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

namespace athanor::distributed {

namespace {

// Where one connection often does not reach the full rate.
constexpr int kStreams = 2;

// How many first bits two addresses share; -1 if they are of different families.
int common_bits(const Address& a, const Address& b) {
  if (a.family() != b.family()) return -1;
  unsigned char x[sizeof(in6_addr)] = {}, y[sizeof(in6_addr)] = {};
  const bool v6 = a.family() == AF_INET6;
  const auto copy = [v6](unsigned char* to, const Address& from) {
    if (v6)
      std::memcpy(to, &reinterpret_cast<const sockaddr_in6&>(from.storage).sin6_addr, sizeof(in6_addr));
    else
      std::memcpy(to, &reinterpret_cast<const sockaddr_in&>(from.storage).sin_addr, sizeof(in_addr));
  };
  copy(x, a);
  copy(y, b);
  const int bits = static_cast<int>(v6 ? sizeof(in6_addr) : sizeof(in_addr)) * 8;
  int same = 0;
  while (same < bits && ((x[same / 8] ^ y[same / 8]) >> (7 - same % 8) & 1) == 0) ++same;
  return same;
}

bool could_connect(const InterfaceAddress& a, const InterfaceAddress& b) {
  const int bits = a.address.family() == AF_INET6 ? 128 : 32;
  const int same = common_bits(a.address, b.address);
  // Bridges of containers have the same address everywhere; it leads a machine to itself.
  return same >= 0 && same < bits;
}

bool in_one_network(const InterfaceAddress& a, const InterfaceAddress& b) {
  return could_connect(a, b) && a.prefix == b.prefix && common_bits(a.address, b.address) >= a.prefix;
}

std::vector<Route> pair_interfaces(const std::vector<InterfaceAddress>& callers,
                                   const std::vector<InterfaceAddress>& callees) {
  std::vector<Route> routes;
  std::set<std::string> left, right;
  for (const auto fits : {in_one_network, could_connect})
    for (const InterfaceAddress& from : callers)
      for (const InterfaceAddress& to : callees) {
        if (left.contains(from.interface) || right.contains(to.interface) || !fits(from, to)) continue;
        routes.push_back({from.address, to.address});
        left.insert(from.interface);
        right.insert(to.interface);
      }
  return routes;
}

}  // namespace

Stripes stripes_between(const StripeEnd& caller, const StripeEnd& callee) {
  Stripes stripes;
  if (caller.spread && callee.spread) stripes.routes = pair_interfaces(caller.addresses, callee.addresses);
  if (stripes.routes.size() < 2) stripes.routes.clear();
  stripes.routes.resize(std::min<std::size_t>(stripes.routes.size(), kMaxStreams));
  const int ways = std::max(1, static_cast<int>(stripes.routes.size()));
  const int useful = std::clamp(kMaxStreams / ways, 1, kStreams) * ways;
  stripes.streams = kMaxStreams;
  for (const StripeEnd* end : {&caller, &callee})
    stripes.streams = std::min(stripes.streams, end->streams > 0 ? end->streams : useful);
  return stripes;
}

}  // namespace athanor::distributed
