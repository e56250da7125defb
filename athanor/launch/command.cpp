#include "athanor/launch/command.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "athanor/base/env.h"
#include "athanor/base/error.h"
#include "athanor/launch/local_rank_flag.h"

namespace athanor::launch {

using athanor::detail::str;

namespace {

bool is_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool can_execute(const std::string& path) { return is_file(path) && ::access(path.c_str(), X_OK) == 0; }

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  std::istringstream folders(env::text("PATH").value_or("/usr/local/bin:/usr/bin:/bin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (can_execute(path)) return path;
  }
  return can_execute("./" + name) ? "./" + name : std::string();
}

namespace {

std::string find_python() {
  const auto chosen = env::text("PYTHON_EXEC");
  std::string found = find_program(chosen.value_or("python3"));
  ATHANOR_CHECK_VALUE(!found.empty() && can_execute(found), "a Python program needs ", chosen.value_or("python3"),
                      ", which is not in PATH: set PYTHON_EXEC to an interpreter");
  return found;
}

// Where Python finds a module: in the current folder before anywhere else.
std::string source_of_module(const std::string& python, const std::string& module) {
  std::string path = module;
  std::replace(path.begin(), path.end(), '.', '/');
  for (const char* ending : {".py", "/__main__.py"})
    if (is_file(path + ending)) return path + ending;
  return file_of_module(python, module);
}

}  // namespace

Command::Command(const LaunchOptions& options) {
  const std::string& name = options.command.front();
  const bool asked = options.append_local_rank;
  const bool python = options.module || (!options.no_python && name.ends_with(".py"));
  std::string source = name;
  if (python) {
    program_.path = find_python();
    program_.words = {program_.path, "-u"};
    if (options.module) {
      program_.words.emplace_back("-m");
      if (asked) source = source_of_module(program_.path, name);
    } else {
      ATHANOR_CHECK_VALUE(::access(name.c_str(), R_OK) == 0, "cannot read the program '", name,
                          "': ", distributed::error_text(errno));
    }
    program_.words.push_back(name);
  } else {
    program_.path = source = find_program(name);
    ATHANOR_CHECK_VALUE(!program_.path.empty(), "the program '", name, "' is neither in PATH nor in this folder");
    ATHANOR_CHECK_VALUE(is_file(program_.path), "there is no program '", name, "'");
    ATHANOR_CHECK_VALUE(can_execute(program_.path), "'", name, "' may not be executed (chmod +x?)");
    program_.words = {program_.path};
  }
  if (asked) {
    rank_argument_ = program_.words.size();
    rank_flag_ = local_rank_flag(source, program_);
  }
  program_.words.insert(program_.words.end(), options.command.begin() + 1, options.command.end());
}

Program Command::for_worker(int local_rank) const {
  Program program = program_;
  if (rank_argument_ != 0)
    program.words.insert(program.words.begin() + static_cast<std::ptrdiff_t>(rank_argument_),
                         str(rank_flag_, "=", local_rank));
  return program;
}

std::string Command::text() const {
  std::string all;
  for (const std::string& word : program_.words) all += (all.empty() ? "" : " ") + word;
  return all;
}

}  // namespace athanor::launch
