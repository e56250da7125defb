#pragma once
/// Hidden layouts: a storage may keep its values in another physical order than the logical, row-major one, because the
/// kernels that make and read them are faster so. Only ops that accept hidden layouts meet them (athanor/ops/hidden.h);
/// for everybody else Storage::data() restores the plain bytes.

#include <cstddef>
#include <cstdint>

#include "athanor/base/intrusive_ptr.h"
#include "athanor/tensor/device.h"

namespace athanor {

/// In place of a number of channels: elements are products, and only their factors are stored.
inline constexpr std::int16_t kOuterProduct = -1;

/// Activations (samples, channels, plane) stored as (samples, channels / block, plane, block); `block` divides
/// `channels`, so both orders take the same bytes. Or, where `block` is kOuterProduct, a float32 matrix whose elements
/// are the products of a column of `samples` values and a row of `channels` values, stored one after the other.
struct ChannelBlocks {
  std::int64_t samples = 0, channels = 0, plane = 0;
  std::int32_t block = 0;
  std::uint32_t item_size = 0;  ///< bytes of an element
  std::size_t nbytes() const { return static_cast<std::size_t>(samples * channels * plane) * item_size; }
  std::size_t stored_bytes() const {
    return block == kOuterProduct ? static_cast<std::size_t>(samples + channels) * item_size : nbytes();
  }
};

/// Bytes in a hidden layout. Kept by the storage until it is restored, and by ops that are reading them meanwhile.
class HiddenLayout : public RefCounted {
 public:
  /// Writes what `stored` means, in row-major order, to `plain`.
  using Restore = void (*)(void* plain, const void* stored, const ChannelBlocks& blocks);
  /// Uninitialized bytes on `device`. Throws OutOfMemoryError.
  HiddenLayout(Device device, const ChannelBlocks& blocks, Restore restore);
  ~HiddenLayout();
  HiddenLayout(const HiddenLayout&) = delete;
  HiddenLayout& operator=(const HiddenLayout&) = delete;

  const ChannelBlocks& blocks() const { return blocks_; }
  void* data() const { return data_; }
  void restore(void* plain) const { restore_(plain, data_, blocks_); }
  /// The same at another time: nothing of the object is needed once restore has been copied.
  Restore restore_function() const { return restore_; }
  bool being_restored = false;  ///< the storage's, under its lock

 private:
  Device device_;
  ChannelBlocks blocks_;
  Restore restore_;
  void* data_;
};

namespace detail {
/// The locks of storages, held while the process forks.
void lock_storages();
void unlock_storages();
}  // namespace detail

}  // namespace athanor
