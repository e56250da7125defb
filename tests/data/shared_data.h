#pragma once
/// Finds real data for tests: $ATHANOR_DATA, else shared/data in a folder above this source file.

#include <cstdlib>
#include <filesystem>
#include <string>

namespace athanor::data {

/// The folder with `name` (as "mnist") in it; empty if there is none, and the test should be skipped.
inline std::string find_shared_data(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (const char* chosen = std::getenv("ATHANOR_DATA"); chosen && fs::exists(fs::path(chosen) / name, error))
    return fs::path(chosen) / name;
  for (fs::path at = fs::absolute(__FILE__).parent_path(); at != at.root_path(); at = at.parent_path())
    if (const fs::path found = at / "shared/data" / name; fs::exists(found, error)) return found;
  return "";
}

}  // namespace athanor::data
