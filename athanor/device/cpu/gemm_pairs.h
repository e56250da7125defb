#pragma once
/// Products of bfloat16 by the dot products of pairs ("AVX512_BF16") of recent x86 processors without matrix units,
/// summed in float32. Denormal numbers count as zeros. The order of each sum depends on k alone.

#include "athanor/device/cpu/gemm.h"

namespace athanor::pairs {

/// True if the processor has dot products of pairs, and no matrix units that we may use.
bool available();

/// True if gemm_block() takes the problem: bfloat16, rows or columns of a and of b without gaps between elements, and c
/// with unit stride along its rows.
bool suits(const GemmProblem& g);

/// False where turning over operands takes so long that others, if they take the problem, are faster.
bool pays(const GemmProblem& g);

/// One block of the output on the calling thread. Any alpha, beta, bias and epilogue.
void gemm_block(const GemmProblem& g);

}  // namespace athanor::pairs
