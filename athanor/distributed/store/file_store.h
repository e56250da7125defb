#pragma once
/// FileStore: processes that share a file system, NFS included. The file is a log of changes that only grows; changes
/// are made under an exclusive lock of the file, waiting is polling.

#include <atomic>
#include <map>
#include <mutex>

#include "athanor/distributed/net/forks.h"
#include "athanor/distributed/net/socket.h"
#include "athanor/distributed/store/store.h"

namespace athanor::distributed {

class FileStore final : public Store {
 public:
  /// Opens or creates the file. Each open FileStore holds a shared lock on one byte of it for its life; a file that has
  /// content, but that nobody holds, was left by an earlier job, and throws DistStoreError saying so. The last
  /// FileStore to be destroyed removes the file. Locks are fcntl's open file description locks, which a killed process
  /// drops. A forked child may go on with its parent's: it opens the file for itself when it first uses it, and throws
  /// DistStoreError if the file has been removed by then; a copy that it never uses changes nothing.
  explicit FileStore(std::string path, std::chrono::milliseconds timeout = kStoreTimeout);
  ~FileStore() override;

  using Store::get;
  using Store::set;
  using Store::wait;
  void set(const std::string& key, const Value& value) override;
  Value get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  Value compare_set(const std::string& key, const Value& expected, const Value& desired) override;
  bool delete_key(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t num_keys() override;
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override;
  void append(const std::string& key, const Value& value) override;
  std::string describe() const override { return "FileStore " + path_; }
  const std::string& path() const { return path_; }

 private:
  class Lock;
  struct Contents {
    std::mutex mutex;
    std::map<std::string, Value> values;
    std::uint64_t read = 0;  // bytes of the log that `values` reflects
    const unsigned generation = fork_generation();
  };
  // A child begins anew: another thread of its parent may have held the mutex and been about to change the values,
  // which therefore stay as they are.
  class Holder {
   public:
    Holder() = default;
    ~Holder();
    Holder(const Holder&) = delete;
    Holder& operator=(const Holder&) = delete;
    Contents& get();

   private:
    std::atomic<Contents*> now_{new Contents};
  };

  Contents& contents() { return contents_.get(); }
  void leave_parents_file();
  bool open_and_join(Deadline deadline);
  void read_new_entries();
  void write_entry(char kind, const std::string& key, const Value& value);
  std::vector<std::string> missing(const std::vector<std::string>& keys);
  [[noreturn]] void broken(const std::string& what) const;

  std::string path_;
  Descriptor fd_;
  Holder contents_;
  unsigned generation_ = fork_generation();
};

}  // namespace athanor::distributed
