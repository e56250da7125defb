#pragma once
/// A lock between processes (and threads) that want to do one thing once.

#include <functional>
#include <string>

#include "athanor/io/file.h"

namespace athanor::io {

/// Holds an exclusive lock on a file made for it, from construction to destruction; a killed process releases it. The
/// holder ends with finish(), which leaves a note for those who were waiting and removes the file, so that nothing is
/// left lying about. Works over NFS. Not thread-safe itself: each thread makes its own.
class FileLock {
 public:
  /// Waits until the lock is free. Throws IoError after `timeout_seconds`, naming the holder's process number.
  /// `on_wait` is called once, with that number, if there is something to wait for.
  explicit FileLock(std::string path, double timeout_seconds, const std::function<void(long)>& on_wait = {});

  /// True if an earlier holder called finish() while this object waited: the lock guards nothing any more, note() says
  /// how it went, and whoever wants to go on makes a new FileLock.
  bool finished_by_other() const { return finished_by_other_; }
  /// What the earlier holder gave to finish().
  std::string note() const;
  /// Leaves `note` for those who wait and removes the file.
  void finish(const std::string& note);

 private:
  bool try_lock();
  void write_text(const std::string& text);

  std::string path_;
  detail::Descriptor fd_;
  bool finished_by_other_ = false;
};

}  // namespace athanor::io
