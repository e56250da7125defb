#pragma once
/// What workers print: to the console with or without a prefix, to files, and the last lines of it kept for the report
/// of a failure.

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "athanor/base/deadline.h"
#include "athanor/distributed/net/socket.h"

namespace athanor::launch {

using distributed::Descriptor;

/// One of the agent's own streams. Writing never blocks: what a slow reader does not take waits here.
class Console {
 public:
  explicit Console(int fd) : fd_(fd) {}
  void write(std::string_view text);
  /// Writes what the reader takes now. True if something still waits; poll fd() for POLLOUT then.
  bool flush();
  /// At the end: waits for the reader, but not for ever.
  void flush_until(Deadline deadline);
  bool waiting() const { return !pending_.empty(); }
  /// So much waits that workers should be kept from printing more.
  bool full() const { return pending_.size() > (std::size_t{1} << 20); }
  int fd() const { return fd_; }

 private:
  int fd_;
  std::string pending_;
  bool closed_ = false;  // the reader is gone: everything is dropped
};

/// The last lines of a text that is seen piece by piece.
class Tail {
 public:
  void add(std::string_view text);
  std::string text() const;
  /// The end of a file; empty if it cannot be read.
  static std::string of_file(const std::string& path);

 private:
  static constexpr std::size_t kLines = 25, kBytes = 8192;
  std::deque<std::string> lines_;
  bool open_ = false;  // the last line has no end yet
  std::size_t bytes_ = 0;
};

/// The agent's end of a worker's stdout or stderr. Lines of several workers are passed on whole; a line that stays
/// unfinished, such as a question or a progress bar, is shown after a moment.
class Stream {
 public:
  struct Where {
    Console* console = nullptr;  ///< nullptr: nowhere
    std::string prefix;          ///< before each line on the console
    Descriptor file;             ///< -1: none
    bool keep_tail = false;
    /// Lines that contain one of `filters` go there, too, behind `filter_prefix`.
    Descriptor filtered;
    std::vector<std::string> filters;
    std::string filter_prefix;
  };
  /// Makes the pipe; `writer` gets the worker's end.
  Stream(Where where, Descriptor& writer);

  int fd() const { return pipe_.get(); }
  bool open() const { return static_cast<bool>(pipe_); }
  bool paused() const { return where_.console != nullptr && where_.console->full(); }
  /// Reads what is there, or notices the end.
  void readable();
  /// Reads what is left and closes; for when the worker has ended.
  void finish();
  /// When an unfinished line should be shown, if there is one.
  const Deadline* unfinished() const { return partial_.empty() ? nullptr : &show_at_; }
  void show_unfinished();
  std::string tail() const { return tail_.text(); }

 private:
  bool read_some();
  void take(std::string_view text);
  void show(std::string_view text);
  void filter(std::string_view text);

  Where where_;
  Descriptor pipe_;
  std::string partial_, unfiltered_;
  bool inside_line_ = false;  // an unfinished line has been shown: the rest of it follows without prefix
  Deadline show_at_ = Deadline::after(std::chrono::milliseconds(0));
  Tail tail_;
  bool file_failed_ = false;
};

}  // namespace athanor::launch
