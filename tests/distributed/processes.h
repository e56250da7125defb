#pragma once
/// Ranks that are processes: forked, watched, and killed if they do not end in time.

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "athanor/base/deadline.h"
#include "athanor/base/error.h"
#include "tests/fork_guard.h"

namespace athanor::distributed {

/// What became of one rank: its exit status as waitpid gives it, and the text of the error that ended it.
struct RankEnd {
  int status = -1;
  std::string error;
  bool good() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
};

/// Runs body(rank) in `ranks` processes of their own. `started` gets their process ids. A rank that has not ended after
/// `patience` is killed, which shows in its status; `victim` is killed as soon as the others have ended.
inline std::vector<RankEnd> run_processes(int ranks, const std::function<void(int)>& body,
                                          std::chrono::milliseconds patience = std::chrono::seconds(60),
                                          const std::function<void(const std::vector<pid_t>&)>& started = {},
                                          int victim = -1) {
  skip_if_forks_are_unseen();
  const Deadline deadline = Deadline::after(patience);
  std::vector<pid_t> pids;
  std::vector<int> pipes;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0) throw Error("pipe failed");
    const pid_t pid = ::fork();
    if (pid == 0) {
      int code = 0;
      try {
        body(rank);
      } catch (const std::exception& error) {
        const std::string text = error.what();
        static_cast<void>(!::write(ends[1], text.data(), std::min<std::size_t>(text.size(), 60000)));
        code = 1;
      }
      ::_exit(code);
    }
    ::close(ends[1]);
    pids.push_back(pid);
    pipes.push_back(ends[0]);
  }
  if (started) started(pids);
  std::vector<RankEnd> result(pids.size());
  std::vector<std::size_t> order;
  for (int rank = 0; rank < ranks; ++rank)
    if (rank != victim) order.push_back(static_cast<std::size_t>(rank));
  if (victim >= 0) order.push_back(static_cast<std::size_t>(victim));
  for (const std::size_t rank : order) {
    if (static_cast<int>(rank) == victim) ::kill(pids[rank], SIGKILL);
    while (true) {
      pollfd p{pipes[rank], POLLIN, 0};
      if (::poll(&p, 1, deadline.poll_milliseconds()) <= 0) break;
      char buffer[4096];
      const ssize_t got = ::read(pipes[rank], buffer, sizeof buffer);
      if (got <= 0) break;
      result[rank].error.append(buffer, static_cast<std::size_t>(got));
    }
    ::close(pipes[rank]);
    if (deadline.expired()) ::kill(pids[rank], SIGKILL);
    ::waitpid(pids[rank], &result[rank].status, 0);
  }
  return result;
}

}  // namespace athanor::distributed
