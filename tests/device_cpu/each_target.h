#pragma once

#include <gtest/gtest.h>

#include <string>

#include "athanor/device/cpu/pointwise_tables.h"

namespace athanor::testing {

/// Runs a test's body with each of the instruction sets that kernels are compiled for and the processor has.
template <class F>
void on_each_target(F&& body) {
  for (int n = 0; cpu::use_simd_target(n); ++n) {
    SCOPED_TRACE("instruction set " + std::to_string(n));
    body();
  }
  cpu::use_simd_target(0);
}

}  // namespace athanor::testing
