#include "athanor/tensor/place.h"

#include <mutex>

namespace athanor {

constinit thread_local Place* detail::current_place __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

/// Of all places: modules are registered and kernels fail too rarely for locks of their own.
std::mutex& places() {
  static std::mutex& one = *new std::mutex;  // a queue may fail while static objects go
  return one;
}

}  // namespace

std::string Place::path() const {
  constexpr int kDeepest = 100;  // a module may be registered below itself
  const std::lock_guard lock(places());
  std::string out;
  int depth = 0;
  for (const Place* at = this; at->outer_ && depth < kDeepest; at = at->outer_.get(), ++depth)
    out = depth == 0 ? at->name_ : at->name_ + "." + out;
  return out;
}

void Place::enter(IntrusivePtr<Place> outer, std::string name) {
  const std::lock_guard lock(places());
  outer_.swap(outer);
  name_ = std::move(name);
}

void Place::leave() {
  IntrusivePtr<Place> left;
  const std::lock_guard lock(places());
  outer_.swap(left);
  name_.clear();
}

bool Place::is_in(const Place* outer) const {
  const std::lock_guard lock(places());
  return outer && outer_.get() == outer;
}

}  // namespace athanor
