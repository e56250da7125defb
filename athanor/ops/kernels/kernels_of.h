#pragma once
/// For kernels that are called while an op is prepared, in the caller's thread; all others go through launch().

#include "athanor/tensor/stream.h"

namespace athanor {

/// Whose kernels run on `device`: a virtual cuda device's are the CPU's.
inline DeviceType kernels_of(Device device) {
  const Queue* queue = detail::queue_of(device);
  return queue ? queue->kernels() : device.type();
}

}  // namespace athanor
