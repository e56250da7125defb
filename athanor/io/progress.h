#pragma once
/// A progress line for loops: items done, rate, time left, loss, and how much of the time went by waiting for data. On
/// a terminal it is one line redrawn in place; elsewhere (a file, a pipe, a pod's log) plain lines now and then.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::io {

struct ProgressOptions {
  /// Nothing is written if false. Default: true unless $RANK is set to something else than 0, so that of many
  /// processes one shows progress.
  std::optional<bool> enabled;
  /// Redraw in place? Default: whether standard error is a terminal (and $TERM is not "dumb").
  std::optional<bool> terminal;
  /// Width in columns. Default: the terminal's.
  std::optional<int> columns;
  double redraw_interval = 0.1;  ///< seconds between redraws on a terminal
  double line_interval = 10;     ///< seconds between plain lines
  std::string unit = "it";       ///< what is counted, as in "120.5 it/s"
  /// Where the text goes; default: standard error.
  std::function<void(std::string_view)> write;
  /// Seconds on a clock that never goes back; default: the steady clock. For tests.
  std::function<double()> now;
};

/// One object serves a whole training: begin() and end() bracket each epoch.
///
///     Progress progress;
///     for (int epoch = 1; epoch <= epochs; ++epoch) {
///       progress.begin("epoch 1/3", loader.size());
///       while (...) {
///         { auto waiting = progress.waiting(); batch = next(); }
///         ...
///         progress.set("loss", loss);
///         progress.update();
///       }
///       progress.end("test accuracy 99.1 %");
///     }
///
/// update() costs some tens of nanoseconds when nothing is due. When more than a fifth of an epoch was spent waiting
/// for data, one hint says so, once. Not thread-safe.
class Progress {
 public:
  explicit Progress(ProgressOptions options = {});
  /// Ends a line that is still open.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Starts counting towards `total` items; 0 or less: unknown.
  void begin(std::string_view title, std::int64_t total = 0);
  void update(std::int64_t items = 1);
  /// A value to show, "loss=0.1234", until changed; the order is that of the first calls.
  void set(std::string_view name, double value);
  /// Leaves one line with the totals and `summary` behind. Without begin() it does nothing.
  void end(std::string_view summary = {});

  /// Counts the time until the returned object goes as waiting for data.
  class Waiting {
   public:
    explicit Waiting(Progress& progress) : progress_(progress), since_(progress.now()) {}
    ~Waiting() { progress_.waited_ += progress_.now() - since_; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Progress& progress_;
    double since_;
  };
  [[nodiscard]] Waiting waiting() { return Waiting(*this); }

  std::int64_t done() const { return done_; }
  /// Items per second since begin().
  double rate() const;
  /// Share of the time since begin() spent waiting, 0 to 1.
  double waiting_share() const;

 private:
  double now() const;
  void show(double at);
  std::string text(double elapsed, bool with_bar, std::size_t bar_room) const;
  void write(std::string_view text) const;
  void draw(const std::string& line);
  void hint(double elapsed);

  ProgressOptions options_;
  bool enabled_;
  bool terminal_;
  bool open_ = false;  // between begin and end
  bool hinted_ = false;
  std::size_t drawn_ = 0;  // columns on the line being redrawn
  std::string title_;
  std::int64_t total_ = 0;
  std::int64_t done_ = 0;
  std::vector<std::pair<std::string, double>> values_;
  double start_ = 0;
  double next_ = 0;  // when to show again
  double waited_ = 0;
};

/// "0:07", "12:34", "3:00:00".
std::string format_duration(double seconds);

}  // namespace athanor::io
