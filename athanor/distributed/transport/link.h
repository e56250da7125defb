#pragma once
/// Link: a two-way stream of bytes between two ranks, through a pair of rings in shared memory or a TCP connection.
/// Nothing in it waits: who uses it asks again, and sleeps when nothing moves.

#include <poll.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "athanor/distributed/net/socket.h"
#include "athanor/distributed/transport/stager.h"

namespace athanor::distributed {

/// What frames the data on a connection, and memory for what comes over one, are of whole lines. The kernel copies by
/// rep movsb, which runs at a fifth of its rate on Zen 3 where the destination lies less than 32 bytes past the source,
/// modulo 4096; data that are aligned like this are never there.
struct alignas(64) CacheLine {
  char bytes[64];
};

/// Memory of whole lines, not initialized.
class CacheLines {
 public:
  CacheLines() = default;
  explicit CacheLines(std::size_t bytes)
      : size_((bytes + sizeof(CacheLine) - 1) / sizeof(CacheLine) * sizeof(CacheLine)),
        lines_(std::make_unique_for_overwrite<CacheLine[]>(size_ / sizeof(CacheLine))) {}
  char* data() { return reinterpret_cast<char*>(lines_.get()); }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_ = 0;
  std::unique_ptr<CacheLine[]> lines_;
};

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
  std::size_t write_some(const char* data, std::size_t size, bool more = false);
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
  Stager stager_;
};

/// One TCP connection, or several between the same two ranks that take turns: what one of them may have on its way at
/// a time then does not bound the rate. The sender gives each turn to a connection that has little waiting, so that
/// each carries what it can, and marks it with the turn's number; the bytes keep their order.
class SocketLink {
 public:
  explicit SocketLink(std::span<Socket> sockets);
  /// Throws DistNetworkError when the connection breaks. `more` follows at once: one packet may carry both.
  std::size_t write_some(const char* data, std::size_t size, bool more = false);
  std::size_t read_some(char* data, std::size_t size);
  /// What has to become ready before the next bytes can go or come.
  void add_polls(std::vector<pollfd>& polls, bool to_write, bool to_read) const;

 private:
  struct alignas(CacheLine) Mark {
    std::uint32_t number = 0;
    Mark next() const { return {number + 1}; }
  };
  // The turn that is going on.
  struct Turn {
    std::size_t socket = 0, left = 0;
    Mark mark;
  };
  // What a connection brings next.
  struct Arrival {
    Mark mark;
    std::size_t read = 0;  // bytes of the mark
    bool ended = false;
    int error = 0;
  };

  bool several() const { return sockets_.size() > 1; }
  std::size_t send_part(const char* data, std::size_t size, bool more);
  std::size_t begin_writing(const char* data, std::size_t size);
  bool begin_reading();
  void read_mark(std::size_t socket);
  void check_alive(std::size_t socket) const;
  void check_ended() const;
  [[noreturn]] void broken(std::size_t socket, int error) const;
  [[noreturn]] void broken_sending(std::size_t socket, int error) const;

  std::span<Socket> sockets_;
  std::vector<Arrival> arrivals_;
  std::vector<std::array<std::size_t, 3>> waiting_;  // how much, in which order, where
  Turn out_, in_;
  std::size_t unmarked_ = 0;  // bytes of the mark that are still to go
};

/// Either of them.
class Link {
 public:
  explicit Link(RingLink ring, std::atomic<std::uint32_t>* peer_sleeps) : link_(ring), peer_sleeps_(peer_sleeps) {}
  explicit Link(SocketLink socket) : link_(std::move(socket)) {}

  std::size_t write_some(const char* data, std::size_t size, bool more = false) {
    return std::visit([&](auto& link) { return link.write_some(data, size, more); }, link_);
  }
  std::size_t read_some(char* data, std::size_t size) {
    return std::visit([&](auto& link) { return link.read_some(data, size); }, link_);
  }
  /// Otherwise a ring.
  bool is_socket() const { return std::holds_alternative<SocketLink>(link_); }
  /// Of sockets: what poll() has to wait for.
  void add_polls(std::vector<pollfd>& polls, bool to_write, bool to_read) const {
    if (const auto* socket = std::get_if<SocketLink>(&link_)) socket->add_polls(polls, to_write, to_read);
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
