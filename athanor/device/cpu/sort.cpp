// Sorting along a dim.
#include "athanor/device/cpu/sort_line.h"

#include <atomic>
#include <numeric>

#include "athanor/device/cpu/order_lines.h"
#include "athanor/device/cpu/radix_sort.h"
#include "athanor/device/cpu/wide_vectors.h"
#include "athanor/ops/kernels/scan_sort.h"
#include "hwy/contrib/sort/vqsort.h"

namespace athanor::cpu {

KeyRange line_key_range(const void* in, DType t, std::int64_t n) {
  constexpr std::int64_t kChunk = 262144;
  const auto fn = order_fns().key_range[static_cast<int>(t)];
  if (n <= 2 * kChunk || in_parallel_region()) return fn(in, n);
  const std::int64_t chunks = (n + kChunk - 1) / kChunk;
  const HostBuffer<KeyRange> ranges(chunks);
  const auto* bytes = static_cast<const char*>(in);
  const auto size = static_cast<std::int64_t>(item_size(t));
  parallel_for(0, chunks, 1, [&](std::int64_t b, std::int64_t e) {
    // Each chunk starts one element early (the first excepted), so that differences between chunks show.
    for (; b < e; ++b) {
      const std::int64_t first = std::max<std::int64_t>(0, b * kChunk - 1);
      ranges[b] = fn(bytes + first * size, std::min(n, (b + 1) * kChunk) - first);
    }
  });
  KeyRange all = ranges[0];
  for (std::int64_t c = 1; c < chunks; ++c) {
    all.least = std::min(all.least, ranges[c].least);
    all.greatest = std::max(all.greatest, ranges[c].greatest);
    all.varying |= ranges[c].varying;
  }
  return all;
}

namespace {

constexpr std::int64_t kVectorSort = std::int64_t{1} << 22;  // elements of a line

/// Takes sorted records apart. Zeros and NaNs are fetched from the input: their keys do not tell them apart.
template <class T, class Rec>
struct ElementSink {
  T* values;
  std::int64_t* indices;
  const T* in;
  Ranker<T> ranker;

