#pragma once
/// Exchange of tensors without copying by DLPack's C structures, and the structures themselves as that standard's
/// version 1 lays them out (pointers may be cast to and from those of any other header of it).
///
/// Export: the structure holds the tensor's storage; whoever consumes it calls `deleter` once, from any thread, when
/// done with the memory. Import: the tensor owns the structure and calls its deleter when the last tensor on the memory
/// is gone; if an import throws, the structure still belongs to the caller. Exported and imported memory is
/// host-exposed: pending work on it ends first, and later ops on it end before they return.

#include <cstdint>

#include "athanor/tensor/tensor_base.h"

namespace athanor {

enum DLDeviceType : std::int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 };
struct DLDevice {
  DLDeviceType device_type;
  std::int32_t device_id;
};

enum DLDataTypeCode : std::uint8_t {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6
};
struct DLDataType {
  std::uint8_t code;  ///< a DLDataTypeCode
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null means row-major
  std::uint64_t byte_offset;
};

/// The form without a version, which older consumers know.
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

struct DLPackVersion {
  std::uint32_t major, minor;
};
inline constexpr std::uint64_t kDLPackReadOnly = 1, kDLPackIsCopied = 2;
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};

/// Exports `t`: same memory, sizes and strides. Virtual CPU devices count as the host. Throws Error for tensors that
/// require grad (use detach()), undefined ones, and devices other than the CPU.
DLManagedTensor* to_dlpack(const TensorBase& t);
DLManagedTensorVersioned* to_dlpack_versioned(const TensorBase& t);

/// Imports a tensor on the host (device CPU, or pinned host memory). Throws Error, naming what was found, for other
/// devices, dtypes that do not exist here, vector types (lanes > 1), negative strides, misaligned data, another major
/// version, and memory marked read-only.
TensorBase from_dlpack(DLManagedTensor* managed);
TensorBase from_dlpack(DLManagedTensorVersioned* managed);

/// libtorch's spellings.
inline DLManagedTensor* toDLPack(const TensorBase& t) { return to_dlpack(t); }
inline DLManagedTensorVersioned* toDLPackVersioned(const TensorBase& t) { return to_dlpack_versioned(t); }
inline TensorBase fromDLPack(DLManagedTensor* managed) { return from_dlpack(managed); }
inline TensorBase fromDLPackVersioned(DLManagedTensorVersioned* managed) { return from_dlpack(managed); }

/// The dtype's DLPack code, and back (throws TypeError naming code, bits and lanes if there is none).
DLDataType to_dlpack_dtype(DType t);
DType from_dlpack_dtype(DLDataType t);

}  // namespace athanor
