#include "athanor/distributed/spawn.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "athanor/base/deadline.h"
#include "athanor/base/env.h"
#include "athanor/base/parallel.h"
#include "athanor/distributed/groups.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/tensor/stream.h"

namespace athanor::distributed {

using athanor::detail::str;

namespace {

// How long a child that was asked to end may take.
constexpr std::chrono::milliseconds kGrace{2000};
// An error's text beyond this is cut.
constexpr std::size_t kMostErrorText = 1 << 20;

Descriptor pidfd_of(pid_t pid) { return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

void write_all(int fd, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<std::size_t>(n);
  }
}

// Runs the target in a thread of its own: the OpenMP runtime gives a new thread a new pool, while the pool of the
// thread that forked has lost its workers. Meanwhile the first thread sees to it that no orphan is left.
[[noreturn]] void run_child(const std::function<void()>& target, int threads, int error_fd, const Descriptor& parent) {
  int ends[2] = {-1, -1};
  int status = 0;
  if (::pipe2(ends, O_CLOEXEC) != 0) ::_exit(1);
  const Descriptor done(ends[0]), tell_done(ends[1]);
  std::thread worker([&] {
    try {
      set_num_threads(threads);
      target();
      internals::leave_all_groups();
    } catch (const std::exception& error) {
      write_all(error_fd, error.what());
      status = 1;
    } catch (...) {
      write_all(error_fd, "an exception that is no std::exception");
      status = 1;
    }
    std::fflush(nullptr);
    [[maybe_unused]] const auto written = ::write(tell_done.get(), "x", 1);
  });
  for (;;) {
    struct pollfd entries[2] = {{done.get(), POLLIN, 0}, {parent.get(), POLLIN, 0}};
    if (::poll(entries, 2, -1) < 0) continue;
    if (entries[0].revents != 0) break;
    if (entries[1].revents != 0) ::_exit(1);  // the parent is gone
  }
  worker.join();
  // Neither the parent's exit handlers nor its static objects are this process's business.
  ::_exit(status);
}

// A free port that stays ours until the job listens there: bound, but not listening.
Descriptor reserve_port(int& port) {
  Descriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (!fd || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw DistError(str("spawn: no free port: ", error_text(errno)), ATHANOR_WHERE);
  port = ntohs(address.sin_port);
  return fd;
}

}  // namespace

struct Process::State {
  std::function<void()> target;
  int threads = 0;
  pid_t pid = -1;
  Descriptor handle, error_pipe;
  std::string error;
  std::optional<int> exitcode;

