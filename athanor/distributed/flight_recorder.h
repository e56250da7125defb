#pragma once
/// FlightRecorder: what a group has been doing, for the day it hangs or breaks. Always on: the last 1024 calls of each
/// group, written without locks in some tens of nanoseconds.

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "athanor/distributed/backend.h"
#include "athanor/distributed/store/store.h"

namespace athanor::distributed {

enum class CallState : std::uint8_t { Scheduled, Started, Completed, Failed };

struct FlightRecord {
  static constexpr int kMaxDims = 5;

  OpType op{};
  DType dtype{};
  ReduceOp::Kind reduce{};
  CallState state{};
  std::int32_t root = -1;      ///< the other side of send and recv
  std::uint64_t sequence = 0;  ///< 0 for send and recv
  std::int64_t count = 0;
  std::int32_t ndim = 0;
  std::uint32_t line = 0;
  const char* file = "";
  std::array<std::int64_t, kMaxDims> shape{};  ///< the first dimensions
  /// Nanoseconds of the steady clock; 0: not yet.
  std::int64_t scheduled_ns = 0, started_ns = 0, ended_ns = 0;

  /// "#17 all_reduce(SUM) of float32 [3, 4] at train.cpp:42: started 1.2 s ago".
  std::string text(std::int64_t now_ns) const;
};

class ProcessGroup;

class FlightRecorder {
 public:
  static constexpr std::size_t kCapacity = 1024;
  using Clock = std::chrono::steady_clock;

  /// `group`: its name, for the heading of dumps.
  FlightRecorder(std::string group, int rank, int size);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// Notes a call and returns its ticket, by which it is known from then on. From any thread.
  std::uint64_t note(const Call& call, CallState state);
  void started(std::uint64_t ticket);
  void ended(std::uint64_t ticket, bool well);

  /// Oldest first. Calls noted meanwhile may be left out.
  std::vector<FlightRecord> records() const;
  /// A heading and the last `most` calls, one a line.
  std::string text(std::size_t most = kCapacity) const;
  /// The earliest collective that has begun and not ended well.
  std::optional<FlightRecord> current() const;
  /// One line: how far this rank has come and what it is in now.
  std::string state_text() const;

  const std::string& group() const { return group_; }
  int rank() const { return rank_; }

 private:
  // Words that are written one by one; a record that was overwritten while it was read shows by its ticket.
  static constexpr std::size_t kWords = 13;
  struct Slot {
    std::atomic<std::uint64_t> ticket{0};
    std::array<std::atomic<std::uint64_t>, kWords> words{};
  };
  void set_state(Slot& slot, CallState state);
  /// The processor's own count of time where it has one: reading the clock would cost more than all the rest.
  static std::uint64_t ticks();

  const std::uint64_t first_ticks_ = ticks();
  const Clock::time_point first_time_ = Clock::now();

  std::string group_;
  int rank_, size_;
  std::atomic<std::uint64_t> next_{1};
  std::unique_ptr<Slot[]> slots_;
};

/// Text of all groups of the process, as SIGUSR1 prints it.
std::string flight_records_text();

namespace internals {
/// Of all groups of the process, in the order they were made. No group comes or goes meanwhile.
void for_each_flight_recorder(const std::function<void(const FlightRecorder&)>& act);
/// From now on SIGUSR1 prints to stderr, by a thread of its own, flight_records_text() and a line for each of the
/// `size` processes that meet at the store; the same thread answers when another process got the signal. A handler that
/// was there is called as well. Nothing happens if ATHANOR_FLIGHT_RECORDER_SIGNAL is 0.
/// Without the store, it asks the members of `group`.
void start_flight_signal(std::shared_ptr<Store> store, int rank, int size, std::weak_ptr<ProcessGroup> group);
/// Restores the previous handler.
void stop_flight_signal();
/// What this process is doing, as it crosses stores and connections.
std::string process_flight_state();
/// Leaves this rank's state in the store, for the others' reports.
void leave_flight_record(Store& store, const FlightRecorder& recorder);
/// The same; then waits a moment for those of the other ranks and returns what all of them say,
/// a line per rank, with those that are behind named. Ranks that `lost` knows to be gone are not waited for. Ends half
/// a second after `patience` at the latest, even if a TCPStore does not answer. What the store does not have, ranks are
/// asked for by `talk`, if that is not null. Where `lost` knows one, it ends within 0.4 seconds; if that shows later,
/// 0.1 seconds after that.
std::string merged_flight_report(Store& store, const FlightRecorder& recorder, int size,
                                 const std::function<std::vector<int>()>& lost, std::chrono::milliseconds patience,
                                 StateTalk* talk);
/// The same of all processes of a group, without a store.
std::string merged_flight_report(StateTalk& talk, int rank, int size, const std::vector<int>& gone,
                                 std::chrono::milliseconds patience);

/// What processes that meet at a store ask each other when one of them is told to report. One thread at a time.
class FlightQuestions {
 public:
  FlightQuestions(std::shared_ptr<Store> store, int rank, int size);
  /// Answers the others until the descriptor `stop` is readable. Throws DistStoreError if the store is gone.
  void answer_until(int stop);
  /// What all processes are doing, a line each. If another one asked just now, says which; that one tells.
  std::string ask(std::chrono::milliseconds patience);

 private:
  std::string key() const;
  PrefixStore answers() const;

  std::shared_ptr<Store> store_;
  int rank_, size_;
  std::uint64_t next_ = 1;  // the number of the question that comes next
  std::string asked_by_;    // who asked the last one
  Deadline fresh_ = Deadline::after(std::chrono::milliseconds(0));
};
/// The same, asked by one who is no rank, called `name`; of the ranks in `gone` nobody expects an answer. Empty if none
/// came.
std::string ask_ranks_from_outside(const std::shared_ptr<Store>& store, int size, const std::vector<int>& gone,
                                   const std::string& name, std::chrono::milliseconds patience);
}  // namespace internals

}  // namespace athanor::distributed
