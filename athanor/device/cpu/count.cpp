// Places in a sorted sequence, histograms, counts.
#include <algorithm>
#include <vector>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/dense_line.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/device/cpu/order_key.h"
#include "athanor/device/cpu/order_lines.h"
#include "athanor/device/cpu/owned_view.h"
#include "athanor/ops/kernels/scan_sort.h"

namespace athanor::cpu {
namespace {

constexpr std::int64_t kPiece = 1024;         // elements brought to dense memory at a time
constexpr std::int64_t kShare = 1 << 18;      // elements counted by one thread into a table of its own
constexpr std::int64_t kMostTable = 1 << 16;  // entries of such a table

constexpr std::int64_t kTogether = 16;  // searches that go in step

/// places[i] = the number of leading keys key_at(0), key_at(1), … of n that are less than wanted[i], for m <=
/// kTogether. Without a branch that depends on the keys, and in step, so that the searches wait for memory together.
template <class Key, class KeyAt>
void search(const KeyAt& key_at, std::int64_t n, const Key* wanted, std::int64_t m, std::int64_t* places) {
  std::fill_n(places, m, std::int64_t{0});
  if (n == 0) return;
  for (std::int64_t left = n; left > 1;) {
    const std::int64_t half = left / 2;
    for (std::int64_t i = 0; i < m; ++i)
      places[i] += half & -static_cast<std::int64_t>(key_at(places[i] + half - 1) < wanted[i]);
    left -= half;
  }
  for (std::int64_t i = 0; i < m; ++i) places[i] += key_at(places[i]) < wanted[i];
}

/// The place of one key among n that begin or end with NaN: PyTorch's bisection, to which a NaN is not less than
/// anything, nor anything than a NaN.
template <class Key, class KeyAt>
std::int64_t search_past_nan(const KeyAt& key_at, std::int64_t n, Key wanted, bool right) {
  constexpr Key kNan = static_cast<Key>(~Key{0});
  std::int64_t begin = 0;
  for (std::int64_t end = n; begin < end;) {
    const std::int64_t middle = begin + (end - begin) / 2;
    const Key key = key_at(middle);
    if (wanted != kNan && key != kNan && (right ? key > wanted : key >= wanted))
      end = middle;
    else
      begin = middle + 1;
  }
  return begin;
}

/// The places of `values` among keys; keys_of_row(r)(i): the i-th of the n keys of row r.
template <class T, class KeysOfRow>
void search_values(const View& out, const View& values, const KeysOfRow& keys_of_row, std::int64_t n, std::int64_t row,
                   bool right) {
  parallel_for(0, (values.numel + kPiece - 1) / kPiece, 1, [&](std::int64_t b, std::int64_t e) {
    T piece[kPiece];
    std::int64_t places[kPiece];
    KeyOf<T> wanted[kTogether];
    for (; b < e; ++b) {
      const std::int64_t first = b * kPiece, m = std::min(kPiece, values.numel - first);
      load_range(piece, values.dtype, values, first, m);
      for (std::int64_t i = 0; i < m;) {
        const std::int64_t at = first + i, count = std::min({m - i, kTogether, row - at % row});
        // Not greater than a key is less than the next key; what is not greater than the last key is all.
        const auto key_at = keys_of_row(at / row);
        constexpr auto kNan = static_cast<KeyOf<T>>(~KeyOf<T>{0});
        if (is_floating_v<T> && n > 0 && (key_at(0) == kNan || key_at(n - 1) == kNan)) {
          for (std::int64_t k = 0; k < count; ++k)
            places[i + k] = search_past_nan(key_at, n, order_key(piece[i + k]), right);
          i += count;
          continue;
        }
        for (std::int64_t k = 0; k < count; ++k) wanted[k] = static_cast<KeyOf<T>>(order_key(piece[i + k]) + right);
        search(key_at, n, wanted, count, places + i);
        for (std::int64_t k = 0; k < count; ++k)
          if (right && wanted[k] == 0) places[i + k] = n;
        i += count;
      }
      store_range(out, first, places, DType::Long, m);
    }
  });
}

template <class T>
void search_sorted(const View& out, const View& sequence, const View& values, const View& sorter, bool right) {
  const Dense dense(sequence);
  const T* const from = dense.as<T>();
  const std::int64_t n = sequence.size(-1);
  const std::int64_t row = sequence.ndim > 1 ? values.size(-1) : std::max<std::int64_t>(1, values.numel);
  // Each probe of a key costs less than making one of an element: for many values the keys are made first.
  if (!sorter.defined() && values.numel < sequence.numel) {
    const auto keys_of_row = [&](std::int64_t r) {
      return [p = from + r * n](std::int64_t i) { return order_key(p[i]); };
    };
    return search_values<T>(out, values, keys_of_row, n, row, right);
  }
  const HostBuffer<KeyOf<T>> keys(sequence.numel);
  const auto keys_of_row = [&](std::int64_t r) { return [p = keys.data() + r * n](std::int64_t i) { return p[i]; }; };
  if (!sorter.defined()) {
    for (std::int64_t i = 0; i < sequence.numel; ++i) keys[i] = order_key(from[i]);
    return search_values<T>(out, values, keys_of_row, n, row, right);
  }
  const Dense order(sorter);
  for (std::int64_t i = 0; i < sequence.numel; ++i) {
    const std::int64_t at = order.as<std::int64_t>()[i];
    ATHANOR_CHECK_INDEX(at >= 0 && at < n, "torch.searchsorted(): sorter index out of range: ", at,
                        " for a sequence of size ", n);
    keys[i] = order_key(from[i / n * n + at]);
  }
  search_values<T>(out, values, keys_of_row, n, row, right);
}

void searchsorted_cpu(const View& out, const View& sequence, const View& values, const View& sorter, bool right) {
  if (values.numel == 0) return;
  const View from = as_bytes(sequence), to = as_bytes(values);
  dispatch_all(from.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>) search_sorted<T>(out, from, to, sorter, right);
  });
}

