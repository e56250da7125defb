#include "athanor/distributed/transport/link.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "athanor/distributed/error.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {
// The other side may begin on what is there while the rest is still being copied.
constexpr std::size_t kPiece = std::size_t{64} << 10;
// How long one of several connections has its turn: long enough for few calls, and several fit into their buffers.
constexpr std::size_t kTurn = std::size_t{128} << 10;
// Of what a connection has taken and cannot send yet: the rest of the turn that it is sending, and one more. What waits
// for a slow connection holds up what has come over the others.
constexpr std::size_t kMostWaiting = 2 * kTurn;
// Connections are alike whose bytes that wait differ by less.
constexpr std::size_t kAlike = std::size_t{32} << 10;

std::size_t unsent_bytes(const Socket& socket) {
  int bytes = 0;
  return ::ioctl(socket.fd(), SIOCOUTQNSD, &bytes) == 0 && bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}
}  // namespace

std::size_t RingLink::write_some(const char* data, std::size_t size, bool /*more*/) {
  std::size_t done = 0;
  std::uint64_t written = out_->written.load(std::memory_order_relaxed);
  while (done < size) {
    const std::size_t room = capacity_ - static_cast<std::size_t>(written - out_->read.load(std::memory_order_acquire));
    const std::size_t at = written % capacity_;
    const std::size_t now = std::min({size - done, room, capacity_ - at, kPiece});
    if (now == 0) break;
    stager_.copy(out_data_ + at, data + done, now);
    written += now;
    done += now;
    out_->written.store(written, std::memory_order_release);
  }
  return done;
}

std::size_t RingLink::read_some(char* data, std::size_t size) {
  std::size_t done = 0;
  std::uint64_t read = in_->read.load(std::memory_order_relaxed);
  while (done < size) {
    const auto there = static_cast<std::size_t>(in_->written.load(std::memory_order_acquire) - read);
    const std::size_t at = read % capacity_;
    const std::size_t now = std::min({size - done, there, capacity_ - at, kPiece});
    if (now == 0) break;
    std::memcpy(data + done, in_data_ + at, now);
    read += now;
    done += now;
    in_->read.store(read, std::memory_order_release);
  }
  return done;
}

SocketLink::SocketLink(std::span<Socket> sockets) : sockets_(sockets), arrivals_(sockets.size()) {
  if (!several()) return;
  for (const Socket& socket : sockets) limit_unsent(socket.fd(), static_cast<int>(kMostWaiting));
}

// Of the turn, its mark first; 0 when the connection takes nothing now.
std::size_t SocketLink::send_part(const char* data, std::size_t size, bool more) {
  const Socket& socket = sockets_[out_.socket];
  auto* mark = reinterpret_cast<char*>(&out_.mark) + sizeof(Mark) - unmarked_;
  iovec parts[2] = {{mark, unmarked_}, {const_cast<char*>(data), size}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t sent = ::sendmsg(socket.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));
  if (sent < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
    broken_sending(out_.socket, errno);
  }
  const std::size_t of_mark = std::min(static_cast<std::size_t>(sent), unmarked_);
  unmarked_ -= of_mark;
  const std::size_t done = static_cast<std::size_t>(sent) - of_mark;
  if (several()) out_.left -= done;
  return done;
}

