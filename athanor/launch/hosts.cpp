#include "athanor/launch/hosts.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "athanor/base/env.h"
#include "athanor/base/error.h"
#include "athanor/distributed/rendezvous/job_port.h"
#include "athanor/launch/command.h"
#include "athanor/launch/process.h"

extern char** environ;

namespace athanor::launch {

using athanor::detail::str;

namespace {

// Of ssh itself, when it could not do what it was asked.
constexpr int kSshFailed = 255;

std::string quoted(const std::string& text) {
  std::string all = "'";
  for (const char c : text) all += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return all + "'";
}

std::string own_program() {
  char path[PATH_MAX] = "";
  ATHANOR_CHECK(::readlink("/proc/self/exe", path, sizeof path - 1) > 0, "cannot find the path of this program");
  return path;
}

std::string current_folder() {
  char path[PATH_MAX] = "";
  ATHANOR_CHECK(::getcwd(path, sizeof path) != nullptr, "cannot find the current folder");
  return path;
}

// The agents have to agree on a port before any of them runs.
int choose_port(const LaunchOptions& options) {
  if (options.endpoint.port != 0) return options.endpoint.port;
  std::uint16_t number = 0;
  ATHANOR_CHECK(::getentropy(&number, sizeof number) == 0, "getentropy: ", distributed::error_text(errno));
  return distributed::job_port(number);
}

// Settings travel with the job, as far as they are meant for agents and workers.
std::string settings() {
  std::string all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string variable = *entry;
    const bool ours = variable.starts_with("PET_") || variable.starts_with("ATHANOR_") ||
                      variable.starts_with("OMP_NUM_THREADS=") || variable.starts_with("PYTHON_EXEC=") ||
                      variable.starts_with("TORCHELASTIC_ENABLE_FILE_TIMER=");
    const bool no_ones = variable.starts_with("ATHANOR_JOB_SECRET=") || variable.starts_with("ATHANOR_SSH=") ||
                         variable.starts_with("PET_HOSTS=") || variable.starts_with("PET_HOSTFILE=");
    if (ours && !no_ones) all += " " + quoted(variable);
  }
  return all;
}

// The agent's command line on one host, for a shell there.
std::string remote_command(const LaunchOptions& o, std::size_t node, int port, bool old_launcher) {
  const std::string& first = o.hosts.front().name;
  std::string line = str("cd ", quoted(current_folder()), " && exec env", settings(), " ", quoted(own_program()),
                         old_launcher ? " launch" : " run");
  for (const std::string& flag : o.flags) line += " " + quoted(flag);
  line += str(" --follow-stdin --nnodes ", o.hosts.size(), " --node-rank ", node, " --master-addr ",
              quoted(first.substr(first.find('@') + 1)), " --master-port ", port);
  if (const int workers = o.hosts[node].workers; workers > 0) line += str(" --nproc-per-node ", workers);
  line += " --";
  for (const std::string& word : o.command) line += " " + quoted(word);
  return line;
}

class Hosts {
 public:
  Hosts(const LaunchOptions& options, bool old_launcher) : options_(options) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : options.signals) sigaddset(&set, signal);
    remember_signal_mask();
    sigprocmask(SIG_BLOCK, &set, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    ATHANOR_CHECK(signals_, "signalfd: ", distributed::error_text(errno));
    const int port = choose_port(options);
    for (std::size_t i = 0; i < options.hosts.size(); ++i) start(i, remote_command(options, i, port, old_launcher));
  }

  int run() {
    while (running() > 0) {
      std::vector<pollfd> waits = {{signals_.get(), POLLIN, 0}};
      for (const Remote& r : remotes_)
        if (r.process) waits.push_back({r.process->watched_fd(), POLLIN, 0});
      ::poll(waits.data(), waits.size(), act_at_.poll_milliseconds());
      pass_signals();
      for (Remote& r : remotes_)
        if (r.process && distributed::wait_for(r.process->watched_fd(), POLLIN, Deadline::after({}))) ended(r);
      if (act_at_.expired()) insist();
    }
    return interrupted_by_ != 0 ? 128 + interrupted_by_ : status_;
  }

