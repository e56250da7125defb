#pragma once
/// Samplers: the order in which a loader asks for examples. Their state can be saved between two batches and restored.

#include <optional>
#include <vector>

#include "athanor/tensor/generator.h"

namespace athanor::data::samplers {

/// Where a sampler stands: enough to go on with exactly the same indices.
struct SamplerState {
  PhiloxState generator{0, 0};  ///< from which the present order was drawn
  std::size_t position = 0;
};

class Sampler {
 public:
  using BatchRequestType = std::vector<std::size_t>;
  virtual ~Sampler() = default;
  /// Starts a new epoch, of `new_size` examples if given.
  virtual void reset(std::optional<std::size_t> new_size = std::nullopt) = 0;
  /// The next at most `batch_size` indices, or nothing at the end of the epoch.
  virtual std::optional<std::vector<std::size_t>> next(std::size_t batch_size) = 0;
  virtual SamplerState state() const = 0;
  virtual void restore(const SamplerState& state) = 0;
};

/// 0, 1, 2, …
class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(std::size_t size) : size_(size) {}
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  SamplerState state() const override { return {{0, 0}, position_}; }
  void restore(const SamplerState& s) override { position_ = s.position; }
  std::size_t index() const { return position_; }

 private:
  std::size_t size_, position_ = 0;
};

/// A new random order every epoch, drawn from `generator` (the default generator unless given).
class RandomSampler : public Sampler {
 public:
  explicit RandomSampler(std::size_t size, std::optional<Generator> generator = std::nullopt);
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  SamplerState state() const override { return {drawn_from_, position_}; }
  void restore(const SamplerState& s) override;
  std::size_t index() const { return position_; }

 private:
  void draw();
  Generator generator_;
  PhiloxState drawn_from_{0, 0};
  std::vector<std::size_t> order_;
  std::size_t position_ = 0;
};

/// A random order of 0 … n-1 that depends on `state` only (Fisher–Yates).
std::vector<std::size_t> random_order(std::size_t n, PhiloxState state);

}  // namespace athanor::data::samplers
