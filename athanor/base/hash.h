#pragma once
/// Checksums and message authentication. SHA-256 (FIPS 180-4) guards downloads and, as HMAC (RFC 2104), connections
/// between processes; MD5 (RFC 1321) is here because some published data sets come with nothing better, and guards
/// against accidents only.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace athanor {

using Sha256Digest = std::array<std::uint8_t, 32>;

Sha256Digest sha256_digest(std::span<const std::byte> bytes);
/// Lower-case hexadecimal digest of the bytes: 64 characters.
std::string sha256(std::span<const std::byte> bytes);
/// 32 characters.
std::string md5(std::span<const std::byte> bytes);

/// Proves knowledge of `key` to who knows it too.
Sha256Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);
/// Compares in a time that does not depend on where they differ.
bool same_digest(const Sha256Digest& a, const Sha256Digest& b);

}  // namespace athanor
