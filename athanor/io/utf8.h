#pragma once
/// Which bytes are UTF-8, as JSON and Python want texts.

#include <cstddef>
#include <string>
#include <string_view>

namespace athanor::io {

/// Bytes of the UTF-8 character at `at`, which lies in the text; 0 if there is none.
std::size_t utf8_length(std::string_view text, std::size_t at);
bool is_utf8(std::string_view text);
/// For messages: bytes that are no UTF-8 as "\\xff".
std::string readable(std::string_view text);

}  // namespace athanor::io
