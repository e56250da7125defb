#include "athanor/data/samplers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "athanor/base/error.h"
#include "athanor/io/archive.h"

namespace athanor::data::samplers {

namespace {

/// splitmix64 (Steele et al., OOPSLA 2014) from a counter that depends on the state only.
class Draws {
 public:
  explicit Draws(PhiloxState state) : counter_(state.seed ^ (state.offset * 0xda942042e4dd58b5ULL)) {}
  std::uint64_t next() {
    std::uint64_t z = (counter_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  /// Below n.
  std::size_t below(std::size_t n) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::size_t>(static_cast<Wide>(next()) * n >> 64);
  }
  /// In (0, 1).
  double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }

 private:
  std::uint64_t counter_;
};

}  // namespace

std::vector<std::size_t> random_order(std::size_t n, PhiloxState state) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Draws draws(state);
  for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[draws.below(i)]);
  return order;
}

void SequentialSampler::reset(std::optional<std::size_t> new_size) {
  if (new_size) size_ = *new_size;
  position_ = 0;
}

std::optional<std::vector<std::size_t>> SequentialSampler::next(std::size_t batch_size) {
  if (position_ >= size_) return std::nullopt;
  std::vector<std::size_t> out(std::min(batch_size, size_ - position_));
  std::iota(out.begin(), out.end(), position_);
  position_ += out.size();
  return out;
}

namespace detail {

void DrawnSampler::begin() {
  if (!shown_) begin(reserve());
  shown_ = false;
}

void DrawnSampler::begin(PhiloxState from) const {
  begun_ = true;
  drawn_from_ = from;
  position_ = 0;
  order_ = draw(from);
}

SamplerState DrawnSampler::state() const {
  if (!begun_) {
    begin(reserve());
    shown_ = true;
  }
  return {drawn_from_, position_};
}

void DrawnSampler::restore(const SamplerState& s) {
  shown_ = false;
  begin(s.generator);
  position_ = s.position;
}

std::optional<std::vector<std::size_t>> DrawnSampler::next(std::size_t batch_size) {
  if (!begun_) reset();
  shown_ = false;
  if (position_ >= order_.size()) return std::nullopt;
  const std::size_t n = std::min(batch_size, order_.size() - position_);
  const auto from = order_.begin() + static_cast<std::ptrdiff_t>(position_);
  position_ += n;
  return std::vector<std::size_t>(from, from + static_cast<std::ptrdiff_t>(n));
}

}  // namespace detail

RandomSampler::RandomSampler(std::size_t size, std::optional<Generator> generator)
    : generator_(generator.value_or(default_generator())), size_(size) {}

void RandomSampler::reset(std::optional<std::size_t> new_size) {
  if (new_size && *new_size != size_) {
    size_ = *new_size;
    shown_ = false;
  }
  begin();
}

std::vector<std::size_t> RandomSampler::draw(PhiloxState from) const { return random_order(size_, from); }

SubsetRandomSampler::SubsetRandomSampler(std::vector<std::size_t> indices, std::optional<Generator> generator)
    : indices_(std::move(indices)), generator_(generator.value_or(default_generator())) {}

void SubsetRandomSampler::reset(std::optional<std::size_t> new_size) {
  ATHANOR_CHECK_VALUE(!new_size || *new_size == indices_.size(), "SubsetRandomSampler: ", indices_.size(),
                      " indices, asked for ", new_size.value_or(0));
  begin();
}

std::vector<std::size_t> SubsetRandomSampler::draw(PhiloxState from) const {
  std::vector<std::size_t> order = random_order(indices_.size(), from);
  for (std::size_t& i : order) i = indices_[i];
  return order;
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, std::size_t count, bool replacement,
                                             std::optional<Generator> generator)
    : weights_(std::move(weights)),
      count_(count),
      replacement_(replacement),
      generator_(generator.value_or(default_generator())) {
  double total = 0;
  std::size_t positive = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    ATHANOR_CHECK_VALUE(std::isfinite(weights_[i]) && weights_[i] >= 0, "WeightedRandomSampler: weight ", i, " is ",
                        weights_[i], ", expected a finite number of at least 0");
    positive += weights_[i] > 0;
    cumulative_.push_back(total += weights_[i]);
  }
  ATHANOR_CHECK_VALUE(total > 0 && std::isfinite(total), "WeightedRandomSampler: the weights add up to ", total,
                      ", expected a positive finite sum");
  ATHANOR_CHECK_VALUE(count > 0, "WeightedRandomSampler: count should be positive");
  ATHANOR_CHECK_VALUE(replacement || count <= positive, "WeightedRandomSampler: cannot draw ", count, " of ", positive,
                      " examples of positive weight without replacement");
}

void WeightedRandomSampler::reset(std::optional<std::size_t> new_size) {
  ATHANOR_CHECK_VALUE(!new_size || *new_size == weights_.size(), "WeightedRandomSampler: has ", weights_.size(),
                      " weights, got a dataset of ", new_size.value_or(0), " examples");
  begin();
}

