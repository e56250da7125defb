#pragma once
/// Memory that several processes map: an anonymous file in memory, handed from one to the other as a descriptor. It
/// needs no name anywhere (a small /dev/shm does not matter) and is gone when the last of them is. Its size is sealed,
/// so that no process can make another's access fail by cutting it short.

#include <cstddef>

#include "athanor/distributed/net/socket.h"

namespace athanor::distributed {

class Segment {
 public:
  Segment() = default;
  /// New memory, zero. Throws DistError if the system has none.
  static Segment create(std::size_t bytes);
  /// What another process created. Throws DistError unless it has at least `bytes` and is sealed.
  static Segment map(Descriptor fd, std::size_t bytes);
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;

  char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  Segment(Descriptor fd, char* data, std::size_t bytes) : fd_(std::move(fd)), data_(data), bytes_(bytes) {}

  Descriptor fd_;
  char* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace athanor::distributed
