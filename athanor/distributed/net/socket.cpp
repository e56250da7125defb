#include "athanor/distributed/net/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <system_error>
#include <thread>

#include "athanor/base/env.h"
#include "athanor/base/interrupt.h"
#include "athanor/base/log.h"
#include "athanor/base/standard_descriptors.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/net/forks.h"

namespace athanor::distributed {

std::string error_text(int error) { return std::generic_category().message(error); }

Descriptor::Descriptor(int fd) : fd_(athanor::detail::beyond_standard_descriptors(fd)) {}

void Descriptor::reset(int fd) {
  if (const int old = release(); old >= 0) ::close(old);
  fd_ = athanor::detail::beyond_standard_descriptors(fd);
}

int Descriptor::release() {
  if (std::exchange(own_, false)) share_with_children(fd_);
  return std::exchange(fd_, -1);
}

void Descriptor::keep_from_children() {
  if (fd_ < 0 || own_) return;
  distributed::keep_from_children(fd_);
  own_ = true;
}

bool wait_for(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd p{fd, events, 0};
    // A signal may come just before the wait begins: it is seen after a second.
    const int ready = ::poll(&p, 1, std::min(deadline.poll_milliseconds(), 1000));
    if (ready > 0) return true;
    if (ready == 0 && deadline.expired()) return false;
    ATHANOR_CHECK(ready >= 0 || errno == EINTR, "poll: ", error_text(errno));
    check_interrupt();
  }
}

void tune_tcp(int fd) {
  // Unix sockets refuse all of it.
  const auto set = [fd](int level, int name, int value) {
    static_cast<void>(::setsockopt(fd, level, name, &value, sizeof value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  static const int silence = static_cast<int>(env::integer("ATHANOR_KEEPALIVE", 0, 32767).value_or(10));
  if (silence == 0) return;
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, silence);
  set(IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, silence / 2));
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

void limit_unsent(int fd, int bytes) {
  static_cast<void>(::setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes));
}

void check_descriptors_left(int error, const std::string& doing) {
  if (error != EMFILE && error != ENFILE) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  throw DistError(detail::str(doing, ": no file descriptor is left",
                              error == EMFILE ? detail::str(", this process may have ", limit.rlim_cur,
                                                            ": raise the limit (ulimit -n)")
                                              : std::string(" in the whole system")),
                  ATHANOR_WHERE);
}

namespace {

constexpr std::chrono::milliseconds kStagger{250};

// The port is chosen when the other end is known: one may serve for several of those.
bool leave_from(int fd, Address from) {
  const int on = 1;
  static_cast<void>(::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on));
  if (from.family() == AF_INET) reinterpret_cast<sockaddr_in&>(from.storage).sin_port = 0;
  if (from.family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(from.storage).sin6_port = 0;
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&from.storage), from.length) == 0;
}

// Begins to connect; an errno value in `error` when that fails at once.
Descriptor start_connect(const Address& to, int& error, const Address* from = nullptr) {
  Descriptor fd(::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  error = 0;
  if (!fd) {
    error = errno;
    return fd;
  }
  fd.keep_from_children();
  if ((from != nullptr && !leave_from(fd.get(), *from)) ||
      (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.length) != 0 && errno != EINPROGRESS)) {
    error = errno;
    return Descriptor();
  }
  return fd;
}

// 0 once connected, EINPROGRESS while waiting.
int connect_state(int fd) {
  pollfd p{fd, POLLOUT, 0};
  if (::poll(&p, 1, 0) <= 0) return EINPROGRESS;
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  if (error != 0) return error;
  // A port in the ephemeral range may, with nobody listening, connect to itself.
  sockaddr_storage a{}, b{};
  socklen_t la = sizeof a, lb = sizeof b;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &la);
  ::getpeername(fd, reinterpret_cast<sockaddr*>(&b), &lb);
  return a.ss_family != AF_UNIX && la == lb && std::memcmp(&a, &b, la) == 0 ? ECONNREFUSED : 0;
}

