#include "athanor/io/safetensors.h"

#include "athanor/io/utf8.h"
#include "helpers.h"
#include "python.h"

namespace athanor::io::safetensors_test {

namespace {

SafetensorsFile parse(const std::string& header, std::size_t data_bytes, std::uint64_t claimed_length = 0) {
  auto content = std::make_shared<std::vector<std::byte>>();
  const std::uint64_t length = claimed_length ? claimed_length : header.size();
  const auto* p = reinterpret_cast<const std::byte*>(&length);
  content->assign(p, p + 8);
  const auto text = bytes_of(header);
  content->insert(content->end(), text.begin(), text.end());
  for (std::size_t i = 0; i < data_bytes; ++i) content->push_back(static_cast<std::byte>(i));
  return SafetensorsFile(*content, content, "f");
}

std::string error(const std::string& header, std::size_t data_bytes = 0, std::uint64_t claimed_length = 0) {
  return error_of([&] { parse(header, data_bytes, claimed_length); });
}

std::string tensor(const std::string& name, const std::string& type, const std::string& shape, const std::string& at) {
  return '"' + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + at + '}';
}

constexpr DType kAllTypes[] = {kByte, kChar, kShort, kInt, kLong, kHalf, kFloat, kDouble, kBool, kBFloat16};

Array filled(DType t, IntArrayRef sizes, int seed) {
  Array a = empty_array(t, sizes);
  for (std::size_t i = 0; i < a.nbytes(); ++i)
    a.data[i] = static_cast<std::byte>(t == kBool ? (i + seed) % 2 : i * 7 + seed);
  return a;
}

std::string values_text(const Array& a) { return text_of({a.data, a.nbytes()}); }

}  // namespace

TEST(Safetensors, RoundTripsEveryDtypeShapeAndMetadata) {
  const TempFolder folder;
  std::vector<std::pair<std::string, Array>> tensors;
  int seed = 0;
  for (const DType t : kAllTypes) {
    for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{}, {3}, {0, 7}, {2, 3, 5}}) {
      ++seed;
      tensors.emplace_back("t" + std::to_string(seed), filled(t, sizes, seed));
    }
  }
  const std::map<std::string, std::string> metadata{{"format", "pt"}, {"n\"ame", "値\n\\"}};
  write_safetensors(folder / "m.safetensors", tensors, metadata);
  const SafetensorsFile file(folder / "m.safetensors");
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.entries().size(), tensors.size());
  for (const auto& [name, a] : tensors) {
    const Array b = file.get(name);
    EXPECT_EQ(b.dtype, a.dtype);
    EXPECT_EQ(b.sizes, a.sizes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data) % item_size(b.dtype), 0U) << name;
    EXPECT_TRUE(values_text(a) == values_text(b)) << name;
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{"m.safetensors"});
}

TEST(Safetensors, NoTensorsAtAll) {
  const TempFolder folder;
  write_safetensors(folder / "m", {});
  EXPECT_EQ(read_text(folder / "m"), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_TRUE(SafetensorsFile(folder / "m").entries().empty());
}

TEST(Safetensors, ArraysOutliveTheFileObjectAndWritesStayPrivate) {
  const TempFolder folder;
  write_safetensors(folder / "m", {{"w", filled(kFloat, {4}, 1)}});
  const std::string before = read_text(folder / "m");
  const Array w = SafetensorsFile(folder / "m").get("w");
  w.data[0] = std::byte{77};
  EXPECT_EQ(static_cast<int>(w.data[0]), 77);
  EXPECT_EQ(read_text(folder / "m"), before);
}

TEST(Safetensors, StridedArraysAreStoredRowMajor) {
  const TempFolder folder;
  Array t = filled(kShort, {2, 3}, 0);
  t.sizes = {3, 2};
  t.strides = {1, 3};
  write_safetensors(folder / "m", {{"t", t}});
  EXPECT_EQ(values_text(SafetensorsFile(folder / "m").get("t")), values_text(contiguous(t)));
}

TEST(Safetensors, MisalignedValuesAreCopied) {
  const auto file = parse("{" + tensor("a", "U8", "[1]", "[0,1]") + "," + tensor("b", "F32", "[2]", "[1,9]") + "}", 9);
  const Array b = file.get("b");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data) % 4, 0U);
  EXPECT_EQ(values_text(b), std::string("\1\2\3\4\5\6\7\x8", 8));
}

