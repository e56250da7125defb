#include "athanor/io/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace athanor::io {

namespace {

constexpr double kHintShare = 0.2;
constexpr double kHintAfter = 1.0;  // seconds: shorter measurements say little
constexpr int kUsualColumns = 80;

bool first_of_many() {
  const char* rank = std::getenv("RANK");
  return !rank || std::string_view(rank) == "0";
}

bool stderr_is_terminal() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) != 0 && !(kind && std::string_view(kind) == "dumb");
}

int terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualColumns;
}

std::string format(const char* pattern, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, pattern, value);
  return buffer;
}

std::string format_rate(double rate, const std::string& unit) {
  if (rate > 0 && rate < 1) return format("%.2f s/", 1 / rate) + unit;
  if (rate >= 1e6) return format("%.2fM ", rate / 1e6) + unit + "/s";
  if (rate >= 1e4) return format("%.1fk ", rate / 1e3) + unit + "/s";
  return format("%.1f ", rate) + unit + "/s";
}

std::string format_value(double value) {
  const double size = std::abs(value);
  return format(size != 0 && (size < 1e-3 || size >= 1e5) ? "%.3e" : "%.4f", value);
}

}  // namespace

std::string format_duration(double seconds) {
  // Beyond a century, or nonsense: nobody waits for that.
  if (!(seconds >= 0 && seconds < 3e9)) return "?";
  const auto total = static_cast<std::int64_t>(std::llround(seconds));
  char buffer[64];
  if (total >= 3600)
    std::snprintf(buffer, sizeof buffer, "%lld:%02d:%02d", static_cast<long long>(total / 3600),
                  static_cast<int>(total / 60 % 60), static_cast<int>(total % 60));
  else
    std::snprintf(buffer, sizeof buffer, "%d:%02d", static_cast<int>(total / 60), static_cast<int>(total % 60));
  return buffer;
}

Progress::Progress(ProgressOptions options)
    : options_(std::move(options)),
      enabled_(options_.enabled.value_or(first_of_many())),
      terminal_(options_.terminal.value_or(stderr_is_terminal())) {}

Progress::~Progress() {
  if (!open_ || !enabled_ || drawn_ == 0) return;
  try {
    write("\n");
  } catch (...) {  // a destructor must not throw; the line stays open
  }
}

double Progress::now() const {
  if (options_.now) return options_.now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Progress::write(std::string_view text) const {
  if (options_.write) return options_.write(text);
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

double Progress::rate() const {
  const double elapsed = now() - start_;
  return elapsed > 0 ? static_cast<double>(done_) / elapsed : 0;
}

double Progress::waiting_share() const {
  const double elapsed = now() - start_;
  return elapsed > 0 ? std::min(1.0, waited_ / elapsed) : 0;
}

void Progress::begin(std::string_view title, std::int64_t total) {
  if (open_) end();
  open_ = true;
  title_ = title;
  total_ = std::max<std::int64_t>(total, 0);
  done_ = 0;
  waited_ = 0;
  values_.clear();
  start_ = now();
  // A plain line at once would say nothing; a terminal shows that something has begun.
  next_ = start_ + (terminal_ ? 0 : options_.line_interval);
  if (terminal_) show(start_);
}

void Progress::update(std::int64_t items) {
  done_ += items;
  if (!enabled_ || !open_) return;
  const double at = now();
  if (at >= next_) show(at);
}

void Progress::set(std::string_view name, double value) {
  const auto found = std::ranges::find(values_, name, &std::pair<std::string, double>::first);
  if (found != values_.end())
    found->second = value;
  else
    values_.emplace_back(name, value);
}

std::string Progress::text(double elapsed, bool with_bar, std::size_t bar_room) const {
  const double rate = elapsed > 0 ? static_cast<double>(done_) / elapsed : 0;
  const double fraction = total_ > 0 ? std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_)) : 0;
  std::string line = title_.empty() ? "" : title_ + ": ";
  if (total_ > 0) line += format("%3.0f%% ", std::floor(fraction * 100));
  if (with_bar && total_ > 0 && bar_room >= 5) {
    const auto filled = static_cast<std::size_t>(std::lround(fraction * static_cast<double>(bar_room)));
    line += "[" + std::string(filled, '#') + std::string(bar_room - filled, '.') + "] ";
  }
  line += std::to_string(done_);
  if (total_ > 0) line += "/" + std::to_string(total_);
  line += " [" + format_duration(elapsed);
  if (total_ > done_) line += "<" + format_duration(rate > 0 ? static_cast<double>(total_ - done_) / rate : -1);
  line += ", " + format_rate(rate, options_.unit);
  const double share = elapsed > 0 ? std::min(1.0, waited_ / elapsed) : 0;
  if (share >= 0.005) line += format(", waiting %.0f%%", share * 100);
  line += "]";
  for (const auto& [name, value] : values_) line += " " + name + "=" + format_value(value);
  return line;
}

void Progress::draw(const std::string& line) {
  const auto room = static_cast<std::size_t>(std::max(1, options_.columns.value_or(terminal_columns()) - 1));
  const std::string cut = line.substr(0, room);
  // Spaces wipe what is left of a longer line.
  const std::size_t wipe = drawn_ > cut.size() ? drawn_ - cut.size() : 0;
  write("\r" + cut + std::string(wipe, ' '));
  drawn_ = cut.size();
}

void Progress::show(double at) {
  if (!enabled_) return;
  const double elapsed = at - start_;
  if (terminal_) {
    const auto columns = static_cast<std::size_t>(std::max(1, options_.columns.value_or(terminal_columns())));
    const std::size_t plain = text(elapsed, false, 0).size() + 4;
    draw(text(elapsed, true, columns > plain ? std::min<std::size_t>(columns - plain, 30) : 0));
    next_ = at + options_.redraw_interval;
  } else {
    write(text(elapsed, false, 0) + "\n");
    next_ = at + options_.line_interval;
  }
}

void Progress::hint(double elapsed) {
  const double share = waited_ / elapsed;
  if (hinted_ || elapsed < kHintAfter || share <= kHintShare) return;
  hinted_ = true;
  write(
      format("hint: %.0f%% of the time went by waiting for data; give the data loader more workers or a longer "
             "prefetch\n",
             std::min(100.0, share * 100)));
}

void Progress::end(std::string_view summary) {
  if (!open_) return;
  open_ = false;
  if (!enabled_) return;
  const double elapsed = now() - start_;
  std::string line = text(elapsed, false, 0);
  if (!summary.empty()) line += " " + std::string(summary);
  // The last line is kept whole, however long: it will not be redrawn.
  const std::size_t wipe = drawn_ > line.size() ? drawn_ - line.size() : 0;
  write((drawn_ > 0 ? "\r" : "") + line + std::string(wipe, ' ') + "\n");
  drawn_ = 0;
  hint(elapsed);
}

}  // namespace athanor::io
