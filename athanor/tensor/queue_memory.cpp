#include "athanor/tensor/queue_memory.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

#include "athanor/base/env.h"
#include "athanor/base/error.h"
#include "athanor/tensor/allocator.h"
#include "athanor/tensor/fence.h"

namespace athanor::detail {
namespace {

/// Unused memory beyond this, and beyond what is in use, goes back when sizes that were not seen before are asked for.
constexpr std::int64_t kIdleBytes = std::int64_t{64} << 20;

/// So that blocks of nearly equal sizes stand in for each other: eight sizes per doubling.
std::size_t rounded(std::size_t bytes) {
  const std::size_t step = std::max<std::size_t>(std::bit_floor(bytes) / 8, kHostAlignment);
  return (bytes + step - 1) / step * step;
}

void took(DeviceStats::Stat& s, std::size_t bytes) {
  s.current += static_cast<std::int64_t>(bytes);
  s.allocated += static_cast<std::int64_t>(bytes);
  s.peak = std::max(s.peak, s.current);
}

void gave(DeviceStats::Stat& s, std::size_t bytes) {
  s.current -= static_cast<std::int64_t>(bytes);
  s.freed += static_cast<std::int64_t>(bytes);
}

std::string human(std::int64_t bytes) {
  char text[32];
  const bool large = bytes >= std::int64_t{1} << 30;
  std::snprintf(text, sizeof text, large ? "%.2f GiB" : "%.2f MiB",
                static_cast<double>(bytes) / (large ? 0x1p30 : 0x1p20));
  return text;
}

}  // namespace

QueueMemory::QueueMemory(Queue* queue) : queue_(queue) {
  stats_.limit = env::integer("ATHANOR_DEVICE_MEMORY_MB", 1, std::int64_t{1} << 40).value_or(0) << 20;
}

QueueMemory::~QueueMemory() {
  for (auto& l : limbo_) free_[l.bytes].push_back({l.data, 0});
  for (auto& [bytes, blocks] : free_)
    for (const Block& b : blocks) host_deallocate(b.data, bytes);
}

void* QueueMemory::allocate(std::size_t asked) {
  if (asked == 0) return nullptr;
  ATHANOR_CHECK_TYPE(OutOfMemoryError, asked <= std::size_t{1} << 60, "cannot allocate ", asked, " bytes on ",
                     queue_->device());
  const std::size_t bytes = rounded(asked);
  Lock lock(mutex_);
  reclaim_limbo();
  void* data = nullptr;
  if (const auto found = free_.find(bytes); found != free_.end() && !found->second.empty()) {
    data = found->second.back().data;
    found->second.pop_back();
  } else {
    make_room(bytes, asked, lock);
    data = take_from_host(bytes, lock);
    took(stats_.reserved_bytes, bytes);
  }
  took(stats_.allocated_bytes, bytes);
  took(stats_.allocation, 1);
  return data;
}

void QueueMemory::deallocate(void* block, std::size_t asked, std::uint64_t ticket,
                             std::vector<QueuePoint> foreign) noexcept {
  if (block == nullptr) return;
  const std::size_t bytes = rounded(asked);
  const std::lock_guard lock(mutex_);
  gave(stats_.allocated_bytes, bytes);
  gave(stats_.allocation, 1);
  try {
    std::erase_if(foreign, [](const QueuePoint& p) { return p.query(); });
    if (foreign.empty())
      free_[bytes].push_back({block, ticket});
    else
      limbo_.push_back({block, bytes, ticket, std::move(foreign)});
  } catch (const std::bad_alloc&) {
    // No memory even to note that this block is free: it stays unused.
  }
}

void QueueMemory::reclaim_limbo() {
  std::erase_if(limbo_, [&](Limbo& l) {
    for (const QueuePoint& p : l.foreign)
      if (!p.query()) return false;
    free_[l.bytes].push_back({l.data, l.ticket});
    return true;
  });
}

/// Gives back the free blocks that no task can use any more.
void QueueMemory::release_idle() {
  for (auto& [bytes, blocks] : free_)
    std::erase_if(blocks, [&, size = bytes](const Block& b) {
      if (!queue_->done(b.ticket)) return false;
      host_deallocate(b.data, size);
      gave(stats_.reserved_bytes, size);
      return true;
    });
}

void QueueMemory::release_all(Lock& lock) {
  std::vector<QueuePoint> points;
  for (const Limbo& l : limbo_) points.insert(points.end(), l.foreign.begin(), l.foreign.end());
  // Tasks wait for fences, and who lifts one may free memory of this queue before.
  lock.unlock();
  queue_->wait_quietly(queue_->record().ticket());
  for (const QueuePoint& p : points) wait_quietly(p);
  lock.lock();
  reclaim_limbo();
  release_idle();
}

void QueueMemory::make_room(std::size_t bytes, std::size_t asked, Lock& lock) {
  const auto more = static_cast<std::int64_t>(bytes);
  if (stats_.limit == 0) {
    const std::int64_t idle = stats_.reserved_bytes.current - stats_.allocated_bytes.current;
    if (idle > std::max(stats_.allocated_bytes.current, kIdleBytes)) release_idle();
    return;
  }
  const auto fits = [&] { return stats_.reserved_bytes.current + more <= stats_.limit; };
  if (stats_.allocated_bytes.current + more > stats_.limit) refuse(asked);
  if (!fits()) release_idle();
  if (!fits()) release_all(lock);
  if (!fits()) refuse(asked);
}

void* QueueMemory::take_from_host(std::size_t bytes, Lock& lock) {
  try {
    return host_allocate(bytes);
  } catch (const OutOfMemoryError&) {
    release_all(lock);
  }
  try {
    return host_allocate(bytes);
  } catch (OutOfMemoryError& e) {
    ++stats_.num_ooms;
    e.add_context(str("for a tensor on ", queue_->device(), ", which holds ", human(stats_.reserved_bytes.current)));
    throw;
  }
}

void QueueMemory::refuse(std::size_t asked) {
  ++stats_.num_ooms;
  ATHANOR_THROW(OutOfMemoryError, "out of memory on ", queue_->device(), ": tried to allocate ",
                human(static_cast<std::int64_t>(asked)), ", but ", human(stats_.allocated_bytes.current),
                " of its limit of ", human(stats_.limit),
                " are in use. Use smaller batches, place a part of the model on another device, or raise the limit "
                "(set_memory_limit, ATHANOR_DEVICE_MEMORY_MB)");
}

void QueueMemory::empty_cache() {
  Lock lock(mutex_);
  release_all(lock);
}

void QueueMemory::set_limit(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  stats_.limit = static_cast<std::int64_t>(std::min<std::size_t>(bytes, INT64_MAX));
}

void QueueMemory::reset_peaks() {
  const std::lock_guard lock(mutex_);
  for (auto* s : {&stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.allocation}) s->peak = s->current;
}

DeviceStats QueueMemory::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace athanor::detail
