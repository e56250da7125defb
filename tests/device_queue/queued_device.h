#pragma once
// Queues of a test's own, whose workers can be held so that asynchrony is certain rather than likely.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>

#include "athanor/ops/factory.h"
#include "athanor/ops/launch.h"
#include "athanor/ops/tensor.h"

namespace athanor {

/// Waits until the gate opens; throws ValueError.
extern Kernel<void(const View&)> gate_kernel, failing_kernel;
extern std::atomic<std::latch*> gate;

inline Device on(int i) { return Device(DeviceType::CPU, static_cast<DeviceIndex>(i)); }
inline TensorOptions options_on(int i) { return TensorOptions(on(i)); }

/// Two queues for the test; the gate holds one's worker until opened.
class QueuedDevice : public ::testing::Test {
 protected:
  void SetUp() override { detail::configure_cpu_queues(2); }
  void TearDown() override {
    open();
    detail::configure_cpu_queues(0);
  }
  void close(Device device = on(1)) {
    latch_ = std::make_unique<std::latch>(1);
    gate = latch_.get();
    launch(gate_kernel, zeros({1}, TensorOptions(device)));
  }
  void open() {
    if (latch_ && !latch_->try_wait()) latch_->count_down();
    for (int i = 0; i < cpu_device_count(); ++i) synchronize(on(i));
    gate = nullptr;
    latch_.reset();
  }
  std::unique_ptr<std::latch> latch_;
};

}  // namespace athanor
