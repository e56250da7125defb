#include "athanor/io/npy.h"

#include <numeric>

#include "helpers.h"
#include "python.h"

namespace athanor::io {

namespace {

// A file with the given header text, padded to 64 bytes unless `pad` is false, and the data.
std::vector<std::byte> file_of(std::string header, const std::string& data, int version = 1, bool pad = true) {
  const std::size_t prefix = version == 1 ? 10 : 12;
  if (pad) {
    header.append(63 - (prefix + header.size()) % 64, ' ');
    header += '\n';
  }
  std::string text("\x93NUMPY", 6);
  text += static_cast<char>(version);
  text += '\0';
  for (std::size_t i = 0; i < prefix - 8; ++i) text += static_cast<char>(header.size() >> (8 * i));
  return bytes_of(text + header + data);
}

std::vector<std::byte> bytes_1d(const std::string& descr, const std::string& data) {
  return file_of("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (1,), }", data);
}

std::string header_error(const std::string& header) {
  return error_of([&] { parse_npy(file_of(header, std::string(8, '\0')), "f.npy"); });
}

template <class T>
std::vector<T> list(const Array& a) {
  const auto values = a.values<T>();
  return {values.begin(), values.end()};
}

}  // namespace

TEST(Npy, ReadsAllVersions) {
  for (const int version : {1, 2, 3}) {
    const Array a = parse_npy(
        file_of("{'descr': '<i2', 'fortran_order': False, 'shape': (1, 2), }", std::string("\1\0\xff\xff", 4), version),
        "x");
    EXPECT_EQ(a.dtype, kShort);
    EXPECT_EQ(a.sizes, (std::vector<std::int64_t>{1, 2}));
    EXPECT_EQ(list<std::int16_t>(a), (std::vector<std::int16_t>{1, -1}));
  }
}

TEST(Npy, ReadsEveryDtypeInEitherByteOrder) {
  EXPECT_EQ(list<std::uint8_t>(parse_npy(bytes_1d("|u1", "\xff"), "x"))[0], 255);
  EXPECT_EQ(list<std::int8_t>(parse_npy(bytes_1d("|i1", "\xff"), "x"))[0], -1);
  EXPECT_TRUE(parse_npy(bytes_1d("|b1", "\1"), "x").values<bool>()[0]);
  EXPECT_EQ(list<std::int16_t>(parse_npy(bytes_1d(">i2", "\1\2"), "x"))[0], 0x0102);
  EXPECT_EQ(list<std::int32_t>(parse_npy(bytes_1d("<i4", "\1\2\3\4"), "x"))[0], 0x04030201);
  EXPECT_EQ(list<std::int64_t>(parse_npy(bytes_1d(">i8", "\1\2\3\4\5\6\7\x8"), "x"))[0], 0x0102030405060708);
  EXPECT_EQ(static_cast<float>(parse_npy(bytes_1d("<f2", std::string("\0\xbe", 2)), "x").values<Half>()[0]), -1.5F);
  EXPECT_EQ(static_cast<float>(parse_npy(bytes_1d(">f2", std::string("\xbe\0", 2)), "x").values<Half>()[0]), -1.5F);
  EXPECT_EQ(list<float>(parse_npy(bytes_1d(">f4", std::string("\xc0\x20\0\0", 4)), "x"))[0], -2.5F);
  EXPECT_EQ(list<double>(parse_npy(bytes_1d("=f8", std::string("\0\0\0\0\0\0\xf8\x3f", 8)), "x"))[0], 1.5);
}

TEST(Npy, FortranOrderIsTransposedOnReading) {
  const Array a = parse_npy(file_of("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", "\1\2\3\4\5\6"), "x");
  EXPECT_EQ(list<std::uint8_t>(a), (std::vector<std::uint8_t>{1, 3, 5, 2, 4, 6}));
}

TEST(Npy, MappingShowsFortranOrderAsStridesAndCopiesWhatItMust) {
  const TempFolder folder;
  write_file(folder / "f", file_of("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", "\1\2\3\4\5\6"));
  const Array a = map_npy(folder / "f");
  EXPECT_EQ(a.strides, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(static_cast<int>(a.data[0 * 1 + 2 * 2]), 5);
  a.data[0] = std::byte{9};
  EXPECT_EQ(static_cast<int>(read_npy(folder / "f").data[0]), 1) << "a write to mapped values reached the file";

  write_file(folder / "big", bytes_1d(">i4", "\1\2\3\4"));
  EXPECT_EQ(list<std::int32_t>(map_npy(folder / "big"))[0], 0x01020304);
  write_file(folder / "odd", file_of("{'descr':'<i4','fortran_order':False,'shape':(1,)} ", "\1\2\3\4", 1, false));
  const Array odd = map_npy(folder / "odd");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(odd.data) % 4, 0U);
  EXPECT_EQ(list<std::int32_t>(odd)[0], 0x04030201);
}

TEST(Npy, MappedValuesOutliveTheFile) {
  const TempFolder folder;
  Array a;
  {
    const float values[] = {1, 2, 3};
    write_npy(folder / "f", borrow_array(kFloat, {3}, values));
    a = map_npy(folder / "f");
    std::filesystem::remove(folder / "f");
  }
  EXPECT_EQ(list<float>(a), (std::vector<float>{1, 2, 3}));
}

TEST(Npy, HeaderMayBeWrittenInAnyOrderAndSpacing) {
  for (const char* header : {"{'shape': (2,), 'descr': '|u1', 'fortran_order': False}",
                             "{\"shape\":(2L,),\"fortran_order\":False,\"descr\":\"|u1\",}",
                             "{ 'descr' : '|u1' ,\t'fortran_order': False , 'shape': ( 2 , ) , } \n"}) {
    EXPECT_EQ(list<std::uint8_t>(parse_npy(file_of(header, "\1\2"), "x")), (std::vector<std::uint8_t>{1, 2})) << header;
  }
}

TEST(Npy, ZeroDimensionalAndEmptyArrays) {
  EXPECT_EQ(parse_npy(file_of("{'descr': '|u1', 'fortran_order': False, 'shape': ()}", "\7"), "x").sizes.size(), 0U);
  const Array a = parse_npy(
      file_of("{'descr': '<f8', 'fortran_order': True, 'shape': (9223372036854775807, 0, 9223372036854775807)}", ""),
      "x");
  EXPECT_EQ(a.numel(), 0);
  EXPECT_EQ(a.sizes[0], INT64_MAX);
}

TEST(Npy, MalformedHeadersAreNamed) {
  EXPECT_CONTAINS(header_error("{'descr': '|u1', 'shape': (8,)}"), "f.npy: npy header lacks one of the keys");
  EXPECT_CONTAINS(header_error("{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (8,)}"),
                  "unexpected or repeated key 'descr'");
  EXPECT_CONTAINS(header_error("{'x': 1}"), "unexpected or repeated key 'x'");
  EXPECT_CONTAINS(header_error("{'descr': '|u1', 'fortran_order': 0, 'shape': (8,)}"), "no True or False");
  EXPECT_CONTAINS(header_error("{'descr': '|u1', 'fortran_order': False, 'shape': (8)}"), "where a tuple is expected");
  EXPECT_CONTAINS(header_error("{'descr': '|u1', 'fortran_order': False, 'shape': (-8,)}"), "no non-negative integer");
  EXPECT_CONTAINS(header_error("{'descr': '|u1', 'fortran_order': False, 'shape': (4 2)}"), "no comma between");
  EXPECT_CONTAINS(header_error("{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,)}"),
                  "does not fit 64 bits");
  EXPECT_CONTAINS(header_error("{'descr': '|u1', 'fortran_order': False, 'shape': (8,)} x"), "after the closing brace");
  EXPECT_CONTAINS(header_error("{'descr': '|u1', 'fort\n"), "unexpected character in a string");
  EXPECT_CONTAINS(error_of([] { parse_npy(file_of("{'descr': '|u1", "", 1, false), "f"); }), "ends within a string");
  EXPECT_CONTAINS(header_error("{'descr': '|u1', 'fortran_order': False 'shape': (8,)}"), "no '}'");
  EXPECT_CONTAINS(header_error("__import__('os')"), "no '{'");
  EXPECT_CONTAINS(header_error(""), "no '{'");
  std::string many = "{'descr': '|u1', 'fortran_order': False, 'shape': (";
  for (int i = 0; i < 65; ++i) many += "1, ";
  EXPECT_CONTAINS(header_error(many + ")}"), "more than 64 dimensions");
}

TEST(Npy, UnsupportedDtypesSayWhatToDo) {
  const auto message = [](const std::string& descr) {
    return error_of<TypeError>([&] {
      parse_npy(file_of("{'descr': " + descr + ", 'fortran_order': False, 'shape': (1,)}", std::string(8, '\0')),
                "f.npy");
    });
  };
  EXPECT_CONTAINS(message("[('a', '<f4'), ('b', '<i4')]"), "structured dtype");
  EXPECT_CONTAINS(message("'|O'"), "f.npy: npy array of dtype '|O': it holds pickled Python objects");
  EXPECT_CONTAINS(message("'<u4'"), "astype('int64')");
  EXPECT_CONTAINS(message("'<c8'"), "complex");
  EXPECT_CONTAINS(message("'<U3'"), "strings");
  EXPECT_CONTAINS(message("'<M8[ns]'"), "dates");
  EXPECT_CONTAINS(message("'|V2'"), "structured");
  EXPECT_CONTAINS(message("'<f16'"), "float64");
  EXPECT_CONTAINS(message("''"), "expected bool");
}

TEST(Npy, TruncationIsReportedAtEveryLength) {
  const auto whole = bytes_1d("<f8", "12345678");
  for (std::size_t n = 0; n < whole.size(); ++n)
    EXPECT_CONTAINS(error_of([&] { parse_npy(Bytes(whole.data(), n), "f"); }), n < 6 ? "not an npy file" : "truncated");
}

TEST(Npy, OtherMalformedFilesAreNamed) {
  EXPECT_CONTAINS(error_of([] { parse_npy(bytes_of("PK\3\4 something else"), "f"); }), "not an npy file");
  EXPECT_CONTAINS(error_of([] { parse_npy(file_of("{}", "", 4), "f"); }), "version 4.0 is unknown");
  EXPECT_CONTAINS(error_of([] { parse_npy(bytes_1d("|u1", "12"), "f"); }), "1 bytes after the npy array");
  EXPECT_CONTAINS(error_of([] { parse_npy(bytes_1d("|b1", "\2"), "f"); }), "byte 0 of a bool array is 2");
  const std::string huge = "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}";
  EXPECT_CONTAINS(error_of([&] { parse_npy(file_of(huge, ""), "f"); }),
                  "truncated npy file: sizes [4294967296, 4294967296]");
  auto long_header = file_of("{}", "", 2);
  long_header[11] = std::byte{0x7f};
  EXPECT_CONTAINS(error_of([&] { parse_npy(long_header, "f"); }), "more than the limit");
  EXPECT_CONTAINS(error_of([] { parse_npy(bytes_1d("<f8", "12345678"), "f", 7); }), "more than the limit of 7");
}

TEST(Npy, WriteRoundTripsEveryDtype) {
  const TempFolder folder;
  for (const DType t : {kByte, kChar, kShort, kInt, kLong, kHalf, kFloat, kDouble, kBool}) {
    for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{}, {5}, {0, 3}, {2, 3, 4}}) {
      Array a = empty_array(t, sizes);
      for (std::size_t i = 0; i < a.nbytes(); ++i) a.data[i] = static_cast<std::byte>(t == kBool ? i % 2 : i * 7 + 1);
      write_npy(folder / "f.npy", a);
      for (const Array& b : {read_npy(folder / "f.npy"), map_npy(folder / "f.npy")}) {
        EXPECT_EQ(b.dtype, t);
        EXPECT_EQ(b.sizes, sizes);
        EXPECT_TRUE(text_of({a.data, a.nbytes()}) == text_of({b.data, b.nbytes()})) << dtype_name(t);
      }
    }
  }
  EXPECT_CONTAINS(error_of<TypeError>([&] { write_npy(folder / "g", empty_array(kBFloat16, {1})); }), "no bfloat16");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"f.npy"});
}

