#include "athanor/distributed/store/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "athanor/base/interrupt.h"
#include "athanor/base/log.h"
#include "athanor/distributed/error.h"

namespace athanor::distributed {
namespace {

// A log entry: this, the key, the value. Entries end with the complement of their length, so that a tail cut off by a
// killed writer is recognized and written over.
struct Entry {
  std::uint32_t magic;
  std::uint32_t kind;  // 's'et or 'd'elete
  std::uint64_t key_size;
  std::uint64_t value_size;
};
constexpr std::uint32_t kFileMagic = 0x31475641;  // "AVG1", little endian
constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 30;

// Bytes far behind any content that carry the locks: who changes the file, and who has it open.
constexpr off_t kChangeLock = off_t{1} << 60;
constexpr off_t kAliveLock = kChangeLock + 1;

constexpr const char* kRemoved = "this process was forked, and the file has been removed since, by its last user";

flock range(short type, off_t start) {
  flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = start;
  lock.l_len = 1;
  return lock;
}

bool try_lock(int fd, short type, off_t start) {
  flock lock = range(type, start);
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

void unlock(int fd, off_t start) {
  flock lock = range(F_UNLCK, start);
  ::fcntl(fd, F_OFD_SETLK, &lock);
}

bool someone_else_holds(int fd, off_t start) {
  flock lock = range(F_WRLCK, start);
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool removed_or_replaced(int fd, const std::string& path) {
  struct stat mine {
  }, named{};
  return ::fstat(fd, &mine) != 0 || ::stat(path.c_str(), &named) != 0 || mine.st_ino != named.st_ino ||
         mine.st_dev != named.st_dev;
}

// Polling that starts quick, for peers that come at the same time, and grows gentle on network file systems.
class Poll {
 public:
  /// False when the deadline has passed.
  bool pause(Deadline deadline) {
    if (deadline.expired()) return false;
    if (++pauses_ % 16 == 0) check_interrupt();
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(wait_, deadline.remaining()));
    wait_ = std::min(wait_ * 2, std::chrono::milliseconds(10));
    return true;
  }

 private:
  std::chrono::milliseconds wait_{1};
  int pauses_ = 0;
};

}  // namespace

// Holds the file for one change; reads what others changed first.
class FileStore::Lock {
 public:
  Lock(FileStore& store, Deadline until) : store_(store) {
    const Deadline deadline = until.sooner(StoreDeadline::of_this_thread());
    const bool inherited = store.generation_ != fork_generation();
    if (inherited) store.leave_parents_file();
    Poll poll;
    while (!try_lock(store.fd_.get(), F_WRLCK, kChangeLock)) {
      if (errno != EAGAIN && errno != EACCES && errno != EINTR) store.broken(error_text(errno));
      if (!poll.pause(deadline)) store.broken("another process holds its lock and does not let go");
    }
    try {
      if (inherited) {
        if (!try_lock(store.fd_.get(), F_RDLCK, kAliveLock)) store.broken(error_text(errno));
        if (removed_or_replaced(store.fd_.get(), store.path_)) store.broken(kRemoved);
      }
      store.read_new_entries();
      store.generation_ = fork_generation();
    } catch (...) {
      unlock(store.fd_.get(), kChangeLock);
      throw;
    }
  }
  ~Lock() { unlock(store_.fd_.get(), kChangeLock); }

 private:
  FileStore& store_;
};

FileStore::FileStore(std::string path, std::chrono::milliseconds timeout) : Store(timeout), path_(std::move(path)) {
  const Deadline deadline = Deadline::after(timeout);
  Poll poll;
  // The file may be removed by the last user of an earlier job between our opening and locking it.
  while (!open_and_join(deadline))
    if (!poll.pause(deadline)) broken("it is created and removed again and again");
}

bool FileStore::open_and_join(Deadline deadline) {
  fd_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd_) broken(detail::str("cannot open: ", error_text(errno)));
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0 || !S_ISREG(info.st_mode)) broken("not a regular file");
  const Lock lock(*this, deadline);
  if (removed_or_replaced(fd_.get(), path_)) {
    contents().values.clear();
    contents().read = 0;
    return false;
  }
  ::fstat(fd_.get(), &info);
  if (info.st_size > 0 && !someone_else_holds(fd_.get(), kAliveLock)) {
    char when[64] = "";
    std::tm local{};
    localtime_r(&info.st_mtime, &local);
    std::strftime(when, sizeof when, "%F %T", &local);
    broken(detail::str("left over from an earlier job (last written ", when, ", ", contents().values.size(),
                       " keys, no process has it open). Remove it or use another path"));
  }
  if (!try_lock(fd_.get(), F_RDLCK, kAliveLock)) broken(error_text(errno));
  // From the first joiner on the file has content, so that what a killed job leaves is recognized.
  if (info.st_size == 0) write_entry('d', "", {});
  return true;
}

