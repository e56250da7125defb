#include "athanor/tensor/storage.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "athanor/base/parallel.h"
#include "athanor/tensor/allocator.h"
#include "athanor/tensor/fence.h"
#include "athanor/tensor/kept_forms.h"

namespace athanor {
namespace {

constexpr std::size_t kHeader = 64;
// Held for moments, so that one lock serves all storages.
std::mutex hidden_mutex;   // guards who holds a hidden layout, and whether somebody is restoring it
std::mutex foreign_mutex;  // guards the lists of uses by other queues

/// Restores in the queue's order. Reads the block by address: whatever reuses it runs later in the same queue.
struct RestoreTask final : Task {
  RestoreTask(void* plain, const HiddenLayout& h)
      : Task("restore_layout"), plain(plain), stored(h.data()), blocks(h.blocks()), restore(h.restore_function()) {}
  void run() override { restore(plain, stored, blocks); }
  void* plain;
  const void* stored;
  ChannelBlocks blocks;
  HiddenLayout::Restore restore;
};

}  // namespace

static_assert(sizeof(Storage) <= kHeader);

void detail::lock_storages() {
  hidden_mutex.lock();
  foreign_mutex.lock();
}
void detail::unlock_storages() {
  foreign_mutex.unlock();
  hidden_mutex.unlock();
}

HiddenLayout::HiddenLayout(Device device, const ChannelBlocks& blocks, Restore restore)
    : device_(device),
      blocks_(blocks),
      restore_(restore),
      data_(device.is_host() ? host_allocate(blocks.stored_bytes())
                             : detail::queue_of(device)->allocate(blocks.stored_bytes())) {}

HiddenLayout::~HiddenLayout() {
  if (device_.is_host())
    host_deallocate(data_, blocks_.stored_bytes());
  else
    detail::queue_of(device_)->deallocate(data_, blocks_.stored_bytes(), {});
}

IntrusivePtr<Storage> Storage::allocate(Device device, std::size_t bytes) {
  if (__builtin_expect(device.is_host(), 1)) {
    const std::size_t block = kHeader + bytes;
    ATHANOR_CHECK_TYPE(OutOfMemoryError, block >= bytes, "cannot allocate ", bytes, " bytes on cpu");
    char* raw = static_cast<char*>(host_allocate(block));
    auto* s = new (raw) Storage;
    s->data_ = raw + kHeader;
    s->nbytes_ = bytes;
    s->block_bytes_ = block;
    return IntrusivePtr<Storage>::first(s);
  }
  // The header outlives the block when the queue hands it out again, so it is apart.
  Queue* queue = detail::queue_of(device);
  auto* s = new (host_allocate(kHeader)) Storage;
  auto result = IntrusivePtr<Storage>::first(s);
  s->device_ = device;
  s->data_apart_ = true;
  s->data_ = queue->allocate(bytes);
  s->nbytes_ = bytes;
  s->block_bytes_ = bytes;
  return result;
}

IntrusivePtr<Storage> Storage::borrow(void* data, std::size_t bytes, std::function<void(void*)> deleter) {
  auto* s = new (host_allocate(kHeader)) Storage;
  auto result = IntrusivePtr<Storage>::first(s);
  s->data_ = data;
  s->nbytes_ = bytes;
  s->data_apart_ = true;
  s->host_exposed_.store(true, std::memory_order_relaxed);
  if (deleter) s->extra().deleter = std::move(deleter);
  return result;
}

IntrusivePtr<Storage> Storage::with_hidden(Device device, IntrusivePtr<HiddenLayout> hidden) {
  auto* s = new (host_allocate(kHeader)) Storage;
  auto result = IntrusivePtr<Storage>::first(s);
  s->device_ = device;
  s->nbytes_ = hidden->blocks().nbytes();
  s->data_apart_ = true;
  s->extra().hidden = std::move(hidden);
  s->is_hidden_.store(true, std::memory_order_release);
  return result;
}

IntrusivePtr<HiddenLayout> Storage::hidden() const {
  if (!is_hidden()) return nullptr;
  const std::lock_guard lock(hidden_mutex);
  return extra_or_null()->hidden;
}

void Storage::destroy(Storage* s) {
  Extra* extra = s->extra_or_null();
  if (extra && extra->deleter) extra->deleter(s->data_);
  if (s->data_apart_) {
    if (s->block_bytes_) {
      if (s->device_.is_host())
        host_deallocate(s->data_, s->block_bytes_);
      else
        detail::queue_of(s->device_)
            ->deallocate(s->data_, s->block_bytes_, extra ? std::move(extra->foreign) : std::vector<QueuePoint>());
    }
    s->~Storage();
    host_deallocate(s, kHeader);
    return;
  }
  const std::size_t block = s->block_bytes_;
  s->~Storage();
  host_deallocate(s, block);
}

Storage::~Storage() {
  IntrusivePtr<KeptForms>::adopt(kept_.load(std::memory_order_relaxed));
  delete extra_.load(std::memory_order_relaxed);
}

KeptForms& Storage::kept_forms() {
  KeptForms* present = kept_.load(std::memory_order_acquire);
  if (present) return *present;
  IntrusivePtr<KeptForms> made = make_intrusive<KeptForms>();
  if (!kept_.compare_exchange_strong(present, made.get(), std::memory_order_acq_rel)) return *present;
  return *made.release();
}

Storage::Extra& Storage::extra() {
  Extra* present = extra_or_null();
  if (present) return *present;
  auto made = std::make_unique<Extra>();
  if (!device_.is_host()) made->validity = make_intrusive<Validity>();
  if (!extra_.compare_exchange_strong(present, made.get(), std::memory_order_acq_rel)) return *present;
  return *made.release();
}

template <class Publish>
void Storage::restore_on_host(const Publish& publish) {
  std::unique_lock lock(hidden_mutex);
  if (!is_hidden()) return;
  const IntrusivePtr<HiddenLayout> stored = extra().hidden;
  // One restores, others wait, so that there are not as many copies as readers. No lock while the kernel runs, which
  // may wait for threads, and no waiting by those that it may wait for. A child process may have been forked without
  // the restorer, and could not use a condition variable that somebody waited for.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (stored->being_restored && !in_parallel_region() && std::chrono::steady_clock::now() < deadline) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    lock.lock();
  }
  if (!is_hidden()) return;
  stored->being_restored = true;
  lock.unlock();
  const auto free = [size = nbytes_](void* bytes) { host_deallocate(bytes, size); };
  const auto end = [&](std::unique_ptr<void, decltype(free)> plain) {
    lock.lock();
    if (plain && is_hidden()) publish(plain.release());
    stored->being_restored = false;
    lock.unlock();
  };
  try {
    std::unique_ptr<void, decltype(free)> plain(host_allocate(nbytes_), free);
    stored->restore(plain.get());
    end(std::move(plain));
  } catch (...) {
    end({nullptr, free});
    throw;
  }
}

