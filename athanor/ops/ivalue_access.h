#pragma once
/// What the pickle reader may do with values and nobody else: see into shared containers while they are being built.

#include <string_view>
#include <unordered_map>

#include "athanor/ops/ivalue.h"

namespace athanor {

class IValueAccess {
 public:
  static IValue object(std::shared_ptr<detail::PickleObject> o) {
    IValue v;
    v.value_ = std::move(o);
    return v;
  }
  /// The object if the value is one of type T, else null.
  template <class T>
  static T* as(const IValue& v) {
    const auto* held = std::get_if<std::shared_ptr<detail::PickleObject>>(&v.value_);
    return held ? dynamic_cast<T*>(held->get()) : nullptr;
  }
  static bool is_object(const IValue& v) {
    return std::holds_alternative<std::shared_ptr<detail::PickleObject>>(v.value_);
  }
  /// The elements of a list or a tuple, to change; null for anything else.
  static std::vector<IValue>* items(const IValue& v) {
    if (const auto* l = std::get_if<IValue::List>(&v.value_)) return l->items.get();
    if (const auto* t = std::get_if<IValue::Tuple>(&v.value_)) return t->items.get();
    return nullptr;
  }
  /// The entries of a dict, whose values may be changed and whose keys may not; null for anything else.
  static std::vector<GenericDict::Entry>* entries(const IValue& v);
  static IValue& value(GenericDict::Entry& e) { return e.value_; }
  /// What tells shared containers apart; null for anything else.
  static const void* identity(const IValue& v);
  /// Empties a list, tuple or dict.
  static void clear(const IValue& v);
};

namespace detail {
struct DictContent {
  std::vector<GenericDict::Entry> entries;
  // Texts live as long as the entries that own them.
  std::unordered_map<std::string_view, std::size_t> by_text;
  std::unordered_map<std::int64_t, std::size_t> by_integer;
  std::unordered_map<double, std::size_t> by_number;
  std::size_t none = SIZE_MAX;

  std::size_t find(const IValue& key) const;
  /// The entry with this key, made if need be; whether it is new.
  std::pair<std::size_t, bool> emplace(IValue key);
};
}  // namespace detail

}  // namespace athanor
