#pragma once
/// Messages: sends and receives between two ranks, over links of their own, so that they neither wait for collectives
/// nor disturb them. Whoever waits moves everybody's messages; nothing moves while nobody does, so somebody must call
/// progress() while there are requests that nobody waits for.
///
/// Large messages within a host are not sent but offered, where ranks can read each other's memory: the receiver reads
/// them once it has a place for them.

#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "athanor/distributed/transport/peer_memory.h"

namespace athanor::distributed {

class Messages {
 public:
  /// `arena` and `peers` may be null if no other rank is on this host.
  Messages(Mesh& mesh, Arena* arena, const PeerMemory* peers);
  ~Messages();

  std::unique_ptr<P2pRequest> isend(const Call& call, Span data, int to, std::uint32_t tag);
  std::unique_ptr<P2pRequest> irecv(const Call& call, Span data, int from, std::uint32_t tag);
  void progress(std::chrono::milliseconds patience);

 private:
  struct Header;
  struct Request;
  struct Unexpected;
  struct Channel;
  struct Pull;
  class Handle;
  using RequestPtr = std::shared_ptr<Request>;

  void wait(Request& request, Deadline deadline);
  bool test(Request& request);
  void give_up(Request& request);
  bool pump();
  bool pump_out(Channel& channel);
  bool pump_in(Channel& channel);
  bool take_unexpected(const RequestPtr& request);
  bool begin(Channel& channel);
  void offer(Channel& channel, const RequestPtr& request);
  bool end_offers(Channel& channel);
  static bool has_ended_offer(const Channel& channel);
  bool withdraw(Channel& channel, Request& request);
  void accept_offer(Channel& channel);
  void claim_offer(Unexpected& message, const RequestPtr& request);
  void refuse(Channel& channel, const Header& header);
  bool pull(Channel& channel);
  void finish_pull(Channel& channel);
  void finish_aside(Unexpected& message);
  std::string mismatch(const Request& request, int from, const Header& got) const;
  void finish_incoming(Channel& channel);
  RequestPtr match(int from, const Header& header);
  bool deliver(Request& request, Unexpected& message);
  void fail_channel(Channel& channel, const std::string& reason);
  void fail_request(Request& request, int left);
  bool all_closed() const;
  void check_departed();
  void check();
  [[noreturn]] void fail(const std::string& what);
  [[noreturn]] void time_out(const Request& request);
  void lead(Patience& patience, Deadline deadline, std::unique_lock<std::mutex>& lock);
  void complete(Request& request);
  std::string text(const Request& request) const;

  Mesh& mesh_;
  Arena* arena_;
  const PeerMemory* peers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool led_ = false;
  bool woken_ = true;                                  ///< false: the last sleep ended by itself, or by a signal
  std::vector<std::unique_ptr<Channel>> channels_;     // by rank; none for this one
  std::list<RequestPtr> posted_;                       // receives without a message, in the order they were made
  std::list<std::unique_ptr<Unexpected>> unexpected_;  // messages without a receive, in the order they came
};

}  // namespace athanor::distributed
