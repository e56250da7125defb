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
}  // namespace

std::size_t RingLink::write_some(const char* data, std::size_t size) {
  std::size_t done = 0;
  std::uint64_t written = out_->written.load(std::memory_order_relaxed);
  while (done < size) {
    const std::size_t room = capacity_ - static_cast<std::size_t>(written - out_->read.load(std::memory_order_acquire));
    const std::size_t at = written % capacity_;
    const std::size_t now = std::min({size - done, room, capacity_ - at, kPiece});
    if (now == 0) break;
    std::memcpy(out_data_ + at, data + done, now);
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

std::size_t SocketLink::write_some(const char* data, std::size_t size) {
  const ssize_t sent = ::send(socket_->fd(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  throw DistNetworkError(str("sending to ", socket_->peer_text(), ": ", error_text(errno)), ATHANOR_WHERE);
}

std::size_t SocketLink::read_some(char* data, std::size_t size) {
  const ssize_t got = ::recv(socket_->fd(), data, size, MSG_DONTWAIT);
  if (got > 0 || (got == 0 && size == 0)) return static_cast<std::size_t>(got);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return 0;
  throw DistNetworkError(str("receiving from ", socket_->peer_text(), ": ",
                             got == 0 ? "the other side closed the connection" : error_text(errno)),
                         ATHANOR_WHERE);
}

}  // namespace athanor::distributed
