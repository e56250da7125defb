#pragma once
/// NumPy's .npy files, format versions 1, 2 and 3. The header is parsed by a strict parser of its own: nothing in a
/// file is ever evaluated. Malformed content is an IoError naming the file and what is wrong; element types without a
/// counterpart here (structured, object, string, complex, wide unsigned, dates) are a TypeError saying what to do.
/// Thread-safe.

#include <string>

#include "athanor/io/array.h"
#include "athanor/io/file.h"

namespace athanor::io {

struct NpyHeader {
  DType dtype = DType::Undefined;
  std::vector<std::int64_t> sizes;  ///< at most 64
  bool fortran_order = false;
  bool swapped = false;           ///< values are big-endian
  std::uint64_t data_offset = 0;  ///< of the first value in the file
  std::uint64_t data_bytes = 0;   ///< exactly what follows the header

  std::vector<std::int64_t> strides() const;
};

/// Parses and checks the header against the length of `content`, which is the whole file.
NpyHeader parse_npy_header(Bytes content, const std::string& name);

/// The array in row-major order and in memory of its own, whatever order and byte order the file has. Throws IoError if
/// it is larger than `max_bytes`, before allocating.
Array read_npy(const std::string& path, std::uint64_t max_bytes = kDefaultMaxBytes);
Array parse_npy(Bytes content, const std::string& name, std::uint64_t max_bytes = kDefaultMaxBytes);

/// The array in place: the file is mapped, values load when touched, writes stay private (see MappedFile). Fortran
/// order shows as strides. A big-endian or misaligned file is copied instead.
Array map_npy(const std::string& path);

/// Writes atomically, row-major, little-endian, as numpy.save would. Throws TypeError for bfloat16, which NumPy lacks.
void write_npy(const std::string& path, const Array& array);

}  // namespace athanor::io
