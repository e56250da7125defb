#pragma once
/// Errors. A mistake of the caller throws `Error` or a subclass whose message names the operation, the actual values
/// and what was expected; a mistake of this library asserts in debug builds. Thread-safe.

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace athanor {

/// Base of everything this library throws. `what()` is the message; `where()` is "file:line" of the check.
class __attribute__((visibility("default"))) Error : public std::exception {
 public:
  explicit Error(std::string message, const char* where = "");
  const char* what() const noexcept override { return message_.c_str(); }
  /// Same text as what(); libtorch's name.
  const char* what_without_backtrace() const noexcept { return message_.c_str(); }
  const char* msg() const noexcept { return message_.c_str(); }
  const char* where() const noexcept { return where_; }
  /// Appends a line such as "in net.conv2"; used while the exception travels through modules.
  void add_context(std::string_view line);

 private:
  std::string message_;
  const char* where_;
};

#define ATHANOR_ERROR_TYPE(name)                                     \
  class __attribute__((visibility("default"))) name : public Error { \
   public:                                                           \
    using Error::Error;                                              \
  }
ATHANOR_ERROR_TYPE(IndexError);           ///< an index or dimension out of range
ATHANOR_ERROR_TYPE(ValueError);           ///< a value outside its domain
ATHANOR_ERROR_TYPE(TypeError);            ///< a dtype or C++ type that cannot be used here
ATHANOR_ERROR_TYPE(NotImplementedError);  ///< a combination this build does not support
ATHANOR_ERROR_TYPE(OutOfMemoryError);     ///< an allocation failed or passed its limit
ATHANOR_ERROR_TYPE(LinAlgError);          ///< a matrix that has no inverse, or no Cholesky factor
ATHANOR_ERROR_TYPE(IoError);              ///< a file could not be read or written, or its content is malformed
#undef ATHANOR_ERROR_TYPE

namespace detail {

void append(std::string& out, std::string_view text);
void append(std::string& out, const char* text);
void append(std::string& out, char value);
void append(std::string& out, bool value);
void append(std::string& out, double value);
void append_signed(std::string& out, long long value);
void append_unsigned(std::string& out, unsigned long long value);
/// Appends "[2, 3]", the form in which shapes are shown everywhere.
void append_list(std::string& out, const std::int64_t* values, std::size_t count);
inline void append(std::string& out, float value) { append(out, static_cast<double>(value)); }
inline void append(std::string& out, const std::string& text) { append(out, std::string_view(text)); }
inline void append(std::string& out, const std::vector<std::int64_t>& values) {
  append_list(out, values.data(), values.size());
}
template <class T>
requires std::is_integral_v<T>
void append(std::string& out, T value) {
  if constexpr (std::is_signed_v<T>)
    append_signed(out, value);
  else
    append_unsigned(out, value);
}

/// Concatenates its arguments. Types opt in with `void append(std::string&, const T&)` found by argument lookup.
template <class... Args>
std::string str(const Args&... args) {
  std::string out;
  (append(out, args), ...);
  return out;
}

template <class E, class... Args>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const char* where, const Args&... args) {
  throw E(str(args...), where);
}

}  // namespace detail
}  // namespace athanor

#define ATHANOR_STRING_(x) #x
#define ATHANOR_STRING(x) ATHANOR_STRING_(x)
#define ATHANOR_WHERE __FILE_NAME__ ":" ATHANOR_STRING(__LINE__)

/// Throws `type` with the concatenated message.
#define ATHANOR_THROW(type, ...) ::athanor::detail::fail<::athanor::type>(ATHANOR_WHERE, __VA_ARGS__)
/// Throws Error with the concatenated message unless `condition` holds.
#define ATHANOR_CHECK(condition, ...) \
  (__builtin_expect(static_cast<bool>(condition), 1) ? void() : ATHANOR_THROW(Error, __VA_ARGS__))
#define ATHANOR_CHECK_TYPE(type, condition, ...) \
  (__builtin_expect(static_cast<bool>(condition), 1) ? void() : ATHANOR_THROW(type, __VA_ARGS__))
#define ATHANOR_CHECK_INDEX(condition, ...) ATHANOR_CHECK_TYPE(IndexError, condition, __VA_ARGS__)
#define ATHANOR_CHECK_VALUE(condition, ...) ATHANOR_CHECK_TYPE(ValueError, condition, __VA_ARGS__)
