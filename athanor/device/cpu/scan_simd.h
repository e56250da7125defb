#pragma once
/// Running sums on vectors.

#include <cstdint>

namespace athanor::cpu {

/// Running sums of n dense elements, in float64: out[i] = before + (within + in[0] + … + in[i]). Returns what stands in
/// the parentheses for the last element (`within` if n is 0). `out` may be `in`, or null if only the return value is
/// wanted, which does not depend on `before`.
template <class T>
using SumScan = double (*)(T* out, const T* in, std::int64_t n, double before, double within);

struct ScanFns {
  SumScan<float> f32;
  SumScan<double> f64;
};

/// Those of the best instruction set of this CPU.
const ScanFns& scan_fns();

}  // namespace athanor::cpu
