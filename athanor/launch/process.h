#pragma once
/// Starting worker processes so that none is ever left over.

#include <sys/types.h>

#include <string>
#include <vector>

#include "athanor/distributed/net/socket.h"

namespace athanor::launch {

using distributed::Descriptor;

struct Program {
  std::string path;                ///< what is executed
  std::vector<std::string> words;  ///< argv
};

/// How a process ended.
struct Ending {
  int exit_code = 0;  ///< if `signal` is 0
  int signal = 0;
  bool good() const { return exit_code == 0 && signal == 0; }
  /// What a shell would report: the exit code, or 128 + signal.
  int status() const { return signal != 0 ? 128 + signal : exit_code; }
  /// "exit code 3" or "signal 9 (SIGKILL)".
  std::string text() const;
};

/// A second process that outlives this one by a moment: should the agent be killed so that it cannot clean up, it kills
/// the agent's workers, the processes in their groups, and all that carry the agent's mark in their environment.
class Guardian {
 public:
  /// Forks; to be made before the process has a second thread. `mark` is NAME=value.
  explicit Guardian(const std::string& mark);
  /// Lets it end and waits for that.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;
  void watch(pid_t group);
  void forget(pid_t group);
  pid_t pid() const { return pid_; }

 private:
  void tell(pid_t group);
  Descriptor pipe_;
  pid_t pid_ = -1;
};

/// A child in a session and process group of its own; gets SIGKILL when the thread that started it ends.
class Process {
 public:
  /// `out`, `err` and `in` become stdout, stderr and stdin; -1 leaves the agent's. It may use `cpus` only; none: those
  /// of the agent. Throws Error naming the program and what the system said. No signal is blocked or ignored in the
  /// child.
  Process(const Program& program, const std::vector<std::string>& environment, int out, int err, int in = -1,
          const std::vector<int>& cpus = {});
  Process(Process&&) = default;
  Process& operator=(Process&&) = default;

  pid_t pid() const { return pid_; }
  /// Readable once the process has ended.
  int watched_fd() const { return pidfd_.get(); }
  /// To the process and all of its group. Nothing if it has been collected.
  void signal(int signal) const;
  /// After watched_fd() became readable; kills what is left of the group.
  Ending collect();

 private:
  pid_t pid_ = -1;
  Descriptor pidfd_;
  bool collected_ = false;
};

/// Lets this process inherit what its descendants leave behind, so that end_stray_descendants() finds it.
void adopt_descendants();
/// Kills and collects children of this process that are neither `spared` nor among `workers`: descendants of workers
/// that left their group.
void end_stray_descendants(pid_t spared, const std::vector<pid_t>& workers);

/// Signals as they were before this process began to take them from a descriptor; workers get these back.
void remember_signal_mask();

}  // namespace athanor::launch
