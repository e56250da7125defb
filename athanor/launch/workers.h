#pragma once
/// The workers of one node.

#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "athanor/launch/command.h"
#include "athanor/launch/meeting.h"
#include "athanor/launch/options.h"
#include "athanor/launch/output.h"
#include "athanor/launch/process.h"
#include "athanor/launch/report.h"

namespace athanor::launch {

/// Where log files and error files of a job's workers are.
class LogFolder {
 public:
  /// Makes the job's folder if there is something to write. Throws IoError naming what could not be made.
  explicit LogFolder(const LaunchOptions& options);
  /// "out" or "err" of a worker; makes the folders on the way.
  std::string stream_file(const Placement& placement, int local_rank, const char* stream) const;
  /// "out" or "err": where the lines of all workers go that --duplicate-std*-filters chooses.
  std::string filtered_file(const Placement& placement, const char* stream) const;
  /// Empty if no folder was asked for.
  std::string error_file(const Placement& placement, int local_rank) const;
  const std::string& path() const { return path_; }

 private:
  std::string worker_folder(const Placement& placement, int local_rank) const;
  const LaunchOptions& options_;
  std::string path_;
};

class WorkerGroup {
 public:
  /// Throws ValueError if the workers cannot be bound to CPUs as the options say.
  WorkerGroup(const LaunchOptions& options, const Command& command, Guardian& guardian, const std::string& mark,
              Console& out, Console& err);
  ~WorkerGroup();

  /// By --numa-binding, of the worker with that index on this node; empty: those of the agent.
  const std::vector<int>& cpus(int index) const { return cpus_[static_cast<std::size_t>(index)]; }
  /// Workers that start from now on find this in TORCHELASTIC_TIMER_FILE.
  void set_timer_file(const std::string& path) { timer_file_ = path; }
  /// The rank whose worker, or a process of whose group, this is.
  std::optional<int> rank_of(pid_t pid) const;
  /// Starts all of them; none may be running. Throws Error if one cannot be started, with the others killed.
  void start(const Placement& placement);
  void signal(int signal);
  /// From now on a worker that ends does so because it was told to: it is no failure.
  void expect_end();
  bool running() const { return alive_ > 0; }
  /// Those that ended badly on their own, in the order in which that was noticed.
  const std::vector<Failure>& failures() const { return failures_; }
  /// Ranks that ended after expect_end(), by number.
  const std::vector<int>& stopped() const { return stopped_; }
  std::vector<pid_t> pids() const;

  /// What the agent's loop waits for.
  void add_waits(std::vector<pollfd>& waits) const;
  Deadline next_wake() const;
  /// After the wait.
  void handle(const std::vector<pollfd>& waits);

 private:
  struct Worker;
  std::vector<std::string> environment(const Placement& placement, const Worker& worker) const;
  Stream::Where where(const Placement& placement, const Worker& worker, bool err, std::string& log_file) const;
  void start_one(const Placement& placement, int index);
  void ended(Worker& worker);

  const LaunchOptions& options_;
  const Command& command_;
  Guardian& guardian_;
  std::string mark_, host_, timer_file_;
  Console &out_, &err_;
  LogFolder logs_;
  std::vector<std::vector<int>> cpus_;
  std::vector<std::unique_ptr<Worker>> workers_;
  int alive_ = 0;
  bool end_expected_ = false;
  Placement placement_;
  std::vector<Failure> failures_;
  std::vector<int> stopped_;
};

}  // namespace athanor::launch
