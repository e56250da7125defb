// Permutations and draws by weight.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/dense_line.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/device/cpu/random_philox.h"
#include "athanor/ops/kernels/random.h"

namespace athanor::cpu {
namespace {

// ---- permutations: every number goes to a bucket drawn at random, then each bucket, small enough for the cache, is
// shuffled. Uniform (Rao, Sankhya A 23, 1961; Sandelius, J. R. Stat. Soc. B 24, 1962), and what a bucket holds does not
// depend on the number of threads.

constexpr std::int64_t kBucketNumbers = 16384;  // aimed at
constexpr int kMostBucketBits = 11;
constexpr std::int64_t kDealShare = 65536;  // numbers dealt in one go; a multiple of what a block of words deals

/// 32-bit words from a place in the sequence on.
class Words {
 public:
  Words(PhiloxState state, std::uint64_t block, std::int64_t blocks) : state_(state), block_(block), blocks_(blocks) {}
  std::uint32_t next() {
    if (at_ == end_) refill();
    return words_[at_++];
  }
  /// Uniform in [0, range), without bias: Lemire, "Fast random integer generation in an interval", 2019.
  std::uint32_t below(std::uint32_t range) {
    std::uint64_t product = std::uint64_t{next()} * range;
    if (static_cast<std::uint32_t>(product) < range) {
      const std::uint32_t threshold = -range % range;
      while (static_cast<std::uint32_t>(product) < threshold) product = std::uint64_t{again()} * range;
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

 private:
  void refill() {
    const std::int64_t n = std::clamp<std::int64_t>(blocks_, 1, kRandomChunk / 4);
    random_fns().words(words_, state_, block_, n);
    block_ += static_cast<std::uint64_t>(n);
    blocks_ -= n;
    at_ = 0;
    end_ = 4 * n;
  }
  /// A word in place of one refused, from a sequence of its own.
  std::uint32_t again() { return philox_draw32(state_, 4 * block_ + static_cast<std::uint64_t>(at_), ++attempt_); }

  PhiloxState state_;
  std::uint64_t block_;
  std::int64_t blocks_, at_ = 0, end_ = 0;
  std::uint32_t attempt_ = 0;
  alignas(64) std::uint32_t words_[2 * kRandomChunk];
};

/// Fisher and Yates; n < 2^32, which a bucket of less than 2^43 numbers has.
void shuffle(std::int64_t* p, std::int64_t n, Words& words) {
  for (std::int64_t i = n - 1; i > 0; --i) {
    std::swap(p[i], p[words.below(static_cast<std::uint32_t>(i + 1))]);
  }
}

/// The first bucket draw is word 0; the words of shuffles start behind those of the deal. Half a word deals one number.
class Permutation {
 public:
  Permutation(std::int64_t* to, std::int64_t n, PhiloxState state) : to_(to), n_(n), state_(state) {
    while (bits_ < kMostBucketBits && n >> bits_ > kBucketNumbers) ++bits_;
    shares_ = (n + kDealShare - 1) / kDealShare;
  }

  void run() {
    if (bits_ == 0) {
      std::iota(to_, to_ + n_, std::int64_t{0});
      Words words(state_, 0, (n_ + 3) / 4);
      return shuffle(to_, n_, words);
    }
    const std::int64_t buckets = std::int64_t{1} << bits_;
    const HostBuffer<std::int64_t> places(shares_ * buckets), starts(buckets + 1);
    count(places.data(), buckets);
    std::int64_t sum = 0;
    for (std::int64_t b = 0; b < buckets; ++b) {
      starts[b] = sum;
      for (std::int64_t s = 0; s < shares_; ++s) sum += std::exchange(places[s * buckets + b], sum);
    }
    starts[buckets] = n_;
    parallel_for(0, shares_, 1, [&](std::int64_t s, std::int64_t e) {
      for (; s < e; ++s) {
        std::int64_t* const ends = &places[s * buckets];
        each_bucket(s, [&](std::int64_t i, std::uint32_t b) {
          std::int64_t* const at = to_ + ends[b]++;
          *at = i;
          __builtin_prefetch(at + 8, 1);
        });
      }
    });
    parallel_for(0, buckets, 1, [&](std::int64_t b, std::int64_t e) {
      for (; b < e; ++b) {
        const std::int64_t m = starts[b + 1] - starts[b];
        Words words(state_, static_cast<std::uint64_t>(n_ / 8 + 1 + starts[b] / 4 + b), (m + 3) / 4);
        shuffle(to_ + starts[b], m, words);
      }
    });
  }

 private:
  void count(std::int64_t* tables, std::int64_t buckets) const {
    parallel_for(0, shares_, 1, [&](std::int64_t s, std::int64_t e) {
      for (; s < e; ++s) {
        std::int64_t* const table = tables + s * buckets;
        std::fill_n(table, buckets, 0);
        each_bucket(s, [&](std::int64_t, std::uint32_t b) { ++table[b]; });
      }
    });
  }
  /// The words are drawn anew for counting and dealing: cheaper than keeping them.
  template <class F>
  void each_bucket(std::int64_t share, F&& fn) const {
    alignas(64) std::uint32_t words[2 * kRandomChunk];
    const std::int64_t end = std::min(n_, (share + 1) * kDealShare);
    for (std::int64_t i = share * kDealShare; i < end; i += 2 * kRandomChunk) {
      random_fns().words(words, state_, static_cast<std::uint64_t>(i / 8), kRandomChunk / 4);
      const std::int64_t m = std::min(2 * kRandomChunk, end - i);
      for (std::int64_t k = 0; k < m; ++k) fn(i + k, (words[k / 2] >> (k % 2 * 16) & 0xffffU) >> (16 - bits_));
    }
  }

  std::int64_t* to_;
  std::int64_t n_;
  PhiloxState state_;
  int bits_ = 0;
  std::int64_t shares_;
};

void randperm_cpu(const View& out, PhiloxState state) {
  const std::int64_t n = out.numel;
  if (n == 0) return;
  if (out.contiguous && out.dtype == DType::Long) return Permutation(out.ptr<std::int64_t>(), n, state).run();
  const HostBuffer<std::int64_t> numbers(n);
  Permutation(numbers.data(), n, state).run();
  store_range(out, 0, numbers.data(), DType::Long, n);
}

// ---- multinomial

/// Draws of consecutive elements, one after the other.
class Draws {
 public:
  Draws(PhiloxState state, std::int64_t first) : state_(state), next_(static_cast<std::uint64_t>(first)) {}
  std::uint64_t operator()() { return philox_draw64(state_, next_++, 0); }

 private:
  PhiloxState state_;
  std::uint64_t next_;
};

/// Checks a row of weights and returns their sum.
double checked_sum(const std::vector<double>& weights, std::int64_t k, bool replacement) {
  double sum = 0;
  std::int64_t positive = 0;
  for (const double w : weights) {
    ATHANOR_CHECK(w >= 0 && std::isfinite(w), "multinomial: expected weights that are finite and not negative, got ",
                  w);
    sum += w;
    positive += w > 0;
  }
  ATHANOR_CHECK(positive > 0 || k == 0, "multinomial: expected a row of weights with a positive sum, got 0");
  ATHANOR_CHECK(replacement || k <= positive, "multinomial: cannot draw ", k, " samples without replacement from ",
                positive, " weights that are not 0");
  return sum;
}

void draw_with_replacement(std::vector<std::int64_t>& to, const std::vector<double>& weights, double sum, Draws draws) {
  std::vector<double> ends(weights.size());
  double running = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    running += weights[i] / sum;
    ends[i] = running;
    if (weights[i] > 0) last = i;
  }
  for (auto& choice : to) {
    const double u = static_cast<double>(draws() >> 11) * 0x1p-53 * running;
    const auto at = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), u) - ends.begin());
    choice = static_cast<std::int64_t>(std::min(at, last));
  }
}

