#pragma once
/// Data parallelism over the devices of one process: a batch is cut into parts, every device runs a replica of the
/// module on its part, the results are joined. libtorch's data_parallel and Python's DataParallel.
///
/// One thread enqueues the work of all devices, whose queues run at once. Where there is no second device the module
/// itself runs. For several processes, and for speed beyond one host, see ddp.h.

#include <memory>
#include <optional>
#include <vector>

#include "athanor/nn/any.h"
#include "athanor/nn/options.h"
#include "athanor/nn/pimpl.h"
#include "athanor/ops/tensor.h"

namespace athanor::nn::parallel {

/// The devices used without a list: all cuda devices, else all queued ones, or the host alone.
std::vector<Device> all_devices();
/// The same devices as they are known to tensors: cpu:0 is the host where there are no queues. Throws ValueError,
/// naming `who`, without devices or with one twice, Error for one that does not exist.
std::vector<Device> distinct_devices(const std::vector<Device>& devices, const char* who);

/// Cuts `input` along `dim` as chunk() does, in as many parts as there are devices at most, and copies each to its
/// device. Differentiable. Throws ValueError without devices or with one twice, Error for a 0-d input.
std::vector<Tensor> scatter(const Tensor& input, const std::vector<Device>& devices, std::int64_t dim = 0);
/// Joins parts on a device. Scalars become a vector. Differentiable.
Tensor gather(const std::vector<Tensor>& parts, Device device, std::int64_t dim = 0);

/// Copies of a module on other devices, made anew for each use. Gradients of a replica's parameters end on the
/// original's. Not thread-safe.
class Replicas {
 public:
  /// The module's parameters and buffers must lie on devices[0], whose replica is the module itself. Throws ValueError
  /// naming the tensor that lies elsewhere.
  Replicas(std::shared_ptr<Module> module, std::vector<Device> devices);
  /// The first `count` replicas: what the module is now, options, plain members, hooks and modes included, by
  /// Module::replica, which calls the module's reset(). Valid until the next call; graphs keep what they need of
  /// earlier ones. What a replica changes in buffers or members is lost, but for the module itself.
  const std::vector<std::shared_ptr<Module>>& refreshed(std::size_t count);
  const std::vector<Device>& devices() const { return devices_; }

 private:
  void check_place() const;

  std::vector<Device> devices_;
  std::vector<std::shared_ptr<Module>> modules_;
};

/// Clones of `module` on the devices, differentiable with regard to its parameters.
template <class M>
std::vector<std::shared_ptr<M>> replicate(const std::shared_ptr<M>& module, const std::vector<Device>& devices) {
  std::vector<std::shared_ptr<M>> result;
  Replicas replicas(module, devices);
  for (const auto& replica : replicas.refreshed(devices.size()))
    result.push_back(std::dynamic_pointer_cast<M>(replica));
  return result;
}
template <class M>
std::vector<std::shared_ptr<M>> replicate(const ModuleHolder<M>& module, const std::vector<Device>& devices) {
  return replicate(module.ptr(), devices);
}

/// modules[i]->forward(inputs[i]).
template <class M>
std::vector<Tensor> parallel_apply(const std::vector<std::shared_ptr<M>>& modules, const std::vector<Tensor>& inputs) {
  ATHANOR_CHECK_VALUE(modules.size() >= inputs.size(), "parallel_apply: ", modules.size(), " modules for ",
                      inputs.size(), " inputs");
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) outputs.push_back(detail::call_module(*modules[i], inputs[i]));
  return outputs;
}

struct DataParallelOptions {
  ATHANOR_ARG(std::vector<Device>, device_ids);            ///< all_devices() if empty
  ATHANOR_ARG(std::optional<Device>, output_device) = {};  ///< device_ids[0] if not given
  ATHANOR_ARG(std::int64_t, dim) = 0;                      ///< the batch's
};

/// What does not depend on the module's type.
class DataParallelBase : public Module {
 public:
  DataParallelBase(const std::shared_ptr<Module>& module, DataParallelOptions options);
  const std::vector<Device>& device_ids() const { return options_.device_ids(); }

 protected:
  /// The parts of an input on their devices; nothing if the module itself has to run.
  std::vector<Tensor> parts_of(const Tensor& input);
  const std::vector<std::shared_ptr<Module>>& replicas(std::size_t count);
  Tensor joined(const std::vector<Tensor>& outputs) const;
  Tensor placed(const Tensor& output) const;

 private:
  DataParallelOptions options_;
  std::shared_ptr<Module> wrapped_;
  std::optional<Replicas> replicas_;
};

template <class M>
class DataParallelImpl : public DataParallelBase {
 public:
  /// The module must be Cloneable if there is more than one device. Its parameters are named "module.…". Throws
  /// ValueError for a device listed twice, Error for one that does not exist.
  explicit DataParallelImpl(std::shared_ptr<M> module, const DataParallelOptions& options = {})
      : DataParallelBase(module, options), module_(std::move(module)) {}
  const std::shared_ptr<M>& module() const { return module_; }
  Tensor forward(const Tensor& input) {
    const std::vector<Tensor> parts = parts_of(input);
    if (parts.empty()) return placed(detail::call_module(*module_, input));
    const auto& modules = replicas(parts.size());
    std::vector<Tensor> outputs;
    for (std::size_t i = 0; i < parts.size(); ++i)
      outputs.push_back(detail::call_module(static_cast<M&>(*modules[i]), parts[i]));
    return joined(outputs);
  }

 private:
  std::shared_ptr<M> module_;
};

template <class M>
class DataParallel : public ModuleHolder<DataParallelImpl<M>> {
 public:
  using Impl = DataParallelImpl<M>;
  DataParallel(std::nullptr_t) : ModuleHolder<Impl>(nullptr) {}
  explicit DataParallel(std::shared_ptr<M> module, const DataParallelOptions& options = {})
      : ModuleHolder<Impl>(std::make_shared<Impl>(std::move(module), options)) {}
  explicit DataParallel(const ModuleHolder<M>& module, const DataParallelOptions& options = {})
      : DataParallel(module.ptr(), options) {}
};

/// One forward of DataParallel, with replicas of its own.
template <class M>
Tensor data_parallel(const M& module, const Tensor& input, std::optional<std::vector<Device>> devices = std::nullopt,
                     std::optional<Device> output_device = std::nullopt, std::int64_t dim = 0) {
  DataParallelOptions options;
  options.device_ids(devices ? *devices : std::vector<Device>()).output_device(output_device).dim(dim);
  return DataParallel(module, options)->forward(input);
}

}  // namespace athanor::nn::parallel
