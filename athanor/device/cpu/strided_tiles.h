#pragma once
/// Element-wise loops over operands that are dense in different dims, such as x.t() + y.

#include "athanor/device/cpu/strided_loop.h"

namespace athanor::cpu {

/// Runs `spec` on `plan` by tiles that are turned over in the cache, if some inputs are dense in another dim than the
/// output and the plan's shape makes that worth while; else does nothing and returns false. `stream`: results bypass
/// the caches.
bool run_tiles(const LoopSpec& spec, const LoopPlan& plan, bool stream);

}  // namespace athanor::cpu
