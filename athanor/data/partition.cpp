#include "athanor/data/partition.h"

#include <bit>
#include <cmath>
#include <numeric>

namespace athanor::data {

namespace {

constexpr std::size_t kMiddle = 397;

void seed_by_number(std::uint32_t* state, std::size_t words, std::uint32_t seed) {
  state[0] = seed;
  for (std::size_t i = 1; i < words; ++i)
    state[i] = 1812433253U * (state[i - 1] ^ (state[i - 1] >> 30)) + static_cast<std::uint32_t>(i);
}

}  // namespace

// Seeding by an array, here the seed's 32-bit digits, lowest first; a zero has one digit.
PythonRandom::PythonRandom(std::uint64_t seed) {
  const std::uint32_t key[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  const std::size_t digits = key[1] ? 2 : 1;
  seed_by_number(state_, kWords, 19650218U);
  std::size_t i = 1, j = 0;
  const auto wrap = [&] {
    if (++i < kWords) return;
    state_[0] = state_[kWords - 1];
    i = 1;
  };
  const auto mixed = [&](std::uint32_t factor) {
    return state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * factor);
  };
  for (std::size_t k = 0; k < kWords; ++k) {
    state_[i] = mixed(1664525U) + key[j] + static_cast<std::uint32_t>(j);
    wrap();
    j = (j + 1) % digits;
  }
  for (std::size_t k = 0; k + 1 < kWords; ++k) {
    state_[i] = mixed(1566083941U) - static_cast<std::uint32_t>(i);
    wrap();
  }
  state_[0] = 0x80000000U;
}

void PythonRandom::refill() {
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint32_t y = (state_[i] & 0x80000000U) | (state_[(i + 1) % kWords] & 0x7fffffffU);
    state_[i] = state_[(i + kMiddle) % kWords] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfU : 0);
  }
  next_ = 0;
}

std::uint32_t PythonRandom::word() {
  if (next_ == kWords) refill();
  std::uint32_t y = state_[next_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680U;
  y ^= (y << 15) & 0xefc60000U;
  return y ^ (y >> 18);
}

std::uint64_t PythonRandom::bits(int bits) {
  ATHANOR_CHECK_VALUE(bits >= 0 && bits <= 64, "PythonRandom: 0 to 64 bits can be drawn at once, got ", bits);
  if (bits == 0) return 0;
  if (bits <= 32) return word() >> (32 - bits);
  const std::uint64_t low = word();
  return static_cast<std::uint64_t>(word() >> (64 - bits)) << 32 | low;
}

std::uint64_t PythonRandom::below(std::uint64_t n) {
  ATHANOR_CHECK_VALUE(n > 0, "PythonRandom: empty range");
  const int width = std::bit_width(n);
  std::uint64_t r = bits(width);
  while (r >= n) r = bits(width);
  return r;
}

double PythonRandom::uniform() {
  const std::uint32_t a = word() >> 5, b = word() >> 6;
  return (a * 67108864.0 + b) / 9007199254740992.0;
}

std::vector<std::vector<std::size_t>> partition_indices(std::size_t n, const std::vector<double>& fractions,
                                                        std::uint64_t seed) {
  std::vector<std::size_t> indices(n);
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  PythonRandom(seed).shuffle(indices);
  std::vector<std::vector<std::size_t>> parts;
  std::size_t at = 0;
  for (const double fraction : fractions) {
    ATHANOR_CHECK_VALUE(std::isfinite(fraction) && fraction >= 0, "partition: a part's fraction is ", fraction,
                        ", expected a finite number of at least 0");
    // A slice past the end is short, as in Python.
    const double wanted = std::min(fraction * static_cast<double>(n), static_cast<double>(n));
    const std::size_t end = std::min(n, at + static_cast<std::size_t>(wanted));
    parts.emplace_back(indices.begin() + static_cast<std::ptrdiff_t>(at),
                       indices.begin() + static_cast<std::ptrdiff_t>(end));
    at = end;
  }
  return parts;
}

}  // namespace athanor::data
