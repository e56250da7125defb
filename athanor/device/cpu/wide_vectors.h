#pragma once
/// What the processor at hand offers, for choices made at run time outside the code compiled once per SIMD target.

#include "hwy/targets.h"

namespace athanor::cpu {

/// Whether a vector fills a cache line of 64 bytes (AVX-512), and one store does.
inline bool vectors_fill_lines() {
  static const bool wide = (hwy::SupportedTargets() & (HWY_AVX3 | HWY_AVX3_DL)) != 0;
  return wide;
}

}  // namespace athanor::cpu
