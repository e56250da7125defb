#pragma once
/// HashStore: the threads of one process.

#include <condition_variable>
#include <map>
#include <mutex>

#include "athanor/distributed/store/store.h"

namespace athanor::distributed {

class HashStore final : public Store {
 public:
  using Store::get;
  using Store::set;
  using Store::Store;
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
  std::string describe() const override { return "HashStore"; }

 private:
  std::vector<std::string> missing(const std::vector<std::string>& keys) const;
  void wait_locked(std::unique_lock<std::mutex>& lock, const std::vector<std::string>& keys,
                   std::chrono::milliseconds timeout);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Value> values_;
};

}  // namespace athanor::distributed
