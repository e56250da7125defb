#include "athanor/base/warning.h"

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
  static WarningHandler& log = *new WarningHandler;
  return current ? current : &log;
}
void WarningUtils::set_warning_handler(WarningHandler* handler) noexcept { current = handler; }
void WarningUtils::set_warnAlways(bool on) noexcept { always.store(on); }
bool WarningUtils::get_warnAlways() noexcept { return always.load(); }

void warn(const Warning& warning) { WarningUtils::get_warning_handler()->process(warning); }

}  // namespace athanor
