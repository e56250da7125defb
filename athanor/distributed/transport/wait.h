#pragma once
/// How a thread waits for another process: it spins for a moment, lets others run for a while, and then sleeps. On a
/// machine with fewer processors than ranks spinning is pointless, and beside the program's own threads impolite.

#include <sched.h>

#include <chrono>

#include "athanor/base/pause.h"

namespace athanor::distributed {

class Patience {
 public:
  /// `crowded`: more ranks than processors. `background`: beside threads of the program that have better to do.
  Patience(bool crowded, bool background)
      : spinning_(background ? 1
                  : crowded  ? 0
                             : 5),
        yielding_(background ? 5
                  : crowded  ? 1000
                             : 200) {}

  /// One turn of waiting; false when it is time to sleep.
  bool endure() {
    constexpr int kPauses = 16;
    if (turns_++ % kPauses != 0 && spinning_.count() > 0) {
      pause_processor();
      return true;
    }
    const auto now = Clock::now();
    if (turns_ == 1) start_ = now;
    if (now - start_ < spinning_) return true;
    spinning_ = std::chrono::microseconds(0);
    if (now - start_ > yielding_) return false;
    // Who is waited for may have been put on this very processor: it must get its turn, and be seen to want one.
    sched_yield();
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  int turns_ = 0;
  std::chrono::microseconds spinning_, yielding_;
  Clock::time_point start_;
};

}  // namespace athanor::distributed
