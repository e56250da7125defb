#include "athanor/launch/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include "athanor/base/error.h"

namespace athanor::launch {

using athanor::detail::str;

std::string Ending::text() const {
  if (signal == 0) return str("exit code ", exit_code);
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? str("signal ", signal) : str("signal ", signal, " (SIG", name, ")");
}

namespace {

std::string read_whole(const std::string& path) {
  std::string text;
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char buffer[4096];
  for (ssize_t got = 0; fd && (got = ::read(fd.get(), buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  return text;
}

// Processes whose environment held `mark` when they were started.
std::vector<pid_t> marked_processes(const std::string& mark) {
  std::vector<pid_t> found;
  const std::string entry = mark + std::string(1, '\0');
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), ::closedir);
  while (const dirent* item = folder ? ::readdir(folder.get()) : nullptr) {
    const int pid = std::atoi(item->d_name);
    if (pid > 1 && pid != ::getpid() && read_whole(str("/proc/", pid, "/environ")).find(entry) != std::string::npos)
      found.push_back(pid);
  }
  return found;
}

// The guardian's life: learns the groups, and at the end of the pipe kills those it was not told to forget.
[[noreturn]] void guard(int pipe, const std::string& mark) {
  ::setsid();
  ::prctl(PR_SET_NAME, "athanor-guard");
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  const int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
  // Whatever else the agent holds (listening ports, its parent's pipes) must not stay open because of this process.
  if (pipe != 3) ::dup2(pipe, 3);
  ::syscall(SYS_close_range, 4U, ~0U, 0U);
  std::set<pid_t> groups;
  pid_t group = 0;
  while (::read(3, &group, sizeof group) == sizeof group) {
    if (group > 0)
      groups.insert(group);
    else
      groups.erase(-group);
  }
  for (const pid_t left : groups) ::kill(-left, SIGKILL);
  // Who was just being forked is found in the second round.
  for (int round = 0; round < 3 && !groups.empty(); ++round)
    for (const pid_t pid : marked_processes(mark)) ::kill(pid, SIGKILL);
  ::_exit(0);
}

sigset_t original_mask;

}  // namespace

void remember_signal_mask() { sigprocmask(SIG_SETMASK, nullptr, &original_mask); }

Guardian::Guardian(const std::string& mark) {
  int ends[2];
  ATHANOR_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "pipe: ", distributed::error_text(errno));
  Descriptor read_end(ends[0]);
  pipe_.reset(ends[1]);
  pid_ = ::fork();
  ATHANOR_CHECK(pid_ >= 0, "fork: ", distributed::error_text(errno));
  if (pid_ == 0) {
    ::close(pipe_.get());
    guard(read_end.get(), mark);
  }
}

Guardian::~Guardian() {
  pipe_.reset();
  ::waitpid(pid_, nullptr, 0);
}

// Errors do not matter: without its guardian the agent still cleans up unless it is killed.
void Guardian::tell(pid_t group) { [[maybe_unused]] const auto written = ::write(pipe_.get(), &group, sizeof group); }
void Guardian::watch(pid_t group) { tell(group); }
void Guardian::forget(pid_t group) { tell(-group); }

namespace {

struct StartRequest {
  const char* path;
  char* const* words;
  char* const* environment;
  int out, err, in;
  pid_t agent;
  const cpu_set_t* cpus;  // nullptr: the agent's
};

// Shares the parent's memory until it executes the program, so it may do nothing but system calls. Returns the pid, or
// -1 with errno; `failure` is the error of a program that could not be executed, or (`unbound`) of binding it to its
// CPUs.
[[gnu::noinline]] pid_t start(const StartRequest& request, volatile int& failure, volatile bool& unbound) {
  const pid_t pid = ::vfork();
  if (pid != 0) return pid;
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != request.agent) ::_exit(127);  // the agent died before the line above
  if (request.cpus != nullptr && ::sched_setaffinity(0, sizeof *request.cpus, request.cpus) != 0) {
    failure = errno;
    unbound = true;
    ::_exit(127);
  }
  if (request.in >= 0) ::dup2(request.in, 0);
  if (request.out >= 0) ::dup2(request.out, 1);
  if (request.err >= 0) ::dup2(request.err, 2);
  ::signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &original_mask, nullptr);
  ::execve(request.path, request.words, request.environment);
  failure = errno;
  ::_exit(127);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

}  // namespace

Process::Process(const Program& program, const std::vector<std::string>& environment, int out, int err, int in,
                 const std::vector<int>& cpus) {
  const auto words = pointers(program.words), variables = pointers(environment);
  volatile int failure = 0;
  volatile bool unbound = false;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  pid_ = start(
      {program.path.c_str(), words.data(), variables.data(), out, err, in, ::getpid(), cpus.empty() ? nullptr : &set},
      failure, unbound);
  ATHANOR_CHECK(pid_ >= 0, "cannot start a process for '", program.path, "': ", distributed::error_text(errno));
  if (failure != 0) {
    ::waitpid(pid_, nullptr, 0);
    ATHANOR_CHECK(!unbound, "cannot bind '", program.path, "' to its CPUs: ", distributed::error_text(failure));
    std::string hint;
    if (failure == ENOEXEC) hint = " (no program of this machine's, and no #! line; scripts of Python end in .py)";
    ATHANOR_THROW(Error, "cannot execute '", program.path, "': ", distributed::error_text(failure), hint);
  }
  pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  ATHANOR_CHECK(pidfd_, "pidfd_open: ", distributed::error_text(errno));
}

void Process::signal(int signal) const {
  if (!collected_) ::kill(-pid_, signal);
}

Ending Process::collect() {
  siginfo_t info{};
  // The group's number is its leader's, which nobody else gets before the leader is collected.
  ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  ::kill(-pid_, SIGKILL);
  ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED);
  collected_ = true;
  Ending ending;
  (info.si_code == CLD_EXITED ? ending.exit_code : ending.signal) = info.si_status;
  return ending;
}

void adopt_descendants() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

void end_stray_descendants(pid_t spared, const std::vector<pid_t>& workers) {
  const std::string path = str("/proc/self/task/", ::getpid(), "/children");
  // A killed process leaves its own children to us: until there is nothing new.
  for (bool found = true; found;) {
    found = false;
    const std::string list = read_whole(path);
    for (const char* at = list.c_str(); *at != '\0';) {
      char* end = nullptr;
      const auto pid = static_cast<pid_t>(std::strtol(at, &end, 10));
      if (end == at) break;
      at = end + std::strspn(end, " \n");
      if (pid == spared || std::find(workers.begin(), workers.end(), pid) != workers.end()) continue;
      const Descriptor watched(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
      ::kill(pid, SIGKILL);
      // One that hangs in the kernel cannot be waited for.
      if (distributed::wait_for(watched.get(), POLLIN, Deadline::after(std::chrono::seconds(2))))
        found = ::waitpid(pid, nullptr, WNOHANG) == pid || found;
    }
  }
}

}  // namespace athanor::launch
