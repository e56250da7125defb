#include "athanor/io/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "athanor/base/error.h"
#include "athanor/base/hash.h"
#include "athanor/io/file.h"
#include "athanor/io/file_lock.h"
#include "athanor/io/shared_library.h"

#if __has_include(<curl/curl.h>)
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#define ATHANOR_HAS_CURL 1
#endif

namespace athanor::io {

namespace {

using athanor::detail::str;

constexpr const char* kDone = "done";

// What one attempt at one address came to.
struct Attempt {
  bool complete = false;
  bool cannot_resume = false;
  bool try_again = false;  // the connection broke after some bytes
  std::string error;
};

// The file that grows.
class Part {
 public:
  explicit Part(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
    if (fd_.get() < 0) detail::throw_errno("write", path, errno);
    struct stat status {};
    if (::fstat(fd_.get(), &status) != 0) detail::throw_errno("examine", path, errno);
    size_ = static_cast<std::uint64_t>(status.st_size);
  }
  std::uint64_t size() const { return size_; }
  void restart() {
    if (::ftruncate(fd_.get(), 0) != 0) detail::throw_errno("shorten", path_, errno);
    size_ = 0;
  }
  void append(const char* data, std::size_t size) {
    for (std::size_t done = 0; done < size;) {
      const ssize_t n = ::write(fd_.get(), data + done, size - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) detail::throw_errno("write", path_, errno);
      done += static_cast<std::size_t>(n);
    }
    size_ += size;
  }
  void flush() {
    if (::fsync(fd_.get()) != 0) detail::throw_errno("flush", path_, errno);
  }

 private:
  const std::string& path_;
  detail::Descriptor fd_;
  std::uint64_t size_ = 0;
};

#ifdef ATHANOR_HAS_CURL

// libcurl's functions, by the names they have there.
struct Curl {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_strerror) easy_strerror;

  static const Curl& get() {
    static const Curl curl = load();
    return curl;
  }

 private:
  static Curl load() {
    const detail::SharedLibrary library(
        {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4", "libcurl.so"},
        "download: libcurl is not installed; install it (Debian: libcurl4) or fetch the file yourself");
    Curl curl{};
    library.find(curl.global_init, "curl_global_init");
    library.find(curl.easy_init, "curl_easy_init");
    library.find(curl.easy_cleanup, "curl_easy_cleanup");
    library.find(curl.easy_setopt, "curl_easy_setopt");
    library.find(curl.easy_perform, "curl_easy_perform");
    library.find(curl.easy_getinfo, "curl_easy_getinfo");
    library.find(curl.easy_strerror, "curl_easy_strerror");
    curl.global_init(CURL_GLOBAL_DEFAULT);
    return curl;
  }
};

// One transfer into a Part.
class Transfer {
 public:
  Transfer(const Download& what, const std::string& url, Part& part)
      : what_(what), part_(part), handle_(curl_.easy_init(), curl_.easy_cleanup) {
    ATHANOR_CHECK_TYPE(OutOfMemoryError, handle_, "download: libcurl could not start");
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, 10L);
    set(CURLOPT_FAILONERROR, 1L);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_USERAGENT, "athanor");
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(what.connect_timeout * 1e3));
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(what.stall_timeout)));
    set(CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(part.size()));
    set(CURLOPT_ERRORBUFFER, message_);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_data);
  }

  Attempt run() {
    const std::uint64_t before = part_.size();
    const CURLcode code = curl_.easy_perform(handle_.get());
    if (failure_) std::rethrow_exception(failure_);
    Attempt attempt;
    if (too_long_) {
      attempt.error = str("more than the limit of ", what_.max_bytes, " bytes");
      part_.restart();
      return attempt;
    }
    attempt.complete = code == CURLE_OK;
    if (attempt.complete) return attempt;
    long status = 0;
    curl_.easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &status);
    attempt.cannot_resume = code == CURLE_RANGE_ERROR || code == CURLE_BAD_DOWNLOAD_RESUME || status == 416;
    attempt.try_again = part_.size() > before;
    attempt.error = message_[0] ? message_ : curl_.easy_strerror(code);
    return attempt;
  }

 private:
  template <class T>
  void set(CURLoption option, T value) {
    const CURLcode code = curl_.easy_setopt(handle_.get(), option, value);
    ATHANOR_CHECK_TYPE(IoError, code == CURLE_OK, "download: libcurl refused option ", static_cast<int>(option), ": ",
                       curl_.easy_strerror(code));
  }

  static std::size_t on_data(char* data, std::size_t item, std::size_t count, void* self) {
    return static_cast<Transfer*>(self)->take(data, item * count);
  }

  // An exception must not travel through libcurl: it is kept and the transfer stopped.
  std::size_t take(const char* data, std::size_t size) noexcept {
    try {
      const std::uint64_t after = part_.size() + size;
      if (after > what_.max_bytes) {
        too_long_ = true;
        return 0;
      }
      if (!total_) {
        curl_off_t rest = 0;
        curl_.easy_getinfo(handle_.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &rest);
        total_ = rest > 0 ? part_.size() + static_cast<std::uint64_t>(rest) : 0;
      }
      part_.append(data, size);
      if (what_.on_progress) what_.on_progress(part_.size(), *total_);
      return size;
    } catch (...) {
      failure_ = std::current_exception();
      return 0;
    }
  }

  const Curl& curl_ = Curl::get();
  const Download& what_;
  Part& part_;
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> handle_;
  char message_[CURL_ERROR_SIZE] = {};
  std::optional<std::uint64_t> total_;
  std::exception_ptr failure_;
  bool too_long_ = false;
};

