#pragma once
/// Not for programs: the layer in whose forward a thread is. What it enqueues on a device remembers the place, so that
/// a kernel that fails later can say where in the model its call was.

#include <string>
#include <utility>

#include "athanor/base/intrusive_ptr.h"

namespace athanor {

/// Where a module is registered. Thread-safe.
class Place : public RefCounted {
 public:
  /// "net.conv2"; empty if it is in nothing.
  std::string path() const;
  /// Puts it below `outer`, which is not null.
  void enter(IntrusivePtr<Place> outer, std::string name);
  void leave();
  bool is_in(const Place* outer) const;

 private:
  IntrusivePtr<Place> outer_;
  std::string name_;
};

namespace detail {

// initial-exec, as tape_state: every layer sets it and every queued call asks for it.
extern constinit thread_local Place* current_place __attribute__((tls_model("initial-exec")));

/// The calling thread is at `place` as long as this lives; null: it stays where it is.
class AtPlace {
 public:
  explicit AtPlace(Place* place) : outer_(current_place) {
    if (place) current_place = place;
  }
  ~AtPlace() { current_place = outer_; }
  AtPlace(const AtPlace&) = delete;
  AtPlace& operator=(const AtPlace&) = delete;

 private:
  Place* outer_;
};

}  // namespace detail
}  // namespace athanor
