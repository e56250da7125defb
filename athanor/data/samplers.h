#pragma once
/// Samplers: the order in which a loader asks for examples. Their state can be saved between two batches and restored.

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "athanor/base/error.h"
#include "athanor/tensor/generator.h"

namespace athanor::serialize {
class OutputArchive;
class InputArchive;
}  // namespace athanor::serialize

namespace athanor::data::samplers {

/// Base of requests that are neither indices nor a number of examples.
struct CustomBatchRequest {
  virtual ~CustomBatchRequest() = default;
  /// Number of examples asked for.
  virtual std::size_t size() const = 0;
};

/// Where a sampler stands: enough to go on with exactly the same indices.
struct SamplerState {
  PhiloxState generator{0, 0};  ///< from which the present order was drawn
  std::size_t position = 0;
};

namespace detail {
void save_state(serialize::OutputArchive& archive, const SamplerState& state);
SamplerState load_state(serialize::InputArchive& archive);
}  // namespace detail

/// Base of all. One's own sampler overrides reset and next; state and restore only if it is to be resumed inside an
/// epoch.
template <class BatchRequest = std::vector<std::size_t>>
class Sampler {
 public:
  using BatchRequestType = BatchRequest;
  virtual ~Sampler() = default;
  /// Starts a new epoch, of `new_size` examples if given.
  virtual void reset(std::optional<std::size_t> new_size = std::nullopt) = 0;
  /// The next at most `batch_size` indices, or nothing at the end of the epoch.
  virtual std::optional<BatchRequest> next(std::size_t batch_size) = 0;
  virtual SamplerState state() const { return {}; }
  /// Throws NotImplementedError unless the sampler overrides it.
  virtual void restore(const SamplerState&) {
    ATHANOR_THROW(NotImplementedError, "this sampler cannot be restored inside an epoch; override state and restore");
  }
  /// state() to an archive and back; libtorch's samplers override these two instead.
  virtual void save(serialize::OutputArchive& archive) const { detail::save_state(archive, state()); }
  virtual void load(serialize::InputArchive& archive) { restore(detail::load_state(archive)); }
};

/// 0, 1, 2, …
class SequentialSampler : public Sampler<> {
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

namespace detail {
/// A list of indices that is drawn afresh every epoch (first by reset, or by next without one) and handed out in
/// pieces.
class DrawnSampler : public Sampler<> {
 public:
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  /// Before the first epoch this draws its order, which the first reset() then keeps.
  SamplerState state() const override;
  void restore(const SamplerState& s) override;
  std::size_t index() const { return position_; }

 protected:
  /// Starts the epoch that state() has shown, or else a new one.
  void begin();
  void begin(PhiloxState from) const;
  /// Where the next order is to be drawn from.
  virtual PhiloxState reserve() const = 0;
  /// The epoch's indices; they depend on `from` and on the sampler's settings only.
  virtual std::vector<std::size_t> draw(PhiloxState from) const = 0;

  // An order is drawn when it is first asked for, also by state().
  mutable std::vector<std::size_t> order_;
  mutable PhiloxState drawn_from_{0, 0};
  mutable std::size_t position_ = 0;
  mutable bool begun_ = false, shown_ = false;
};
}  // namespace detail

/// A new random order every epoch, drawn from `generator` (the default generator unless given).
class RandomSampler : public detail::DrawnSampler {
 public:
  explicit RandomSampler(std::size_t size, std::optional<Generator> generator = std::nullopt);
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;

 private:
  PhiloxState reserve() const override { return generator_.reserve(size_); }
  std::vector<std::size_t> draw(PhiloxState from) const override;
  mutable Generator generator_;
  std::size_t size_;
};

/// The given indices in a new random order every epoch.
class SubsetRandomSampler : public detail::DrawnSampler {
 public:
  explicit SubsetRandomSampler(std::vector<std::size_t> indices, std::optional<Generator> generator = std::nullopt);
  /// The number of examples follows the indices; throws ValueError for another.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;

 private:
  PhiloxState reserve() const override { return generator_.reserve(indices_.size()); }
  std::vector<std::size_t> draw(PhiloxState from) const override;
  std::vector<std::size_t> indices_;
  mutable Generator generator_;
};

/// `count` indices an epoch, each in proportion to its weight. Without replacement an index comes at most once
/// (Efraimidis & Spirakis, "Weighted random sampling with a reservoir", 2006).
class WeightedRandomSampler : public detail::DrawnSampler {
 public:
  /// Throws ValueError for weights that are negative, not finite or all zero, and without replacement for a count above
  /// the number of positive weights.
  WeightedRandomSampler(std::vector<double> weights, std::size_t count, bool replacement = true,
                        std::optional<Generator> generator = std::nullopt);
  /// The number of examples follows the weights; throws ValueError for another.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;

