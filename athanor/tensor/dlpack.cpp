#include "athanor/tensor/dlpack.h"

#include <cstddef>
#include <memory>

#include "athanor/tensor/external.h"

namespace athanor {

// The layout that every other implementation of the standard has on 64-bit machines.
static_assert(sizeof(DLDevice) == 8 && sizeof(DLDataType) == 4 && sizeof(DLTensor) == 48);
static_assert(offsetof(DLTensor, device) == 8 && offsetof(DLTensor, ndim) == 16 && offsetof(DLTensor, dtype) == 20 &&
              offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, strides) == 32 &&
              offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, deleter) == 56);
static_assert(sizeof(DLManagedTensorVersioned) == 80 && offsetof(DLManagedTensorVersioned, manager_ctx) == 8 &&
              offsetof(DLManagedTensorVersioned, flags) == 24 && offsetof(DLManagedTensorVersioned, dl_tensor) == 32);

namespace {

constexpr DLPackVersion kVersion{1, 0};

/// What an exported structure points to.
template <class Managed>
struct Export {
  IntrusivePtr<Storage> storage;  // not the tensor: its handle may come to mean other memory
  DimVector sizes, strides;
  Managed managed{};
  static void destroy(Managed* m) { delete static_cast<Export*>(m->manager_ctx); }
};

template <class Managed>
Managed* export_tensor(const TensorBase& t) {
  ATHANOR_CHECK(t.defined(), "to_dlpack: the tensor is not defined");
  ATHANOR_CHECK(!t.requires_grad(), "to_dlpack: Can't export tensors that require gradient, use tensor.detach()");
  ATHANOR_CHECK(t.device().is_cpu(), "to_dlpack: device ", t.device(), " cannot be exported; move the tensor to cpu");
  auto out = std::make_unique<Export<Managed>>();
  out->sizes = DimVector(t.sizes());
  out->strides = DimVector(t.strides());
  // Consumers compare strides with those that they would choose, so the stride of a dim of size 1 is made to look
  // dense.
  for (std::size_t d = 0; d < out->sizes.size(); ++d)
    if (out->sizes[d] == 1) out->strides[d] = 1;
  out->storage = t.storage();
  out->storage->expose_to_host();
  DLTensor& dl = out->managed.dl_tensor;
  dl.data = t.data_ptr();
  dl.device = {kDLCPU, 0};
  dl.ndim = static_cast<std::int32_t>(t.dim());
  dl.dtype = to_dlpack_dtype(t.dtype());
  dl.shape = out->sizes.data();
  dl.strides = out->strides.data();
  dl.byte_offset = 0;
  out->managed.manager_ctx = out.get();
  out->managed.deleter = &Export<Managed>::destroy;
  return &out.release()->managed;
}

template <class Managed>
TensorBase import_tensor(Managed* managed) {
  const DLTensor& dl = managed->dl_tensor;
  ATHANOR_CHECK(dl.device.device_type == kDLCPU || dl.device.device_type == kDLCUDAHost,
                "from_dlpack: memory of device type ", static_cast<std::int32_t>(dl.device.device_type), ", id ",
                dl.device.device_id, " cannot be used; export it from the CPU (type 1)");
  const DType dtype = from_dlpack_dtype(dl.dtype);
  ATHANOR_CHECK_VALUE(dl.ndim >= 0 && dl.ndim <= 64, "from_dlpack: tensors have 0 to 64 dimensions, got ", dl.ndim);
  ATHANOR_CHECK_VALUE(dl.ndim == 0 || dl.shape, "from_dlpack: the shape is null for ", dl.ndim, " dimensions");
  const auto ndim = static_cast<std::size_t>(dl.ndim);
  const IntArrayRef sizes(dl.shape, ndim);
  const IntArrayRef strides = dl.strides ? IntArrayRef(dl.strides, ndim) : IntArrayRef();
  const std::int64_t numel = checked_numel(sizes, "from_dlpack");
  ATHANOR_CHECK_VALUE(dl.data || numel == 0, "from_dlpack: data is null for sizes ", sizes);
  char* const data = dl.data ? static_cast<char*>(dl.data) + dl.byte_offset : nullptr;
  ATHANOR_CHECK_VALUE(numel == 0 || reinterpret_cast<std::uintptr_t>(data) % item_size(dtype) == 0,
                      "from_dlpack: the data is not aligned to the ", item_size(dtype), " bytes of ", dtype,
                      "; copy the array first");
  return detail::external_tensor("from_dlpack", data, sizes, strides, dtype, [managed](void*) {
    if (managed->deleter) managed->deleter(managed);
  });
}

}  // namespace

DLDataType to_dlpack_dtype(DType t) {
  ATHANOR_CHECK(t != DType::Undefined, "to_dlpack: the dtype is not defined");
  const auto bits = static_cast<std::uint8_t>(8 * item_size(t));
  if (t == DType::Bool) return {kDLBool, bits, 1};
  if (t == DType::BFloat16) return {kDLBfloat, bits, 1};
  if (is_floating_point(t)) return {kDLFloat, bits, 1};
  return {t == DType::Byte ? kDLUInt : kDLInt, bits, 1};
}

DType from_dlpack_dtype(DLDataType t) {
  if (t.lanes == 1)
    for (int i = 0; i < kNumDTypes; ++i) {
      const auto dtype = static_cast<DType>(i);
      const DLDataType own = to_dlpack_dtype(dtype);
      if (own.code == t.code && own.bits == t.bits) return dtype;
    }
  ATHANOR_THROW(TypeError, "from_dlpack: there is no dtype for code ", static_cast<int>(t.code), ", ",
                static_cast<int>(t.bits), " bits, ", t.lanes, " lanes; convert before the exchange");
}

DLManagedTensor* to_dlpack(const TensorBase& t) { return export_tensor<DLManagedTensor>(t); }

DLManagedTensorVersioned* to_dlpack_versioned(const TensorBase& t) {
  auto* out = export_tensor<DLManagedTensorVersioned>(t);
  out->version = kVersion;
  return out;
}

TensorBase from_dlpack(DLManagedTensor* managed) {
  ATHANOR_CHECK_VALUE(managed, "from_dlpack: the structure is null");
  return import_tensor(managed);
}

TensorBase from_dlpack(DLManagedTensorVersioned* managed) {
  ATHANOR_CHECK_VALUE(managed, "from_dlpack: the structure is null");
  ATHANOR_CHECK(managed->version.major == kVersion.major, "from_dlpack: version ", managed->version.major, ".",
                managed->version.minor, " of the exchange format is not known; expected ", kVersion.major, ".x");
  ATHANOR_CHECK(!(managed->flags & kDLPackReadOnly),
                "from_dlpack: the memory is read-only, and tensors can be written; copy the array first");
  return import_tensor(managed);
}

}  // namespace athanor
