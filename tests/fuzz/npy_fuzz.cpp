#include "athanor/base/error.h"
#include "athanor/io/npy.h"
#include "fuzz.h"

namespace athanor::fuzz {

namespace {

void fuzz_npy(const std::uint8_t* data, std::size_t size) {
  try {
    const io::Array array = io::parse_npy(std::as_bytes(std::span(data, size)), "input");
    touch(array.data, array.nbytes());
  } catch (const IoError&) {
  } catch (const TypeError&) {  // a dtype that has no counterpart
  }
}

}  // namespace

}  // namespace athanor::fuzz

FUZZ_TARGET(athanor::fuzz::fuzz_npy);

#ifndef ATHANOR_LIBFUZZER
#include <gtest/gtest.h>

namespace athanor::fuzz {

TEST(Fuzz, NpyReader) {
  const auto file = [](std::string header, std::size_t data_bytes, char version = 1) {
    header += '\n';
    std::string text("\x93NUMPY", 6);
    text += version;
    text += '\0';
    for (std::size_t i = 0; i < (version == 1 ? 2 : 4); ++i) text += static_cast<char>(header.size() >> (8 * i));
    return bytes_of(text + header + std::string(data_bytes, '\1'));
  };
  FuzzOptions options;
  options.corpus = {
      file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24),
      file("{'descr': '>i8', 'fortran_order': True, 'shape': (1, 2, 3), }", 48, 2),
      file("{'descr': '|b1', 'fortran_order': False, 'shape': (5,), }", 5, 3),
      file("{'descr': '<f2', 'fortran_order': False, 'shape': (), }", 2),
      file("{'descr': '|u1', 'fortran_order': True, 'shape': (0, 9223372036854775807), }", 0),
      file("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", 8),
      file("{'descr': [('a', '<f4'), ('b', '|O')], 'fortran_order': False, 'shape': (1,), }", 12),
  };
  options.words = {"'descr'", "'shape'", "'fortran_order'", "True", "False", "(", ")", ",", ":", "{",
                   "}",       "L",       "'<f4'",           "'|O'", "\\x00"};
  run_fuzzer(fuzz_npy, options);
}

}  // namespace athanor::fuzz
#endif
