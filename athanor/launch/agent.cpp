#include "athanor/launch/agent.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "athanor/base/error.h"
#include "athanor/base/log.h"
#include "athanor/distributed/flight_recorder.h"
#include "athanor/distributed/rendezvous/rendezvous.h"
#include "athanor/distributed/store/tcp_store.h"

namespace athanor::launch {

using athanor::detail::str;

namespace {

std::string random_mark() {
  std::uint64_t number = 0;
  ATHANOR_CHECK(::getentropy(&number, sizeof number) == 0, "getentropy: ", distributed::error_text(errno));
  return str("ATHANOR_AGENT=", ::getpid(), "-", number);
}

// Signals that tell a program something, but not to end.
bool is_message(int signal) {
  return signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGCONT || signal == SIGWINCH;
}

Descriptor take_signals(const std::vector<int>& signals) {
  remember_signal_mask();
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  Descriptor fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  ATHANOR_CHECK(fd, "signalfd: ", distributed::error_text(errno));
  return fd;
}

}  // namespace

Agent::Agent(const LaunchOptions& options) : options_(options), mark_(random_mark()), command_(options) {
  // In this order: signals blocked before there is a thread, the fork before there is one too.
  signals_ = take_signals(options.signals);
  guardian_ = std::make_unique<Guardian>(mark_);
  adopt_descendants();
  if (options.follow_stdin) stdin_.reset(::fcntl(0, F_DUPFD_CLOEXEC, 3));
  workers_ = std::make_unique<WorkerGroup>(options, command_, *guardian_, mark_, out_, err_);
  if (options.timer_file) {
    timers_ = std::make_unique<FileTimers>(*options.timer_file);
    workers_->set_timer_file(timers_->path());
  }
  for (const std::string& note : options.notes) say(note);
}

Agent::~Agent() {
  workers_.reset();
  end_stray_descendants(guardian_->pid(), {});
  const Deadline patience = Deadline::after(std::chrono::seconds(5));
  out_.flush_until(patience);
  err_.flush_until(patience);
}

void Agent::say(const std::string& text) { err_.write(str(options_.name, ": ", text, "\n")); }

int Agent::run() {
  meeting_ = options_.max_nodes == 1 ? meet_alone(options_) : meet_others(options_);
  try {
    meeting_->join();
    while (!status_) step();
  } catch (const Error& error) {
    meeting_->leave(error.what());
    meeting_->settle();
    throw;
  }
  meeting_->settle();
  return *status_;
}

void Agent::step() {
  if (take_events()) return;
  if (started_ && !workers_->running()) {
    started_ = false;
    end_stray_descendants(guardian_->pid(), {});
    if (!stopping_) meeting_->finished();
    return;
  }
  if (stopping_ && !workers_->running() && then_ != Then::Decide) {
    stopping_ = false;
    if (then_ == Then::Rejoin) {
      meeting_->join();
    } else {
      if (reported_) err_.write(describe_rest(*reported_, workers_->failures(), workers_->stopped()));
      status_ = interrupted_by_ != 0 ? 128 + interrupted_by_ : reported_ ? reported_->ending.status() : 1;
    }
    return;
  }
  std::vector<pollfd> waits;
  wait(waits);
  on_signals();
  if (stdin_ && waits.back().revents != 0) on_stdin();
  if (timers_) on_timers();
  const bool failed_before = !workers_->failures().empty();
  workers_->handle(waits);
  if (!failed_before && !workers_->failures().empty()) on_worker_ends();
  enforce_deadline();
}

void Agent::wait(std::vector<pollfd>& waits) {
  waits.push_back({signals_.get(), POLLIN, 0});
  if (meeting_->fd() >= 0) waits.push_back({meeting_->fd(), POLLIN, 0});
  for (Console* console : {&out_, &err_})
    if (console->waiting()) waits.push_back({console->fd(), POLLOUT, 0});
  if (timers_) waits.push_back({timers_->fd(), POLLIN, 0});
  workers_->add_waits(waits);
  if (stdin_) waits.push_back({stdin_.get(), POLLIN, 0});
  Deadline until = workers_->next_wake();
  if (timers_) until = until.sooner(timers_->next());
  if (stopping_ && workers_->running()) until = until.sooner(kill_at_);
  ::poll(waits.data(), waits.size(), until.poll_milliseconds());
  out_.flush();
  err_.flush();
}

bool Agent::take_events() {
  bool any = false;
  while (auto event = meeting_->next()) {
    any = true;
    // After a signal only the end counts.
    if (interrupted_by_ == 0) on_event(*event);
  }
  return any;
}

void Agent::on_event(const MeetingEvent& event) {
  if (event.kind == MeetingEvent::Start) {
    stopping_ = false;
    reported_.reset();
    placement_ = event.placement;
    if (options_.explain) explain(event.placement);
    if (timers_) timers_->clear();
    workers_->start(event.placement);
    started_ = true;
    return;
  }
  if (event.kind == MeetingEvent::Close) return on_close(event);
  if (event.failure) {
    err_.write(describe(options_.name, *event.failure, options_.max_restarts));
    say("all workers start again");
  } else if (!event.message.empty()) {
    say(str(event.message, "; all workers start again"));
  }
  stop_workers(SIGTERM, Then::Rejoin);
}

void Agent::on_close(const MeetingEvent& event) {
  if (event.success) {
    status_ = 0;
    return;
  }
  reported_ = event.failure;
  if (event.failure)
    err_.write(describe(options_.name, *event.failure, options_.max_restarts));
  else
    say(event.message);
  stop_workers(SIGTERM, Then::Exit);
}

// The first failure of this round: the others' agents hear of it while the workers here are being stopped.
void Agent::on_worker_ends() {
  if (interrupted_by_ != 0) return;
  Failure failure = workers_->failures().front();
  failure.ranks = what_ranks_do();
  stop_workers(SIGTERM, Then::Decide);
  meeting_->worker_failed(failure);
}

// Asked before the others are stopped, which may be in the middle of what they wait for in vain. Those that have made a
// process group answer at once; where there is none, as in PyTorch's programs, nobody is asked.
std::string Agent::what_ranks_do() const {
  constexpr std::chrono::milliseconds kPatience{1000};  // a rank on a busy machine answers, too
  if (!placement_.agent_store || placement_.world_size == 1) return {};
  try {
    distributed::TCPStoreOptions client;
    client.port = placement_.master_port;
    client.timeout = kPatience;
    const distributed::StoreDeadline limit(Deadline::after(kPatience));
    const auto served = std::make_shared<distributed::TCPStore>(placement_.master_host, client);
    const auto store = distributed::meeting::store_of_env(served, placement_.restarts);
    if (!store) return {};
    std::vector<int> gone;
    for (const Failure& failure : workers_->failures()) gone.push_back(failure.rank);
    return distributed::internals::ask_ranks_from_outside(
        store, placement_.world_size, gone, str("the launcher, ", workers_->failures().front().host, ":", ::getpid()),
        kPatience);
  } catch (const Error& error) {  // the store is gone, and with it whoever served it
    ATHANOR_LOG(Debug, "nobody says what the ranks are doing: ", error.what());
    return {};
  }
}

void Agent::stop_workers(int signal, Then then) {
  then_ = then;
  if (stopping_) return;
  stopping_ = true;
  kills_ = 0;
  kill_at_ = Deadline::after(std::chrono::duration_cast<std::chrono::milliseconds>(options_.kill_grace));
  workers_->expect_end();
  workers_->signal(signal);
}

void Agent::enforce_deadline() {
  if (!stopping_ || !workers_->running() || !kill_at_.expired()) return;
  ATHANOR_CHECK(kills_ < 2, "workers do not end even by SIGKILL, they hang in the system: process ",
                workers_->pids().front(), " is one of them");
  workers_->signal(SIGKILL);
  kill_at_ = Deadline::after(std::chrono::seconds(10));
  ++kills_;
}

void Agent::on_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) {
      // What descendants left behind; workers are collected when their own descriptor says so.
      siginfo_t child{};
      const auto mine = workers_->pids();
      while (::waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0 && child.si_pid != 0 &&
             std::find(mine.begin(), mine.end(), child.si_pid) == mine.end() && child.si_pid != guardian_->pid()) {
        ::waitpid(child.si_pid, nullptr, WNOHANG);
        child.si_pid = 0;
      }
    } else {
      on_signal(signal);
    }
  }
}

