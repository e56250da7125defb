#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "athanor/base/error.h"
#include "athanor/io/image_codec.h"
#include "athanor/io/shared_library.h"

#if __has_include(<jpeglib.h>)
#include <jpeglib.h>
// After it, whose types it uses.
#include <jerror.h>
#define ATHANOR_HAS_JPEG 1
#endif

namespace athanor::io::detail {

bool is_jpeg(Bytes content) { return content.size() >= 3 && std::memcmp(content.data(), "\xff\xd8\xff", 3) == 0; }

#ifdef ATHANOR_HAS_JPEG

namespace {

// libjpeg's functions, by the names they have there.
struct Jpeg {
  decltype(&jpeg_std_error) std_error;
  decltype(&jpeg_CreateDecompress) create;
  decltype(&jpeg_mem_src) mem_src;
  decltype(&jpeg_read_header) read_header;
  decltype(&jpeg_start_decompress) start;
  decltype(&jpeg_read_scanlines) read_scanlines;
  decltype(&jpeg_finish_decompress) finish;
  decltype(&jpeg_destroy_decompress) destroy;

  static const Jpeg& get() {
    static const Jpeg jpeg = load();
    return jpeg;
  }

 private:
  static Jpeg load() {
    // The name says which form its structures have; it has to be that of the headers.
    static_assert(JPEG_LIB_VERSION == 62 || JPEG_LIB_VERSION == 80);
    const SharedLibrary library({JPEG_LIB_VERSION == 62 ? "libjpeg.so.62" : "libjpeg.so.8"},
                                "image: libjpeg is not installed; install it (Debian: libjpeg62-turbo)");
    Jpeg jpeg{};
    library.find(jpeg.std_error, "jpeg_std_error");
    library.find(jpeg.create, "jpeg_CreateDecompress");
    library.find(jpeg.mem_src, "jpeg_mem_src");
    library.find(jpeg.read_header, "jpeg_read_header");
    library.find(jpeg.start, "jpeg_start_decompress");
    library.find(jpeg.read_scanlines, "jpeg_read_scanlines");
    library.find(jpeg.finish, "jpeg_finish_decompress");
    library.find(jpeg.destroy, "jpeg_destroy_decompress");
    return jpeg;
  }
};

// The coarsest coding of a component still spends a bit on a block, and one component has a block per 128 pixels.
constexpr std::uint64_t kMaxPixelsPerByte = 1024;
// Encoders make about ten scans. Each by itself refines blocks by at least a bit or two; ten of a picture without any
// detail come to 2560 pixels of a scan per byte.
constexpr std::uint64_t kUsualScans = 12;
constexpr std::uint64_t kMaxScannedPerByte = 4096;

// libjpeg leaves by longjmp: the functions that call it hold nothing with a destructor.
struct Decoding {
  const Jpeg* jpeg;
  jpeg_decompress_struct state{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  jmp_buf jump{};
  char message[JMSG_LENGTH_MAX] = "";
  bool created = false;
  std::size_t bytes = 0;

  explicit Decoding(const Jpeg& j) : jpeg(&j) {
    state.err = jpeg->std_error(&errors);
    errors.error_exit = on_error;
    errors.emit_message = on_message;
    errors.output_message = [](j_common_ptr) {};
    state.client_data = this;
    progress.progress_monitor = on_progress;
  }
  ~Decoding() {
    if (created) jpeg->destroy(&state);
  }

  static Decoding* of(j_common_ptr state) { return static_cast<Decoding*>(state->client_data); }
  [[noreturn]] static void on_error(j_common_ptr state) {
    state->err->format_message(state, of(state)->message);
    std::longjmp(of(state)->jump, 1);
  }
  // libjpeg makes up what is missing and only warns.
  static void on_message(j_common_ptr state, int level) {
    const int code = state->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE)) on_error(state);
  }
  // Many passes over a large picture are a way to keep a reader busy with few bytes.
  static void on_progress(j_common_ptr common) {
    const auto* state = reinterpret_cast<j_decompress_ptr>(common);
    Decoding* decoding = of(common);
    const auto scans = static_cast<std::uint64_t>(std::max(state->input_scan_number, 0));
    const std::uint64_t pixels = std::uint64_t{state->image_width} * state->image_height;
    if (scans <= kUsualScans || scans * pixels <= kMaxScannedPerByte * decoding->bytes) return;
    std::snprintf(decoding->message, sizeof decoding->message, "%d scans of %u x %u pixels in %zu bytes",
                  state->input_scan_number, state->image_width, state->image_height, decoding->bytes);
    std::longjmp(decoding->jump, 1);
  }

