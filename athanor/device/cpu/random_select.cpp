// Permutations and draws by weight.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/dense_line.h"
#include "athanor/device/cpu/random_philox.h"
#include "athanor/ops/kernels/random.h"

namespace athanor::cpu {
namespace {

struct Card {
  std::uint64_t key;
  std::int64_t number;
  bool operator<(const Card& o) const { return key < o.key || (key == o.key && number < o.number); }
};

constexpr std::int64_t kSmall = 48;        // cards that are sorted by insertion
constexpr std::int64_t kBucketCards = 32;  // cards aimed at per bucket
constexpr int kMostBucketBits = 11;        // buckets whose ends fit the first cache and the page table's

void insertion_sort(Card* cards, std::int64_t n) {
  for (std::int64_t i = 1; i < n; ++i) {
    const Card c = cards[i];
    std::int64_t at = i;
    for (; at > 0 && c < cards[at - 1]; --at) cards[at] = cards[at - 1];
    cards[at] = c;
  }
}

/// Number of key bits to deal n cards by.
int bucket_bits(std::int64_t n) {
  int bits = 1;
  while (bits < kMostBucketBits && n >> bits > kBucketCards) ++bits;
  return bits;
}

/// Sorts cards whose keys agree above bit `top`; `room` has as many places. Keys are random, so dealing them into
/// buckets by their top bits leaves little to sort.
void sort_cards(Card* cards, Card* room, std::int64_t n, int top) {
  if (n <= kSmall) return insertion_sort(cards, n);
  if (top < 16) return std::sort(cards, cards + n);
  const int bits = bucket_bits(n), shift = top - bits;
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  std::int64_t ends[(1 << kMostBucketBits) + 1] = {};
  for (std::int64_t i = 0; i < n; ++i) ++ends[(cards[i].key >> shift & mask) + 1];
  for (std::uint64_t b = 0; b < mask; ++b) ends[b + 1] += ends[b];
  for (std::int64_t i = 0; i < n; ++i) room[ends[cards[i].key >> shift & mask]++] = cards[i];
  std::copy(room, room + n, cards);
  for (std::uint64_t b = 0; b <= mask; ++b) {
    const std::int64_t first = b ? ends[b - 1] : 0;
    sort_cards(cards + first, room + first, ends[b] - first, shift);
  }
}

/// Deals n cards into 2^bits buckets, by several threads: each counts its share, then moves it. The result is ordered
/// by bucket; the order within is left to the sort, whose result does not depend on it.
class Deal {
 public:
  Deal(std::int64_t n, int bits, PhiloxState state) : n_(n), bits_(bits), state_(state) {
    shares_ = std::clamp<std::int64_t>(n / 65536, 1, 64);
    ends_.resize(static_cast<std::size_t>(shares_) << bits);
  }

  void run(Card* to) {
    each_share([&](std::int64_t s, std::int64_t* ends) {
      each_card(s, [&](const Card& c) { ++ends[c.key >> (64 - bits_)]; });
    });
    std::int64_t sum = 0;
    for (std::int64_t b = 0; b < std::int64_t{1} << bits_; ++b)
      for (std::int64_t s = 0; s < shares_; ++s) {
        std::int64_t& place = ends_[static_cast<std::size_t>((s << bits_) + b)];
        const std::int64_t count = place;
        place = sum;
        sum += count;
      }
    each_share([&](std::int64_t s, std::int64_t* ends) {
      each_card(s, [&](const Card& c) { to[ends[c.key >> (64 - bits_)]++] = c; });
    });
  }
  /// Where bucket b ends, after run.
  std::int64_t end(std::int64_t b) const { return ends_[static_cast<std::size_t>(((shares_ - 1) << bits_) + b)]; }

 private:
  template <class F>
  void each_share(F&& fn) {
    parallel_for(0, shares_, 1, [&](std::int64_t b, std::int64_t e) {
      for (; b < e; ++b) fn(b, &ends_[static_cast<std::size_t>(b << bits_)]);
    });
  }
  /// The keys are drawn anew for counting and moving: cheaper than keeping them.
  template <class F>
  void each_card(std::int64_t share, F&& fn) const {
    const std::int64_t step = (n_ / shares_ / kRandomChunk + 1) * kRandomChunk;
    alignas(64) std::uint32_t words[2 * kRandomChunk];
    for (std::int64_t i = share * step; i < std::min(n_, (share + 1) * step); i += kRandomChunk) {
      const std::int64_t m = std::min(kRandomChunk, n_ - i);
      random_fns().words(words, state_, static_cast<std::uint64_t>(i / 2), (m + 1) / 2);
      for (std::int64_t k = 0; k < m; ++k)
        fn(Card{words[2 * k] | static_cast<std::uint64_t>(words[2 * k + 1]) << 32, i + k});
    }
  }

  std::int64_t n_;
  int bits_;
  PhiloxState state_;
  std::int64_t shares_ = 1;
  std::vector<std::int64_t> ends_;
};

void randperm_cpu(const View& out, PhiloxState state) {
  const std::int64_t n = out.numel;
  if (n == 0) return;
  const int bits = bucket_bits(n);
  const std::unique_ptr<Card[]> cards(new Card[static_cast<std::size_t>(n)]);
  Deal deal(n, bits, state);
  deal.run(cards.get());
  const std::int64_t buckets = std::int64_t{1} << bits;
  parallel_for(0, buckets, std::max<std::int64_t>(1, buckets * 16384 / n), [&](std::int64_t b, std::int64_t e) {
    std::vector<Card> room;
    std::vector<std::int64_t> numbers;
    for (; b < e; ++b) {
      const std::int64_t first = b ? deal.end(b - 1) : 0, m = deal.end(b) - first;
      if (room.size() < static_cast<std::size_t>(m)) room.resize(static_cast<std::size_t>(m) * 2);
      sort_cards(cards.get() + first, room.data(), m, 64 - bits);
      numbers.clear();
      for (std::int64_t i = 0; i < m; ++i) numbers.push_back(cards[static_cast<std::size_t>(first + i)].number);
      store_range(out, first, numbers.data(), DType::Long, m);
    }
  });
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
    ATHANOR_CHECK_VALUE(w >= 0 && std::isfinite(w),
                        "multinomial: expected weights that are finite and not negative, got ", w);
    sum += w;
    positive += w > 0;
  }
  ATHANOR_CHECK_VALUE(positive > 0 || k == 0, "multinomial: expected a row of weights with a positive sum, got 0");
  ATHANOR_CHECK_VALUE(replacement || k <= positive, "multinomial: cannot draw ", k,
                      " samples without replacement from ", positive, " weights that are not 0");
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
