#include "athanor/io/summary_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "athanor/io/event_record.h"
#include "athanor/io/file.h"
#include "athanor/io/utf8.h"

namespace athanor::io {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::FILE* open_to_append(const std::string& path) {
  detail::Descriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  std::FILE* const file = fd.get() < 0 ? nullptr : ::fdopen(fd.get(), "ab");
  if (file) fd.release();
  return file;
}

/// A file that is appended to.
class AppendFile {
 public:
  explicit AppendFile(std::string path) : path_(std::move(path)), file_(open_to_append(path_)) {
    ATHANOR_CHECK_TYPE(IoError, file_, "cannot open '", path_, "' for writing: ", std::strerror(errno));
  }
  ~AppendFile() {
    if (file_) std::fclose(file_);
  }
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  const std::string& path() const { return path_; }
  void write(const std::string& bytes) {
    ATHANOR_CHECK(file_, "the writer of '", path_, "' is closed");
    const bool good = std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size() && std::fflush(file_) == 0;
    ATHANOR_CHECK_TYPE(IoError, good, "cannot write to '", path_, "': ", std::strerror(errno));
  }
  /// Cuts the file to its first `size` bytes.
  void truncate(std::size_t size) {
    ATHANOR_CHECK_TYPE(IoError, ::ftruncate(::fileno(file_), static_cast<::off_t>(size)) == 0, "cannot shorten '",
                       path_, "': ", std::strerror(errno));
  }
  void close() {
    if (file_ && std::fclose(std::exchange(file_, nullptr)) != 0)
      ATHANOR_THROW(IoError, "cannot write to '", path_, "': ", std::strerror(errno));
  }

 private:
  std::string path_;
  std::FILE* file_;
};

std::string event_path(const std::string& folder, const std::string& suffix) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  ATHANOR_CHECK_TYPE(IoError, !error, "cannot make the folder '", folder, "': ", error.message());
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  // Two writers of one process within a second need different names.
  static std::atomic<int> number{0};
  char name[512];
  std::snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%d.%d", static_cast<long long>(now()), host,
                static_cast<int>(::getpid()), number++);
  return (std::filesystem::path(folder) / name).string() + suffix;
}

/// Rows of bytes, (height, width, channels).
struct Pixels {
  std::vector<std::uint8_t> bytes;
  std::uint32_t height, width;
  int channels;
};

Pixels pixels_of(const Tensor& image_) {
  ATHANOR_CHECK_VALUE(image_.defined() && (image_.dim() == 2 || image_.dim() == 3),
                      "add_image: expected (height, width) or (channels, height, width), got ", image_);
  Tensor image = image_.detach().cpu();
  if (image.dim() == 2) image = image.unsqueeze(0);
  const std::int64_t channels = image.size(0);
  ATHANOR_CHECK_VALUE(channels == 1 || channels == 3 || channels == 4,
                      "add_image: expected 1, 3 or 4 channels first, got shape ", image_.sizes());
  ATHANOR_CHECK_TYPE(TypeError, image.dtype() == kByte || image.is_floating_point(),
                     "add_image: expected uint8 or floating values, got ", image_.dtype());
  if (image.is_floating_point()) image = (image.to(kFloat).nan_to_num(0.0).clamp(0, 1) * 255).round().to(kByte);
  image = image.permute({1, 2, 0}).contiguous();
  const auto* data = image.data_ptr<std::uint8_t>();
  return {{data, data + image.numel()},
          static_cast<std::uint32_t>(image.size(0)),
          static_cast<std::uint32_t>(image.size(1)),
          static_cast<int>(channels)};
}

/// Images side by side on black.
Tensor grid_of(const Tensor& images) {
  ATHANOR_CHECK_VALUE(images.defined() && images.dim() == 4 && images.size(0) > 0,
                      "add_images: expected (count, channels, height, width), got ", images);
  constexpr std::int64_t kGap = 2;
  const std::int64_t n = images.size(0), columns = std::min<std::int64_t>(n, 8), rows = (n + columns - 1) / columns;
  const std::int64_t h = images.size(2) + kGap, w = images.size(3) + kGap;
  Tensor grid = zeros({images.size(1), rows * h + kGap, columns * w + kGap}, images.options());
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t top = i / columns * h + kGap, left = i % columns * w + kGap;
    grid.slice(1, top, top + h - kGap).slice(2, left, left + w - kGap).copy_(images.select(0, i));
  }
  return grid;
}

