#pragma once
/// Anomaly mode: nodes note where they were made, and the engine looks for NaN in what they return. Slow; for
/// debugging.

#include <string>

namespace athanor::autograd {

bool anomaly_enabled();
bool anomaly_checks_nan();
void set_anomaly(bool enabled, bool check_nan = true);
/// The calls that lead here, one per line.
std::string current_backtrace();

/// Switches anomaly mode on for its scope.
class DetectAnomalyGuard {
 public:
  explicit DetectAnomalyGuard(bool check_nan = true) : was_on_(anomaly_enabled()), checked_nan_(anomaly_checks_nan()) {
    set_anomaly(true, check_nan);
  }
  ~DetectAnomalyGuard() { set_anomaly(was_on_, checked_nan_); }
  DetectAnomalyGuard(const DetectAnomalyGuard&) = delete;
  DetectAnomalyGuard& operator=(const DetectAnomalyGuard&) = delete;

 private:
  bool was_on_, checked_nan_;
};

}  // namespace athanor::autograd
