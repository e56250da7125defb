#include "athanor/distributed/store/tcp_store.h"

#include <poll.h>
#include <unistd.h>

#include <cstring>

#include "athanor/base/env.h"
#include "athanor/base/interrupt.h"
#include "athanor/base/log.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/store/tcp_protocol.h"
#include "athanor/distributed/store/tcp_server.h"

namespace athanor::distributed {

using namespace tcp_protocol;

namespace {

constexpr const char* kWorkersKey = "init/";

void put_raw(std::string& out, const void* data, std::size_t size) { out.append(static_cast<const char*>(data), size); }

template <class T>
void put_number(std::string& out, T value) {
  put_raw(out, &value, sizeof value);
}

void put_text(std::string& out, const void* data, std::size_t size) {
  put_number(out, static_cast<std::uint64_t>(size));
  put_raw(out, data, size);
}

void put_key(std::string& out, const std::string& key) {
  ATHANOR_CHECK_VALUE(key.size() < kMaxKey, "TCPStore: a key of ", key.size(), " bytes, expected fewer than ", kMaxKey);
  const std::string whole = kUserPrefix + key;
  put_text(out, whole.data(), whole.size());
}

void put_value(std::string& out, const Store::Value& value) {
  ATHANOR_CHECK_VALUE(value.size() <= kMaxValue, "TCPStore: a value of ", value.size(), " bytes, expected at most ",
                      kMaxValue);
  put_text(out, value.data(), value.size());
}

void put_keys(std::string& out, const std::vector<std::string>& keys) {
  ATHANOR_CHECK_VALUE(keys.size() <= kMaxKeys, "TCPStore: ", keys.size(), " keys in one request, expected at most ",
                      kMaxKeys);
  put_number(out, static_cast<std::uint64_t>(keys.size()));
  for (const std::string& key : keys) put_key(out, key);
}

Listener make_listener(const TCPStoreOptions& options) {
  if (options.master_listen_fd) return Listener(Descriptor(*options.master_listen_fd));
  return Listener::on_port(options.port);
}

std::string with_query(Query query) { return std::string(1, static_cast<char>(query)); }

}  // namespace

// One request and its answer over a connection of its own; the connection is kept for later calls unless it broke.
class TCPStore::Call {
 public:
  Call(TCPStore& store, std::chrono::milliseconds timeout)
      : store_(store), deadline_(Deadline::after(timeout).sooner(StoreDeadline::of_this_thread())) {
    {
      const std::lock_guard lock(store.mutex_);
      if (store.generation_ != fork_generation()) {  // what is open belongs to the parent
        store.idle_.clear();
        store.generation_ = fork_generation();
      }
      if (!store.idle_.empty()) {
        socket_ = std::move(store.idle_.back());
        store.idle_.pop_back();
      }
    }
    if (!socket_) translate([&] { socket_ = store_.connect(deadline_); });
  }
  ~Call() {
    if (!done_) return;
    const std::lock_guard lock(store_.mutex_);
    store_.idle_.push_back(std::move(socket_));
  }
  void send(const std::string& request) {
    done_ = false;
    translate([&] { socket_.send_all(request.data(), request.size(), deadline_); });
  }
  template <class T>
  T number() {
    T value{};
    translate([&] { socket_.recv_all(&value, sizeof value, deadline_); });
    return value;
  }
  Value value() {
    const auto size = number<std::uint64_t>();
    if (size > kMaxValue) fail(detail::str("an answer of ", size, " bytes"));
    Value bytes(size);
    translate([&] { socket_.recv_all(bytes.data(), size, deadline_); });
    return bytes;
  }
  /// False when nothing came until the deadline; the connection stays usable.
  bool readable() { return wait_for(socket_.fd(), POLLIN, deadline_); }
  /// The same without a deadline; false as well when `stop` is readable before.
  bool readable_unless(int stop) {
    struct pollfd entries[] = {{socket_.fd(), POLLIN, 0}, {stop, POLLIN, 0}};
    while (::poll(entries, 2, -1) < 0) {
    }
    return entries[0].revents != 0;
  }
  void cancel_wait() {
    // The caller's time is over already: a server that does not answer may be cut off.
    deadline_ = Deadline::after(std::chrono::seconds(1)).sooner(StoreDeadline::of_this_thread());
    send(with_query(Query::CancelWait));
    // The server may have answered just before: then the cancellation finds nothing and stays unanswered.
    if (number<std::uint8_t>() == kWaitCanceled) done_ = true;
  }
  void finish() { done_ = true; }

 private:
  template <class F>
  void translate(F&& action) {
    try {
      action();
    } catch (const DistNetworkError& error) {
      fail(error.what());
    }
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw DistStoreError(detail::str(store_.describe(), ": ", what), ATHANOR_WHERE);
  }