/// tensorboard's HistogramProto.
ProtoMessage histogram_of(const Tensor& values, int bins) {
  ATHANOR_CHECK_VALUE(values.defined() && bins > 0, "add_histogram: expected a tensor and a positive number of bins");
  const Tensor flat = values.detach().cpu().to(kDouble).reshape({-1}).contiguous();
  std::vector<double> finite;
  const auto* data = flat.data_ptr<double>();
  std::copy_if(data, data + flat.numel(), std::back_inserter(finite), [](double v) { return std::isfinite(v); });
  ATHANOR_CHECK_VALUE(!finite.empty(), "add_histogram: no finite value among ", flat.numel());
  const auto [low, high] = std::minmax_element(finite.begin(), finite.end());
  const double least = *low, greatest = *high, width = (greatest / bins - least / bins);
  std::vector<double> limits, counts(static_cast<std::size_t>(width > 0 ? bins : 1));
  double sum = 0, squares = 0;
  for (const double v : finite) {
    const double place = width > 0 ? (v / width - least / width) : 0;
    counts[std::min(counts.size() - 1, static_cast<std::size_t>(std::max(place, 0.0)))] += 1;
    sum += v, squares += v * v;
  }
  for (std::size_t i = 1; i < counts.size(); ++i) limits.push_back(least + width * static_cast<double>(i));
  limits.push_back(greatest);
  ProtoMessage m;
  m.real(1, least).real(2, greatest).real(3, static_cast<double>(finite.size())).real(4, sum).real(5, squares);
  return m.reals(6, limits).reals(7, counts);
}

}  // namespace

struct SummaryWriter::Impl {
  explicit Impl(std::string path) : file(std::move(path)) {}
  /// One Summary.Value, already filled but for its tag.
  void add(const std::string& tag, ProtoMessage value, std::int64_t step) {
    value.bytes(1, tag);
    ProtoMessage summary, event;
    summary.message(1, value);
    event.real(1, now()).integer(2, step).message(5, summary);
    write(event);
  }
  void write(const ProtoMessage& event) {
    const std::lock_guard lock(mutex);
    file.write(event_record(event.text()));
  }
  std::mutex mutex;
  AppendFile file;
};

SummaryWriter::SummaryWriter(const std::string& log_dir, const std::string& suffix)
    : impl_(std::make_unique<Impl>(event_path(log_dir, suffix))) {
  impl_->write(ProtoMessage().real(1, now()).bytes(3, "brain.Event:2"));
}
SummaryWriter::~SummaryWriter() = default;

const std::string& SummaryWriter::path() const { return impl_->file.path(); }

void SummaryWriter::add_scalar(const std::string& tag, double value, std::int64_t step) {
  impl_->add(tag, ProtoMessage().single(2, static_cast<float>(value)), step);
}

void SummaryWriter::add_scalars(const std::string& main_tag, const std::map<std::string, double>& values,
                                std::int64_t step) {
  for (const auto& [name, value] : values) add_scalar(athanor::detail::str(main_tag, "/", name), value, step);
}

void SummaryWriter::add_histogram(const std::string& tag, const Tensor& values, std::int64_t step, int bins) {
  impl_->add(tag, ProtoMessage().message(5, histogram_of(values, bins)), step);
}

void SummaryWriter::add_image(const std::string& tag, const Tensor& image, std::int64_t step) {
  const Pixels p = pixels_of(image);
  ProtoMessage picture;
  picture.integer(1, p.height).integer(2, p.width).integer(3, p.channels);
  picture.bytes(4, detail::encode_png(p.bytes.data(), p.height, p.width, p.channels));
  impl_->add(tag, ProtoMessage().message(4, picture), step);
}

void SummaryWriter::add_images(const std::string& tag, const Tensor& images, std::int64_t step) {
  add_image(tag, grid_of(images), step);
}

