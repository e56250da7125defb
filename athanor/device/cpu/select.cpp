// Selection by rank along a dim: the k greatest, the k-th, the median.
#include <algorithm>
#include <bit>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/device/cpu/order_lines.h"
#include "athanor/device/cpu/sort_line.h"
#include "athanor/ops/kernels/scan_sort.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kSelectFew = 128;      // ranks that are selected from by comparing them
constexpr std::int64_t kKeepSorted = 64;      // results up to which a sorted list is kept while the line is read
constexpr std::int64_t kLookBlock = 64;       // elements that are compared at once with the worst result
constexpr std::int64_t kShare = 1 << 18;      // elements of a long line that one thread counts at a time
constexpr std::int64_t kSiftShare = 1 << 17;  // and sifts
constexpr std::int64_t kSiftRatio = 32;       // elements per result from which sifting is faster than counting

/// The k-th (from 0) least of `ranks`, whose bits above `bits` are the same. Reorders them.
template <class Key>
Key select_rank(Key* ranks, std::int64_t n, std::int64_t k, int bits) {
  while (n > kSelectFew && bits > 0) {
    const int digit = std::min(bits, 8), shift = bits - digit;
    std::int64_t counts[256] = {};
    for (std::int64_t i = 0; i < n; ++i) ++counts[ranks[i] >> shift & 255];
    const std::size_t mask = (std::size_t{1} << digit) - 1;
    if (digit < 8)
      for (std::size_t b = mask + 1; b < 256; ++b) counts[b & mask] += std::exchange(counts[b], 0);
    std::size_t b = 0;
    for (; k >= counts[b]; ++b) k -= counts[b];
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const Key r = ranks[i];
      ranks[kept] = r;
      kept += (r >> shift & mask) == b;
    }
    n = kept;
    bits = shift;
  }
  std::nth_element(ranks, ranks + k, ranks + n);
  return ranks[k];
}

/// The k-th (from 0) least rank of a dense line: elements are counted by their highest bits, then those that share the
/// bits of the k-th are gathered and counted by the next.
template <class T>
KeyOf<T> select_from_line(const T* in, std::int64_t n, std::int64_t k, const Ranker<T>& ranker) {
  using Key = KeyOf<T>;
  if (ranker.bits == 0) return 0;
  if (n <= kSelectFew) {
    Key ranks[kSelectFew];
    for (std::int64_t i = 0; i < n; ++i) ranks[i] = ranker(in[i]);
    return select_rank(ranks, n, k, ranker.bits);
  }
  const int digit = std::min(ranker.bits, n < 8192 ? 8 : 11), shift = ranker.bits - digit;
  const std::int64_t buckets = std::int64_t{1} << digit, shares = (n + kShare - 1) / kShare;
  const HostBuffer<std::int64_t> counts(shares * buckets), starts(shares + 1);
  const auto each_share = [&](auto&& fn) {
    parallel_for(0, shares, 1, [&](std::int64_t b, std::int64_t e) {
      for (; b < e; ++b) fn(b, b * kShare, std::min(n, (b + 1) * kShare));
    });
  };
  each_share([&](std::int64_t s, std::int64_t begin, std::int64_t end) {
    std::int64_t* const table = &counts[s * buckets];
    std::fill_n(table, buckets, 0);
    for (std::int64_t i = begin; i < end; ++i) ++table[static_cast<std::int64_t>(ranker(in[i]) >> shift)];
  });
  std::int64_t bucket = -1, in_bucket = 0;
  do {
    k -= in_bucket;
    in_bucket = 0;
    ++bucket;
    for (std::int64_t s = 0; s < shares; ++s) in_bucket += counts[s * buckets + bucket];
  } while (k >= in_bucket);
  if (shift == 0) return static_cast<Key>(bucket);
  starts[0] = 0;
  for (std::int64_t s = 0; s < shares; ++s) starts[s + 1] = starts[s] + counts[s * buckets + bucket];
  const HostBuffer<Key> chosen(in_bucket + 1);
  each_share([&](std::int64_t s, std::int64_t begin, std::int64_t end) {
    std::int64_t at = starts[s];
    // What is not chosen is overwritten by the next, or lies where the next share will write or nobody reads: it must
    // not be written over what another share chose.
    const std::int64_t last = starts[s + 1];
    for (std::int64_t i = begin; i < end && at < last; ++i) {
      const Key r = ranker(in[i]);
      chosen[at] = r;
      at += static_cast<std::int64_t>(r >> shift) == bucket;
    }
  });
  return select_rank(chosen.data(), in_bucket, k, shift);
}

