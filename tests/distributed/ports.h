#pragma once
#include <random>

#include "athanor/base/error.h"
#include "athanor/distributed/net/socket.h"

namespace athanor::distributed {

/// A port that nobody listens on now, below those that systems hand out for outgoing connections: no connection of
/// another test takes it before it is used.
inline int free_port() {
  std::random_device random;
  for (;;) {
    const int port = 20000 + static_cast<int>(random() % 12000);
    try {
      return Listener::on_port(port).port();
    } catch (const Error&) {
      continue;  // somebody listens there
    }
  }
}

}  // namespace athanor::distributed
