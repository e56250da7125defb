// Event files read back with a reader of its own: framing, checksums and the fields of tensorboard's messages.
#include "athanor/io/summary_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "athanor/io/file.h"
#include "athanor/ops/factory.h"

namespace athanor::io {
namespace {

using testing::ElementsAre;

/// A folder of its own, removed at the end.
struct Folder {
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "athanor_events_XXXXXX").string();
    path = ::mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
  std::string path;
};

template <class T>
T read(std::string_view& from) {
  T value;
  EXPECT_GE(from.size(), sizeof value);
  std::memcpy(&value, from.data(), sizeof value);
  from.remove_prefix(sizeof value);
  return value;
}

std::uint32_t masked(std::string_view bytes) {
  return std::rotr(detail::crc32c(bytes.data(), bytes.size()), 15) + 0xa282ead8U;
}

std::vector<std::string> records_of(const std::string& path) {
  const std::string content = read_text(path);
  std::string_view left = content;
  std::vector<std::string> out;
  while (!left.empty()) {
    const std::string_view length_bytes = left.substr(0, 8);
    const auto length = read<std::uint64_t>(left);
    EXPECT_EQ(read<std::uint32_t>(left), masked(length_bytes));
    if (left.size() < length + 4) throw std::runtime_error("a record is cut");
    out.emplace_back(left.substr(0, length));
    left.remove_prefix(length);
    EXPECT_EQ(read<std::uint32_t>(left), masked(out.back()));
  }
  return out;
}

/// A decoded message: what each field holds, in order; fixed numbers as their bytes.
struct Message {
  std::multimap<int, std::string> fields;
  explicit Message(std::string_view text) {
    const auto varint = [&] {
      std::uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = read<std::uint8_t>(text);
        value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
      }
    };
    while (!text.empty()) {
      const std::uint64_t key = varint();
      std::string value;
      if ((key & 7) == 0) {
        value = std::to_string(static_cast<std::int64_t>(varint()));
      } else {
        const std::uint64_t size = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : varint();
        value = text.substr(0, size);
        text.remove_prefix(size);
      }
      fields.emplace(static_cast<int>(key >> 3), value);
    }
  }
  const std::string& bytes(int field) const { return fields.find(field)->second; }
  Message message(int field) const { return Message(bytes(field)); }
  template <class T>
  std::vector<T> numbers(int field) const {
    std::string_view packed = bytes(field);
    std::vector<T> out;
    while (!packed.empty()) out.push_back(read<T>(packed));
    return out;
  }
};

/// The only value of the record after the header.
Message value_of(const std::string& path, std::size_t record = 1) {
  return Message(records_of(path).at(record)).message(5).message(1);
}

/// Width, height, kind and the rows without filter bytes of a PNG.
std::string unpacked_png(const std::string& png, std::vector<int>& header) {
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  std::string_view left = std::string_view(png).substr(8);
  const auto number = [&] { return __builtin_bswap32(read<std::uint32_t>(left)); };
  std::string rows;
  while (!left.empty()) {
    const std::uint32_t size = number();
    const std::string chunk(left.substr(0, size + 4));
    left.remove_prefix(size + 4);
    EXPECT_EQ(number(), ::crc32(0, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(chunk.size())));
    if (chunk.starts_with("IHDR")) {
      std::string_view h = std::string_view(chunk).substr(4);
      header.push_back(static_cast<int>(__builtin_bswap32(read<std::uint32_t>(h))));
      header.push_back(static_cast<int>(__builtin_bswap32(read<std::uint32_t>(h))));
      EXPECT_EQ(h[0], 8);
      header.push_back(h[1]);
    } else if (chunk.starts_with("IDAT")) {
      std::string raw(1 << 20, 0);
      uLongf raw_size = raw.size();
      EXPECT_EQ(::uncompress(reinterpret_cast<Bytef*>(raw.data()), &raw_size,
                             reinterpret_cast<const Bytef*>(chunk.data() + 4), chunk.size() - 4),
                Z_OK);
      const std::size_t stride = raw_size / static_cast<std::size_t>(header[1]);
      for (int y = 0; y < header[1]; ++y) rows += raw.substr(static_cast<std::size_t>(y) * stride + 1, stride - 1);
    }
  }
  return rows;
}

}  // namespace

