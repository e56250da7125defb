#pragma once
/// The rules by which the agents of several nodes form rounds: no sockets, no clock, no threads. One agent, the host of
/// the store, has the coordinator; the others send it requests and follow the states it publishes.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "athanor/base/deadline.h"
#include "athanor/launch/options.h"
#include "athanor/launch/report.h"

namespace athanor::launch {

/// What an agent says of itself when it joins.
struct Member {
  std::string id;  ///< unique among all agents, also of past ones
  int node_rank = -1;
  int workers = 1;
  std::string role, host, run_id;
  int min_nodes = 1, max_nodes = 1;
};

struct Request {
  enum Kind { Join, Failed, Finished, Leave };
  Kind kind = Join;
  std::string id;
  int round = 0;                   ///< of Failed and Finished: which one
  Member member;                   ///< of Join
  std::optional<Failure> failure;  ///< of Failed
  std::string message;             ///< of Leave

  std::string json() const;
  static Request from_json(const std::string& text);
};

/// What the coordinator tells all agents.
struct State {
  enum Phase { Forming, Running, Closed };
  Phase phase = Forming;
  int round = 0, restarts = 0;
  std::vector<Member> members;                 ///< of Running: by group rank
  std::map<std::string, std::string> refused;  ///< agents that cannot take part, and why
  int master_port = 0;                         ///< of Running: where rank 0 serves a store; 0: the agents' store does
  bool success = false;                        ///< of Closed
  std::optional<Failure> failure;              ///< why a round ended
  std::string message;

  std::string json() const;
  static State from_json(const std::string& text);
};

class Coordinator {
 public:
  using Time = Deadline::Clock::time_point;
  Coordinator(const LaunchOptions& options, std::string host_id, Time now);

  void on_request(const Request& request, Time now);
  /// Nothing was heard of the agent for too long.
  void on_silence(const std::string& id, Time now);
  void on_time(Time now);
  /// When on_time() should be called at the latest.
  Time next_time() const;
  const State& state() const { return state_; }
  /// What the agents should be told, in this order; each state is given out once.
  std::vector<State> take_news() { return std::exchange(news_, {}); }
  /// Everyone whose sign of life is expected.
  std::vector<std::string> known() const;

 private:
  void join(const Member& member, Time now);
  void failed(const Request& request, Time now);
  void after_failure(Time now);
  void forget_failures();
  std::string refusal(const Member& member) const;
  const Member* holder_of_place(const Member& member) const;
  void lost(const std::string& id, const std::string& what, Time now);
  void keep_spare(const Member& member, Time now);
  void form(Time now, bool after_failure);
  void start_if_complete(Time now);
  void run();
  void close(bool success, const std::string& message);
  std::string who_came() const;
  const Member* member(const std::string& id) const;
  void publish() { news_.push_back(state_); }

  const LaunchOptions& options_;
  std::string host_id_;
  State state_;
  std::vector<State> news_;
  std::vector<Member> spares_;  // came too late or are too many
  std::map<std::string, Time> spare_until_;
  std::set<std::string> expected_;       // of the last round, not back yet
  std::vector<std::string> last_order_;  // group ranks stay as they are where they can
  std::set<std::string> finished_, failed_;
  std::optional<Failure> suspicion_;  // what a round ends for, unless a lost node explains it
  std::optional<Time> suspicion_until_;
  Time forming_since_;
  std::optional<Time> enough_since_;
};

}  // namespace athanor::launch
