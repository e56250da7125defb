#include "athanor/launch/local_rank_flag.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "athanor/base/error.h"

extern char** environ;

namespace athanor::launch {

namespace {

constexpr std::size_t kMostOutput = 1 << 20;
constexpr const char* kUnderscore = "--local_rank";
constexpr const char* kDash = "--local-rank";

struct Mentions {
  bool underscore = false, dash = false, text = true, file = false;
  std::string spelling() const { return underscore == dash ? std::string() : underscore ? kUnderscore : kDash; }
};

void look(const std::string& text, Mentions& found) {
  found.underscore = found.underscore || text.find(kUnderscore) != std::string::npos;
  found.dash = found.dash || text.find(kDash) != std::string::npos;
}

// A piece at a time: a program may be large.
Mentions read_mentions(const std::string& path) {
  Mentions found;
  std::ifstream file(path, std::ios::binary);
  found.file = file.is_open();
  std::string buffer(1 << 16, '\0'), kept;
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), file.gcount() > 0) {
    kept.append(buffer, 0, static_cast<std::size_t>(file.gcount()));
    look(kept, found);
    found.text = found.text && kept.find('\0') == std::string::npos;
    kept.erase(0, kept.size() - std::min<std::size_t>(kept.size(), 16));
  }
  return found;
}

// More than a pipe holds, and not for ever: whoever never stops writing is asked for the time between.
void drain(Descriptor& out, std::string& text) {
  char buffer[4096];
  for (int i = 0; i < 64 && out; ++i) {
    const ssize_t got = ::read(out.get(), buffer, sizeof buffer);
    if (got < 0) return;
    if (got == 0) out.reset();
    if (text.size() < kMostOutput) text.append(buffer, static_cast<std::size_t>(got));
  }
}

// What the program prints until it ends or the time is up; nothing of its group stays.
std::string output_of(const Program& program, std::chrono::milliseconds patience) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return {};
  Descriptor out(ends[0]), into(ends[1]);
  ::fcntl(into.get(), F_SETFL, 0);
  const Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  Process process(program, environment, into.get(), into.get(), nothing.get());
  into.reset();
  const Deadline deadline = Deadline::after(patience);
  std::string text;
  for (bool over = false; !over && !deadline.expired();) {
    pollfd waits[] = {{process.watched_fd(), POLLIN, 0}, {out ? out.get() : -1, POLLIN, 0}};
    ::poll(waits, 2, deadline.poll_milliseconds());
    over = waits[0].revents != 0;
    drain(out, text);
  }
  process.signal(SIGKILL);
  process.collect();
  return text;
}

std::string quiet_output_of(const Program& program, std::chrono::milliseconds patience) {
  try {
    return output_of(program, patience);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::string local_rank_spelling(const std::string& text) {
  Mentions found;
  look(text, found);
  return found.spelling();
}

std::string local_rank_flag(const std::string& source, const Program& program, std::chrono::milliseconds patience) {
  const Mentions found = read_mentions(source);
  std::string flag = found.spelling();
  if (flag.empty() && !(found.file && found.text)) {
    Program question = program;
    question.words.emplace_back("--help");
    flag = local_rank_spelling(quiet_output_of(question, patience));
  }
  return flag.empty() ? kDash : flag;
}

std::string file_of_module(const std::string& python, const std::string& module, std::chrono::milliseconds patience) {
  // Finding a module imports the packages that it is in, which may print something of their own.
  constexpr const char* kFind =
      "import importlib.util as u, sys\n"
      "spec = u.find_spec(sys.argv[1])\n"
      "if spec and spec.submodule_search_locations is not None: spec = u.find_spec(sys.argv[1] + '.__main__')\n"
      "print('\\nathanor found:' + (spec.origin if spec and spec.has_location else ''), flush=True)";
  const std::string text = quiet_output_of({python, {python, "-c", kFind, module}}, patience);
  const std::string mark = "\nathanor found:";
  const std::size_t at = text.rfind(mark);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + mark.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace athanor::launch
