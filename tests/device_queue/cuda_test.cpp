// The names of CUDA served by virtual devices. What the environment says is for tests/programs/cuda_test.py.
#include "athanor/tensor/cuda.h"

#include <gmock/gmock.h>

#include <thread>

#include "athanor/nn/nn.h"
#include "athanor/tensor/print.h"
#include "device_queue/queued_device.h"

namespace athanor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CudaDevices : public ::testing::Test {
 protected:
  void SetUp() override { detail::configure_cuda_queues(2); }
  void TearDown() override {
    detail::configure_cuda_queues(0);
    detail::set_current_cuda_device(0);
  }
};

}  // namespace

TEST_F(CudaDevices, AreCountedNamedAndCompared) {
  EXPECT_TRUE(cuda::is_available());
  EXPECT_EQ(cuda::device_count(), 2);
  EXPECT_EQ(cuda::get_device_name(1), "Athanor virtual device");
  EXPECT_EQ(cuda::get_device_properties(0).name, cuda::get_device_name(0));
  EXPECT_GT(cuda::get_device_properties().total_memory, 1 << 20);
  EXPECT_TRUE(Device(1) == Device("cuda:1"));
  EXPECT_THROW(Device(-1), Error);
  EXPECT_THROW(cuda::get_device_name(2), Error);
}

TEST_F(CudaDevices, PrintAsPyTorchDoes) {
  const Tensor x = tensor({1.0, 2.0}).cuda(1);
  EXPECT_EQ(x.str(), " 1\n 2\n[ CUDAFloatType{2} ]");  // libtorch
  const Tensor here = x.cpu();
  const std::string device = x.device().str();
  PrintSuffixes suffixes;
  suffixes.device = device;
  EXPECT_EQ(format_tensor(detail::view_of(here), {}, suffixes), "tensor([1., 2.], device='cuda:1')");  // Python
  EXPECT_EQ(tensor({1.0}).cuda().toString(), "CUDAFloatType");
  EXPECT_TRUE(tensor({1.0}).cuda().is_cuda());
}

TEST_F(CudaDevices, ComputeWhatTheHostComputes) {
  const Tensor a = randn({17, 5}), b = randn({5, 9});
  const Tensor x = a.cuda().requires_grad_(), y = b.cuda();
  x.matmul(y).relu().sum().backward();
  const Tensor h = a.clone().requires_grad_();
  h.matmul(b).relu().sum().backward();
  EXPECT_EQ(x.grad().device().str(), "cuda:0");
  EXPECT_TRUE(x.grad().cpu().equal(h.grad()));
}

TEST_F(CudaDevices, AreIndexedByTensorsOfTheHost) {
  const Tensor h = randn({4, 3}), places = tensor({3, 1}), mask = h > 0;
  Tensor x = h.cuda();
  EXPECT_TRUE(x.index({places}).cpu().equal(h.index({places})));
  EXPECT_TRUE(x.index({mask}).cpu().equal(h.index({mask})));
  x.index_put_({mask}, tensor(2.0f));
  EXPECT_TRUE(x.cpu().equal(h.masked_fill(mask, 2)));
  EXPECT_THROW(h.index({places.cuda()}), Error);
  EXPECT_THROW(x.index({places.cuda(1)}), Error);
}

TEST_F(CudaDevices, CudaWithoutAnIndexIsTheCurrentDeviceOfTheThread) {
  EXPECT_EQ(cuda::current_device(), 0);
  cuda::set_device(1);
  EXPECT_EQ(zeros({1}, kCUDA).device().index(), 1);
  {
    const cuda::CUDAGuard guard(0);
    EXPECT_EQ(zeros({1}).to(Device("cuda")).device().index(), 0);
    const cuda::CUDAGuard none(-1);
    EXPECT_EQ(cuda::current_device(), 0);
  }
  EXPECT_EQ(cuda::current_device(), 1);
  std::thread([] { EXPECT_EQ(cuda::current_device(), 0); }).join();
  EXPECT_THROW(cuda::set_device(2), Error);
  EXPECT_THROW(cuda::CUDAGuard(5), Error);
  EXPECT_EQ(cuda::current_device(), 1);
  cuda::set_device(-1);
  EXPECT_EQ(cuda::current_device(), 1);
}

TEST_F(CudaDevices, EveryWayOfMakingTensorsTakesTheCurrentDevice) {
  cuda::set_device(1);
  EXPECT_EQ(hann_window(4, true, kCUDA).device().index(), 1);
  EXPECT_EQ(to_device(ones({2}), kCUDA).device().index(), 1);
  EXPECT_EQ(tensor({1.0, 2.0}, kCUDA).device().index(), 1);
  EXPECT_EQ(arange(3, kCUDA).device().index(), 1);
  EXPECT_EQ(ones_like(ones({2}), kCUDA).device().index(), 1);
}

