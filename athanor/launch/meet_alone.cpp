// A job on one node needs no agreement: its rounds are decided here.
#include <deque>

#include "athanor/base/env.h"
#include "athanor/base/error.h"
#include "athanor/distributed/store/tcp_server.h"
#include "athanor/launch/meeting.h"

namespace athanor::launch {

bool share_store() { return !env::flag("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", false); }

namespace {

class Alone final : public Meeting {
 public:
  explicit Alone(const LaunchOptions& options) : options_(options) {
    endpoint_ = options.endpoint;
    // A port that nobody was told of before is nobody else's business either.
    const bool private_port = endpoint_.port == 0;
    if (private_port && !share_store()) {
      // Rank 0 will listen there; nothing can hold the port for it.
      endpoint_.port = distributed::Listener::on_port(0, endpoint_.host).port();
    } else if (share_store()) {
      server_ = std::make_unique<distributed::TCPStoreServer>(
          distributed::Listener::on_port(endpoint_.port, private_port ? endpoint_.host : ""),
          env::text("ATHANOR_JOB_SECRET").value_or(""));
      endpoint_.port = server_->port();
    }
  }
  int fd() const override { return -1; }
  std::optional<MeetingEvent> next() override {
    if (events_.empty()) return std::nullopt;
    MeetingEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  void join() override {
    if (round_ > 0 && server_) server_->keep_only("athanor/launch/");
    MeetingEvent event;
    event.kind = MeetingEvent::Start;
    Placement& p = event.placement;
    p.round = p.restarts = round_;
    p.world_size = p.role_size = options_.workers;
    p.master_host = endpoint_.host;
    p.master_port = endpoint_.port;
    p.agent_store = server_ != nullptr;
    events_.push_back(event);
  }
  void worker_failed(const Failure& failure) override {
    MeetingEvent event;
    event.failure = failure;
    if (round_ < options_.max_restarts) {
      ++round_;
      event.kind = MeetingEvent::Restart;
    }
    events_.push_back(event);
  }
  void finished() override {
    MeetingEvent event;
    event.success = true;
    events_.push_back(event);
  }
  void leave(const std::string&) override { events_.clear(); }
  void settle() override {}

 private:
  const LaunchOptions& options_;
  distributed::Endpoint endpoint_;
  std::unique_ptr<distributed::TCPStoreServer> server_;
  std::deque<MeetingEvent> events_;
  int round_ = 0;
};

}  // namespace

std::unique_ptr<Meeting> meet_alone(const LaunchOptions& options) { return std::make_unique<Alone>(options); }

}  // namespace athanor::launch
