// The functions that stand before the library's ops (see recorder.h).
#include "parity/recorder.h"

namespace athanor::ops {

using Tensor = TensorBase;
using TensorList = TensorBaseList;
using parity::Call;
using parity::next;
using parity::Recorder;

#include "parity/recorders.inc"

}  // namespace athanor::ops