 private:
  struct Remote {
    std::string host;
    std::optional<Process> process;
    Descriptor control;
  };

  void start(std::size_t node, const std::string& command) {
    Program program;
    std::istringstream words(env::text("ATHANOR_SSH").value_or("ssh -o BatchMode=yes -x -T"));
    for (std::string word; words >> word;) program.words.push_back(word);
    ATHANOR_CHECK_VALUE(!program.words.empty(), "ATHANOR_SSH names no program");
    program.path = find_program(program.words.front());
    ATHANOR_CHECK_VALUE(!program.path.empty(), "--hosts needs ", program.words.front(), ", which is not in PATH");
    program.words.push_back(options_.hosts[node].name);
    program.words.push_back(command);
    int ends[2];
    ATHANOR_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "pipe: ", distributed::error_text(errno));
    const Descriptor in(ends[0]);
    Remote& remote = remotes_.emplace_back();
    remote.host = options_.hosts[node].name;
    remote.control.reset(ends[1]);
    std::vector<std::string> environment;
    for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
    remote.process.emplace(program, environment, -1, -1, in.get());
    const std::string secret = env::text("ATHANOR_JOB_SECRET").value_or("") + "\n";
    [[maybe_unused]] const auto written = ::write(remote.control.get(), secret.data(), secret.size());
  }

  std::size_t running() const {
    std::size_t count = 0;
    for (const Remote& r : remotes_) count += r.process ? 1 : 0;
    return count;
  }

  void pass_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      const auto number = static_cast<unsigned char>(info.ssi_signo);
      for (const Remote& r : remotes_)
        if (r.control) [[maybe_unused]]
          const auto written = ::write(r.control.get(), &number, 1);
      const bool ends = number != SIGUSR1 && number != SIGUSR2 && number != SIGCONT && number != SIGWINCH;
      if (ends && interrupted_by_ == 0) {
        interrupted_by_ = number;
        expect_the_rest();
      }
    }
  }

  // Agents tell each other when it is over; this is for those that do not hear it.
  void expect_the_rest() {
    act_at_ =
        Deadline::after(std::chrono::ceil<std::chrono::milliseconds>(options_.kill_grace) + std::chrono::seconds(15));
  }

  void ended(Remote& remote) {
    const Ending ending = remote.process->collect();
    remote.process.reset();
    remote.control.reset();
    if (ending.good()) return;
    if (status_ == 0) {
      status_ = ending.status();
      expect_the_rest();
    }
    if (ending.status() != kSshFailed) return;
    std::fprintf(stderr, "%s: no agent on %s (ssh ended with %s)\n", options_.name.c_str(), remote.host.c_str(),
                 ending.text().c_str());
    // Nobody else hears of an agent that never was.
    for (Remote& r : remotes_) r.control.reset();
  }

  void insist() {
    for (Remote& r : remotes_) {
      if (r.process && !r.control) r.process->signal(SIGKILL);
      r.control.reset();
    }
    act_at_ = Deadline::after(std::chrono::seconds(10));
  }

  const LaunchOptions& options_;
  Descriptor signals_;
  std::vector<Remote> remotes_;
  Deadline act_at_ = Deadline::after(std::chrono::hours(24 * 365));
  int status_ = 0, interrupted_by_ = 0;
};

}  // namespace

int run_on_hosts(const LaunchOptions& options, bool old_launcher) { return Hosts(options, old_launcher).run(); }

void take_secret_from_stdin() {
  std::string secret;
  char c = 0;
  while (::read(0, &c, 1) == 1 && c != '\n' && secret.size() < 4096) secret += c;
  if (!secret.empty()) ::setenv("ATHANOR_JOB_SECRET", secret.c_str(), 1);
}

}  // namespace athanor::launch
