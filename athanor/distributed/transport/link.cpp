#include "athanor/distributed/transport/link.h"

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
constexpr std::uint64_t kTurn = std::uint64_t{128} << 10;
}  // namespace

std::size_t RingLink::write_some(const char* data, std::size_t size) {
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

Socket& SocketLink::turn(std::uint64_t at, std::size_t& size) const {
  if (sockets_.size() == 1) return sockets_[0];
  size = std::min<std::size_t>(size, kTurn - at % kTurn);
  return sockets_[at / kTurn % sockets_.size()];
}

std::size_t SocketLink::write_some(const char* data, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    std::size_t now = size - done;
    const Socket& socket = turn(written_, now);
    const ssize_t sent = ::send(socket.fd(), data + done, now, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return done;
      throw DistNetworkError(str("sending to ", socket.peer_text(), ": ", error_text(errno)), ATHANOR_WHERE);
    }
    written_ += static_cast<std::uint64_t>(sent);
    done += static_cast<std::size_t>(sent);
    if (static_cast<std::size_t>(sent) < now) break;
  }
  return done;
}

std::size_t SocketLink::read_some(char* data, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    std::size_t now = size - done;
    const Socket& socket = turn(read_, now);
    const ssize_t got = ::recv(socket.fd(), data + done, now, MSG_DONTWAIT);
    if (got <= 0) {
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return done;
      if (done > 0) return done;  // what came before the end counts; the next call tells
      throw DistNetworkError(str("receiving from ", socket.peer_text(), ": ",
                                 got == 0 ? "the other side closed the connection" : error_text(errno)),
                             ATHANOR_WHERE);
    }
    read_ += static_cast<std::uint64_t>(got);
    done += static_cast<std::size_t>(got);
    if (static_cast<std::size_t>(got) < now) break;
  }
  return done;
}

void SocketLink::add_polls(std::vector<pollfd>& polls, bool to_write, bool to_read) const {
  std::size_t rest = 1;
  const int out = turn(written_, rest).fd(), in = turn(read_, rest).fd();
  const auto events = [](bool write, bool read) {
    return static_cast<short>((write ? POLLOUT : 0) | (read ? POLLIN : 0));
  };
  if (out == in) {
    if (to_write || to_read) polls.push_back({out, events(to_write, to_read), 0});
    return;
  }
  if (to_write) polls.push_back({out, POLLOUT, 0});
  if (to_read) polls.push_back({in, POLLIN, 0});
}

}  // namespace athanor::distributed
