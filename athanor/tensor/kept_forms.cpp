#include "athanor/tensor/kept_forms.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "athanor/base/env.h"
#include "athanor/base/error.h"
#include "athanor/tensor/allocator.h"

namespace athanor {
namespace {

constexpr std::size_t kMostEntries = 8;  // of a storage; sizes of micro-batches that differ may want different orders

std::atomic<std::size_t> total{0};

std::atomic<std::size_t>& limit() {
  static std::atomic<std::size_t> bytes{
      static_cast<std::size_t>(env::integer("ATHANOR_KEPT_FORMS_MB", 0, 1 << 20).value_or(512)) << 20};
  return bytes;
}

}  // namespace

KeptForm::KeptForm(std::size_t bytes) : bytes_(bytes), data_(host_allocator().allocate(bytes)) {
  total.fetch_add(bytes, std::memory_order_relaxed);
}
KeptForm::~KeptForm() {
  host_allocator().deallocate(data_, bytes_);
  total.fetch_sub(bytes_, std::memory_order_relaxed);
}

KeptForms::Entry* KeptForms::entry(const Key& key) {
  const auto it = std::ranges::find(entries_, key, &Entry::key);
  return it == entries_.end() ? nullptr : &*it;
}

IntrusivePtr<KeptForm> KeptForms::find(const Key& key, std::uint64_t changes) {
  IntrusivePtr<KeptForm> old;  // given back without the lock
  const std::lock_guard lock(mutex_);
  Entry* e = entry(key);
  if (!e) {
    if (entries_.size() == kMostEntries) {
      old = std::move(entries_.front().form);
      entries_.erase(entries_.begin());
    }
    entries_.push_back({key, changes, 1, false, {}});
    return {};
  }
  if (e->changes == changes) {
    e->worth_keeping = true;
    e->uses = 2;
    return e->form;
  }
  old = std::move(e->form);
  *e = {key, changes, 1, e->uses > 1, {}};
  return {};
}

IntrusivePtr<KeptForm> KeptForms::room(const Key& key, std::uint64_t changes, std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const Entry* e = entry(key);
    if (!e || e->changes != changes || !e->worth_keeping) return {};
  }
  // Threads that ask at once may go beyond the limit by a form each.
  if (total_bytes() + bytes > limit().load(std::memory_order_relaxed)) return {};
  try {
    return make_intrusive<KeptForm>(bytes);
  } catch (const OutOfMemoryError&) {
    return {};
  }
}

void KeptForms::keep(const Key& key, std::uint64_t changes, const IntrusivePtr<KeptForm>& form) {
  IntrusivePtr<KeptForm> old;
  const std::lock_guard lock(mutex_);
  Entry* e = entry(key);
  if (!e || e->changes != changes) return;
  old = std::exchange(e->form, form);
}

std::size_t KeptForms::total_bytes() { return total.load(std::memory_order_relaxed); }
void KeptForms::set_limit(std::size_t bytes) { limit().store(bytes, std::memory_order_relaxed); }

}  // namespace athanor