// One round over all addresses, side by side. Notes in `failures` how each ended.
Descriptor race(const std::vector<Address>& addresses, Deadline deadline,
                std::map<std::string, std::string>& failures) {
  std::vector<std::pair<Address, Descriptor>> running;
  std::size_t next = 0;
  while (next < addresses.size() || !running.empty()) {
    if (next < addresses.size()) {
      int error = 0;
      Descriptor fd = start_connect(addresses[next], error);
      check_descriptors_left(error, "connecting to " + addresses[next].text());
      if (fd)
        running.emplace_back(addresses[next], std::move(fd));
      else
        failures[addresses[next].text()] = error_text(error);
      ++next;
      if (running.empty()) continue;
    }
    std::vector<pollfd> polls;
    for (const auto& [address, fd] : running) polls.push_back({fd.get(), POLLOUT, 0});
    const Deadline turn = next < addresses.size() ? deadline.sooner(Deadline::after(kStagger)) : deadline;
    ::poll(polls.data(), polls.size(), turn.poll_milliseconds());
    for (std::size_t i = 0; i < running.size();) {
      const int state = connect_state(running[i].second.get());
      if (state == 0) return std::move(running[i].second);
      if (state != EINPROGRESS) {
        failures[running[i].first.text()] = error_text(state);
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    if (deadline.expired()) {
      for (const auto& [address, fd] : running) failures[address.text()] = "no answer";
      break;
    }
  }
  return Descriptor();
}

}  // namespace

Socket::Socket(Descriptor fd) : fd_(std::move(fd)) {
  fd_.keep_from_children();
  peer_ = peer_text();
}

Socket Socket::connect(const Endpoint& to, Deadline deadline) {
  const auto start = Deadline::Clock::now();
  std::map<std::string, std::string> failures;
  std::string unresolved;
  int rounds = 0;
  for (std::chrono::milliseconds pause{20};; pause = std::min(pause * 2, std::chrono::milliseconds(250))) {
    const auto addresses = resolve_host(to.host, to.port, deadline, unresolved);
    if (!addresses.empty()) unresolved.clear();
    // One round may not use up all the time: a server that comes up later must still be found.
    const Deadline round = deadline.sooner(Deadline::after(std::chrono::seconds(5)));
    if (Descriptor fd = race(addresses, round, failures); fd) {
      Socket socket(std::move(fd));
      tune_tcp(socket.fd());
      ATHANOR_LOG(Debug, "connected to ", to.text(), " (", socket.peer_text(), ") at attempt ", rounds + 1);
      return socket;
    }
    ++rounds;
    if (rounds == 1)
      for (const auto& [address, reason] : failures) ATHANOR_LOG(Debug, "connect to ", address, ": ", reason);
    if (deadline.expired()) break;
    check_interrupt();
    std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
  }
  const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now() - start).count();
  std::string tried;
  for (const auto& [address, reason] : failures) tried += detail::str(tried.empty() ? "" : "; ", address, ": ", reason);
  if (!unresolved.empty()) tried += detail::str(tried.empty() ? "" : "; ", "'", to.host, "': ", unresolved);
  throw DistNetworkError(detail::str("could not connect to ", to.text(), " in ", spent, " ms (", rounds, " attempts): ",
                                     tried, ". Is the process that listens there running, and is the address right?"),
                         ATHANOR_WHERE);
}

Socket Socket::connect(const Address& to, Deadline deadline) { return connect(std::vector<Address>{to}, deadline); }

Socket Socket::connect(const std::vector<Address>& to, Deadline deadline) {
  std::map<std::string, std::string> failures;
  Descriptor fd = race(to, deadline, failures);
  if (!fd) {
    std::string tried;
    for (const auto& [address, reason] : failures)
      tried += detail::str(tried.empty() ? "" : "; ", address, ": ", reason);
    throw DistNetworkError(detail::str("could not connect to ", tried), ATHANOR_WHERE);
  }
  Socket socket(std::move(fd));
  tune_tcp(socket.fd());
  return socket;
}