TEST(Npy, FilesAreNumPysByteForByte) {
  SKIP_WITHOUT_PYTHON("numpy");
  const TempFolder folder;
  ASSERT_TRUE(run_python(folder, "numpy", R"(
import numpy as np
for i, dt in enumerate(['u1', 'i1', 'i2', 'i4', 'i8', 'f2', 'f4', 'f8', '?']):
    for j, shape in enumerate([(), (5,), (0, 3), (2, 3, 4), (1000000, 0)]):
        n = int(np.prod(shape))
        np.save(f'{i}_{j}.npy', np.arange(n).astype(dt).reshape(shape))
np.save('fortran.npy', np.asfortranarray(np.arange(24, dtype='>f4').reshape(2, 3, 4)))
with open('v3.npy', 'wb') as f:
    np.lib.format.write_array(f, np.arange(3.0), version=(3, 0))
)"));
  const DType types[] = {kByte, kChar, kShort, kInt, kLong, kHalf, kFloat, kDouble, kBool};
  const std::vector<std::int64_t> shapes[] = {{}, {5}, {0, 3}, {2, 3, 4}, {1000000, 0}};
  for (int i = 0; i < 9; ++i) {
    for (int j = 0; j < 5; ++j) {
      const std::string path = folder / (std::to_string(i) + "_" + std::to_string(j) + ".npy");
      const Array a = read_npy(path);
      EXPECT_EQ(a.dtype, types[i]);
      EXPECT_EQ(a.sizes, shapes[j]);
      write_npy(folder / "ours.npy", a);
      EXPECT_TRUE(read_text(folder / "ours.npy") == read_text(path)) << path;
    }
  }
  std::vector<float> expected(24);
  std::iota(expected.begin(), expected.end(), 0.0F);
  EXPECT_EQ(list<float>(read_npy(folder / "fortran.npy")), expected);
  EXPECT_EQ(list<double>(map_npy(folder / "v3.npy")), (std::vector<double>{0, 1, 2}));
}

}  // namespace athanor::io
