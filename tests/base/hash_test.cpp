#include "athanor/base/hash.h"

#include <gtest/gtest.h>

#include <string_view>

namespace athanor {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string hex(const Sha256Digest& digest) {
  std::string text;
  for (const unsigned byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace

// Values from FIPS 180-4's and RFC 1321's examples; those of repeated letters from coreutils.
TEST(Hash, Sha256OfPublishedExamples) {
  EXPECT_EQ(sha256({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256(bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(bytes_of(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Hash, Md5OfPublishedExamples) {
  EXPECT_EQ(md5({}), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5(bytes_of("abc")), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(md5(bytes_of("12345678901234567890123456789012345678901234567890123456789012345678901234567890")),
            "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(Hash, EveryLengthAroundABlockIsPaddedRight) {
  // Digests of 55, 56, 63, 64, 65, 119 and 120 letters "x", by sha256sum.
  const std::pair<int, const char*> expected[] = {
      {55, "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072"},
      {56, "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e"},
      {63, "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2"},
      {64, "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c"},
      {65, "9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9"},
      {119, "000b48d4edf0fa7bee3c6236ecd2785baa5db4eeb8bb54341b029e0d9fa5fb0c"},
      {120, "13f05a0b594787f5ecd315edc96141bd3243203d1b7d4f0836f37308b276ba98"},
  };
  for (const auto& [n, digest] : expected)
    EXPECT_EQ(sha256(bytes_of(std::string(static_cast<std::size_t>(n), 'x'))), digest) << n;
}

// RFC 4231, test cases 1, 2, 3 and 6 (a key longer than a block).
TEST(Hash, HmacOfPublishedExamples) {
  EXPECT_EQ(hex(hmac_sha256(bytes_of(std::string(20, '\x0b')), bytes_of("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256(bytes_of("Jefe"), bytes_of("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(bytes_of(std::string(20, '\xaa')), bytes_of(std::string(50, '\xdd')))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(hex(hmac_sha256(bytes_of(std::string(131, '\xaa')),
                            bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hash, DigestsDifferWhereverAByteDoes) {
  const Sha256Digest a = sha256_digest({});
  for (std::size_t i = 0; i < a.size(); ++i) {
    Sha256Digest b = a;
    b[i] ^= 1;
    EXPECT_FALSE(same_digest(a, b));
  }
  EXPECT_TRUE(same_digest(a, sha256_digest({})));
}

}  // namespace athanor
