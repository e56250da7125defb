#pragma once
/// Turns hidden layouts on or off for a scope.

#include "athanor/ops/hidden.h"

namespace athanor::test {

class HiddenSwitch {
 public:
  explicit HiddenSwitch(bool on) : before_(hidden_layouts_enabled()) { set_hidden_layouts_enabled(on); }
  ~HiddenSwitch() { set_hidden_layouts_enabled(before_); }
  HiddenSwitch(const HiddenSwitch&) = delete;
  HiddenSwitch& operator=(const HiddenSwitch&) = delete;

 private:
  bool before_;
};

}  // namespace athanor::test
