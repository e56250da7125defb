#pragma once
/// Stream sockets with deadlines. Every call that can wait takes a Deadline and throws DistNetworkError when it passes,
/// or when the other side is gone; messages name both ends. A Socket belongs to one thread at a time.

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "athanor/base/deadline.h"

namespace athanor::distributed {

/// A file descriptor, closed at the end of its scope. None of the standard ones (beyond_standard_descriptors()).
class Descriptor {
 public:
  explicit Descriptor(int fd = -1);
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)), own_(std::exchange(other.own_, false)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(own_, other.own_);
    if (this != &other) other.reset();
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();
  void reset(int fd = -1);
  /// Forked children do not get it (see forks.h).
  void keep_from_children();

 private:
  int fd_;
  bool own_ = false;  // kept from children
};

/// A socket address of any family. Its text is "10.0.0.1:80", "[::1]:80", "@abstract-name" or "/path".
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  std::string text() const;
  int family() const { return storage.ss_family; }
  /// 0 for those that have none.
  int port() const;
  /// A unix socket that exists in no file system and vanishes with its owner; at most 100 characters.
  static Address abstract_unix(const std::string& name);
};

/// Where a connection leaves this machine, and where it leads; the port of `from` does not count.
struct Route {
  Address from, to;
};

/// "host:port", "[v6 address]:port" or "port" (host stays empty). Throws ValueError naming `what` otherwise.
struct Endpoint {
  std::string host;
  int port = 0;
  static Endpoint parse(const std::string& text, const std::string& what);
  std::string text() const;
};

/// The addresses of a name or literal, in the system's order of preference, each once. Waits for name servers until
/// the deadline. Empty with `reason` set if there are none now.
std::vector<Address> resolve_host(const std::string& host, int port, Deadline deadline, std::string& reason);

class Socket {
 public:
  Socket() = default;
  /// Takes over a connected, non-blocking socket.
  explicit Socket(Descriptor fd);
  /// Connects, and keeps trying until the deadline: the name may not resolve yet, the port not be open yet. All
  /// addresses of a name are tried side by side, each a quarter of a second after the one before, so that a dead IPv6
  /// route costs no more. The error lists what was tried and how each attempt ended.
  static Socket connect(const Endpoint& to, Deadline deadline);
  /// One attempt at one address.
  static Socket connect(const Address& to, Deadline deadline);
  /// One attempt at each, side by side as above; the first that answers.
  static Socket connect(const std::vector<Address>& to, Deadline deadline);
  /// One attempt at each, all at once. Where there is no connection by the deadline the Socket is empty, and `failures`
  /// has the reason in its place.
  static std::vector<Socket> connect_each(const std::vector<Route>& routes, Deadline deadline,
                                          std::vector<std::string>& failures);

  int fd() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void send_all(const void* data, std::size_t size, Deadline deadline);
  void recv_all(void* data, std::size_t size, Deadline deadline);
  /// Takes at most `size` bytes of what is there, without waiting; 0 when that is nothing.
  std::size_t recv_some(void* data, std::size_t size);
  /// Hands over a file descriptor with one byte of data (unix sockets).
  void send_descriptor(int fd, Deadline deadline);
  Descriptor recv_descriptor(Deadline deadline);
  std::string local_text() const;
  std::string peer_text() const;
  Address local_address() const;
  void close() { fd_.reset(); }

 private:
  void wait(short events, Deadline deadline, const char* doing);
  [[noreturn]] void broken(const char* doing, int error) const;

  Descriptor fd_;
  std::string peer_;
};

class Listener {
 public:
  Listener() = default;
  /// Listens on `port` (0: any free one) of all interfaces, IPv6 and IPv4 at once where the system has both; or of
  /// `host`'s address alone. Throws DistNetworkError naming the port and, if it is taken, the way out.
  static Listener on_port(int port, const std::string& host = "");
  static Listener on_address(const Address& address);
  /// Takes over a listening socket.
  explicit Listener(Descriptor fd);

  int fd() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  int port() const;
  Address address() const;
  Socket accept(Deadline deadline);
  void close() { fd_.reset(); }
  /// Gives the listening socket away.
  int release() { return fd_.release(); }

 private:
  Descriptor fd_;
};

/// Waits for `events` (poll's) on a descriptor; false when the deadline passed.
bool wait_for(int fd, short events, Deadline deadline);
/// For TCP connections: small messages leave at once; and when the other side's machine is gone without a word (power,
/// cable, a removed pod) the connection breaks. After ATHANOR_KEEPALIVE seconds (10; 0: never) of silence the kernel
/// asks the other kernel, three times in half that interval; a process that is busy or stopped goes unnoticed by that.
/// Other kinds of sockets are left alone.
void tune_tcp(int fd);
/// Makes the kernel take no more than `bytes` of TCP data that cannot be on their way yet.
void limit_unsent(int fd, int bytes);
/// Throws DistError if a call failed with this errno value because there is no file descriptor left: no other process
/// is to blame, and waiting does not help. `doing`: "connecting to node-a:29500".
void check_descriptors_left(int error, const std::string& doing);
/// The system's text for an errno value.
std::string error_text(int error);

}  // namespace athanor::distributed
