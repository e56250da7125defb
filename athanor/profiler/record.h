#pragma once
/// What ops, the engine, queues and process groups tell the profiler. Programs use athanor/profiler/profiler.h. While
/// nobody profiles, a scope costs one relaxed load.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace athanor::profiler {

/// What an event is: a call of an op, a node of the backward pass, a kernel on a queued device, a collective of a
/// process group, or a scope that the program named.
enum class EventKind : std::uint8_t { Op, Backward, Kernel, Collective, Scope };

namespace detail {

/// How an op was called: `add`, `add_`, `add_out`.
enum class Form : std::uint8_t { Plain, InPlace, Out };

/// Number of the recording under way, 0 if there is none.
extern std::atomic<std::uint32_t> recording;
inline bool is_recording() { return recording.load(std::memory_order_relaxed) != 0; }

struct Start {
  /// An op's schema or any other text that lives as long as the program: kept by its address, up to the first of ".(".
  const char* fixed_name = nullptr;
  /// Any other text; copied.
  std::string_view name = {};
  EventKind kind = EventKind::Op;
  Form form = Form::Plain;
  std::int16_t device = -1;  ///< a queued device, by device_number of recording.h; -1 is the host
  /// Shapes of the inputs, each as its number of dims and its sizes; asked for only if `records_shapes()`.
  const std::int64_t* shapes = nullptr;
  std::size_t shape_words = 0;
  std::uint64_t sequence = 0;  ///< number of the backward node
};
bool records_shapes();
/// Notes that something begins in this thread, inside what began and has not ended. The token ends it; 0 if it was not
/// noted (nobody records, or the limit is reached).
[[gnu::cold]] std::uint64_t begin(const Start& start) noexcept;
/// Ends it, and what was left open inside. Tokens of an earlier recording are ignored.
[[gnu::cold]] void end(std::uint64_t token) noexcept;
/// The innermost open event of this thread made the backward node of this number; the last call counts.
void note_sequence(std::uint64_t number) noexcept;

/// Bytes that the calling thread allocated less those it freed; set by the host's allocator.
extern std::int64_t (*thread_bytes)();

/// An event as long as its scope.
class Scope {
 public:
  Scope() = default;
  explicit Scope(const Start& start) {
    if (is_recording()) token_ = begin(start);
  }
  ~Scope() {
    if (__builtin_expect(token_ != 0, 0)) end(token_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 protected:
  std::uint64_t token_ = 0;
};

}  // namespace detail
}  // namespace athanor::profiler
