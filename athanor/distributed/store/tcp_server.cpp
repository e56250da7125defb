#include "athanor/distributed/store/tcp_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "athanor/base/env.h"
#include "athanor/base/log.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/net/forks.h"
#include "athanor/distributed/store/tcp_protocol.h"

namespace athanor::distributed {

using namespace tcp_protocol;

Sha256Digest tcp_protocol::proof(const std::string& secret, const char* side, const std::string& client_nonce,
                                 const std::string& server_nonce) {
  const std::string message = detail::str("athanor store ", side, " ", client_nonce, server_nonce);
  return hmac_sha256(std::as_bytes(std::span(secret)), std::as_bytes(std::span(message)));
}

std::string tcp_protocol::random_nonce() {
  std::string nonce(kNonceSize, '\0');
  ATHANOR_CHECK(::getentropy(nonce.data(), nonce.size()) == 0, "getentropy: ", error_text(errno));
  return nonce;
}

struct TCPStoreServer::Connection {
  explicit Connection(Descriptor fd) : fd(std::move(fd)) {}
  Descriptor fd;
  std::string in, out;
  std::size_t out_sent = 0;
  bool validated = false;
  bool trusted = false;
  bool guest = true;     // counted as one that has not yet said who it is
  bool writing = false;  // epoll waits for room to write
  bool stalled = false;  // requests in `in` wait until `out` has left; nothing is read meanwhile
  std::uint32_t watched = EPOLLIN;
  bool corked = false;  // answers of one batch of requests leave together
  bool gone = false;
  std::string client_nonce, server_nonce;  // between the two steps of authentication
  std::set<std::string> missing;           // keys a Wait still lacks
  std::vector<std::pair<std::string, std::string>> at_end;
  const Deadline::Clock::time_point came = Deadline::Clock::now();