  // The child may write more than a pipe holds: whoever waits for it reads.
  void read_error() {
    char buffer[4096];
    for (;;) {
      const ssize_t n = ::read(error_pipe.get(), buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;
      if (error.size() < kMostErrorText) error.append(buffer, static_cast<std::size_t>(n));
    }
  }
  // True once the child has ended; waits until the deadline.
  bool reap(Deadline deadline) {
    while (!exitcode) {
      struct pollfd entries[2] = {{handle.get(), POLLIN, 0}, {error_pipe.get(), POLLIN, 0}};
      const int ready = ::poll(entries, 2, deadline.poll_milliseconds());
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) return false;
      read_error();
      if (entries[0].revents == 0) {
        if (entries[1].revents & (POLLHUP | POLLERR)) error_pipe.reset();
        continue;
      }
      int status = 0;
      if (::waitpid(pid, &status, 0) == pid)
        exitcode = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
      else
        exitcode = 0;  // somebody else of this process has reaped it
      read_error();
    }
    return true;
  }
};

Process::Process(std::function<void()> target, int threads) : state_(std::make_unique<State>()) {
  state_->target = std::move(target);
  state_->threads = threads > 0 ? threads : get_num_threads();
}

Process::Process(Process&&) noexcept = default;
Process& Process::operator=(Process&&) noexcept = default;

Process::~Process() {
  if (!state_ || state_->pid < 0 || state_->exitcode) return;
  ::kill(state_->pid, SIGKILL);
  state_->reap(Deadline::after(kGrace));
}

void Process::start() {
  State& s = *state_;
  ATHANOR_CHECK(s.pid < 0, "Process: start() was called before");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw DistError(str("Process: no pipe: ", error_text(errno)), ATHANOR_WHERE);
  Descriptor write_end(ends[1]);
  s.error_pipe = Descriptor(ends[0]);
  const Descriptor self = pidfd_of(::getpid());
  if (!self) throw DistError(str("Process: pidfd_open: ", error_text(errno)), ATHANOR_WHERE);
  athanor::detail::cuda_queue_count();  // speaks of virtual devices once, not in every child
  std::fflush(nullptr);                 // what stands in a buffer would be written by both
  const pid_t pid = ::fork();
  if (pid < 0) throw DistError(str("Process: fork: ", error_text(errno)), ATHANOR_WHERE);
  if (pid == 0) run_child(s.target, s.threads, write_end.get(), self);
  s.pid = pid;
  s.handle = pidfd_of(pid);
  ::fcntl(s.error_pipe.get(), F_SETFL, O_NONBLOCK);
}

bool Process::join(std::chrono::milliseconds timeout) {
  ATHANOR_CHECK(state_->pid >= 0, "Process: join() before start()");
  return state_->reap(Deadline::after(timeout == kForever ? std::chrono::hours(876'000) : timeout));
}

bool Process::is_alive() { return state_->pid >= 0 && !state_->reap(Deadline::after(std::chrono::milliseconds(0))); }

std::optional<int> Process::exitcode() {
  if (is_alive()) return std::nullopt;
  return state_->exitcode;
}

const std::string& Process::error() {
  is_alive();
  return state_->error;
}

pid_t Process::pid() const { return state_->pid; }

void Process::terminate() {
  if (is_alive()) ::kill(state_->pid, SIGTERM);
}

void Process::kill() {
  if (is_alive()) ::kill(state_->pid, SIGKILL);
}

std::vector<pid_t> ProcessContext::pids() const {
  std::vector<pid_t> all;
  for (const Process& process : processes_) all.push_back(process.pid());
  return all;
}

// The index of a child that has failed, -1 when all have ended well, -2 when the time is up.
int ProcessContext::wait_for_one(std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::after(timeout == Process::kForever ? std::chrono::hours(876'000) : timeout);
  for (;;) {
    std::vector<struct pollfd> entries;
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      Process::State& s = *processes_[i].state_;
      if (s.reap(Deadline::after(std::chrono::milliseconds(0)))) {
        if (*s.exitcode != 0 || !s.error.empty()) return static_cast<int>(i);
        continue;
      }
      entries.push_back({s.handle.get(), POLLIN, 0});
      entries.push_back({s.error_pipe.get(), POLLIN, 0});
    }
    if (entries.empty()) return -1;
    if (deadline.expired()) return -2;
    ::poll(entries.data(), entries.size(), deadline.poll_milliseconds());
  }
}

void ProcessContext::end_others() {
  for (Process& process : processes_) process.terminate();
  const Deadline deadline = Deadline::after(kGrace);
  for (Process& process : processes_)
    if (!process.state_->reap(deadline)) process.kill();
  for (Process& process : processes_) process.join();
}

bool ProcessContext::join(std::chrono::milliseconds timeout) {
  const int failed = wait_for_one(timeout);
  if (failed == -2) return false;
  if (failed < 0) return true;
  end_others();
  const Process::State& s = *processes_[static_cast<std::size_t>(failed)].state_;
  if (!s.error.empty())
    throw ProcessRaisedError(
        str("process ", failed, " of ", processes_.size(), " (pid ", s.pid, ") ended with the error: ", s.error),
        ATHANOR_WHERE);
  if (*s.exitcode < 0)
    throw ProcessExitedError(str("process ", failed, " of ", processes_.size(), " (pid ", s.pid,
                                 ") was ended by signal ", -*s.exitcode, " (", ::strsignal(-*s.exitcode), ")"),
                             ATHANOR_WHERE);
  throw ProcessExitedError(
      str("process ", failed, " of ", processes_.size(), " (pid ", s.pid, ") ended with status ", *s.exitcode),
      ATHANOR_WHERE);
}

ProcessContext spawn_async(const std::function<void(int)>& fn, int nprocs) {
  ATHANOR_CHECK_VALUE(nprocs >= 1, "spawn: expected a positive number of processes, got ", nprocs);
  ATHANOR_CHECK(fn != nullptr, "spawn: there is no function to run");
  // Held until the children exist: they keep it reserved from then on.
  Descriptor reserved;
  const bool wants_address = !env::text("MASTER_ADDR"), wants_port = !env::text("MASTER_PORT");
  int port = 0;
  if (wants_port) reserved = reserve_port(port);
  std::vector<Process> processes;
  for (int rank = 0; rank < nprocs; ++rank) {
    processes.emplace_back(
        [fn, rank, wants_address, wants_port, port] {
          if (wants_address) ::setenv("MASTER_ADDR", "127.0.0.1", 0);
          if (wants_port) ::setenv("MASTER_PORT", std::to_string(port).c_str(), 0);
          fn(rank);
        },
        std::max(1, get_num_threads() / nprocs));
    processes.back().start();
  }
  return ProcessContext(std::move(processes));
}

void spawn(const std::function<void(int)>& fn, int nprocs) { spawn_async(fn, nprocs).join(); }

}  // namespace athanor::distributed