/// Counts by several threads: fn(table, begin, end) counts elements into a table of zeros; the tables are added.
template <class F>
std::vector<std::int64_t> count_in_shares(std::int64_t n, std::int64_t size, const F& fn) {
  std::vector<std::int64_t> total(static_cast<std::size_t>(size));
  const bool alone = size > kMostTable || n <= kShare || in_parallel_region() || get_num_threads() == 1;
  if (alone) {
    fn(total.data(), std::int64_t{0}, n);
    return total;
  }
  const std::int64_t shares = std::min<std::int64_t>((n + kShare - 1) / kShare, 4 * get_num_threads());
  const std::int64_t step = (n + shares - 1) / shares;
  std::vector<std::int64_t> tables(static_cast<std::size_t>(shares * size));
  parallel_for(0, shares, 1, [&](std::int64_t b, std::int64_t e) {
    for (; b < e; ++b) fn(tables.data() + b * size, std::min(n, b * step), std::min(n, (b + 1) * step));
  });
  for (std::size_t i = 0; i < tables.size(); ++i) total[i % total.size()] += tables[i];
  return total;
}

/// The bin is found in the precision that the reference uses: that of the elements.
template <class F>
void count_bins(std::int64_t* table, std::int64_t bins, const View& in, DType compute, F lo, F hi, std::int64_t begin,
                std::int64_t end) {
  F piece[kPiece];
  for (; begin < end; begin += kPiece) {
    const std::int64_t m = std::min(kPiece, end - begin);
    load_range(piece, compute, in, begin, m);
    for (std::int64_t i = 0; i < m; ++i) {
      const F x = piece[i];
      if (!(x >= lo && x <= hi)) continue;
      const auto bin = static_cast<std::int64_t>((x - lo) / (hi - lo) * static_cast<F>(bins));
      ++table[std::min(bin, bins - 1)];
    }
  }
}

void histc_cpu(const View& out, const View& in, double lo, double hi) {
  const std::int64_t bins = out.numel;
  const bool narrow = in.dtype == DType::Float || is_half(in.dtype);
  const auto counts = count_in_shares(in.numel, bins, [&](std::int64_t* table, std::int64_t b, std::int64_t e) {
    if (narrow)
      count_bins(table, bins, in, DType::Float, static_cast<float>(lo), static_cast<float>(hi), b, e);
    else
      count_bins(table, bins, in, DType::Double, lo, hi, b, e);
  });
  store_range(out, 0, counts.data(), DType::Long, bins);
}

/// Calls fn(first, elements, m) for pieces of in[begin, end) as int64, checked against `size`.
template <class F>
void each_counted(const View& in, std::int64_t size, std::int64_t begin, std::int64_t end, const F& fn) {
  std::int64_t piece[kPiece];
  for (; begin < end; begin += kPiece) {
    const std::int64_t m = std::min(kPiece, end - begin);
    load_range(piece, DType::Long, in, begin, m);
    for (std::int64_t i = 0; i < m; ++i)
      ATHANOR_CHECK_INDEX(piece[i] >= 0 && piece[i] < size, "bincount: expected elements from 0 to ", size - 1,
                          ", got ", piece[i]);
    fn(begin, piece, m);
  }
}

template <class W>
void bincount_weighted(const View& out, const View& in, const View& weights) {
  // One thread: the order of the additions is part of the result.
  W* const sums = out.ptr<W>();
  std::fill_n(sums, out.numel, W{0});
  W w[kPiece];
  each_counted(in, out.numel, 0, in.numel, [&](std::int64_t first, const std::int64_t* piece, std::int64_t m) {
    load_range(w, weights.dtype, weights, first, m);
    for (std::int64_t i = 0; i < m; ++i) sums[piece[i]] += w[i];
  });
}

void bincount_cpu(const View& out, const View& in, const View& weights) {
  if (weights.defined()) {
    if (out.dtype == DType::Float) return bincount_weighted<float>(out, in, weights);
    return bincount_weighted<double>(out, in, weights);
  }
  const auto counts = count_in_shares(in.numel, out.numel, [&](std::int64_t* table, std::int64_t b, std::int64_t e) {
    each_counted(in, out.numel, b, e, [&](std::int64_t, const std::int64_t* piece, std::int64_t m) {
      for (std::int64_t i = 0; i < m; ++i) ++table[piece[i]];
    });
  });
  std::copy(counts.begin(), counts.end(), out.ptr<std::int64_t>());
}

}  // namespace

ATHANOR_REGISTER_KERNEL(searchsorted_kernel, CPU, &searchsorted_cpu);
ATHANOR_REGISTER_KERNEL(histc_kernel, CPU, &histc_cpu);
ATHANOR_REGISTER_KERNEL(bincount_kernel, CPU, &bincount_cpu);

}  // namespace athanor::cpu
