#include "athanor/base/log.h"

#include <unistd.h>

#include <atomic>

#include "athanor/base/env.h"

namespace athanor {
namespace {

constexpr const char* kNames[] = {"error", "warning", "info", "debug"};

int level_of_environment() {
  const std::string text = env::text("ATHANOR_LOG").value_or("warning");
  for (int i = 0; i < 4; ++i)
    if (text == kNames[i]) return i;
  return static_cast<int>(LogLevel::Warning);
}

std::atomic<int>& level() {
  static std::atomic<int> value = level_of_environment();
  return value;
}

std::atomic<int> log_rank = -1;

}  // namespace

bool log_enabled(LogLevel wanted) { return static_cast<int>(wanted) <= level().load(std::memory_order_relaxed); }
void set_log_level(LogLevel wanted) { level().store(static_cast<int>(wanted)); }
void set_log_rank(int rank) { log_rank.store(rank); }

void log_line(LogLevel wanted, const std::string& text) {
  std::string line = "[athanor]";
  if (const int rank = log_rank.load(); rank >= 0)
    line += detail::str("[rank ", rank, "]");
  else if (const auto name = env::text("RANK"))
    line += detail::str("[rank ", *name, "]");
  line += detail::str("[", kNames[static_cast<int>(wanted)], "] ", text, "\n");
  // One write, so that lines of several processes do not mix; a closed stderr is nobody's error.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace athanor