// A lock belongs to the open file: as long as parent and child share that, it keeps neither from the other.
void FileStore::leave_parents_file() {
  Descriptor own(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  struct stat parents {
  }, found{};
  if (!own && errno != ENOENT) broken(detail::str("cannot open: ", error_text(errno)));
  if (!own || ::fstat(fd_.get(), &parents) != 0 || ::fstat(own.get(), &found) != 0 || parents.st_ino != found.st_ino ||
      parents.st_dev != found.st_dev)
    broken(kRemoved);
  fd_ = std::move(own);
}

FileStore::Contents& FileStore::Holder::get() {
  Contents* now = now_.load(std::memory_order_acquire);
  while (now->generation != fork_generation()) {
    auto own = std::make_unique<Contents>();
    if (now_.compare_exchange_strong(now, own.get(), std::memory_order_acq_rel)) now = own.release();
  }
  return *now;
}

FileStore::Holder::~Holder() {
  const Contents* now = now_.load(std::memory_order_acquire);
  if (now->generation == fork_generation()) delete now;
}

FileStore::~FileStore() {
  if (!fd_ || generation_ != fork_generation()) return;
  try {
    const Lock lock(*this, Deadline::after(std::chrono::seconds(5)));
    unlock(fd_.get(), kAliveLock);
    if (!someone_else_holds(fd_.get(), kAliveLock) && !removed_or_replaced(fd_.get(), path_)) ::unlink(path_.c_str());
  } catch (const Error& error) {
    ATHANOR_LOG(Warning, "closing: ", error.what());
  }
}

void FileStore::broken(const std::string& what) const {
  throw DistStoreError(detail::str(describe(), ": ", what), ATHANOR_WHERE);
}

void FileStore::read_new_entries() {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) broken(error_text(errno));
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size < contents().read) broken("it became shorter: something else writes to it");
  std::vector<char> bytes(size - contents().read);
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t got =
        ::pread(fd_.get(), bytes.data() + at, bytes.size() - at, static_cast<off_t>(contents().read + at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) broken(detail::str("cannot read: ", got == 0 ? "it became shorter" : error_text(errno)));
    at += static_cast<std::size_t>(got);
  }
  std::size_t at = 0;
  while (bytes.size() - at >= sizeof(Entry) + 8) {
    Entry entry;
    std::memcpy(&entry, bytes.data() + at, sizeof entry);
    if (entry.magic != kFileMagic || (entry.kind != 's' && entry.kind != 'd') || entry.key_size > kMaxSize ||
        entry.value_size > kMaxSize)
      broken("it holds something else than a FileStore");
    const std::uint64_t whole = sizeof entry + entry.key_size + entry.value_size + 8;
    if (bytes.size() - at < whole) break;  // the tail of a writer that was killed
    const char* key = bytes.data() + at + sizeof entry;
    const char* value = key + entry.key_size;
    std::uint64_t check = 0;
    std::memcpy(&check, value + entry.value_size, 8);
    if (check != ~whole) {
      // A writer that was killed while the system still kept what it wrote, if nobody wrote anything since.
      if (bytes.size() - at == whole) break;
      broken("it is damaged: something else writes to it");
    }
    const std::string name(key, entry.key_size);
    if (entry.kind == 's')
      contents().values[name] = Value(value, value + entry.value_size);
    else
      contents().values.erase(name);
    at += whole;
  }
  contents().read += at;
}

