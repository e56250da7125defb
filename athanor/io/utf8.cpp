#include "athanor/io/utf8.h"

#include <cstdio>

namespace athanor::io {

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(at);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xc2 ? 0
                             : first < 0xe0 ? 2
                             : first < 0xf0 ? 3
                             : first < 0xf5 ? 4
                                            : 0;
  if (length == 0 || text.size() - at < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  // Longer forms of shorter ones, halves of UTF-16's pairs, and what is beyond the last plane.
  const unsigned second = length > 1 ? byte(at + 1) : 0;
  const bool bad = (first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
                   (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90);
  return bad ? 0 : length;
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    length = utf8_length(text, at);
    if (length == 0) return false;
  }
  return true;
}

std::string readable(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length > 0) {
      out += text.substr(at, length);
      at += length;
      continue;
    }
    char code[8];
    std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned char>(text[at++]));
    out += code;
  }
  return out;
}

}  // namespace athanor::io
