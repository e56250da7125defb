#pragma once
/// Warnings that a program can take itself, by libtorch's names: what TORCH_WARN says goes to the handler of the
/// thread, and without one to the log.

#include <atomic>
#include <cstdint>
#include <string>

#include "athanor/base/error.h"

namespace athanor {

struct SourceLocation {
  const char* function;
  const char* file;
  std::uint32_t line;
};

class Warning {
 public:
  Warning(SourceLocation where, std::string message, bool verbatim = false)
      : where_(where), message_(std::move(message)), verbatim_(verbatim) {}
  const SourceLocation& source_location() const { return where_; }
  const std::string& msg() const { return message_; }
  /// Shown without the source's place.
  bool verbatim() const { return verbatim_; }

 private:
  SourceLocation where_;
  std::string message_;
  bool verbatim_;
};

/// Derive to take warnings.
class WarningHandler {
 public:
  virtual ~WarningHandler() = default;
  /// Writes a line to the log unless overridden.
  virtual void process(const Warning& warning);
};

namespace WarningUtils {
/// The calling thread's handler; never null.
WarningHandler* get_warning_handler() noexcept;
/// Takes warnings of the calling thread from now on; null puts the log back. The handler must outlive its use.
void set_warning_handler(WarningHandler* handler) noexcept;
/// Whether what warns once warns every time; for tests.
void set_warnAlways(bool on) noexcept;
bool get_warnAlways() noexcept;
/// set_warnAlways for a scope.
class WarnAlways {
 public:
  explicit WarnAlways(bool on = true) : before_(get_warnAlways()) { set_warnAlways(on); }
  ~WarnAlways() { set_warnAlways(before_); }
  WarnAlways(const WarnAlways&) = delete;
  WarnAlways& operator=(const WarnAlways&) = delete;

 private:
  bool before_;
};
}  // namespace WarningUtils

/// Hands the warning to the thread's handler.
void warn(const Warning& warning);

}  // namespace athanor
