#pragma once
/// A look at the files that a program is to write, before it works for hours.

#include <unistd.h>
#include <filesystem>
#include <string>

#include "athanor/base/error.h"
#include "athanor/io/file.h"

namespace examples {

/// Throws IoError naming `flag` unless a file could be written at `path`: it is no folder or device, and in a folder
/// that exists and may be written to. An empty path is fine.
inline void check_output(const char* flag, const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  ATHANOR_CHECK_TYPE(IoError, !std::filesystem::is_directory(path, error), flag, ": '", path, "' is a folder");
  ATHANOR_CHECK_TYPE(IoError, !std::filesystem::exists(path, error) || std::filesystem::is_regular_file(path, error),
                     flag, ": '", path, "' exists and is not a regular file");
  const std::string folder = athanor::io::folder_of(path);
  ATHANOR_CHECK_TYPE(IoError, std::filesystem::is_directory(folder, error) && access(folder.c_str(), W_OK | X_OK) == 0,
                     flag, ": cannot write to the folder of '", path, "'");
}

}  // namespace examples
