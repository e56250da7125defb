// Files of torch.save: whatever the bytes of the archive, or of the pickle in it, reading returns or throws.
#include <sstream>

#include "athanor/io/archive.h"
#include "athanor/io/pickle.h"
#include "athanor/io/pt.h"
#include "fuzz.h"
#include "io/pt_builder.h"

namespace athanor::fuzz {

namespace {

using io::Pickle;
using namespace std::string_literals;

void touch_tensors(const IValue& value, int depth = 0) {
  if (value.isTensor()) {
    const Tensor t = value.toTensor().contiguous();
    if (t.numel() > 0) touch(t.data_ptr(), t.nbytes());
  } else if (depth < 3 && value.isGenericDict()) {
    for (const auto& e : value.toGenericDict()) touch_tensors(e.value(), depth + 1);
  } else if (depth < 3 && (value.isList() || value.isTuple())) {
    for (const IValue& v : value.elements()) touch_tensors(v, depth + 1);
  }
}

void fuzz_archive(const std::uint8_t* data, std::size_t size) {
  try {
    io::parse_pt(std::as_bytes(std::span(data, size)), "input");
    std::istringstream stream(std::string(data, data + size));
    serialize::InputArchive archive;
    archive.load_from(stream);
    archive.keys();
  } catch (const IoError&) {
  } catch (const TypeError&) {  // a dtype that has no counterpart
  }
}

void fuzz_pickle(const std::uint8_t* data, std::size_t size) {
  static std::byte storage[256];
  const io::StorageLoader loader = [](const std::string& key, std::size_t) {
    return io::StorageBytes{storage + key.size() % 2, sizeof storage - 1, nullptr};
  };
  try {
    const IValue value = io::unpickle(std::as_bytes(std::span(data, size)), "input", loader);
    touch_tensors(value);
    io::pickle(value, [](const Tensor& t) { return std::pair(t, "0"s); });
  } catch (const IoError&) {
  } catch (const TypeError&) {
  }
}

std::vector<std::string> pickles() {
  const std::string tensor = Pickle::tensor("K\0K\3K\2\x86K\1K\3\x86"s, "FloatStorage", "0", 6);
  const std::string numpy =
      "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\1b\x87R(K\1K\2K\2\x86"
      "cnumpy\ndtype\nU\2i2K\0K\1\x87R(K\3U\1>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89U\x08"
      "12345678tb"s;
  return {
      Pickle::whole("}(" + Pickle::text("a") + tensor + Pickle::text("b") + "G\x3f\xe0\0\0\0\0\0\0"s + "u"),
      Pickle::whole("ccollections\nOrderedDict\n)Rq\0("s + Pickle::text("w") + "ctorch._utils\n_rebuild_parameter\n" +
                    tensor + "\x88}\x87Ru}" + Pickle::text("_metadata") + "h\0sb"s),
      Pickle::whole("}(" + Pickle::text("data") + numpy + Pickle::text("labels") + "](K\1M\2\1J\3\0\0\0eu"s),
      "\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94(\x8c\1a\x94K\1\x8c\x0b"
      "collections\x8c\7Counter\x93}\x85Ru."s,
      Pickle::whole("c_codecs\nencode\n" + Pickle::text("\xc3\xa9x") + Pickle::text("latin1") + "\x86R"),
      Pickle::whole("ctorch._utils\n_rebuild_tensor_v3\n((" + Pickle::text("storage") +
                    "ctorch.storage\nUntypedStorage\n" + Pickle::text("1") + Pickle::text("cpu") +
                    "K\x10tQK\0K\4\x85K\1\x85\x89}ctorch\nbfloat16\ntR"s),
  };
}

const std::vector<std::string> kWords = {"ctorch\nSize\n",
                                         "h\0"s,
                                         "q\0"s,
                                         "(",
                                         "t",
                                         "\x85R",
                                         "]",
                                         "a",
                                         "e",
                                         "}",
                                         "s",
                                         "u",
                                         "b",
                                         "Q",
                                         "\x81",
                                         "\x8f",
                                         "\x90",
                                         "\x94",
                                         "\x93",
                                         "\x8a\x08",
                                         "BoolStorage",
                                         "0",
                                         "bfloat16",
                                         "cnumpy\ndtype\n"};

}  // namespace

}  // namespace athanor::fuzz

FUZZ_TARGET(athanor::fuzz::fuzz_archive);

#ifndef ATHANOR_LIBFUZZER
#include <gtest/gtest.h>

namespace athanor::fuzz {

TEST(Fuzz, PickleReader) {
  FuzzOptions options;
  for (const std::string& p : pickles()) options.corpus.push_back(bytes_of(p));
  options.words = kWords;
  run_fuzzer(fuzz_pickle, options);
}

TEST(Fuzz, PtReader) {
  FuzzOptions options;
  const std::string storage(64, '\1');
  for (const std::string& p : pickles())
    options.corpus.push_back(bytes_of(io::pt_file(p, {{"0", storage}, {"1", storage}})));
  // A list of 300 numbers, deflated, from Python's zipfile.
  options.corpus.push_back(
      bytes_of("\120\113\003\004\024\000\000\000\010\000\000\000\041\000\324\225\160\033\017\000\000\000\136\002\000"
               "\000\012\000\000\000\141\057\144\141\164\141\056\160\153\154\153\140\212\325\360\146\037\205\243\220"
               "\372\060\125\017\000\120\113\001\002\024\003\024\000\000\000\010\000\000\000\041\000\324\225\160\033"
               "\017\000\000\000\136\002\000\000\012\000\000\000\000\000\000\000\000\000\000\000\200\001\000\000\000"
               "\000\141\057\144\141\164\141\056\160\153\154\120\113\005\006\000\000\000\000\001\000\001\000\070\000"
               "\000\000\067\000\000\000\000\000"s));
  const Input& packed = options.corpus.back();
  EXPECT_EQ(io::parse_pt(std::as_bytes(std::span(packed)), "x").elements().size(), 300U);
  options.words = kWords;
  options.words.insert(options.words.end(),
                       {"PK\3\4", "PK\1\2", "PK\5\6", "PK\6\6", "PK\6\7", "data.pkl", "byteorder"});
  run_fuzzer(fuzz_archive, options);
}

}  // namespace athanor::fuzz
#endif
