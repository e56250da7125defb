#pragma once
/// The one place that talks to oneDNN. Its threads are the caller's team (get_num_threads(), one inside parallel_for);
/// its results repeat on the same number of threads. Thread-safe. No type of oneDNN appears here.

#include "athanor/device/cpu/gemm.h"

namespace athanor::onednn {

/// c = alpha · a @ b + beta · bias for float32 by oneDNN's sgemm, where it is the faster one: large operands with a
/// unit stride each, bias absent or c itself. Returns false, having done nothing, for every other problem. Ignores
/// epilogue.
bool sgemm(const GemmProblem& g);

/// The products by oneDNN's matmul: for bfloat16, summed in float32, where it has a kernel for this processor and they
/// are large enough; for float32 in round sizes where it is the fastest. Alpha 1, epilogue None, bias absent, one per
/// column, or c itself. Returns false, having done nothing, for every other problem. Matrix units take denormal numbers
/// as zeros.
bool matmul(const GemmProblem& g, const GemmBatch& batch);

/// Keeps every further call out of oneDNN, so that the functions above return false and kernels of our own take over,
/// and waits for the calls under way on other threads, ten seconds at most. For exit handlers, which the first call
/// registers: oneDNN frees the code that it made with
/// its static objects, also under threads that still run it. Returns whether all calls have ended. Final.
bool close();

}  // namespace athanor::onednn
