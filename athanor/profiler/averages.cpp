// Events by name, and the table of them.
#include <algorithm>
#include <cstdio>
#include <unordered_map>

#include "athanor/base/error.h"
#include "athanor/profiler/profiler.h"

namespace athanor::profiler {

using athanor::detail::str;

namespace {

std::string shapes_text(const Event& event) {
  std::string text = "[";
  for (const auto& shape : event.shapes) text += str(text.size() > 1 ? ", " : "", shape);
  return text + "]";
}

using Text = char[24];

void put_time(Text& out, double ns) {
  const int unit = ns >= 1e9 ? 2 : ns >= 1e6 ? 1 : 0;
  constexpr double kScale[] = {1e3, 1e6, 1e9};
  constexpr const char* kName[] = {"us", "ms", "s"};
  std::snprintf(out, sizeof out, "%.3f%s", ns / kScale[unit], kName[unit]);
}

void put_bytes(Text& out, std::int64_t bytes) {
  constexpr const char* kName[] = {"B", "KB", "MB", "GB"};
  double size = static_cast<double>(bytes);
  int unit = 0;
  for (; unit < 3 && (size >= 1024 || size <= -1024); ++unit) size /= 1024;
  std::snprintf(out, sizeof out, unit == 0 ? "%.0f %s" : "%.2f %s", size, kName[unit]);
}

void put_percent(Text& out, std::int64_t part, std::int64_t whole) {
  std::snprintf(out, sizeof out, "%.2f%%",
                whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0.0);
}

constexpr const char* kKeys[] = {"self_cpu_time_total", "cpu_time_total",       "cpu_time", "count",
                                 "cpu_memory_usage",    "self_cpu_memory_usage"};
double value_of(const EventAverage& a, std::size_t key) {
  switch (key) {
    case 0:
      return static_cast<double>(a.self);
    case 1:
      return static_cast<double>(a.total);
    case 2:
      return a.average();
    case 3:
      return static_cast<double>(a.count);
    case 4:
      return static_cast<double>(a.bytes);
    default:
      return static_cast<double>(a.self_bytes);
  }
}

/// Right-aligned in a column.
void put_cell(std::string& out, std::string_view text, std::size_t width) {
  out.append(width - std::min(width, text.size()), ' ').append(text).append("  ");
}

constexpr std::size_t kWidth = 12;

}  // namespace

KeyAverages Profile::key_averages(bool group_by_input_shape) const {
  check_stopped("key_averages()");
  std::unordered_map<std::string, std::size_t> places;
  std::vector<EventAverage> rows;
  std::vector<std::size_t> row_of(events_.size());
  for (std::size_t i = 0; i < events_.size(); ++i) {
    const Event& e = events_[i];
    std::string shapes = group_by_input_shape ? shapes_text(e) : std::string();
    const std::size_t at = places.emplace(e.name + shapes, rows.size()).first->second;
    if (at == rows.size()) rows.push_back({e.name, std::move(shapes)});
    row_of[i] = at;
    EventAverage& row = rows[at];
    ++row.count;
    row.self += e.self;
    row.self_bytes += e.self_bytes;
    bool nested = false;
    for (std::int64_t p = e.parent; p >= 0 && !nested; p = events_[static_cast<std::size_t>(p)].parent)
      nested = row_of[static_cast<std::size_t>(p)] == at;
    if (nested) continue;
    row.total += e.duration;
    row.bytes += e.bytes;
  }
  std::sort(rows.begin(), rows.end(), [](const EventAverage& a, const EventAverage& b) {
    return a.self != b.self ? a.self > b.self : a.name < b.name;
  });
  return {std::move(rows), options_.profile_memory};
}

std::string KeyAverages::table(std::string_view sort_by, std::int64_t row_limit) const {
  std::vector<const EventAverage*> order;
  std::int64_t whole = 0;
  std::size_t name_width = kWidth, shapes_width = 0;
  for (const EventAverage& row : rows_) {
    order.push_back(&row);
    whole += row.self;
    name_width = std::max(name_width, row.name.size());
    if (!row.shapes.empty()) shapes_width = std::max({shapes_width, row.shapes.size(), kWidth});
  }
  if (!sort_by.empty()) {
    const std::size_t key = static_cast<std::size_t>(std::find(kKeys, std::end(kKeys), sort_by) - kKeys);
    ATHANOR_CHECK_VALUE(key < std::size(kKeys), "profiler: table cannot be sorted by '", sort_by,
                        "'; expected self_cpu_time_total, cpu_time_total, cpu_time, count, cpu_memory_usage or "
                        "self_cpu_memory_usage");
    std::sort(order.begin(), order.end(), [key](const EventAverage* a, const EventAverage* b) {
      const double x = value_of(*a, key), y = value_of(*b, key);
      return x != y ? x > y : a < b;
    });
  }

  std::string line, out;
  for (std::size_t c = 0; c < (with_memory_ ? 9U : 7U); ++c)
    line.append(c == 0 ? name_width : kWidth, '-').append("  ");
  if (shapes_width > 0) line.append(shapes_width, '-').append("  ");
  line += '\n';
  out = line;
  put_cell(out, "Name", name_width);
  for (const char* title : {"Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"})
    put_cell(out, title, kWidth);
  if (with_memory_)
    for (const char* title : {"CPU Mem", "Self CPU Mem"}) put_cell(out, title, kWidth);
  put_cell(out, "# of Calls", kWidth);
  if (shapes_width > 0) put_cell(out, "Input Shapes", shapes_width);
  out += '\n' + line;
  Text text;
  for (const EventAverage* a : order) {
    if (row_limit-- == 0) break;
    put_cell(out, a->name, name_width);
    put_percent(text, a->self, whole), put_cell(out, text, kWidth);
    put_time(text, static_cast<double>(a->self)), put_cell(out, text, kWidth);
    put_percent(text, a->total, whole), put_cell(out, text, kWidth);
    put_time(text, static_cast<double>(a->total)), put_cell(out, text, kWidth);
    put_time(text, a->average()), put_cell(out, text, kWidth);
    if (with_memory_) {
      put_bytes(text, a->bytes), put_cell(out, text, kWidth);
      put_bytes(text, a->self_bytes), put_cell(out, text, kWidth);
    }
    put_cell(out, str(a->count), kWidth);
    if (shapes_width > 0) put_cell(out, a->shapes, shapes_width);
    out += '\n';
  }
  put_time(text, static_cast<double>(whole));
  return out + line + "Self CPU time total: " + text + "\n";
}

}  // namespace athanor::profiler
