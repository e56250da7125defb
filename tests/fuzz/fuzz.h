#pragma once
/// Fuzzing without a fuzzing engine: mutates a corpus in a fixed order for a few seconds, and watches time and memory.
///
/// A fuzz target is a function that takes any bytes and must return. In the normal test program it is run by
/// `run_fuzzer`; compiled by clang with -DATHANOR_LIBFUZZER it is libFuzzer's entry (see FUZZ_TARGET):
///
///     clang++ -std=c++20 -g -O1 -I. -DATHANOR_LIBFUZZER -fsanitize=fuzzer,address,undefined tests/fuzz/idx_fuzz.cpp
///         athanor/io/{array,file,gzip,idx,npy,safetensors}.cpp athanor/base/error.cpp athanor/tensor/dtype.cpp -lz

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace athanor::fuzz {

using Input = std::vector<std::uint8_t>;
using Target = void (*)(const std::uint8_t* data, std::size_t size);

struct FuzzOptions {
  std::vector<Input> corpus;          ///< inputs to start from, valid and not
  std::vector<std::string> words;     ///< what mutations insert besides random bytes
  std::size_t memory_per_byte = 64;   ///< one allocation may take so many bytes per input byte …
  std::size_t memory_base = 1 << 22;  ///< … and this
};

/// Runs `target` on the corpus and on mutations of it for $ATHANOR_FUZZ_SECONDS, by default 2. The same inputs in the
/// same order every time. Fails the current test, showing the input, if one takes more than 5 s of the processor or a
/// minute by the clock (a machine may pause), an allocation is larger than allowed, or an exception leaves the target.
void run_fuzzer(Target target, const FuzzOptions& options);

/// Reads every byte, so that a sanitizer sees a range that is not ours.
inline void touch(const void* data, std::size_t size) {
  [[maybe_unused]] static volatile std::uint8_t sink;
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  std::uint8_t sum = 0;
  for (std::size_t i = 0; i < size; ++i) sum ^= bytes[i];
  sink = sum;
}

inline Input bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace athanor::fuzz

#ifdef ATHANOR_LIBFUZZER
#define FUZZ_TARGET(function)                                                         \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    function(data, size);                                                             \
    return 0;                                                                         \
  }                                                                                   \
  static_assert(true)
#else
#define FUZZ_TARGET(function) static_assert(std::is_same_v<decltype(&function), ::athanor::fuzz::Target>)
#endif