TEST(Crc32c, HasTheStandardsCheckValues) {
  EXPECT_EQ(detail::crc32c("123456789", 9), 0xe3069283U);
  EXPECT_EQ(detail::crc32c("", 0), 0U);
  EXPECT_EQ(detail::crc32c(std::string(32, '\0').data(), 32), 0x8a9136aaU) << "RFC 3720, B.4";
}

TEST(SummaryWriter, ScalarsHaveTagStepAndValue) {
  const Folder folder;
  SummaryWriter writer(folder / "runs/first");
  writer.add_scalar("loss/train", 0.25, 7);
  writer.add_scalars("both", {{"a", -1}, {"b", std::numeric_limits<double>::infinity()}}, std::int64_t{1} << 40);
  const auto records = records_of(writer.path());
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(Message(records[0]).bytes(3), "brain.Event:2");
  const Message event(records[1]);
  EXPECT_EQ(event.bytes(2), "7");
  EXPECT_GT(event.numbers<double>(1)[0], 1.7e9) << "seconds since 1970";
  EXPECT_EQ(value_of(writer.path(), 1).bytes(1), "loss/train");
  EXPECT_THAT(value_of(writer.path(), 1).numbers<float>(2), ElementsAre(0.25F));
  EXPECT_EQ(value_of(writer.path(), 3).bytes(1), "both/b");
  EXPECT_EQ(Message(records[3]).bytes(2), "1099511627776");
  EXPECT_THAT(value_of(writer.path(), 3).numbers<float>(2), ElementsAre(std::numeric_limits<float>::infinity()));
}