void Agent::on_signal(int signal) {
  if (is_message(signal)) return workers_->signal(signal);
  // Asked twice: without grace.
  if (interrupted_by_ != 0) return workers_->signal(SIGKILL);
  interrupted_by_ = signal;
  const char* name = ::sigabbrev_np(signal);
  meeting_->leave(str("stopped by SIG", name == nullptr ? "NAL" : name));
  stopping_ = false;  // a stop that is under way becomes this one
  stop_workers(signal, Then::Exit);
}

// Bytes are signals' numbers; the end means that whoever started this agent is gone.
void Agent::on_stdin() {
  unsigned char signal = 0;
  const ssize_t got = ::read(stdin_.get(), &signal, 1);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) stdin_.reset();
  on_signal(got <= 0 ? SIGTERM : signal);
}

// Whom a timer ends has failed, as if it had ended by itself.
void Agent::on_timers() {
  timers_->read();
  for (const auto& timer : timers_->expired()) {
    const auto rank = workers_->rank_of(timer.pid);
    if (!rank) continue;  // it has ended, or is none of ours
    const bool ends = timer.signal > 0 && timer.signal < NSIG;
    say(str("rank ", *rank, ": timer '", timer.scope, "' ran out; ",
            ends ? str("process ", timer.pid, " gets signal ", timer.signal) : "it names no signal"));
    if (ends) ::kill(timer.pid, timer.signal);
  }
}

void Agent::explain(const Placement& p) {
  std::string text = str("job ", options_.run_id, ", round ", p.round, ": node ", p.group_rank, " of ", p.group_size,
                         ", ranks ", p.first_rank, " to ", p.first_rank + options_.workers - 1, " of ", p.world_size,
                         ", store at ", distributed::Endpoint{p.master_host, p.master_port}.text(), "\n");
  const int gpus = visible_gpus();
  for (int i = 0; i < options_.workers; ++i) {
    const int local_rank = options_.first_local_rank + i;
    text += str("  rank ", p.first_rank + i, ": local rank ", local_rank, ", device ",
                gpus > 0 ? str("cuda:", options_.virtual_local_rank ? 0 : local_rank) : std::string("cpu"),
                workers_->cpus(i).empty() ? std::string() : str(", CPUs ", cpu_list_text(workers_->cpus(i))), "\n");
  }
  say(text + "  command: " + command_.text());
}

}  // namespace athanor::launch