  TCPStore& store_;
  Deadline deadline_;
  Socket socket_;
  bool done_ = false;
};

std::string job_secret(const std::string& given) {
  return given.empty() ? env::text("ATHANOR_JOB_SECRET").value_or("") : given;
}

TCPStore::TCPStore(std::string host, const TCPStoreOptions& options)
    : Store(options.timeout), host_(std::move(host)), port_(options.port), secret_(job_secret(options.secret)) {
  const Deadline deadline = Deadline::after(options.timeout);
  if (options.is_server) {
    const auto listen = [&] { return make_listener(options); };
    server_ = options.multi_tenant ? TCPStoreServer::shared(port_, secret_, listen)
                                   : std::make_shared<TCPStoreServer>(listen(), secret_);
    port_ = server_->port();
    ATHANOR_LOG(Debug, "TCPStore serves port ", port_);
  }
  idle_.push_back(connect(deadline));
  if (options.num_workers) {
    Call call(*this, options.timeout);
    std::string request = with_query(Query::Add);
    put_text(request, kWorkersKey, std::strlen(kWorkersKey));
    put_number(request, std::int64_t{1});
    call.send(request);
    call.number<std::int64_t>();
    call.finish();
  }
  if (options.num_workers && options.wait_workers) wait_for_workers(*options.num_workers, deadline);
}

TCPStore::~TCPStore() = default;

std::string TCPStore::describe() const { return detail::str("TCPStore at ", Endpoint{host_, port_}.text()); }

Socket TCPStore::connect(Deadline deadline) {
  // The serving process reaches itself whatever the name of the host means here.
  Socket socket = Socket::connect(server_ ? server_->local_endpoint() : Endpoint{host_, port_}, deadline);
  std::string hello = with_query(Query::Validate);
  put_number(hello, kMagic);
  try {
    socket.send_all(hello.data(), hello.size(), deadline);
    authenticate(socket, deadline);
    // A round trip shows that the other side is a store, and one that lets us in.
    std::string ping = with_query(Query::Ping);
    put_number(ping, kMagic);
    socket.send_all(ping.data(), ping.size(), deadline);
    std::uint32_t echo = 0;
    socket.recv_all(&echo, sizeof echo, deadline);
    if (echo == kMagic) return socket;
  } catch (const DistNetworkError& error) {
    throw DistStoreError(
        detail::str(describe(), ": whoever listens there ended the conversation (", error.what(), "). ",
                    secret_.empty() ? "Either it is no store, or it asks for the job's secret: set ATHANOR_JOB_SECRET"
                                    : "Either it is no store, or it does not share this process's ATHANOR_JOB_SECRET"),
        ATHANOR_WHERE);
  }
  throw DistStoreError(detail::str(describe(), ": whoever listens there is no store"), ATHANOR_WHERE);
}

void TCPStore::authenticate(Socket& socket, Deadline deadline) {
  if (secret_.empty()) return;
  const std::string nonce = random_nonce();
  const std::string request = with_query(Query::Authenticate) + nonce;
  socket.send_all(request.data(), request.size(), deadline);
  std::string server_nonce(kNonceSize, '\0');
  Sha256Digest shown;
  socket.recv_all(server_nonce.data(), kNonceSize, deadline);
  socket.recv_all(shown.data(), shown.size(), deadline);
  if (!same_digest(shown, proof(secret_, "server", nonce, server_nonce)))
    throw DistStoreError(detail::str(describe(), ": the server does not know this process's ATHANOR_JOB_SECRET"),
                         ATHANOR_WHERE);
  const auto digest = proof(secret_, "client", nonce, server_nonce);
  socket.send_all(digest.data(), digest.size(), deadline);
  std::uint8_t accepted = 0;
  socket.recv_all(&accepted, 1, deadline);
}

void TCPStore::wait_for_workers(int expected, Deadline deadline) {
  std::int64_t come = 0;
  for (std::chrono::milliseconds pause{1};; pause = std::min(pause * 2, std::chrono::milliseconds(50))) {
    Call call(*this, deadline.remaining() + std::chrono::seconds(1));
    std::string request = with_query(Query::Add);
    put_text(request, kWorkersKey, std::strlen(kWorkersKey));
    put_number(request, std::int64_t{0});
    call.send(request);
    come = call.number<std::int64_t>();
    call.finish();
    if (come >= expected) return;
    if (deadline.expired()) break;
    check_interrupt();
    ::usleep(static_cast<useconds_t>(std::min(pause, deadline.remaining()).count() * 1000));
  }
  throw DistStoreError(detail::str(describe(), ": ", come, " of ", expected,
                                   " workers had connected when the time-out of ", timeout().count(), " ms passed"),
                       ATHANOR_WHERE);
}

void TCPStore::set(const std::string& key, const Value& value) { multi_set({key}, {value}); }

void TCPStore::multi_set(const std::vector<std::string>& keys, const std::vector<Value>& values) {
  ATHANOR_CHECK_VALUE(keys.size() == values.size(), "multi_set: got ", keys.size(), " keys and ", values.size(),
                      " values, expected as many of each");
  std::string request;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    request += with_query(Query::Set);
    put_key(request, keys[i]);
    put_value(request, values[i]);
  }
  // An echo tells that the store has them: who dies right after has still set the key.
  request += with_query(Query::Ping);
  put_number(request, kMagic);
  Call call(*this, timeout());
  call.send(request);
  call.number<std::uint32_t>();
  call.finish();
}

