#include "athanor/launch/report.h"

#include <charconv>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "athanor/base/error.h"

namespace athanor::launch {

using athanor::detail::str;
using nlohmann::json;

std::string Failure::json() const {
  const nlohmann::json object = {{"rank", rank},    {"local_rank", local_rank}, {"pid", pid},
                                 {"host", host},    {"code", ending.exit_code}, {"signal", ending.signal},
                                 {"when", when},    {"after", after_seconds},   {"message", message},
                                 {"log", log_file}, {"lines", last_lines},      {"attempt", attempt},
                                 {"ranks", ranks}};
  // Workers may print anything.
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Failure Failure::from_json(const std::string& text) {
  try {
    const auto object = nlohmann::json::parse(text);
    Failure f;
    f.rank = object.at("rank");
    f.local_rank = object.at("local_rank");
    f.pid = object.at("pid");
    f.host = object.at("host");
    f.ending.exit_code = object.at("code");
    f.ending.signal = object.at("signal");
    f.when = object.at("when");
    f.after_seconds = object.at("after");
    f.message = object.at("message");
    f.log_file = object.at("log");
    f.last_lines = object.at("lines");
    f.attempt = object.at("attempt");
    f.ranks = object.at("ranks");
    return f;
  } catch (const nlohmann::json::exception& error) {
    ATHANOR_THROW(Error, "a malformed report of a failure came from another agent: ", error.what());
  }
}

namespace {

// Whether a text says of a rank other than `own` that it is gone, has left or has failed, in the words of process
// groups: "rank 3 is gone", "rank 3 (global rank 7) has left".
bool blames_another(const std::string& text, int own) {
  constexpr std::string_view kRank = "rank ", kVerdicts[] = {" is gone", " has left", " failed in "};
  for (std::size_t at = text.find(kRank); at != std::string::npos; at = text.find(kRank, at + 1)) {
    const std::size_t number = at + kRank.size();
    std::size_t end = std::min(text.find_first_not_of("0123456789", number), text.size());
    int rank = -1;
    std::from_chars(text.data() + number, text.data() + end, rank);
    if (text.compare(end, 2, " (") == 0) end = std::min(text.find(')', end), text.size() - 1) + 1;
    for (const std::string_view verdict : kVerdicts)
      if (rank >= 0 && rank != own && text.compare(end, verdict.size(), verdict) == 0) return true;
  }
  return false;
}

}  // namespace

int Failure::likely_consequence() const {
  const bool blames = blames_another(message, rank) || blames_another(last_lines, rank);
  // An error that a C++ program does not catch ends it by abort().
  if (ending.signal != 0 && !(ending.signal == SIGABRT && blames)) return 0;
  return blames ? 2 : 1;
}

namespace {

std::string indented(const std::string& text, const std::string& margin) {
  std::string all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) all += margin + line + "\n";
  return all;
}

std::string tenths(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

}  // namespace

std::string describe(const std::string& launcher, const Failure& first, int max_restarts) {
  std::string text = str(launcher, ": rank ", first.rank, " failed first: ", first.ending.text(), "\n");
  text += str("  on ", first.host, ", local rank ", first.local_rank, ", process ", first.pid, ", at ", first.when,
              ", ", tenths(first.after_seconds), " after its start");
  if (max_restarts > 0) text += str(", attempt ", first.attempt + 1, " of ", max_restarts + 1);
  text += "\n";
  if (!first.message.empty()) text += "  it reported:\n" + indented(first.message, "    ");
  if (!first.last_lines.empty()) text += "  last lines of its stderr:\n" + indented(first.last_lines, "    | ");
  if (!first.log_file.empty()) text += str("  all of it: ", first.log_file, "\n");
  return text + indented(first.ranks, "  ");
}

std::string describe_rest(const Failure& first, const std::vector<Failure>& failures, const std::vector<int>& stopped) {
  std::string text;
  for (const Failure& failure : failures)
    if (failure.rank != first.rank) text += str("  then rank ", failure.rank, ": ", failure.ending.text(), "\n");
  if (!stopped.empty()) {
    std::string ranks;
    for (const int rank : stopped) ranks += str(ranks.empty() ? "" : ", ", rank);
    text += str("  stopped because of it: rank ", ranks, "\n");
  }
  return text;
}

std::string read_error_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return {};
  std::stringstream text;
  text << file.rdbuf();
  const auto object = nlohmann::json::parse(text.str(), nullptr, false);
  if (!object.is_object() || !object.contains("message")) return {};
  const auto& message = object["message"];
  if (message.is_string()) return message.get<std::string>();
  if (!message.is_object()) return {};
  if (const auto& info = message.value("extraInfo", nlohmann::json::object()); info.is_object())
    if (const auto trace = info.find("py_callstack"); trace != info.end() && trace->is_string())
      return trace->get<std::string>();
  const auto inner = message.find("message");
  return inner != message.end() && inner->is_string() ? inner->get<std::string>() : std::string();
}

}  // namespace athanor::launch