template <class T>
std::int64_t first_with_rank(const T* in, std::int64_t n, const Ranker<T>& ranker, KeyOf<T> rank) {
  std::int64_t i = 0;
  while (i < n && ranker(in[i]) != rank) ++i;
  return i;
}

template <class T>
void kth_of_line(const T* in, std::int64_t n, std::int64_t k, T* value, std::int64_t* index) {
  const Ranker<T> ranker(line_key_range(in, dtype_of_v<T>, n), false);
  const std::int64_t at = first_with_rank(in, n, ranker, select_from_line(in, n, k, ranker));
  if (value) *value = in[at];
  if (index) *index = at;
}

template <class T>
void median_of_line(const T* in, std::int64_t n, bool ignore_nan, T* value, std::int64_t* index) {
  const KeyRange range = line_key_range(in, dtype_of_v<T>, n);
  std::int64_t nans = 0;
  if (is_floating_v<T> && range.greatest == static_cast<KeyOf<T>>(~KeyOf<T>{0}))
    nans = std::count_if(in, in + n, [](T v) { return is_nan_element(v); });
  if (nans == n || (nans > 0 && !ignore_nan)) {
    const std::int64_t at = std::find_if(in, in + n, [](T v) { return is_nan_element(v); }) - in;
    *value = in[at];
    *index = at;
    return;
  }
  const Ranker<T> ranker(range, false);
  const std::int64_t at = first_with_rank(in, n, ranker, select_from_line(in, n, (n - nans - 1) / 2, ranker));
  *value = in[at];
  *index = at;
}

template <class T>
struct Candidate {
  KeyOf<T> rank;
  std::int64_t index;
  bool operator<(const Candidate& o) const { return rank < o.rank || (rank == o.rank && index < o.index); }
};

/// Calls fn(i) for the elements of in[begin, end) whose rank was below bound() when their block began.
template <class T, class Bound, class F>
void each_below(const T* in, std::int64_t begin, std::int64_t end, const Ranker<T>& ranker, const Bound& bound,
                const F& fn) {
  const auto below = order_fns().below[static_cast<int>(dtype_of_v<T>)];
  for (std::int64_t b = begin; b < end; b += kLookBlock) {
    std::uint64_t bits = below(in + b, std::min(kLookBlock, end - b), ranker.flip, bound());
    for (; bits != 0; bits &= bits - 1) fn(b + std::countr_zero(bits));
  }
}

/// The best k <= kKeepSorted of in[begin, end), best first, in a list kept sorted. Returns how many there are.
template <class T>
std::int64_t insert_best(Candidate<T>* list, const T* in, std::int64_t begin, std::int64_t end, std::int64_t k,
                         const Ranker<T>& ranker) {
  std::int64_t count = 0;
  const auto insert = [&](std::int64_t i) {
    const KeyOf<T> r = ranker(in[i]);
    if (count == k && r >= list[k - 1].rank) return;
    std::int64_t at = count < k ? count++ : k - 1;
    for (; at > 0 && r < list[at - 1].rank; --at) list[at] = list[at - 1];
    list[at] = {r, i};
  };
  const std::int64_t first = std::min(begin + k, end);
  for (std::int64_t i = begin; i < first; ++i) insert(i);
  each_below(
      in, first, end, ranker, [&] { return list[k - 1].rank; }, insert);
  return count;
}

