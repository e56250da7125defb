#pragma once
/// Messages: sends and receives between two ranks, over links of their own, so that they neither wait for collectives
/// nor disturb them. Whoever waits moves everybody's messages; nothing moves while nobody does, so somebody must call
/// progress() while there are requests that nobody waits for.

#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "athanor/distributed/transport/arena.h"

namespace athanor::distributed {

class Messages {
 public:
  /// `arena` may be null if no other rank is on this host.
  Messages(Mesh& mesh, Arena* arena);
  ~Messages();

  std::unique_ptr<P2pRequest> isend(const Call& call, Span data, int to, std::uint32_t tag);
  std::unique_ptr<P2pRequest> irecv(const Call& call, Span data, int from, std::uint32_t tag);
  void progress(std::chrono::milliseconds patience);

 private:
  struct Header;
  struct Request;
  struct Unexpected;
  struct Channel;
  class Handle;
  using RequestPtr = std::shared_ptr<Request>;

  void wait(Request& request, Deadline deadline);
  bool test(Request& request);
  void give_up(Request& request);
  bool pump();
  bool pump_out(Channel& channel);
  bool pump_in(Channel& channel);
  bool begin(Channel& channel);
  void finish_incoming(Channel& channel);
  RequestPtr match(int from, const Header& header);
  bool deliver(Request& request, Unexpected& message);
  void fail_channel(Channel& channel, const std::string& reason);
  void check_departed();
  void lead(Patience& patience, Deadline deadline, std::unique_lock<std::mutex>& lock);
  void complete(Request& request);
  std::string text(const Request& request) const;

  Mesh& mesh_;
  Arena* arena_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool led_ = false;
  std::vector<std::unique_ptr<Channel>> channels_;     // by rank; none for this one
  std::list<RequestPtr> posted_;                       // receives without a message, in the order they were made
  std::list<std::unique_ptr<Unexpected>> unexpected_;  // messages without a receive, in the order they came
};

}  // namespace athanor::distributed
