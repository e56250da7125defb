// The rules of queued CPU devices, on a device of the test's own making.
#include "device_queue/queued_device.h"

#include "athanor/autograd/autograd.h"

namespace athanor {

TEST_F(QueuedDevice, KernelsRunLaterAndHostReadsWait) {
  const Tensor x = zeros({4}, TensorOptions(on(1)));
  synchronize(on(1));
  close();
  x.fill_(7);  // returns although the worker is held
  const float* raw = static_cast<const float*>(x.storage()->data());
  EXPECT_EQ(raw[0], 0.0F);
  latch_->count_down();
  EXPECT_EQ(x.select(0, 3).item<float>(), 7.0F);
}

TEST_F(QueuedDevice, ResultsEqualTheHosts) {
  const Tensor a = tensor({{1.5, -2.0}, {0.25, 8.0}}), b = tensor({3.0, -1.0});
  const Tensor da = a.to(on(1)), db = b.to(on(1));
  const Tensor host = (a * b + a).sum(), device = (da * db + da).sum();
  EXPECT_EQ(device.device().str(), "cpu:1");
  EXPECT_EQ(device.item<float>(), host.item<float>());
}

TEST_F(QueuedDevice, BackwardOnlyEnqueues) {
  Tensor x = ones({8}, TensorOptions(on(1)));
  x.requires_grad_();
  synchronize(on(1));
  close();
  (x * 3).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  latch_->count_down();
  EXPECT_EQ(x.grad().select(0, 5).item<float>(), 3.0F);
}

TEST_F(QueuedDevice, MixingDevicesIsAnErrorButHostScalarsAreReadAtEnqueue) {
  const Tensor x = ones({2}, TensorOptions(on(1)));
  EXPECT_THROW(x.add(ones({2})), Error);
  EXPECT_THROW(x.add(ones({2}, TensorOptions(on(0)))), Error);
  synchronize(on(1));
  close();
  const Tensor s = full({}, 2.0);
  const Tensor y = x * s;
  s.fill_(100);
  latch_->count_down();
  EXPECT_EQ(y.select(0, 0).item<float>(), 2.0F);
}

TEST_F(QueuedDevice, FailureReachesTheNextSynchronizationOnceWithItsType) {
  const Tensor x = ones({2}, TensorOptions(on(1)));
  launch(failing_kernel, x);
  const Tensor y = x + 1;  // skipped
  try {
    synchronize(on(1));
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_NE(std::string(e.what()).find("on purpose"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("test_failing"), std::string::npos);
  }
  EXPECT_NO_THROW(synchronize(on(1)));
  x.fill_(5);  // wholly overwritten: valid again
  EXPECT_EQ((x + 1).select(0, 1).item<float>(), 6.0F);
  EXPECT_THROW((void)y.select(0, 0).item(), Error);  // never computed
}

TEST_F(QueuedDevice, FreedMemoryIsReusedByLaterWorkOfTheSameQueue) {
  Tensor a = full({1 << 16}, 1.0, TensorOptions(on(1)));
  const void* block = a.storage()->data();
  synchronize(on(1));
  close();
  const Tensor sum = a.sum();
  a.reset();
  Tensor b = full({1 << 16}, 2.0, TensorOptions(on(1)));
  EXPECT_EQ(b.storage()->data(), block);
  latch_->count_down();
  EXPECT_EQ(sum.item<float>(), 65536.0F);  // read before the reuse overwrote it
  EXPECT_EQ(b.sum().item<float>(), 131072.0F);
}

TEST_F(QueuedDevice, BlockUsedByAnotherQueueIsNotReusedBeforeThatUse) {
  Tensor a = full({1 << 12}, 3.0, TensorOptions(on(0)));
  synchronize(on(0));
  close();                          // cpu:1 is held
  const Tensor copy = a.to(on(1));  // waits on cpu:1
  const void* block = a.storage()->data();
  a.reset();
  const Tensor b = full({1 << 12}, 9.0, TensorOptions(on(0)));
  EXPECT_NE(b.storage()->data(), block);
  synchronize(on(0));
  latch_->count_down();
  EXPECT_EQ(copy.sum().item<float>(), 3.0F * (1 << 12));
}

TEST_F(QueuedDevice, CopyBetweenQueuesIsOrderedAfterItsSource) {
  const Tensor x = ones({1024}, TensorOptions(on(1)));
  synchronize(on(1));
  close();
  x.fill_(4);                    // held
  const Tensor y = x.to(on(0));  // must wait for it
  latch_->count_down();
  EXPECT_EQ(y.sum().item<float>(), 4096.0F);
}

TEST_F(QueuedDevice, GradientsOfACopyGoBackToItsSourcesDevice) {
  for (const bool in_place : {false, true}) {
    const Tensor x = full({3}, 2.0).to(on(0)).detach().requires_grad_();
    Tensor y = in_place ? zeros({2, 3}, TensorOptions(on(1))) : x.to(on(1));
    if (in_place) y.copy_(x);  // broadcast
    (y * y).sum().backward();
    EXPECT_EQ(x.grad().device(), on(0));
    EXPECT_EQ(x.grad().cpu().sum().item<float>(), in_place ? 24 : 12);
  }
}

TEST_F(QueuedDevice, HostExposedStorageIsFinishedBeforeTheOpReturns) {
  const Tensor x = ones({3}, TensorOptions(on(1)));
  float* p = x.data_ptr<float>();
  x.fill_(6);
  EXPECT_EQ(p[2], 6.0F);
}

TEST_F(QueuedDevice, PendingWorkIsDroppedAtShutdownWithoutHanging) {
  Tensor x = ones({16}, TensorOptions(on(1)));
  for (int i = 0; i < 100; ++i) x = x + 1;
  SUCCEED();
}

TEST(QueuedDeviceOff, CpuZeroIsTheHostAndOthersAreErrors) {
  detail::configure_cpu_queues(0);
  EXPECT_TRUE(zeros({1}, TensorOptions(Device("cpu:0"))).device().is_host());
  try {
    zeros({1}, TensorOptions(Device("cpu:1")));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("ATHANOR_CPU_DEVICES=2"), std::string::npos) << e.what();
  }
}

}  // namespace athanor
