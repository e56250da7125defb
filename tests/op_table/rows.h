#pragma once
/// What the rows_*.cpp files share.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "op_table/table.h"

namespace athanor::op_table {

/// A reference with one result.
template <class F>
Reference one(F&& fn) {
  return [fn](const Arrays& in) { return Arrays{fn(in)}; };
}

}  // namespace athanor::op_table