TEST(SummaryWriter, TakesNoTextOfAProgramWithoutStandardOutput) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto good = [] {
          const Folder folder;
          ::close(STDOUT_FILENO);
          SummaryWriter writer(folder / "runs/closed");
          writer.add_scalar("loss", 1, 1);
          const bool refused = ::write(STDOUT_FILENO, "printed", 7) < 0;
          return refused && records_of(writer.path()).size() == 2;
        };
        std::_Exit(good() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(SummaryWriter, HistogramCountsEveryFiniteValueOnce) {
  const Folder folder;
  SummaryWriter writer(folder.path);
  writer.add_histogram("w", tensor({0.0, 1.0, 1.5, 3.9, 4.0, NAN, -INFINITY}), 0, 4);
  const Message histogram = value_of(writer.path()).message(5);
  EXPECT_THAT(histogram.numbers<double>(1), ElementsAre(0));
  EXPECT_THAT(histogram.numbers<double>(2), ElementsAre(4));
  EXPECT_THAT(histogram.numbers<double>(3), ElementsAre(5));
  EXPECT_NEAR(histogram.numbers<double>(4)[0], 10.4, 1e-6);
  EXPECT_NEAR(histogram.numbers<double>(5)[0], 1 + 2.25 + 3.9 * 3.9 + 16, 1e-5);
  EXPECT_THAT(histogram.numbers<double>(6), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(histogram.numbers<double>(7), ElementsAre(1, 2, 0, 2));
  writer.add_histogram("same", full({3}, 2.0));
  EXPECT_THAT(value_of(writer.path(), 2).message(5).numbers<double>(7), ElementsAre(3));
  EXPECT_THROW(writer.add_histogram("none", full({3}, NAN)), ValueError);
  EXPECT_THROW(writer.add_histogram("none", empty({0})), ValueError);
}

TEST(SummaryWriter, ImagesArePngsOfTheirPixels) {
  const Folder folder;
  SummaryWriter writer(folder.path);
  writer.add_image("gray", tensor({{0.0, 0.5}, {1.0, 2.0}, {-1.0, NAN}}));
  const Message gray = value_of(writer.path()).message(4);
  EXPECT_EQ(gray.bytes(1) + " " + gray.bytes(2) + " " + gray.bytes(3), "3 2 1");
  std::vector<int> header;
  EXPECT_EQ(unpacked_png(gray.bytes(4), header), std::string("\0\x80\xff\xff\0\0", 6));
  EXPECT_THAT(header, ElementsAre(2, 3, 0));
  const Tensor colors = arange(12, TensorOptions(kByte)).view({3, 2, 2});
  writer.add_image("rgb", colors.transpose(1, 2));
  header.clear();
  EXPECT_EQ(unpacked_png(value_of(writer.path(), 2).message(4).bytes(4), header),
            std::string("\0\4\10\2\6\12\1\5\11\3\7\13", 12));
  EXPECT_THAT(header, ElementsAre(2, 2, 2));
  writer.add_images("grid", full({9, 1, 3, 4}, 1.0));
  header.clear();
  const std::string grid = unpacked_png(value_of(writer.path(), 3).message(4).bytes(4), header);
  EXPECT_THAT(header, ElementsAre(8 * 6 + 2, 2 * 5 + 2, 0));
  EXPECT_EQ(std::count(grid.begin(), grid.end(), '\xff'), 9 * 3 * 4);
  EXPECT_THROW(writer.add_image("flat", ones({5})), ValueError);
  EXPECT_THROW(writer.add_image("two channels", ones({2, 3, 3})), ValueError);
  EXPECT_THROW(writer.add_image("integers", ones({3, 3}, kLong)), TypeError);
  EXPECT_THROW(writer.add_image("empty", ones({0, 3})), ValueError);
}

TEST(SummaryWriter, TextIsAStringTensorForItsPlugIn) {
  const Folder folder;
  SummaryWriter writer(folder.path);
  writer.add_text("notes", "lr **0.1**", 3);
  const Message value = value_of(writer.path());
  EXPECT_EQ(value.bytes(1), "notes/text_summary");
  EXPECT_EQ(value.message(9).message(1).bytes(1), "text");
  EXPECT_EQ(value.message(8).bytes(1), "7");
  EXPECT_EQ(value.message(8).bytes(8), "lr **0.1**");
}

TEST(SummaryWriter, WritersOfOneFolderHaveFilesOfTheirOwnAndEndWithClose) {
  const Folder folder;
  SummaryWriter first(folder.path), second(folder.path, ".eval");
  EXPECT_NE(first.path(), second.path());
  EXPECT_TRUE(second.path().ends_with(".eval"));
  first.close();
  EXPECT_THROW(first.add_scalar("x", 1), Error);
  std::ofstream(folder / "file") << "no folder";
  EXPECT_THROW(SummaryWriter(folder / "file"), IoError);
}

TEST(MetricsWriter, CsvHasAHeaderAndGoesOnInAFileWithTheSameColumns) {
  const Folder folder;
  const std::string path = folder / "metrics.csv";
  MetricsWriter(path).write(1, {{"loss", 0.1}, {"top \"1\", all", 1.0 / 3}});
  MetricsWriter again(path);
  again.write(2, {{"loss", NAN}, {"top \"1\", all", 1e300}});
  EXPECT_EQ(read_text(path), "step,loss,\"top \"\"1\"\", all\"\n1,0.1,0.3333333333333333\n2,nan,1e+300\n");
  EXPECT_THROW(again.write(3, {{"loss", 1}}), ValueError);
  EXPECT_THROW(MetricsWriter(folder / "no/such/folder.csv"), IoError);
}

void put(const std::string& path, const std::string& content) { std::ofstream(path, std::ios::binary) << content; }

TEST(MetricsWriter, LinesLeftUnfinishedAreCutOffAndNeverJoined) {
  const Folder folder;
  const std::string whole = "step,loss\n1,0.5\n2,0.25\n";
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    const std::string path = folder / ("cut" + std::to_string(cut) + ".csv"), begin = whole.substr(0, cut);
    put(path, begin);
    MetricsWriter(path).write(3, {{"loss", 7}});
    const std::string kept = begin.substr(0, begin.rfind('\n') + 1);
    EXPECT_EQ(read_text(path), (kept.empty() ? "step,loss\n" : kept) + "3,7\n") << cut;
  }
  const std::string json = "{\"step\": 1, \"a}\": 0.5}\n{\"step\": 2, \"a}\": 12}\n";
  for (std::size_t cut = 0; cut <= json.size(); ++cut) {
    const std::string path = folder / ("cut" + std::to_string(cut) + ".jsonl"), begin = json.substr(0, cut);
    put(path, begin);
    MetricsWriter(path).write(3, {});
    std::string kept = begin.substr(0, begin.rfind('\n') + 1);
    if (json.substr(cut, 1) == "\n") kept = begin + "\n";  // all but the end of the line
    EXPECT_EQ(read_text(path), kept + "{\"step\": 3}\n") << cut;
  }
}

TEST(MetricsWriter, GoesOnWithTheEndsOfLinesAndTheHeaderThatAreThere) {
  const Folder folder;
  const std::string path = folder / "dos.csv", lines = folder / "lines.csv";
  put(path, "step,loss\r\n1,0.5\r\n2,0.2");
  MetricsWriter(path).write(3, {{"loss", 7}});
  EXPECT_EQ(read_text(path), "step,loss\r\n1,0.5\r\n3,7\r\n");
  EXPECT_THROW(MetricsWriter(path).write(4, {{"other", 7}}), ValueError);
  MetricsWriter(lines).write(1, {{"two\nlines", 1}});
  MetricsWriter(lines).write(2, {{"two\nlines", 2}});
  EXPECT_EQ(read_text(lines), "step,\"two\nlines\"\n1,1\n2,2\n");
}

TEST(MetricsWriter, FilesThatAreNoCsvWithAHeaderAreRefusedAndKept) {
  const Folder folder;
  const std::string path = folder / "other.csv";
  for (const std::string text : {"\n1,2\n", "\r\n1,2\r\n", "step,\"loss\n1,0.5\n2,0.25\n", "step,loss\n1,\"0.5\n"}) {
    put(path, text);
    try {
      MetricsWriter(path).write(3, {{"loss", 7}});
      ADD_FAILURE() << "taken: " << text;
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
    }
    EXPECT_EQ(read_text(path), text);
  }
}

TEST(MetricsWriter, NamesAreUtf8) {
  const Folder folder;
  for (const char* name : {"m.csv", "m.jsonl"}) {
    MetricsWriter writer(folder / name);
    writer.write(1, {{"Verl\xc3\xbcst", 1}});
    for (const std::string bad : {"l\xff", "\xc3", "\xed\xa0\x80", "\xc0\x80"})
      EXPECT_THROW(writer.write(2, {{bad, 1}}), ValueError);
    try {
      writer.write(2, {{"l\xff", 1}});
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find("l\\xff"), std::string::npos) << e.what();
    }
  }
}

TEST(MetricsWriter, JsonHasALinePerCall) {
  const Folder folder;
  const std::string path = folder / "metrics.jsonl";
  MetricsWriter writer(path);
  writer.write(1, {{"loss", 0.5}});
  writer.write(2, {{"a\"\\\n", INFINITY}, {"b", -3}});
  EXPECT_EQ(read_text(path), "{\"step\": 1, \"loss\": 0.5}\n{\"step\": 2, \"a\\\"\\\\\\u000a\": null, \"b\": -3}\n");
}

}  // namespace athanor::io