/// The race of exponentials: the first k to arrive are k draws without replacement.
void draw_without_replacement(std::vector<std::int64_t>& to, const std::vector<double>& weights, Draws draws) {
  std::vector<std::pair<double, std::int64_t>> arrivals;
  arrivals.reserve(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double v = (static_cast<double>(draws() >> 11) + 0.5) * 0x1p-53;
    if (weights[i] > 0) arrivals.emplace_back(-std::log(v) / weights[i], static_cast<std::int64_t>(i));
  }
  std::partial_sort(arrivals.begin(), arrivals.begin() + static_cast<std::ptrdiff_t>(to.size()), arrivals.end());
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = arrivals[i].second;
}

void multinomial_cpu(const View& out, const View& weights, bool replacement, PhiloxState state) {
  ATHANOR_CHECK_TYPE(TypeError, is_floating_point(weights.dtype), "multinomial: expected floating weights, got ",
                     dtype_name(weights.dtype));
  const std::int64_t n = weights.size(-1), k = out.size(-1);
  const std::int64_t rows = weights.ndim > 1 ? weights.size(0) : 1;
  parallel_for(0, rows, std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(1, n)),
               [&](std::int64_t b, std::int64_t e) {
                 std::vector<double> row(static_cast<std::size_t>(n));
                 std::vector<std::int64_t> choices(static_cast<std::size_t>(k));
                 for (; b < e; ++b) {
                   load_range(row.data(), DType::Double, weights, b * n, n);
                   const double sum = checked_sum(row, k, replacement);
                   if (replacement)
                     draw_with_replacement(choices, row, sum, Draws(state, b * k));
                   else
                     draw_without_replacement(choices, row, Draws(state, b * n));
                   store_range(out, b * k, choices.data(), DType::Long, k);
                 }
               });
}

}  // namespace

ATHANOR_REGISTER_KERNEL(randperm_kernel, CPU, &randperm_cpu);
ATHANOR_REGISTER_KERNEL(multinomial_kernel, CPU, &multinomial_cpu);

}  // namespace athanor::cpu
