#pragma once
/// Environment variables. One that is empty counts as unset.

#include <cstdint>
#include <optional>
#include <string>

namespace athanor::env {

std::optional<std::string> text(const char* name);
/// A decimal integer in [least, greatest]. Throws ValueError naming the variable and its value otherwise.
std::optional<std::int64_t> integer(const char* name, std::int64_t least = INT64_MIN,
                                    std::int64_t greatest = INT64_MAX);
/// 1, true, yes, on (any case) are true, 0, false, no, off are false. Throws ValueError otherwise.
bool flag(const char* name, bool otherwise);

}  // namespace athanor::env

namespace athanor {

/// A decimal integer that takes up the whole text, or nothing.
std::optional<std::int64_t> parse_integer(const std::string& text);

}  // namespace athanor
