#pragma once
/// Memory that a kernel needs for the duration of its call, from the caching host allocator.

#include <cstdint>
#include <type_traits>
#include <utility>

#include "athanor/tensor/allocator.h"

namespace athanor::cpu {

/// n elements that are not initialized, 64-byte aligned. Movable.
template <class T>
class HostBuffer {
 public:
  static_assert(std::is_trivially_copyable_v<T>);
  HostBuffer() = default;
  explicit HostBuffer(std::int64_t n)
      : bytes_(static_cast<std::size_t>(n) * sizeof(T)), data_(bytes_ ? host_allocate(bytes_) : nullptr) {}
  HostBuffer(HostBuffer&& o) noexcept : bytes_(std::exchange(o.bytes_, 0)), data_(std::exchange(o.data_, nullptr)) {}
  HostBuffer& operator=(HostBuffer&& o) noexcept {
    std::swap(bytes_, o.bytes_);
    std::swap(data_, o.data_);
    return *this;
  }
  ~HostBuffer() {
    if (data_) host_deallocate(data_, bytes_);
  }
  T* data() const { return static_cast<T*>(data_); }
  T& operator[](std::int64_t i) const { return data()[i]; }

 private:
  std::size_t bytes_ = 0;
  void* data_ = nullptr;
};

}  // namespace athanor::cpu
