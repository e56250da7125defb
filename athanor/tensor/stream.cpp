#include "athanor/tensor/stream.h"

#include <cstdlib>
#include <utility>

#include "athanor/base/error.h"
#include "athanor/base/parallel.h"
#include "athanor/tensor/allocator.h"

namespace athanor {

bool Event::query() const { return !queue_ || queue_->done(ticket_); }

void Event::synchronize() const {
  if (queue_) queue_->wait(ticket_);
}

Queue::Queue(Device device, int threads) : device_(device), worker_([this, threads] { work(threads); }) {}

Queue::~Queue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    finished_ += pending_.size();
    pending_.clear();
  }
  not_empty_.notify_all();
  progress_.notify_all();
  worker_.join();
  for (auto& [bytes, block] : free_) host_deallocate(block, bytes);
  for (auto& l : limbo_) host_deallocate(l.block, l.bytes);
}

void Queue::enqueue(std::unique_ptr<Task> task) {
  std::unique_lock lock(mutex_);
  not_full_.wait(lock, [&] { return pending_.size() < kMaxPending || stopping_; });
  pending_.push_back(std::move(task));
  ++enqueued_;
  lock.unlock();
  not_empty_.notify_one();
}

Event Queue::record() {
  const std::lock_guard lock(mutex_);
  return {this, enqueued_};
}

void Queue::wait(std::uint64_t ticket) {
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return done(ticket); });
  rethrow_pending();
}

void Queue::wait_quietly(std::uint64_t ticket) {
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return done(ticket); });
}

void Queue::synchronize() { wait(record().ticket()); }

void Queue::rethrow_pending() {
  if (!failure_) return;
  const auto failure = std::exchange(failure_, nullptr);
  std::rethrow_exception(failure);
}

void Queue::fail(const Task& task) {
  std::exception_ptr error = std::current_exception();
  try {
    throw;
  } catch (Error& e) {
    e.add_context(detail::str("in ", task.op, ", enqueued on ", device_));
    error = std::current_exception();
  } catch (...) {
  }
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = error;
}

void Queue::work(int threads) {
  const ThreadTeamGuard team(threads);
  std::unique_lock lock(mutex_);
  for (;;) {
    not_empty_.wait(lock, [&] { return stopping_ || !pending_.empty(); });
    if (pending_.empty()) return;
    const auto task = std::move(pending_.front());
    pending_.pop_front();
    bool skip = failure_ != nullptr;
    lock.unlock();
    not_full_.notify_one();
    for (const Event& e : task->after) e.queue()->wait_quietly(e.ticket());
    bool reads_invalid = false;
    for (const auto& r : task->reads) reads_invalid = reads_invalid || r->invalid.load(std::memory_order_relaxed);
    if (!skip && !(reads_invalid && !task->host_output)) {
      try {
        ATHANOR_CHECK(!reads_invalid, "the values of a tensor were read, but the call that should have made them failed");
        task->run();
      } catch (...) {
        fail(*task);
        skip = true;
      }
    } else {
      skip = true;
    }
    for (const auto& w : task->writes)
      if (skip || w.whole) w.mark->invalid.store(skip, std::memory_order_relaxed);
    lock.lock();
    finished_.fetch_add(1, std::memory_order_release);
    progress_.notify_all();
  }
}

void* Queue::allocate(std::size_t bytes) {
  const std::lock_guard lock(memory_mutex_);
  reclaim_foreign();
  const auto it = free_.lower_bound(bytes);
  if (it != free_.end() && it->first <= bytes + bytes / 4) {
    // The caller must free it with the size it was made with.
    void* block = it->second;
    if (it->first == bytes) {
      free_.erase(it);
      return block;
    }
  }
  return host_allocate(bytes);
}

void Queue::deallocate(void* block, std::size_t bytes, std::vector<Event> foreign) {
  const std::lock_guard lock(memory_mutex_);
  std::erase_if(foreign, [](const Event& e) { return e.query(); });
  if (foreign.empty())
    free_.emplace(bytes, block);
  else
    limbo_.push_back({block, bytes, std::move(foreign)});
}

void Queue::reclaim_foreign() {
  std::erase_if(limbo_, [&](Limbo& l) {
    for (const Event& e : l.foreign)
      if (!e.query()) return false;
    free_.emplace(l.bytes, l.block);
    return true;
  });
}

namespace {

struct Queues {
  std::mutex mutex;
  std::vector<std::unique_ptr<Queue>> cpu;
};

Queues& queues() {
  static Queues instance;
  return instance;
}

std::atomic<int> queue_count{-1};  // -1: not configured yet

int configured_count() {
  const int n = queue_count.load(std::memory_order_acquire);
  if (n >= 0) return n;
  const char* text = std::getenv("ATHANOR_CPU_DEVICES");
  detail::configure_cpu_queues(text ? std::atoi(text) : 0);
  return queue_count.load(std::memory_order_acquire);
}

}  // namespace

namespace detail {

void configure_cpu_queues(int n) {
  ATHANOR_CHECK_VALUE(n >= 0 && n <= 64, "number of virtual CPU devices: expected 0 to 64, got ", n);
  auto& q = queues();
  const std::lock_guard lock(q.mutex);
  for (auto& queue : q.cpu) queue->synchronize();
  q.cpu.clear();
  if (n < 2) n = 0;
  const int share = n ? std::max(1, get_num_threads() / n) : 1;
  for (int i = 0; i < n; ++i)
    q.cpu.push_back(std::make_unique<Queue>(Device(DeviceType::CPU, static_cast<DeviceIndex>(i)), share));
  queue_count.store(n, std::memory_order_release);
}

Queue* queue_of(Device device) {
  if (device.is_host()) return nullptr;
  ATHANOR_CHECK(device.is_cpu() && device.index() < configured_count(), "device ", device, " has no queue");
  return queues().cpu[static_cast<std::size_t>(device.index())].get();
}

}  // namespace detail

int cpu_device_count() { return configured_count(); }

Device resolve(Device device) {
  if (device.is_host()) return device;
  if (device.is_cpu()) {
    const int n = configured_count();
    if (n == 0 && device.index() == 0) return Device(DeviceType::CPU);
    ATHANOR_CHECK(device.index() < n, "device ", device, " does not exist: ", n,
                  " virtual CPU devices are configured; set ATHANOR_CPU_DEVICES=", device.index() + 1, " or more");
    return device;
  }
  ATHANOR_THROW(Error, "device ", device, " is not available: this build of Athanor has no CUDA support");
}

void synchronize(Device device) {
  if (Queue* q = detail::queue_of(device)) q->synchronize();
}

}  // namespace athanor
