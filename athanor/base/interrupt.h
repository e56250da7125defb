#pragma once
/// How a program ends a wait of one of its threads: Python's Ctrl-C. Who may wait long asks now and then.

#include <chrono>

namespace athanor {

/// How often waits ask that no signal wakes.
inline constexpr std::chrono::milliseconds kInterruptPeriod{100};

/// `check` runs in the thread that waits, several times a second at most and soon after a signal; what it throws ends
/// the wait as a failure of the call. Null, as at the start, for none.
void set_interrupt_check(void (*check)());
/// Calls the check, if there is one.
void check_interrupt();

}  // namespace athanor
