#pragma once
/// Store: a small key/value service through which processes find each other. The operations and their meaning are those
/// of torch.distributed's stores; users may derive their own. Every wait ends at a timeout with a DistStoreError that
/// names the keys. All members are thread-safe.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "athanor/base/deadline.h"

namespace athanor::distributed {

/// Of stores that are not told another: five minutes.
inline constexpr std::chrono::milliseconds kStoreTimeout{300'000};

class Store {
 public:
  using Value = std::vector<std::uint8_t>;

  explicit Store(std::chrono::milliseconds timeout = kStoreTimeout) : timeout_(timeout) {}
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  virtual void set(const std::string& key, const Value& value) = 0;
  void set(const std::string& key, std::string_view value) { set(key, Value(value.begin(), value.end())); }
  /// Waits until the key exists.
  Value get(const std::string& key) { return get(key, timeout()); }
  virtual Value get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  std::string get_text(const std::string& key);
  /// Adds to the decimal number stored under the key (0 if there is none) and returns the sum. Throws DistStoreError if
  /// what is stored is no number.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  /// Sets `desired` if the key holds `expected`, or does not exist and `expected` is empty. Returns what it holds then;
  /// `expected` if the key does not exist.
  virtual Value compare_set(const std::string& key, const Value& expected, const Value& desired) = 0;
  /// True if something was deleted.
  virtual bool delete_key(const std::string& key) = 0;
  /// Whether all of the keys exist.
  virtual bool check(const std::vector<std::string>& keys) = 0;
  virtual std::int64_t num_keys() = 0;
  void wait(const std::vector<std::string>& keys) { wait(keys, timeout()); }
  virtual void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) = 0;
  /// Waits for as long as it takes: true when all keys exist, false when the descriptor `stop` is readable before.
  /// Looks once a second unless the store can do better. Throws DistStoreError if the store is gone.
  virtual bool wait_unless(const std::vector<std::string>& keys, int stop);
  /// Adds to the end of what is stored.
  virtual void append(const std::string& key, const Value& value) = 0;
  /// Has the store append this once its conversation with this process ends: when the process has ended, however it
  /// did, or this object is no more. False if the store does not know when that is.
  virtual bool append_at_end(const std::string& key, const Value& value);
  /// Waits for all of them.
  virtual std::vector<Value> multi_get(const std::vector<std::string>& keys);
  virtual void multi_set(const std::vector<std::string>& keys, const std::vector<Value>& values);

  std::chrono::milliseconds timeout() const { return timeout_; }
  /// Before other threads use the store.
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  /// What and where it is, for messages: "TCPStore at node1:29500".
  virtual std::string describe() const = 0;

 protected:
  /// "… timed out after 5000 ms waiting for keys 'a', 'b'".
  [[noreturn]] void throw_timeout(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) const;
  /// The number a value spells, for add().
  std::int64_t number_of(const std::string& key, const Value& value) const;

 private:
  std::chrono::milliseconds timeout_;
};

/// For a rank whose process serves the store and is about to give up: waits until as many as there are `keys` in the
/// store have added to `counter`, to show that they have read why; a second at most, and not where the store fails.
void let_all_read(Store& store, const std::vector<std::string>& keys, const std::string& counter) noexcept;

/// While it lives, what this thread asks a TCPStore or a FileStore ends by `deadline`, whatever the store's own timeout
/// says.
class StoreDeadline {
 public:
  explicit StoreDeadline(Deadline deadline);
  ~StoreDeadline();
  StoreDeadline(const StoreDeadline&) = delete;
  StoreDeadline& operator=(const StoreDeadline&) = delete;
  static Deadline of_this_thread();

 private:
  Deadline outer_;
};

/// Puts a prefix before every key of another store, so that several users of one store do not meet.
class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store);
  using Store::get;
  using Store::set;
  using Store::wait;
  void set(const std::string& key, const Value& value) override { store_->set(joined(key), value); }
  Value get(const std::string& key, std::chrono::milliseconds timeout) override {
    return store_->get(joined(key), timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override { return store_->add(joined(key), amount); }
  Value compare_set(const std::string& key, const Value& expected, const Value& desired) override {
    return store_->compare_set(joined(key), expected, desired);
  }
  bool delete_key(const std::string& key) override { return store_->delete_key(joined(key)); }
  bool check(const std::vector<std::string>& keys) override { return store_->check(joined(keys)); }
  /// Of the whole underlying store.
  std::int64_t num_keys() override { return store_->num_keys(); }
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override {
    store_->wait(joined(keys), timeout);
  }
  bool wait_unless(const std::vector<std::string>& keys, int stop) override {
    return store_->wait_unless(joined(keys), stop);
  }
  void append(const std::string& key, const Value& value) override { store_->append(joined(key), value); }
  bool append_at_end(const std::string& key, const Value& value) override {
    return store_->append_at_end(joined(key), value);
  }
  std::vector<Value> multi_get(const std::vector<std::string>& keys) override {
    return store_->multi_get(joined(keys));
  }
  void multi_set(const std::vector<std::string>& keys, const std::vector<Value>& values) override {
    store_->multi_set(joined(keys), values);
  }
  std::string describe() const override { return store_->describe(); }
  const std::shared_ptr<Store>& underlying_store() const { return store_; }
  const std::string& prefix() const { return prefix_; }

 private:
  std::string joined(const std::string& key) const { return prefix_ + "/" + key; }
  std::vector<std::string> joined(const std::vector<std::string>& keys) const;

  std::string prefix_;
  std::shared_ptr<Store> store_;
};

}  // namespace athanor::distributed