std::vector<std::size_t> WeightedRandomSampler::draw(PhiloxState from) const {
  Draws draws(from);
  std::vector<std::size_t> out;
  out.reserve(count_);
  if (replacement_) {
    // The last index of positive weight, for a draw that rounds up to the total.
    const auto last = std::lower_bound(cumulative_.begin(), cumulative_.end(), cumulative_.back());
    for (std::size_t i = 0; i < count_; ++i) {
      const double at = draws.uniform() * cumulative_.back();
      const auto found = std::min(std::upper_bound(cumulative_.begin(), cumulative_.end(), at), last);
      out.push_back(static_cast<std::size_t>(found - cumulative_.begin()));
    }
    return out;
  }
  // The largest keys log(u) / w; the order by falling key is that of drawing one by one.
  std::vector<std::pair<double, std::size_t>> keys;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const double u = draws.uniform();
    if (weights_[i] > 0) keys.emplace_back(-std::log(u) / weights_[i], i);
  }
  std::partial_sort(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(count_), keys.end());
  for (std::size_t i = 0; i < count_; ++i) out.push_back(keys[i].second);
  return out;
}

void StreamSampler::reset(std::optional<std::size_t> new_size) {
  if (new_size) epoch_size_ = *new_size;
  given_ = 0;
}

std::optional<BatchSize> StreamSampler::next(std::size_t batch_size) {
  if (given_ >= epoch_size_) return std::nullopt;
  const std::size_t n = std::min(batch_size, epoch_size_ - given_);
  given_ += n;
  return n;
}

DistributedSampler::DistributedSampler(std::size_t size, std::size_t num_replicas, std::size_t rank,
                                       bool allow_duplicates)
    : size_(size), num_replicas_(num_replicas), rank_(rank), allow_duplicates_(allow_duplicates) {
  ATHANOR_CHECK_VALUE(rank < num_replicas, "Invalid rank ", rank, ", rank should be in the interval [0, ",
                      static_cast<std::int64_t>(num_replicas) - 1, "]");
}

std::size_t DistributedSampler::local_sample_count() const {
  return allow_duplicates_ ? (size_ + num_replicas_ - 1) / num_replicas_ : size_ / num_replicas_;
}

void DistributedSampler::reset(std::optional<std::size_t> new_size) {
  if (new_size) size_ = *new_size;
  begin(reserve());
}

std::vector<std::size_t> DistributedSampler::share(std::vector<std::size_t> all) const {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank_ * local_sample_count());
  return {begin, begin + static_cast<std::ptrdiff_t>(local_sample_count())};
}

namespace {

/// 0 … size-1, from the start again up to `total`.
std::vector<std::size_t> cyclic(std::size_t size, std::size_t total) {
  std::vector<std::size_t> all(total);
  for (std::size_t i = 0; i < total; ++i) all[i] = i % size;
  return all;
}

}  // namespace

DistributedRandomSampler::DistributedRandomSampler(std::size_t size, std::size_t num_replicas, std::size_t rank,
                                                   bool allow_duplicates)
    : DistributedSampler(size, num_replicas, rank, allow_duplicates) {
  reset();
}

std::vector<std::size_t> DistributedRandomSampler::draw(PhiloxState from) const {
  auto all = cyclic(size_, num_replicas_ == 1 ? size_ : local_sample_count() * num_replicas_);
  std::mt19937 random(static_cast<std::mt19937::result_type>(from.seed));
  std::shuffle(all.begin(), all.end(), random);
  return share(std::move(all));
}

DistributedSequentialSampler::DistributedSequentialSampler(std::size_t size, std::size_t num_replicas, std::size_t rank,
                                                           bool allow_duplicates)
    : DistributedSampler(size, num_replicas, rank, allow_duplicates) {
  reset();
}

std::vector<std::size_t> DistributedSequentialSampler::draw(PhiloxState) const {
  return share(cyclic(size_, local_sample_count() * num_replicas_));
}

namespace detail {

void save_state(serialize::OutputArchive& archive, const SamplerState& state) {
  archive.write("index", state.position);
  archive.write("seed", static_cast<std::int64_t>(state.generator.seed));
  archive.write("offset", static_cast<std::int64_t>(state.generator.offset));
}

SamplerState load_state(serialize::InputArchive& archive) {
  SamplerState state;
  std::int64_t seed = 0, offset = 0;
  archive.read("index", state.position);
  archive.read("seed", seed);
  archive.read("offset", offset);
  state.generator = {static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(offset)};
  return state;
}

}  // namespace detail

void DistributedSampler::save(serialize::OutputArchive& archive) const {
  Sampler::save(archive);
  archive.write("epoch", epoch_);
}

void DistributedSampler::load(serialize::InputArchive& archive) {
  archive.read("epoch", epoch_);
  Sampler::load(archive);
}

}  // namespace athanor::data::samplers
