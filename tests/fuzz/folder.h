#pragma once
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>

#include "io/helpers.h"

namespace athanor::fuzz {

/// For targets that read files by their names: of this process, removed at its end. In memory where that can be, so
/// that no input waits for a disk.
inline const io::TempFolder& folder() {
  static const auto folder = [] {
    const char* memory = "/dev/shm";
    if (::access(memory, W_OK) == 0) ::setenv("TMPDIR", memory, 0);
    return std::make_unique<io::TempFolder>();
  }();
  return *folder;
}

/// The path of a file with these bytes.
inline std::string written(const std::string& name, const std::uint8_t* data, std::size_t size) {
  std::ofstream file(folder() / name, std::ios::binary);
  file.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  return folder() / name;
}

}  // namespace athanor::fuzz
