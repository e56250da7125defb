#include "athanor/data/distributed_sampler.h"

#include <numeric>

#include "athanor/base/log.h"
#include "athanor/distributed/groups.h"

namespace athanor::data {

DistributedSampler::DistributedSampler(std::size_t size, const Options& options)
    : size_(size),
      replicas_(options.num_replicas ? *options.num_replicas : static_cast<std::size_t>(distributed::get_world_size())),
      rank_(options.rank ? *options.rank : static_cast<std::size_t>(distributed::get_rank())),
      options_(options) {
  ATHANOR_CHECK_VALUE(rank_ < replicas_, "DistributedSampler: invalid rank ", rank_,
                      ", rank should be in the interval [0, ", static_cast<std::int64_t>(replicas_) - 1, "]");
}

std::size_t DistributedSampler::num_samples() const {
  return options_.drop_last ? size_ / replicas_ : (size_ + replicas_ - 1) / replicas_;
}

void DistributedSampler::reset(std::optional<std::size_t> new_size) {
  if (new_size) size_ = *new_size;
  if (options_.shuffle && last_epoch_ == epoch_ && !told_) {
    told_ = true;
    ATHANOR_LOG(Warning,
                "DistributedSampler: a second epoch begins without set_epoch(); it has the order of the last, ",
                "that of epoch ", epoch_, ". Call set_epoch(epoch) before each epoch");
  }
  last_epoch_ = epoch_;
  begin(reserve());
}

void DistributedSampler::restore(const samplers::SamplerState& s) {
  DrawnSampler::restore(s);
  epoch_ = s.generator.offset;
  // A pass that is restored at its start may be begun by reset().
  last_epoch_.reset();
  if (s.position > 0) last_epoch_ = epoch_;
}

std::vector<std::size_t> DistributedSampler::draw(PhiloxState from) const {
  std::vector<std::size_t> order;
  if (options_.shuffle) {
    order = samplers::random_order(size_, from);
  } else {
    order.resize(size_);
    std::iota(order.begin(), order.end(), std::size_t{0});
  }
  std::vector<std::size_t> share;
  if (size_ == 0) return share;
  const std::size_t count = num_samples();
  share.reserve(count);
  for (std::size_t i = 0; i < count; ++i) share.push_back(order[(rank_ + i * replicas_) % size_]);
  return share;
}

}  // namespace athanor::data
