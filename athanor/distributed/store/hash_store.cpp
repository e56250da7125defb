#include "athanor/distributed/store/hash_store.h"

#include "athanor/base/interrupt.h"

namespace athanor::distributed {

std::vector<std::string> HashStore::missing(const std::vector<std::string>& keys) const {
  std::vector<std::string> result;
  for (const std::string& key : keys)
    if (!values_.contains(key)) result.push_back(key);
  return result;
}

void HashStore::wait_locked(std::unique_lock<std::mutex>& lock, const std::vector<std::string>& keys,
                            std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::after(timeout);
  const auto found = [&] { return missing(keys).empty(); };
  while (!changed_.wait_until(lock, deadline.sooner(Deadline::after(kInterruptPeriod)).at(), found)) {
    if (deadline.expired()) throw_timeout(missing(keys), timeout);
    lock.unlock();
    check_interrupt();
    lock.lock();
  }
}

void HashStore::set(const std::string& key, const Value& value) {
  const std::lock_guard lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

Store::Value HashStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  wait_locked(lock, {key}, timeout);
  return values_.at(key);
}

std::int64_t HashStore::add(const std::string& key, std::int64_t amount) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  const std::int64_t sum = amount + (found == values_.end() ? 0 : number_of(key, found->second));
  const std::string text = std::to_string(sum);
  values_[key] = Value(text.begin(), text.end());
  changed_.notify_all();
  return sum;
}

Store::Value HashStore::compare_set(const std::string& key, const Value& expected, const Value& desired) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end() ? !expected.empty() : found->second != expected)
    return found == values_.end() ? expected : found->second;
  values_[key] = desired;
  changed_.notify_all();
  return desired;
}

bool HashStore::delete_key(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return values_.erase(key) > 0;
}

bool HashStore::check(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  return missing(keys).empty();
}

std::int64_t HashStore::num_keys() {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(values_.size());
}

void HashStore::wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  wait_locked(lock, keys, timeout);
}

void HashStore::append(const std::string& key, const Value& value) {
  const std::lock_guard lock(mutex_);
  Value& held = values_[key];
  held.insert(held.end(), value.begin(), value.end());
  changed_.notify_all();
}

}  // namespace athanor::distributed
