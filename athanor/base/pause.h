#pragma once
/// A moment of a thread that waits in a loop.

namespace athanor {

/// Tells the processor that the loop around it waits.
inline void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace athanor
