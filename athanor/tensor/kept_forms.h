#pragma once
/// Kept forms: what kernels derive from a tensor's values and may use again while these stay as they are, such as a
/// weight in the order in which a convolution reads it. They belong to the storage and go with it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "athanor/base/intrusive_ptr.h"

namespace athanor {

/// Bytes on the host, aligned as the allocator aligns. Written by who made it, then only read.
class KeptForm : public RefCounted {
 public:
  explicit KeptForm(std::size_t bytes);
  ~KeptForm();
  KeptForm(const KeptForm&) = delete;
  KeptForm& operator=(const KeptForm&) = delete;
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

/// The forms of one storage. Thread-safe. A form is kept from the second use of the same values on, and from the first
/// use of new values if the old ones were used more than once: a training step that uses a weight once keeps nothing.
/// All of the process together keep ATHANOR_KEPT_FORMS_MB megabytes (default 512; 0 keeps nothing).
class KeptForms : public RefCounted {
 public:
  /// Which form of which part of the storage.
  using Key = std::array<std::int64_t, 10>;
  /// The form of values number `changes` (Storage::changes), null if it is not here.
  IntrusivePtr<KeptForm> find(const Key& key, std::uint64_t changes);
  /// After a find that failed: room for the form if it should be kept, else null.
  IntrusivePtr<KeptForm> room(const Key& key, std::uint64_t changes, std::size_t bytes);
  /// Keeps what was written into the room.
  void keep(const Key& key, std::uint64_t changes, const IntrusivePtr<KeptForm>& form);

  /// Bytes kept in the process.
  static std::size_t total_bytes();
  /// Overrides the environment for the whole process.
  static void set_limit(std::size_t bytes);

 private:
  struct Entry {
    Key key;
    std::uint64_t changes = 0;
    int uses = 0;
    bool worth_keeping = false;
    IntrusivePtr<KeptForm> form;
  };
  Entry* entry(const Key& key);

  std::mutex mutex_;
  std::vector<Entry> entries_;
};

/// What a kernel gets: a storage's forms and the number of the values it is called with. Empty: nothing is kept.
struct KeptValues {
  IntrusivePtr<KeptForms> forms;
  std::uint64_t changes = 0;
};

}  // namespace athanor