void SummaryWriter::add_text(const std::string& tag, const std::string& text, std::int64_t step) {
  // A string tensor of one element and the name of the plug-in that shows it.
  ProtoMessage shape, tensor, plugin, metadata;
  shape.message(2, ProtoMessage().integer(1, 1));
  tensor.integer(1, 7).message(2, shape).bytes(8, text);
  plugin.bytes(1, "text");
  metadata.message(1, plugin);
  impl_->add(tag + "/text_summary", ProtoMessage().message(9, metadata).message(8, tensor), step);
}

void SummaryWriter::flush() {
  const std::lock_guard lock(impl_->mutex);
  impl_->file.write({});
}

void SummaryWriter::close() {
  const std::lock_guard lock(impl_->mutex);
  impl_->file.close();
}

struct MetricsWriter::Impl {
  explicit Impl(const std::string& path) : csv(path.ends_with(".csv")), file(path) {}
  std::mutex mutex;
  bool csv;
  std::string header;      ///< of CSV, once it is known
  std::string end = "\n";  ///< of a line
  AppendFile file;
};

namespace {

std::string exact(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.17g", value);
  // The shortest text that reads back the same.
  for (int digits = 1; digits < 17; ++digits) {
    char shorter[32];
    std::snprintf(shorter, sizeof shorter, "%.*g", digits, value);
    if (std::strtod(shorter, nullptr) == value) return shorter;
  }
  return buffer;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else
      out += c;
  }
  return out + "\"";
}

/// Where the line that begins at `at` ends: at its '\n' outside of quotes, or with the text.
std::size_t csv_line_end(const std::string& text, std::size_t at) {
  for (bool quoted = false; at < text.size(); ++at) {
    if (text[at] == '"') quoted = !quoted;
    if (text[at] == '\n' && !quoted) break;
  }
  return at;
}

/// Whether a line without its end is whole all the same: a number of CSV may lack digits, an object has its brace.
bool is_whole_json(const std::string& line) { return nlohmann::json::accept(line); }

}  // namespace

MetricsWriter::MetricsWriter(const std::string& path) : impl_(std::make_unique<Impl>(path)) {
  const std::string before = read_text(path);
  std::size_t whole = before.rfind('\n') + 1;  // 0 if there is none
  if (impl_->csv) {
    const std::size_t header = csv_line_end(before, 0);
    if (whole > 0) {
      const bool carriage = header > 0 && before[header - 1] == '\r';
      if (carriage) impl_->end = "\r\n";
      impl_->header = before.substr(0, header - (carriage ? 1 : 0));
      const auto quotes = std::count(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(whole), '"');
      ATHANOR_CHECK_VALUE(!impl_->header.empty() && header < whole && quotes % 2 == 0, "MetricsWriter: '", path,
                          "' is there and is no CSV with a header: its first line is empty, or a quote does not end");
    }
  }
  // A process that ended while it wrote has left a part of a line, to which the next would be joined.
  if (whole == before.size()) return;
  if (!impl_->csv && is_whole_json(before.substr(whole)))
    impl_->file.write("\n");
  else
    impl_->file.truncate(whole);
}
MetricsWriter::~MetricsWriter() = default;

void MetricsWriter::write(std::int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  const std::lock_guard lock(impl_->mutex);
  for (const auto& [name, value] : values)
    ATHANOR_CHECK_VALUE(is_utf8(name), "MetricsWriter: '", impl_->file.path(), "': the name '", readable(name),
                        "' is not UTF-8");
  std::string line;
  if (impl_->csv) {
    std::string header = "step";
    line = std::to_string(step);
    for (const auto& [name, value] : values) {
      header += "," + csv_field(name);
      line += "," + exact(value);
    }
    ATHANOR_CHECK_VALUE(impl_->header.empty() || impl_->header == header, "MetricsWriter: '", impl_->file.path(),
                        "' has the columns ", readable(impl_->header), ", got ", header);
    if (impl_->header.empty()) line = header + impl_->end + line;
    impl_->header = header;
  } else {
    line = "{\"step\": " + std::to_string(step);
    for (const auto& [name, value] : values)
      line += ", " + json_string(name) + ": " + (std::isfinite(value) ? exact(value) : "null");
    line += "}";
  }
  impl_->file.write(line + impl_->end);
}

}  // namespace athanor::io
