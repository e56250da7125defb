// SIGUSR1 prints the flight recorder. The handler writes one byte; a thread that waits for it does the rest.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <thread>

#include "athanor/base/env.h"
#include "athanor/base/log.h"
#include "athanor/distributed/flight_recorder.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/distributed/process_group_impl.h"

namespace athanor::distributed {

namespace {

struct SignalWatch {
  std::mutex mutex;
  bool running = false;
  unsigned generation = 0;  // of the process that started the thread
  std::thread thread;
  Descriptor read_end, write_end;
  struct sigaction previous {};
};
SignalWatch& watch() {
  static auto* one = new SignalWatch;  // the signal may come while statics are destroyed
  return *one;
}

std::atomic<int> wake_fd = -1;

void on_signal(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  const int fd = wake_fd.load();
  const char print = 'p';
  if (fd >= 0) [[maybe_unused]]
    const auto written = ::write(fd, &print, 1);
  errno = saved;
  const struct sigaction& before = watch().previous;
  if (before.sa_flags & SA_SIGINFO) {
    if (before.sa_sigaction) before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  }
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == on_signal;
}

void print(const std::string& text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

// `asked` may end with an error of the store, of which there is then no more use.
template <class Ask>
void while_there(std::optional<internals::FlightQuestions>& questions, Ask&& asked) {
  try {
    if (questions) asked(*questions);
  } catch (const std::exception& error) {
    ATHANOR_LOG(Debug, "no more reports of all ranks: ", error.what());
    questions.reset();
  }
}

void print_when_told(int fd, std::optional<internals::FlightQuestions> questions) {
  constexpr std::chrono::milliseconds kPatience{1000};
  for (;;) {
    while_there(questions, [fd](auto& q) { q.answer_until(fd); });
    struct pollfd entry = {fd, POLLIN, 0};
    if (::poll(&entry, 1, -1) < 0) continue;
    char what = 0;
    if (::read(fd, &what, 1) != 1 || what == 'q') return;
    print(flight_records_text());
    while_there(questions, [&](auto& q) { print(q.ask(kPatience) + "\n"); });
  }
}

}  // namespace

void internals::start_flight_signal(std::shared_ptr<Store> store, int rank, int size) {
  SignalWatch& w = watch();
  const std::lock_guard lock(w.mutex);
  const bool inherited = w.running && w.generation != fork_generation();
  if ((w.running && !inherited) || !env::flag("ATHANOR_FLIGHT_RECORDER_SIGNAL", true)) return;
  if (inherited) new std::thread(std::move(w.thread));  // the parent's: not here, so neither joined nor ended
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;  // no descriptor to spare: the program matters more
  w.read_end = Descriptor(ends[0]);
  w.write_end = Descriptor(ends[1]);
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  // The thread takes no signal of the program's.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::optional<FlightQuestions> questions;
  if (size > 1) questions.emplace(std::move(store), rank, size);
  w.thread = std::thread(print_when_told, ends[0], std::move(questions));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  wake_fd.store(ends[1]);
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  struct sigaction now {};
  ::sigaction(SIGUSR1, nullptr, &now);
  if (!is_ours(now)) w.previous = now;  // a forked process has ours already
  ::sigaction(SIGUSR1, &action, nullptr);
  w.running = true;
  w.generation = fork_generation();
}

void internals::stop_flight_signal() {
  SignalWatch& w = watch();
  const std::lock_guard lock(w.mutex);
  if (!w.running || w.generation != fork_generation()) return;
  // A handler that the program has put in since stays.
  struct sigaction now {};
  ::sigaction(SIGUSR1, nullptr, &now);
  if (is_ours(now)) ::sigaction(SIGUSR1, &w.previous, nullptr);
  wake_fd.store(-1);
  const char quit = 'q';
  [[maybe_unused]] const auto written = ::write(w.write_end.get(), &quit, 1);
  w.thread.join();
  w.read_end.reset();
  w.write_end.reset();
  w.running = false;
}

}  // namespace athanor::distributed
