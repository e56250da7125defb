#pragma once
/// The serving side of TCPStore: one thread that waits on all connections with epoll.

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "athanor/distributed/net/forks.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/distributed/store/store.h"

namespace athanor::distributed {

class TCPStoreServer {
 public:
  /// Connections that do not say within `guest_patience` what they are, with the secret if there is one, are ended.
  TCPStoreServer(Listener listener, std::string secret,
                 std::chrono::milliseconds guest_patience = std::chrono::seconds(8));
  /// Ends the thread and all connections.
  ~TCPStoreServer();
  TCPStoreServer(const TCPStoreServer&) = delete;
  TCPStoreServer& operator=(const TCPStoreServer&) = delete;

  int port() const { return port_; }
  /// Where this process itself reaches it, without asking a name server.
  Endpoint local_endpoint() const;
  /// Forgets every key that does not start with `prefix` (as clients of TCPStore write it), so that a new set of
  /// processes does not see its predecessors'. Returns when it is done.
  void keep_only(const std::string& prefix);
  /// The server of this process on that port, if one is alive; for multi_tenant stores.
  static std::shared_ptr<TCPStoreServer> shared(int port, const std::string& secret,
                                                const std::function<Listener()>& make_listener);

 private:
  struct Connection;
  class Request;

  void run();
  bool do_asked();
  void accept_all();
  void readable(Connection& connection);
  void answer_requests(Connection& connection);
  void writable(Connection& connection);
  void end(Connection& connection);
  void drop(int fd);
  void drop_silent_guests();
  void trust_if_known(Connection& connection);
  void pause_accepting(bool pause, const char* why = "");
  void refused(const char* why);
  bool authenticate(Connection& connection, Request& request);
  bool answer(Connection& connection, Request& request);
  bool add(Connection& connection, Request& request);
  bool wait(Connection& connection, Request& request);
  bool multi(Connection& connection, Request& request, bool set);
  bool compare_set(Connection& connection, Request& request);
  void put(const std::string& key, std::string value);
  void reply(Connection& connection, const void* data, std::size_t size);
  void reply_text(Connection& connection, const std::string& text);
  void forget_waits(Connection& connection);
  void watch(Connection& connection, bool write);

  std::string secret_;
  std::chrono::milliseconds guest_patience_;
  Listener listener_;
  Endpoint bound_;
  int port_ = 0;
  unsigned generation_ = fork_generation();
  Descriptor epoll_, wake_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<int, std::unique_ptr<Connection>> connections_;
  std::unordered_map<std::string, std::set<int>> waiting_;  // key -> connections that wait for it
  std::vector<int> dropped_;
  std::size_t guests_ = 0;  // connections that have not yet said who they are
  bool paused_ = false;
  int refused_ = 0;
  // What other threads ask of the serving one.
  std::mutex asked_mutex_;
  std::condition_variable asked_done_;
  bool stop_ = false;
  std::optional<std::string> keep_prefix_;
  std::thread thread_;
};

}  // namespace athanor::distributed
