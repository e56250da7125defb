#include "athanor/distributed/net/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>

#include "athanor/base/env.h"
#include "athanor/base/log.h"
#include "athanor/distributed/error.h"

namespace athanor::distributed {

namespace {

using AddressList = std::unique_ptr<ifaddrs, void (*)(ifaddrs*)>;
AddressList all_addresses() {
  ifaddrs* list = nullptr;
  ATHANOR_CHECK(::getifaddrs(&list) == 0, "getifaddrs: ", error_text(errno));
  return {list, ::freeifaddrs};
}

struct Named {
  std::string variable, text;
  std::vector<std::string> names;
};
// What the user wants; no names: anything.
Named wanted_interfaces() {
  Named wanted{env::text("ATHANOR_SOCKET_IFNAME") ? "ATHANOR_SOCKET_IFNAME" : "GLOO_SOCKET_IFNAME", "", {}};
  wanted.text = env::text(wanted.variable.c_str()).value_or("");
  std::istringstream words(wanted.text);
  for (std::string name; std::getline(words, name, ',');)
    if (std::find(wanted.names.begin(), wanted.names.end(), name) == wanted.names.end()) wanted.names.push_back(name);
  return wanted;
}

// Interfaces are listed for every group that is made.
void warn_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(text).second) ATHANOR_LOG(Warning, text);
}

// Linux's IFF_LOWER_UP, which <net/if.h> leaves out. IFF_RUNNING follows it with a delay of up to a second.
constexpr unsigned kLowerUp = 1U << 16;

struct Found {
  Interface interface;
  bool carrier;
};
std::vector<Found> interfaces_that_are_up() {
  const AddressList list = all_addresses();
  std::vector<Found> all;
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    const bool v4 = i->ifa_addr != nullptr && i->ifa_addr->sa_family == AF_INET;
    const bool v6 = i->ifa_addr != nullptr && i->ifa_addr->sa_family == AF_INET6;
    if ((i->ifa_flags & IFF_UP) == 0 || (!v4 && !v6)) continue;
    auto known = std::find_if(all.begin(), all.end(), [&](const Found& f) { return f.interface.name == i->ifa_name; });
    if (known == all.end()) {
      const bool loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
      all.push_back(
          {{i->ifa_name, ::if_nametoindex(i->ifa_name), loopback, false, false}, (i->ifa_flags & kLowerUp) != 0});
      known = std::prev(all.end());
    }
    known->interface.v4 = known->interface.v4 || v4;
    known->interface.v6 = known->interface.v6 || v6;
  }
  return all;
}

// The first bits that are set.
int prefix_length(const sockaddr* mask) {
  const unsigned char* bytes = nullptr;
  std::size_t size = 0;
  if (mask != nullptr && mask->sa_family == AF_INET) {
    bytes = reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in*>(mask)->sin_addr);
    size = sizeof(in_addr);
  } else if (mask != nullptr && mask->sa_family == AF_INET6) {
    bytes = reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr);
    size = sizeof(in6_addr);
  }
  int length = 0;
  for (std::size_t i = 0; i < size; ++i) length += std::popcount(bytes[i]);
  return length;
}

// One that another host may use; empty for all others.
Address reachable_address(const ifaddrs& from, int port) {
  Address address;
  if (from.ifa_addr == nullptr || (from.ifa_flags & IFF_UP) == 0 || (from.ifa_flags & IFF_LOOPBACK) != 0)
    return address;
  if (from.ifa_addr->sa_family == AF_INET) {
    address.length = sizeof(sockaddr_in);
    std::memcpy(&address.storage, from.ifa_addr, address.length);
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = htons(static_cast<std::uint16_t>(port));
  } else if (from.ifa_addr->sa_family == AF_INET6) {
    auto& in = reinterpret_cast<sockaddr_in6&>(address.storage);
    std::memcpy(&in, from.ifa_addr, sizeof in);
    if (IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr)) return {};
    in.sin6_port = htons(static_cast<std::uint16_t>(port));
    address.length = sizeof in;
  }
  return address;
}

}  // namespace

bool several_interfaces_named() { return wanted_interfaces().names.size() > 1; }

std::vector<Interface> usable_interfaces() {
  const std::vector<Found> all = interfaces_that_are_up();
  const Named wanted = wanted_interfaces();
  std::vector<Interface> chosen, idle;
  if (wanted.text.empty()) {
    for (const Found& found : all) chosen.push_back(found.interface);
    return chosen;
  }
  const auto refuse = [&](const std::string& name) {
    std::string known;
    for (const Found& found : all) known += detail::str(known.empty() ? "" : ", ", found.interface.name);
    throw ValueError(detail::str(wanted.variable, "='", wanted.text, "': no interface '", name,
                                 "' is up here, expected some of ", known),
                     ATHANOR_WHERE);
  };
  std::string idle_names, left_out;
  for (const std::string& name : wanted.names) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Found& f) { return f.interface.name == name; });
    const bool up = found != all.end();
    if (!up && ::if_nametoindex(name.c_str()) == 0) refuse(name);
    if (up) (found->carrier ? chosen : idle).push_back(found->interface);
    if (!up || !found->carrier) (up ? idle_names : left_out) += " " + name;
  }
  // Some systems say of no interface that it has a carrier.
  if (chosen.empty())
    chosen = idle;
  else
    left_out += idle_names;
  if (chosen.empty()) refuse(wanted.names.front());
  if (!left_out.empty())
    warn_once(detail::str(wanted.variable, "='", wanted.text, "': left out, since down, without an address or without ",
                          "a carrier:", left_out));
  return chosen;
}

std::vector<InterfaceAddress> reachable_addresses(int port) {
  const AddressList list = all_addresses();
  std::vector<InterfaceAddress> found;
  const std::vector<Interface> interfaces = usable_interfaces();
  for (const int family : {AF_INET, AF_INET6})
    for (const Interface& interface : interfaces)
      for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
        const Address address = interface.name == i->ifa_name ? reachable_address(*i, port) : Address();
        if (address.length > 0 && address.family() == family)
          found.push_back({address, prefix_length(i->ifa_netmask), interface.name});
      }
  return found;
}

std::string random_name() {
  std::random_device random;
  std::ostringstream text;
  for (int i = 0; i < 4; ++i) text << std::hex << random() << (i < 3 ? "-" : "");
  return text.str();
}

std::string network_key(const std::string& boot_id) {
  std::string boot;
  std::ifstream(boot_id) >> boot;
  struct stat info {};
  if (boot.empty() || ::stat("/proc/self/ns/net", &info) != 0) return "unknown/" + random_name();
  return detail::str(boot, "/", static_cast<std::uint64_t>(info.st_ino));
}

}  // namespace athanor::distributed
