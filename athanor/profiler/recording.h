#pragma once
/// Not for programs: where events are kept while a profile records.

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "athanor/profiler/record.h"

namespace athanor::profiler::detail {

/// A queued device as events have it: cpu:index, or cuda:index.
constexpr std::int16_t device_number(bool cuda, int index) {
  return static_cast<std::int16_t>((cuda ? 256 : 0) + index);
}
/// "cuda:1"; "cpu" for -1, the host.
std::string device_name(std::int16_t number);

struct Record {
  const char* name = nullptr;
  std::uint64_t start = 0, end = 0;  ///< in ticks(); an event under way has no end
  std::uint64_t sequence = 0;
  std::int64_t bytes = 0;    ///< the thread's when it began; then the difference
  std::uint32_t parent = 0;  ///< index of the event around it plus one
  std::uint32_t shapes = 0;  ///< index of its shapes' length plus one
  std::int16_t device = -1;
  EventKind kind = EventKind::Op;
  Form form = Form::Plain;
};

/// The events of one thread in one recording. Written by its thread; read, under the lock, by whoever stops.
struct ThreadLog {
  std::mutex mutex;
  std::uint32_t number = 0;
  std::int64_t thread_id = 0;
  bool closed = false;
  std::int16_t queue = -1;  ///< the queued device whose worker this is, as in Record
  std::uint32_t open = 0;   ///< the innermost event under way, plus one
  std::vector<Record> records;
  std::vector<std::int64_t> shapes;
  std::unordered_set<std::string> names;
};

/// What is shared by the threads of a recording.
struct Recording {
  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadLog>> logs;
  std::atomic<bool> shapes{false}, memory{false};
  std::atomic<std::size_t> limit{0}, count{0};
  std::uint32_t last_number = 0;
  std::uint64_t start_ticks = 0;
  std::chrono::steady_clock::time_point start_time;
};
Recording& current_recording();

/// Bit of `recording` that is set while uses of tensors are watched (athanor/tensor/use_watch.h), recorded or not.
inline constexpr std::uint32_t kWatched = 1u << 31;
/// The number of the recording under way without that bit.
inline std::uint32_t recording_number(std::memory_order order = std::memory_order_relaxed) {
  return recording.load(order) & ~kWatched;
}

/// The processor's own count of time where it has one: reading the clock would cost more than all the rest.
std::uint64_t ticks();

}  // namespace athanor::profiler::detail
