#pragma once
/// What all algorithms do with spans.

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

}  // namespace athanor::distributed
