#include "device_queue/queued_device.h"

namespace athanor {

std::atomic<std::latch*> gate{nullptr};
constinit Kernel<void(const View&)> gate_kernel{"test_gate"};
constinit Kernel<void(const View&)> failing_kernel{"test_failing"};

namespace {

void wait_at_gate(const View&) {
  if (std::latch* g = gate.load()) g->wait();
}
void fail(const View&) { ATHANOR_THROW(ValueError, "the kernel failed on purpose"); }

ATHANOR_REGISTER_KERNEL(gate_kernel, CPU, &wait_at_gate);
ATHANOR_REGISTER_KERNEL(failing_kernel, CPU, &fail);

}  // namespace
}  // namespace athanor
