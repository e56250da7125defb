#pragma once
/// Saving and restoring everything a training needs to go on exactly where it stopped: parameters, buffers, optimizer
/// state, schedule, random numbers, and whatever else the program notes. A checkpoint is one safetensors file, written
/// atomically; numbers are kept bit for bit.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "athanor/nn/module.h"
#include "athanor/optim/optimizer.h"
#include "athanor/optim/scheduler.h"

namespace athanor::io {

/// A module's state_dict as safetensors, with PyTorch's parameter names.
void save_module(const std::string& path, const nn::Module& module);
/// The same file, or what torch.save(module.state_dict(), path) wrote. Throws Error naming what is missing, unexpected
/// or of another shape; the module is unchanged then.
void load_module(const std::string& path, nn::Module& module);

/// A bag of named tensors and numbers. Getters throw ValueError naming the entry that is missing.
class Checkpoint {
 public:
  Checkpoint() = default;
  static Checkpoint load(const std::string& path);
  void save(const std::string& path) const;
  /// The same to and from memory.
  static Checkpoint parse(std::span<std::byte> content);
  std::vector<std::byte> bytes() const;
  /// Moves all tensors.
  void to(Device device);

  void set(const std::string& name, const Tensor& t) { tensors_[name] = t; }
  void set(const std::string& name, const std::string& text) { texts_[name] = text; }
  void set(const std::string& name, double value);
  void set(const std::string& name, std::int64_t value);
  bool has(const std::string& name) const { return tensors_.count(name) || texts_.count(name); }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& texts() const { return texts_; }
  Tensor tensor(const std::string& name) const;
  std::string text(const std::string& name) const;
  double number(const std::string& name) const;
  std::int64_t integer(const std::string& name) const;

  void set_module(const std::string& name, const nn::Module& module);
  void load_module(const std::string& name, nn::Module& module) const;
  void set_optimizer(const std::string& name, const optim::Optimizer& optimizer);
  void load_optimizer(const std::string& name, optim::Optimizer& optimizer) const;
  void set_scheduler(const std::string& name, const optim::LRScheduler& scheduler);
  void load_scheduler(const std::string& name, optim::LRScheduler& scheduler) const;
  void set_generator(const std::string& name, const Generator& generator);
  void load_generator(const std::string& name, Generator& generator) const;

 private:
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> texts_;
};

}  // namespace athanor::io
