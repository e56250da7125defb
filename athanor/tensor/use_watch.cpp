#include "athanor/tensor/use_watch.h"

#include "athanor/profiler/recording.h"

namespace athanor::detail {

std::atomic<UseWatcher> use_watcher{nullptr};

void watch_uses(UseWatcher watcher) {
  use_watcher.store(watcher, std::memory_order_release);
  // Ops look at one word only, the profiler's.
  if (watcher)
    profiler::detail::recording.fetch_or(profiler::detail::kWatched, std::memory_order_release);
  else
    profiler::detail::recording.fetch_and(~profiler::detail::kWatched, std::memory_order_release);
}

}  // namespace athanor::detail
