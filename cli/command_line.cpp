#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <type_traits>

namespace athanor::cli {

namespace {

// A rule for numbers; what is none says so itself when it is read.
std::function<std::string(std::string&)> number_rule(const char* expected, bool (*good)(double)) {
  return [=](std::string& text) {
    double value = 0;
    if (!CLI::detail::lexical_cast(text, value) || good(value)) return std::string();
    return std::string("expected a number ") + expected + ", got " + text;
  };
}

// Without it what is too large becomes the largest.
std::string fits_in_64_bits(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return {};
  return "expected an integer from 0 to 18446744073709551615, got " + text;
}

}  // namespace

Flag& Flag::positive() {
  option_->check(CLI::Validator(number_rule("above 0", [](double v) { return v > 0; }), "POSITIVE"));
  return *this;
}
Flag& Flag::non_negative() {
  option_->check(CLI::Validator(number_rule("of at least 0", [](double v) { return v >= 0; }), "NONNEGATIVE"));
  return *this;
}
Flag& Flag::range(std::int64_t low, std::int64_t high) {
  option_->check(CLI::Range(low, high));
  return *this;
}
Flag& Flag::real_range(double low, double high) {
  option_->check(CLI::Range(low, high));
  return *this;
}
Flag& Flag::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}
Flag& Flag::check(std::function<std::string(const std::string&)> rule) {
  option_->check(std::move(rule));
  return *this;
}
Flag& Flag::values(int least, int most) {
  option_->expected(least, most);
  return *this;
}
Flag& Flag::separated_by(char delimiter) {
  option_->delimiter(delimiter);
  return *this;
}
Flag& Flag::show_default() {
  option_->capture_default_str();
  return *this;
}
bool Flag::given() const { return option_->count() > 0; }

CommandLine::CommandLine(const std::string& description, const std::string& name)
    : app_(std::make_shared<CLI::App>(description, name)) {}

template <class T>
Flag CommandLine::add(const std::string& name, T& value, const std::string& help) {
  CLI::Option* option = app_->add_option(name, value, help);
  // As argparse does: a script's settings may be followed by others. A list goes on where it is given again.
  if constexpr (!std::is_same_v<T, std::vector<std::string>> && !std::is_same_v<T, std::vector<int>> &&
                !std::is_same_v<T, std::vector<std::int64_t>>)
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  if constexpr (std::is_same_v<T, std::uint64_t>) option->check(fits_in_64_bits);
  return Flag(option);
}
template Flag CommandLine::add(const std::string&, std::string&, const std::string&);
template Flag CommandLine::add(const std::string&, int&, const std::string&);
template Flag CommandLine::add(const std::string&, std::int64_t&, const std::string&);
template Flag CommandLine::add(const std::string&, std::uint64_t&, const std::string&);
template Flag CommandLine::add(const std::string&, double&, const std::string&);
template Flag CommandLine::add(const std::string&, std::vector<std::string>&, const std::string&);
template Flag CommandLine::add(const std::string&, std::vector<int>&, const std::string&);
template Flag CommandLine::add(const std::string&, std::vector<std::int64_t>&, const std::string&);

Flag CommandLine::add_flag(const std::string& name, bool& value, const std::string& help) {
  return Flag(app_->add_flag(name, value, help)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast));
}

CommandLine CommandLine::command(const std::string& name, const std::string& help) {
  app_->require_subcommand(1);
  return CommandLine(std::shared_ptr<CLI::App>(app_, app_->add_subcommand(name, help)));
}
bool CommandLine::given() const { return app_->parsed(); }
void CommandLine::on_parse(std::function<void()> run) { app_->callback(std::move(run)); }

std::optional<int> CommandLine::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app_->exit(error);
  }
  return std::nullopt;
}

}  // namespace athanor::cli
