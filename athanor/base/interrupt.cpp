#include "athanor/base/interrupt.h"

#include <atomic>

namespace athanor {

namespace {
std::atomic<void (*)()> check_now{nullptr};
}  // namespace

void set_interrupt_check(void (*check)()) { check_now.store(check, std::memory_order_release); }

void check_interrupt() {
  if (void (*check)() = check_now.load(std::memory_order_acquire)) check();
}

}  // namespace athanor
