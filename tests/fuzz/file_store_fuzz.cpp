// The FileStore's file, which processes of a job share, and the lock of a download: whatever is in them, they are used
// as they should be or refused with an error that names the file.
#include <fcntl.h>
#include <gtest/gtest.h>

#include "athanor/distributed/error.h"
#include "athanor/distributed/store/file_store.h"
#include "athanor/io/file_lock.h"
#include "folder.h"
#include "fuzz.h"

namespace athanor::fuzz {

namespace {

using distributed::Descriptor;
using distributed::FileStore;
using namespace std::string_literals;

/// Another process of the job, as far as the file shows: it has it open.
Descriptor held(const std::string& path, short type, off_t begin, off_t length) {
  Descriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = begin;
  lock.l_len = length;
  EXPECT_EQ(::fcntl(fd.get(), F_OFD_SETLK, &lock), 0);
  return fd;
}

std::string entry(char kind, const std::string& key, const std::string& value) {
  const auto number = [](std::uint64_t n, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(n >> (8 * i));
    return text;
  };
  const std::string text = number(0x31475641, 4) + number(static_cast<std::uint64_t>(kind), 4) + number(key.size(), 8) +
                           number(value.size(), 8) + key + value;
  return text + number(~std::uint64_t{text.size() + 8}, 8);
}

void fuzz_store(const std::uint8_t* data, std::size_t size) {
  const std::string path = written("store", data, size);
  const Descriptor other = held(path, F_RDLCK, (off_t{1} << 60) + 1, 1);
  const std::chrono::milliseconds patience(1000);
  try {
    FileStore store(path, patience);
    const std::int64_t keys = store.num_keys();
    const bool had = store.check({"mine"});
    if (store.check({"counter"})) {
      try {
        store.add("counter", 1);
      } catch (const distributed::DistStoreError&) {  // no number
      }
    }
    const std::vector<std::uint8_t> value = {1, 2, 3};
    store.set("mine", value);
    // One that opens the file now sees the same.
    FileStore again(path, patience);
    EXPECT_EQ(again.get("mine", patience), value);
    EXPECT_EQ(again.num_keys(), keys + (had ? 0 : 1));
    EXPECT_TRUE(again.delete_key("mine"));
    EXPECT_FALSE(store.check({"mine"}));
  } catch (const distributed::DistStoreError& e) {
    EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
    EXPECT_TRUE(std::ranges::equal(io::read_file(path), std::as_bytes(std::span(data, size)))) << "changed and refused";
  }
}

void fuzz_lock(const std::uint8_t* data, std::size_t size) {
  const std::string path = written("lock", data, size);
  {
    const Descriptor other = held(path, F_WRLCK, 0, 0);
    const std::string error = io::error_of([&] { io::FileLock(path, 0); });
    EXPECT_NE(error.find(path), std::string::npos) << error;
  }
  // Left by a process that was killed.
  io::FileLock lock(path, 0);
  EXPECT_FALSE(lock.finished_by_other());
  EXPECT_EQ(lock.note(), "");
  lock.finish("done");
  EXPECT_EQ(lock.note(), "done");
}

}  // namespace

TEST(Fuzz, FileStore) {
  FuzzOptions options;
  const std::string first = entry('d', "", "");
  for (const std::string& text :
       {""s, first, first + entry('s', "counter", "41") + entry('s', "key", std::string(300, 'x')),
        first + entry('s', "key", "a") + entry('d', "key", "") + entry('s', "counter", "x"),
        first + entry('s', "mine", "old") + entry('s', "cut", "off").substr(0, 30), "something else, and long enough"s})
    options.corpus.push_back(bytes_of(text));
  options.words = {"AVG1", "s\0\0\0"s, "d\0\0\0"s, entry('s', "k", "v"), entry('d', "key", ""), "\0\0\0\0\0\0\0\0"s};
  run_fuzzer(fuzz_store, options);
}

TEST(Fuzz, LockFile) {
  FuzzOptions options;
  options.corpus = {
      bytes_of("1234\n"), bytes_of("1234\ndone"), bytes_of("99999999999999999999\n"), {}, Input(5000, '7')};
  options.words = {"\n", "-1", "done", "\0"s};
  run_fuzzer(fuzz_lock, options);
}

}  // namespace athanor::fuzz
