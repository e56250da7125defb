#include "fuzz.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <new>

namespace {
// The largest single request since it was last reset.
std::atomic<std::size_t> largest_request{0};

void note_request(std::size_t size) {
  std::size_t seen = largest_request.load(std::memory_order_relaxed);
  while (size > seen && !largest_request.compare_exchange_weak(seen, size)) {
  }
}
}  // namespace

// The program's definitions stand in for the C++ and C libraries', for the library under test as well.
void* operator new(std::size_t size) {
  note_request(size);
  if (void* p = std::malloc(size ? size : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  note_request(size);
  void* p = nullptr;
  return ::posix_memalign(&p, alignment, size) == 0 ? p : nullptr;
}

namespace athanor::fuzz {

namespace {

// SplitMix64.
class Random {
 public:
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t n) { return n ? static_cast<std::size_t>(bits() % n) : 0; }

 private:
  std::uint64_t state_ = 1;
};

class Mutator {
 public:
  explicit Mutator(const FuzzOptions& options) : options_(options) {}

  Input next() {
    Input input = options_.corpus[random_.below(options_.corpus.size())];
    const std::size_t changes = 1 + random_.below(6);
    for (std::size_t i = 0; i < changes; ++i) change(input);
    return input;
  }

 private:
  void change(Input& input) {
    const std::size_t at = random_.below(input.size() + 1);
    switch (random_.below(10)) {
      case 0:
        return flip_bit(input);
      case 1:
        return set_byte(input, static_cast<std::uint8_t>(random_.bits()));
      case 2:
        return set_number(input);
      case 3:
        return input.resize(at);
      case 4:
        return insert(input, at, Input(1 + random_.below(16), static_cast<std::uint8_t>(random_.bits())));
      case 5:
        return erase(input, at, 1 + random_.below(16));
      case 6:
        return repeat(input, at);
      case 7:
        return splice(input, at);
      case 8:
        return insert_word(input, at);
      default:
        return change_digit(input);
    }
  }

  void flip_bit(Input& input) {
    if (!input.empty()) input[random_.below(input.size())] ^= static_cast<std::uint8_t>(1U << random_.below(8));
  }
  void set_byte(Input& input, std::uint8_t value) {
    if (!input.empty()) input[random_.below(input.size())] = value;
  }
  // A number at the edge of some width, in either byte order.
  void set_number(Input& input) {
    static constexpr std::uint64_t kEdges[] = {0,          1,          0x7f,           0x80,       0xff,
                                               0x7fff,     0xffff,     0x7fffffff,     0x80000000, 0xffffffff,
                                               1ULL << 32, 1ULL << 61, INT64_MAX - 63, 1ULL << 63, UINT64_MAX};
    const std::size_t width = std::size_t{1} << random_.below(4);
    if (input.size() < width) return;
    const std::uint64_t value = kEdges[random_.below(std::size(kEdges))] + random_.below(3) - 1;
    const std::size_t at = random_.below(input.size() - width + 1);
    const bool big_endian = random_.below(2) == 0;
    for (std::size_t i = 0; i < width; ++i)
      input[at + i] = static_cast<std::uint8_t>(value >> (8 * (big_endian ? width - 1 - i : i)));
  }
  static void insert(Input& input, std::size_t at, const Input& what) {
    input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), what.begin(), what.end());
  }
  static void erase(Input& input, std::size_t at, std::size_t count) {
    const auto first = input.begin() + static_cast<std::ptrdiff_t>(at);
    input.erase(first, first + static_cast<std::ptrdiff_t>(std::min(count, input.size() - at)));
  }
  void repeat(Input& input, std::size_t at) {
    const Input piece(input.begin() + static_cast<std::ptrdiff_t>(at), input.end());
    if (input.size() < 1 << 16) insert(input, random_.below(input.size() + 1), piece);
  }
  void splice(Input& input, std::size_t at) {
    const Input& other = options_.corpus[random_.below(options_.corpus.size())];
    input.resize(at);
    input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(random_.below(other.size() + 1)),
                 other.end());
  }
  void insert_word(Input& input, std::size_t at) {
    if (!options_.words.empty()) insert(input, at, bytes_of(options_.words[random_.below(options_.words.size())]));
  }
  // Numbers in text: one digit becomes another, or several.
  void change_digit(Input& input) {
    const auto is_digit = [](std::uint8_t c) { return c >= '0' && c <= '9'; };
    const auto count = std::ranges::count_if(input, is_digit);
    if (count == 0) return flip_bit(input);
    std::size_t left = random_.below(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < input.size(); ++i) {
      if (!is_digit(input[i]) || left-- > 0) continue;
      input[i] = static_cast<std::uint8_t>('0' + random_.below(10));
      if (random_.below(4) == 0) insert(input, i, Input(1 + random_.below(19), '9'));
      return;
    }
  }

  const FuzzOptions& options_;
  Random random_;
};

std::string shown(const Input& input) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(input.size(), 2000); ++i) {
    text += "\\x";
    text += kDigits[input[i] >> 4];
    text += kDigits[input[i] & 15];
  }
  return text;
}

double seconds_to_run() {
  const char* text = std::getenv("ATHANOR_FUZZ_SECONDS");
  return text ? std::atof(text) : 2.0;
}

}  // namespace

void run_fuzzer(Target target, const FuzzOptions& options) {
  using Clock = std::chrono::steady_clock;
  Mutator mutator(options);
  const auto end = Clock::now() + std::chrono::duration<double>(seconds_to_run());
  std::size_t runs = 0;
  const auto run = [&](const Input& input) {
    largest_request = 0;
    const auto start = Clock::now();
    const std::clock_t busy = std::clock();
    try {
      target(input.data(), input.size());
    } catch (const std::exception& e) {
      ADD_FAILURE() << "an exception left the target: " << e.what() << "\ninput: " << shown(input);
    }
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    EXPECT_LT(took, 60.0) << "input: " << shown(input);
    EXPECT_LT(static_cast<double>(std::clock() - busy) / CLOCKS_PER_SEC, 5.0) << "input: " << shown(input);
    const std::size_t allowed = options.memory_base + options.memory_per_byte * input.size();
    EXPECT_LE(largest_request.load(), allowed) << "an allocation too large; input: " << shown(input);
    ++runs;
    return !::testing::Test::HasFailure();
  };
  for (const Input& input : options.corpus)
    if (!run(input)) return;
  while (Clock::now() < end)
    if (!run(mutator.next())) return;
  ::testing::Test::RecordProperty("runs", std::to_string(runs));
  EXPECT_GT(runs, options.corpus.size());
}

}  // namespace athanor::fuzz