std::vector<Socket> Socket::connect_each(const std::vector<Route>& routes, Deadline deadline,
                                         std::vector<std::string>& failures) {
  std::vector<Socket> sockets(routes.size());
  std::vector<Descriptor> running(routes.size());
  failures.assign(routes.size(), "");
  for (std::size_t i = 0; i < routes.size(); ++i) {
    int error = 0;
    running[i] = start_connect(routes[i].to, error, &routes[i].from);
    check_descriptors_left(error, "connecting to " + routes[i].to.text());
    if (!running[i]) failures[i] = error_text(error);
  }
  while (true) {
    std::vector<pollfd> polls;
    for (std::size_t i = 0; i < running.size(); ++i) {
      if (!running[i]) continue;
      const int state = connect_state(running[i].get());
      if (state == 0) {
        sockets[i] = Socket(std::move(running[i]));
        tune_tcp(sockets[i].fd());
      } else if (state != EINPROGRESS || deadline.expired()) {
        failures[i] = state == EINPROGRESS ? "no answer" : error_text(state);
        running[i].reset();
      } else {
        polls.push_back({running[i].get(), POLLOUT, 0});
      }
    }
    if (polls.empty()) return sockets;
    // A signal may come just before the wait begins: it is seen after a second.
    ::poll(polls.data(), polls.size(), std::min(deadline.poll_milliseconds(), 1000));
    check_interrupt();
  }
}

void Socket::broken(const char* doing, int error) const {
  const std::string reason = error == 0 ? "the other side closed the connection" : error_text(error);
  throw DistNetworkError(detail::str(doing, " ", peer_, ": ", reason), ATHANOR_WHERE);
}

void Socket::wait(short events, Deadline deadline, const char* doing) {
  if (!wait_for(fd_.get(), events, deadline))
    throw DistNetworkError(detail::str(doing, " ", peer_, ": timed out"), ATHANOR_WHERE);
}

void Socket::send_all(const void* data, std::size_t size, Deadline deadline) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = ::send(fd_.get(), at, size, MSG_NOSIGNAL);
    if (sent > 0) {
      at += sent;
      size -= static_cast<std::size_t>(sent);
    } else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      wait(POLLOUT, deadline, "sending to");
    } else if (sent < 0 && errno != EINTR) {
      broken("sending to", errno);
    }
  }
}

std::size_t Socket::recv_some(void* data, std::size_t size) {
  while (true) {
    const ssize_t got = ::recv(fd_.get(), data, size, MSG_DONTWAIT);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) broken("receiving from", 0);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) broken("receiving from", errno);
  }
}

void Socket::recv_all(void* data, std::size_t size, Deadline deadline) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const std::size_t got = recv_some(at, size);
    if (got == 0) wait(POLLIN, deadline, "receiving from");
    at += got;
    size -= got;
  }
}

void Socket::send_descriptor(int fd, Deadline deadline) {
  char byte = 'f';
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  while (::sendmsg(fd_.get(), &message, MSG_NOSIGNAL) < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK)
      wait(POLLOUT, deadline, "handing a descriptor to");
    else if (errno != EINTR)
      broken("handing a descriptor to", errno);
  }
}

Descriptor Socket::recv_descriptor(Deadline deadline) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = 0;
  while ((got = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK)
      wait(POLLIN, deadline, "waiting for a descriptor from");
    else if (errno != EINTR)
      broken("waiting for a descriptor from", errno);
  }
  if (got == 0) broken("waiting for a descriptor from", 0);
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    // The kernel does not say why it kept the descriptor.
    const Descriptor spare(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
    if (!spare) check_descriptors_left(errno, "taking a descriptor from " + peer_);
  }
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int)))
    throw DistNetworkError(detail::str("expected a file descriptor from ", peer_, ", got other data"), ATHANOR_WHERE);
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return Descriptor(fd);
}

Address Socket::local_address() const {
  Address address;
  address.length = sizeof address.storage;
  ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return address;
}

std::string Socket::local_text() const { return local_address().text(); }

