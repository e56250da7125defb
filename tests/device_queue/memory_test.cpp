// Statistics and limits of a device's memory.
#include "athanor/tensor/device_memory.h"

#include <gmock/gmock.h>

#include <thread>

#include "athanor/athanor.h"
#include "device_queue/queued_device.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kMegabyte = std::int64_t{1} << 20;
Tensor megabytes(std::int64_t n, int device) { return empty({n * kMegabyte}, options_on(device).dtype(kByte)); }

}  // namespace

TEST_F(QueuedDevice, StatisticsCountWhatTensorsHoldNowAndAtMost) {
  EXPECT_EQ(memory_allocated(on(1)), 0);
  Tensor a = megabytes(4, 1), b = megabytes(2, 1);
  EXPECT_EQ(memory_allocated(on(1)), 6 * kMegabyte);
  EXPECT_EQ(memory_allocated(on(0)), 0);
  a.reset();
  EXPECT_EQ(memory_allocated(on(1)), 2 * kMegabyte);
  EXPECT_EQ(max_memory_allocated(on(1)), 6 * kMegabyte);
  EXPECT_EQ(memory_reserved(on(1)), 6 * kMegabyte);
  const Tensor again = megabytes(4, 1);  // the same block
  EXPECT_EQ(max_memory_reserved(on(1)), 6 * kMegabyte);
  reset_peak_memory_stats(on(1));
  b.reset();
  EXPECT_EQ(max_memory_allocated(on(1)), 6 * kMegabyte);
  reset_peak_memory_stats(on(1));
  EXPECT_EQ(max_memory_allocated(on(1)), 4 * kMegabyte);
  empty_cache(on(1));
  EXPECT_EQ(memory_reserved(on(1)), 4 * kMegabyte);
  const DeviceStats stats = memory_stats(on(1));
  EXPECT_EQ(stats.allocation.current, 1);
  EXPECT_EQ(stats.allocation.allocated, 3);
  EXPECT_EQ(stats.allocated_bytes.allocated, 10 * kMegabyte);
  EXPECT_EQ(stats.allocated_bytes.freed, 6 * kMegabyte);
  EXPECT_EQ(stats.limit, 0);
}

TEST_F(QueuedDevice, TasksAreCounted) {
  const Tensor x = ones({4}, options_on(1));
  synchronize(on(1));
  const auto before = memory_stats(on(1));
  EXPECT_EQ(before.tasks_enqueued, before.tasks_finished);
  close();
  x.add_(1);
  x.add_(1);
  EXPECT_EQ(memory_stats(on(1)).tasks_enqueued - before.tasks_enqueued, 4);  // the gate and its operand too
  EXPECT_LE(memory_stats(on(1)).tasks_finished - before.tasks_finished, 1);
  open();
  EXPECT_EQ(memory_stats(on(1)).tasks_finished - before.tasks_finished, 4);
}

TEST_F(QueuedDevice, AllocationsBeyondTheLimitAreRefusedWithFigures) {
  set_memory_limit(on(1), 10 * kMegabyte);
  Tensor kept = megabytes(6, 1);
  try {
    megabytes(5, 1);
    FAIL();
  } catch (const OutOfMemoryError& e) {
    EXPECT_THAT(e.what(),
                AllOf(HasSubstr("cpu:1"), HasSubstr("5.00 MiB"), HasSubstr("6.00 MiB"), HasSubstr("10.00 MiB"),
                      HasSubstr("set_memory_limit"), HasSubstr("ATHANOR_DEVICE_MEMORY_MB")));
  }
  EXPECT_EQ(memory_stats(on(1)).num_ooms, 1);
  EXPECT_EQ(mem_get_info(on(1)).free, 4 * kMegabyte);
  EXPECT_EQ(mem_get_info(on(1)).total, 10 * kMegabyte);
  EXPECT_NO_THROW(megabytes(4, 1));
  EXPECT_NO_THROW(megabytes(50, 0));  // the other device has none
  kept.fill_(1);                      // and the device goes on
  EXPECT_EQ(kept[7].item<int>(), 1);
  set_memory_limit(on(1), 0);
  EXPECT_NO_THROW(megabytes(50, 1));
}

TEST_F(QueuedDevice, UnusedBlocksOfOtherSizesMakeRoomUnderALimit) {
  set_memory_limit(on(1), 10 * kMegabyte);
  for (const std::int64_t size : {6, 3, 8, 1, 9, 10, 2, 7}) {
    const Tensor x = megabytes(size, 1).fill_(static_cast<int>(size));
    EXPECT_EQ(x[size * kMegabyte - 1].item<int>(), size);
    EXPECT_LE(memory_reserved(on(1)), 10 * kMegabyte);
  }
}

