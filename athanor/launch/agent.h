#pragma once
/// The agent: one process per node that starts the workers, watches them, and agrees with the other nodes' agents.

#include <memory>
#include <optional>
#include <vector>

#include "athanor/launch/file_timers.h"
#include "athanor/launch/meeting.h"
#include "athanor/launch/workers.h"

namespace athanor::launch {

class Agent {
 public:
  explicit Agent(const LaunchOptions& options);
  ~Agent();
  /// Until the job is over. Returns the exit status.
  int run();

 private:
  enum class Then { Decide, Rejoin, Exit };  // when no worker runs any more

  void step();
  bool take_events();
  void on_event(const MeetingEvent& event);
  void on_close(const MeetingEvent& event);
  void on_signals();
  void on_signal(int signal);
  void on_stdin();
  void on_timers();
  std::string what_ranks_do() const;
  void on_worker_ends();
  void stop_workers(int signal, Then then);
  void wait(std::vector<pollfd>& waits);
  void enforce_deadline();
  void explain(const Placement& placement);
  void say(const std::string& text);

  const LaunchOptions& options_;
  Console out_{1}, err_{2};
  std::string mark_;
  std::unique_ptr<Guardian> guardian_;
  Descriptor signals_;
  Descriptor stdin_;  // followed, if this agent was started by another
  Command command_;
  std::unique_ptr<FileTimers> timers_;
  std::unique_ptr<WorkerGroup> workers_;
  std::unique_ptr<Meeting> meeting_;

  Placement placement_;   // of this round
  bool started_ = false;  // workers of this round have been started and not all been accounted for
  bool stopping_ = false;
  Then then_ = Then::Decide;
  Deadline kill_at_ = Deadline::after(std::chrono::hours(1));
  int kills_ = 0;
  std::optional<Failure> reported_;  // of this round
  std::optional<int> status_;
  int interrupted_by_ = 0;
};

}  // namespace athanor::launch
