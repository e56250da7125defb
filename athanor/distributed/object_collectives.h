#pragma once
/// Collectives of objects: anything ObjectCodec knows is turned into bytes, sent, and made again. Ranks are the
/// world's.

#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "athanor/distributed/collectives.h"
#include "athanor/distributed/error.h"

namespace athanor::distributed {

/// Reads what ObjectCodec wrote. Every read checks what is left: the bytes come from another process.
class ObjectReader {
 public:
  explicit ObjectReader(std::string_view bytes) : bytes_(bytes) {}
  /// Throws DistError if fewer than `n` bytes are left.
  std::string_view take(std::size_t n);
  std::size_t left() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
};

/// How a T becomes bytes. Specialize it for types of your own with these two functions. Here: numbers, enums, strings,
/// pairs, vectors and maps of such, tensors.
template <class T>
struct ObjectCodec {
  static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>,
                "specialize athanor::distributed::ObjectCodec for this type: static void write(std::string&, const "
                "T&) and static T read(ObjectReader&)");
  static void write(std::string& out, const T& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static T read(ObjectReader& in) {
    T value;
    std::memcpy(&value, in.take(sizeof value).data(), sizeof value);
    return value;
  }
};

template <>
struct ObjectCodec<std::string> {
  static void write(std::string& out, const std::string& value) {
    ObjectCodec<std::uint64_t>::write(out, value.size());
    out += value;
  }
  static std::string read(ObjectReader& in) {
    const auto size = ObjectCodec<std::uint64_t>::read(in);
    return std::string(in.take(size));
  }
};

template <class A, class B>
struct ObjectCodec<std::pair<A, B>> {
  static void write(std::string& out, const std::pair<A, B>& value) {
    ObjectCodec<A>::write(out, value.first);
    ObjectCodec<B>::write(out, value.second);
  }
  static std::pair<A, B> read(ObjectReader& in) {
    A first = ObjectCodec<A>::read(in);
    return {std::move(first), ObjectCodec<B>::read(in)};
  }
};

template <class T>
struct ObjectCodec<std::vector<T>> {
  static void write(std::string& out, const std::vector<T>& values) {
    ObjectCodec<std::uint64_t>::write(out, values.size());
    for (const T& value : values) ObjectCodec<T>::write(out, value);
  }
  static std::vector<T> read(ObjectReader& in) {
    std::vector<T> values;
    for (auto n = ObjectCodec<std::uint64_t>::read(in); n > 0; --n) values.push_back(ObjectCodec<T>::read(in));
    return values;
  }
};

template <class K, class V>
struct ObjectCodec<std::map<K, V>> {
  static void write(std::string& out, const std::map<K, V>& values) {
    ObjectCodec<std::uint64_t>::write(out, values.size());
    for (const auto& [key, value] : values) {
      ObjectCodec<K>::write(out, key);
      ObjectCodec<V>::write(out, value);
    }
  }
  static std::map<K, V> read(ObjectReader& in) {
    std::map<K, V> values;
    for (auto n = ObjectCodec<std::uint64_t>::read(in); n > 0; --n) {
      K key = ObjectCodec<K>::read(in);
      values.emplace(std::move(key), ObjectCodec<V>::read(in));
    }
    return values;
  }
};

/// Values, dtype and shape; what is read is on the host, without history.
template <>
struct ObjectCodec<Tensor> {
  static void write(std::string& out, const Tensor& value);
  static Tensor read(ObjectReader& in);
};

namespace internals {
// The same for bytes.
std::vector<std::string> all_gather_bytes(const std::string& own, const ProcessGroupPtr& group, Where where);
std::vector<std::string> gather_bytes(const std::string& own, int dst, const ProcessGroupPtr& group, Where where);
std::string broadcast_bytes(const std::string& own, int src, const ProcessGroupPtr& group, Where where);
std::string scatter_bytes(const std::vector<std::string>& parts, int src, const ProcessGroupPtr& group, Where where);
void send_bytes(const std::string& bytes, int dst, const ProcessGroupPtr& group, int tag, Where where);
std::string recv_bytes(int& src, const ProcessGroupPtr& group, int tag, Where where);
int global_rank_in(const ProcessGroupPtr& group);

template <class T>
std::string to_bytes(const T& value) {
  std::string out;
  ObjectCodec<T>::write(out, value);
  return out;
}
/// Throws DistError if the bytes do not spell exactly one T.
template <class T>
T from_bytes(std::string_view bytes) {
  ObjectReader in(bytes);
  T value = ObjectCodec<T>::read(in);
  if (in.left() != 0) throw DistError("an object has more bytes than its type takes: do all ranks use the same type?");
  return value;
}
}  // namespace internals

/// `object_list[r]` becomes rank r's object; the list is resized.
template <class T>
void all_gather_object(std::vector<T>& object_list, const T& object, const ProcessGroupPtr& group = nullptr,
                       Where where = Where::current()) {
  object_list.clear();
  for (const auto& bytes : internals::all_gather_bytes(internals::to_bytes(object), group, where))
    object_list.push_back(internals::from_bytes<T>(bytes));
}

/// At `dst`, `object_gather_list` receives all ranks' objects; elsewhere it is null.
template <class T>
void gather_object(const T& object, std::vector<T>* object_gather_list = nullptr, int dst = 0,
                   const ProcessGroupPtr& group = nullptr, Where where = Where::current()) {
  ATHANOR_CHECK_VALUE((internals::global_rank_in(group) == dst) == (object_gather_list != nullptr),
                      "gather_object: the list should be given by rank ", dst, ", the destination, and only there");
  const auto all = internals::gather_bytes(internals::to_bytes(object), dst, group, where);
  if (!object_gather_list) return;
  object_gather_list->clear();
  for (const auto& bytes : all) object_gather_list->push_back(internals::from_bytes<T>(bytes));
}

/// The source's objects replace those of the others.
template <class T>
void broadcast_object_list(std::vector<T>& object_list, int src = 0, const ProcessGroupPtr& group = nullptr,
                           Where where = Where::current()) {
  const bool source = internals::global_rank_in(group) == src;
  const std::string own = source ? internals::to_bytes(object_list) : std::string();
  const std::string bytes = internals::broadcast_bytes(own, src, group, where);
  if (!source) object_list = internals::from_bytes<std::vector<T>>(bytes);
}

/// `output` becomes the source's `input_list[rank]`; the list is empty elsewhere.
template <class T>
void scatter_object_list(T& output, const std::vector<T>& input_list = {}, int src = 0,
                         const ProcessGroupPtr& group = nullptr, Where where = Where::current()) {
  std::vector<std::string> parts;
  for (const T& object : input_list) parts.push_back(internals::to_bytes(object));
  output = internals::from_bytes<T>(internals::scatter_bytes(parts, src, group, where));
}

template <class T>
void send_object_list(const std::vector<T>& object_list, int dst, const ProcessGroupPtr& group = nullptr, int tag = 0,
                      Where where = Where::current()) {
  internals::send_bytes(internals::to_bytes(object_list), dst, group, tag, where);
}

/// Returns the rank the objects came from. Without `src`, from any rank.
template <class T>
int recv_object_list(std::vector<T>& object_list, int src = kAnySourceRank, const ProcessGroupPtr& group = nullptr,
                     int tag = 0, Where where = Where::current()) {
  object_list = internals::from_bytes<std::vector<T>>(internals::recv_bytes(src, group, tag, where));
  return src;
}

}  // namespace athanor::distributed