TEST(Safetensors, TypesWithoutCounterpartOpenButCannotBeTaken) {
  const auto file = parse("{" + tensor("a", "F8_E4M3", "[2]", "[0,2]") + "," + tensor("b", "F4", "[4]", "[2,4]") + "," +
                              tensor("c", "U8", "[1]", "[4,5]") + "}",
                          5);
  EXPECT_EQ(values_text(file.get("c")), "\4");
  EXPECT_CONTAINS(error_of<TypeError>([&] { (void)file.get("a"); }), "tensor 'a' has dtype F8_E4M3");
  EXPECT_CONTAINS(error("{" + tensor("b", "F4", "[3]", "[0,2]") + "}", 2), "not 2 bytes apart");
}

TEST(Safetensors, UnknownNameListsTheKnownOnes) {
  const auto file = parse("{" + tensor("fc.weight", "U8", "[1]", "[0,1]") + "}", 1);
  EXPECT_TRUE(file.contains("fc.weight"));
  EXPECT_FALSE(file.contains("fc.bias"));
  EXPECT_CONTAINS(error_of<IndexError>([&] { (void)file.get("fc.bias"); }),
                  "no tensor 'fc.bias' among its 1: 'fc.weight'");
}

TEST(Safetensors, BoolsOtherThanZeroAndOneAreReported) {
  const auto file = parse("{" + tensor("mask", "BOOL", "[3]", "[0,3]") + "}", 3);
  EXPECT_CONTAINS(error_of([&] { (void)file.get("mask"); }), "tensor 'mask': byte 2 of a bool array is 2");
}

TEST(Safetensors, HostileLengthsAreRefused) {
  EXPECT_CONTAINS(error("{}", 0, 3), "f: truncated safetensors file: header of 3 bytes, 2 follow");
  EXPECT_CONTAINS(error("{}", 0, UINT64_MAX), "header of 18446744073709551615 bytes");
  EXPECT_CONTAINS(error("{}", 0, 100'000'001), "at most 100000000 are allowed");
  auto short_content = std::make_shared<std::vector<std::byte>>(7);
  EXPECT_CONTAINS(error_of([&] { SafetensorsFile(*short_content, short_content, "f"); }), "truncated");
  EXPECT_CONTAINS(error(" {}"), "does not begin with '{'");
  EXPECT_CONTAINS(error(""), "does not begin with '{'");
}

