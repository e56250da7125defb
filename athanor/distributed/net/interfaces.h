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
/// separated by commas) narrows the choice; throws ValueError if a name there is no such interface.
std::vector<Interface> usable_interfaces();

/// Addresses of this machine, with `port`, at which another host may reach it: of the interfaces above, without
/// loopback and link-local ones.
std::vector<Address> reachable_addresses(int port);

}  // namespace athanor::distributed
