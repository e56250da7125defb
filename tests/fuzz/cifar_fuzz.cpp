// CIFAR's files, binary and pickled: reading returns or throws IoError or, for other dtypes, TypeError.
#include <gtest/gtest.h>

#include "athanor/data/cifar.h"
#include "folder.h"
#include "fuzz.h"

namespace athanor::fuzz {

namespace {

using namespace std::string_literals;

void read(const char* file, const std::uint8_t* data, std::size_t size) {
  written(file, data, size);
  try {
    const data::datasets::CIFAR10 set(folder().path(), data::datasets::CIFAR::Mode::kTest);
    touch(set.bytes().data_ptr(), set.bytes().nbytes());
  } catch (const IoError&) {
  } catch (const TypeError&) {
  }
  std::filesystem::remove(folder() / file);
}

}  // namespace

TEST(Fuzz, CifarBinary) {
  FuzzOptions options;
  options.corpus = {Input(3073, 7), Input(2 * 3073, 1), Input(3072, 1), {}};
  run_fuzzer([](const std::uint8_t* data, std::size_t size) { read("test_batch.bin", data, size); }, options);
}

TEST(Fuzz, CifarPickled) {
  FuzzOptions options;
  options.corpus = {bytes_of(
      "\x80\x02}(U\4dataq\1cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\1b\x87R(K\1K\1M\0\x0c\x86"
      "cnumpy\ndtype\nU\2u1K\0K\1\x87R(K\3U\1|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89T\0\x0c\0\0"s +
      std::string(3072, 'x') + "tbU\6labels](K\6eu."s)};
  options.words = {"u1", "i8", "K\0"s, "M\0\x0c\x86"s, "U\6labels"s, "]", "N", "\x88"};
  run_fuzzer([](const std::uint8_t* data, std::size_t size) { read("test_batch", data, size); }, options);
}

}  // namespace athanor::fuzz
