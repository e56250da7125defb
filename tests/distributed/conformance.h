#pragma once
/// The conformance suite: what every backend's collectives must do, written once over a ProcessGroup and compared with
/// straightforward loops over plain numbers.

#include <functional>
#include <string>
#include <vector>

#include "athanor/distributed/process_group.h"

namespace athanor::distributed::conformance {

/// One collective with all it is tried with; throws Error at the first wrong value. Run by all ranks at once.
struct Check {
  const char* op;
  std::function<void(ProcessGroup&, DType)> run;
};
/// In the order of the table in docs/backends.md.
const std::vector<Check>& checks();

/// All checks for all dtypes.
void run_all(ProcessGroup& group);

/// Sums, maxima and an operator of the program's of millions of elements, for float, half and int8.
void run_large(ProcessGroup& group);

/// The calls whose input may be a part of the output, or the other way round.
void run_in_place(ProcessGroup& group);

}  // namespace athanor::distributed::conformance
