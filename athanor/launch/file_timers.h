#pragma once
/// FileTimers: countdowns that workers set in PyTorch's way (torch.distributed.elastic.timer.FileTimerClient), by lines
/// of JSON in a named pipe, and that end them when they are not released in time.

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "athanor/base/deadline.h"
#include "athanor/distributed/net/socket.h"

namespace athanor::launch {

class FileTimers {
 public:
  /// A timer that has run out.
  struct Expired {
    pid_t pid = 0;
    int signal = 0;  ///< what the worker asked for; 0 or less: nothing
    std::string scope;
  };

  /// Makes the pipe; empty: at a path of its own in the temporary folder. A pipe that is there is replaced. Throws
  /// IoError naming the path.
  explicit FileTimers(const std::string& path);
  ~FileTimers();
  FileTimers(const FileTimers&) = delete;
  FileTimers& operator=(const FileTimers&) = delete;

  const std::string& path() const { return path_; }
  /// Readable when a worker has said something; read() takes it.
  int fd() const { return pipe_.get(); }
  void read();
  /// When expired() should be asked next.
  Deadline next() const;
  /// Those that have run out, of each process the earliest with a signal, or else the earliest; they are forgotten, and
  /// with one that has a signal all of its process.
  std::vector<Expired> expired();
  /// A process has ended.
  void forget(pid_t pid);
  void clear();

 private:
  struct Timer {
    double at = 0;  // seconds since 1970
    int signal = 0;
  };
  void take(const std::string& line);

  std::string path_, unread_;
  distributed::Descriptor pipe_;
  std::map<std::pair<pid_t, std::string>, Timer> timers_;
};

}  // namespace athanor::launch
