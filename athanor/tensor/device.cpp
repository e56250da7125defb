#include "athanor/tensor/device.h"

#include <charconv>

namespace athanor {

Device::Device(int cuda_index) : type_(DeviceType::CUDA), index_(static_cast<DeviceIndex>(cuda_index)) {
  ATHANOR_CHECK(cuda_index >= 0 && cuda_index < 128, "invalid device ", cuda_index,
                ": an integer names a cuda device and should be 0 to 127");
}

Device::Device(std::string_view text) : type_(DeviceType::CPU), index_(-1) {
  const auto colon = text.find(':');
  const auto name = text.substr(0, colon);
  bool good = name == "cpu" || name == "cuda";
  if (name == "cuda") type_ = DeviceType::CUDA;
  if (good && colon != std::string_view::npos) {
    const auto digits = text.substr(colon + 1);
    int index = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    good = error == std::errc() && end == digits.data() + digits.size() && index >= 0 && index < 128;
    index_ = static_cast<DeviceIndex>(index);
  }
  ATHANOR_CHECK(good, "invalid device string '", text, "': expected cpu, cpu:N, cuda or cuda:N");
}

std::string Device::str() const {
  std::string out = type_ == DeviceType::CPU ? "cpu" : "cuda";
  if (index_ >= 0) out += ":" + std::to_string(static_cast<int>(index_));
  return out;
}

}  // namespace athanor
