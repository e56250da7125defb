#include "athanor/tensor/stream.h"

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "athanor/base/error.h"
#include "athanor/base/parallel.h"
#include "athanor/profiler/record.h"
#include "athanor/tensor/allocator.h"

namespace athanor {

bool Event::query() const { return !queue_ || queue_->done(ticket_); }

void Event::synchronize() const {
  if (queue_) queue_->wait(ticket_);
}

struct Queue::State {
  State(Device device, int threads) : device(device), worker([this, threads] { work(threads); }) {}
  ~State();
  void work(int threads);
  void fail(const Task& task);
  void rethrow_pending();
  void reclaim_foreign();
  bool done(std::uint64_t ticket) const { return finished.load(std::memory_order_acquire) >= ticket; }

  const Device device;
  std::mutex mutex;
  std::condition_variable not_empty, not_full, progress;
  std::deque<std::unique_ptr<Task>> pending;
  std::uint64_t enqueued = 0;
  std::atomic<std::uint64_t> finished{0};
  std::exception_ptr failure;  // set: tasks are skipped until a synchronizing call takes it
  bool stopping = false;
  std::mutex memory_mutex;
  std::multimap<std::size_t, void*> free;
  struct Limbo {
    void* block;
    std::size_t bytes;
    std::vector<Event> foreign;
  };
  std::vector<Limbo> limbo;
  std::thread worker;  // last: it uses all of the above
};

Queue::State::~State() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
    finished += pending.size();
    pending.clear();
  }
  not_empty.notify_all();
  progress.notify_all();
  worker.join();
  for (auto& [bytes, block] : free) host_deallocate(block, bytes);
  for (auto& l : limbo) host_deallocate(l.block, l.bytes);
}

Queue::Queue(Device device, int threads) : state_(std::make_unique<State>(device, threads)) {}
Queue::~Queue() = default;
Device Queue::device() const { return state_->device; }
bool Queue::done(std::uint64_t ticket) const { return state_->done(ticket); }

void Queue::enqueue(std::unique_ptr<Task> task) {
  std::unique_lock lock(state_->mutex);
  state_->not_full.wait(lock, [&] { return state_->pending.size() < kMaxPending || state_->stopping; });
  state_->pending.push_back(std::move(task));
  ++state_->enqueued;
  lock.unlock();
  state_->not_empty.notify_one();
}

Event Queue::record() {
  const std::lock_guard lock(state_->mutex);
  return {this, state_->enqueued};
}

void Queue::wait(std::uint64_t ticket) {
  std::unique_lock lock(state_->mutex);
  state_->progress.wait(lock, [&] { return done(ticket); });
  state_->rethrow_pending();
}

void Queue::wait_quietly(std::uint64_t ticket) {
  std::unique_lock lock(state_->mutex);
  state_->progress.wait(lock, [&] { return done(ticket); });
}

void Queue::synchronize() { wait(record().ticket()); }

void Queue::State::rethrow_pending() {
  if (!failure) return;
  std::rethrow_exception(std::exchange(failure, nullptr));
}

void Queue::State::fail(const Task& task) {
  std::exception_ptr error = std::current_exception();
  try {
    throw;
  } catch (Error& e) {
    e.add_context(detail::str("in ", task.op, ", enqueued on ", device));
    error = std::current_exception();
  } catch (...) {
  }
  const std::lock_guard lock(mutex);
  if (!failure) failure = error;
}

void Queue::State::work(int threads) {
  const ThreadTeamGuard team(threads);
  std::unique_lock lock(mutex);
  for (;;) {
    not_empty.wait(lock, [&] { return stopping || !pending.empty(); });
    if (pending.empty()) return;
    const auto task = std::move(pending.front());
    pending.pop_front();
    bool skip = failure != nullptr;
    lock.unlock();
    not_full.notify_one();
    for (const Event& e : task->after) e.queue()->wait_quietly(e.ticket());
    bool reads_invalid = false;
    for (const auto& r : task->reads) reads_invalid = reads_invalid || r->invalid.load(std::memory_order_relaxed);
    if (!skip && !(reads_invalid && !task->host_output)) {
      try {
        ATHANOR_CHECK(!reads_invalid,
                      "the values of a tensor were read, but the call that should have made them failed");
        const profiler::detail::Scope scope({.fixed_name = task->op,
                                             .kind = profiler::EventKind::Kernel,
                                             .device = static_cast<std::int16_t>(device.index())});
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
    finished.fetch_add(1, std::memory_order_release);
    progress.notify_all();
  }
}

void* Queue::allocate(std::size_t bytes) {
  const std::lock_guard lock(state_->memory_mutex);
  state_->reclaim_foreign();
  const auto it = state_->free.lower_bound(bytes);
  if (it != state_->free.end() && it->first <= bytes + bytes / 4) {
    // The caller must free it with the size it was made with.
    void* block = it->second;
    if (it->first == bytes) {
      state_->free.erase(it);
      return block;
    }
  }
  return host_allocate(bytes);
}

void Queue::deallocate(void* block, std::size_t bytes, std::vector<Event> foreign) {
  const std::lock_guard lock(state_->memory_mutex);
  std::erase_if(foreign, [](const Event& e) { return e.query(); });
  if (foreign.empty())
    state_->free.emplace(bytes, block);
  else
    state_->limbo.push_back({block, bytes, std::move(foreign)});
}

void Queue::State::reclaim_foreign() {
  std::erase_if(limbo, [&](Limbo& l) {
    for (const Event& e : l.foreign)
      if (!e.query()) return false;
    free.emplace(l.bytes, l.block);
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
