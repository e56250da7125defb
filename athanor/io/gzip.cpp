#include "athanor/io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "athanor/base/error.h"

namespace athanor::io {

namespace {
// zlib counts in 32-bit numbers.
constexpr std::size_t kMaxPiece = std::size_t{1} << 30;
constexpr int kGzipFormat = 16 + MAX_WBITS;

Bytef* zlib_pointer(const std::byte* bytes) { return reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes)); }
}  // namespace

bool is_gzip(Bytes bytes) { return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b}; }

// A deflate block codes at most 258 bytes in two bits, 1032 to 1.
std::uint64_t max_gunzip_size(std::uint64_t compressed_bytes) {
  std::uint64_t size = 0;
  return __builtin_mul_overflow(compressed_bytes, std::uint64_t{1032}, &size) ? UINT64_MAX : size;
}

struct GunzipReader::State {
  enum class At { Start, Inside, End };

  Bytes input;
  std::string name;
  std::size_t used = 0;
  At at = At::Start;
  bool ready = false;
  z_stream stream{};

  void begin_member() {
    // The first member may be malformed, which inflate will say; after it only padding may be something else.
    if (used > 0 && !is_gzip(input.subspan(used))) {
      const bool padding = std::all_of(input.begin() + static_cast<std::ptrdiff_t>(used), input.end(),
                                       [](std::byte b) { return b == std::byte{0}; });
      ATHANOR_CHECK_TYPE(IoError, padding, name, ": ", input.size() - used, " bytes of garbage after the gzip stream");
      at = At::End;
      return;
    }
    const int status = ready ? ::inflateReset(&stream) : ::inflateInit2(&stream, kGzipFormat);
    ATHANOR_CHECK_TYPE(OutOfMemoryError, status == Z_OK, name, ": no memory to unpack gzip");
    ready = true;
    at = At::Inside;
  }

  // One call of inflate; returns the number of bytes it produced.
  std::size_t step(std::byte* out, std::size_t size) {
    const std::size_t in = std::min(input.size() - used, kMaxPiece);
    const std::size_t room = std::min(size, kMaxPiece);
    stream.next_in = zlib_pointer(input.data() + used);
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = zlib_pointer(out);
    stream.avail_out = static_cast<uInt>(room);
    const int status = ::inflate(&stream, Z_NO_FLUSH);
    used += in - stream.avail_in;
    const std::size_t produced = room - stream.avail_out;
    if (status == Z_STREAM_END) {
      at = At::Start;
    } else if (status == Z_BUF_ERROR || (status == Z_OK && produced == 0 && used == input.size())) {
      ATHANOR_THROW(IoError, name, ": truncated gzip stream of ", input.size(), " bytes");
    } else if (status != Z_OK) {
      const char* reason = stream.msg ? stream.msg : ::zError(status);
      ATHANOR_THROW(IoError, name, ": corrupt gzip stream at byte ", used, " of ", input.size(), ": ", reason);
    }
    return produced;
  }
};

GunzipReader::GunzipReader(Bytes compressed, std::string name) : state_(std::make_unique<State>()) {
  state_->input = compressed;
  state_->name = std::move(name);
}

GunzipReader::~GunzipReader() {
  if (state_->ready) ::inflateEnd(&state_->stream);
}

std::size_t GunzipReader::read(void* out, std::size_t size) {
  State& s = *state_;
  std::size_t done = 0;
  while (done < size && s.at != State::At::End) {
    if (s.at == State::At::Start)
      s.begin_member();
    else
      done += s.step(static_cast<std::byte*>(out) + done, size - done);
  }
  return done;
}

bool GunzipReader::at_end() {
  State& s = *state_;
  std::byte spare;
  // inflate may hold back the trailer until it is asked for more.
  while (s.at != State::At::End) {
    if (s.at == State::At::Start)
      s.begin_member();
    else if (s.step(&spare, 1) > 0)
      return false;
  }
  return true;
}

std::vector<std::byte> gunzip(Bytes compressed, const std::string& name, std::uint64_t max_bytes) {
  GunzipReader reader(compressed, name);
  std::vector<std::byte> out;
  for (;;) {
    const std::size_t before = out.size();
    // Grows with what really comes, whatever the stream claims.
    out.resize(std::max<std::size_t>(1 << 16, before * 2));
    const std::size_t n = reader.read(out.data() + before, out.size() - before);
    out.resize(before + n);
    ATHANOR_CHECK_TYPE(IoError, out.size() <= max_bytes, name, ": unpacks to more than the limit of ", max_bytes,
                       " bytes");
    if (n == 0) return out;
  }
}

std::vector<std::byte> gzip(Bytes bytes, int level) {
  ATHANOR_CHECK_VALUE(level >= 1 && level <= 9, "gzip: level must be 1 to 9, got ", level);
  z_stream stream{};
  const int status = ::deflateInit2(&stream, level, Z_DEFLATED, kGzipFormat, 8, Z_DEFAULT_STRATEGY);
  ATHANOR_CHECK_TYPE(OutOfMemoryError, status == Z_OK, "gzip: no memory to pack");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> closing(&stream, ::deflateEnd);
  std::vector<std::byte> out;
  std::byte piece[1 << 14];
  std::size_t used = 0;
  for (int result = Z_OK; result != Z_STREAM_END;) {
    const std::size_t in = std::min(bytes.size() - used, kMaxPiece);
    stream.next_in = zlib_pointer(bytes.data() + used);
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = zlib_pointer(piece);
    stream.avail_out = sizeof piece;
    result = ::deflate(&stream, used + in == bytes.size() ? Z_FINISH : Z_NO_FLUSH);
    used += in - stream.avail_in;
    out.insert(out.end(), piece, piece + (sizeof piece - stream.avail_out));
  }
  return out;
}

}  // namespace athanor::io
