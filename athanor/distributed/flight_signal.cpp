// SIGUSR1 prints the flight recorder. The handler writes one byte; a thread that waits for it does the rest.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <csignal>
#include <mutex>
#include <optional>
#include <thread>

#include "athanor/base/env.h"
#include "athanor/base/log.h"
#include "athanor/distributed/flight_recorder.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/distributed/process_group_impl.h"

namespace athanor::distributed {

using athanor::detail::str;

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

// Readable when one of the two is.
Descriptor either(int a, int b) {
  Descriptor set(::epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {a, b}) {
    struct epoll_event event {};
    event.events = EPOLLIN;
    if (fd >= 0) ::epoll_ctl(set.get(), EPOLL_CTL_ADD, fd, &event);
  }
  return set;
}

void hear_others(const std::weak_ptr<ProcessGroup>& weak) {
  const auto group = weak.lock();
  if (StateTalk* talk = group ? group->talk() : nullptr) talk->hear();
}

// Without the store, or where it does not know.
std::string told_by_the_ranks(const std::weak_ptr<ProcessGroup>& weak, std::chrono::milliseconds patience) {
  const auto group = weak.lock();
  StateTalk* talk = group ? group->talk() : nullptr;
  if (!talk) return {};
  return str("the store does not answer; by the ranks' own connections, ",
             internals::merged_flight_report(*talk, group->rank(), group->size(), group->lost_ranks(), patience), "\n");
}

void print_when_told(int fd, std::optional<internals::FlightQuestions> questions,
                     const std::weak_ptr<ProcessGroup>& group) {
  constexpr std::chrono::milliseconds kPatience{1000};
  int talk_fd = -1;
  if (const auto there = group.lock(); there && there->talk()) talk_fd = there->talk()->talk_fd();
  const bool alone = !questions;
  const Descriptor set = either(fd, talk_fd);
  const int any = set ? set.get() : fd;  // without one to spare, the end of the thread matters more than the talk
  for (;;) {
    while_there(questions, [any](auto& q) { q.answer_until(any); });
    struct pollfd entries[] = {{any, POLLIN, 0}, {fd, POLLIN, 0}};
    // Whoever waits in a call of the group may have heard what woke this thread: then there are questions to wait for
    // again.
    if (::poll(entries, 2, questions ? 0 : -1) < 0) continue;
    hear_others(group);
    if (entries[1].revents == 0) continue;
    char what = 0;
    if (::read(fd, &what, 1) != 1 || what == 'q') return;
    print(flight_records_text());
    while_there(questions, [&](auto& q) { print(q.ask(kPatience) + "\n"); });
    if (!questions && !alone) print(told_by_the_ranks(group, kPatience));
  }
}

}  // namespace

void internals::start_flight_signal(std::shared_ptr<Store> store, int rank, int size,
                                    std::weak_ptr<ProcessGroup> group) {
  SignalWatch& w = watch();
  const std::lock_guard lock(w.mutex);
  const bool inherited = w.running && w.generation != fork_generation();
  if ((w.running && !inherited) || !env::flag("ATHANOR_FLIGHT_RECORDER_SIGNAL", true)) return;
  if (inherited) new std::thread(std::move(w.thread));  // the parent's: not here, so neither joined nor ended
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;  // no descriptor to spare: the program matters more
  w.read_end = Descriptor(ends[0]);
  w.write_end = Descriptor(ends[1]);
  ::fcntl(w.write_end.get(), F_SETFL, O_NONBLOCK);
  // The thread takes no signal of the program's.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::optional<FlightQuestions> questions;
  if (size > 1) questions.emplace(std::move(store), rank, size);
  w.thread = std::thread(print_when_told, w.read_end.get(), std::move(questions), std::move(group));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  wake_fd.store(w.write_end.get());
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
