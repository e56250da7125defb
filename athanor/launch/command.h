#pragma once
/// From what stands on the command line to what is executed.

#include "athanor/launch/options.h"
#include "athanor/launch/process.h"

namespace athanor::launch {

/// The worker program. Finds it (and Python, for *.py and -m) once; throws ValueError saying what is missing.
class Command {
 public:
  explicit Command(const LaunchOptions& options);
  Program for_worker(int local_rank) const;
  /// For reports.
  std::string text() const;

 private:
  Program program_;
  std::size_t rank_argument_ = 0;  ///< where the old launcher's argument goes; 0: nowhere
  std::string rank_flag_;
};

/// As a shell would, and then in the current folder, where people keep what they have just built. A name with a '/' is
/// its own path. Empty if there is none.
std::string find_program(const std::string& name);

}  // namespace athanor::launch
