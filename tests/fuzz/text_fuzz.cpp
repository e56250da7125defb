// Text files: whatever the bytes, lines are the file's, and a corpus holds the text it was made from or says that it is
// not UTF-8.
#include <gtest/gtest.h>

#include "athanor/data/text.h"
#include "folder.h"
#include "fuzz.h"

namespace athanor::fuzz {

namespace {

using data::datasets::CharacterCorpus;
using data::datasets::TextLines;
using namespace std::string_literals;

std::string encoded(std::uint32_t c) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3f)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xc0 | (c >> 6)), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xe0 | (c >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | (c >> 18)), tail(12), tail(6), tail(0)};
}

/// By its definition: every character is what its number is written as.
bool is_utf8(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto first = static_cast<std::uint8_t>(text[at]);
    const std::size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    std::uint32_t c = length == 1 ? first : first & (0xffU >> (length + 1));
    for (std::size_t i = 1; i < length && at + i < text.size(); ++i)
      c = c << 6 | (static_cast<std::uint8_t>(text[at + i]) & 0x3f);
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || text.compare(at, length, encoded(c)) != 0) return false;
    at += length;
  }
  return true;
}

void fuzz_corpus(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  const bool valid = is_utf8(text);
  try {
    CharacterCorpus corpus(text, 1 + size % 5);
    EXPECT_TRUE(valid);
    EXPECT_EQ(corpus.decode(corpus.tokens()), text);
    EXPECT_TRUE(equal(corpus.encode(text), corpus.tokens()));
    if (const std::size_t n = *corpus.size(); n > 0) {
      const auto last = corpus.get(n - 1);
      EXPECT_EQ(corpus.decode(corpus.get_stacked({n - 1}).target), corpus.decode(last.target));
      EXPECT_TRUE(text.ends_with(corpus.decode(last.target)));
    }
  } catch (const IoError&) {
    EXPECT_FALSE(valid);
  }
}

void fuzz_lines(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  TextLines lines(written("text", data, size));
  std::size_t at = 0;
  for (std::size_t i = 0; i < *lines.size(); ++i) {
    const std::string line = lines.get(i);
    EXPECT_EQ(text.compare(at, line.size(), line), 0);
    at += line.size();
    const std::size_t end = text.compare(at, 2, "\r\n") == 0 ? 2 : text.compare(at, 1, "\n") == 0 ? 1 : 0;
    EXPECT_TRUE(end > 0 || at == size) << i;
    at += end;
  }
  EXPECT_EQ(at, size);
}

FuzzOptions texts() {
  FuzzOptions options;
  options.corpus = {
      bytes_of("To be, or not to be:\nthat is the question.\n"),
      bytes_of("one\r\n\r\n\rtwo\n\nlast"),
      bytes_of("\xe4\xbd\xa0\xe5\xa5\xbd, caf\xc3\xa9 \xf0\x9f\x99\x82 \xef\xbf\xbd"),
      bytes_of("\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\0"s),
      bytes_of("\xc0\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xff \xe2\x82"),
      Input(2000, '\n'),
      {},
  };
  options.words = {"\r\n",         "\n",      "\r", "\0"s, "\xc3\xa9", "\xe4\xbd\xa0", "\xf0\x9f\x99\x82",
                   "\xed\xa0\x80", "\xc0\x80"};
  return options;
}

}  // namespace

TEST(Fuzz, TextCorpus) { run_fuzzer(fuzz_corpus, texts()); }

TEST(Fuzz, TextLines) { run_fuzzer(fuzz_lines, texts()); }

}  // namespace athanor::fuzz
