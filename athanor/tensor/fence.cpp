#include "athanor/tensor/fence.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

namespace athanor::detail {
namespace {

struct Fences {
  std::mutex mutex;
  std::condition_variable one_is_lifted;
  std::uint64_t last = 0;
  std::set<std::uint64_t> standing;
  std::map<const Storage*, std::vector<QueuePoint>> writes;
  Fences* of_parent = nullptr;          // left as it was at the fork
  std::atomic<std::size_t> written{0};  // how many storages are in `writes`: to look costs nothing while there are none
};

// Points may outlive static objects.
Fences*& present() {
  static Fences* all = new Fences;
  return all;
}
Fences& fences() { return *present(); }

}  // namespace

Fence::Fence() {
  Fences& all = fences();
  const std::lock_guard lock(all.mutex);
  number_ = ++all.last;
  all.standing.insert(number_);
}

void Fence::lift() noexcept {
  Fences& all = fences();
  {
    const std::lock_guard lock(all.mutex);
    if (all.standing.erase(number_) == 0) return;
    for (auto it = all.writes.begin(); it != all.writes.end();) {
      std::erase_if(it->second, [this](const QueuePoint& p) { return p.ticket() == number_; });
      it = it->second.empty() ? all.writes.erase(it) : std::next(it);
    }
    all.written.store(all.writes.size(), std::memory_order_release);
  }
  all.one_is_lifted.notify_all();
}

bool is_fence(const QueuePoint& point) { return !point.queue() && point.ticket() != 0; }

bool fence_is_lifted(const QueuePoint& point) {
  Fences& all = fences();
  const std::lock_guard lock(all.mutex);
  return !all.standing.contains(point.ticket());
}

bool wait_for_fence(const QueuePoint& point, std::chrono::milliseconds time) {
  Fences& all = fences();
  std::unique_lock lock(all.mutex);
  return all.one_is_lifted.wait_for(lock, time, [&] { return !all.standing.contains(point.ticket()); });
}

void wait_quietly(const QueuePoint& point) {
  constexpr std::chrono::hours kTurn{1};
  if (point.queue()) return point.queue()->wait_quietly(point.ticket());
  while (is_fence(point) && !wait_for_fence(point, kTurn)) {
  }
}

void note_foreign_write(const Storage& storage, const Fence& fence) {
  Fences& all = fences();
  const std::lock_guard lock(all.mutex);
  all.writes[&storage].push_back(fence.point());
  all.written.store(all.writes.size(), std::memory_order_release);
}

std::vector<QueuePoint> foreign_writes(const Storage& storage) {
  Fences& all = fences();
  if (__builtin_expect(all.written.load(std::memory_order_acquire) == 0, 1)) return {};
  const std::lock_guard lock(all.mutex);
  const auto found = all.writes.find(&storage);
  return found == all.writes.end() ? std::vector<QueuePoint>() : found->second;
}

void lock_fences() { fences().mutex.lock(); }
void unlock_fences() { fences().mutex.unlock(); }

void leave_fences() {
  auto* const own = new Fences;
  own->of_parent = present();
  own->last = own->of_parent->last;
  present() = own;
}

}  // namespace athanor::detail
