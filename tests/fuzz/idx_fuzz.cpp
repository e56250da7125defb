#include "athanor/base/error.h"
#include "athanor/io/gzip.h"
#include "athanor/io/idx.h"
#include "fuzz.h"

namespace athanor::fuzz {

namespace {

void fuzz_idx(const std::uint8_t* data, std::size_t size) {
  try {
    const io::Array array = io::parse_idx(std::as_bytes(std::span(data, size)), "input", std::uint64_t{1} << 24);
    touch(array.data, array.nbytes());
  } catch (const IoError&) {
  } catch (const OutOfMemoryError&) {
  }
}

}  // namespace

}  // namespace athanor::fuzz

FUZZ_TARGET(athanor::fuzz::fuzz_idx);

#ifndef ATHANOR_LIBFUZZER
#include <gtest/gtest.h>

namespace athanor::fuzz {

TEST(Fuzz, IdxReader) {
  FuzzOptions options;
  const Input bytes_2x3{0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6};
  const Input doubles{0, 0, 14, 1, 0, 0, 0, 1, 63, 240, 0, 0, 0, 0, 0, 0};
  const Input empty{0, 0, 12, 3, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 1, 0};
  const Input hostile{0, 0, 13, 2, 255, 255, 255, 255, 255, 255, 255, 255, 0};
  for (const Input& plain : {bytes_2x3, doubles, empty, hostile, Input{}}) {
    options.corpus.push_back(plain);
    const auto packed = io::gzip(std::as_bytes(std::span(plain)));
    const auto* p = reinterpret_cast<const std::uint8_t*>(packed.data());
    options.corpus.emplace_back(p, p + packed.size());
  }
  Input rank_255{0, 0, 9, 255};
  for (int i = 0; i < 255 * 4; ++i) rank_255.push_back(i % 4 == 3);
  rank_255.push_back(7);
  options.corpus.push_back(rank_255);
  options.words = {std::string("\0\0\x08\x03", 4), "\x1f\x8b", std::string("\x7f\xff\xff\xff", 4)};
  // A deflate stream can unpack to 1032 times its size, and the reader may ask for that much at once.
  options.memory_per_byte = 1032;
  run_fuzzer(fuzz_idx, options);
}

}  // namespace athanor::fuzz
#endif