void TCPStore::append(const std::string& key, const Value& value) {
  std::string request = with_query(Query::Append);
  put_key(request, key);
  put_value(request, value);
  request += with_query(Query::Ping);
  put_number(request, kMagic);
  Call call(*this, timeout());
  call.send(request);
  call.number<std::uint32_t>();
  call.finish();
}

// On a connection of its own: the others may end when a call is given up.
bool TCPStore::append_at_end(const std::string& key, const Value& value) {
  const Deadline deadline = Deadline::after(timeout()).sooner(StoreDeadline::of_this_thread());
  Socket line = connect(deadline);
  std::string request = with_query(Query::AppendAtEnd);
  put_key(request, key);
  put_value(request, value);
  request += with_query(Query::Ping);
  put_number(request, kMagic);
  try {
    std::uint32_t echo = 0;
    line.send_all(request.data(), request.size(), deadline);
    line.recv_all(&echo, sizeof echo, deadline);
  } catch (const DistNetworkError& error) {
    throw DistStoreError(detail::str(describe(), ": ", error.what()), ATHANOR_WHERE);
  }
  const std::lock_guard lock(mutex_);
  ends_.push_back(std::move(line));
  return true;
}

void TCPStore::wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  if (keys.empty()) return;
  std::string request = with_query(Query::Wait);
  put_keys(request, keys);
  bool there = false;
  {
    Call call(*this, timeout);
    call.send(request);
    there = call.readable();
    if (there) {
      call.number<std::uint8_t>();
      call.finish();
    } else {
      call.cancel_wait();
    }
  }
  if (there) return;
  std::vector<std::string> missing;
  for (const std::string& key : keys)
    if (!check({key})) missing.push_back(key);
  if (!missing.empty()) throw_timeout(missing, timeout);
}

bool TCPStore::wait_unless(const std::vector<std::string>& keys, int stop) {
  if (keys.empty()) return true;
  std::string request = with_query(Query::Wait);
  put_keys(request, keys);
  Call call(*this, timeout());
  call.send(request);
  if (!call.readable_unless(stop)) {
    call.cancel_wait();
    return false;
  }
  call.number<std::uint8_t>();
  call.finish();
  return true;
}

Store::Value TCPStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  wait({key}, timeout);
  std::string request = with_query(Query::Get);
  put_key(request, key);
  Call call(*this, this->timeout());
  call.send(request);
  Value value = call.value();
  call.finish();
  return value;
}

std::vector<Store::Value> TCPStore::multi_get(const std::vector<std::string>& keys) {
  if (keys.empty()) return {};
  wait(keys, timeout());
  std::string request = with_query(Query::MultiGet);
  put_keys(request, keys);
  Call call(*this, timeout());
  call.send(request);
  std::vector<Value> values;
  for (std::size_t i = 0; i < keys.size(); ++i) values.push_back(call.value());
  call.finish();
  return values;
}

std::int64_t TCPStore::add(const std::string& key, std::int64_t amount) {
  std::string request = with_query(Query::Add);
  put_key(request, key);
  put_number(request, amount);
  Call call(*this, timeout());
  call.send(request);
  try {
    const auto sum = call.number<std::int64_t>();
    call.finish();
    return sum;
  } catch (DistStoreError& error) {
    error.add_context(
        detail::str("add to key '", key, "': the server also closes the connection if the key holds no number"));
    throw;
  }
}

Store::Value TCPStore::compare_set(const std::string& key, const Value& expected, const Value& desired) {
  std::string request = with_query(Query::CompareSet);
  put_key(request, key);
  put_value(request, expected);
  put_value(request, desired);
  Call call(*this, timeout());
  call.send(request);
  Value value = call.value();
  call.finish();
  return value;
}

bool TCPStore::delete_key(const std::string& key) {
  std::string request = with_query(Query::DeleteKey);
  put_key(request, key);
  Call call(*this, timeout());
  call.send(request);
  const bool deleted = call.number<std::int64_t>() > 0;
  call.finish();
  return deleted;
}

bool TCPStore::check(const std::vector<std::string>& keys) {
  std::string request = with_query(Query::Check);
  put_keys(request, keys);
  Call call(*this, timeout());
  call.send(request);
  const bool ready = call.number<std::uint8_t>() == kReady;
  call.finish();
  return ready;
}

std::int64_t TCPStore::num_keys() {
  Call call(*this, timeout());
  call.send(with_query(Query::GetNumKeys));
  const auto count = call.number<std::int64_t>();
  call.finish();
  return count;
}

}  // namespace athanor::distributed
