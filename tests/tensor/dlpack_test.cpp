#include "athanor/tensor/dlpack.h"

#include <gtest/gtest.h>

#include <thread>

#include "athanor/ops/factory.h"
#include "athanor/tensor/stream.h"

namespace athanor {
namespace {

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

/// A structure of a foreign library that counts calls of its deleter.
template <class Managed>
struct Foreign {
  std::vector<float> data;
  std::vector<std::int64_t> shape, strides;
  int deleted = 0;
  Managed managed{};

  Foreign(std::vector<float> values, std::vector<std::int64_t> sizes, std::vector<std::int64_t> steps = {})
      : data(std::move(values)), shape(std::move(sizes)), strides(std::move(steps)) {
    DLTensor& t = managed.dl_tensor;
    t.data = data.data();
    t.device = {kDLCPU, 0};
    t.ndim = static_cast<std::int32_t>(shape.size());
    t.dtype = {kDLFloat, 32, 1};
    t.shape = shape.data();
    t.strides = strides.empty() ? nullptr : strides.data();
    managed.manager_ctx = this;
    managed.deleter = [](Managed* m) { ++static_cast<Foreign*>(m->manager_ctx)->deleted; };
    if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) managed.version = {1, 3};
  }
};
using Old = Foreign<DLManagedTensor>;
using New = Foreign<DLManagedTensorVersioned>;

std::vector<float> list(const Tensor& t) {
  const Tensor c = t.contiguous();
  return {c.data_ptr<float>(), c.data_ptr<float>() + c.numel()};
}

}  // namespace

TEST(DLPack, ExportDescribesTheMemory) {
  const Tensor x = arange(12, kInt).view({3, 4}).t().slice(0, 1, 4, 2);
  DLManagedTensor* m = to_dlpack(x);
  const DLTensor& t = m->dl_tensor;
  EXPECT_EQ(static_cast<char*>(t.data) + t.byte_offset, static_cast<char*>(x.data_ptr()));
  EXPECT_EQ(t.device.device_type, kDLCPU);
  EXPECT_EQ(t.device.device_id, 0);
  ASSERT_EQ(t.ndim, 2);
  EXPECT_EQ(IntArrayRef(t.shape, 2), x.sizes());
  EXPECT_EQ(IntArrayRef(t.strides, 2), x.strides());
  EXPECT_EQ(t.dtype.code, kDLInt);
  EXPECT_EQ(t.dtype.bits, 32);
  EXPECT_EQ(t.dtype.lanes, 1);
  m->deleter(m);
}

TEST(DLPack, ExportedMemoryOutlivesTheTensorAndItsChanges) {
  Tensor x = ones({3});
  DLManagedTensorVersioned* m = to_dlpack_versioned(x);
  EXPECT_EQ(m->version.major, 1U);
  EXPECT_EQ(m->flags, 0U);
  const auto* data = static_cast<const float*>(m->dl_tensor.data);
  x.add_(1);
  EXPECT_EQ(data[2], 2);
  x.set_data(zeros({5}));
  EXPECT_EQ(data[2], 2);
  x.reset();
  EXPECT_EQ(data[0], 2);
  std::thread([m] { m->deleter(m); }).join();
}

TEST(DLPack, StridesOfSingleElementsLookDense) {
  DLManagedTensor* m = to_dlpack(ones({4, 4}).slice(0, 0, 1).slice(1, 0, 1));
  EXPECT_EQ(m->dl_tensor.strides[0], 1);
  EXPECT_EQ(m->dl_tensor.strides[1], 1);
  m->deleter(m);
}

TEST(DLPack, RoundTripOfEveryDtypeSharesMemory) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    const Tensor x = ones({2, 3}, type);
    Tensor y = from_dlpack(to_dlpack(x));
    EXPECT_EQ(y.dtype(), type);
    EXPECT_EQ(y.data_ptr(), x.data_ptr());
    y.zero_();
    EXPECT_EQ(x.to(kDouble).sum().item<double>(), 0) << dtype_name(type);
    EXPECT_EQ(Tensor(from_dlpack(to_dlpack_versioned(x.t()))).sizes(), x.t().sizes());
  }
  EXPECT_EQ(Tensor(fromDLPack(toDLPack(ones({})))).item<float>(), 1);
  EXPECT_EQ(Tensor(fromDLPackVersioned(toDLPackVersioned(ones({0, 3})))).sizes().vec(),
            (std::vector<std::int64_t>{0, 3}));
}

