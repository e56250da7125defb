#include "athanor/launch/output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "athanor/base/error.h"
#include "athanor/base/log.h"

namespace athanor::launch {

using distributed::wait_for;

void Console::write(std::string_view text) {
  if (closed_) return;
  pending_ += text;
  flush();
}

bool Console::flush() {
  std::size_t done = 0;
  // A pipe that polls as writable has room for PIPE_BUF bytes at once.
  while (done < pending_.size() && wait_for(fd_, POLLOUT, Deadline::after(std::chrono::milliseconds(0)))) {
    const ssize_t count = ::write(fd_, pending_.data() + done, std::min<std::size_t>(pending_.size() - done, PIPE_BUF));
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) {
      closed_ = true;
      done = pending_.size();
      break;
    }
    done += static_cast<std::size_t>(count);
  }
  pending_.erase(0, done);
  return waiting();
}

void Console::flush_until(Deadline deadline) {
  while (flush() && wait_for(fd_, POLLOUT, deadline)) {
  }
}

void Tail::add(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view piece = text.substr(0, end);
    if (!open_) lines_.emplace_back();
    // Of an endless line the end counts.
    std::string& line = lines_.back();
    bytes_ -= line.size();
    line += piece;
    if (line.size() > kBytes) line.erase(0, line.size() - kBytes);
    bytes_ += line.size();
    open_ = end == std::string_view::npos;
    text.remove_prefix(open_ ? text.size() : end + 1);
    while (lines_.size() > kLines || (lines_.size() > 1 && bytes_ > kBytes)) {
      bytes_ -= lines_.front().size();
      lines_.pop_front();
    }
  }
}

std::string Tail::text() const {
  std::string all;
  for (const std::string& line : lines_) all += line + "\n";
  return all;
}

std::string Tail::of_file(const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return {};
  const off_t size = ::lseek(fd.get(), 0, SEEK_END);
  std::string bytes(std::min<std::size_t>(static_cast<std::size_t>(std::max<off_t>(size, 0)), kBytes), '\0');
  const ssize_t got = ::pread(fd.get(), bytes.data(), bytes.size(), size - static_cast<off_t>(bytes.size()));
  Tail tail;
  tail.add(std::string_view(bytes).substr(0, static_cast<std::size_t>(std::max<ssize_t>(got, 0))));
  return tail.text();
}

Stream::Stream(Where where, Descriptor& writer) : where_(std::move(where)) {
  int ends[2];
  ATHANOR_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "pipe: ", distributed::error_text(errno));
  pipe_.reset(ends[0]);
  writer.reset(ends[1]);
  // Only this end: programs do not expect a stdout that refuses.
  ::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
}

bool Stream::read_some() {
  char buffer[16384];
  const ssize_t got = ::read(pipe_.get(), buffer, sizeof buffer);
  if (got > 0) take(std::string_view(buffer, static_cast<std::size_t>(got)));
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) pipe_.reset();
  return got > 0;
}

void Stream::readable() {
  read_some();
  if (!open()) show_unfinished();
}

void Stream::finish() {
  // A descendant that left the group may still print: one pipe's worth is the worker's own.
  for (int reads = 0; open() && reads < 64 && read_some(); ++reads) {
  }
  show_unfinished();
  if (where_.filtered && !unfiltered_.empty()) filter("\n");
  pipe_.reset();
}

void Stream::take(std::string_view text) {
  if (where_.keep_tail) tail_.add(text);
  for (std::string_view left = text; where_.file && !left.empty();) {
    const ssize_t written = ::write(where_.file.get(), left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      if (!file_failed_) ATHANOR_LOG(Warning, "cannot write a log file: ", distributed::error_text(errno));
      file_failed_ = true;
      break;
    }
    left.remove_prefix(static_cast<std::size_t>(written));
  }
  if (where_.filtered) filter(text);
  if (where_.console == nullptr) return;
  const std::size_t end = text.rfind('\n');
  if (end != std::string_view::npos) {
    show(partial_ + std::string(text.substr(0, end + 1)));
    partial_.clear();
    text.remove_prefix(end + 1);
  }
  if (text.empty()) return;
  if (partial_.empty()) show_at_ = Deadline::after(std::chrono::milliseconds(50));
  partial_ += text;
  if (partial_.size() > 65536) show_unfinished();
}

void Stream::filter(std::string_view text) {
  unfiltered_ += text;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = unfiltered_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = unfiltered_.substr(begin, end + 1 - begin);
    const auto is_in_line = [&](const std::string& wanted) { return line.find(wanted) != std::string::npos; };
    if (!std::any_of(where_.filters.begin(), where_.filters.end(), is_in_line)) continue;
    const std::string whole = where_.filter_prefix + line;
    // In one piece: the workers share the file.
    if (::write(where_.filtered.get(), whole.data(), whole.size()) < 0 && !file_failed_) {
      ATHANOR_LOG(Warning, "cannot write a log file: ", distributed::error_text(errno));
      file_failed_ = true;
    }
  }
  unfiltered_.erase(0, begin);
  if (unfiltered_.size() > (std::size_t{1} << 20)) unfiltered_.clear();  // no line any more
}

void Stream::show_unfinished() {
  if (!partial_.empty()) show(partial_);
  partial_.clear();
}

void Stream::show(std::string_view text) {
  std::string out;
  if (where_.prefix.empty()) {
    out = text;
  } else {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size() - 1);
      if (!inside_line_) out += where_.prefix;
      out += text.substr(0, end + 1);
      inside_line_ = text[end] != '\n';
      text.remove_prefix(end + 1);
    }
  }
  where_.console->write(out);
}

}  // namespace athanor::launch
