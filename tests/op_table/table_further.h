#pragma once
/// Calls that complete the rows: refusals of ops whose rows have none, and calls with tensors without elements of ops
/// whose rows have no such sample.

#include "op_table/table.h"

namespace athanor::op_table {

struct FurtherRefusal {
  std::string op;  ///< "name" or "name.overload"
  Refusal refusal;
};
const std::vector<FurtherRefusal>& further_refusals();

struct EmptyCall {
  std::string op;
  std::function<Tensor()> call;
  Shape shape;       ///< of the result
  double value = 0;  ///< of its elements, if it has any
};
const std::vector<EmptyCall>& empty_calls();

}  // namespace athanor::op_table
