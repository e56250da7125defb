#pragma once
/// A store that does something to its process when it is asked.

#include <atomic>
#include <functional>
#include <memory>

#include "athanor/distributed/store/store.h"

namespace athanor::distributed {

/// Passes everything on to another store. Thread-safe as that is.
class FaultyStore final : public Store {
 public:
  FaultyStore(std::shared_ptr<Store> store, std::function<void()> fault)
      : Store(store->timeout()), store_(std::move(store)), fault_(std::move(fault)) {}
  /// Calls `fault` in the `count`th question from now on, before it is asked; 1 is the next.
  void fail_at(int count) { left_ = count; }

  using Store::get;
  using Store::set;
  using Store::wait;
  void set(const std::string& key, const Value& value) override { asked().set(key, value); }
  Value get(const std::string& key, std::chrono::milliseconds timeout) override { return asked().get(key, timeout); }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return asked().add(key, amount); }
  Value compare_set(const std::string& key, const Value& expected, const Value& desired) override {
    return asked().compare_set(key, expected, desired);
  }
  bool delete_key(const std::string& key) override { return asked().delete_key(key); }
  bool check(const std::vector<std::string>& keys) override { return asked().check(keys); }
  std::int64_t num_keys() override { return asked().num_keys(); }
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override {
    asked().wait(keys, timeout);
  }
  /// Not counted: a thread of the library's waits so all the time.
  bool wait_unless(const std::vector<std::string>& keys, int stop) override { return store_->wait_unless(keys, stop); }
  void append(const std::string& key, const Value& value) override { asked().append(key, value); }
  std::vector<Value> multi_get(const std::vector<std::string>& keys) override { return asked().multi_get(keys); }
  void multi_set(const std::vector<std::string>& keys, const std::vector<Value>& values) override {
    asked().multi_set(keys, values);
  }
  std::string describe() const override { return store_->describe(); }

 private:
  Store& asked() {
    if (left_ > 0 && --left_ == 0) fault_();
    return *store_;
  }
  std::shared_ptr<Store> store_;
  std::function<void()> fault_;
  std::atomic<int> left_{0};
};

}  // namespace athanor::distributed
