#include "athanor/tensor/event.h"

#include <chrono>

#include "athanor/base/error.h"

namespace athanor {

struct Event::Stamp {
  std::atomic<std::int64_t> nanoseconds{0};  // 0: not past yet
  void set() {
    nanoseconds.store(std::chrono::steady_clock::now().time_since_epoch().count(), std::memory_order_release);
  }
};

namespace {

struct WaitTask final : Task {
  explicit WaitTask(QueuePoint point) : Task("wait_event") {
    after.push_back(point);
    always = true;
  }
  void run() override {}
};

template <class Stamp>
struct StampTask final : Task {
  explicit StampTask(std::shared_ptr<Stamp> stamp) : Task("record_event"), stamp(std::move(stamp)) { always = true; }
  void run() override { stamp->set(); }
  std::shared_ptr<Stamp> stamp;
};

}  // namespace

Stream::Stream(Device device) : device_(resolve(device)) {}

bool Stream::query() const {
  Queue* queue = detail::queue_of(device_);
  return !queue || queue->record().query();
}

void Stream::synchronize() const { athanor::synchronize(device_); }

void Stream::wait(const Event& event) const {
  if (!event.point_.queue()) return;
  Queue* queue = detail::queue_of(device_);
  if (!queue)
    event.synchronize();
  else if (queue != event.point_.queue())  // else the order says so already
    queue->enqueue(std::make_unique<WaitTask>(event.point_));
}

void Stream::wait_stream(const Stream& other) const { wait(other.record_event()); }

Event Stream::record_event() const {
  Event event;
  event.record(*this);
  return event;
}

void Event::record(const Stream& stream) {
  recorded_ = true;
  if (timed_) stamp_ = std::make_shared<Stamp>();
  Queue* queue = detail::queue_of(stream.device());
  if (!queue) {
    point_ = {};
    if (timed_) stamp_->set();
    return;
  }
  if (timed_) queue->enqueue(std::make_unique<StampTask<Stamp>>(stamp_));
  point_ = queue->record();
}

double Event::elapsed_time(const Event& end) const {
  ATHANOR_CHECK(timed_ && end.timed_, "elapsed_time: both events must be created with enable_timing = true");
  ATHANOR_CHECK(recorded_ && end.recorded_, "elapsed_time: both events must be recorded before");
  ATHANOR_CHECK(query() && end.query(), "elapsed_time: both events must be past; call synchronize() on them before");
  const auto ns =
      end.stamp_->nanoseconds.load(std::memory_order_acquire) - stamp_->nanoseconds.load(std::memory_order_acquire);
  return static_cast<double>(ns) * 1e-6;
}

}  // namespace athanor
