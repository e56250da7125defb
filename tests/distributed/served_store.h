#pragma once
#include <memory>

#include "athanor/distributed/store/tcp_store.h"

namespace athanor::distributed {

/// A TCPStore on a free port, for the processes of a test.
class ServedStore {
 public:
  /// A rank's connection.
  std::shared_ptr<TCPStore> connect() const {
    TCPStoreOptions client;
    client.port = port();
    return std::make_shared<TCPStore>("127.0.0.1", client);
  }
  int port() const { return store_.port(); }

 private:
  static TCPStoreOptions on_a_free_port() {
    TCPStoreOptions server;
    server.port = 0;
    server.is_server = true;
    return server;
  }
  const TCPStore store_{"127.0.0.1", on_a_free_port()};
};

}  // namespace athanor::distributed
