#pragma once
/// What the processor at hand offers, for choices made at run time outside the code compiled once per SIMD target.

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "hwy/targets.h"

namespace athanor::cpu {

/// Whether a vector fills a cache line of 64 bytes (AVX-512), and one store does.
inline bool vectors_fill_lines() {
  static const bool wide = (hwy::SupportedTargets() & (HWY_AVX3 | HWY_AVX3_DL)) != 0;
  return wide;
}

/// Whether there are instructions that multiply bfloat16, matrix units or dot products.
inline bool multiplies_bfloat16() {
#if defined(__x86_64__)
  static const bool yes = __builtin_cpu_supports("avx512bf16") != 0;
  return yes;
#else
  return false;
#endif
}

inline bool made_by_amd() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0, &a, &b, &c, &d) != 0 && b == signature_AMD_ebx;
#else
  return false;
#endif
}

/// Whether Highway's sort beats a radix sort: with Intel's AVX-512. With AVX2 and less it was slower; AMD's AVX-512 was
/// not measured.
inline bool sorts_fast() {
  static const bool fast = vectors_fill_lines() && !made_by_amd();
  return fast;
}

/// Whether streaming to or from several pages in turns is faster than one page after the other: not where a line takes
/// two stores (docs/notes/memory_walks.md), nor on AMD's family 25, Zen 4 among it, whose hardware fetches ahead across
/// pages.
inline bool walks_pages_in_step() {
  static const bool in_step = [] {
    bool single = !vectors_fill_lines();
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    single =
        single || (made_by_amd() && __get_cpuid(1, &a, &b, &c, &d) != 0 && ((a >> 8) & 15) + ((a >> 20) & 255) == 25);
#endif
    return !single;
  }();
  return in_step;
}

/// How far ahead reductions ask where pages are walked in step, in bytes. A page, just where loads hit the same sets of
/// the first cache, took extremes up to a third longer on a Xeon with AMX.
inline constexpr std::int64_t kAskedAhead = 2048;

/// Whether asking for the row or piece a page ahead costs more than it brings: on Zen 4.
inline bool fetches_across_pages() { return vectors_fill_lines() && !walks_pages_in_step(); }

}  // namespace athanor::cpu
