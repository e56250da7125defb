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
  bool typed = false;                       ///< the result depends on the dtype of the given tensor
};
const std::vector<OutCall>& out_calls();

/// While one lives, tensors that out_calls make for a call are shown to it as they are made.
class SeeInputs {
 public:
  explicit SeeInputs(std::function<void(Tensor&)> see);
  ~SeeInputs();
  SeeInputs(const SeeInputs&) = delete;
  SeeInputs& operator=(const SeeInputs&) = delete;
};

}  // namespace athanor::op_table
