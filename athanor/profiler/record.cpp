#include "athanor/profiler/record.h"

#include <unistd.h>

#include "athanor/profiler/recording.h"

namespace athanor::profiler::detail {

std::atomic<std::uint32_t> recording{0};
std::int64_t (*thread_bytes)() = nullptr;

Recording& current_recording() {
  // Never destroyed: threads may outlive the end of main.
  static Recording& instance = *new Recording;
  return instance;
}

std::uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

namespace {

// What objects record that outlive the thread's own is lost.
constinit thread_local bool log_ended = false;
struct OwnLog : std::shared_ptr<ThreadLog> {
  using shared_ptr::operator=;
  ~OwnLog() { log_ended = true; }
};
thread_local OwnLog own_log;

/// The calling thread's log of recording `number`; null if that is over.
ThreadLog* log_of(std::uint32_t number) {
  if (log_ended) return nullptr;
  if (own_log && own_log->number == number) return own_log.get();
  auto fresh = std::make_shared<ThreadLog>();
  fresh->number = number;
  fresh->thread_id = gettid();
  Recording& r = current_recording();
  const std::lock_guard lock(r.mutex);
  if (recording_number() != number) return nullptr;
  r.logs.push_back(fresh);
  own_log = std::move(fresh);
  return own_log.get();
}

std::int64_t bytes_now(const Recording& r) { return r.memory && thread_bytes ? thread_bytes() : 0; }

}  // namespace

bool records_shapes() { return current_recording().shapes.load(std::memory_order_relaxed); }

std::uint64_t begin(const Start& start) noexcept try {
  const std::uint32_t number = recording_number(std::memory_order_acquire);
  if (number == 0) return 0;
  Recording& r = current_recording();
  ThreadLog* log = log_of(number);
  if (!log) return 0;
  if (r.count.fetch_add(1, std::memory_order_relaxed) >= r.limit.load(std::memory_order_relaxed)) return 0;
  const std::lock_guard lock(log->mutex);
  if (log->closed) return 0;
  Record record;
  record.name = start.fixed_name ? start.fixed_name : log->names.emplace(start.name).first->c_str();
  record.kind = start.kind;
  record.form = start.form;
  record.device = start.device;
  record.sequence = start.sequence;
  record.parent = log->open;
  if (start.shape_words != 0) {
    record.shapes = static_cast<std::uint32_t>(log->shapes.size()) + 1;
    log->shapes.push_back(static_cast<std::int64_t>(start.shape_words));
    log->shapes.insert(log->shapes.end(), start.shapes, start.shapes + start.shape_words);
  }
  if (start.kind == EventKind::Kernel) log->queue = start.device;
  record.bytes = bytes_now(r);
  record.start = ticks();
  log->records.push_back(record);
  log->open = static_cast<std::uint32_t>(log->records.size());
  return std::uint64_t{number} << 32 | log->open;
} catch (...) {
  return 0;  // no memory to note it
}

void end(std::uint64_t token) noexcept {
  const std::uint64_t now = ticks();
  const auto number = static_cast<std::uint32_t>(token >> 32), index = static_cast<std::uint32_t>(token);
  ThreadLog* log = log_ended ? nullptr : own_log.get();
  if (!log || log->number != number) return;
  const std::int64_t bytes = bytes_now(current_recording());
  const std::lock_guard lock(log->mutex);
  if (log->closed) return;
  // A scope that ends in another thread than it began in is not among those open here.
  std::uint32_t found = log->open;
  while (found != 0 && found != index) found = log->records[found - 1].parent;
  if (found == 0) return;
  for (std::uint32_t i = log->open;; i = log->records[i - 1].parent) {
    Record& record = log->records[i - 1];
    record.end = now;
    record.bytes = bytes - record.bytes;
    log->open = record.parent;
    if (i == index) return;
  }
}

void note_sequence(std::uint64_t number) noexcept {
  ThreadLog* log = log_ended ? nullptr : own_log.get();
  if (!log || log->number != recording_number()) return;
  const std::lock_guard lock(log->mutex);
  // A node made outside of any op, or by a backward event that is linked already, belongs to nothing.
  if (log->closed || log->open == 0) return;
  Record& record = log->records[log->open - 1];
  if (record.kind == EventKind::Op) record.sequence = number;
}

}  // namespace athanor::profiler::detail
