#include "athanor/base/warning.h"

#include <cstddef>
#include <new>

#include "athanor/base/log.h"

namespace athanor {
namespace {

thread_local WarningHandler* current = nullptr;
std::atomic<bool> always = false;

}  // namespace

void WarningHandler::process(const Warning& warning) {
  const SourceLocation& at = warning.source_location();
  if (warning.verbatim())
    ATHANOR_LOG(Warning, warning.msg());
  else
    ATHANOR_LOG(Warning, warning.msg(), " (", at.function, " at ", at.file, ":", at.line, ")");
}

WarningHandler* WarningUtils::get_warning_handler() noexcept {
  // Never destroyed: what warns while the program ends still asks for it.
  alignas(WarningHandler) static std::byte room[sizeof(WarningHandler)];
  static WarningHandler& log = *::new (static_cast<void*>(room)) WarningHandler;
  return current ? current : &log;
}
void WarningUtils::set_warning_handler(WarningHandler* handler) noexcept { current = handler; }
void WarningUtils::set_warnAlways(bool on) noexcept { always.store(on); }
bool WarningUtils::get_warnAlways() noexcept { return always.load(); }

void warn(const Warning& warning) { WarningUtils::get_warning_handler()->process(warning); }

}  // namespace athanor
