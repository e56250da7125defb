#include "athanor/data/text.h"

#include <gtest/gtest.h>

#include "athanor/data/data_loader.h"
#include "athanor/ops/factory.h"
#include "io/helpers.h"

namespace athanor::data::datasets {

using io::error_of;

TEST(TextLines, EndWithTheirEnds) {
  const io::TempFolder folder;
  io::write_file(folder / "x", "one\r\n\ntwo\nlast");
  TextLines lines(folder / "x");
  ASSERT_EQ(*lines.size(), 4U);
  EXPECT_EQ(lines.get(0), "one");
  EXPECT_EQ(lines.get(1), "");
  EXPECT_EQ(lines.get(3), "last");
  EXPECT_THROW(lines.get(4), IndexError);
  io::write_file(folder / "x", "one\n");
  EXPECT_EQ(*TextLines(folder / "x").size(), 1U);
  io::write_file(folder / "x", "");
  EXPECT_EQ(*TextLines(folder / "x").size(), 0U);
}

TEST(CharacterCorpus, TargetsAreTheNextCharacters) {
  CharacterCorpus corpus("hello \xc3\xa9", 3);
  EXPECT_EQ(corpus.characters(), (std::vector<std::string>{" ", "e", "h", "l", "o", "\xc3\xa9"}));
  EXPECT_EQ(*corpus.size(), 4U);
  const auto first = corpus.get(0);
  EXPECT_EQ(corpus.decode(first.data), "hel");
  EXPECT_EQ(corpus.decode(first.target), "ell");
  EXPECT_EQ(corpus.decode(corpus.get(3).target), "o \xc3\xa9");
  EXPECT_TRUE(equal(corpus.encode("hole"), tensor({2, 4, 3, 1}, kLong)));
  EXPECT_THROW(corpus.encode("x"), ValueError);
  EXPECT_THROW(corpus.decode(tensor({6}, kLong)), IndexError);
  EXPECT_THROW(CharacterCorpus("", 1).decode(tensor({0}, kLong)), IndexError);
  EXPECT_THROW(corpus.get(4), IndexError);
  EXPECT_THROW(CharacterCorpus("abc", 0), ValueError);
  EXPECT_EQ(*CharacterCorpus("abc", 3).size(), 0U);
  auto loader = make_data_loader<samplers::SequentialSampler>(corpus.map(transforms::Stack<>()), 4);
  const auto batch = *loader->begin();
  EXPECT_TRUE(equal(batch.target[3], corpus.get(3).target));
  EXPECT_EQ(batch.data.sizes().vec(), (std::vector<std::int64_t>{4, 3}));
}

TEST(CharacterCorpus, RefusesWhatIsNotUtf8) {
  const io::TempFolder folder;
  for (const char* text :
       {"ab\xff", "ab\xc3", "ab\xc0\x80", "ab\xe0\x80\x80", "ab\xed\xa0\x80", "ab\xf4\x90\x80\x80", "ab\xe2\x82"}) {
    io::write_file(folder / "x", std::string(text));
    EXPECT_CONTAINS(error_of([&] { CharacterCorpus::from_file(folder / "x", 1); }), "not UTF-8 at byte 2");
  }
}

}  // namespace athanor::data::datasets
