#pragma once
/// The one place that talks to oneDNN. Its threads are the caller's team (get_num_threads(), one inside parallel_for);
/// its results repeat on the same number of threads. Thread-safe. No type of oneDNN appears here.

#include "athanor/device/cpu/gemm.h"

namespace athanor::onednn {

/// c = alpha · a @ b + beta · bias for float32 by oneDNN's sgemm, where it is the faster one: large operands with a
/// unit stride each, bias absent or c itself. Returns false, having done nothing, for every other problem. Ignores
/// epilogue.
bool sgemm(const GemmProblem& g);

}  // namespace athanor::onednn
