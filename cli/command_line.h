#pragma once
/// The command lines of the programs here. CLI11 does the work; it is compiled once, in command_line.cpp, since its
/// headers and classes take a program ten times as long as this one does.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's name
class App;
class Option;
}  // namespace CLI

namespace athanor::cli {

/// What else there is to say about a flag. A value that breaks a rule ends CommandLine::parse with a message.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}
  Flag& positive();
  Flag& non_negative();
  /// Both ends belong to it.
  Flag& range(std::int64_t low, std::int64_t high);
  Flag& real_range(double low, double high);
  Flag& one_of(const std::vector<std::string>& values);
  /// rule(text) is empty where the text is right, else the message.
  Flag& check(std::function<std::string(const std::string& text)> rule);
  /// So many values may follow the flag.
  Flag& values(int least, int most);
  /// Values may also be separated by this.
  Flag& separated_by(char delimiter);
  /// The help shows the value that the variable has now.
  Flag& show_default();
  /// Whether the flag was on the command line.
  bool given() const;

 private:
  CLI::Option* option_;
};

class CommandLine {
 public:
  /// Without a name the help shows the program's own.
  explicit CommandLine(const std::string& description, const std::string& name = "");

  /// The variable gets what is given, and stays as it is otherwise: std::string, int, std::int64_t, std::uint64_t,
  /// double, or a vector of the first three. Of a flag given several times the last counts; a vector gets all of them.
  template <class T>
  Flag add(const std::string& name, T& value, const std::string& help);
  Flag add_flag(const std::string& name, bool& value, const std::string& help);

  /// A command with flags of its own. Where there are commands, one has to be given.
  CommandLine command(const std::string& name, const std::string& help);
  /// Whether this command was given.
  bool given() const;
  /// Called by parse() once this command has been read.
  void on_parse(std::function<void()> run);

  /// The exit status of a program that is to end here: help was asked for, or a message about a flag was written.
  std::optional<int> parse(int argc, const char* const* argv);

 private:
  explicit CommandLine(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {}
  std::shared_ptr<CLI::App> app_;
};

}  // namespace athanor::cli
