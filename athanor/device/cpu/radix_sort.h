#pragma once
/// Stable radix sort of (rank, index) records from the lowest digit up. What reads the input and what writes the result
/// are parameters, so the first pass makes the records and the last takes them apart.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "athanor/base/parallel.h"
#include "athanor/device/cpu/host_buffer.h"
#include "athanor/device/cpu/simd_targets.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

namespace athanor::cpu {

template <class Word>
struct Ranked {
  using Count = Word;  ///< counts elements
  Word rank, index;
};
using Ranked32 = Ranked<std::uint32_t>;
using Ranked64 = Ranked<std::uint64_t>;

inline constexpr std::int64_t kRadixGrain = 65536;  // records for which a second thread pays
/// Records of more bytes leave the caches. A store that misses costs ten times one that hits, so they are gathered to
/// whole lines that bypass the caches; that allows more buckets, and so fewer digits.
inline constexpr std::int64_t kCombineBytes = 4 << 20;
inline constexpr int kDigitBits = 8, kCombinedDigitBits = 11;
inline constexpr std::int64_t kCombined = 16;  // records gathered

/// How the bits of a rank are cut into digits of equal size.
struct Digits {
  int count, bits;
  int skipped = 0;  ///< of the lowest bits, which are left unsorted
  bool combine;
  Digits(int total, std::int64_t record_bytes) : combine(record_bytes >= kCombineBytes) {
    count = std::max(1, count_for(total));
    bits = std::max(1, (total + count - 1) / count);
  }
  /// As few of the highest digits of `total` bits as tell nearly all of n ranks apart, unless they crowd: those for
  /// 2^margin as many.
  Digits upper(int total, std::int64_t n, int margin) const {
    Digits d = *this;
    d.count = count_for(static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n - 1))) + margin);
    if (d.count >= count) return *this;
    d.bits = most();
    d.skipped = total - d.count * d.bits;
    return d;
  }
  int most() const { return combine ? kCombinedDigitBits : kDigitBits; }
  int count_for(int total) const { return (total + most() - 1) / most(); }
  std::int64_t buckets() const { return std::int64_t{1} << bits; }
};

