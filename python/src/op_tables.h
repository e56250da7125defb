#pragma once
/// The tables that tools/generate_python.py writes, one entry per name.

#include "python/src/arguments.h"

namespace athanor::python {

#define ATHANOR_PYTHON_OP(name, is_method, is_function) extern const OpEntry op_##name;
#include "python_ops/ops.inc"
#undef ATHANOR_PYTHON_OP

}  // namespace athanor::python
