#pragma once
/// OrderedDict: a dictionary that keeps the order of insertion. Parameters, modules and state are kept in it.

#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "athanor/base/error.h"

namespace athanor {

/// libtorch's interface. Keys are unique; an Item gives key() and value(), and dereferences to its value. Not
/// thread-safe; references stay valid until the next insertion or removal.
template <class Key, class Value>
class OrderedDict {
 public:
  class Item {
   public:
    Item(Key key, Value value) : pair_(std::move(key), std::move(value)) {}
    Value& operator*() { return value(); }
    const Value& operator*() const { return value(); }
    Value* operator->() { return &value(); }
    const Value* operator->() const { return &value(); }
    const Key& key() const noexcept { return pair_.first; }
    Value& value() noexcept { return pair_.second; }
    const Value& value() const noexcept { return pair_.second; }
    const std::pair<Key, Value>& pair() const noexcept { return pair_; }
    /// For `auto& [key, value] : dict`.
    template <std::size_t I>
    auto& get() & {
      if constexpr (I == 0)
        return key();
      else
        return value();
    }
    template <std::size_t I>
    const auto& get() const& {
      if constexpr (I == 0)
        return key();
      else
        return value();
    }

   private:
    std::pair<Key, Value> pair_;
  };
  using Iterator = typename std::vector<Item>::iterator;
  using ConstIterator = typename std::vector<Item>::const_iterator;

  /// `key_description` names a key in errors: "Parameter 'x' is not defined".
  explicit OrderedDict(std::string key_description = "Key") : key_description_(std::move(key_description)) {}
  OrderedDict(std::initializer_list<Item> list) : OrderedDict() {
    for (const Item& item : list) insert(item.key(), item.value());
  }

  const std::string& key_description() const noexcept { return key_description_; }
  Item& front() {
    check_filled("front");
    return items_.front();
  }
  const Item& front() const {
    check_filled("front");
    return items_.front();
  }
  Item& back() {
    check_filled("back");
    return items_.back();
  }
  const Item& back() const {
    check_filled("back");
    return items_.back();
  }
  /// The item at a position. Throws IndexError out of range.
  Item& operator[](std::size_t index) { return items_[checked(index)]; }
  const Item& operator[](std::size_t index) const { return items_[checked(index)]; }
  /// The value of `key`. Throws Error if there is none.
  Value& operator[](const Key& key) {
    if (Value* value = find(key)) return *value;
    fail_missing(key);
  }
  const Value& operator[](const Key& key) const {
    if (const Value* value = find(key)) return *value;
    fail_missing(key);
  }
  /// The value of `key`, or null.
  Value* find(const Key& key) noexcept {
    const auto at = index_.find(key);
    return at == index_.end() ? nullptr : &items_[at->second].value();
  }
  const Value* find(const Key& key) const noexcept {
    const auto at = index_.find(key);
    return at == index_.end() ? nullptr : &items_[at->second].value();
  }
  bool contains(const Key& key) const noexcept { return find(key) != nullptr; }

  Iterator begin() { return items_.begin(); }
  Iterator end() { return items_.end(); }
  ConstIterator begin() const { return items_.begin(); }
  ConstIterator end() const { return items_.end(); }
  std::size_t size() const noexcept { return items_.size(); }
  bool is_empty() const noexcept { return items_.empty(); }
  bool empty() const noexcept { return items_.empty(); }
  void reserve(std::size_t capacity) {
    index_.reserve(capacity);
    items_.reserve(capacity);
  }

  /// Adds at the end. Throws Error if the key is there already.
  template <class K, class V>
  Value& insert(K&& key, V&& value) {
    Key own(std::forward<K>(key));
    if (index_.count(own)) ATHANOR_THROW(Error, key_description_, " '", own, "' already defined");
    index_.emplace(own, items_.size());
    items_.emplace_back(std::move(own), std::forward<V>(value));
    return items_.back().value();
  }
  Value& insert(Key key, Value&& value) { return insert<Key, Value>(std::move(key), std::move(value)); }
  void update(OrderedDict&& other) {
    for (Item& item : other) insert(item.key(), std::move(item.value()));
  }
  void update(const OrderedDict& other) {
    for (const Item& item : other) insert(item.key(), item.value());
  }
  /// Throws Error if there is no such key.
  void erase(const Key& key) {
    const auto at = index_.find(key);
    if (at == index_.end()) ATHANOR_THROW(Error, "Key '", key, "' doesn't exist");
    const std::size_t position = at->second;
    index_.erase(at);
    items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(position));
    for (auto& entry : index_)
      if (entry.second > position) --entry.second;
  }
  void clear() {
    index_.clear();
    items_.clear();
  }

  const std::vector<Item>& items() const noexcept { return items_; }
  std::vector<Key> keys() const {
    std::vector<Key> out;
    for (const Item& item : items_) out.push_back(item.key());
    return out;
  }
  std::vector<Value> values() const {
    std::vector<Value> out;
    for (const Item& item : items_) out.push_back(item.value());
    return out;
  }
  std::vector<std::pair<Key, Value>> pairs() const {
    std::vector<std::pair<Key, Value>> out;
    for (const Item& item : items_) out.push_back(item.pair());
    return out;
  }

 private:
  void check_filled(const char* what) const {
    ATHANOR_CHECK(!items_.empty(), "Called ", what, "() on an empty OrderedDict");
  }
  std::size_t checked(std::size_t index) const {
    ATHANOR_CHECK_INDEX(index < items_.size(), "Index ", index, " is out of bounds");
    return index;
  }
  [[noreturn]] void fail_missing(const Key& key) const {
    ATHANOR_THROW(Error, key_description_, " '", key, "' is not defined");
  }

  std::unordered_map<Key, std::size_t> index_;
  std::vector<Item> items_;
  std::string key_description_;
};

}  // namespace athanor
