#pragma once
/// The line of a program that called a collective, for error messages and the flight recorder.

#include <cstdint>

namespace athanor::distributed {

/// As std::source_location, which clang-tidy cannot read in GCC's library before Clang 15.
struct CallSite {
  static constexpr CallSite current(const char* file = __builtin_FILE(), std::uint32_t line = __builtin_LINE()) {
    return {file, line};
  }
  constexpr const char* file_name() const { return file; }
  constexpr std::uint32_t line() const { return number; }

  const char* file = "";
  std::uint32_t number = 0;
};

}  // namespace athanor::distributed
