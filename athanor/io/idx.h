#pragma once
/// IDX, the format of MNIST: a big-endian magic number (element type, rank), one 32-bit size per dimension, the values
/// row-major and big-endian. Read plain or packed with gzip, whichever the content is. Malformed content is an IoError
/// that names the file and what is wrong. Thread-safe.

#include <string>

#include "athanor/io/array.h"
#include "athanor/io/file.h"

namespace athanor::io {

/// uint8, int8, int16, int32, float32 or float64 of any rank up to 255. Sizes are checked against the file's length and
/// `max_bytes` before anything is allocated.
Array read_idx(const std::string& path, std::uint64_t max_bytes = kDefaultMaxBytes);

/// The same from bytes in memory; `name` is used in messages.
Array parse_idx(Bytes content, const std::string& name, std::uint64_t max_bytes = kDefaultMaxBytes);

/// Writes atomically, packed with gzip if `path` ends in ".gz". Throws TypeError for a dtype that IDX lacks, ValueError
/// for more than 255 dimensions or a size past 2^32 - 1.
void write_idx(const std::string& path, const Array& array);

}  // namespace athanor::io
