#include "athanor/base/env.h"

#include <strings.h>

#include <charconv>
#include <cstdlib>

#include "athanor/base/error.h"

namespace athanor {

std::optional<std::int64_t> parse_integer(const std::string& text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

namespace env {

std::optional<std::string> text(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<std::int64_t> integer(const char* name, std::int64_t least, std::int64_t greatest) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const auto number = parse_integer(*value);
  ATHANOR_CHECK_VALUE(number && *number >= least && *number <= greatest, "environment variable ", name, "='", *value,
                      "': expected an integer from ", least, " to ", greatest);
  return number;
}

bool flag(const char* name, bool otherwise) {
  const auto value = text(name);
  if (!value) return otherwise;
  for (const char* yes : {"1", "true", "yes", "on"})
    if (strcasecmp(value->c_str(), yes) == 0) return true;
  for (const char* no : {"0", "false", "no", "off"})
    if (strcasecmp(value->c_str(), no) == 0) return false;
  ATHANOR_THROW(ValueError, "environment variable ", name, "='", *value, "': expected 1, 0, true or false");
}

}  // namespace env
}  // namespace athanor
