#pragma once
/// Tests that fork beside threads. The thread sanitizer does not know a child of a process of several threads that
/// starts threads itself, and ends it: under that sanitizer such tests are skipped by name. The address sanitizer's
/// allocator (GCC 12) keeps its locks over a fork, so that a child of threads that allocate may wait for ever.

#include <gtest/gtest.h>

#include "tests/thread_count.h"

#ifdef __SANITIZE_THREAD__
#define ATHANOR_SKIP_IF_FORKS_ARE_UNSEEN() \
  GTEST_SKIP() << "the thread sanitizer does not follow a fork beside threads whose child starts threads"
#else
#define ATHANOR_SKIP_IF_FORKS_ARE_UNSEEN() static_cast<void>(0)
#endif

/// For tests that fork beside threads that allocate.
#ifdef __SANITIZE_ADDRESS__
#define ATHANOR_SKIP_IF_FORKS_KEEP_LOCKS() \
  GTEST_SKIP() << "the address sanitizer's allocator keeps its locks over a fork beside threads that allocate"
#else
#define ATHANOR_SKIP_IF_FORKS_KEEP_LOCKS() static_cast<void>(0)
#endif

namespace athanor {

/// The same in a helper: skips the test that calls it if there are threads beside the caller's.
inline void skip_if_forks_are_unseen() {
#ifdef __SANITIZE_THREAD__
  // One is the sanitizer's own.
  if (number_of_threads() <= 2) return;
  [] { ATHANOR_SKIP_IF_FORKS_ARE_UNSEEN(); }();
  throw testing::AssertionException(
      testing::TestPartResult(testing::TestPartResult::kSkip, __FILE__, __LINE__, "the rest of the test"));
#endif
}

}  // namespace athanor
