#include "athanor/profiler/profiler.h"

#include <algorithm>

#include <unistd.h>

#include "athanor/base/error.h"
#include "athanor/base/log.h"
#include "athanor/profiler/recording.h"

namespace athanor::profiler {

using athanor::detail::str;

const char* category_of(EventKind kind) {
  switch (kind) {
    case EventKind::Op:
      return "cpu_op";
    case EventKind::Backward:
      return "backward";
    case EventKind::Kernel:
      return "kernel";
    case EventKind::Collective:
      return "collective";
    case EventKind::Scope:
      return "user_annotation";
  }
  return "";
}

namespace {

/// "add_" of "add.Tensor(Tensor self, …" called in place.
std::string name_of(const detail::Record& record) {
  std::string_view text(record.name);
  if (record.kind != EventKind::Scope) text = text.substr(0, text.find_first_of(".("));
  std::string name(text);
  if (record.form == detail::Form::InPlace) name += "_";
  if (record.form == detail::Form::Out) name += "_out";
  return name;
}

/// Ticks to nanoseconds, by how far both clocks went during the recording.
class Clock {
 public:
  Clock(const detail::Recording& r, std::uint64_t end_ticks) : start_(r.start_ticks) {
    const auto wall = std::chrono::steady_clock::now() - r.start_time;
    const double ns = std::chrono::duration<double, std::nano>(wall).count();
    per_tick_ = end_ticks > start_ ? ns / static_cast<double>(end_ticks - start_) : 1;
  }
  std::int64_t operator()(std::uint64_t ticks) const {
    // Processors' counts may differ by a little.
    return ticks < start_ ? 0 : static_cast<std::int64_t>(static_cast<double>(ticks - start_) * per_tick_);
  }

 private:
  std::uint64_t start_;
  double per_tick_;
};

std::vector<std::vector<std::int64_t>> shapes_of(const detail::ThreadLog& log, const detail::Record& record) {
  std::vector<std::vector<std::int64_t>> shapes;
  if (record.shapes == 0) return shapes;
  const std::int64_t* at = log.shapes.data() + record.shapes - 1;
  const std::int64_t* end = at + 1 + *at;
  for (++at; at < end; at += 1 + *at) shapes.emplace_back(at + 1, at + 1 + *at);
  return shapes;
}

std::string thread_name(const detail::ThreadLog& log, std::size_t index) {
  if (log.queue >= 0) return "queue of " + detail::device_name(log.queue);
  return log.thread_id == getpid() ? "main" : str("thread ", index);
}

/// Appends a closed log's events.
void convert(const detail::ThreadLog& log, std::uint32_t thread, const Clock& clock, std::uint64_t now,
             std::vector<Event>& out) {
  const auto first = static_cast<std::int64_t>(out.size());
  for (const detail::Record& r : log.records) {
    Event e;
    e.name = name_of(r);
    e.kind = r.kind;
    e.thread = thread;
    e.device = detail::device_name(r.device);
    e.start = clock(r.start);
    e.duration = e.self = std::max<std::int64_t>(clock(r.end != 0 ? r.end : now) - e.start, 0);
    e.sequence = r.sequence;
    e.shapes = shapes_of(log, r);
    e.bytes = e.self_bytes = r.end != 0 ? r.bytes : 0;
    if (r.parent != 0) {
      e.parent = first + r.parent - 1;
      Event& parent = out[static_cast<std::size_t>(e.parent)];
      parent.self -= e.duration;
      parent.self_bytes -= e.bytes;
    }
    out.push_back(std::move(e));
  }
}

}  // namespace

std::string detail::device_name(std::int16_t number) {
  return number < 0 ? "cpu" : str(number < 256 ? "cpu:" : "cuda:", number % 256);
}

Profile::Profile(const ProfileOptions& options) : options_(options) {
  detail::Recording& r = detail::current_recording();
  const std::lock_guard lock(r.mutex);
  ATHANOR_CHECK(detail::recording_number() == 0,
                "profiler: another profile is recording; one can at a time: call stop() on that first");
  r.logs.clear();
  r.shapes = options.record_shapes;
  r.memory = options.profile_memory;
  r.limit = options.max_events;
  r.count = 0;
  r.start_time = std::chrono::steady_clock::now();
  r.start_ticks = detail::ticks();
  // 0 is nobody's number, should they ever come round.
  r.last_number = r.last_number + 1 == detail::kWatched ? 1 : r.last_number + 1;
  detail::recording.fetch_or(r.last_number, std::memory_order_release);
  recording_ = true;
}

Profile::~Profile() {
  try {
    stop();
  } catch (const std::exception&) {
    // No memory for the events: nobody can ask for them any more.
  }
}

void Profile::stop() {
  if (!recording_) return;
  recording_ = false;
  detail::Recording& r = detail::current_recording();
  const std::lock_guard lock(r.mutex);
  detail::recording.fetch_and(detail::kWatched, std::memory_order_release);
  const std::uint64_t now = detail::ticks();
  const Clock clock(r, now);
  std::size_t kept = 0;
  for (const auto& log : r.logs) {
    const std::lock_guard log_lock(log->mutex);
    log->closed = true;
    kept += log->records.size();
  }
  events_.reserve(kept);
  for (const auto& log : r.logs) {
    const auto thread = static_cast<std::uint32_t>(threads_.size());
    threads_.push_back({log->thread_id, thread_name(*log, threads_.size() + 1)});
    convert(*log, thread, clock, now, events_);
    // The thread may hold the log for long.
    log->records = {};
    log->shapes = {};
    log->names = {};
  }
  dropped_ = static_cast<std::int64_t>(r.count - std::min(r.count.load(), options_.max_events));
  r.logs.clear();
}

void Profile::check_stopped(const char* what) const {
  ATHANOR_CHECK(!recording_, "profiler: ", what, " was called while the profile records; call stop() first");
}

const std::vector<Event>& Profile::events() const {
  check_stopped("events()");
  return events_;
}
const std::vector<ThreadInfo>& Profile::threads() const {
  check_stopped("threads()");
  return threads_;
}
std::int64_t Profile::dropped() const {
  check_stopped("dropped()");
  return dropped_;
}

RecordProfile::~RecordProfile() {
  try {
    profile_.stop();
    profile_.export_chrome_trace(filename_);
  } catch (const std::exception& e) {
    ATHANOR_LOG(Warning, "RecordProfile: ", e.what());
  }
}

}  // namespace athanor::profiler