  bool begin(Bytes content) {
    if (setjmp(jump)) return false;
    jpeg->create(&state, JPEG_LIB_VERSION, sizeof state);
    created = true;
    bytes = content.size();
    state.client_data = this;
    state.progress = &progress;
    jpeg->mem_src(&state, reinterpret_cast<const unsigned char*>(content.data()), content.size());
    jpeg->read_header(&state, TRUE);
    if (state.num_components == 4) state.out_color_space = JCS_CMYK;
    state.dct_method = JDCT_ISLOW;
    return true;
  }
  bool start() {
    if (setjmp(jump)) return false;
    jpeg->start(&state);
    return true;
  }
  bool read(std::uint8_t* to, std::size_t row_bytes) {
    if (setjmp(jump)) return false;
    while (state.output_scanline < state.output_height) {
      JSAMPROW row = to + state.output_scanline * row_bytes;
      jpeg->read_scanlines(&state, &row, 1);
    }
    jpeg->finish(&state);
    return true;
  }
};

// Adobe's programs write CMYK inverted, and say that it was they.
void cmyk_to_rgb(Pixels& pixels, bool inverted) {
  const std::uint8_t* from = pixels.values.data();
  std::uint8_t* to = pixels.values.data();
  for (std::uint64_t i = 0; i < pixels.width * pixels.height; ++i, from += 4) {
    const unsigned flip = inverted ? 0 : 255, key = from[3] ^ flip;
    for (int c = 0; c < 3; ++c) *to++ = static_cast<std::uint8_t>(((from[c] ^ flip) * key + 127) / 255);
  }
  pixels.channels = 3;
  pixels.values.resize(pixels.width * pixels.height * 3);
}

}  // namespace

Pixels decode_jpeg(Bytes content, const std::string& name) {
  Decoding decoding(Jpeg::get());
  const auto want = [&](bool ok) {
    ATHANOR_CHECK_TYPE(IoError, ok, name, ": not a valid JPEG image: ", decoding.message);
  };
  want(decoding.begin(content));
  Pixels pixels;
  pixels.width = decoding.state.image_width;
  pixels.height = decoding.state.image_height;
  check_image(pixels.width, pixels.height, kMaxPixelsPerByte, content.size(), name);
  want(decoding.start());
  pixels.channels = decoding.state.output_components;
  ATHANOR_CHECK_TYPE(IoError, pixels.channels == 1 || pixels.channels == 3 || pixels.channels == 4, name,
                     ": a JPEG image of ", pixels.channels, " components");
  const std::size_t row_bytes = pixels.width * static_cast<std::size_t>(pixels.channels);
  pixels.values.resize(row_bytes * pixels.height);
  want(decoding.read(pixels.values.data(), row_bytes));
  if (pixels.channels == 4) cmyk_to_rgb(pixels, decoding.state.saw_Adobe_marker);
  return pixels;
}

#else

Pixels decode_jpeg(Bytes, const std::string& name) {
  ATHANOR_THROW(NotImplementedError, name,
                ": this build has no libjpeg; install its headers (Debian: libjpeg62-turbo-dev) and build again");
}

#endif

}  // namespace athanor::io::detail
