#pragma once
/// Chooses the instruction sets that kernels are compiled for. Include it before any Highway header in every kernel
/// file, so that all of them build the same three targets: the baseline (SSE4 on x86-64; the flags are in
/// CMakeLists.txt), AVX2 and AVX-512 ("AVX3"). Shape of a kernel file `foo.cpp`:
///
///     #undef HWY_TARGET_INCLUDE
///     #define HWY_TARGET_INCLUDE "athanor/device/cpu/foo.cpp"
///     #include "athanor/device/cpu/simd_targets.h"
///     #include "hwy/foreach_target.h"
///     #include "hwy/highway.h"
///     HWY_BEFORE_NAMESPACE();
///     namespace athanor::HWY_NAMESPACE {
///     namespace hn = hwy::HWY_NAMESPACE;
///     void foo(...) { ... }
///     }
///     HWY_AFTER_NAMESPACE();
///     #if HWY_ONCE
///     namespace athanor { HWY_EXPORT(foo); ... HWY_DYNAMIC_DISPATCH(foo)(...); }
///     #endif
///
/// AVX-512 takes the compiler as long as the other two together. A file whose loops need to be right rather than as
/// fast as can be (integers, mostly) starts with `#define ATHANOR_NO_AVX512`.

#ifdef HWY_HIGHWAY_INCLUDED
#error "include athanor/device/cpu/simd_targets.h before the headers of Highway"
#endif

#ifndef HWY_DISABLED_TARGETS
#ifdef ATHANOR_NO_AVX512
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_AVX3)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif
#endif
