#include "athanor/io/idx.h"

#include "athanor/io/gzip.h"
#include "helpers.h"

namespace athanor::io {

namespace {
// 2 x 3 bytes, written out by hand.
const std::vector<std::byte> kPlain = bytes_of({0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 10, 20, 30, 40, 50, 60});

std::vector<std::byte> cut(std::vector<std::byte> bytes, std::size_t size) {
  bytes.resize(size);
  return bytes;
}
}  // namespace

TEST(Gzip, RoundTripsAndIsDeterministic) {
  const auto content = bytes_of(std::string(100000, 'a') + "tail");
  const auto packed = gzip(content);
  EXPECT_LT(packed.size(), 1000U);
  EXPECT_EQ(packed, gzip(content));
  EXPECT_TRUE(is_gzip(packed));
  EXPECT_TRUE(gunzip(packed, "x", 1 << 20) == content);
  EXPECT_TRUE(gunzip(gzip({}), "x", 0).empty());
}

TEST(Gzip, MembersInARowAreOneStreamAndZeroPaddingIsIgnored) {
  auto packed = gzip(bytes_of("one "));
  const auto second = gzip(bytes_of("two"));
  packed.insert(packed.end(), second.begin(), second.end());
  packed.resize(packed.size() + 512);
  EXPECT_EQ(text_of(gunzip(packed, "x", 100)), "one two");
}

TEST(Gzip, ReportsTruncationCorruptionGarbageAndSize) {
  const auto packed = gzip(bytes_of("some text that is packed"));
  for (std::size_t n = 0; n < packed.size(); ++n)
    EXPECT_CONTAINS(error_of([&] { gunzip(cut(packed, n), "f.gz", 100); }), "f.gz: truncated gzip stream");
  auto bad = packed;
  bad[bad.size() - 6] ^= std::byte{1};
  EXPECT_CONTAINS(error_of([&] { gunzip(bad, "f.gz", 100); }), "incorrect data check");
  bad = packed;
  bad[bad.size() - 1] ^= std::byte{1};
  EXPECT_CONTAINS(error_of([&] { gunzip(bad, "f.gz", 100); }), "incorrect length check");
  bad = packed;
  bad.push_back(std::byte{7});
  EXPECT_CONTAINS(error_of([&] { gunzip(bad, "f.gz", 100); }), "1 bytes of garbage after the gzip stream");
  EXPECT_CONTAINS(error_of([&] { gunzip(packed, "f.gz", 10); }), "more than the limit of 10");
  EXPECT_THROW(gzip({}, 0), ValueError);
}

TEST(Idx, ReadsPlainAndPackedAlike) {
  for (const auto& content : {kPlain, gzip(kPlain)}) {
    const Array a = parse_idx(content, "x");
    EXPECT_EQ(a.dtype, kByte);
    EXPECT_EQ(a.sizes, (std::vector<std::int64_t>{2, 3}));
    const auto values = a.values<std::uint8_t>();
    EXPECT_EQ(std::vector<int>(values.begin(), values.end()), (std::vector<int>{10, 20, 30, 40, 50, 60}));
  }
}

TEST(Idx, DecodesEveryElementType) {
  const auto one = [](std::initializer_list<int> bytes) { return parse_idx(bytes_of(bytes), "x"); };
  EXPECT_EQ(one({0, 0, 0x09, 0, 0xff}).values<std::int8_t>()[0], -1);
  EXPECT_EQ(one({0, 0, 0x0B, 0, 0xff, 0xfe}).values<std::int16_t>()[0], -2);
  EXPECT_EQ(one({0, 0, 0x0C, 0, 0x01, 0x02, 0x03, 0x04}).values<std::int32_t>()[0], 0x01020304);
  EXPECT_EQ(one({0, 0, 0x0D, 0, 0xc0, 0x20, 0, 0}).values<float>()[0], -2.5F);
  EXPECT_EQ(one({0, 0, 0x0E, 0, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0}).values<double>()[0], 1.5);
}

TEST(Idx, AnyRankIsRead) {
  auto content = bytes_of({0, 0, 8, 255});
  for (int d = 0; d < 255; ++d)
    for (const int byte : {0, 0, 0, 1}) content.push_back(static_cast<std::byte>(byte));
  content.push_back(std::byte{9});
  const Array a = parse_idx(content, "x");
  EXPECT_EQ(a.sizes.size(), 255U);
  EXPECT_EQ(a.values<std::uint8_t>()[0], 9);
}

TEST(Idx, EmptyArraysAreFine) {
  const Array a = parse_idx(bytes_of({0, 0, 8, 2, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}), "x");
  EXPECT_EQ(a.numel(), 0);
}

TEST(Idx, TruncationIsReportedAtEveryLength) {
  for (std::size_t n = 0; n < kPlain.size(); ++n) {
    EXPECT_CONTAINS(error_of([&] { parse_idx(cut(kPlain, n), "f"); }), "f: truncated");
    EXPECT_CONTAINS(error_of([&] { parse_idx(gzip(cut(kPlain, n)), "f"); }), "f: truncated");
  }
  const auto packed = gzip(kPlain);
  for (std::size_t n = 2; n < packed.size(); ++n)
    EXPECT_CONTAINS(error_of([&] { parse_idx(cut(packed, n), "f"); }), "f: truncated");
}

TEST(Idx, BytesAfterTheValuesAreReported) {
  auto more = kPlain;
  more.push_back(std::byte{0});
  EXPECT_CONTAINS(error_of([&] { parse_idx(more, "f"); }), "f: 1 bytes after the end");
  EXPECT_CONTAINS(error_of([&] { parse_idx(gzip(more), "f"); }), "f: bytes after the end");
}

TEST(Idx, ChecksumErrorIsReported) {
  auto packed = gzip(kPlain);
  packed[packed.size() - 5] ^= std::byte{1};
  EXPECT_CONTAINS(error_of([&] { parse_idx(packed, "f"); }), "f: corrupt gzip stream");
}

TEST(Idx, WrongMagicIsReported) {
  EXPECT_CONTAINS(error_of([] { parse_idx(bytes_of("\x89PNG...."), "f"); }), "f: not an IDX file");
  EXPECT_CONTAINS(error_of([] { parse_idx(bytes_of({0, 0, 10, 0, 0}), "f"); }), "IDX element type 10 is unknown");
}

TEST(Idx, HostileSizesAreRefusedBeforeAllocating) {
  const auto huge = bytes_of({0, 0, 0x0E, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255});
  EXPECT_CONTAINS(error_of([&] { parse_idx(huge, "f"); }), "f: IDX header claims sizes [4294967295, 4294967295,");
  const auto large = bytes_of({0, 0, 8, 1, 127, 255, 255, 255, 1, 2, 3});
  EXPECT_CONTAINS(error_of([&] { parse_idx(large, "f"); }), "2147483647 bytes, but at most 3 can follow");
  EXPECT_CONTAINS(error_of([&] { parse_idx(gzip(large), "f"); }), "truncated");
  EXPECT_CONTAINS(error_of([&] { parse_idx(kPlain, "f", 5); }), "more than the limit of 5 bytes");
}

TEST(Idx, WriteRoundTripsEveryTypeThroughFiles) {
  const TempFolder folder;
  for (const DType t : {kByte, kChar, kShort, kInt, kFloat, kDouble}) {
    for (const char* name : {"a-idx2", "a-idx2.gz"}) {
      Array a = empty_array(t, {3, 5});
      for (std::size_t i = 0; i < a.nbytes(); ++i) a.data[i] = static_cast<std::byte>(i * 7 + 1);
      write_idx(folder / name, a);
      const Array b = read_idx(folder / name);
      EXPECT_EQ(b.dtype, t);
      EXPECT_EQ(b.sizes, a.sizes);
      EXPECT_EQ(std::memcmp(a.data, b.data, a.nbytes()), 0) << dtype_name(t) << ' ' << name;
    }
  }
  EXPECT_TRUE(is_gzip(read_file(folder / "a-idx2.gz")));
  EXPECT_FALSE(is_gzip(read_file(folder / "a-idx2")));
}

TEST(Idx, WriteStoresStridedValuesRowMajor) {
  const TempFolder folder;
  const std::uint8_t values[] = {1, 2, 3, 4, 5, 6};
  Array a = borrow_array(kByte, {2, 3}, values);
  a.sizes = {3, 2};
  a.strides = {1, 3};
  write_idx(folder / "t", a);
  const Array b = read_idx(folder / "t");
  const auto out = b.values<std::uint8_t>();
  EXPECT_EQ(std::vector<int>(out.begin(), out.end()), (std::vector<int>{1, 4, 2, 5, 3, 6}));
}

TEST(Idx, WriteRefusesWhatTheFormatLacks) {
  const TempFolder folder;
  EXPECT_CONTAINS(error_of<TypeError>([&] { write_idx(folder / "x", empty_array(kLong, {1})); }), "IDX has no int64");
  EXPECT_THROW(write_idx(folder / "x", empty_array(kByte, {std::int64_t{1} << 33, 0})), ValueError);
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace athanor::io