  bool known() const { return trusted && validated; }
  std::size_t unsent() const { return out.size() - out_sent; }
};

namespace {

// While so many have not said who they are, their time is shorter, and further ones wait.
constexpr std::chrono::milliseconds kCrowdedPatience{1000};
constexpr std::size_t kMostGuests = 1024;
// A client that does not read what it has asked for is not answered any further.
constexpr std::size_t kMostUnsent = std::size_t{4} << 20;
// Things to be told of the end of one connection.
constexpr std::size_t kMostAtEnd = 16;

}  // namespace

// Reads a request from what has arrived. `whole` turns false when more must come, `bad` when it never can be right.
class TCPStoreServer::Request {
 public:
  explicit Request(std::string_view bytes) : bytes_(bytes) {}
  bool whole = true, bad = false;
  std::size_t used() const { return at_; }
  template <class T>
  T number() {
    T value{};
    if (bytes_.size() - at_ < sizeof value) {
      whole = false;
      return value;
    }
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string text(std::uint64_t limit) {
    const auto size = number<std::uint64_t>();
    if (whole && size > limit) bad = true;
    return whole && !bad ? raw(size) : std::string();
  }
  std::string raw(std::size_t size) {
    if (bytes_.size() - at_ < size) {
      whole = false;
      return {};
    }
    std::string result(bytes_.substr(at_, size));
    at_ += size;
    return result;
  }
  std::vector<std::string> keys() {
    const auto count = number<std::uint64_t>();
    if (whole && count > kMaxKeys) bad = true;
    std::vector<std::string> result;
    for (std::uint64_t i = 0; i < count && whole && !bad; ++i) result.push_back(text(kMaxKey));
    return result;
  }
  bool ready() const { return whole && !bad; }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

TCPStoreServer::TCPStoreServer(Listener listener, std::string secret, std::chrono::milliseconds guest_patience)
    : secret_(std::move(secret)),
      guest_patience_(guest_patience),
      listener_(std::move(listener)),
      bound_(Endpoint::parse(listener_.address().text(), "TCPStore")),
      port_(bound_.port) {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  ATHANOR_CHECK(epoll_ && wake_, "TCPStore server: ", error_text(errno));
  for (const int fd : {listener_.fd(), wake_.get()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
  thread_ = std::thread([this] { run(); });
}

TCPStoreServer::~TCPStoreServer() {
  if (generation_ != fork_generation()) {  // a forked child has no such thread
    thread_.detach();
    return;
  }
  {
    const std::lock_guard lock(asked_mutex_);
    stop_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void TCPStoreServer::keep_only(const std::string& prefix) {
  std::unique_lock lock(asked_mutex_);
  keep_prefix_ = tcp_protocol::kUserPrefix + prefix;
  ::eventfd_write(wake_.get(), 1);
  asked_done_.wait(lock, [&] { return !keep_prefix_; });
}

// False when the thread should end.
bool TCPStoreServer::do_asked() {
  eventfd_t ignored = 0;
  ::eventfd_read(wake_.get(), &ignored);
  const std::lock_guard lock(asked_mutex_);
  if (keep_prefix_) std::erase_if(values_, [&](const auto& entry) { return !entry.first.starts_with(*keep_prefix_); });
  keep_prefix_.reset();
  asked_done_.notify_all();
  return !stop_;
}

std::shared_ptr<TCPStoreServer> TCPStoreServer::shared(int port, const std::string& secret,
                                                       const std::function<Listener()>& make_listener) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<TCPStoreServer>> servers;
  const std::lock_guard lock(mutex);
  if (auto found = servers[port].lock(); found && found->generation_ == fork_generation()) return found;
  auto made = std::make_shared<TCPStoreServer>(make_listener(), secret);
  servers[made->port()] = made;
  return made;
}

Endpoint TCPStoreServer::local_endpoint() const {
  const bool any = bound_.host == "0.0.0.0" || bound_.host == "::";
  return {any ? "127.0.0.1" : bound_.host, port_};
}

void TCPStoreServer::run() {
  epoll_event events[64];
  while (true) {
    const int count = ::epoll_wait(epoll_.get(), events, 64, guests_ > 0 ? 500 : -1);
    if (count < 0 && errno != EINTR) return;
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == wake_.get()) {
        if (!do_asked()) return;
        continue;
      }
      if (fd == listener_.fd()) {
        accept_all();
        continue;
      }
      const auto found = connections_.find(fd);
      if (found == connections_.end()) continue;
      Connection& connection = *found->second;
      if ((events[i].events & EPOLLOUT) != 0) writable(connection);
      if ((events[i].events & EPOLLOUT) != 0 && connection.stalled && connection.unsent() == 0)
        answer_requests(connection);
      if ((events[i].events & ~EPOLLOUT) != 0) readable(connection);
    }
    if (guests_ > 0) drop_silent_guests();
    // What is told of an end may end others.
    std::size_t next = 0;
    while (next < dropped_.size()) drop(dropped_[next++]);
    dropped_.clear();
  }
}

void TCPStoreServer::accept_all() {
  while (true) {
    if (guests_ >= kMostGuests) return pause_accepting(true, "too many strangers knock");
    Descriptor fd(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      // Out of descriptors: those who wait are let in when others leave.
      if (errno == EMFILE || errno == ENFILE) pause_accepting(true, "out of file descriptors");
      return;
    }
    fd.keep_from_children();
    const int number = fd.get();
    // Without it an answer in two parts waits 40 ms for the other side's delayed acknowledgement.
    tune_tcp(number);
    auto connection = std::make_unique<Connection>(std::move(fd));
    connection->trusted = secret_.empty();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = number;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, number, &event) != 0) continue;
    connections_[number] = std::move(connection);
    ++guests_;
  }
}

void TCPStoreServer::drop(int fd) {
  const auto found = connections_.find(fd);
  if (found == connections_.end()) return;
  forget_waits(*found->second);
  if (found->second->guest) --guests_;
  const auto at_end = std::move(found->second->at_end);
  connections_.erase(found);
  pause_accepting(false);
  for (const auto& [key, value] : at_end) put(key, values_[key] + value);
}

void TCPStoreServer::end(Connection& connection) {
  if (connection.gone) return;
  connection.gone = true;
  dropped_.push_back(connection.fd.get());
}

void TCPStoreServer::trust_if_known(Connection& connection) {
  if (!connection.guest || !connection.known()) return;
  connection.guest = false;
  --guests_;
  if (guests_ < kMostGuests) pause_accepting(false);
}

void TCPStoreServer::drop_silent_guests() {
  const auto patience = guests_ < kMostGuests ? guest_patience_ : std::min(guest_patience_, kCrowdedPatience);
  const auto oldest = Deadline::Clock::now() - patience;
  for (const auto& [fd, connection] : connections_)
    if (connection->guest && !connection->gone && connection->came < oldest) {
      refused("did not say who it is");
      end(*connection);
    }
}

void TCPStoreServer::pause_accepting(bool pause, const char* why) {
  if (paused_ == pause) return;
  paused_ = pause;
  if (pause) ATHANOR_LOG(Warning, "TCPStore on port ", port_, ": ", why, ", new connections wait");
  epoll_event event{};
  if (!pause) event.events = EPOLLIN;
  event.data.fd = listener_.fd();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.fd(), &event);
}

void TCPStoreServer::readable(Connection& connection) {
  if (connection.gone) return;
  if (connection.stalled) return end(connection);  // nothing is to be read, so this is the end, or an error
  char buffer[65536];
  const ssize_t got = ::recv(connection.fd.get(), buffer, sizeof buffer, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return end(connection);
  connection.in.append(buffer, static_cast<std::size_t>(got));
  answer_requests(connection);
}

void TCPStoreServer::answer_requests(Connection& connection) {
  bool keep = true;
  do {
    connection.stalled = false;
    std::size_t done = 0;
    connection.corked = true;
    while (keep && done < connection.in.size() && !connection.stalled) {
      Request request(std::string_view(connection.in).substr(done));
      keep = connection.known() ? answer(connection, request) : authenticate(connection, request);
      if (!request.whole || !keep) break;
      done += request.used();
      connection.stalled = connection.unsent() > kMostUnsent;
    }
    connection.in.erase(0, done);
    connection.corked = false;
    trust_if_known(connection);
    if (!connection.out.empty()) writable(connection);
  } while (keep && connection.stalled && !connection.gone && connection.unsent() == 0);
  if (!keep) return end(connection);
  watch(connection, connection.writing);
}

// Strangers may knock all day: only the first few are worth a line.
void TCPStoreServer::refused(const char* why) {
  constexpr int kShown = 5;
  if (++refused_ <= kShown)
    ATHANOR_LOG(Warning, "TCPStore on port ", port_, ": ended a connection that ", why,
                refused_ == kShown ? " (further ones go unmentioned)" : "");
}

// The first words of a connection. A stranger who says anything else, or too much, is not answered.
bool TCPStoreServer::authenticate(Connection& connection, Request& request) {
  if (!connection.server_nonce.empty()) {
    const std::string shown = request.raw(sizeof(Sha256Digest));
    if (!request.whole) return true;
    Sha256Digest digest;
    std::memcpy(digest.data(), shown.data(), digest.size());
    const auto expected = proof(secret_, "client", connection.client_nonce, connection.server_nonce);
    if (!same_digest(digest, expected)) {
      refused("does not know the job's secret");
      return false;
    }
    connection.trusted = true;
    connection.server_nonce.clear();
    const std::uint8_t yes = 1;
    reply(connection, &yes, 1);
    return true;
  }
  const auto query = request.number<std::uint8_t>();
  if (query == static_cast<std::uint8_t>(Query::Validate) && !connection.validated) {
    const auto magic = request.number<std::uint32_t>();
    if (request.whole) connection.validated = magic == kMagic;
    return !request.whole || connection.validated;
  }
  if (query != static_cast<std::uint8_t>(Query::Authenticate) || !connection.validated) {
    refused(connection.validated ? "did not prove the job's secret" : "speaks another protocol");
    return false;
  }
  const std::string nonce = request.raw(kNonceSize);
  if (!request.whole) return true;
  connection.client_nonce = nonce;
  connection.server_nonce = random_nonce();
  const auto digest = proof(secret_, "server", connection.client_nonce, connection.server_nonce);
  reply(connection, connection.server_nonce.data(), kNonceSize);
  reply(connection, digest.data(), digest.size());
  return true;
}

bool TCPStoreServer::answer(Connection& connection, Request& request) {
  switch (static_cast<Query>(request.number<std::uint8_t>())) {
    case Query::Set: {
      const std::string key = request.text(kMaxKey);
      std::string value = request.text(kMaxValue);
      if (request.ready()) put(key, std::move(value));
      break;
    }
    case Query::Append: {
      const std::string key = request.text(kMaxKey);
      const std::string value = request.text(kMaxValue);
      if (request.ready()) put(key, values_[key] + value);
      break;
    }
    case Query::AppendAtEnd: {
      std::string key = request.text(kMaxKey);
      std::string value = request.text(kMaxKey);
      if (!request.ready()) break;
      if (connection.at_end.size() == kMostAtEnd) {
        refused("asked to be outlived by too much");
        return false;
      }
      connection.at_end.emplace_back(std::move(key), std::move(value));
      break;
    }
    case Query::Get: {
      const std::string key = request.text(kMaxKey);
      if (request.ready()) reply_text(connection, values_.contains(key) ? values_[key] : std::string());
      break;
    }
    case Query::Check: {
      const auto keys = request.keys();
      if (!request.ready()) break;
      std::uint8_t outcome = kReady;
      for (const std::string& key : keys)
        if (!values_.contains(key)) outcome = kNotReady;
      reply(connection, &outcome, 1);
      break;
    }
    case Query::GetNumKeys: {
      const auto count = static_cast<std::int64_t>(values_.size());
      reply(connection, &count, sizeof count);
      break;
    }
    case Query::DeleteKey: {
      const std::string key = request.text(kMaxKey);
      if (!request.ready()) break;
      const auto count = static_cast<std::int64_t>(values_.erase(key));
      reply(connection, &count, sizeof count);
      break;
    }
    case Query::Ping: {
      const auto nonce = request.number<std::uint32_t>();
      if (request.whole) reply(connection, &nonce, sizeof nonce);
      break;
    }
    case Query::CancelWait: {
      const bool waited = !connection.missing.empty();
      forget_waits(connection);
      if (waited) reply(connection, &kWaitCanceled, 1);
      break;
    }
    case Query::Add:
      return add(connection, request);
    case Query::CompareSet:
      return compare_set(connection, request);
    case Query::Wait:
      return wait(connection, request);
    case Query::MultiGet:
      return multi(connection, request, false);
    case Query::MultiSet:
      return multi(connection, request, true);
    default:
      refused("sent an unknown request");
      return false;
  }
  return !request.bad;
}

bool TCPStoreServer::add(Connection& connection, Request& request) {
  const std::string key = request.text(kMaxKey);
  const auto amount = request.number<std::int64_t>();
  if (!request.ready()) return !request.bad;
  const auto found = values_.find(key);
  const auto held = found == values_.end() ? 0 : parse_integer(found->second);
  if (!held) return false;  // the client asked to add to something that is no number, and hears so by the closed line
  const std::int64_t sum = *held + amount;
  put(key, std::to_string(sum));
  reply(connection, &sum, sizeof sum);
  return true;
}

bool TCPStoreServer::compare_set(Connection& connection, Request& request) {
  const std::string key = request.text(kMaxKey);
  const std::string expected = request.text(kMaxValue);
  std::string desired = request.text(kMaxValue);
  if (!request.ready()) return !request.bad;
  const auto found = values_.find(key);
  const bool set = found == values_.end() ? expected.empty() : found->second == expected;
  if (set) {
    reply_text(connection, desired);
    put(key, std::move(desired));
  } else {
    reply_text(connection, found == values_.end() ? expected : found->second);
  }
  return true;
}

bool TCPStoreServer::wait(Connection& connection, Request& request) {
  const auto keys = request.keys();
  if (!request.ready()) return !request.bad;
  forget_waits(connection);
  for (const std::string& key : keys)
    if (!values_.contains(key)) connection.missing.insert(key);
  for (const std::string& key : connection.missing) waiting_[key].insert(connection.fd.get());
  if (connection.missing.empty()) reply(connection, &kStopWaiting, 1);
  return true;
}

bool TCPStoreServer::multi(Connection& connection, Request& request, bool set) {
  if (!set) {
    const auto keys = request.keys();
    if (!request.ready()) return !request.bad;
    for (const std::string& key : keys) reply_text(connection, values_.contains(key) ? values_[key] : std::string());
    return true;
  }
  const auto count = request.number<std::uint64_t>();
  if (request.whole && count > kMaxKeys) return false;
  std::vector<std::pair<std::string, std::string>> pairs;
  for (std::uint64_t i = 0; i < count && request.ready(); ++i) {
    std::string key = request.text(kMaxKey);
    pairs.emplace_back(std::move(key), request.text(kMaxValue));
  }
  if (!request.ready()) return !request.bad;
  for (auto& [key, value] : pairs) put(key, std::move(value));
  return true;
}

void TCPStoreServer::put(const std::string& key, std::string value) {
  values_[key] = std::move(value);
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  const std::set<int> woken = std::move(found->second);
  waiting_.erase(found);
  for (const int fd : woken) {
    Connection& connection = *connections_.at(fd);
    connection.missing.erase(key);
    if (connection.missing.empty()) reply(connection, &kStopWaiting, 1);
  }
}

void TCPStoreServer::forget_waits(Connection& connection) {
  for (const std::string& key : connection.missing) {
    const auto found = waiting_.find(key);
    if (found == waiting_.end()) continue;
    found->second.erase(connection.fd.get());
    if (found->second.empty()) waiting_.erase(found);
  }
  connection.missing.clear();
}

void TCPStoreServer::reply_text(Connection& connection, const std::string& text) {
  const auto size = static_cast<std::uint64_t>(text.size());
  reply(connection, &size, sizeof size);
  reply(connection, text.data(), text.size());
}

void TCPStoreServer::reply(Connection& connection, const void* data, std::size_t size) {
  connection.out.append(static_cast<const char*>(data), size);
  if (!connection.corked) writable(connection);
}

void TCPStoreServer::writable(Connection& connection) {
  while (connection.out_sent < connection.out.size() && !connection.gone) {
    const ssize_t sent = ::send(connection.fd.get(), connection.out.data() + connection.out_sent,
                                connection.out.size() - connection.out_sent, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) {
      watch(connection, true);
      return;
    }
    if (sent < 0) return end(connection);
    connection.out_sent += static_cast<std::size_t>(sent);
  }
  connection.out_sent = 0;
  if (connection.out.size() > kMostUnsent)
    connection.out = std::string();  // and its memory
  else
    connection.out.clear();
  watch(connection, false);
}

void TCPStoreServer::watch(Connection& connection, bool write) {
  connection.writing = write;
  std::uint32_t wanted = connection.stalled ? 0U : static_cast<std::uint32_t>(EPOLLIN);
  if (write) wanted |= EPOLLOUT;
  if (connection.watched == wanted) return;
  connection.watched = wanted;
  epoll_event event{};
  event.events = wanted;
  event.data.fd = connection.fd.get();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd.get(), &event);
}

}  // namespace athanor::distributed