void Storage::restore_plain() {
  const auto publish = [&](void* plain) {
    data_ = plain;
    block_bytes_ = nbytes_;
    is_hidden_.store(false, std::memory_order_release);
    extra().hidden.reset();
  };
  if (device_.is_host()) return restore_on_host(publish);
  const std::lock_guard lock(hidden_mutex);
  if (!is_hidden()) return;
  const IntrusivePtr<HiddenLayout> stored = extra().hidden;
  Queue* queue = detail::queue_of(device_);
  void* plain = queue->allocate(nbytes_);
  auto task = std::make_unique<RestoreTask>(plain, *stored);
  task->reads.push_back(validity());
  task->writes.push_back({validity(), true});
  queue->enqueue(std::move(task));
  publish(plain);
}

void Storage::expose_to_host() {
  if (host_exposed()) return;
  data();  // what restores it joins the queue before the host waits
  if (!device_.is_host()) {
    synchronize(device_);
    for (const QueuePoint& e : pending_foreign_uses()) e.synchronize();
    check_valid();
  }
  host_exposed_.store(true, std::memory_order_release);
}

const IntrusivePtr<Validity>& Storage::validity() { return extra().validity; }

void Storage::wait_for_values() {
  if (device_.is_host()) return;
  data();  // what restores it is a write
  const Extra* extra = extra_or_null();
  if (!extra) return;
  detail::queue_of(device_)->wait(extra->validity->last_write.load(std::memory_order_relaxed));
  for (const QueuePoint& p : detail::foreign_writes(*this)) detail::wait_quietly(p);
  check_valid();
}

void Storage::check_valid() const {
  const Extra* extra = extra_or_null();
  if (!extra || !extra->validity->invalid.load(std::memory_order_relaxed)) return;
  const auto why = extra->validity->failure();
  ATHANOR_THROW(Error, "the values of a tensor on ", device_,
                " were read, but the call that should have made them failed; compute or fill it again. What failed: ",
                why ? *why : "");
}

void Storage::add_foreign_use(QueuePoint point) {
  auto& list = extra().foreign;
  const std::lock_guard lock(foreign_mutex);
  std::erase_if(list, [](const QueuePoint& e) { return e.query(); });
  list.push_back(point);
}

std::vector<QueuePoint> Storage::pending_foreign_uses() {
  Extra* extra = extra_or_null();
  if (!extra) return {};
  std::vector<QueuePoint> all = detail::foreign_writes(*this);
  const std::lock_guard lock(foreign_mutex);
  std::erase_if(extra->foreign, [](const QueuePoint& e) { return e.query(); });
  all.insert(all.end(), extra->foreign.begin(), extra->foreign.end());
  return all;
}

}  // namespace athanor
