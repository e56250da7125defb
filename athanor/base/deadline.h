#pragma once
/// Deadline: the one moment at which a wait, with all its retries, gives up.

#include <algorithm>
#include <chrono>
#include <climits>

namespace athanor {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// `timeout` from now; one that lies further away than a century means a century.
  static Deadline after(std::chrono::milliseconds timeout) {
    constexpr std::chrono::milliseconds kCentury = std::chrono::hours(876'000);
    return Deadline(Clock::now() + std::min(timeout, kCentury));
  }
  explicit Deadline(Clock::time_point at) : at_(at) {}

  Clock::time_point at() const { return at_; }
  bool expired() const { return Clock::now() >= at_; }
  /// Never negative; rounded up, so that a wait of this length ends after the deadline, not just before it.
  std::chrono::milliseconds remaining() const {
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()), std::chrono::milliseconds(0));
  }
  /// What poll(2) and epoll_wait(2) take.
  int poll_milliseconds() const { return static_cast<int>(std::min<long long>(remaining().count(), INT_MAX)); }
  /// The earlier of this one and `other`.
  Deadline sooner(Deadline other) const { return Deadline(std::min(at_, other.at_)); }

 private:
  Clock::time_point at_;
};

}  // namespace athanor
