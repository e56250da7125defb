#pragma once
/// Stream and Event, as c10 has them: the order in which a device runs kernels, and points in it. A queued device has
/// one stream; the host's runs everything at once, so that its events are past as soon as they are recorded.

#include <memory>

#include "athanor/tensor/stream.h"

namespace athanor {

class Event;

/// A handle; two of one device are equal. Thread-safe.
class Stream {
 public:
  /// The stream of `device`. Throws Error if there is no such device.
  explicit Stream(Device device);
  Device device() const { return device_; }
  /// True if all work is done.
  bool query() const;
  /// Waits for all work and rethrows its failure.
  void synchronize() const;
  /// Work enqueued from now on runs after `event`. The caller does not wait, unless the stream is the host's.
  void wait(const Event& event) const;
  /// Work enqueued from now on runs after what `other` was given so far.
  void wait_stream(const Stream& other) const;
  Event record_event() const;
  friend bool operator==(const Stream& a, const Stream& b) { return a.device_ == b.device_; }

 private:
  Device device_;
};

/// A point in a stream's order. Thread-safe but for record().
class Event {
 public:
  /// With `enable_timing`, elapsed_time can be asked.
  explicit Event(bool enable_timing = false) : timed_(enable_timing) {}
  /// The point after everything the stream was given so far. Recording again moves the event.
  void record(const Stream& stream);
  /// Work that `stream` is given from now on runs after this event; a no-op for an event never recorded.
  void block(const Stream& stream) const { stream.wait(*this); }
  void wait(const Stream& stream) const { stream.wait(*this); }
  /// True once everything before the event has run, and for an event never recorded.
  bool query() const { return point_.query(); }
  /// Blocks until then. Rethrows a failure of the stream.
  void synchronize() const { point_.synchronize(); }
  /// Milliseconds between this event and `end`. Throws Error unless both were made with timing, recorded and are past.
  double elapsed_time(const Event& end) const;
  double elapsedTime(const Event& end) const { return elapsed_time(end); }
  bool was_recorded() const { return recorded_; }

 private:
  friend class Stream;
  struct Stamp;
  QueuePoint point_;
  std::shared_ptr<Stamp> stamp_;
  bool timed_, recorded_ = false;
};

/// The stream that work of `device` goes to; without an index, of the current cuda device.
inline Stream current_stream(Device device) { return Stream(device); }

}  // namespace athanor
