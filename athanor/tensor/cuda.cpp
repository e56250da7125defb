#include "athanor/tensor/cuda.h"

#include <cmath>

#include "athanor/base/error.h"
#include "athanor/tensor/generator.h"

namespace athanor::cuda {
namespace {

Device device_of(int index) { return resolve(index < 0 ? Device(DeviceType::CUDA) : Device(index)); }

}  // namespace

bool is_available() { return device_count() > 0; }
DeviceIndex device_count() { return static_cast<DeviceIndex>(detail::cuda_queue_count()); }

std::string get_device_name(int device) {
  device_of(device);
  return "Athanor virtual device";
}

DeviceProperties get_device_properties(int device) {
  const Device place = device_of(device);
  return {get_device_name(device), athanor::mem_get_info(place).total, detail::queue_of(place)->threads()};
}

int current_device() { return device_of(-1).index(); }

void set_device(int device) {
  if (device >= 0) detail::set_current_cuda_device(device_of(device).index());
}

void synchronize(int device) { athanor::synchronize(device_of(device)); }
Stream current_stream(int device) { return Stream(device_of(device)); }

void manual_seed(std::uint64_t seed) { athanor::manual_seed(seed); }
void manual_seed_all(std::uint64_t seed) { athanor::manual_seed(seed); }

std::int64_t memory_allocated(int device) { return athanor::memory_allocated(device_of(device)); }
std::int64_t max_memory_allocated(int device) { return athanor::max_memory_allocated(device_of(device)); }
std::int64_t memory_reserved(int device) { return athanor::memory_reserved(device_of(device)); }
std::int64_t max_memory_reserved(int device) { return athanor::max_memory_reserved(device_of(device)); }
DeviceStats memory_stats(int device) { return athanor::memory_stats(device_of(device)); }
void reset_peak_memory_stats(int device) { athanor::reset_peak_memory_stats(device_of(device)); }

void empty_cache() {
  for (int i = 0; i < device_count(); ++i) athanor::empty_cache(Device(i));
}

MemoryInfo mem_get_info(int device) { return athanor::mem_get_info(device_of(device)); }
void set_memory_limit(std::size_t bytes, int device) { athanor::set_memory_limit(device_of(device), bytes); }

void set_per_process_memory_fraction(double fraction, int device) {
  ATHANOR_CHECK_VALUE(fraction > 0 && fraction <= 1, "set_per_process_memory_fraction: expected a part in (0, 1], got ",
                      fraction);
  const Device place = device_of(device);
  athanor::set_memory_limit(place, 0);
  const auto total = static_cast<double>(athanor::mem_get_info(place).total);
  athanor::set_memory_limit(place, static_cast<std::size_t>(std::floor(total * fraction)));
}

CUDAGuard::CUDAGuard(int device) : previous_(detail::current_cuda_device()) { set_device(device); }
CUDAGuard::~CUDAGuard() { detail::set_current_cuda_device(previous_); }

}  // namespace athanor::cuda