/// The same for any k, in no order: what beats the worst of the best so far is gathered, and thinned out when it has
/// become several times k.
template <class T>
std::int64_t sift_best(Candidate<T>* list, const T* in, std::int64_t begin, std::int64_t end, std::int64_t k,
                       const Ranker<T>& ranker) {
  const std::int64_t most = std::max<std::int64_t>(4 * k, 512);
  const HostBuffer<Candidate<T>> found(most);
  std::int64_t count = 0;
  const auto gather = [&](std::int64_t i) { found[count++] = {ranker(in[i]), i}; };
  const std::int64_t first = std::min(begin + most - kLookBlock, end);
  for (std::int64_t i = begin; i < first; ++i) gather(i);
  KeyOf<T> worst{};
  const auto thin_out = [&] {
    if (count <= k) return;
    std::nth_element(found.data(), found.data() + k - 1, found.data() + count);
    count = k;
    worst = found[k - 1].rank;
  };
  thin_out();
  const auto bound = [&] {
    if (count > most - kLookBlock) thin_out();
    return worst;
  };
  // Of equals the first is the best: a later one does not replace it.
  each_below(in, first, end, ranker, bound, gather);
  thin_out();
  std::copy_n(found.data(), count, list);
  return count;
}

/// The best k of the line in the order of their ranks.
template <class T>
std::vector<Candidate<T>> best_few(const T* in, std::int64_t n, std::int64_t k, const Ranker<T>& ranker) {
  const bool inserts = k <= kKeepSorted;
  const std::int64_t shares = std::max<std::int64_t>(1, n / std::max(kSiftShare, kSiftRatio * k));
  std::vector<Candidate<T>> lists(static_cast<std::size_t>(shares * k));
  parallel_for(0, shares, 1, [&](std::int64_t b, std::int64_t e) {
    for (; b < e; ++b) {
      const std::int64_t begin = n * b / shares, end = n * (b + 1) / shares;
      Candidate<T>* const list = &lists[static_cast<std::size_t>(b * k)];
      if (inserts)
        insert_best(list, in, begin, end, k, ranker);
      else
        sift_best(list, in, begin, end, k, ranker);
    }
  });
  if (shares > 1 || !inserts) std::partial_sort(lists.begin(), lists.begin() + k, lists.end());
  lists.resize(static_cast<std::size_t>(k));
  return lists;
}

/// The best k of the line in the order of their indices.
template <class T>
std::vector<Candidate<T>> best_many(const T* in, std::int64_t n, std::int64_t k, const Ranker<T>& ranker) {
  const KeyOf<T> worst = select_from_line(in, n, k - 1, ranker);
  std::int64_t equals = k;
  for (std::int64_t i = 0; i < n; ++i) equals -= ranker(in[i]) < worst;
  std::vector<Candidate<T>> list;
  list.reserve(static_cast<std::size_t>(k));
  for (std::int64_t i = 0; i < n; ++i) {
    const KeyOf<T> r = ranker(in[i]);
    if (r < worst || (r == worst && equals-- > 0)) list.push_back({r, i});
  }
  return list;
}

