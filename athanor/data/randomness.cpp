#include "athanor/data/randomness.h"

#include "athanor/base/error.h"

namespace athanor::data {

namespace {

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;

// splitmix64's output function (Steele et al., OOPSLA 2014).
std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

thread_local detail::BatchRandomness* current = nullptr;

}  // namespace

namespace detail {

PhiloxState epoch_randomness(PhiloxState order, std::size_t epoch) {
  if (order.seed != 0 || order.offset != 0) return order;
  return {default_generator().current_seed(), epoch};
}

BatchRandomness::BatchRandomness(PhiloxState epoch, std::size_t position)
    : counter_(mix(mix(mix(epoch.seed + kStep) + epoch.offset + kStep) + position + kStep)), outer_(current) {
  current = this;
}

BatchRandomness::~BatchRandomness() { current = outer_; }

std::uint64_t draw_bits() {
  if (current) return mix(current->counter_ += kStep);
  const PhiloxState s = default_generator().reserve(1);
  return mix(mix(s.seed + kStep) + s.offset + kStep);
}

}  // namespace detail

double draw_uniform() { return static_cast<double>(detail::draw_bits() >> 11) * 0x1p-53; }

std::size_t draw_below(std::size_t n) {
  ATHANOR_CHECK_VALUE(n > 0, "draw_below: nothing lies below 0");
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::size_t>(static_cast<Wide>(detail::draw_bits()) * n >> 64);
}

}  // namespace athanor::data