std::string Socket::peer_text() const {
  if (!peer_.empty()) return peer_;
  Address address;
  address.length = sizeof address.storage;
  if (::getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0)
    return "a peer that is gone";
  return address.text();
}

namespace {

// Nothing when the family is missing on this machine.
Descriptor listen_on(const Address& address, bool both_families, int& error) {
  error = 0;
  Descriptor fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  fd.keep_from_children();
  const int on = 1, off = 0;
  if (fd && address.family() != AF_UNIX) {
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address.family() == AF_INET6)
      ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, both_families ? &off : &on, sizeof on);
  }
  if (fd && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) == 0 &&
      ::listen(fd.get(), SOMAXCONN) == 0)
    return fd;
  error = errno;
  return Descriptor();
}

Address any_address(int family, int port) {
  Address address;
  if (family == AF_INET6) {
    auto& in = reinterpret_cast<sockaddr_in6&>(address.storage);
    in.sin6_family = AF_INET6;
    in.sin6_addr = in6addr_any;
    in.sin6_port = htons(static_cast<std::uint16_t>(port));
    address.length = sizeof in;
  } else {
    auto& in = reinterpret_cast<sockaddr_in&>(address.storage);
    in.sin_family = AF_INET;
    in.sin_port = htons(static_cast<std::uint16_t>(port));
    address.length = sizeof in;
  }
  return address;
}

[[noreturn]] void cannot_listen(const std::string& where, int error, bool any_port = false) {
  check_descriptors_left(error, "listening on " + where);
  const char* way_out =
      error != EADDRINUSE ? ""
      : any_port          ? ". Other processes have all ports that the system gives out (net.ipv4.ip_local_port_range)"
                          : ". Another process listens there: stop it, or choose another port (0 takes any free one)";
  throw DistNetworkError(detail::str("cannot listen on ", where, ": ", error_text(error), way_out), ATHANOR_WHERE);
}

}  // namespace

Listener::Listener(Descriptor fd) : fd_(std::move(fd)) {
  fd_.keep_from_children();
  ::fcntl(fd_.get(), F_SETFL, ::fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
}

Listener Listener::on_port(int port, const std::string& host) {
  int error = 0;
  if (!host.empty()) {
    std::string reason = "no address";
    for (const Address& address : resolve_host(host, port, Deadline::after(std::chrono::seconds(10)), reason)) {
      if (Descriptor fd = listen_on(address, false, error); fd) return Listener(std::move(fd));
      reason = error_text(error);
    }
    if (error != 0) cannot_listen(Endpoint{host, port}.text(), error);
    throw DistNetworkError(detail::str("cannot listen on ", host, ": ", reason), ATHANOR_WHERE);
  }
  Descriptor fd = listen_on(any_address(AF_INET6, port), true, error);
  if (!fd && error != EADDRINUSE) fd = listen_on(any_address(AF_INET, port), false, error);
  if (!fd) cannot_listen(port == 0 ? std::string("any free port") : detail::str("port ", port), error, port == 0);
  return Listener(std::move(fd));
}

Listener Listener::on_address(const Address& address) {
  int error = 0;
  Descriptor fd = listen_on(address, false, error);
  if (!fd) cannot_listen(address.text(), error);
  return Listener(std::move(fd));
}

Address Listener::address() const {
  Address address;
  address.length = sizeof address.storage;
  ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return address;
}

int Listener::port() const { return address().port(); }

Socket Listener::accept(Deadline deadline) {
  while (true) {
    Descriptor fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      Socket socket(std::move(fd));
      tune_tcp(socket.fd());
      return socket;
    }
    const bool again = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ECONNABORTED;
    if (!again) check_descriptors_left(errno, "accepting a connection on " + address().text());
    if (!again)
      throw DistNetworkError(detail::str("accept on ", address().text(), ": ", error_text(errno)), ATHANOR_WHERE);
    if (!wait_for(fd_.get(), POLLIN, deadline))
      throw DistNetworkError(detail::str("nobody connected to ", address().text(), " in time"), ATHANOR_WHERE);
  }
}

}  // namespace athanor::distributed