TEST(Safetensors, MalformedHeadersAreNamed) {
  EXPECT_CONTAINS(error("{"), "f: safetensors header is not valid JSON");
  EXPECT_CONTAINS(error("{} x"), "not valid JSON");
  EXPECT_CONTAINS(error("{\"a\xff\":1}"), "not valid JSON");
  EXPECT_CONTAINS(error(R"({"a":1})"), "tensor 'a' has a number where something else is expected");
  EXPECT_CONTAINS(error(R"({"a":null})"), "null");
  EXPECT_CONTAINS(error(R"({"a":[[[[]]]]})"), "an array");
  EXPECT_CONTAINS(error(R"({"a":{"dtype":{}}})"), "an object");
  EXPECT_CONTAINS(error(R"({"a":{"shape":[[1]]}})"), "an array");
  EXPECT_CONTAINS(error(R"({"a":{"dtype":"F32","shape":[1]}})"), "tensor 'a' lacks one of");
  EXPECT_CONTAINS(error(R"({"a":{"dtype":"F32","extra":1}})"), "unexpected or repeated key 'extra'");
  EXPECT_CONTAINS(error(R"({"a":{"dtype":"F32","dtype":"F32"}})"), "unexpected or repeated key 'dtype'");
  EXPECT_CONTAINS(error("{" + tensor("a", "F32", "[-1]", "[0,4]") + "}"), "a negative number");
  EXPECT_CONTAINS(error("{" + tensor("a", "F32", "[1.0]", "[0,4]") + "}"), "the number 1.0");
  EXPECT_CONTAINS(error("{" + tensor("a", "F32", "[1e2]", "[0,4]") + "}"), "the number 1e2");
  EXPECT_CONTAINS(error("{" + tensor("a", "F32", "[18446744073709551616]", "[0,4]") + "}"), "the number");
  EXPECT_CONTAINS(error("{" + tensor("a", "F32", "[9223372036854775808]", "[0,4]") + "}"), "does not fit 63 bits");
  EXPECT_CONTAINS(error("{" + tensor("a", "F32", "[1]", "[0]") + "}"), "fewer than two data_offsets");
  EXPECT_CONTAINS(error("{" + tensor("a", "F32", "[1]", "[0,4,8]") + "}"), "more than two data_offsets");
  EXPECT_CONTAINS(error("{" + tensor("a", "F33", "[1]", "[0,4]") + "}"), "unknown dtype 'F33'");
  EXPECT_CONTAINS(error(R"({"__metadata__":{"a":1}})"), "a number");
  EXPECT_CONTAINS(error(R"({"__metadata__":"x"})"), "a string");
  EXPECT_CONTAINS(error(R"({"__metadata__":{"a":"1","a":"2"}})"), "repeats the metadata key 'a'");
  EXPECT_CONTAINS(error(R"({"__metadata__":{},"__metadata__":{}})"), "repeats __metadata__");
}

TEST(Safetensors, OffsetsMustCoverTheDataExactlyOnce) {
  const std::string one = tensor("a", "U8", "[4]", "[0,4]");
  EXPECT_CONTAINS(error("{" + one + "," + tensor("b", "U8", "[4]", "[2,6]") + "}", 6), "tensor 'b' overlaps");
  EXPECT_CONTAINS(error("{" + one + "," + tensor("b", "U8", "[4]", "[5,9]") + "}", 9), "tensor 'b' leaves a hole");
  EXPECT_CONTAINS(error("{" + tensor("b", "U8", "[4]", "[1,5]") + "}", 5), "tensor 'b' leaves a hole");
  EXPECT_CONTAINS(error("{" + one + "}", 3), "truncated safetensors file: its tensors take 4 bytes, 3 follow");
  EXPECT_CONTAINS(error("{" + one + "}", 5), "its tensors take 4 bytes, 5 follow");
  EXPECT_CONTAINS(error("{}", 1), "its tensors take 0 bytes, 1 follow");
  EXPECT_CONTAINS(error("{" + tensor("a", "F32", "[2]", "[0,4]") + "}", 4), "[0, 4], which are not 8 bytes apart");
  EXPECT_CONTAINS(error("{" + tensor("a", "U8", "[4]", "[4,0]") + "}", 4), "not 4 bytes apart");
  EXPECT_CONTAINS(error("{" + tensor("a", "U8", "[4294967296,4294967296]", "[0,0]") + "}"), "more than 2^63 bits");
  EXPECT_CONTAINS(error("{" + tensor("a", "U8", "[0]", "[18446744073709551615,18446744073709551615]") + "}"), "a hole");
  EXPECT_CONTAINS(error("{" + one + "," + one + "}", 4), "repeats the tensor 'a'");
  EXPECT_CONTAINS(error("{" + tensor("a", "U8", "[0]", "[0,0]") + "," + tensor("a", "U8", "[0]", "[0,0]") + "}"),
                  "repeats the tensor 'a'");
}