 private:
  PhiloxState reserve() const override { return generator_.reserve(std::max(count_, weights_.size())); }
  std::vector<std::size_t> draw(PhiloxState from) const override;
  std::vector<double> weights_, cumulative_;
  std::size_t count_;
  bool replacement_;
  mutable Generator generator_;
};

/// Batches of another sampler at a size of their own: whatever size the loader asks for, it gets one batch of
/// `batch_size`.
template <class Inner>
class BatchSampler : public Sampler<> {
 public:
  BatchSampler(Inner inner, std::size_t batch_size, bool drop_last = false)
      : inner_(std::move(inner)), batch_size_(batch_size), drop_last_(drop_last) {
    ATHANOR_CHECK_VALUE(batch_size > 0, "BatchSampler: batch_size should be a positive integer value");
  }
  void reset(std::optional<std::size_t> new_size = std::nullopt) override { inner_.reset(new_size); }
  std::optional<std::vector<std::size_t>> next(std::size_t) override {
    auto batch = inner_.next(batch_size_);
    if (batch && drop_last_ && batch->size() < batch_size_) return std::nullopt;
    return batch;
  }
  SamplerState state() const override { return inner_.state(); }
  void restore(const SamplerState& s) override { inner_.restore(s); }

 private:
  Inner inner_;
  std::size_t batch_size_;
  bool drop_last_;
};

/// A request for so many examples, whichever they are.
class BatchSize : public CustomBatchRequest {
 public:
  BatchSize(std::size_t size) : size_(size) {}
  std::size_t size() const override { return size_; }
  operator std::size_t() const { return size_; }

 private:
  std::size_t size_;
};

/// For datasets that are streams: asks for batches by size only, `epoch_size` examples an epoch.
class StreamSampler : public Sampler<BatchSize> {
 public:
  explicit StreamSampler(std::size_t epoch_size) : epoch_size_(epoch_size) {}
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  std::optional<BatchSize> next(std::size_t batch_size) override;
  SamplerState state() const override { return {{0, 0}, given_}; }
  void restore(const SamplerState& s) override { given_ = s.position; }

 private:
  std::size_t epoch_size_, given_ = 0;
};

/// One rank's share of a dataset. libtorch's: the ranks' shares are consecutive runs of one order, all of one length:
/// with allow_duplicates the first examples come twice to fill up, else the last are left out.
class DistributedSampler : public detail::DrawnSampler {
 public:
  /// The epoch decides the order; the same on all ranks. Call before the epoch begins.
  void set_epoch(std::size_t epoch) { epoch_ = epoch; }
  std::size_t epoch() const { return epoch_; }
  /// Length of every rank's share.
  std::size_t local_sample_count() const;
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  /// The epoch too.
  void save(serialize::OutputArchive& archive) const override;
  void load(serialize::InputArchive& archive) override;

 protected:
  /// Throws ValueError unless rank < num_replicas.
  DistributedSampler(std::size_t size, std::size_t num_replicas, std::size_t rank, bool allow_duplicates);
  PhiloxState reserve() const override { return {epoch_, 0}; }
  /// This rank's run of an order of all examples.
  std::vector<std::size_t> share(std::vector<std::size_t> all) const;
  std::size_t size_, num_replicas_, rank_, epoch_ = 0;
  bool allow_duplicates_;
};

/// Order shuffled by mt19937 seeded with the epoch, as libtorch's.
class DistributedRandomSampler : public DistributedSampler {
 public:
  explicit DistributedRandomSampler(std::size_t size, std::size_t num_replicas = 1, std::size_t rank = 0,
                                    bool allow_duplicates = true);

 private:
  std::vector<std::size_t> draw(PhiloxState from) const override;
};

class DistributedSequentialSampler : public DistributedSampler {
 public:
  explicit DistributedSequentialSampler(std::size_t size, std::size_t num_replicas = 1, std::size_t rank = 0,
                                        bool allow_duplicates = true);

 private:
  std::vector<std::size_t> draw(PhiloxState from) const override;
};

/// A random order of 0 … n-1 that depends on `state` only (Fisher–Yates).
std::vector<std::size_t> random_order(std::size_t n, PhiloxState state);

}  // namespace athanor::data::samplers
