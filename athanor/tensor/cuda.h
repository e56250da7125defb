#pragma once
/// CUDA devices, by PyTorch's names. No build has a CUDA backend yet; with ATHANOR_CUDA_ON_CPU=N in the environment the
/// names cuda:0 … cuda:N-1 are served by virtual devices on the CPU, so that programs for GPUs run anywhere. Without
/// it there are no devices, and functions that need one throw Error and say so. CUDA_VISIBLE_DEVICES is read at first
/// use. An index of -1 means the calling thread's current device.

#include <cstdint>
#include <string>

#include "athanor/tensor/device_memory.h"
#include "athanor/tensor/event.h"

namespace athanor::cuda {

bool is_available();
/// 0 if there are none; starts nothing.
DeviceIndex device_count();
/// "Athanor virtual device".
std::string get_device_name(int device = -1);

struct DeviceProperties {
  std::string name;
  std::int64_t total_memory;  ///< bytes; see athanor::mem_get_info
  int multi_processor_count;  ///< threads of its team
};
DeviceProperties get_device_properties(int device = -1);

/// Of the calling thread; 0 at its start.
int current_device();
/// Makes "cuda" without an index mean `device` in the calling thread; negative values are ignored, as in PyTorch.
void set_device(int device);
/// Waits for all work of the device and rethrows its failure.
void synchronize(int device = -1);
Stream current_stream(int device = -1);

/// Seeds the generator of all devices, which is one.
void manual_seed(std::uint64_t seed);
void manual_seed_all(std::uint64_t seed);
inline bool cudnn_is_available() { return false; }

std::int64_t memory_allocated(int device = -1);
std::int64_t max_memory_allocated(int device = -1);
std::int64_t memory_reserved(int device = -1);
std::int64_t max_memory_reserved(int device = -1);
DeviceStats memory_stats(int device = -1);
void reset_peak_memory_stats(int device = -1);
/// Of every device.
void empty_cache();
MemoryInfo mem_get_info(int device = -1);
/// Limits the device to this part of its total_memory, in (0, 1].
void set_per_process_memory_fraction(double fraction, int device = -1);
void set_memory_limit(std::size_t bytes, int device = -1);

/// The current device of a scope: `with torch.cuda.device(i)`. Negative: no change.
class CUDAGuard {
 public:
  explicit CUDAGuard(int device);
  ~CUDAGuard();
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;

 private:
  int previous_;
};

}  // namespace athanor::cuda
