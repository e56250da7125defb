#include <csetjmp>
#include <cstring>

#include "athanor/base/error.h"
#include "athanor/io/gzip.h"
#include "athanor/io/image_codec.h"
#include "athanor/io/shared_library.h"

#if __has_include(<png.h>)
#include <png.h>
#define ATHANOR_HAS_PNG 1
#endif

namespace athanor::io::detail {

bool is_png(Bytes content) { return content.size() >= 8 && std::memcmp(content.data(), "\x89PNG\r\n\x1a\n", 8) == 0; }

#ifdef ATHANOR_HAS_PNG

namespace {

// libpng's functions, by the names they have there.
struct Png {
  decltype(&png_create_read_struct) create_read_struct;
  decltype(&png_create_info_struct) create_info_struct;
  decltype(&png_destroy_read_struct) destroy_read_struct;
  decltype(&png_set_longjmp_fn) set_longjmp_fn;
  decltype(&png_longjmp) longjmp;
  decltype(&png_set_read_fn) set_read_fn;
  decltype(&png_get_io_ptr) get_io_ptr;
  decltype(&png_get_error_ptr) get_error_ptr;
  decltype(&png_error) error;
  decltype(&png_read_info) read_info;
  decltype(&png_get_image_width) get_image_width;
  decltype(&png_get_image_height) get_image_height;
  decltype(&png_get_bit_depth) get_bit_depth;
  decltype(&png_get_channels) get_channels;
  decltype(&png_get_rowbytes) get_rowbytes;
  decltype(&png_set_expand) set_expand;
  decltype(&png_set_scale_16) set_scale_16;
  decltype(&png_set_interlace_handling) set_interlace_handling;
  decltype(&png_read_update_info) read_update_info;
  decltype(&png_read_row) read_row;
  decltype(&png_read_end) read_end;

  static const Png& get() {
    static const Png png = load();
    return png;
  }

 private:
  static Png load() {
    const SharedLibrary library({"libpng16.so.16", "libpng16.so"},
                                "image: libpng is not installed; install it (Debian: libpng16-16)");
    Png png{};
#define ATHANOR_FIND(name) library.find(png.name, "png_" #name)
    ATHANOR_FIND(create_read_struct);
    ATHANOR_FIND(create_info_struct);
    ATHANOR_FIND(destroy_read_struct);
    ATHANOR_FIND(set_longjmp_fn);
    ATHANOR_FIND(longjmp);
    ATHANOR_FIND(set_read_fn);
    ATHANOR_FIND(get_io_ptr);
    ATHANOR_FIND(get_error_ptr);
    ATHANOR_FIND(error);
    ATHANOR_FIND(read_info);
    ATHANOR_FIND(get_image_width);
    ATHANOR_FIND(get_image_height);
    ATHANOR_FIND(get_bit_depth);
    ATHANOR_FIND(get_channels);
    ATHANOR_FIND(get_rowbytes);
    ATHANOR_FIND(set_expand);
    ATHANOR_FIND(set_scale_16);
    ATHANOR_FIND(set_interlace_handling);
    ATHANOR_FIND(read_update_info);
    ATHANOR_FIND(read_row);
    ATHANOR_FIND(read_end);
#undef ATHANOR_FIND
    return png;
  }
};

// libpng leaves by longjmp: the functions that call it hold nothing with a destructor.
struct Decoding {
  const Png* png;
  Bytes rest;
  png_structp reader = nullptr;
  png_infop info = nullptr;
  char message[160] = "";

  static void on_error(png_structp reader, png_const_charp text) {
    const Png& png = Png::get();
    auto* self = static_cast<Decoding*>(png.get_error_ptr(reader));
    std::strncpy(self->message, text, sizeof self->message - 1);
    png.longjmp(reader, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp reader, png_bytep to, std::size_t size) {
    const Png& png = Png::get();
    auto* self = static_cast<Decoding*>(png.get_io_ptr(reader));
    if (size > self->rest.size()) png.error(reader, "it is truncated");
    std::memcpy(to, self->rest.data(), size);
    self->rest = self->rest.subspan(size);
  }

  bool begin() {
    reader = png->create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (!reader) return false;
    if (setjmp(*png->set_longjmp_fn(reader, ::longjmp, sizeof(jmp_buf)))) return false;
    info = png->create_info_struct(reader);
    if (!info) return false;
    png->set_read_fn(reader, this, on_read);
    png->read_info(reader, info);
    return true;
  }
  // Palettes to colours, fewer than 8 bits to 8, transparent colours to alpha; 16 bits to 8.
  bool convert(int* passes) {
    if (setjmp(*png->set_longjmp_fn(reader, ::longjmp, sizeof(jmp_buf)))) return false;
    png->set_expand(reader);
    png->set_scale_16(reader);
    *passes = png->set_interlace_handling(reader);
    png->read_update_info(reader, info);
    return true;
  }
  bool read(int passes, std::uint8_t* to, std::size_t height, std::size_t row_bytes) {
    if (setjmp(*png->set_longjmp_fn(reader, ::longjmp, sizeof(jmp_buf)))) return false;
    for (int pass = 0; pass < passes; ++pass)
      for (std::size_t y = 0; y < height; ++y) png->read_row(reader, to + y * row_bytes, nullptr);
    png->read_end(reader, nullptr);
    return true;
  }
  ~Decoding() {
    if (reader) png->destroy_read_struct(&reader, &info, nullptr);
  }
};

}  // namespace

Pixels decode_png(Bytes content, const std::string& name) {
  const Png& png = Png::get();
  Decoding decoding{&png, content};
  const auto want = [&](bool ok) {
    ATHANOR_CHECK_TYPE(IoError, ok, name,
                       ": not a valid PNG image: ", decoding.message[0] ? decoding.message : "libpng could not start");
  };
  want(decoding.begin());
  Pixels pixels;
  pixels.width = png.get_image_width(decoding.reader, decoding.info);
  pixels.height = png.get_image_height(decoding.reader, decoding.info);
  const auto bits = static_cast<std::uint64_t>(png.get_bit_depth(decoding.reader, decoding.info)) *
                    png.get_channels(decoding.reader, decoding.info);
  // Deflate packs a thousand bytes in one, at most.
  check_image(pixels.width, pixels.height, std::max<std::uint64_t>(1, max_gunzip_size(8) / bits), content.size(), name);
  int passes = 1;
  want(decoding.convert(&passes));
  pixels.channels = png.get_channels(decoding.reader, decoding.info);
  const std::size_t row_bytes = png.get_rowbytes(decoding.reader, decoding.info);
  ATHANOR_CHECK_TYPE(IoError, row_bytes == pixels.width * static_cast<std::size_t>(pixels.channels), name,
                     ": not a valid PNG image: rows of ", row_bytes, " bytes");
  pixels.values.resize(row_bytes * pixels.height);
  want(decoding.read(passes, pixels.values.data(), pixels.height, row_bytes));
  return pixels;
}

#else

Pixels decode_png(Bytes, const std::string& name) {
  ATHANOR_THROW(NotImplementedError, name,
                ": this build has no libpng; install its headers (Debian: libpng-dev) and build again");
}

#endif

}  // namespace athanor::io::detail
