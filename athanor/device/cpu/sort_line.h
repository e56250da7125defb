#pragma once
/// Sorting of one dense line of any dtype.

#include <bit>
#include <cstdint>

#include "athanor/device/cpu/host_buffer.h"
#include "athanor/device/cpu/order_key.h"
#include "athanor/device/cpu/order_simd.h"

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

/// values = in sorted, indices = where each came from; either may be null. Stable, also when descending. For every
/// dtype but Bool, whose lines are sorted as bytes.
template <class T>
void sort_line(const T* in, std::int64_t n, bool descending, T* values, std::int64_t* indices);

}  // namespace athanor::cpu
