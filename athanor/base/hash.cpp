#include "athanor/base/hash.h"

#include <array>
#include <bit>
#include <cstring>
#include <vector>

namespace athanor {

namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t kBlock = 64;

// Both hashes eat blocks of 64 bytes and end with a one bit, zeros and the length in bits.
template <class Eat>
void eat_all(Bytes bytes, bool big_endian_length, Eat&& eat) {
  std::size_t at = 0;
  for (; at + kBlock <= bytes.size(); at += kBlock) eat(bytes.data() + at);
  std::array<std::byte, 2 * kBlock> tail{};
  const std::size_t rest = bytes.size() - at;
  if (rest > 0) std::memcpy(tail.data(), bytes.data() + at, rest);
  tail[rest] = std::byte{0x80};
  const std::size_t blocks = rest + 9 <= kBlock ? 1 : 2;
  std::uint64_t bits = static_cast<std::uint64_t>(bytes.size()) * 8;
  if (big_endian_length) bits = __builtin_bswap64(bits);
  std::memcpy(tail.data() + blocks * kBlock - 8, &bits, 8);
  for (std::size_t b = 0; b < blocks; ++b) eat(tail.data() + b * kBlock);
}

std::string hex(const std::uint8_t* bytes, std::size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

constexpr std::uint32_t kSha256Round[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void sha256_block(std::uint32_t (&state)[8], const std::byte* block) {
  std::uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    std::memcpy(&w[i], block + i * 4, 4);
    w[i] = __builtin_bswap32(w[i]);
  }
  for (int i = 16; i < 64; ++i) {
    const std::uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    const std::uint32_t t1 =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kSha256Round[i] + w[i];
    const std::uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::uint32_t sum[8] = {a, b, c, d, e, f, g, h};
  for (int i = 0; i < 8; ++i) state[i] += sum[i];
}

// floor(2^32 * |sin(i + 1)|), RFC 1321.
constexpr std::uint32_t kMd5Round[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};
constexpr int kMd5Turn[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

void md5_block(std::uint32_t (&state)[4], const std::byte* block) {
  std::uint32_t m[16];
  std::memcpy(m, block, sizeof m);
  auto [a, b, c, d] = state;
  for (unsigned i = 0; i < 64; ++i) {
    std::uint32_t f = 0;
    unsigned pick = 0;
    switch (i / 16) {
      case 0:
        f = (b & c) | (~b & d), pick = i;
        break;
      case 1:
        f = (d & b) | (~d & c), pick = (5 * i + 1) % 16;
        break;
      case 2:
        f = b ^ c ^ d, pick = (3 * i + 5) % 16;
        break;
      default:
        f = c ^ (b | ~d), pick = 7 * i % 16;
        break;
    }
    const std::uint32_t turned = std::rotl(a + f + kMd5Round[i] + m[pick], kMd5Turn[i / 16][i % 4]);
    a = d, d = c, c = b, b += turned;
  }
  const std::uint32_t sum[4] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) state[i] += sum[i];
}

}  // namespace

Sha256Digest sha256_digest(Bytes bytes) {
  std::uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  eat_all(bytes, true, [&](const std::byte* block) { sha256_block(state, block); });
  Sha256Digest digest;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::uint32_t word = __builtin_bswap32(state[i]);
    std::memcpy(digest.data() + i * 4, &word, 4);
  }
  return digest;
}

std::string sha256(Bytes bytes) {
  const Sha256Digest digest = sha256_digest(bytes);
  return hex(digest.data(), digest.size());
}

Sha256Digest hmac_sha256(Bytes key, Bytes message) {
  std::array<std::byte, kBlock> pad{};
  if (key.size() > kBlock) {
    const Sha256Digest shorter = sha256_digest(key);
    std::memcpy(pad.data(), shorter.data(), shorter.size());
  } else if (!key.empty()) {
    std::memcpy(pad.data(), key.data(), key.size());
  }
  std::vector<std::byte> text(pad.begin(), pad.end());
  for (std::byte& b : text) b ^= std::byte{0x36};
  text.insert(text.end(), message.begin(), message.end());
  const Sha256Digest inner = sha256_digest(text);
  text.assign(pad.begin(), pad.end());
  for (std::byte& b : text) b ^= std::byte{0x5c};
  const Bytes tail = std::as_bytes(std::span(inner));
  text.insert(text.end(), tail.begin(), tail.end());
  return sha256_digest(text);
}

bool same_digest(const Sha256Digest& a, const Sha256Digest& b) {
  unsigned different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different |= static_cast<unsigned>(a[i] ^ b[i]);
  return different == 0;
}

std::string md5(Bytes bytes) {
  std::uint32_t state[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  eat_all(bytes, false, [&](const std::byte* block) { md5_block(state, block); });
  std::uint8_t digest[16];
  std::memcpy(digest, state, sizeof digest);
  return hex(digest, sizeof digest);
}

}  // namespace athanor