template <class T>
void topk_of_line(const T* in, std::int64_t n, std::int64_t k, bool largest, bool sorted, T* values,
                  std::int64_t* indices) {
  if (k == 0) return;
  if (k == n && sorted) return sort_line(in, n, largest, values, indices);
  // The range of the keys only saves digits where they are counted.
  const bool few = k <= kKeepSorted || k <= n / kSiftRatio;
  constexpr std::uint64_t kAllKeys = static_cast<KeyOf<T>>(~KeyOf<T>{0});
  const Ranker<T> ranker(few ? KeyRange{0, kAllKeys, kAllKeys} : line_key_range(in, dtype_of_v<T>, n), largest);
  auto list = few ? best_few(in, n, k, ranker) : best_many(in, n, k, ranker);
  if (few && !sorted)
    std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  for (std::int64_t i = 0; i < k; ++i) indices[i] = list[static_cast<std::size_t>(i)].index;
  for (std::int64_t i = 0; i < k; ++i) values[i] = in[indices[i]];
  if (few || !sorted) return;
  const HostBuffer<T> chosen(k);
  const HostBuffer<std::int64_t> order(k);
  std::copy_n(values, k, chosen.data());
  sort_line(chosen.data(), k, largest, values, order.data());
  for (std::int64_t i = 0; i < k; ++i) indices[i] = list[static_cast<std::size_t>(order[i])].index;
}

template <class F>
void each_typed_line(const View& values, const View& indices, const View& in, std::int64_t dim, std::int64_t cost,
                     const F& fn) {
  const View from = as_bytes(in);
  dispatch_all(from.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>)
      each_order_line(from, as_bytes(values), indices, dim, cost, [&](const void* line, void* v, std::int64_t* i) {
        fn(static_cast<const T*>(line), static_cast<T*>(v), i);
      });
  });
}

std::int64_t length(const View& v, std::int64_t dim) { return v.ndim > 0 ? v.size(static_cast<int>(dim)) : 1; }

void topk_cpu(const View& values, const View& indices, const View& in, std::int64_t dim, bool largest, bool sorted) {
  const std::int64_t n = length(in, dim), k = length(values, dim);
  each_typed_line(values, indices, in, dim, 4,
                  [&](const auto* line, auto* v, std::int64_t* i) { topk_of_line(line, n, k, largest, sorted, v, i); });
}

void kthvalue_cpu(const View& values, const View& indices, const View& in, std::int64_t k, std::int64_t dim) {
  const std::int64_t n = length(in, dim);
  each_typed_line(values, indices, in, dim, 4,
                  [&](const auto* line, auto* v, std::int64_t* i) { kth_of_line(line, n, k - 1, v, i); });
}

void median_cpu(const View& values, const View& indices, const View& in, std::int64_t dim, bool ignore_nan) {
  const std::int64_t n = length(in, dim);
  each_typed_line(values, indices, in, dim, 4,
                  [&](const auto* line, auto* v, std::int64_t* i) { median_of_line(line, n, ignore_nan, v, i); });
}

/// The longest run of equals in the sorted line. No NaN equals another.
template <class T>
void mode_of_line(const T* in, std::int64_t n, T* value, std::int64_t* index) {
  const HostBuffer<T> sorted(n);
  const HostBuffer<std::int64_t> places(n);
  sort_line(in, n, false, sorted.data(), places.data());
  std::int64_t longest = 0, end = 0;
  for (std::int64_t i = 0; i < n;) {
    const auto key = order_key(sorted[i]);
    std::int64_t e = i + 1;
    if (!is_nan_element(sorted[i]))
      while (e < n && order_key(sorted[e]) == key) ++e;
    if (e - i > longest) {
      longest = e - i;
      end = e;
    }
    i = e;
  }
  *value = sorted[end - 1];
  *index = places[end - 1];
}

void mode_cpu(const View& values, const View& indices, const View& in, std::int64_t dim) {
  const std::int64_t n = length(in, dim);
  each_typed_line(values, indices, in, dim, 8,
                  [&](const auto* line, auto* v, std::int64_t* i) { mode_of_line(line, n, v, i); });
}

}  // namespace

ATHANOR_REGISTER_KERNEL(topk_kernel, CPU, &topk_cpu);
ATHANOR_REGISTER_KERNEL(kthvalue_kernel, CPU, &kthvalue_cpu);
ATHANOR_REGISTER_KERNEL(median_kernel, CPU, &median_cpu);
ATHANOR_REGISTER_KERNEL(mode_kernel, CPU, &mode_cpu);

}  // namespace athanor::cpu