// One that is left out is not sent to, by which its end would be noticed. No bytes at all do that, too.
void SocketLink::check_alive(std::size_t socket) const {
  if (::send(sockets_[socket].fd(), nullptr, 0, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN &&
      errno != EWOULDBLOCK && errno != EINTR)
    broken_sending(socket, errno);
}

void SocketLink::broken_sending(std::size_t socket, int error) const {
  throw DistNetworkError(str("sending to ", sockets_[socket].peer_text(), ": ", error_text(error)), ATHANOR_WHERE);
}

// The connection that has the least waiting gets the turn, if it takes any of it; of those that are alike, the next
// one. One without room for all of a turn would hold up the turns after it and is left out. poll() says POLLOUT of it
// when less than half of TCP_NOTSENT_LOWAT is unsent, which is when it has room again.
std::size_t SocketLink::begin_writing(const char* data, std::size_t size) {
  const Turn before = out_;
  waiting_.clear();
  for (std::size_t i = 1; i <= sockets_.size(); ++i) {
    const std::size_t socket = (before.socket + i) % sockets_.size(), unsent = unsent_bytes(sockets_[socket]);
    if (unsent + kTurn <= kMostWaiting)
      waiting_.push_back({unsent / kAlike, i, socket});
    else
      check_alive(socket);
  }
  std::sort(waiting_.begin(), waiting_.end());
  for (const auto& [unsent, order, socket] : waiting_) {
    out_ = {socket, kTurn, before.mark.next()};
    unmarked_ = sizeof(Mark);
    const std::size_t done = send_part(data, size, false);
    if (unmarked_ < sizeof(Mark)) return done;
  }
  out_ = before;
  unmarked_ = 0;
  return 0;
}

// Of several, another connection may have what follows.
std::size_t SocketLink::write_some(const char* data, std::size_t size, bool more) {
  std::size_t done = 0;
  while (done < size) {
    const bool begins = several() && out_.left == 0;
    const std::size_t wanted = several() ? std::min(size - done, begins ? kTurn : out_.left) : size - done;
    const std::size_t now =
        begins ? begin_writing(data + done, wanted) : send_part(data + done, wanted, more && !several());
    done += now;
    if (now < wanted) break;
  }
  return done;
}

void SocketLink::read_mark(std::size_t socket) {
  Arrival& next = arrivals_[socket];
  if (next.ended || next.read == sizeof(Mark)) return;
  const ssize_t got = ::recv(sockets_[socket].fd(), reinterpret_cast<char*>(&next.mark) + next.read,
                             sizeof(Mark) - next.read, MSG_DONTWAIT);
  if (got > 0) next.read += static_cast<std::size_t>(got);
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) return;
  next.ended = true;
  next.error = got == 0 ? 0 : errno;
}

bool SocketLink::begin_reading() {
  for (std::size_t i = 1; i <= sockets_.size(); ++i) {
    const std::size_t socket = (in_.socket + i) % sockets_.size();
    read_mark(socket);
    if (arrivals_[socket].read < sizeof(Mark) || arrivals_[socket].mark.number != in_.mark.next().number) continue;
    arrivals_[socket].read = 0;
    in_ = {socket, kTurn, in_.mark.next()};
    return true;
  }
  return false;
}

// A connection that the other side closed may be done before another one is.
void SocketLink::check_ended() const {
  bool more = false;
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    if (arrivals_[i].error != 0) broken(i, arrivals_[i].error);
    more = more || !arrivals_[i].ended;
  }
  if (!more) broken(0, 0);
}

void SocketLink::broken(std::size_t socket, int error) const {
  throw DistNetworkError(str("receiving from ", sockets_[socket].peer_text(), ": ",
                             error == 0 ? "the other side closed the connection" : error_text(error)),
                         ATHANOR_WHERE);
}

std::size_t SocketLink::read_some(char* data, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    if (several() && in_.left == 0 && !begin_reading()) {
      if (done == 0) check_ended();
      return done;
    }
    const std::size_t now = several() ? std::min(size - done, in_.left) : size - done;
    const ssize_t got = ::recv(sockets_[in_.socket].fd(), data + done, now, MSG_DONTWAIT);
    if (got <= 0) {
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return done;
      if (done > 0) return done;  // what came before the end counts; the next call tells
      broken(in_.socket, got == 0 ? 0 : errno);
    }
    done += static_cast<std::size_t>(got);
    if (several()) in_.left -= static_cast<std::size_t>(got);
    if (static_cast<std::size_t>(got) < now) break;
  }
  return done;
}

// Between turns any connection may be the next.
void SocketLink::add_polls(std::vector<pollfd>& polls, bool to_write, bool to_read) const {
  for (std::size_t i = 0; i < sockets_.size(); ++i) {
    const Arrival& next = arrivals_[i];
    const bool may_write = !several() || out_.left == 0 || out_.socket == i;
    const bool may_read = !several() || (in_.left == 0 ? !next.ended && next.read < sizeof(Mark) : in_.socket == i);
    const int events = (to_write && may_write ? POLLOUT : 0) | (to_read && may_read ? POLLIN : 0);
    if (events != 0) polls.push_back({sockets_[i].fd(), static_cast<short>(events), 0});
  }
}

}  // namespace athanor::distributed