void FileStore::write_entry(char kind, const std::string& key, const Value& value) {
  if (key.size() > kMaxSize || value.size() > kMaxSize) broken(detail::str("key or value above ", kMaxSize, " bytes"));
  const Entry entry{kFileMagic, static_cast<std::uint32_t>(kind), key.size(), value.size()};
  std::vector<char> bytes(sizeof entry);
  std::memcpy(bytes.data(), &entry, sizeof entry);
  bytes.insert(bytes.end(), key.begin(), key.end());
  bytes.insert(bytes.end(), value.begin(), value.end());
  const std::uint64_t check = ~static_cast<std::uint64_t>(bytes.size() + 8);
  bytes.insert(bytes.end(), reinterpret_cast<const char*>(&check), reinterpret_cast<const char*>(&check) + 8);
  // What a killed writer left behind the last whole entry goes first.
  if (::ftruncate(fd_.get(), static_cast<off_t>(contents().read)) != 0) broken(error_text(errno));
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t put =
        ::pwrite(fd_.get(), bytes.data() + at, bytes.size() - at, static_cast<off_t>(contents().read + at));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) broken(detail::str("cannot write: ", error_text(errno)));
    at += static_cast<std::size_t>(put);
  }
  contents().read += bytes.size();
  if (kind == 's')
    contents().values[key] = value;
  else
    contents().values.erase(key);
}

void FileStore::set(const std::string& key, const Value& value) {
  const std::lock_guard guard(contents().mutex);
  const Lock lock(*this, Deadline::after(timeout()));
  write_entry('s', key, value);
}

std::int64_t FileStore::add(const std::string& key, std::int64_t amount) {
  const std::lock_guard guard(contents().mutex);
  const Lock lock(*this, Deadline::after(timeout()));
  const auto found = contents().values.find(key);
  const std::int64_t sum = amount + (found == contents().values.end() ? 0 : number_of(key, found->second));
  const std::string text = std::to_string(sum);
  write_entry('s', key, Value(text.begin(), text.end()));
  return sum;
}

Store::Value FileStore::compare_set(const std::string& key, const Value& expected, const Value& desired) {
  const std::lock_guard guard(contents().mutex);
  const Lock lock(*this, Deadline::after(timeout()));
  const auto found = contents().values.find(key);
  if (found == contents().values.end() ? !expected.empty() : found->second != expected)
    return found == contents().values.end() ? expected : found->second;
  write_entry('s', key, desired);
  return desired;
}

bool FileStore::delete_key(const std::string& key) {
  const std::lock_guard guard(contents().mutex);
  const Lock lock(*this, Deadline::after(timeout()));
  if (!contents().values.contains(key)) return false;
  write_entry('d', key, {});
  return true;
}

void FileStore::append(const std::string& key, const Value& value) {
  const std::lock_guard guard(contents().mutex);
  const Lock lock(*this, Deadline::after(timeout()));
  Value all = contents().values.contains(key) ? contents().values.at(key) : Value();
  all.insert(all.end(), value.begin(), value.end());
  write_entry('s', key, all);
}

std::vector<std::string> FileStore::missing(const std::vector<std::string>& keys) {
  std::vector<std::string> result;
  for (const std::string& key : keys)
    if (!contents().values.contains(key)) result.push_back(key);
  return result;
}

bool FileStore::check(const std::vector<std::string>& keys) {
  const std::lock_guard guard(contents().mutex);
  const Lock lock(*this, Deadline::after(timeout()));
  return missing(keys).empty();
}

std::int64_t FileStore::num_keys() {
  const std::lock_guard guard(contents().mutex);
  const Lock lock(*this, Deadline::after(timeout()));
  return static_cast<std::int64_t>(contents().values.size());
}

void FileStore::wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::after(timeout);
  Poll poll;
  while (true) {
    std::vector<std::string> gone;
    {
      const std::lock_guard guard(contents().mutex);
      const Lock lock(*this, deadline.sooner(Deadline::after(this->timeout())));
      gone = missing(keys);
    }
    if (gone.empty()) return;
    if (!poll.pause(deadline)) throw_timeout(gone, timeout);
  }
}

Store::Value FileStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::after(timeout);
  while (true) {
    wait({key}, deadline.remaining());
    const std::lock_guard guard(contents().mutex);
    if (contents().values.contains(key)) return contents().values.at(key);  // unless it was deleted in between
  }
}

}  // namespace athanor::distributed
