#pragma once
/// Kernel: one function per device type, filled in by the rooms under device/. Ops call kernels through launch()
/// (athanor/ops/launch.h), never directly: that is where a queued device takes over.
///
///     // ops/kernels/softmax.h, the seam:
///     extern Kernel<void(const View& out, const View& in, std::int64_t dim)> softmax_kernel;
///     // ops/softmax.cpp:             constinit Kernel<...> softmax_kernel{"softmax"};
///     // device/cpu/softmax.cpp:      ATHANOR_REGISTER_KERNEL(softmax_kernel, CPU, &softmax_cpu);
///
/// A kernel receives outputs already allocated and fills them; parameters are plain values, so a call can be queued.
/// One that leaves parts of its outputs as they are, or computes with what is there, says so: {"index_add", kUpdates}.

#include <cstdint>

#include "athanor/base/error.h"
#include "athanor/tensor/device.h"
#include "athanor/tensor/scalar.h"
#include "athanor/tensor/view.h"

namespace athanor {

/// What a kernel does with its outputs. Values that a failed call left unmade are made by writing all of them, not by
/// updating them.
enum KernelOutputs : bool { kWrites = false, kUpdates = true };

template <class Signature>
class Kernel;

template <class... Args>
class Kernel<void(Args...)> {
 public:
  using Function = void (*)(Args...);
  constexpr explicit Kernel(const char* name, KernelOutputs outputs = kWrites) : name_(name), outputs_(outputs) {}
  const char* name() const { return name_; }
  KernelOutputs outputs() const { return outputs_; }
  bool has(DeviceType device) const { return functions_[static_cast<int>(device)] != nullptr; }
  void set(DeviceType device, Function function) { functions_[static_cast<int>(device)] = function; }
  /// The function for `device`; throws NotImplementedError naming the kernel and device if there is none.
  Function get(DeviceType device) const {
    Function f = functions_[static_cast<int>(device)];
    if (__builtin_expect(f == nullptr, 0))
      ATHANOR_THROW(NotImplementedError, name_, ": no kernel for device ", Device(device),
                    "; is the plug-in for that device loaded?");
    return f;
  }

 private:
  const char* name_;
  KernelOutputs outputs_;
  Function functions_[2] = {nullptr, nullptr};
};

struct KernelRegistration {
  template <class K>
  KernelRegistration(K& kernel, DeviceType device, typename K::Function function) {
    kernel.set(device, function);
  }
};

#define ATHANOR_REGISTER_KERNEL(kernel, device, function)                                                            \
  static const ::athanor::KernelRegistration kernel##_##device##_registration(kernel, ::athanor::DeviceType::device, \
                                                                              function)

}  // namespace athanor
