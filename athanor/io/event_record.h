#pragma once
/// Not for programs: the parts of an event file. A record is length (8 bytes, little-endian), masked CRC of the length,
/// content, masked CRC of the content; the content is a protocol buffer, tensorboard's Event.

#include <cstdint>
#include <string>
#include <string_view>

namespace athanor::io {

/// Writes one message of the protocol-buffer wire format.
class ProtoMessage {
 public:
  ProtoMessage& integer(int field, std::int64_t value);
  ProtoMessage& real(int field, double value);
  ProtoMessage& single(int field, float value);
  ProtoMessage& bytes(int field, std::string_view value);
  ProtoMessage& message(int field, const ProtoMessage& value) { return bytes(field, value.text_); }
  /// A packed list of doubles.
  template <class List>
  ProtoMessage& reals(int field, const List& values) {
    std::string packed;
    for (const double v : values) append_fixed(packed, &v, sizeof v);
    return bytes(field, packed);
  }
  const std::string& text() const { return text_; }

 private:
  static void append_fixed(std::string& out, const void* value, std::size_t size) {
    out.append(static_cast<const char*>(value), size);
  }
  void varint(std::uint64_t value);
  void key(int field, int wire) { varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire)); }
  std::string text_;
};

/// `content` framed as a record.
std::string event_record(std::string_view content);

}  // namespace athanor::io
