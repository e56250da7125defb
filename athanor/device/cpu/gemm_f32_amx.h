#pragma once
/// Products of float32 on the matrix units, which multiply bfloat16: each value is the sum of three of bfloat16, whose
/// 24 bits are all of its own, and the six largest of the nine products are summed in float32. What is left out is at
/// most 2^-24 of a product, no more than a multiply-add of float32 may round off, and 2^-27 in the root mean square,
/// besides the roundings of the sums (Henry, Tang, Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype
/// For Higher-Precision Computations, 2019). Values are scaled by a power of two on the way, so that nothing is lost to
/// the units, which take denormal numbers for zeros. Sums of integers are exact while their magnitudes add up to less
/// than 2^24 (1 - 2^-7): first parts are rounded, so that their products may be larger than the values' own.

#include "athanor/device/cpu/gemm.h"

namespace athanor::amx {

/// True if multiply_floats() may take a problem and is faster than multiply-adds: float32, rows or columns of a and of
/// b without gaps between elements, c with unit stride along its rows, sides large enough to pay for taking the values
/// apart.
bool suits_floats(const GemmProblem& g);

/// The product, on the calling thread, after suits_floats() or available(). The order of each sum depends on k alone.
/// Any alpha, beta, bias and epilogue. Where a value of a or b is infinite, not a number, or so large that a sum might
/// overflow, the part of the output it belongs to is left to `other`, which is called with that part as its problem:
/// how large that part is, and so how its other sums are rounded, depends on how the caller divides the problem.
void multiply_floats(const GemmProblem& g, void (*other)(const GemmProblem&));

}  // namespace athanor::amx
