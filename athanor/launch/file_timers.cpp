#include "athanor/launch/file_timers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "athanor/base/error.h"
#include "athanor/base/log.h"

namespace athanor::launch {

using athanor::detail::str;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string fresh_path() {
  std::random_device random;
  std::error_code error;
  const auto folder = std::filesystem::temp_directory_path(error);
  ATHANOR_CHECK_TYPE(IoError, !error, "no folder for the pipe of timers: ", error.message(),
                     "; set TMPDIR or TORCHELASTIC_TIMER_FILE");
  return (folder / str("watchdog_timer_", ::getpid(), "-", random())).string();
}

}  // namespace

FileTimers::FileTimers(const std::string& path) : path_(path.empty() ? fresh_path() : path) {
  struct stat info {};
  const bool there = ::lstat(path_.c_str(), &info) == 0;
  ATHANOR_CHECK_TYPE(IoError, !there || S_ISFIFO(info.st_mode), "TORCHELASTIC_TIMER_FILE: ", path_,
                     " is there and is no named pipe");
  if (there) ::unlink(path_.c_str());
  ATHANOR_CHECK_TYPE(IoError, ::mkfifo(path_.c_str(), 0600) == 0, "cannot make the pipe of timers ", path_, ": ",
                     distributed::error_text(errno));
  // Open for writing as well: it never ends when the last worker closes it.
  pipe_.reset(::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  ATHANOR_CHECK_TYPE(IoError, pipe_, "cannot open the pipe of timers ", path_, ": ", distributed::error_text(errno));
}

FileTimers::~FileTimers() { ::unlink(path_.c_str()); }

void FileTimers::read() {
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(pipe_.get(), buffer, sizeof buffer)) > 0;)
    unread_.append(buffer, static_cast<std::size_t>(got));
  for (std::size_t end = 0; (end = unread_.find('\n')) != std::string::npos; unread_.erase(0, end + 1))
    take(unread_.substr(0, end));
  // Clients write lines of PIPE_BUF bytes at most.
  if (unread_.size() > PIPE_BUF) unread_.clear();
}

void FileTimers::take(const std::string& line) {
  try {
    const auto request = nlohmann::json::parse(line);
    const auto whole = [&](const char* name, int least) {
      const double value = request.at(name);
      ATHANOR_CHECK_VALUE(value >= least && value <= INT_MAX && value == std::trunc(value), name, " is ", value);
      return static_cast<int>(value);
    };
    const pid_t pid = whole("pid", 1);
    const std::string scope = request.at("scope_id");
    const Timer timer{request.at("expiration_time"), whole("signal", INT_MIN)};
    if (timer.at < 0)
      timers_.erase({pid, scope});
    else
      timers_[{pid, scope}] = timer;
  } catch (const std::exception& error) {
    ATHANOR_LOG(Warning, "not understood, in ", path_, ": '", line, "': ", error.what());
  }
}

Deadline FileTimers::next() const {
  double left = 3600;
  for (const auto& [name, timer] : timers_) left = std::min(left, timer.at - now());
  return Deadline::after(
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(std::max(left, 0.))));
}

std::vector<FileTimers::Expired> FileTimers::expired() {
  std::map<pid_t, std::pair<double, Expired>> found;
  for (const auto& [name, timer] : timers_) {
    if (timer.at > now()) continue;
    auto [entry, is_new] = found.try_emplace(name.first, timer.at, Expired{name.first, timer.signal, name.second});
    auto& [at, one] = entry->second;
    const bool better = (timer.signal > 0) == (one.signal > 0) ? timer.at < at : timer.signal > 0;
    if (!is_new && better) entry->second = {timer.at, Expired{name.first, timer.signal, name.second}};
  }
  std::vector<Expired> all;
  for (const auto& [pid, entry] : found) {
    all.push_back(entry.second);
    if (entry.second.signal > 0)
      forget(pid);
    else
      timers_.erase({pid, entry.second.scope});
  }
  return all;
}

void FileTimers::forget(pid_t pid) {
  std::erase_if(timers_, [pid](const auto& entry) { return entry.first.first == pid; });
}

void FileTimers::clear() { timers_.clear(); }

}  // namespace athanor::launch
