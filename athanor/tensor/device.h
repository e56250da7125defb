#pragma once
/// Where a tensor lives. `cpu` is the host; `cpu:k` with two or more virtual devices configured is an in-order queue,
/// and so is `cuda:k` under ATHANOR_CUDA_ON_CPU.

#include <cstdint>
#include <string>
#include <string_view>

#include "athanor/base/error.h"

namespace athanor {

enum class DeviceType : std::int8_t { CPU = 0, CUDA = 1 };
inline constexpr DeviceType kCPU = DeviceType::CPU;
inline constexpr DeviceType kCUDA = DeviceType::CUDA;
using DeviceIndex = std::int8_t;

/// A device name: type and index; index -1 means "the host" for cpu and "the current one" for cuda.
class Device {
 public:
  using Type = DeviceType;
  constexpr Device(DeviceType type = DeviceType::CPU, DeviceIndex index = -1) : type_(type), index_(index) {}
  /// cuda:index, as PyTorch takes integers for devices. Throws Error for a negative one.
  Device(int cuda_index);
  /// Parses "cpu", "cpu:1", "cuda", "cuda:0"; throws Error naming the accepted forms.
  Device(std::string_view text);
  Device(const char* text) : Device(std::string_view(text)) {}
  Device(const std::string& text) : Device(std::string_view(text)) {}

  constexpr DeviceType type() const { return type_; }
  constexpr DeviceIndex index() const { return index_; }
  constexpr bool has_index() const { return index_ >= 0; }
  constexpr bool is_cpu() const { return type_ == DeviceType::CPU; }
  constexpr bool is_cuda() const { return type_ == DeviceType::CUDA; }
  /// The host CPU, whose kernels run inline.
  constexpr bool is_host() const { return type_ == DeviceType::CPU && index_ < 0; }
  std::string str() const;
  friend constexpr bool operator==(Device a, Device b) { return a.type_ == b.type_ && a.index_ == b.index_; }

 private:
  DeviceType type_;
  DeviceIndex index_;
};

inline void append(std::string& out, Device d) { out += d.str(); }

}  // namespace athanor
