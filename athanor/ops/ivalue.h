#pragma once
/// IValue: a tensor, number or text, or a list, tuple or dict of such: what AutogradContext::saved_data and files of
/// torch.save hold. The part of libtorch's type that these need. Lists, tuples and dicts are shared by copies.

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "athanor/ops/tensor.h"

namespace athanor {

class IValue;
template <class Key, class Value>
class Dict;

namespace detail {
/// Something that exists only while a pickle is read.
struct PickleObject {
  virtual ~PickleObject() = default;
};
struct DictContent;
}  // namespace detail

/// Texts, numbers and None as keys, in the order of insertion. A handle: copies share the content.
template <>
class Dict<IValue, IValue> {
 public:
  class Entry;
  Dict();
  std::size_t size() const;
  bool empty() const { return size() == 0; }
  bool contains(const IValue& key) const { return find(key) != nullptr; }
  /// Null if there is none.
  const IValue* find(const IValue& key) const;
  /// Throws IndexError naming the keys there are.
  const IValue& at(const IValue& key) const;
  /// Throws TypeError for a key that is a tensor or a container, ValueError for a text of more than 4096 bytes.
  void insert_or_assign(IValue key, IValue value);
  /// The same unless the key is there already; says whether it was new.
  bool insert(IValue key, IValue value);
  const Entry* begin() const;
  const Entry* end() const;

 private:
  friend class IValueAccess;
  std::shared_ptr<detail::DictContent> content_;
};
using GenericDict = Dict<IValue, IValue>;

class IValue {
 public:
  IValue() = default;
  IValue(Tensor t) : value_(std::move(t)) {}
  IValue(bool b) : value_(b) {}
  template <class Number>
  requires(std::is_arithmetic_v<Number> && !std::is_same_v<Number, bool>) IValue(Number n) {
    if constexpr (std::is_integral_v<Number>)
      value_ = static_cast<std::int64_t>(n);
    else
      value_ = static_cast<double>(n);
  }
  IValue(std::string text) : value_(std::make_shared<const std::string>(std::move(text))) {}
  IValue(const char* text) : IValue(std::string(text)) {}
  IValue(GenericDict dict) : value_(std::move(dict)) {}
  /// A list.
  IValue(std::vector<IValue> list) : value_(List{std::make_shared<std::vector<IValue>>(std::move(list))}) {}
  IValue(const std::vector<Tensor>& list);
  IValue(const std::vector<std::int64_t>& list);
  static IValue tuple(std::vector<IValue> elements);

  bool isNone() const { return std::holds_alternative<std::monostate>(value_); }
  bool isTensor() const { return std::holds_alternative<Tensor>(value_); }
  bool isBool() const { return std::holds_alternative<bool>(value_); }
  bool isInt() const { return std::holds_alternative<std::int64_t>(value_); }
  bool isDouble() const { return std::holds_alternative<double>(value_); }
  bool isString() const { return std::holds_alternative<Text>(value_); }
  bool isList() const { return std::holds_alternative<List>(value_); }
  bool isTuple() const { return std::holds_alternative<Tuple>(value_); }
  bool isGenericDict() const { return std::holds_alternative<GenericDict>(value_); }
  /// "Tensor", "Int", "GenericDict" …
  const char* tagKind() const;

  // Each throws TypeError naming what the value is instead.
  const Tensor& toTensor() const;
  bool toBool() const;
  std::int64_t toInt() const;
  /// Integers too.
  double toDouble() const;
  const std::string& toStringRef() const;
  const std::vector<IValue>& toListRef() const;
  /// Of a list or a tuple.
  const std::vector<IValue>& elements() const;
  std::vector<Tensor> toTensorVector() const;
  std::vector<std::int64_t> toIntVector() const;
  const GenericDict& toGenericDict() const;

  /// The entry of a dict. Throws TypeError, IndexError.
  const IValue& operator[](const char* key) const { return toGenericDict().at(key); }
  const IValue& operator[](const std::string& key) const { return toGenericDict().at(key); }
  /// The element of a list or tuple, or the entry of a dict with this number as its key.
  const IValue& operator[](std::int64_t index) const;
  const IValue& operator[](int index) const { return (*this)[static_cast<std::int64_t>(index)]; }

 private:
  friend class IValueAccess;
  using Text = std::shared_ptr<const std::string>;
  struct List {
    std::shared_ptr<std::vector<IValue>> items;
  };
  struct Tuple {
    std::shared_ptr<std::vector<IValue>> items;
  };
  std::variant<std::monostate, bool, std::int64_t, double, Text, Tensor, List, Tuple, GenericDict,
               std::shared_ptr<detail::PickleObject>>
      value_;
};

class Dict<IValue, IValue>::Entry {
 public:
  Entry(IValue key, IValue value) : key_(std::move(key)), value_(std::move(value)) {}
  const IValue& key() const { return key_; }
  const IValue& value() const { return value_; }

 private:
  friend class IValueAccess;
  friend class Dict;
  IValue key_, value_;
};

}  // namespace athanor
