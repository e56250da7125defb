#include "athanor/base/error.h"

#include <charconv>
#include <utility>

namespace athanor {

Error::Error(std::string message, const char* where) : message_(std::move(message)), where_(where) {}

void Error::add_context(std::string_view line) {
  message_ += '\n';
  message_ += line;
}

namespace detail {

void append(std::string& out, std::string_view text) { out += text; }
void append(std::string& out, const char* text) { out += text; }
void append(std::string& out, char value) { out += value; }
void append(std::string& out, bool value) { out += value ? "true" : "false"; }

void append(std::string& out, double value) {
  char buffer[40];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  out.append(buffer, end);
}

void append_signed(std::string& out, long long value) { out += std::to_string(value); }
void append_unsigned(std::string& out, unsigned long long value) { out += std::to_string(value); }

void append_list(std::string& out, const std::int64_t* values, std::size_t count) {
  out += '[';
  for (std::size_t i = 0; i < count; ++i) {
    if (i) out += ", ";
    out += std::to_string(values[i]);
  }
  out += ']';
}

}  // namespace detail
}  // namespace athanor
