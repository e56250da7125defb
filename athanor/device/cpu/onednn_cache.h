#pragma once
/// What the files that talk to oneDNN share: the engine, the team, who may call, and a store of primitives, whose
/// making costs more than a small product.

#include <algorithm>
#include <array>
#include <cstdint>
#include <list>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>

namespace athanor::onednn {

/// The processor. Never destroyed, so that threads may outlive main.
const dnnl::engine& cpu_engine();
/// The calling thread's stream, for its calls one after the other.
dnnl::stream& call_stream();
/// Makes oneDNN use the caller's team and returns its size (1 inside parallel_for).
int use_team();

/// Set on a thread whose streams or primitives are being destroyed: objects that outlive them (the program's globals,
/// for the main thread) compute without oneDNN.
extern constinit thread_local bool thread_ended;

/// A call into oneDNN; while one lives, close() waits. Refused once close() has begun.
class Call {
 public:
  Call();
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  bool admitted() const { return admitted_; }

 private:
  bool admitted_;
};

/// The values last used, by key; keys are found by comparing them in order of use. One thread at a time: keep one per
/// thread, whose end is the end of the thread's calls.
template <class Key, class Value, std::size_t kCapacity = 96>
class RecentlyUsed {
 public:
  RecentlyUsed() = default;
  RecentlyUsed(const RecentlyUsed&) = delete;
  RecentlyUsed& operator=(const RecentlyUsed&) = delete;
  ~RecentlyUsed() { thread_ended = true; }

  /// The value of `key`, made by `make()` if it is not here. Valid until the next call.
  template <class Make>
  Value& get(const Key& key, Make&& make) {
    for (auto it = entries_.begin(); it != entries_.end(); ++it)
      if (it->first == key) {
        entries_.splice(entries_.begin(), entries_, it);
        return entries_.front().second;
      }
    entries_.emplace_front(key, make());
    if (entries_.size() > kCapacity) entries_.pop_back();
    return entries_.front().second;
  }

 private:
  std::list<std::pair<Key, Value>> entries_;
};

}  // namespace athanor::onednn
