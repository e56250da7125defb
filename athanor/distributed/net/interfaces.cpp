#include "athanor/distributed/net/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>

#include "athanor/base/env.h"
#include "athanor/distributed/error.h"

namespace athanor::distributed {

namespace {

using AddressList = std::unique_ptr<ifaddrs, void (*)(ifaddrs*)>;
AddressList all_addresses() {
  ifaddrs* list = nullptr;
  ATHANOR_CHECK(::getifaddrs(&list) == 0, "getifaddrs: ", error_text(errno));
  return {list, ::freeifaddrs};
}

}  // namespace

std::vector<Interface> usable_interfaces() {
  const AddressList list = all_addresses();
  std::vector<Interface> all;
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    const bool v4 = i->ifa_addr != nullptr && i->ifa_addr->sa_family == AF_INET;
    const bool v6 = i->ifa_addr != nullptr && i->ifa_addr->sa_family == AF_INET6;
    if ((i->ifa_flags & IFF_UP) == 0 || (!v4 && !v6)) continue;
    Interface* known = nullptr;
    for (Interface& other : all)
      if (other.name == i->ifa_name) known = &other;
    if (known == nullptr) {
      all.push_back({i->ifa_name, ::if_nametoindex(i->ifa_name), (i->ifa_flags & IFF_LOOPBACK) != 0, false, false});
      known = &all.back();
    }
    known->v4 = known->v4 || v4;
    known->v6 = known->v6 || v6;
  }
  const char* variable = env::text("ATHANOR_SOCKET_IFNAME") ? "ATHANOR_SOCKET_IFNAME" : "GLOO_SOCKET_IFNAME";
  const auto wanted = env::text(variable);
  if (!wanted) return all;
  std::vector<Interface> chosen;
  std::istringstream names(*wanted);
  for (std::string name; std::getline(names, name, ',');) {
    std::string known;
    bool found = false;
    for (const Interface& i : all) {
      known += detail::str(known.empty() ? "" : ", ", i.name);
      if (i.name != name) continue;
      found = true;
      chosen.push_back(i);
    }
    ATHANOR_CHECK_VALUE(found, variable, "='", *wanted, "': no interface '", name, "' is up here, expected some of ",
                        known);
  }
  return chosen;
}

std::vector<Address> reachable_addresses(int port) {
  const std::vector<Interface> interfaces = usable_interfaces();
  const AddressList list = all_addresses();
  std::vector<Address> found;
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const bool chosen = std::any_of(interfaces.begin(), interfaces.end(),
                                    [&](const Interface& known) { return known.name == i->ifa_name; });
    if (!chosen) continue;
    Address address;
    if (i->ifa_addr->sa_family == AF_INET) {
      address.length = sizeof(sockaddr_in);
      std::memcpy(&address.storage, i->ifa_addr, address.length);
      reinterpret_cast<sockaddr_in&>(address.storage).sin_port = htons(static_cast<std::uint16_t>(port));
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      address.length = sizeof(sockaddr_in6);
      std::memcpy(&address.storage, i->ifa_addr, address.length);
      auto& in = reinterpret_cast<sockaddr_in6&>(address.storage);
      if (IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr)) continue;
      in.sin6_port = htons(static_cast<std::uint16_t>(port));
    } else {
      continue;
    }
    found.push_back(address);
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
