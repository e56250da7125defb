#pragma once
/// Link: a two-way stream of bytes between two ranks, through a pair of rings in shared memory or a TCP connection.
/// Nothing in it waits: who uses it asks again, and sleeps when nothing moves.

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <variant>

#include "athanor/distributed/net/socket.h"

namespace athanor::distributed {

/// One direction of a ring. Zero is the empty ring.
struct alignas(128) RingState {
  std::atomic<std::uint64_t> written;
  alignas(128) std::atomic<std::uint64_t> read;
};

class RingLink {
 public:
  RingLink(RingState* out, char* out_data, RingState* in, char* in_data, std::size_t capacity)
      : out_(out), in_(in), out_data_(out_data), in_data_(in_data), capacity_(capacity) {}

  /// Bytes taken over; 0 when the ring is full.
  std::size_t write_some(const char* data, std::size_t size);
  std::size_t read_some(char* data, std::size_t size);
  bool can_write() const {
    return out_->written.load(std::memory_order_relaxed) - out_->read.load(std::memory_order_acquire) < capacity_;
  }
  bool can_read() const {
    return in_->written.load(std::memory_order_acquire) != in_->read.load(std::memory_order_relaxed);
  }

 private:
  RingState *out_, *in_;
  char *out_data_, *in_data_;
  std::size_t capacity_;
};

class SocketLink {
 public:
  /// Throws DistNetworkError when the connection breaks.
  explicit SocketLink(Socket& socket) : socket_(&socket) {}
  std::size_t write_some(const char* data, std::size_t size);
  std::size_t read_some(char* data, std::size_t size);
  int fd() const { return socket_->fd(); }

 private:
  Socket* socket_;
};

/// Either of them.
class Link {
 public:
  explicit Link(RingLink ring, std::atomic<std::uint32_t>* peer_sleeps) : link_(ring), peer_sleeps_(peer_sleeps) {}
  explicit Link(SocketLink socket) : link_(socket) {}

  std::size_t write_some(const char* data, std::size_t size) {
    return std::visit([&](auto& link) { return link.write_some(data, size); }, link_);
  }
  std::size_t read_some(char* data, std::size_t size) {
    return std::visit([&](auto& link) { return link.read_some(data, size); }, link_);
  }
  /// The socket, or -1.
  int fd() const {
    const auto* socket = std::get_if<SocketLink>(&link_);
    return socket ? socket->fd() : -1;
  }
  /// Of a ring: whether something can be done. A socket is asked by poll.
  bool ready(bool to_write, bool to_read) const {
    const auto* ring = std::get_if<RingLink>(&link_);
    return ring && ((to_write && ring->can_write()) || (to_read && ring->can_read()));
  }
  /// Of a ring: whether the other side sleeps and must be woken after something moved. Orders what moved before it.
  bool peer_sleeps() const {
    if (peer_sleeps_ == nullptr) return false;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return peer_sleeps_->load(std::memory_order_relaxed) != 0;
  }

 private:
  std::variant<RingLink, SocketLink> link_;
  std::atomic<std::uint32_t>* peer_sleeps_ = nullptr;
};

}  // namespace athanor::distributed
