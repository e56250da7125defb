#include "athanor/parallel/data_parallel.h"

#include <algorithm>

#include "athanor/tensor/stream.h"

namespace athanor::nn::parallel {

std::vector<Device> distinct_devices(const std::vector<Device>& devices, const char* who) {
  ATHANOR_CHECK_VALUE(!devices.empty(), who, ": no devices given");
  std::vector<Device> result;
  for (const Device device : devices) {
    const Device resolved = resolve(device);
    ATHANOR_CHECK_VALUE(std::find(result.begin(), result.end(), resolved) == result.end(), who, ": device ", resolved,
                        " is listed twice");
    result.push_back(resolved);
  }
  return result;
}

std::vector<Device> all_devices() {
  std::vector<Device> devices;
  for (int i = 0; i < athanor::detail::cuda_queue_count(); ++i) devices.emplace_back(i);
  if (!devices.empty()) return devices;
  for (int i = 0; i < cpu_device_count(); ++i) devices.emplace_back(DeviceType::CPU, static_cast<DeviceIndex>(i));
  if (devices.empty()) devices.emplace_back();
  return devices;
}

std::vector<Tensor> scatter(const Tensor& input, const std::vector<Device>& devices, std::int64_t dim) {
  const std::vector<Device> places = distinct_devices(devices, "scatter");
  ATHANOR_CHECK(input.defined() && input.dim() > 0, "scatter: a tensor with a batch dimension is needed, got ",
                input.defined() ? "a 0-d one" : "none");
  std::vector<Tensor> parts = input.chunk(static_cast<std::int64_t>(places.size()), dim);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = parts[i].to(places[i]);
  return parts;
}

Tensor gather(const std::vector<Tensor>& parts, Device device, std::int64_t dim) {
  ATHANOR_CHECK_VALUE(!parts.empty(), "gather: no tensors given");
  std::vector<Tensor> here;
  for (const Tensor& part : parts) {
    const Tensor moved = part.to(device);
    here.push_back(moved.dim() == 0 ? moved.unsqueeze(0) : moved);
  }
  return cat(here, parts[0].dim() == 0 ? 0 : dim);
}

Replicas::Replicas(std::shared_ptr<Module> module, std::vector<Device> devices)
    : devices_(distinct_devices(devices, "replicate")), modules_(devices_.size()) {
  modules_[0] = std::move(module);
  check_place();
}

void Replicas::check_place() const {
  const auto check = [&](const char* what, const auto& named) {
    for (const auto& item : named)
      ATHANOR_CHECK_VALUE(item.value().device() == devices_[0], "data parallel: the module's ", what, " '", item.key(),
                          "' lies on ", item.value().device(), ", expected the first of its devices, ", devices_[0],
                          ". Move the module there first: module->to(device)");
  };
  check("parameter", modules_[0]->named_parameters());
  check("buffer", modules_[0]->named_buffers());
}

const std::vector<std::shared_ptr<Module>>& Replicas::refreshed(std::size_t count) {
  for (std::size_t i = 1; i < std::min(count, modules_.size()); ++i) {
    modules_[i] = nullptr;  // its memory is that of the next
    modules_[i] = modules_[0]->replica(devices_[i]);
  }
  return modules_;
}

DataParallelBase::DataParallelBase(const std::shared_ptr<Module>& module, DataParallelOptions options)
    : Module("DataParallel"), options_(std::move(options)), wrapped_(module) {
  ATHANOR_CHECK_VALUE(module != nullptr, "DataParallel: no module given");
  options_.device_ids(
      distinct_devices(options_.device_ids().empty() ? all_devices() : options_.device_ids(), "DataParallel"));
  options_.output_device(resolve(options_.output_device().value_or(options_.device_ids()[0])));
  register_module("module", module);
}

std::vector<Tensor> DataParallelBase::parts_of(const Tensor& input) {
  if (options_.device_ids().size() == 1) return {};
  return scatter(input, options_.device_ids(), options_.dim());
}

const std::vector<std::shared_ptr<Module>>& DataParallelBase::replicas(std::size_t count) {
  if (!replicas_) replicas_.emplace(wrapped_, options_.device_ids());
  return replicas_->refreshed(count);
}

Tensor DataParallelBase::joined(const std::vector<Tensor>& outputs) const {
  return gather(outputs, *options_.output_device(), options_.dim());
}

Tensor DataParallelBase::placed(const Tensor& output) const { return output.to(*options_.output_device()); }

}  // namespace athanor::nn::parallel
