#pragma once
/// How the agents of a job agree on its rounds: who takes part, which ranks each has, when all start again, when it is
/// over.

#include <memory>
#include <optional>
#include <string>

#include "athanor/launch/options.h"
#include "athanor/launch/report.h"

namespace athanor::launch {

/// Where a node's workers stand in one round.
struct Placement {
  int round = 0;     ///< counts all rounds, also those that began because a node came or went
  int restarts = 0;  ///< rounds that began because of a failure
  int group_rank = 0, group_size = 1;
  int first_rank = 0, world_size = 1;
  int first_role_rank = 0, role_size = 1;
  std::string master_host;
  int master_port = 0;
  /// An agent serves the store there; otherwise rank 0 has to.
  bool agent_store = true;
};

struct MeetingEvent {
  enum Kind {
    Start,    ///< start workers as `placement` says
    Restart,  ///< stop workers, then join() again
    Close,    ///< the job is over: stop workers
  };
  Kind kind = Close;
  Placement placement;
  bool success = false;            ///< of Close
  std::optional<Failure> failure;  ///< why, if it was a worker's
  std::string message;             ///< why, otherwise
};

/// Called by one thread. None of these waits for another node.
class Meeting {
 public:
  virtual ~Meeting() = default;
  /// Readable when next() has something new; -1: only calls of this class make events.
  virtual int fd() const = 0;
  virtual std::optional<MeetingEvent> next() = 0;
  /// This node has no workers running and is ready for a round.
  virtual void join() = 0;
  virtual void worker_failed(const Failure& failure) = 0;
  /// All workers of this node ended well.
  virtual void finished() = 0;
  /// This node gives up its part, because of `why`. No event follows.
  virtual void leave(const std::string& why) = 0;
  /// Waits, for a moment, until others have heard the end from this node.
  virtual void settle() = 0;
};

/// Of a job on one node: serves the store for its workers, nothing else.
std::unique_ptr<Meeting> meet_alone(const LaunchOptions& options);
/// Of a job on several: one of the agents serves the store, through which all agree.
std::unique_ptr<Meeting> meet_others(const LaunchOptions& options);

/// Whether agents' stores serve the workers too (TORCH_DISABLE_SHARE_RDZV_TCP_STORE, as in PyTorch).
bool share_store();

}  // namespace athanor::launch
