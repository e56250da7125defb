#pragma once
/// The profiler: what a program's ops cost, as a table and as a trace for chrome://tracing or Perfetto.
///
///     profiler::Profile profile({.record_shapes = true});
///     { profiler::RecordFunction scope("forward"); loss = net(x); }
///     loss.backward();
///     profile.stop();
///     std::cout << profile.key_averages().table("self_cpu_time_total", 10);
///     profile.export_chrome_trace("trace.json");

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "athanor/profiler/record.h"

namespace athanor::profiler {

/// "cpu_op", "backward", "kernel", "collective" or "user_annotation": the categories of a Chrome trace.
const char* category_of(EventKind kind);

struct ProfileOptions {
  bool record_shapes = false;   ///< note the shapes of every op's inputs
  bool profile_memory = false;  ///< note how many bytes every event allocated on the host less those it freed
  /// Further events are counted, not kept; an event takes about 100 bytes.
  std::size_t max_events = 1'000'000;
};

/// Something that happened in one thread. Times are nanoseconds since the profile began.
struct Event {
  std::string name;  ///< "conv2d", "add_", "ConvolutionBackward0", or a scope's
  EventKind kind = EventKind::Op;
  std::uint32_t thread = 0;  ///< index into Profile::threads()
  std::string device;        ///< "cpu", or "cpu:1", "cuda:0" of a queue
  std::int64_t start = 0, duration = 0;
  std::int64_t self = 0;  ///< duration without that of the events inside it
  /// Index of the event around it, in its thread; -1 if there is none.
  std::int64_t parent = -1;
  /// Number of the backward node that this call made or, for a backward event, that runs; 0 if there is none. Equal
  /// numbers link a backward event with its forward call.
  std::uint64_t sequence = 0;
  std::vector<std::vector<std::int64_t>> shapes;  ///< of tensor inputs, if asked for
  std::int64_t bytes = 0, self_bytes = 0;         ///< allocated less freed, if asked for
};

/// A thread that events come from.
struct ThreadInfo {
  std::int64_t id = 0;  ///< the system's
  std::string name;     ///< "main", "thread 2", "queue of cpu:1", "queue of cuda:0"
};

/// Events of one name taken together.
struct EventAverage {
  std::string name;
  std::string shapes;  ///< "[[64, 1, 28, 28], …]" if grouped by them
  std::int64_t count = 0;
  std::int64_t total = 0;  ///< nanoseconds; an event inside another of its group counts once
  std::int64_t self = 0;
  std::int64_t bytes = 0, self_bytes = 0;
  double average() const { return count > 0 ? static_cast<double>(total) / static_cast<double>(count) : 0; }
};

/// The averages of a profile, sorted by total self time.
class KeyAverages {
 public:
  KeyAverages(std::vector<EventAverage> rows, bool with_memory) : rows_(std::move(rows)), with_memory_(with_memory) {}
  const std::vector<EventAverage>& rows() const { return rows_; }
  std::size_t size() const { return rows_.size(); }
  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.end(); }
  /// PyTorch's table. `sort_by`: self_cpu_time_total, cpu_time_total, cpu_time (the average), count, cpu_memory_usage
  /// or self_cpu_memory_usage, largest first; empty keeps the order. At most `row_limit` rows, all if negative. Throws
  /// ValueError for another key.
  std::string table(std::string_view sort_by = {}, std::int64_t row_limit = 100) const;

 private:
  std::vector<EventAverage> rows_;
  bool with_memory_;
};

/// Records from its construction to stop() what all threads of the process do. One at a time: the constructor throws
/// Error while another one records. stop() may be called while other threads work: what they are in the middle of ends
/// there. Not to be used by several threads at once.
class Profile {
 public:
  explicit Profile(const ProfileOptions& options = {});
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  void stop();
  bool is_recording() const { return recording_; }

  // What follows throws Error before stop().

  /// By thread and, within a thread, by start; parents before what is inside them.
  const std::vector<Event>& events() const;
  const std::vector<ThreadInfo>& threads() const;
  /// Number of events past `max_events`.
  std::int64_t dropped() const;
  KeyAverages key_averages(bool group_by_input_shape = false) const;
  /// Writes the trace as JSON: one complete event each, named threads, arrows from forward calls to their backward
  /// events. Throws IoError. Defined in io/chrome_trace.cpp.
  void export_chrome_trace(const std::string& path) const;

 private:
  void check_stopped(const char* what) const;

  ProfileOptions options_;
  bool recording_ = false;
  std::vector<Event> events_;
  std::vector<ThreadInfo> threads_;
  std::int64_t dropped_ = 0;
};

/// Names what happens in its scope. Ends in the thread it began in.
class RecordFunction : public detail::Scope {
 public:
  explicit RecordFunction(std::string_view name) : Scope({.name = name, .kind = EventKind::Scope}) {}
};
/// PyTorch's name of it.
using record_function = RecordFunction;

/// libtorch's profile of a scope: writes the trace to a file at its end. A file that cannot be written is a warning.
class RecordProfile {
 public:
  explicit RecordProfile(std::string filename) : filename_(std::move(filename)) {}
  ~RecordProfile();

 private:
  Profile profile_;
  std::string filename_;
};

}  // namespace athanor::profiler
