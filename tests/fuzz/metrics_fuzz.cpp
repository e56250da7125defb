// Files of metrics that a MetricsWriter goes on with: whatever is there, whole lines stay, and what is written reads
// back.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "athanor/io/summary_writer.h"
#include "athanor/io/utf8.h"
#include "folder.h"
#include "fuzz.h"

namespace athanor::fuzz {

namespace {

using namespace std::string_literals;

/// The records of CSV by RFC 4180: quotes hold commas and ends of lines, two of them are one.
std::vector<std::vector<std::string>> records(const std::string& text) {
  std::vector<std::vector<std::string>> all;
  bool quoted = false, begun = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!begun) all.emplace_back(1);
    begun = true;
    std::string& field = all.back().back();
    const char c = text[at];
    if (quoted && c == '"' && text.compare(at, 2, "\"\"") == 0)
      field += text[at++];
    else if (c == '"')
      quoted = !quoted;
    else if (quoted)
      field += c;
    else if (c == ',')
      all.back().emplace_back();
    else if (c == '\n')
      begun = false;
    else if (c != '\r' || text.compare(at, 2, "\r\n") != 0)
      field += c;
  }
  return all;
}

/// The file after lines were added to it; empty if it was refused.
std::string after_writing(const std::string& name, const std::uint8_t* data, std::size_t size) {
  const std::string path = written(name, data, size), before(data, data + size);
  try {
    io::MetricsWriter(path).write(7, {{"loss", 0.5}});
    io::MetricsWriter(path).write(8, {{"loss", 0.25}});
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
    EXPECT_TRUE(io::is_utf8(e.what()));
    EXPECT_TRUE(before.starts_with(io::read_text(path)));
    return {};
  }
  std::string after = io::read_text(path);
  const std::string whole = before.substr(0, before.rfind('\n') + 1);
  EXPECT_TRUE(after.starts_with(whole)) << "lines were lost";
  return after;
}

void fuzz_csv(const std::uint8_t* data, std::size_t size) {
  const std::string after = after_writing("metrics.csv", data, size);
  if (after.empty()) return;
  const auto all = records(after);
  const std::vector<std::string> header = {"step", "loss"}, seven = {"7", "0.5"}, eight = {"8", "0.25"};
  ASSERT_GE(all.size(), 3U);
  EXPECT_EQ(all.front(), header);
  EXPECT_EQ(all[all.size() - 2], seven);
  EXPECT_EQ(all.back(), eight);
}

void fuzz_json(const std::uint8_t* data, std::size_t size) {
  const std::string after = after_writing("metrics.jsonl", data, size);
  const std::string expected = "{\"step\": 7, \"loss\": 0.5}\n{\"step\": 8, \"loss\": 0.25}\n";
  ASSERT_TRUE(after.ends_with(expected)) << after;
  const std::size_t begin = after.size() - expected.size();
  EXPECT_TRUE(begin == 0 || after[begin - 1] == '\n') << "joined to a line that was there";
}

}  // namespace

TEST(Fuzz, MetricsInCsv) {
  FuzzOptions options;
  for (const std::string& text :
       {"step,loss\n1,0.5\n2,nan\n"s, "step,loss\r\n1,1e-300\r\n2,0.2"s, "step,\"loss\"\n1,0.5\n"s, "step,lo"s,
        "step,\"two\nlines, \"\"a\"\"\"\n1,2\n"s, "step,loss\n1,0.5\n\0\0\0\0"s, "\n"s, ""s})
    options.corpus.push_back(bytes_of(text));
  options.words = {"step,loss\n", "\n", "\r\n", "\r", "\"", "\"\"", ",", "7,0.5\n", "\0"s, "\xff", "\xc3\xa9"};
  run_fuzzer(fuzz_csv, options);
}

TEST(Fuzz, MetricsInJson) {
  FuzzOptions options;
  for (const std::string& text :
       {"{\"step\": 1, \"loss\": 0.5}\n{\"step\": 2, \"loss\": null}\n"s, "{\"step\": 1, \"a\\\"}\": 0.5}"s,
        "{\"step\": 1}\n{\"st"s, "{\"step\": 1}\n\0\0\0\0"s, std::string(5000, '['), ""s})
    options.corpus.push_back(bytes_of(text));
  options.words = {"{\"step\": 1}", "\n", "}", "{", "[", "\"", "\\u0000", "1e999", "\0"s, "\xff"};
  run_fuzzer(fuzz_json, options);
}

}  // namespace athanor::fuzz
