// The out= forms of the public functions, apart from those of functions.cpp: they are many and called by few.
#include "athanor/ops/all_ops.h"
#include "athanor/ops/op.h"
#include "athanor/ops/tensor.h"

namespace athanor {

namespace detail {
TensorBaseList base_list(TensorList list);  // of functions.cpp
}

#include "athanor/ops/out_bodies.inc"

}  // namespace athanor
