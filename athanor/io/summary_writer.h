#pragma once
/// Event files for TensorBoard, and metrics as CSV or JSON lines. Writers append and flush record by record: what a
/// crash leaves behind is readable to its last whole record. Failures are IoErrors that name the file. A writer may be
/// used by several threads.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "athanor/ops/tensor.h"

namespace athanor::io {

/// torch.utils.tensorboard.SummaryWriter: one file of events in `log_dir`, which is made if it is missing.
class SummaryWriter {
 public:
  /// `suffix` is added to the file's name, which holds the time, the host and the process.
  explicit SummaryWriter(const std::string& log_dir, const std::string& suffix = {});
  ~SummaryWriter();
  SummaryWriter(const SummaryWriter&) = delete;
  SummaryWriter& operator=(const SummaryWriter&) = delete;

  const std::string& path() const;
  void add_scalar(const std::string& tag, double value, std::int64_t step = 0);
  /// Several values of one step under "main_tag/name".
  void add_scalars(const std::string& main_tag, const std::map<std::string, double>& values, std::int64_t step = 0);
  /// Counts of the values in `bins` intervals of equal width between the smallest and the largest. Values that are not
  /// finite are left out; throws ValueError if no other is there.
  void add_histogram(const std::string& tag, const Tensor& values, std::int64_t step = 0, int bins = 64);
  /// (height, width), (1, height, width) or (3 or 4, height, width); uint8, or floating in [0, 1], clamped.
  void add_image(const std::string& tag, const Tensor& image, std::int64_t step = 0);
  /// (count, channels, height, width) in a grid of up to eight a row, two pixels apart.
  void add_images(const std::string& tag, const Tensor& images, std::int64_t step = 0);
  /// Shown as Markdown.
  void add_text(const std::string& tag, const std::string& text, std::int64_t step = 0);
  void flush();
  /// Later calls throw Error.
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One line per call: as CSV, with a header line, if the path ends in ".csv", else as JSON. Appends to a file that
/// exists; one of CSV must have the same columns. A last line that a process left unfinished is cut off. Numbers are
/// written so that they read back exactly; in JSON, what is not finite becomes null.
class MetricsWriter {
 public:
  explicit MetricsWriter(const std::string& path);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;
  /// Names are UTF-8, and in CSV the same columns in all calls; throws ValueError otherwise.
  void write(std::int64_t step, const std::vector<std::pair<std::string, double>>& values);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace detail {
/// CRC-32C (Castagnoli), as event files and iSCSI use it.
std::uint32_t crc32c(const void* data, std::size_t size);
/// A PNG file of (height, width, channels) bytes, row-major; channels is 1, 3 or 4.
std::string encode_png(const std::uint8_t* pixels, std::uint32_t height, std::uint32_t width, int channels);
}  // namespace detail

}  // namespace athanor::io