TEST_F(QueuedDevice, RoomThatRunningWorkStillUsesIsWaitedForUnderALimit) {
  set_memory_limit(on(0), 10 * kMegabyte);
  Tensor a = full({8 * kMegabyte}, 3, options_on(0).dtype(kByte));
  synchronize(on(0));
  close();  // cpu:1
  const Tensor copy = a.to(on(1));
  a.reset();  // cpu:1 will still read it
  std::thread opener([&] { latch_->count_down(); });
  const Tensor b = full({9 * kMegabyte}, 4, options_on(0).dtype(kByte));
  opener.join();
  EXPECT_EQ(copy.sum().item<std::int64_t>(), 3 * 8 * kMegabyte);
  EXPECT_EQ(b.sum().item<std::int64_t>(), 4 * 9 * kMegabyte);
  EXPECT_LE(max_memory_reserved(on(0)), 10 * kMegabyte);
}

TEST_F(QueuedDevice, ManySizesDoNotPileUpUnusedMemory) {
  for (std::int64_t i = 1; i <= 200; ++i) {
    full({i * 100'000}, 1, options_on(1).dtype(kByte));
    synchronize(on(1));
  }
  EXPECT_LE(max_memory_reserved(on(1)), 120 * kMegabyte);  // one of each size would be 240
  EXPECT_EQ(memory_allocated(on(1)), 0);
}

TEST_F(QueuedDevice, AModelThatDoesNotFitOneDeviceTrainsOnTwo) {
  static constexpr std::int64_t kWidth = 512;  // a layer: 1 MB of weights, as much again for gradients
  set_memory_limit(on(0), 6 * kMegabyte);
  set_memory_limit(on(1), 6 * kMegabyte);
  const auto layers = [](int n) {
    nn::Sequential s;
    for (int i = 0; i < n; ++i) s->push_back(nn::Linear(kWidth, kWidth));
    return s;
  };
  const auto train = [&](nn::Sequential first, Device a, nn::Sequential second, Device b) {
    first->to(a);
    second->to(b);
    std::vector<Tensor> parameters = first->parameters();
    for (const Tensor& p : second->parameters()) parameters.push_back(p);
    optim::SGD optimizer(parameters, optim::SGDOptions(0.1));
    const Tensor x = full({16, kWidth}, 0.5, TensorOptions(a));
    std::vector<double> losses;
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      const Tensor loss = second->forward(first->forward(x).to(b)).square().mean();
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item<double>());
    }
    return losses;
  };
  try {
    train(layers(2), on(0), layers(2), on(0));
    FAIL() << "four layers and their gradients should not fit";
  } catch (const OutOfMemoryError& e) {
    EXPECT_THAT(e.what(), HasSubstr("out of memory on cpu:0"));
  }
  const auto losses = train(layers(2), on(0), layers(2), on(1));
  EXPECT_LT(losses.back(), losses.front());
  for (int i = 0; i < 2; ++i) {
    EXPECT_GT(max_memory_allocated(on(i)), 4 * kMegabyte);
    EXPECT_LE(max_memory_reserved(on(i)), 6 * kMegabyte);
  }
}

TEST(DeviceMemory, TheHostHasFiguresAndALimitToo) {
  const std::int64_t before = memory_allocated(Device());
  const Tensor x = empty({8 * kMegabyte}, kByte);
  EXPECT_GE(memory_allocated(Device()) - before, 8 * kMegabyte);
  EXPECT_GE(memory_reserved(Device()), memory_allocated(Device()));
  EXPECT_GE(max_memory_allocated(Device()), memory_allocated(Device()));
  EXPECT_GT(mem_get_info(Device()).total, 8 * kMegabyte);
  EXPECT_EQ(memory_stats(Device()).tasks_enqueued, 0);
  set_memory_limit(Device(), static_cast<std::size_t>(memory_allocated(Device()) + kMegabyte));
  EXPECT_THROW(empty({8 * kMegabyte}, kByte), OutOfMemoryError);
  set_memory_limit(Device(), 0);
  EXPECT_NO_THROW(empty_cache(Device()));
  EXPECT_THROW(memory_allocated(Device("cpu:63")), Error);
}

}  // namespace athanor
