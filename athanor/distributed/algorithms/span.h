#pragma once
/// What all algorithms do with spans.

#include <algorithm>

#include "athanor/device/cpu/combine.h"
#include "athanor/distributed/backend.h"

namespace athanor::distributed {

inline char* bytes_of(const Span& span) { return static_cast<char*>(span.data); }

/// A rank's own part of a result; nothing to do where it lies there already.
inline void copy_own(const Span& to, const Span& from, bool stream = false) {
  if (to.data != from.data) cpu::copy_bytes(to.data, from.data, from.bytes(), stream);
}

/// Results larger than this bypass the caches: nobody would find them there.
inline constexpr std::size_t kBeyondCache = std::size_t{16} << 20;

/// The share of `place` of n in `bytes`, in whole cache lines but for the last; of a chunk that holds only the first
/// `present` of them, what is there of it.
struct Share {
  std::size_t begin, size;
  Share(std::size_t bytes, int place, int n, std::size_t present) {
    const std::size_t lines = (bytes + 63) / 64,
                      each = (lines + static_cast<std::size_t>(n) - 1) / static_cast<std::size_t>(n);
    begin = std::min(present, static_cast<std::size_t>(place) * each * 64);
    size = std::min(present, (static_cast<std::size_t>(place) + 1) * each * 64) - begin;
  }
};

}  // namespace athanor::distributed
