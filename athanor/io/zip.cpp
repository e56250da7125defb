#include "athanor/io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "athanor/base/error.h"
#include "athanor/io/gzip.h"

// Layout: PKWARE's APPNOTE 6.3.
namespace athanor::io {

namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                        kLocator64 = 0x07064b50;
constexpr std::size_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kEnd64Size = 56, kLocatorSize = 20;
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint16_t kExtra64 = 1, kPadding = 0x4246;  // PyTorch's "FB"
constexpr std::uint16_t kUtf8Names = 1 << 11;

template <class T>
T number(Bytes bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void append_number(std::vector<std::byte>& out, std::type_identity_t<T> value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

std::uint32_t crc_of(Bytes bytes) {
  return static_cast<std::uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// Unpacks a raw deflate stream that says it holds `size` bytes; memory grows with what really comes.
std::vector<std::byte> inflate_raw(Bytes packed, std::uint64_t size, const std::string& what) {
  constexpr std::size_t kMaxPiece = std::size_t{1} << 30;
  z_stream stream{};
  ATHANOR_CHECK_TYPE(OutOfMemoryError, ::inflateInit2(&stream, -MAX_WBITS) == Z_OK, what, ": no memory to unpack");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> closing(&stream, ::inflateEnd);
  std::vector<std::byte> out;
  std::size_t used = 0, done = 0;
  for (int status = Z_OK; status != Z_STREAM_END;) {
    if (done == out.size())
      out.resize(static_cast<std::size_t>(std::min<std::uint64_t>(size + 1, std::max<std::size_t>(1 << 16, 2 * done))));
    const std::size_t in = std::min(packed.size() - used, kMaxPiece), room = std::min(out.size() - done, kMaxPiece);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data() + used));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    stream.avail_out = static_cast<uInt>(room);
    status = ::inflate(&stream, Z_NO_FLUSH);
    used += in - stream.avail_in;
    done += room - stream.avail_out;
    const bool stuck = in == stream.avail_in && room == stream.avail_out;
    ATHANOR_CHECK_TYPE(IoError, done <= size && (status == Z_STREAM_END || (status == Z_OK && !stuck)), what,
                       ": corrupt or truncated deflate stream");
  }
  ATHANOR_CHECK_TYPE(IoError, done == size, what, ": unpacks to ", done, " bytes, its directory says ", size);
  out.resize(done);
  return out;
}

}  // namespace

bool is_zip(Bytes content) { return content.size() >= kEndSize && number<std::uint32_t>(content, 0) == kLocal; }

struct ZipReader::Directory {
  std::uint64_t position, size, count;
};

ZipReader::ZipReader(Bytes content, std::string name) : content_(content), name_(std::move(name)) {
  const Directory directory = find_directory();
  ATHANOR_CHECK_TYPE(IoError,
                     directory.position <= content_.size() && directory.size <= content_.size() - directory.position &&
                         directory.count <= directory.size / kCentralSize,
                     name_, ": corrupt ZIP archive: a directory of ", directory.count, " entries and ", directory.size,
                     " bytes at ", directory.position, ", the file has ", content_.size(), " bytes");
  Bytes rest = content_.subspan(directory.position, directory.size);
  for (std::uint64_t i = 0; i < directory.count; ++i) {
    ATHANOR_CHECK_TYPE(IoError, rest.size() >= kCentralSize && number<std::uint32_t>(rest, 0) == kCentral, name_,
                       ": corrupt ZIP archive: entry ", i, " of its directory is not one");
    const std::size_t name_size = number<std::uint16_t>(rest, 28), extra_size = number<std::uint16_t>(rest, 30),
                      comment_size = number<std::uint16_t>(rest, 32),
                      whole = kCentralSize + name_size + extra_size + comment_size;
    ATHANOR_CHECK_TYPE(IoError, rest.size() >= whole, name_, ": corrupt ZIP archive: truncated directory");
    add_entry(rest.first(kCentralSize),
              std::string(reinterpret_cast<const char*>(rest.data() + kCentralSize), name_size),
              rest.subspan(kCentralSize + name_size, extra_size), directory.position);
    rest = rest.subspan(whole);
  }
  check_apart();
}

ZipReader::Directory ZipReader::find_directory() const {
  // The end record is the last thing in the file but for a comment of at most 64 KiB.
  const std::size_t size = content_.size();
  std::size_t end = size;
  for (std::size_t back = kEndSize; back <= std::min<std::size_t>(size, kEndSize + 0xffff) && end == size; ++back)
    if (number<std::uint32_t>(content_, size - back) == kEnd) end = size - back;
  ATHANOR_CHECK_TYPE(IoError, end < size, name_, ": truncated or no ZIP archive: its directory is missing");
  Directory d{number<std::uint32_t>(content_, end + 16), number<std::uint32_t>(content_, end + 12),
              number<std::uint16_t>(content_, end + 10)};
  const bool is_64 = d.position == 0xffffffff || d.size == 0xffffffff || d.count == 0xffff;
  if (is_64 && end >= kLocatorSize && number<std::uint32_t>(content_, end - kLocatorSize) == kLocator64) {
    const auto at = number<std::uint64_t>(content_, end - kLocatorSize + 8);
    ATHANOR_CHECK_TYPE(IoError, at <= size && size - at >= kEnd64Size && number<std::uint32_t>(content_, at) == kEnd64,
                       name_, ": corrupt ZIP64 archive: no end record at ", at, " in a file of ", size, " bytes");
    d = {number<std::uint64_t>(content_, at + 48), number<std::uint64_t>(content_, at + 40),
         number<std::uint64_t>(content_, at + 32)};
  }
  return d;
}

void ZipReader::add_entry(Bytes header, std::string name, Bytes extra, std::uint64_t limit) {
  const std::string what = athanor::detail::str(name_, ": ZIP entry '", name.substr(0, 200), "'");
  std::uint64_t packed = number<std::uint32_t>(header, 20), size = number<std::uint32_t>(header, 24),
                local = number<std::uint32_t>(header, 42);
  while (extra.size() >= 4) {
    const std::size_t length = number<std::uint16_t>(extra, 2);
    ATHANOR_CHECK_TYPE(IoError, length <= extra.size() - 4, what, " has a truncated extra field");
    if (number<std::uint16_t>(extra, 0) == kExtra64) {
      Bytes wide = extra.subspan(4, length);
      for (std::uint64_t* field : {&size, &packed, &local}) {
        if (*field != 0xffffffff) continue;
        ATHANOR_CHECK_TYPE(IoError, wide.size() >= 8, what, " lacks its 64-bit sizes");
        *field = number<std::uint64_t>(wide, 0);
        wide = wide.subspan(8);
      }
    }
    extra = extra.subspan(4 + length);
  }
  const auto flags = number<std::uint16_t>(header, 8), method = number<std::uint16_t>(header, 10);
  ATHANOR_CHECK_TYPE(IoError, (flags & 1) == 0, what, " is encrypted");
  ATHANOR_CHECK_TYPE(IoError, method == 0 || method == 8, what, " is packed by method ", method,
                     ", expected 0 (stored) or 8 (deflated)");
  ATHANOR_CHECK_TYPE(IoError,
                     local <= limit && limit - local >= kLocalSize && number<std::uint32_t>(content_, local) == kLocal,
                     what, " has no header at ", local);
  const std::uint64_t begin =
      local + kLocalSize + number<std::uint16_t>(content_, local + 26) + number<std::uint16_t>(content_, local + 28);
  ATHANOR_CHECK_TYPE(IoError, begin <= limit && packed <= limit - begin, what, " of ", packed,
                     " bytes passes the end of the archive");
  ATHANOR_CHECK_TYPE(IoError, method == 0 ? size == packed : size <= max_gunzip_size(packed), what, " claims ", size,
                     " bytes, packed in ", packed);
  const Entry entry{content_.subspan(begin, packed), size, number<std::uint32_t>(header, 16), method == 8};
  const bool fresh = entries_.emplace(std::move(name), entry).second;
  ATHANOR_CHECK_TYPE(IoError, fresh, what, " comes twice");
}

// Entries that share bytes would let a small file unpack to any size.
void ZipReader::check_apart() const {
  std::vector<Bytes> parts;
  for (const auto& [name, entry] : entries_)
    if (!entry.packed.empty()) parts.push_back(entry.packed);
  std::ranges::sort(parts, {}, [](Bytes b) { return b.data(); });
  for (std::size_t i = 1; i < parts.size(); ++i)
    ATHANOR_CHECK_TYPE(IoError, parts[i - 1].data() + parts[i - 1].size() <= parts[i].data(), name_,
                       ": corrupt ZIP archive: entries overlap");
}

const ZipReader::Entry* ZipReader::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

void ZipReader::check(std::string_view name, const Entry& entry, Bytes content) const {
  // PyTorch can be told to leave the sums out; then they are 0.
  ATHANOR_CHECK_TYPE(IoError, entry.crc == 0 || crc_of(content) == entry.crc, name_, ": ZIP entry '", name,
                     "' is damaged: its checksum is another");
}

std::vector<std::byte> ZipReader::read(std::string_view name, std::uint64_t max_bytes) const {
  const Entry* entry = find(name);
  ATHANOR_CHECK_TYPE(IoError, entry, name_, ": no ZIP entry '", name, "' among its ", entries_.size());
  const std::string what = athanor::detail::str(name_, ": ZIP entry '", name, "'");
  ATHANOR_CHECK_TYPE(IoError, entry->size <= max_bytes, what, " has ", entry->size, " bytes, the limit is ", max_bytes);
  std::vector<std::byte> bytes = entry->deflated ? inflate_raw(entry->packed, entry->size, what)
                                                 : std::vector<std::byte>(entry->packed.begin(), entry->packed.end());
  check(name, *entry, bytes);
  return bytes;
}

void ZipWriter::put(Bytes bytes) {
  sink_(bytes.data(), bytes.size());
  position_ += bytes.size();
}

void ZipWriter::add(const std::string& name, Bytes content) {
  ATHANOR_CHECK_VALUE(name.size() <= 0xffff, "ZipWriter: a name of ", name.size(), " bytes");
  const Written entry{name, content.size(), position_, crc_of(content)};
  const bool wide = entry.size >= large_;
  std::vector<std::byte> extra;
  if (wide) {
    append_number<std::uint16_t>(extra, kExtra64);
    append_number<std::uint16_t>(extra, 16);
    append_number<std::uint64_t>(extra, entry.size);
    append_number<std::uint64_t>(extra, entry.size);
  }
  const std::uint64_t begin = position_ + kLocalSize + name.size() + extra.size() + 4;
  const auto padding = static_cast<std::uint16_t>((kAlignment - begin % kAlignment) % kAlignment);
  append_number<std::uint16_t>(extra, kPadding);
  append_number<std::uint16_t>(extra, padding);
  extra.resize(extra.size() + padding, std::byte{'Z'});

  const auto size = wide ? 0xffffffff : static_cast<std::uint32_t>(entry.size);
  std::vector<std::byte> header;
  append_number<std::uint32_t>(header, kLocal);
  append_number<std::uint16_t>(header, wide ? 45 : 20);
  append_number<std::uint16_t>(header, kUtf8Names);
  append_number<std::uint16_t>(header, 0);           // stored
  append_number<std::uint32_t>(header, 0x00210000);  // 1 January 1980: the same bytes every time
  append_number<std::uint32_t>(header, entry.crc);
  append_number<std::uint32_t>(header, size);
  append_number<std::uint32_t>(header, size);
  append_number<std::uint16_t>(header, static_cast<std::uint16_t>(name.size()));
  append_number<std::uint16_t>(header, static_cast<std::uint16_t>(extra.size()));
  put(header);
  put(std::as_bytes(std::span(name)));
  put(extra);
  put(content);
  written_.push_back(entry);
}

void ZipWriter::finish() {
  const std::uint64_t begin = position_;
  for (const Written& e : written_) {
    const bool wide = e.size >= large_ || e.position >= large_;
    std::vector<std::byte> header;
    append_number<std::uint32_t>(header, kCentral);
    append_number<std::uint16_t>(header, wide ? 45 : 20);
    append_number<std::uint16_t>(header, wide ? 45 : 20);
    append_number<std::uint16_t>(header, kUtf8Names);
    append_number<std::uint16_t>(header, 0);
    append_number<std::uint32_t>(header, 0x00210000);
    append_number<std::uint32_t>(header, e.crc);
    append_number<std::uint32_t>(header, wide ? 0xffffffff : static_cast<std::uint32_t>(e.size));
    append_number<std::uint32_t>(header, wide ? 0xffffffff : static_cast<std::uint32_t>(e.size));
    append_number<std::uint16_t>(header, static_cast<std::uint16_t>(e.name.size()));
    append_number<std::uint16_t>(header, wide ? 28 : 0);
    for (int field = 0; field < 3; ++field) append_number<std::uint16_t>(header, 0);  // comment, disk, attributes
    append_number<std::uint32_t>(header, 0);
    append_number<std::uint32_t>(header, wide ? 0xffffffff : static_cast<std::uint32_t>(e.position));
    put(header);
    put(std::as_bytes(std::span(e.name)));
    if (!wide) continue;
    std::vector<std::byte> extra;
    append_number<std::uint16_t>(extra, kExtra64);
    append_number<std::uint16_t>(extra, 24);
    for (const std::uint64_t value : {e.size, e.size, e.position}) append_number<std::uint64_t>(extra, value);
    put(extra);
  }
  const std::uint64_t end = position_, size = end - begin, count = written_.size();
  const bool wide = end >= large_ || count >= 0xffff;
  std::vector<std::byte> tail;
  if (wide) {
    append_number<std::uint32_t>(tail, kEnd64);
    append_number<std::uint64_t>(tail, kEnd64Size - 12);
    append_number<std::uint16_t>(tail, 45);
    append_number<std::uint16_t>(tail, 45);
    append_number<std::uint64_t>(tail, 0);  // disks
    for (const std::uint64_t value : {count, count, size, begin}) append_number<std::uint64_t>(tail, value);
    append_number<std::uint32_t>(tail, kLocator64);
    append_number<std::uint32_t>(tail, 0);
    append_number<std::uint64_t>(tail, end);
    append_number<std::uint32_t>(tail, 1);
  }
  append_number<std::uint32_t>(tail, kEnd);
  append_number<std::uint32_t>(tail, 0);
  const auto count16 = static_cast<std::uint16_t>(wide ? 0xffff : count);
  append_number<std::uint16_t>(tail, count16);
  append_number<std::uint16_t>(tail, count16);
  append_number<std::uint32_t>(tail, wide ? 0xffffffff : static_cast<std::uint32_t>(size));
  append_number<std::uint32_t>(tail, wide ? 0xffffffff : static_cast<std::uint32_t>(begin));
  append_number<std::uint16_t>(tail, 0);
  put(tail);
}

}  // namespace athanor::io
