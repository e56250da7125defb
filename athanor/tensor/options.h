#pragma once
/// TensorOptions: dtype, device, layout and requires_grad of a tensor to be made; what is not set takes its default.

#include <optional>

#include "athanor/tensor/device.h"
#include "athanor/tensor/dtype.h"

namespace athanor {

enum class Layout : std::int8_t { Strided };
inline constexpr Layout kStrided = Layout::Strided;
enum class MemoryFormat : std::int8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };

class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(DType t) : dtype_(t) {}
  TensorOptions(Device d) : device_(d) {}
  TensorOptions(DeviceType d) : device_(Device(d)) {}
  /// "cuda:1". A template, since 0 would be a null pointer: arange(0, 1, 0) is about numbers.
  template <class T>
  requires(std::is_convertible_v<const T&, const char*> && !std::is_integral_v<T> && !std::is_null_pointer_v<T>)
      TensorOptions(const T& device)
      : device_(Device(static_cast<const char*>(device))) {}
  TensorOptions(const std::string& device) : device_(Device(device)) {}
  TensorOptions(Layout) {}
  TensorOptions(MemoryFormat f) : memory_format_(f) {}

  [[nodiscard]] TensorOptions dtype(std::optional<DType> t) const { return with(&TensorOptions::dtype_, t); }
  [[nodiscard]] TensorOptions device(std::optional<Device> d) const { return with(&TensorOptions::device_, d); }
  [[nodiscard]] TensorOptions device(DeviceType t, DeviceIndex index = -1) const { return device(Device(t, index)); }
  /// cuda:index, as libtorch.
  [[nodiscard]] TensorOptions device_index(DeviceIndex index) const { return device(DeviceType::CUDA, index); }
  [[nodiscard]] TensorOptions layout(std::optional<Layout>) const { return *this; }
  [[nodiscard]] TensorOptions pinned_memory(bool on) const { return with(&TensorOptions::pinned_, on); }
  [[nodiscard]] TensorOptions memory_format(std::optional<MemoryFormat> f) const {
    return with(&TensorOptions::memory_format_, f);
  }
  [[nodiscard]] TensorOptions requires_grad(bool on) const { return with(&TensorOptions::requires_grad_, on); }

  DType dtype() const { return dtype_.value_or(get_default_dtype()); }
  Device device() const { return device_.value_or(Device()); }
  DeviceIndex device_index() const { return device().index(); }
  Layout layout() const { return kStrided; }
  bool requires_grad() const { return requires_grad_; }
  bool pinned_memory() const { return pinned_; }
  bool has_dtype() const { return dtype_.has_value(); }
  bool has_device() const { return device_.has_value(); }
  std::optional<DType> dtype_opt() const { return dtype_; }
  std::optional<Device> device_opt() const { return device_; }
  std::optional<MemoryFormat> memory_format_opt() const { return memory_format_; }

 private:
  template <class M, class V>
  TensorOptions with(M TensorOptions::*member, V value) const {
    TensorOptions copy = *this;
    copy.*member = value;
    return copy;
  }
  std::optional<DType> dtype_;
  std::optional<Device> device_;
  std::optional<MemoryFormat> memory_format_;
  bool requires_grad_ = false;
  bool pinned_ = false;
};

/// libtorch's free spellings: `torch::dtype(torch::kLong).device(...)`.
inline TensorOptions dtype(DType t) { return TensorOptions(t); }
inline TensorOptions device(Device d) { return TensorOptions(d); }
inline TensorOptions requires_grad(bool on = true) { return TensorOptions().requires_grad(on); }
inline TensorOptions layout(Layout l) { return TensorOptions(l); }
inline TensorOptions device_index(DeviceIndex index) { return TensorOptions().device_index(index); }
inline TensorOptions memory_format(MemoryFormat f) { return TensorOptions(f); }

}  // namespace athanor
