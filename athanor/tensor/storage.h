#pragma once
/// Storage: the bytes behind tensors, shared by all views of them, with the version that counts their in-place changes.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "athanor/base/intrusive_ptr.h"
#include "athanor/tensor/device.h"
#include "athanor/tensor/dtype.h"
#include "athanor/tensor/hidden_layout.h"
#include "athanor/tensor/stream.h"

namespace athanor {

class KeptForms;

class Storage : public RefCounted {
 public:
  /// New uninitialized bytes on `device`. One allocation: the header sits in front of the data. Throws
  /// OutOfMemoryError.
  static IntrusivePtr<Storage> allocate(Device device, std::size_t bytes);
  /// Bytes owned elsewhere; `deleter(data)` runs when the last tensor is gone. Born host-exposed.
  static IntrusivePtr<Storage> borrow(void* data, std::size_t bytes, std::function<void(void*)> deleter);
  /// A storage whose values exist only in `hidden` for now.
  static IntrusivePtr<Storage> with_hidden(Device device, IntrusivePtr<HiddenLayout> hidden);
  static void destroy(Storage* s);

  /// The plain bytes. A hidden layout is restored first: on the host at once, on a queued device in the queue's order.
  /// Version and identity stay. Any number of threads may ask at once.
  void* data() {
    if (__builtin_expect(is_hidden(), 0)) restore_plain();
    return data_;
  }
  std::size_t nbytes() const { return nbytes_; }
  Device device() const { return device_; }
  std::uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

  /// Another number after every write through the library, also one by .data(), which version() leaves out.
  std::uint64_t changes() const { return std::uint64_t{version()} << 32 | uncounted_.load(std::memory_order_relaxed); }
  void bump_uncounted() { uncounted_.fetch_add(1, std::memory_order_relaxed); }
  /// Somebody got the address and may write there unseen.
  void note_address() {
    if (!address_known_.load(std::memory_order_relaxed)) address_known_.store(true, std::memory_order_relaxed);
  }
  /// Whether changes() sees every write.
  bool is_followed() const { return !host_exposed() && !address_known_.load(std::memory_order_relaxed); }
  /// The forms kept of these bytes. Any number of threads may ask at once.
  KeptForms& kept_forms();

  bool is_hidden() const { return is_hidden_.load(std::memory_order_acquire); }
  /// A share of the hidden layout, which keeps its bytes while another thread restores the storage; null if plain.
  IntrusivePtr<HiddenLayout> hidden() const;

  /// The host holds a raw pointer to the bytes: ops that touch them finish before returning.
  bool host_exposed() const { return host_exposed_.load(std::memory_order_acquire); }
  /// Waits for pending work, then marks the storage as exposed. Any number of threads may ask at once.
  void expose_to_host();
  /// Queued devices only: the mark shared with tasks. Any number of threads may ask at once.
  const IntrusivePtr<Validity>& validity();
  /// Waits for the last write on this storage's queue, not for work enqueued after it; a no-op on the host. Throws the
  /// device's pending failure, or Error if the call that should have made the values failed.
  void wait_for_values();
  /// Notes that `point`'s queue, not this storage's own, uses the bytes until then. Thread-safe.
  void add_foreign_use(QueuePoint point);
  /// Later work on this storage's queue waits for these. Thread-safe.
  std::vector<QueuePoint> pending_foreign_uses();

 private:
  struct Extra {
    std::function<void(void*)> deleter;
    IntrusivePtr<HiddenLayout> hidden;
    IntrusivePtr<Validity> validity;  // from the start, on a queued device
    std::vector<QueuePoint> foreign;
  };
  Storage() = default;
  ~Storage();
  Extra& extra();
  Extra* extra_or_null() const { return extra_.load(std::memory_order_acquire); }
  void check_valid() const;
  void restore_plain();
  template <class Publish>
  void restore_on_host(const Publish& publish);

  std::atomic<std::uint32_t> version_{0}, uncounted_{0};
  void* data_ = nullptr;
  std::size_t nbytes_ = 0;
  std::size_t block_bytes_ = 0;  // 0: not ours
  Device device_;
  std::atomic<bool> host_exposed_{false};
  std::atomic<bool> is_hidden_{false};  // false once data_ is set
  bool data_apart_ = false;             // the data is a block of its own
  std::atomic<bool> address_known_{false};
  std::atomic<Extra*> extra_{nullptr};  // once made, stays
  std::atomic<KeptForms*> kept_{nullptr};
};

}  // namespace athanor
