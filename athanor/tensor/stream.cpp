#include "athanor/tensor/stream.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "athanor/base/error.h"
#include "athanor/base/parallel.h"
#include "athanor/profiler/recording.h"
#include "athanor/tensor/fence.h"
#include "athanor/tensor/queue_memory.h"

namespace athanor {
namespace {

std::mutex& failure_mutex() {
  static std::mutex& mutex = *new std::mutex;  // marks may outlive static objects
  return mutex;
}

}  // namespace

void Validity::set(std::shared_ptr<const std::string> failure) {
  const bool bad = failure != nullptr;
  if (!bad && !invalid.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(failure_mutex());
  failure_ = std::move(failure);
  invalid.store(bad, std::memory_order_relaxed);
}

std::shared_ptr<const std::string> Validity::failure() const {
  const std::lock_guard lock(failure_mutex());
  return failure_;
}

bool QueuePoint::query() const {
  if (detail::is_fence(*this)) return detail::fence_is_lifted(*this);
  return !queue_ || queue_->done(ticket_);
}

void QueuePoint::synchronize() const {
  if (queue_)
    queue_->wait(ticket_);
  else
    detail::wait_quietly(*this);
}

struct Queue::State {
  enum class Mode { Working, Stopped, Lost };

  State(Queue* queue, Device device, int threads)
      : device(device), threads(threads), memory(queue), worker([this] { work(); }) {}
  void work();
  bool wait_before_task(const QueuePoint& point);
  void run(Task& task, std::shared_ptr<const std::string> failed);
  std::shared_ptr<const std::string> fail(const Task& task);
  void rethrow_pending();
  void check_mine() const;
  void wait(std::unique_lock<std::mutex>& lock, std::uint64_t ticket);
  bool done(std::uint64_t ticket) const { return finished.load(std::memory_order_acquire) >= ticket; }

  const Device device;
  const int threads;
  std::mutex mutex;
  std::condition_variable not_empty, not_full, progress;
  std::deque<std::unique_ptr<Task>> pending;
  std::atomic<std::uint64_t> enqueued{0}, finished{0};
  static constexpr std::uint64_t kNobody = UINT64_MAX;
  std::uint64_t awaited = kNobody;                  // the first ticket that somebody waits for: no wake-ups before it
  std::exception_ptr failure;                       // set: tasks are skipped until a synchronizing call takes it
  std::shared_ptr<const std::string> failure_text;  // the same, for the marks of what was not made
  std::atomic<Mode> mode{Mode::Working};            // changed under the lock
  std::mutex running;                               // held while a kernel runs
  detail::QueueMemory memory;
  std::thread worker;  // last: it uses all of the above
};

Queue::Queue(Device device, int threads) : state_(std::make_unique<State>(this, device, threads)) {}
Queue::~Queue() { stop(); }
Device Queue::device() const { return state_->device; }
int Queue::threads() const { return state_->threads; }
bool Queue::done(std::uint64_t ticket) const { return state_->done(ticket); }

void Queue::enqueue(std::unique_ptr<Task> task) {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.not_full.wait(lock, [&] { return s.pending.size() < kMaxPending || s.mode != State::Mode::Working; });
  s.check_mine();
  if (s.mode == State::Mode::Stopped) return;
  const std::uint64_t ticket = s.enqueued.load(std::memory_order_relaxed) + 1;
  for (const auto& w : task->writes)
    if (w.at_home) w.mark->last_write.store(ticket, std::memory_order_relaxed);
  s.pending.push_back(std::move(task));
  s.enqueued.store(ticket, std::memory_order_relaxed);
  lock.unlock();
  s.not_empty.notify_one();
}

QueuePoint Queue::record() { return {this, state_->enqueued.load(std::memory_order_relaxed)}; }

void Queue::State::check_mine() const {
  ATHANOR_CHECK(mode != Mode::Lost, "device ", device,
                " was in use when this process was forked: its queue and what is on it belong to the parent. Use the "
                "device in the child only, or start processes instead of forking (athanor run)");
}

void Queue::State::wait(std::unique_lock<std::mutex>& lock, std::uint64_t ticket) {
  if (done(ticket)) return;
  check_mine();
  progress.wait(lock, [&] {
    if (done(ticket)) return true;
    awaited = std::min(awaited, ticket);
    return false;
  });
}

void Queue::wait(std::uint64_t ticket) {
  state_->check_mine();
  std::unique_lock lock(state_->mutex);
  state_->wait(lock, ticket);
  state_->rethrow_pending();
}

void Queue::wait_quietly(std::uint64_t ticket) {
  if (done(ticket)) return;
  std::unique_lock lock(state_->mutex);
  state_->wait(lock, ticket);
}

void Queue::synchronize() { wait(record().ticket()); }

void Queue::State::rethrow_pending() {
  if (!failure) return;
  failure_text.reset();
  std::rethrow_exception(std::exchange(failure, nullptr));
}

/// Keeps the first failure until somebody synchronizes; returns what goes into the marks.
std::shared_ptr<const std::string> Queue::State::fail(const Task& task) {
  std::exception_ptr error = std::current_exception();
  std::string text = "an exception that is no std::exception";
  std::string where = detail::str("in ", task.op, ", enqueued on ", device);
  if (const std::string path = task.place ? task.place->path() : ""; !path.empty()) where += "\nin " + path;
  try {
    throw;
  } catch (Error& e) {
    e.add_context(where);
    error = std::current_exception();
    text = e.what();
  } catch (const std::exception& e) {
    text = detail::str(e.what(), "\n", where);
  } catch (...) {
  }
  auto shared = std::make_shared<const std::string>(std::move(text));
  const std::lock_guard lock(mutex);
  if (!failure) {
    failure = error;
    failure_text = shared;
  }
  return shared;
}

/// False if the queue was stopped meanwhile: at exit nobody may be left to lift a fence.
bool Queue::State::wait_before_task(const QueuePoint& point) {
  constexpr std::chrono::milliseconds kTurn{100};
  if (!detail::is_fence(point)) detail::wait_quietly(point);
  while (!point.query()) {
    if (mode == Mode::Stopped) return false;
    detail::wait_for_fence(point, kTurn);
  }
  return true;
}

/// Runs the task, or skips it for the reason `failed` or because what it reads was never made.
void Queue::State::run(Task& task, std::shared_ptr<const std::string> failed) {
  for (const QueuePoint& p : task.after)
    if (!wait_before_task(p)) return;
  const std::lock_guard lock(running);
  for (const auto& r : task.reads)
    if (!failed && r->invalid.load(std::memory_order_relaxed)) failed = r->failure();
  if (!failed || task.always) {
    try {
      const profiler::detail::Scope scope(
          {.fixed_name = task.op,
           .kind = profiler::EventKind::Kernel,
           .device = profiler::detail::device_number(device.is_cuda(), device.index())});
      task.run();
    } catch (...) {
      failed = fail(task);
    }
  }
  for (const auto& w : task.writes)
    if (failed || w.whole) w.mark->set(failed);
}

void Queue::State::work() {
  const ThreadTeamGuard team(threads);
  std::unordered_map<const char*, unsigned> runs;
  std::unique_lock lock(mutex);
  for (;;) {
    not_empty.wait(lock, [&] { return mode != Mode::Working || !pending.empty(); });
    if (pending.empty()) return;
    auto task = std::move(pending.front());
    pending.pop_front();
    auto failed = failure_text;
    lock.unlock();
    not_full.notify_one();
    run(*task, std::move(failed));
    // Kernels make static objects at their first runs (oneDNN its generated code), which must outlive the worker.
    if (const unsigned n = ++runs[task->op]; n <= 8 || std::has_single_bit(n)) detail::stop_queues_at_exit();
    task.reset();
    lock.lock();
    const std::uint64_t now = finished.fetch_add(1, std::memory_order_release) + 1;
    if (now < awaited) continue;
    awaited = kNobody;
    progress.notify_all();
  }
}

void Queue::drop() noexcept {
  State& s = *state_;
  std::deque<std::unique_ptr<Task>> dropped;
  {
    const std::lock_guard lock(s.mutex);
    if (s.mode == State::Mode::Lost) return;
    s.mode = State::Mode::Stopped;
    dropped.swap(s.pending);
    s.finished.fetch_add(dropped.size(), std::memory_order_release);
  }
  s.not_empty.notify_all();
  s.not_full.notify_all();
  s.progress.notify_all();
}

void Queue::stop() noexcept {
  drop();
  if (!lost() && state_->worker.joinable()) state_->worker.join();
}

void* Queue::allocate(std::size_t bytes) {
  state_->check_mine();
  return state_->memory.allocate(bytes);
}

void Queue::deallocate(void* block, std::size_t bytes, std::vector<QueuePoint> foreign) noexcept {
  state_->memory.deallocate(block, bytes, record().ticket(), std::move(foreign));
}

void Queue::empty_cache() { state_->memory.empty_cache(); }
void Queue::set_memory_limit(std::size_t bytes) { state_->memory.set_limit(bytes); }
void Queue::reset_peaks() { state_->memory.reset_peaks(); }

DeviceStats Queue::stats() const {
  DeviceStats stats = state_->memory.stats();
  stats.tasks_finished = static_cast<std::int64_t>(state_->finished.load(std::memory_order_acquire));
  stats.tasks_enqueued = static_cast<std::int64_t>(state_->enqueued.load(std::memory_order_relaxed));
  return stats;
}

void Queue::hold_memory() { state_->memory.lock(); }

void Queue::hold_worker() {
  state_->running.lock();
  state_->mutex.lock();
}

bool Queue::lost() const { return state_->mode == State::Mode::Lost; }

void Queue::after_fork(bool child) {
  if (child) state_->mode = State::Mode::Lost;
  state_->mutex.unlock();
  state_->running.unlock();
  state_->memory.unlock();
}

}  // namespace athanor
