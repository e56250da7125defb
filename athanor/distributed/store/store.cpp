#include "athanor/distributed/store/store.h"

#include <poll.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "athanor/base/env.h"
#include "athanor/distributed/error.h"

namespace athanor::distributed {

namespace {
thread_local Deadline thread_deadline{Deadline::Clock::time_point::max()};
}  // namespace

StoreDeadline::StoreDeadline(Deadline deadline) : outer_(thread_deadline) { thread_deadline = outer_.sooner(deadline); }
StoreDeadline::~StoreDeadline() { thread_deadline = outer_; }
Deadline StoreDeadline::of_this_thread() { return thread_deadline; }

std::string Store::get_text(const std::string& key) {
  const Value value = get(key);
  return {value.begin(), value.end()};
}

bool Store::wait_unless(const std::vector<std::string>& keys, int stop) {
  constexpr int kPauseMs = 1000;
  while (!check(keys)) {
    struct pollfd entry = {stop, POLLIN, 0};
    if (::poll(&entry, 1, kPauseMs) > 0) return false;
  }
  return true;
}

void let_all_read(Store& store, const std::vector<std::string>& keys, const std::string& counter) noexcept {
  const Deadline grace = Deadline::after(std::chrono::seconds(1));
  try {
    const StoreDeadline limit(grace);
    const auto come =
        std::count_if(keys.begin(), keys.end(), [&](const std::string& key) { return store.check({key}); });
    while (store.add(counter, 0) < come && !grace.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } catch (const std::exception&) {  // why the rank gives up counts for more
  }
}

bool Store::append_at_end(const std::string& /*key*/, const Value& /*value*/) { return false; }

std::vector<Store::Value> Store::multi_get(const std::vector<std::string>& keys) {
  const Deadline deadline = Deadline::after(timeout());
  std::vector<Value> values;
  for (const std::string& key : keys) values.push_back(get(key, deadline.remaining()));
  return values;
}

void Store::multi_set(const std::vector<std::string>& keys, const std::vector<Value>& values) {
  ATHANOR_CHECK_VALUE(keys.size() == values.size(), "multi_set: got ", keys.size(), " keys and ", values.size(),
                      " values, expected as many of each");
  for (std::size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
}

void Store::throw_timeout(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) const {
  constexpr std::size_t kShown = 16;
  std::string names;
  for (std::size_t i = 0; i < keys.size() && i < kShown; ++i)
    names += detail::str(names.empty() ? "'" : ", '", keys[i], "'");
  if (keys.size() > kShown) names += detail::str(" and ", keys.size() - kShown, " more");
  throw DistStoreError(detail::str(describe(), ": timed out after ", timeout.count(), " ms waiting for ",
                                   keys.size() == 1 ? "key " : "keys ", names,
                                   ". The process that should set it has not come this far, or died"),
                       ATHANOR_WHERE);
}

std::int64_t Store::number_of(const std::string& key, const Value& value) const {
  const std::string text(value.begin(), value.end());
  const auto number = parse_integer(text);
  if (!number)
    throw DistStoreError(detail::str(describe(), ": add to key '", key, "': it holds '", text.substr(0, 40),
                                     "', expected a decimal number"),
                         ATHANOR_WHERE);
  return *number;
}

PrefixStore::PrefixStore(std::string prefix, std::shared_ptr<Store> store)
    : prefix_(std::move(prefix)), store_(std::move(store)) {
  ATHANOR_CHECK_VALUE(store_ != nullptr, "PrefixStore: the underlying store is null");
  set_timeout(store_->timeout());
}

std::vector<std::string> PrefixStore::joined(const std::vector<std::string>& keys) const {
  std::vector<std::string> result;
  for (const std::string& key : keys) result.push_back(joined(key));
  return result;
}

}  // namespace athanor::distributed
