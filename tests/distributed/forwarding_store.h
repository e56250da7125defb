#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "athanor/distributed/store/store.h"

namespace athanor::distributed {

/// A store as a user would make one: it has what the base class demands, and lets another store do the work.
class ForwardingStore : public Store {
 public:
  explicit ForwardingStore(std::shared_ptr<Store> store) : Store(store->timeout()), store_(std::move(store)) {}
  using Store::get;
  using Store::set;
  using Store::wait;
  void set(const std::string& key, const Value& value) override { store_->set(key, value); }
  Value get(const std::string& key, std::chrono::milliseconds timeout) override { return store_->get(key, timeout); }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_->add(key, amount); }
  Value compare_set(const std::string& key, const Value& expected, const Value& desired) override {
    return store_->compare_set(key, expected, desired);
  }
  bool delete_key(const std::string& key) override { return store_->delete_key(key); }
  bool check(const std::vector<std::string>& keys) override { return store_->check(keys); }
  std::int64_t num_keys() override { return store_->num_keys(); }
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override {
    store_->wait(keys, timeout);
  }
  void append(const std::string& key, const Value& value) override { store_->append(key, value); }
  std::string describe() const override { return "a user's store"; }

 private:
  std::shared_ptr<Store> store_;
};

}  // namespace athanor::distributed
