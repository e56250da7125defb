#pragma once
/// Network interfaces of this machine.

#include <string>
#include <vector>

#include "athanor/distributed/net/socket.h"

namespace athanor::distributed {

struct Interface {
  std::string name;
  unsigned index = 0;
  bool loopback = false;
  bool v4 = false, v6 = false;  ///< has an address of that family
};

/// Those that are up and have an address, loopback included. ATHANOR_SOCKET_IFNAME, else GLOO_SOCKET_IFNAME (names,
/// separated by commas) narrows the choice and gives the order; throws ValueError if a name there is no such interface,
/// or if none of them is up. Of several, those that are down, without an address or without a carrier are left out with
/// a warning.
std::vector<Interface> usable_interfaces();

/// Whether one of those variables names several, so that data is to be spread over them.
bool several_interfaces_named();

struct InterfaceAddress {
  Address address;
  int prefix = 0;  ///< so many first bits are the same all over its network
  std::string interface;
};

/// Addresses of this machine, with `port`, at which another host may reach it: of the interfaces above, without
/// loopback and link-local ones; IPv4 first, and in the order of the interfaces.
std::vector<InterfaceAddress> reachable_addresses(int port);

/// Processes with the same one have one network: each reaches the other over loopback and abstract unix sockets, unless
/// their machines are copies of one. `boot_id`: the file that tells this boot from all others. A process that cannot
/// read it, or its network's number, gets a key like no other.
std::string network_key(const std::string& boot_id = "/proc/sys/kernel/random/boot_id");

/// 128 random bits in hexadecimal.
std::string random_name();

}  // namespace athanor::distributed
