#pragma once
/// Runs Python for tests that compare with the reference implementation of a format: the first of $ATHANOR_PEER_PYTHON
/// (colon-separated), of the environment that the build made, and of python3 that has the modules asked for.

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

#include "helpers.h"

namespace athanor::io {

/// The interpreter that can import the modules ("numpy, safetensors"); empty if there is none.
inline std::string python_with(const std::string& modules) {
  const char* named = std::getenv("ATHANOR_PEER_PYTHON");
  std::istringstream pythons(
      (named ? std::string(named) : "") + ":" +
      (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "python-env/bin/python").string() +
      ":python3");
  const std::string imports = " -c 'import " + modules + "' >/dev/null 2>&1";
  for (std::string python; std::getline(pythons, python, ':');) {
    if (!python.empty() && std::system((python + imports).c_str()) == 0) {
      return python;
    }
  }
  return "";
}

/// Runs a script that needs the modules in `folder`; false, with the error shown, if it fails.
inline ::testing::AssertionResult run_python(const TempFolder& folder, const std::string& modules,
                                             const std::string& script) {
  write_file(folder / "script.py", script);
  const std::string command = "cd '" + folder.path() + "' && " + python_with(modules) + " script.py > script.out 2>&1";
  if (std::system(command.c_str()) == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << read_text(folder / "script.out");
}

}  // namespace athanor::io

#define SKIP_WITHOUT_PYTHON(modules)             \
  if (athanor::io::python_with(modules).empty()) \
  GTEST_SKIP() << "no Python at hand has " << (modules) << "; ATHANOR_PEER_PYTHON may name one that has"
