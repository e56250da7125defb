#pragma once
/// Runs Python for tests that compare with the reference implementation of a format. The interpreter is
/// $ATHANOR_TEST_PYTHON, else python3.

#include <cstdlib>
#include <string>

#include "helpers.h"

namespace athanor::io {

inline std::string python() {
  const char* chosen = std::getenv("ATHANOR_TEST_PYTHON");
  return chosen ? chosen : "python3";
}

/// True if the modules ("numpy, safetensors") can be imported.
inline bool python_has(const std::string& modules, const std::string& interpreter = python()) {
  return std::system((interpreter + " -c 'import " + modules + "' >/dev/null 2>&1").c_str()) == 0;
}

/// The Python that has PyTorch: the first of $ATHANOR_PEER_PYTHON, else the other one.
inline std::string peer_python() {
  const char* chosen = std::getenv("ATHANOR_PEER_PYTHON");
  return chosen ? std::string(chosen).substr(0, std::string(chosen).find(':')) : python();
}

/// Runs a script in `folder`; false, with the error shown, if it fails.
inline ::testing::AssertionResult run_python(const TempFolder& folder, const std::string& script,
                                             const std::string& interpreter = python()) {
  write_file(folder / "script.py", script);
  const std::string command = "cd '" + folder.path() + "' && " + interpreter + " script.py > script.out 2>&1";
  if (std::system(command.c_str()) == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << read_text(folder / "script.out");
}

}  // namespace athanor::io

#define SKIP_WITHOUT_PEER(modules)                                   \
  if (!athanor::io::python_has(modules, athanor::io::peer_python())) \
  GTEST_SKIP() << athanor::io::peer_python() << " has no " << (modules) << "; ATHANOR_PEER_PYTHON may name one that has"
#define SKIP_WITHOUT_PYTHON(modules)     \
  if (!athanor::io::python_has(modules)) \
  GTEST_SKIP() << athanor::io::python() << " has no " << (modules) << ": comparison with it left out"
