#include "athanor/ops/ivalue.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "athanor/ops/ivalue_access.h"

namespace athanor {

namespace {

// One text may be the key of many dicts of a hostile file; hashing it each time has to stay cheap.
constexpr std::size_t kMaxKey = 4096;

std::string shown_key(const IValue& key) {
  if (key.isString()) return "'" + key.toStringRef().substr(0, 60) + "'";
  if (key.isInt()) return std::to_string(key.toInt());
  return key.tagKind();
}

std::string known_keys(const GenericDict& dict) {
  constexpr std::size_t kShown = 10;
  std::string text;
  std::size_t shown = 0;
  for (const auto& e : dict) {
    if (shown++ == kShown) return text + ", …";
    text += (shown > 1 ? ", " : "") + shown_key(e.key());
  }
  return text.empty() ? "none" : text;
}

[[noreturn]] void unexpected(const IValue& value, const char* wanted) {
  ATHANOR_THROW(TypeError, "Expected ", wanted, " but got ", value.tagKind());
}

// A dict with one of these as its key and another of equal value means the same entry, as in Python.
bool is_integer_key(const IValue& key) {
  if (key.isInt() || key.isBool()) return true;
  if (!key.isDouble()) return false;
  const double d = key.toDouble();
  return std::abs(d) < 0x1p53 && d == std::floor(d);
}

std::int64_t integer_key(const IValue& key) {
  return key.isInt()    ? key.toInt()
         : key.isBool() ? static_cast<int>(key.toBool())
                        : static_cast<std::int64_t>(key.toDouble());
}

}  // namespace

namespace detail {

std::size_t DictContent::find(const IValue& key) const {
  const auto in = [](const auto& index, const auto& k) {
    const auto found = index.find(k);
    return found == index.end() ? SIZE_MAX : found->second;
  };
  if (key.isString()) return in(by_text, std::string_view(key.toStringRef()));
  if (is_integer_key(key)) return in(by_integer, integer_key(key));
  if (key.isDouble()) return in(by_number, key.toDouble());
  return key.isNone() ? none : SIZE_MAX;
}

std::pair<std::size_t, bool> DictContent::emplace(IValue key) {
  const std::size_t fresh = entries.size();
  const auto place = [&](auto& index, const auto& k) {
    const auto [at, is_new] = index.emplace(k, fresh);
    return std::pair(at->second, is_new);
  };
  std::pair<std::size_t, bool> result;
  if (key.isString()) {
    const std::string& text = key.toStringRef();
    ATHANOR_CHECK_VALUE(text.size() <= kMaxKey, "Dict: a key of ", text.size(), " bytes, at most ", kMaxKey,
                        " are allowed");
    result = place(by_text, std::string_view(text));
  } else if (is_integer_key(key)) {
    result = place(by_integer, integer_key(key));
  } else if (key.isDouble()) {
    result = place(by_number, key.toDouble());
  } else {
    ATHANOR_CHECK_TYPE(TypeError, key.isNone(), "Dict: expected a text, a number or None as key, got ", key.tagKind());
    result = {none == SIZE_MAX ? fresh : none, none == SIZE_MAX};
    none = result.first;
  }
  if (result.second) entries.emplace_back(std::move(key), IValue());
  return result;
}

}  // namespace detail

GenericDict::Dict() : content_(std::make_shared<detail::DictContent>()) {}
std::size_t GenericDict::size() const { return content_->entries.size(); }
const GenericDict::Entry* GenericDict::begin() const { return content_->entries.data(); }
const GenericDict::Entry* GenericDict::end() const { return begin() + size(); }

const IValue* GenericDict::find(const IValue& key) const {
  const std::size_t at = content_->find(key);
  return at == SIZE_MAX ? nullptr : &content_->entries[at].value_;
}

const IValue& GenericDict::at(const IValue& key) const {
  const IValue* value = find(key);
  ATHANOR_CHECK_INDEX(value, "Dict: no key ", shown_key(key), " among its ", size(), ": ", known_keys(*this));
  return *value;
}

void GenericDict::insert_or_assign(IValue key, IValue value) {
  const auto [at, fresh] = content_->emplace(std::move(key));
  content_->entries[at].value_ = std::move(value);
}

bool GenericDict::insert(IValue key, IValue value) {
  const auto [at, fresh] = content_->emplace(std::move(key));
  if (fresh) content_->entries[at].value_ = std::move(value);
  return fresh;
}

IValue::IValue(const std::vector<Tensor>& list) : IValue(std::vector<IValue>(list.begin(), list.end())) {}
IValue::IValue(const std::vector<std::int64_t>& list) : IValue(std::vector<IValue>(list.begin(), list.end())) {}

IValue IValue::tuple(std::vector<IValue> elements) {
  IValue v;
  v.value_ = Tuple{std::make_shared<std::vector<IValue>>(std::move(elements))};
  return v;
}

const char* IValue::tagKind() const {
  static constexpr const char* kNames[] = {"None",   "Bool", "Int",   "Double",      "String",
                                           "Tensor", "List", "Tuple", "GenericDict", "an object that is no value"};
  return kNames[value_.index()];
}

const Tensor& IValue::toTensor() const {
  if (const auto* t = std::get_if<Tensor>(&value_)) return *t;
  unexpected(*this, "Tensor");
}
bool IValue::toBool() const {
  if (const auto* b = std::get_if<bool>(&value_)) return *b;
  unexpected(*this, "Bool");
}
std::int64_t IValue::toInt() const {
  if (const auto* i = std::get_if<std::int64_t>(&value_)) return *i;
  unexpected(*this, "Int");
}
double IValue::toDouble() const {
  if (const auto* d = std::get_if<double>(&value_)) return *d;
  if (const auto* i = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*i);
  unexpected(*this, "Double");
}
const std::string& IValue::toStringRef() const {
  if (const auto* s = std::get_if<Text>(&value_)) return **s;
  unexpected(*this, "String");
}
const std::vector<IValue>& IValue::toListRef() const {
  if (const auto* l = std::get_if<List>(&value_)) return *l->items;
  unexpected(*this, "List");
}
const std::vector<IValue>& IValue::elements() const {
  if (const auto* items = IValueAccess::items(*this)) return *items;
  unexpected(*this, "List or Tuple");
}
const GenericDict& IValue::toGenericDict() const {
  if (const auto* d = std::get_if<GenericDict>(&value_)) return *d;
  unexpected(*this, "GenericDict");
}

std::vector<Tensor> IValue::toTensorVector() const {
  std::vector<Tensor> tensors;
  for (const IValue& v : elements()) tensors.push_back(v.toTensor());
  return tensors;
}

std::vector<std::int64_t> IValue::toIntVector() const {
  std::vector<std::int64_t> integers;
  for (const IValue& v : elements()) integers.push_back(v.toInt());
  return integers;
}

const IValue& IValue::operator[](std::int64_t index) const {
  if (isGenericDict()) return toGenericDict().at(index);
  const auto& items = elements();
  ATHANOR_CHECK_INDEX(index >= 0 && index < static_cast<std::int64_t>(items.size()), tagKind(), ": index ", index,
                      " is out of range for ", items.size(), " elements");
  return items[static_cast<std::size_t>(index)];
}

std::vector<GenericDict::Entry>* IValueAccess::entries(const IValue& v) {
  return v.isGenericDict() ? &v.toGenericDict().content_->entries : nullptr;
}

const void* IValueAccess::identity(const IValue& v) {
  if (const auto* list = items(v)) return list;
  return entries(v);
}

void IValueAccess::clear(const IValue& v) {
  if (auto* list = items(v)) list->clear();
  if (v.isGenericDict()) *v.toGenericDict().content_ = {};
}

}  // namespace athanor
