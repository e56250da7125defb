#pragma once
/// Checksums of files. SHA-256 (FIPS 180-4) guards downloads; MD5 (RFC 1321) is here because some published data sets
/// come with nothing better, and guards against accidents only.

#include <cstdint>
#include <string>

#include "athanor/io/file.h"

namespace athanor::io {

/// Lower-case hexadecimal digest of the bytes: 64 characters.
std::string sha256(Bytes bytes);
/// 32 characters.
std::string md5(Bytes bytes);

}  // namespace athanor::io
