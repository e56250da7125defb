#include "athanor/io/event_record.h"

#include <zlib.h>

#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "athanor/base/error.h"
#include "athanor/io/summary_writer.h"

namespace athanor::io {

static_assert(std::endian::native == std::endian::little, "records are written as numbers lie in memory");

void ProtoMessage::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
  text_ += static_cast<char>(value);
}

ProtoMessage& ProtoMessage::integer(int field, std::int64_t value) {
  key(field, 0);
  varint(static_cast<std::uint64_t>(value));
  return *this;
}

ProtoMessage& ProtoMessage::real(int field, double value) {
  key(field, 1);
  append_fixed(text_, &value, sizeof value);
  return *this;
}

ProtoMessage& ProtoMessage::single(int field, float value) {
  key(field, 5);
  append_fixed(text_, &value, sizeof value);
  return *this;
}

ProtoMessage& ProtoMessage::bytes(int field, std::string_view value) {
  key(field, 2);
  varint(value.size());
  text_ += value;
  return *this;
}

std::string event_record(std::string_view content) {
  // A CRC of data that holds CRCs is weak; the format rotates it and adds a constant.
  const auto masked = [](const void* data, std::size_t size) {
    return std::rotr(detail::crc32c(data, size), 15) + 0xa282ead8U;
  };
  const std::uint64_t length = content.size();
  const std::uint32_t length_crc = masked(&length, sizeof length), crc = masked(content.data(), content.size());
  std::string out;
  out.reserve(content.size() + 16);
  out.append(reinterpret_cast<const char*>(&length), sizeof length);
  out.append(reinterpret_cast<const char*>(&length_crc), sizeof length_crc);
  out += content;
  out.append(reinterpret_cast<const char*>(&crc), sizeof crc);
  return out;
}

namespace detail {

std::uint32_t crc32c(const void* data, std::size_t size) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> t{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int bit = 0; bit < 8; ++bit) t[i] = t[i] >> 1 ^ (t[i] & 1 ? 0x82f63b78U : 0);
    }
    return t;
  }();
  std::uint32_t crc = ~0U;
  const auto* p = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < size; ++i) crc = crc >> 8 ^ table[(crc ^ p[i]) & 0xff];
  return ~crc;
}

namespace {

void append_big_endian(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
}

void append_chunk(std::string& out, const char* type, std::string_view content) {
  append_big_endian(out, static_cast<std::uint32_t>(content.size()));
  const std::size_t start = out.size();
  out += type;
  out += content;
  const auto* covered = reinterpret_cast<const Bytef*>(out.data() + start);
  append_big_endian(out, static_cast<std::uint32_t>(::crc32(0, covered, static_cast<uInt>(out.size() - start))));
}

}  // namespace

std::string encode_png(const std::uint8_t* pixels, std::uint32_t height, std::uint32_t width, int channels) {
  ATHANOR_CHECK_VALUE(channels == 1 || channels == 3 || channels == 4, "encode_png: expected 1, 3 or 4 channels, got ",
                      channels);
  ATHANOR_CHECK_VALUE(height > 0 && width > 0, "encode_png: expected an image with pixels, got ", height, " x ", width);
  const std::size_t row = static_cast<std::size_t>(width) * static_cast<std::size_t>(channels);
  ATHANOR_CHECK_VALUE((row + 1) * height < (std::size_t{1} << 30), "encode_png: an image of ", height, " x ", width,
                      " is too large");
  std::vector<Bytef> raw;
  raw.reserve((row + 1) * height);
  for (std::uint32_t y = 0; y < height; ++y) {
    raw.push_back(0);  // no filter
    raw.insert(raw.end(), pixels + y * row, pixels + (y + 1) * row);
  }
  uLongf size = ::compressBound(raw.size());
  std::string packed(size, 0);
  const int rc = ::compress2(reinterpret_cast<Bytef*>(packed.data()), &size, raw.data(), raw.size(), 6);
  ATHANOR_CHECK(rc == Z_OK, "encode_png: zlib failed with code ", rc);
  packed.resize(size);
  std::string header;
  append_big_endian(header, width);
  append_big_endian(header, height);
  header += static_cast<char>(8);                                          // bits
  header += static_cast<char>(channels == 1 ? 0 : channels == 3 ? 2 : 6);  // gray, RGB, RGBA
  header.append(3, 0);
  std::string out = "\x89PNG\r\n\x1a\n";
  append_chunk(out, "IHDR", header);
  append_chunk(out, "IDAT", packed);
  append_chunk(out, "IEND", {});
  return out;
}

}  // namespace detail
}  // namespace athanor::io
