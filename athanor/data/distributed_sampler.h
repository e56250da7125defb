#pragma once
/// DistributedSampler with the meaning it has in Python: torch.utils.data.DistributedSampler. libtorch's two, which cut
/// consecutive runs, are in samplers.h.

#include "athanor/data/samplers.h"
#include "athanor/distributed/process_group.h"

namespace athanor::data {

struct DistributedSamplerOptions {
  /// Default: those of the default process group.
  std::optional<std::size_t> num_replicas, rank;
  bool shuffle = true;
  /// Of the shuffled order; the same on all ranks.
  std::uint64_t seed = 0;
  /// Leave out the examples at the end that do not go round; else the first ones come twice.
  bool drop_last = false;
};

/// Rank r's share: examples r, r + num_replicas, r + 2 num_replicas … of an order that all ranks draw alike, anew for
/// every epoch that set_epoch names. All shares have one length. Can be resumed inside an epoch.
class DistributedSampler : public samplers::detail::DrawnSampler {
 public:
  using Options = DistributedSamplerOptions;
  /// Throws ValueError unless rank < num_replicas, Error without a default process group if one is needed.
  explicit DistributedSampler(std::size_t size, const Options& options = {});

  /// Call before each epoch: without it, all epochs have one order, which is warned of once.
  void set_epoch(std::size_t epoch) { epoch_ = epoch; }
  std::size_t epoch() const { return epoch_; }
  /// Length of this and every share.
  std::size_t num_samples() const;
  /// Of all shares together.
  std::size_t total_size() const { return num_samples() * replicas_; }
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  /// The epoch too.
  void restore(const samplers::SamplerState& s) override;

 private:
  PhiloxState reserve() const override { return {options_.seed, epoch_}; }
  std::vector<std::size_t> draw(PhiloxState from) const override;

  std::size_t size_, replicas_, rank_, epoch_ = 0;
  Options options_;
  bool told_ = false;
  std::optional<std::size_t> last_epoch_;  // of the last pass that began
};

}  // namespace athanor::data
