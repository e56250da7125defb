#include "athanor/tensor/storage.h"

#include <mutex>
#include <new>
#include <utility>

#include "athanor/tensor/allocator.h"

namespace athanor {
namespace {

constexpr std::size_t kHeader = 64;
std::mutex restore_mutex;  // restoring is rare; one lock serves all storages

}  // namespace

static_assert(sizeof(Storage) <= kHeader);

IntrusivePtr<Storage> Storage::allocate(Device device, std::size_t bytes) {
  if (__builtin_expect(device.is_host(), 1)) {
    const std::size_t block = kHeader + bytes;
    ATHANOR_CHECK_TYPE(OutOfMemoryError, block >= bytes, "cannot allocate ", bytes, " bytes on cpu");
    char* raw = static_cast<char*>(host_allocate(block));
    auto* s = new (raw) Storage;
    s->data_ = raw + kHeader;
    s->nbytes_ = bytes;
    s->block_bytes_ = block;
    return IntrusivePtr<Storage>(s);
  }
  // The header outlives the block when the queue hands it out again, so it is apart.
  Queue* queue = detail::queue_of(device);
  auto* s = new (host_allocate(kHeader)) Storage;
  IntrusivePtr<Storage> result(s);
  s->device_ = device;
  s->data_apart_ = true;
  s->data_ = queue->allocate(bytes);
  s->nbytes_ = bytes;
  s->block_bytes_ = bytes;
  return result;
}

IntrusivePtr<Storage> Storage::borrow(void* data, std::size_t bytes, std::function<void(void*)> deleter) {
  auto* s = new (host_allocate(kHeader)) Storage;
  IntrusivePtr<Storage> result(s);
  s->data_ = data;
  s->nbytes_ = bytes;
  s->data_apart_ = true;
  s->host_exposed_ = true;
  if (deleter) s->extra().deleter = std::move(deleter);
  return result;
}

IntrusivePtr<Storage> Storage::with_hidden(IntrusivePtr<HiddenLayout> hidden, std::size_t bytes) {
  auto* s = new (host_allocate(kHeader)) Storage;
  IntrusivePtr<Storage> result(s);
  s->nbytes_ = bytes;
  s->data_apart_ = true;
  s->extra().hidden = std::move(hidden);
  s->has_hidden_ = true;
  return result;
}

void Storage::destroy(Storage* s) {
  if (s->extra_ && s->extra_->deleter) s->extra_->deleter(s->data_);
  if (s->data_apart_) {
    if (s->block_bytes_) {
      if (s->device_.is_host())
        host_deallocate(s->data_, s->block_bytes_);
      else
        detail::queue_of(s->device_)
            ->deallocate(s->data_, s->block_bytes_, s->extra_ ? std::move(s->extra_->foreign) : std::vector<Event>());
    }
    s->~Storage();
    host_deallocate(s, kHeader);
    return;
  }
  const std::size_t block = s->block_bytes_;
  s->~Storage();
  host_deallocate(s, block);
}

Storage::Extra& Storage::extra() {
  if (!extra_) extra_ = std::make_unique<Extra>();
  return *extra_;
}

void Storage::restore_plain() {
  const std::lock_guard lock(restore_mutex);
  if (!has_hidden_) return;
  void* plain = host_allocate(nbytes_);
  extra_->hidden->restore(plain);
  data_ = plain;
  block_bytes_ = nbytes_;
  std::atomic_thread_fence(std::memory_order_release);
  has_hidden_ = false;
  extra_->hidden.reset();
}

void Storage::expose_to_host() {
  if (host_exposed_) return;
  if (!device_.is_host()) {
    synchronize(device_);
    for (const Event& e : pending_foreign_uses()) e.synchronize();
    check_valid();
  }
  data();
  host_exposed_ = true;
}

const IntrusivePtr<Validity>& Storage::validity() {
  auto& v = extra().validity;
  if (!v) v = make_intrusive<Validity>();
  return v;
}

void Storage::check_valid() const {
  ATHANOR_CHECK(!extra_ || !extra_->validity || !extra_->validity->invalid.load(std::memory_order_relaxed),
                "the values of a tensor on ", device_, " were read, but the call that should have made them failed; "
                "compute or fill it again");
}

void Storage::add_foreign_use(Event event) {
  auto& list = extra().foreign;
  std::erase_if(list, [](const Event& e) { return e.query(); });
  list.push_back(event);
}

std::vector<Event> Storage::pending_foreign_uses() {
  if (!extra_) return {};
  std::erase_if(extra_->foreign, [](const Event& e) { return e.query(); });
  return extra_->foreign;
}

}  // namespace athanor