TEST(DLPack, ImportCallsTheDeleterOnceWhenTheLastTensorIsGone) {
  Old source({1, 2, 3, 4, 5, 6}, {2, 2}, {3, 1});
  {
    Tensor x = from_dlpack(&source.managed);
    const Tensor view = x.select(0, 1);
    EXPECT_EQ(list(x), (std::vector<float>{1, 2, 4, 5}));
    x.reset();
    EXPECT_EQ(source.deleted, 0);
    EXPECT_EQ(list(view), (std::vector<float>{4, 5}));
  }
  EXPECT_EQ(source.deleted, 1);
}

TEST(DLPack, ImportReadsOffsetsAndMissingStridesAndDeleters) {
  New source({0, 1, 2, 3, 4, 5, 6}, {2, 3});
  source.managed.dl_tensor.byte_offset = 4;
  source.managed.deleter = nullptr;
  EXPECT_EQ(list(from_dlpack(&source.managed)), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  Old number({7}, {});
  number.managed.dl_tensor.shape = nullptr;
  EXPECT_EQ(Tensor(from_dlpack(&number.managed)).item<float>(), 7);
  Old none({}, {0, 4}, {4, 1});
  none.managed.dl_tensor.data = nullptr;
  EXPECT_EQ(Tensor(from_dlpack(&none.managed)).numel(), 0);
}

TEST(DLPack, RefusedStructuresStayTheCallers) {
  auto refused = [](const std::function<void(New&)>& change, const std::string& message) {
    New source({1, 2, 3, 4}, {2, 2}, {2, 1});
    change(source);
    const std::string error = error_of([&] { from_dlpack(&source.managed); });
    EXPECT_NE(error.find(message), std::string::npos) << error;
    EXPECT_EQ(source.deleted, 0) << message;
  };
  using N = New&;
  refused([](N s) { s.managed.dl_tensor.device = {kDLCUDA, 1}; }, "device type 2, id 1");
  refused([](N s) { s.managed.dl_tensor.dtype = {kDLComplex, 64, 1}; }, "code 5, 64 bits, 1 lanes");
  refused([](N s) { s.managed.dl_tensor.dtype = {kDLFloat, 32, 4}; }, "4 lanes");
  refused([](N s) { s.managed.dl_tensor.dtype = {kDLUInt, 32, 1}; }, "code 1, 32 bits");
  refused([](N s) { s.strides[0] = -2; }, "negative strides");
  refused([](N s) { s.shape[0] = -2; }, "negative dimension");
  refused([](N s) { s.shape[0] = INT64_MAX; }, "overflows");
  refused([](N s) { s.strides[0] = INT64_MAX; }, "beyond any memory");
  refused([](N s) { s.managed.dl_tensor.ndim = 65; }, "got 65");
  refused([](N s) { s.managed.dl_tensor.ndim = -1; }, "got -1");
  refused([](N s) { s.managed.dl_tensor.shape = nullptr; }, "shape is null");
  refused([](N s) { s.managed.dl_tensor.data = nullptr; }, "data is null");
  refused([](N s) { s.managed.dl_tensor.byte_offset = 2; }, "not aligned");
  refused([](N s) { s.managed.version = {2, 0}; }, "version 2.0");
  refused([](N s) { s.managed.flags = kDLPackReadOnly; }, "read-only");
  EXPECT_THROW(from_dlpack(static_cast<DLManagedTensor*>(nullptr)), ValueError);
}

TEST(DLPack, RefusesTensorsInAGraph) {
  Tensor x = ones({2}).requires_grad_();
  EXPECT_NE(error_of([&] { to_dlpack(x); }).find("use tensor.detach()"), std::string::npos);
  DLManagedTensor* m = to_dlpack(x.detach());
  m->deleter(m);
  EXPECT_THROW(to_dlpack(Tensor()), Error);
}

TEST(DLPack, ExportFromAQueueWaitsAndExposesTheMemory) {
  detail::configure_cpu_queues(2);
  {
    Tensor x = ones({1 << 20}, Device("cpu:1"));
    for (int i = 0; i < 8; ++i) x.add_(1);
    DLManagedTensor* m = to_dlpack(x);
    const auto* data = static_cast<const float*>(m->dl_tensor.data);
    EXPECT_EQ(data[0], 9);
    EXPECT_EQ(data[(1 << 20) - 1], 9);
    EXPECT_TRUE(x.storage()->host_exposed());
    x.add_(1);  // ends before it returns, since the host may look
    EXPECT_EQ(data[(1 << 20) - 1], 10);
    m->deleter(m);
  }
  detail::configure_cpu_queues(0);
}

}  // namespace athanor