TEST_F(CudaDevices, ModulesMoveByNameAndByNumber) {
  nn::Linear layer(3, 2);
  layer->cuda();
  EXPECT_EQ(layer->weight.device().str(), "cuda:0");
  layer->cuda(1);
  EXPECT_EQ(layer->bias.device().str(), "cuda:1");
  EXPECT_EQ(layer(ones({4, 3}).to(Device(1))).device().index(), 1);
  layer->cpu();
  EXPECT_TRUE(layer->weight.device().is_host());
}

TEST_F(CudaDevices, MixingThemWithOthersNamesBoth) {
  const Tensor a = ones({2}).cuda(0), b = ones({2}).cuda(1);
  for (const Tensor& other : {b, ones({2})}) try {
      a + other;
      FAIL();
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), AllOf(HasSubstr("cuda:0"), HasSubstr(other.device().str()), HasSubstr(".to(device)")));
    }
  EXPECT_TRUE((a + full({}, 2.0)).is_cuda());  // a 0-d host tensor is a number
}

TEST_F(CudaDevices, LiveBesideQueuedCpuDevices) {
  detail::configure_cpu_queues(2);
  {
    const Tensor a = full({1000}, 2.0, options_on(1)), b = a.cuda(1), c = b.to(on(0));
    EXPECT_EQ((b * 2).to(on(1)).sum().item<float>(), 4000.0F);
    EXPECT_EQ(c.sum().item<float>(), 2000.0F);
    EXPECT_THROW(a + b, Error);
  }
  detail::configure_cpu_queues(0);
}

TEST_F(CudaDevices, MemoryIsCountedAndLimited) {
  constexpr std::int64_t kMegabyte = 1 << 20;
  const std::int64_t before = cuda::memory_allocated();
  Tensor x = empty({3 * kMegabyte}, TensorOptions(kByte).device(kCUDA));
  EXPECT_EQ(cuda::memory_allocated() - before, 3 * kMegabyte);
  EXPECT_EQ(cuda::memory_allocated(1), 0);
  x.reset();
  EXPECT_GE(cuda::max_memory_allocated(0), 3 * kMegabyte);
  EXPECT_GE(cuda::memory_reserved(), 3 * kMegabyte);
  cuda::empty_cache();
  EXPECT_LT(cuda::memory_reserved(), 3 * kMegabyte);
  cuda::reset_peak_memory_stats();
  EXPECT_LT(cuda::max_memory_allocated(), 3 * kMegabyte);
  cuda::set_memory_limit(2 * kMegabyte, 1);
  EXPECT_EQ(cuda::mem_get_info(1).total, 2 * kMegabyte);
  EXPECT_THROW(empty({3 * kMegabyte}, TensorOptions(kByte).device(Device(1))), OutOfMemoryError);
  cuda::set_memory_limit(0, 1);
  const auto total = cuda::mem_get_info(1).total;
  cuda::set_per_process_memory_fraction(0.5, 1);
  EXPECT_EQ(cuda::mem_get_info(1).total, total / 2);
  EXPECT_THROW(cuda::set_per_process_memory_fraction(0, 1), ValueError);
}

TEST_F(CudaDevices, SynchronizeReportsTheFailureOfTheDeviceAskedFor) {
  const Tensor x = ones({2}).cuda(1);
  launch(failing_kernel, x);
  EXPECT_NO_THROW(cuda::synchronize(0));
  EXPECT_THROW(cuda::synchronize(1), ValueError);
  EXPECT_NO_THROW(cuda::current_stream(1).synchronize());
}

TEST(QueuedDeviceOff, AWindowOnCpuZeroIsOnTheHost) {
  detail::configure_cpu_queues(0);
  EXPECT_TRUE(hann_window(4, true, TensorOptions(Device("cpu:0"))).device().is_host());
}

TEST(CudaOff, EverythingThatNeedsADeviceSaysHowToHaveOne) {
  detail::configure_cuda_queues(0);
  EXPECT_FALSE(cuda::is_available());
  EXPECT_EQ(cuda::device_count(), 0);
  for (const auto& act : std::vector<std::function<void()>>{
           [] { zeros({1}, kCUDA); }, [] { ones({1}).cuda(); }, [] { cuda::synchronize(); },
           [] { cuda::set_device(0); }, [] { (void)cuda::memory_allocated(); }, [] { (void)cuda::get_device_name(); }})
    try {
      act();
      FAIL();
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), AllOf(HasSubstr("no CUDA support"), HasSubstr("ATHANOR_CUDA_ON_CPU=1")));
    }
  EXPECT_NO_THROW(cuda::empty_cache());
}

}  // namespace athanor
