#pragma once
/// Products of bfloat16 on the matrix units ("AMX") of recent x86 processors: tiles of 16 × 32 by 32 × 16 values,
/// summed in float32. Denormal numbers count as zeros. The order of each sum depends on k alone.

#include "athanor/device/cpu/gemm.h"

namespace athanor::amx {

/// True if processor and system have matrix units for bfloat16 and let this process use them. ATHANOR_AMX=0 says no.
/// The first call asks the system's permission, for all threads of the process.
bool available();

/// True if gemm_block() takes the problem: bfloat16, rows or columns of a and of b without gaps between elements, c
/// with unit stride along its rows, and enough work to pay for packing.
bool suits(const GemmProblem& g);

/// One block of the output on the calling thread. Any alpha, beta, bias and epilogue.
void gemm_block(const GemmProblem& g);

}  // namespace athanor::amx
