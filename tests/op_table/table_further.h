#pragma once
/// Calls that complete the rows: refusals of ops whose rows have none, calls with tensors without elements of ops
/// whose rows have no such sample, and out= forms of ops whose rows have none.

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

struct OutCall {
  std::string op;
  std::function<Tensors()> call;            ///< the form without out=
  std::function<void(Tensors& outs)> into;  ///< the same into given tensors
};
const std::vector<OutCall>& out_calls();

}  // namespace athanor::op_table
