#include "athanor/base/error.h"
#include "athanor/io/safetensors.h"
#include "fuzz.h"

namespace athanor::fuzz {

namespace {

void fuzz_safetensors(const std::uint8_t* data, std::size_t size) {
  try {
    auto copy = std::make_shared<std::vector<std::uint8_t>>(data, data + size);
    const io::SafetensorsFile file(std::as_writable_bytes(std::span(*copy)), copy, "input");
    for (const io::SafetensorsEntry& entry : file.entries()) {
      try {
        const io::Array array = file.get(entry);
        touch(array.data, array.nbytes());
      } catch (const IoError&) {    // bools that are none
      } catch (const TypeError&) {  // a dtype that has no counterpart
      }
    }
  } catch (const IoError&) {
  }
}

}  // namespace

}  // namespace athanor::fuzz

FUZZ_TARGET(athanor::fuzz::fuzz_safetensors);

#ifndef ATHANOR_LIBFUZZER
#include <gtest/gtest.h>

namespace athanor::fuzz {

TEST(Fuzz, SafetensorsReader) {
  const auto file = [](const std::string& header, std::size_t data_bytes) {
    std::string text;
    for (int i = 0; i < 8; ++i) text += static_cast<char>(header.size() >> (8 * i));
    return bytes_of(text + header + std::string(data_bytes, '\1'));
  };
  FuzzOptions options;
  options.corpus = {
      file("{}", 0),
      file(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24),
      file(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]},)"
           R"("b":{"dtype":"BF16","shape":[],"data_offsets":[4,6]}}   )",
           6),
      file(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"I64","shape":[1],"data_offsets":[1,9]}})",
          9),
      file(
          R"({"e":{"dtype":"F8_E4M3","shape":[0,5],"data_offsets":[0,0]},"f":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})",
          1),
      file(R"({"h":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,18446744073709551615]}})", 8),
      file(std::string(200, '['), 0),
  };
  options.words = {"\"dtype\":",
                   "\"shape\":",
                   "\"data_offsets\":",
                   "\"F16\"",
                   "\"I32\"",
                   "{",
                   "}",
                   "[",
                   "]",
                   ",",
                   "-1",
                   "1e9",
                   "null",
                   "true",
                   "\"\\u0000\"",
                   "18446744073709551615"};
  run_fuzzer(fuzz_safetensors, options);
}

}  // namespace athanor::fuzz
#endif
