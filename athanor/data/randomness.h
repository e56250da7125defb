#pragma once
/// Random draws of transforms. Inside a loader they depend on the seed, the epoch and the batch only, never on which
/// worker makes the batch; elsewhere they come from the default generator.

#include <cstddef>
#include <cstdint>

#include "athanor/tensor/generator.h"

namespace athanor::data {

/// In [0, 1).
double draw_uniform();
/// 0 … n-1. Throws ValueError for 0.
std::size_t draw_below(std::size_t n);

namespace detail {
/// What an epoch's draws start from: the state its order was drawn from, or, for an order that is always the same, the
/// default generator's seed and the number of the epoch.
PhiloxState epoch_randomness(PhiloxState order, std::size_t epoch);

/// Gives the calling thread, for its lifetime, draws of their own for the batch that ends at `position`.
class BatchRandomness {
 public:
  BatchRandomness(PhiloxState epoch, std::size_t position);
  ~BatchRandomness();
  BatchRandomness(const BatchRandomness&) = delete;
  BatchRandomness& operator=(const BatchRandomness&) = delete;

 private:
  friend std::uint64_t draw_bits();
  std::uint64_t counter_;
  BatchRandomness* outer_;
};
std::uint64_t draw_bits();
}  // namespace detail

}  // namespace athanor::data
