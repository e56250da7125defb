#pragma once
/// How a thread waits for another process: it spins for a moment, lets others run for a while, and then sleeps. On a
/// machine with fewer processors than ranks spinning is pointless, and beside the program's own threads impolite.

#include <sched.h>

#include <chrono>

namespace athanor::distributed {

/// Processors this process may run on.
inline int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

inline void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Patience {
 public:
  Patience(bool crowded, bool background)
      : spins_(background ? 20
               : crowded  ? 4
                          : 2000),
        yielding_(background ? 5
                  : crowded  ? 1000
                             : 200) {}

  /// One turn of waiting; false when it is time to sleep.
  bool endure() {
    if (turns_ < spins_) {
      ++turns_;
      pause_processor();
      return true;
    }
    const auto now = std::chrono::steady_clock::now();
    if (turns_ == spins_) {
      ++turns_;
      yield_until_ = now + yielding_;
    }
    if (now >= yield_until_) return false;
    sched_yield();
    return true;
  }

 private:
  int turns_ = 0, spins_;
  std::chrono::microseconds yielding_;
  std::chrono::steady_clock::time_point yield_until_;
};

}  // namespace athanor::distributed