Attempt transfer(const Download& what, const std::string& url, Part& part) { return Transfer(what, url, part).run(); }

#else

Attempt transfer(const Download&, const std::string&, Part&) {
  ATHANOR_THROW(NotImplementedError, "download: this build has no libcurl support; fetch the file yourself");
}

#endif

// Empty if the file has the checksums asked for, else what it has instead.
std::string checksum_error(const Download& what, const std::string& path) {
  const MappedFile file(path);
  file.will_read_all();
  if (!what.sha256.empty()) {
    const std::string found = sha256(file.bytes());
    if (found != what.sha256) return str("SHA-256 is ", found, ", expected ", what.sha256);
  }
  if (!what.md5.empty()) {
    const std::string found = md5(file.bytes());
    if (found != what.md5) return str("MD5 is ", found, ", expected ", what.md5);
  }
  return "";
}

bool is_there(const Download& what) {
  struct stat status {};
  if (::stat(what.path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  return checksum_error(what, what.path).empty();
}

// Tries one address until it gives the right bytes or gives up; returns the reason, empty on success.
std::string fetch_from(const Download& what, const std::string& url, const std::string& part_path) {
  constexpr int kAttempts = 5;
  std::string error;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Part part(part_path);
    const bool resumed = part.size() > 0;
    // What is there may be all of it: the process that got it was stopped before it could say so.
    if (resumed && checksum_error(what, part_path).empty()) return "";
    const Attempt result = transfer(what, url, part);
    if (result.complete) {
      part.flush();
      error = checksum_error(what, part_path);
      if (error.empty()) return "";
      part.restart();
      if (!resumed) return error;
      continue;  // the old beginning may have been of another file
    }
    error = result.error;
    if (resumed && result.cannot_resume)
      part.restart();
    else if (!result.try_again)
      return error;
  }
  return error;
}

void fetch(const Download& what) {
  const std::string part_path = what.path + ".part";
  std::string errors;
  for (const std::string& url : what.urls) {
    if (what.log) what.log(str("downloading ", url));
    const std::string error = fetch_from(what, url, part_path);
    if (error.empty()) {
      rename_durably(part_path, what.path);
      return;
    }
    errors += str("\n  ", url, ": ", error);
  }
  if (struct stat status{}; ::stat(part_path.c_str(), &status) == 0 && status.st_size == 0) ::unlink(part_path.c_str());
  ATHANOR_THROW(IoError, "cannot download '", what.path, "':", errors);
}

}  // namespace

DownloadResult download(const Download& what) {
  ATHANOR_CHECK_VALUE(!what.urls.empty() && !what.path.empty(), "download: needs an address and a path");
  ATHANOR_CHECK_VALUE(!what.sha256.empty() || !what.md5.empty(), "download: needs a checksum of '", what.path, "'");
  for (const std::string& url : what.urls) {
    const bool known = url.starts_with("http://") || url.starts_with("https://") || url.starts_with("file://");
    ATHANOR_CHECK_VALUE(known, "download: expected an http, https or file address, got '", url, "'");
  }
  if (is_there(what)) return DownloadResult::Present;
  make_folders(folder_of(what.path));
  const auto on_wait = [&](long holder) {
    if (what.log) what.log(str("waiting for process ", holder, ", which downloads '", what.path, "'"));
  };
  for (;;) {
    FileLock lock(what.path + ".lock", what.lock_timeout, on_wait);
    if (lock.finished_by_other()) {
      const std::string note = lock.note();
      ATHANOR_CHECK_TYPE(IoError, note == kDone, note);
      if (is_there(what)) return DownloadResult::Shared;
      continue;
    }
    try {
      // It may have come between the first look and the lock.
      const bool there = is_there(what);
      if (!there) fetch(what);
      lock.finish(kDone);
      return there ? DownloadResult::Shared : DownloadResult::Fetched;
    } catch (const std::exception& e) {
      lock.finish(e.what());
      throw;
    }
  }
}

}  // namespace athanor::io
