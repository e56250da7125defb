#pragma once
/// Log lines on stderr: "[athanor][rank 3][debug] text", each written whole. ATHANOR_LOG=error|warning|info|debug sets
/// what is shown (default warning). Thread-safe.

#include <string>

#include "athanor/base/error.h"

namespace athanor {

enum class LogLevel { Error, Warning, Info, Debug };

bool log_enabled(LogLevel level);
/// Overrides ATHANOR_LOG.
void set_log_level(LogLevel level);
/// The rank shown from now on; before that it is RANK's value, if there is one.
void set_log_rank(int rank);
void log_line(LogLevel level, const std::string& text);

}  // namespace athanor

/// Concatenates its arguments only if the line is shown.
#define ATHANOR_LOG(level, ...)                                                             \
  do {                                                                                      \
    if (::athanor::log_enabled(::athanor::LogLevel::level))                                 \
      ::athanor::log_line(::athanor::LogLevel::level, ::athanor::detail::str(__VA_ARGS__)); \
  } while (false)