  T value(Rec r) const {
    const KeyOf<T> k = ranker.key(static_cast<KeyOf<T>>(r.rank));
    return is_exact_key<T>(k) ? order_value<T>(k) : in[r.index];
  }
  void put(std::int64_t at, Rec r) const {
    if (values) {
      values[at] = value(r);
      __builtin_prefetch(values + at + 64 / sizeof(T), 1);
    }
    if (indices) {
      indices[at] = static_cast<std::int64_t>(r.index);
      __builtin_prefetch(indices + at + 8, 1);
    }
  }
  void put_line(std::int64_t at, const Rec* from) const {
    alignas(64) T v[kCombined];
    alignas(64) std::int64_t i[kCombined];
    for (std::int64_t k = 0; k < kCombined; ++k) i[k] = static_cast<std::int64_t>(from[k].index);
    if (indices) stream_elements<kCombined>(indices + at, i);
    if (!values) return;
    for (std::int64_t k = 0; k < kCombined; ++k) v[k] = value(from[k]);
    stream_elements<kCombined>(values + at, v);
  }
};

template <class T>
void sort_few(const T* in, std::int64_t n, const Ranker<T>& ranker, T* values, std::int64_t* indices) {
  std::uint64_t words[kFew];
  std::int32_t places[kFew];
  for (std::int64_t i = 0; i < n; ++i)
    words[i] = static_cast<std::uint64_t>(ranker(in[i])) << 32 | static_cast<std::uint64_t>(i);
  order_fns().rank_few(places, words, n);
  for (std::int64_t i = 0; i < n; ++i) {
    if (values) values[places[i]] = in[i];
    if (indices) indices[places[i]] = i;
  }
}

/// Whether n ranks of `bits` bits are sorted faster by Highway's quicksort, which takes one thread, than by radix.
bool sorts_by_vectors(std::int64_t n, int bits) {
  return bits > 2 * kDigitBits && bits <= 32 && n <= kVectorSort && sorts_fast() &&
         (n < 2 * kRadixGrain || in_parallel_region() || get_num_threads() == 1);
}

/// Sorts words of rank and index. No two are equal, so any sort of them is stable.
template <class T>
void sort_words(const T* in, std::int64_t n, const Ranker<T>& ranker, T* values, std::int64_t* indices) {
  // The words lie where the indices will: each is read before its place is written.
  const HostBuffer<std::uint64_t> own(indices ? 0 : n);
  std::uint64_t* const words = indices ? reinterpret_cast<std::uint64_t*>(indices) : own.data();
  for (std::int64_t i = 0; i < n; ++i)
    words[i] = static_cast<std::uint64_t>(ranker(in[i])) << 32 | static_cast<std::uint64_t>(i);
  const hwy::Sorter sorter;
  sorter(words, static_cast<std::size_t>(n), hwy::SortAscending());
  const ElementSink<T, Ranked32> sink{values, indices, in, ranker};
  if (values)
    for (std::int64_t i = 0; i < n; ++i)
      values[i] = sink.value({static_cast<std::uint32_t>(words[i] >> 32), static_cast<std::uint32_t>(words[i])});
  if (indices)
    for (std::int64_t i = 0; i < n; ++i) indices[i] = static_cast<std::int64_t>(words[i] & 0xffffffff);
}

/// Sorts records [begin, end) that are sorted but for a few neighbours; false, and any order, if they are not.
template <class Rec>
bool insert_few(Rec* records, std::int64_t begin, std::int64_t end) {
  std::int64_t moves = 2 * (end - begin);
  for (std::int64_t i = begin + 1; i < end; ++i) {
    if (records[i].rank >= records[i - 1].rank) continue;
    const Rec moved = records[i];
    std::int64_t at = i;
    for (; at > begin && records[at - 1].rank > moved.rank; --at) records[at] = records[at - 1];
    records[at] = moved;
    moves -= i - at;
    if (moves < 0) return false;
  }
  return true;
}

/// Whether a few elements taken here and there agree in the bits above the `skipped` lowest ones: then many do.
template <class T>
bool crowded(const T* in, std::int64_t n, const Ranker<T>& ranker, int skipped) {
  constexpr int kTaken = 32, kMostPairs = 3;
  if (n < 8 * kTaken) return false;
  KeyOf<T> taken[kTaken];
  int pairs = 0;
  for (int i = 0; i < kTaken; ++i) {
    taken[i] = static_cast<KeyOf<T>>(ranker(in[n / kTaken * i]) >> skipped);
    for (int j = 0; j < i; ++j) pairs += taken[j] == taken[i];
  }
  return pairs > kMostPairs;
}

/// Sorts by `upper` digits, then by insertions, if that is enough; else the result is as it was. `a` and `b` hold n
/// records each and may be overwritten, a also where the result goes.
template <class Rec, class T, class Source>
bool sort_by_upper(std::int64_t n, const Digits& upper, const Source& source, const ElementSink<T, Rec>& sink, Rec* a,
                   Rec* b) {
  RadixSort<Rec> sort(n, upper, b, a);
  sort.run(source, RecordSink<Rec>{b});
  // A share begins where the digits that were sorted change.
  const HostBuffer<std::int64_t> begins(sort.shares() + 1);
  for (std::int64_t s = 0; s <= sort.shares(); ++s) {
    std::int64_t i = std::max(sort.share_begin(s), s > 0 ? begins[s - 1] : 0);
    while (i > 0 && i < n && b[i].rank >> upper.skipped == b[i - 1].rank >> upper.skipped) ++i;
    begins[s] = i;
  }
  std::atomic<bool> sorted{true};
  sort.each_share([&](std::int64_t s) {
    if (!insert_few(b, begins[s], begins[s + 1])) sorted = false;
  });
  if (!sorted) return false;
  sort.each_share([&](std::int64_t s) {
    for (std::int64_t i = sort.share_begin(s), end = sort.share_begin(s + 1); i < end; ++i) {
      if (sink.values) sink.values[i] = sink.value(b[i]);
      if (sink.indices) sink.indices[i] = static_cast<std::int64_t>(b[i].index);
    }
  });
  return true;
}

/// Sorts with records whose words hold both ranks and indices. `spare`: room for n of them that may be overwritten
/// until the result is, or null. Numbers that are spread out differ in their highest bits: a few digits of these, then
/// insertions, spare a quarter to most of the passes.
template <class Rec, class T>
void sort_records(const T* in, std::int64_t n, const Ranker<T>& ranker, T* values, std::int64_t* indices, Rec* spare) {
  const Digits digits(ranker.bits, n * static_cast<std::int64_t>(sizeof(Rec)));
  using Word = decltype(Rec::rank);
  const auto source = [&](std::int64_t i) { return Rec{static_cast<Word>(ranker(in[i])), static_cast<Word>(i)}; };
  const ElementSink<T, Rec> sink{values, indices, in, ranker};
  // Two digits need one room; to sort by the upper of them, two.
  const HostBuffer<Rec> a(digits.count > (sizeof(T) > 2 ? 1 : 2) && !spare ? n : 0), b(digits.count > 1 ? n : 0);
  Rec* const room = spare ? spare : a.data();
  if constexpr (sizeof(T) > 2) {
    // More bits for float64, of which twelve are sign and exponent.
    const Digits upper = digits.upper(ranker.bits, n, sizeof(T) == 8 ? 7 : 5);
    if (upper.skipped > 0 && !crowded(in, n, ranker, upper.skipped) &&
        sort_by_upper(n, upper, source, sink, room, b.data()))
      return;
  }
  RadixSort<Rec>(n, digits, room, b.data()).run(source, sink);
}

}  // namespace

template <class T>
void sort_line(const T* in, std::int64_t n, bool descending, T* values, std::int64_t* indices) {
  if (n == 0) return;
  const Ranker<T> ranker(line_key_range(in, dtype_of_v<T>, n), descending);
  if (ranker.bits == 0) {
    if (values) std::copy_n(in, n, values);
    if (indices) std::iota(indices, indices + n, std::int64_t{0});
    return;
  }
  const bool narrow = ranker.bits <= 32;
  if (narrow && n <= kFew) return sort_few(in, n, ranker, values, indices);
  if constexpr (sizeof(T) > 2)
    if (sorts_by_vectors(n, ranker.bits)) return sort_words(in, n, ranker, values, indices);
  if (narrow && n <= std::int64_t{0xffffffff})
    sort_records<Ranked32>(in, n, ranker, values, indices, reinterpret_cast<Ranked32*>(indices));
  else
    sort_records<Ranked64>(in, n, ranker, values, indices, static_cast<Ranked64*>(nullptr));
}

template void sort_line(const std::uint8_t*, std::int64_t, bool, std::uint8_t*, std::int64_t*);
template void sort_line(const std::int8_t*, std::int64_t, bool, std::int8_t*, std::int64_t*);
template void sort_line(const std::int16_t*, std::int64_t, bool, std::int16_t*, std::int64_t*);
template void sort_line(const std::int32_t*, std::int64_t, bool, std::int32_t*, std::int64_t*);
template void sort_line(const std::int64_t*, std::int64_t, bool, std::int64_t*, std::int64_t*);
template void sort_line(const Half*, std::int64_t, bool, Half*, std::int64_t*);
template void sort_line(const BFloat16*, std::int64_t, bool, BFloat16*, std::int64_t*);
template void sort_line(const float*, std::int64_t, bool, float*, std::int64_t*);
template void sort_line(const double*, std::int64_t, bool, double*, std::int64_t*);

namespace {

void sort_cpu(const View& values, const View& indices, const View& in, std::int64_t dim, bool descending) {
  const View from = as_bytes(in);
  const std::int64_t n = in.ndim > 0 ? in.size(static_cast<int>(dim)) : 1;
  dispatch_all(from.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>)
      each_order_line(from, as_bytes(values), indices, dim, 8, [&](const void* line, void* v, std::int64_t* i) {
        sort_line(static_cast<const T*>(line), n, descending, static_cast<T*>(v), i);
      });
  });
}

}  // namespace

ATHANOR_REGISTER_KERNEL(sort_kernel, CPU, &sort_cpu);

}  // namespace athanor::cpu