TEST(Safetensors, NamesThatAreNotUtf8AndTooManyDimensionsNameTheFile) {
  const std::string bytes = error("{" + tensor("a\xff", "F32", "[1]", "[0,4]") + "}", 4);
  EXPECT_EQ(bytes.rfind("f: ", 0), 0U) << bytes;
  EXPECT_TRUE(is_utf8(bytes) && bytes.find("\\xff") != std::string::npos) << bytes;
  std::string ones = "[1";
  for (int i = 1; i < 65; ++i) ones += ",1";
  const std::string many = error("{" + tensor("a", "F32", ones + "]", "[0,4]") + "}", 4);
  EXPECT_EQ(many, "f: safetensors tensor 'a' has 65 dimensions, tensors have at most 64");
  const TempFolder folder;
  const std::string path = folder / "m.safetensors";
  try {
    write_safetensors(path, {{"b\xff", filled(kFloat, {1}, 0)}}, {});
    ADD_FAILURE() << "wrote it";
  } catch (const ValueError& e) {
    EXPECT_CONTAINS(std::string(e.what()), path);
    EXPECT_CONTAINS(std::string(e.what()), "b\\xff");
  }
}

TEST(Safetensors, DeepNestingIsRefusedAtOnce) {
  std::string deep = R"({"a":{"shape":)" + std::string(1000000, '[');
  EXPECT_CONTAINS(error(deep), "an array where something else is expected");
}

TEST(Safetensors, SavingRefusesBadNames) {
  const TempFolder folder;
  const Array a = filled(kByte, {1}, 0);
  EXPECT_THROW(write_safetensors(folder / "m", {{"__metadata__", a}}), ValueError);
  EXPECT_THROW(write_safetensors(folder / "m", {{"a", a}, {"a", a}}), ValueError);
  EXPECT_THROW(write_safetensors(folder / "m", {{"\xff", a}}), ValueError);
  EXPECT_THROW(write_safetensors(folder / "m", {{"a", Array{}}}), TypeError);
  EXPECT_TRUE(folder.names().empty());
}

TEST(Safetensors, FilesAreThePythonPackagesByteForByte) {
  SKIP_WITHOUT_PYTHON("numpy, safetensors.numpy");
  const TempFolder folder;
  ASSERT_TRUE(run_python(folder, "numpy, safetensors.numpy", R"(
import numpy as np, safetensors, safetensors.numpy as st
tensors = {}
for dt in ['u1', 'i1', 'i2', 'i4', 'i8', 'f2', 'f4', 'f8', '?']:
    for shape in [(), (3,), (0, 7), (2, 3, 5)]:
        n = int(np.prod(shape))
        tensors[f'{dt}."{shape}" é'] = np.arange(n).astype(dt).reshape(shape)
# bfloat16 has no NumPy type: its bytes are given as those of int16.
tensors['bf'] = np.array([0x3f80, 0x4000, 0x4040], 'i2')
def spec(name, v):
    dtype = 'bfloat16' if name == 'bf' else v.dtype.name
    if hasattr(safetensors, 'TensorSpec'):
        return safetensors.TensorSpec(dtype=dtype, shape=v.shape, data_ptr=v.ctypes.data, data_len=v.nbytes)
    return {'dtype': dtype, 'shape': list(v.shape), 'data': v.tobytes()}
raw = {k: spec(k, v) for k, v in tensors.items()}
open('theirs', 'wb').write(safetensors.serialize(raw, metadata={'format': 'pt'}))
)"));
  const SafetensorsFile theirs(folder / "theirs");
  std::vector<std::pair<std::string, Array>> tensors;
  for (const SafetensorsEntry& entry : theirs.entries()) tensors.emplace_back(entry.name, theirs.get(entry));
  EXPECT_EQ(tensors.size(), 37U);
  const auto bf = theirs.get("bf").values<BFloat16>();
  EXPECT_EQ((std::vector<float>(bf.begin(), bf.end())), (std::vector<float>{1, 2, 3}));
  std::reverse(tensors.begin(), tensors.end());
  write_safetensors(folder / "ours", tensors, theirs.metadata());
  EXPECT_TRUE(read_text(folder / "ours") == read_text(folder / "theirs"));
  EXPECT_TRUE(run_python(folder, "numpy, safetensors.numpy", R"(
from safetensors import safe_open
with safe_open('ours', 'numpy') as f:
    assert f.metadata() == {'format': 'pt'}
    assert len(f.keys()) == 37
)"));
}

}  // namespace athanor::io::safetensors_test
