#pragma once
/// TCPStore: the store of jobs that span hosts. One process serves it; every process, that one included, is a client.
/// The wire protocol is that of torch.distributed's TCPStore (2.x), so that processes started by torchrun can use the
/// agent's store and the other way round, with one addition: a shared secret (see `secret`).

#include <mutex>
#include <optional>

#include "athanor/distributed/net/forks.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/distributed/store/store.h"

namespace athanor::distributed {

class TCPStoreServer;

/// The job's secret: what was given, else ATHANOR_JOB_SECRET, else nothing.
std::string job_secret(const std::string& given);

struct TCPStoreOptions {
  static constexpr int kDefaultPort = 29500;
  /// Of the server; 0 lets it take a free one (see TCPStore::port).
  int port = kDefaultPort;
  bool is_server = false;
  /// With a number, the constructor returns only when as many processes have connected, unless `wait_workers` is false.
  std::optional<int> num_workers;
  bool wait_workers = true;
  /// Of the constructor and, unless changed, of every wait.
  std::chrono::milliseconds timeout = kStoreTimeout;
  /// Several TCPStore objects of one process share one server.
  bool multi_tenant = false;
  /// A listening socket made elsewhere, for a server.
  std::optional<int> master_listen_fd;
  /// Both sides must know it (proved by HMAC-SHA256 in both directions, never sent). The environment's
  /// ATHANOR_JOB_SECRET when left empty. A server with a secret drops who cannot prove it before doing anything else
  /// for them; PyTorch's clients cannot.
  std::string secret;
};

class TCPStore final : public Store {
 public:
  /// Serves the store (`is_server`) on all interfaces and connects to it at `host`. Throws DistNetworkError when the
  /// port is taken or nobody answers until the timeout, DistStoreError when the other side speaks something else, does
  /// not share the secret, or too few workers came (with their number).
  TCPStore(std::string host, const TCPStoreOptions& options = {});
  ~TCPStore() override;

  using Store::get;
  using Store::set;
  using Store::wait;
  void set(const std::string& key, const Value& value) override;
  Value get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  Value compare_set(const std::string& key, const Value& expected, const Value& desired) override;
  bool delete_key(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t num_keys() override;
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override;
  bool wait_unless(const std::vector<std::string>& keys, int stop) override;
  void append(const std::string& key, const Value& value) override;
  /// Not for the servers of others, which end a connection that asks for it.
  bool append_at_end(const std::string& key, const Value& value) override;
  std::vector<Value> multi_get(const std::vector<std::string>& keys) override;
  void multi_set(const std::vector<std::string>& keys, const std::vector<Value>& values) override;
  std::string describe() const override;

  const std::string& host() const { return host_; }
  int port() const { return port_; }
  bool is_server() const { return server_ != nullptr; }

 private:
  class Call;
  Socket connect(Deadline deadline);
  void authenticate(Socket& socket, Deadline deadline);
  void wait_for_workers(int expected, Deadline deadline);

  std::string host_;
  int port_;
  std::string secret_;
  std::shared_ptr<TCPStoreServer> server_;
  std::mutex mutex_;
  std::vector<Socket> idle_;  // connections no call is using
  std::vector<Socket> ends_;  // connections by whose end the server knows of this process's
  unsigned generation_ = fork_generation();
};

}  // namespace athanor::distributed