/// to[i] = from[i], past the caches where `to` is aligned to a line. Call hwy::FlushStream() before others may read.
template <std::int64_t N, class T>
inline void stream_elements(T* to, const T* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<std::uint8_t> d;
  constexpr std::size_t bytes = N * sizeof(T);
  if (bytes % hn::MaxLanes(d) != 0 || reinterpret_cast<std::uintptr_t>(to) % 64 != 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  auto* out = reinterpret_cast<std::uint8_t*>(to);
  const auto* in = reinterpret_cast<const std::uint8_t*>(from);
  for (std::size_t i = 0; i < bytes; i += hn::Lanes(d)) hn::Stream(hn::LoadU(d, in + i), d, out + i);
}

/// Writes whole records.
template <class Rec>
struct RecordSink {
  Rec* to;
  void put(std::int64_t at, Rec r) const {
    to[at] = r;
    __builtin_prefetch(to + at + 64 / sizeof(Rec), 1);
  }
  void put_line(std::int64_t at, const Rec* from) const { stream_elements<kCombined>(to + at, from); }
};

template <class Rec>
class RadixSort {
 public:
  using Count = typename Rec::Count;

  /// `a` and `b` hold n records each; `a` is needed only for three or more digits, `b` for two or more.
  RadixSort(std::int64_t n, Digits digits, Rec* a, Rec* b)
      : n_(n),
        digits_(digits),
        rooms_{a, b},
        shares_(std::clamp<std::int64_t>(n / kRadixGrain, 1, in_parallel_region() ? 1 : get_num_threads())),
        counts_(shares_ * digits.buckets() * (shares_ == 1 ? digits.count : 1)) {}

  /// source(i) gives record i; sink.put(place, record) takes it: every record once, in order of place within each
  /// bucket of the last digit.
  template <class Source, class Sink>
  void run(const Source& source, const Sink& sink) {
    if (shares_ == 1) count_all(source);
    Rec* from = nullptr;
    for (int d = 0; d < digits_.count; ++d) {
      const auto records = [from](std::int64_t i) { return from[i]; };
      if (shares_ > 1) d == 0 ? count_shares(d, source) : count_shares(d, records);
      if (d + 1 == digits_.count) {
        d == 0 ? pass(d, source, sink) : pass(d, records, sink);
        return;
      }
      Rec* const to = rooms_[(digits_.count - 2 - d) % 2 == 0];
      d == 0 ? pass(d, source, RecordSink<Rec>{to}) : pass(d, records, RecordSink<Rec>{to});
      from = to;
    }
  }

  /// Stretches of the records, one for each thread.
  std::int64_t shares() const { return shares_; }
  std::int64_t share_begin(std::int64_t s) const { return n_ / shares_ * s + std::min(s, n_ % shares_); }
  template <class F>
  void each_share(F&& fn) const {
    parallel_for(0, shares_, 1, [&](std::int64_t b, std::int64_t e) {
      for (; b < e; ++b) fn(b);
    });
  }

 private:
  /// Copies of what it needs: members would be read again after every record that is stored.
  auto digit_of(int d) const {
    return [shift = digits_.skipped + d * digits_.bits, mask = static_cast<Count>(digits_.buckets()) - 1](Rec r) {
      return static_cast<std::int64_t>(r.rank >> shift & mask);
    };
  }
  Count* counts(std::int64_t table) const { return counts_.data() + table * digits_.buckets(); }

  /// One reading counts every digit.
  template <class Source>
  void count_all(const Source& source) {
    std::memset(counts(0), 0, sizeof(Count) * static_cast<std::size_t>(digits_.count * digits_.buckets()));
    const int count = digits_.count, bits = digits_.bits, skipped = digits_.skipped;
    const std::int64_t n = n_, buckets = digits_.buckets();
    const auto mask = static_cast<Count>(buckets) - 1;
    Count* const tables = counts(0);
    for (std::int64_t i = 0; i < n; ++i) {
      Count rest = source(i).rank >> skipped, *table = tables;
      for (int d = 0; d < count; ++d, rest >>= bits, table += buckets) ++table[rest & mask];
    }
    for (int d = 0; d < digits_.count; ++d) {
      Count sum = 0;
      for (std::int64_t b = 0; b < digits_.buckets(); ++b) sum += std::exchange(counts(d)[b], sum);
    }
  }

  template <class Source>
  void count_shares(int d, const Source& source) {
    each_share([&](std::int64_t s) {
      Count* const table = counts(s);
      std::memset(table, 0, sizeof(Count) * static_cast<std::size_t>(digits_.buckets()));
      const auto digit = digit_of(d);
      for (std::int64_t i = share_begin(s), end = share_begin(s + 1); i < end; ++i) ++table[digit(source(i))];
    });
    Count sum = 0;
    for (std::int64_t b = 0; b < digits_.buckets(); ++b)
      for (std::int64_t s = 0; s < shares_; ++s) sum += std::exchange(counts(s)[b], sum);
  }

  template <class Source, class Sink>
  void pass(int d, const Source& source, const Sink& sink) {
    each_share([&](std::int64_t s) {
      Count* const places = counts(shares_ == 1 ? d : s);
      if (digits_.combine) return pass_by_lines(d, share_begin(s), share_begin(s + 1), places, source, sink);
      const auto digit = digit_of(d);
      for (std::int64_t i = share_begin(s), end = share_begin(s + 1); i < end; ++i) {
        const Rec r = source(i);
        sink.put(places[digit(r)]++, r);
      }
    });
  }

  /// Records wait in one line per bucket until it is full, then leave past the caches.
  template <class Source, class Sink>
  void pass_by_lines(int d, std::int64_t begin, std::int64_t end, Count* places, const Source& source,
                     const Sink& sink) const {
    const std::int64_t buckets = digits_.buckets();
    const auto digit = digit_of(d);
    const HostBuffer<Rec> lines(buckets * kCombined);
    const HostBuffer<Count> firsts(buckets);
    std::memcpy(firsts.data(), places, sizeof(Count) * static_cast<std::size_t>(buckets));
    const auto drain = [&](std::int64_t b, std::int64_t from, std::int64_t to) {
      for (; from < to; ++from) sink.put(from, lines[b * kCombined + from % kCombined]);
    };
    for (std::int64_t i = begin; i < end; ++i) {
      const Rec r = source(i);
      const std::int64_t b = digit(r);
      const auto place = static_cast<std::int64_t>(places[b]++);
      lines[b * kCombined + place % kCombined] = r;
      if (place % kCombined != kCombined - 1) continue;
      const std::int64_t first = static_cast<std::int64_t>(firsts[b]), line = place + 1 - kCombined;
      if (first <= line)
        sink.put_line(line, &lines[b * kCombined]);
      else
        drain(b, first, place + 1);
    }
    for (std::int64_t b = 0; b < buckets; ++b) {
      const auto last = static_cast<std::int64_t>(places[b]);
      drain(b, std::max(static_cast<std::int64_t>(firsts[b]), last / kCombined * kCombined), last);
    }
    hwy::FlushStream();
  }

  std::int64_t n_;
  Digits digits_;
  Rec* rooms_[2];
  std::int64_t shares_;
  HostBuffer<Count> counts_;
};

}  // namespace athanor::cpu
