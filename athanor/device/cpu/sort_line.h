#pragma once
/// Sorting of one dense line of any dtype.

#include <bit>
#include <cstdint>
#include <numeric>

#include "athanor/device/cpu/order_key.h"
#include "athanor/device/cpu/order_simd.h"
#include "athanor/device/cpu/radix_sort.h"

namespace athanor::cpu {

/// Bounds of the keys of a line, found by several threads if it is long.
KeyRange line_key_range(const void* in, DType t, std::int64_t n);

/// Order keys of a line moved to start at 0 and without the low bits that all share, so that few digits remain.
template <class T>
struct Ranker {
  using Key = KeyOf<T>;
  Key flip = 0, base = 0;
  int shift = 0, bits = 8 * sizeof(T);

  Ranker(const KeyRange& range, bool descending) : flip(descending ? static_cast<Key>(~Key{0}) : Key{0}) {
    base = static_cast<Key>((descending ? range.greatest : range.least) ^ flip);
    shift = range.varying ? std::countr_zero(range.varying) : 0;
    bits = std::bit_width((range.greatest - range.least) >> shift);
  }
  Key rank(Key key) const { return static_cast<Key>(static_cast<Key>((key ^ flip) - base) >> shift); }
  Key operator()(T v) const { return rank(order_key(v)); }
  Key key(Key rank) const { return static_cast<Key>(static_cast<Key>((rank << shift) + base) ^ flip); }
};

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

/// Sorts with records whose words hold both ranks and indices. `spare`: room for n of them that may be overwritten
/// until the result is, or null.
template <class Rec, class T>
void sort_records(const T* in, std::int64_t n, const Ranker<T>& ranker, T* values, std::int64_t* indices, Rec* spare) {
  const Digits digits(ranker.bits, n * static_cast<std::int64_t>(sizeof(Rec)));
  const HostBuffer<Rec> a(digits.count > 2 && !spare ? n : 0), b(digits.count > 1 ? n : 0);
  using Word = decltype(Rec::rank);
  const auto source = [&](std::int64_t i) { return Rec{static_cast<Word>(ranker(in[i])), static_cast<Word>(i)}; };
  RadixSort<Rec>(n, digits, spare ? spare : a.data(), b.data())
      .run(source, ElementSink<T, Rec>{values, indices, in, ranker});
}

/// values = in sorted, indices = where each came from; either may be null. Stable, also when descending.
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
  if (narrow && n <= std::int64_t{0xffffffff})
    sort_records<Ranked32>(in, n, ranker, values, indices, reinterpret_cast<Ranked32*>(indices));
  else
    sort_records<Ranked64>(in, n, ranker, values, indices, static_cast<Ranked64*>(nullptr));
}

}  // namespace athanor::cpu
