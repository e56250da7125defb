// A profile as the JSON that chrome://tracing and Perfetto read.
#include <unistd.h>

#include <cstdio>
#include <unordered_map>

#include "athanor/base/error.h"
#include "athanor/io/file.h"
#include "athanor/profiler/profiler.h"

namespace athanor::profiler {

using athanor::detail::str;

namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

/// Nanoseconds as microseconds with three digits.
std::string micros(std::int64_t ns) {
  char text[40];
  std::snprintf(text, sizeof text, "%lld.%03d", static_cast<long long>(ns / 1000), static_cast<int>(ns % 1000));
  return text;
}

class TraceWriter {
 public:
  TraceWriter(const std::string& path, const std::vector<ThreadInfo>& threads) : file_(path), threads_(threads) {
    file_.write("{\"schemaVersion\": 1, \"displayTimeUnit\": \"ms\", \"traceEvents\": [");
    element(str("{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": ", pid_,
                ", \"tid\": 0, \"args\": {\"name\": "
                "\"athanor\"}}"));
    for (std::size_t i = 0; i < threads.size(); ++i) {
      const std::string where = str("\"pid\": ", pid_, ", \"tid\": ", threads[i].id);
      element(str("{\"ph\": \"M\", \"name\": \"thread_name\", ", where,
                  ", \"args\": {\"name\": ", quoted(threads[i].name), "}}"));
      element(
          str("{\"ph\": \"M\", \"name\": \"thread_sort_index\", ", where, ", \"args\": {\"sort_index\": ", i, "}}"));
    }
  }

  void event(const Event& e, bool with_memory) {
    std::string args = str("\"Device\": ", quoted(e.device));
    if (e.sequence != 0) args += str(", \"Sequence number\": ", e.sequence);
    if (!e.shapes.empty()) {
      args += ", \"Input Dims\": [";
      for (std::size_t i = 0; i < e.shapes.size(); ++i) args += str(i > 0 ? ", " : "", e.shapes[i]);
      args += "]";
    }
    if (with_memory) args += str(", \"Bytes\": ", e.bytes);
    element(str("{\"ph\": \"X\", \"cat\": ", quoted(category_of(e.kind)), ", \"name\": ", quoted(e.name), ", ",
                place(e), ", \"dur\": ", micros(e.duration), ", \"args\": {", args, "}}"));
  }

  /// An arrow from the forward call to the backward event of its node.
  void link(const Event& forward, const Event& backward) {
    const std::string id = str(", \"id\": ", backward.sequence, ", \"cat\": \"fwdbwd\", \"name\": \"fwdbwd\"}");
    element(str("{\"ph\": \"s\", ", place(forward), id));
    element(str("{\"ph\": \"f\", \"bp\": \"e\", ", place(backward), id));
  }

  void finish() {
    file_.write("\n]}\n");
    file_.commit();
  }

 private:
  std::string place(const Event& e) const {
    return str("\"pid\": ", pid_, ", \"tid\": ", threads_[e.thread].id, ", \"ts\": ", micros(e.start));
  }
  void element(const std::string& text) {
    file_.write(first_ ? "\n" : ",\n");
    file_.write(text);
    first_ = false;
  }

  io::AtomicFile file_;
  const std::vector<ThreadInfo>& threads_;
  const long long pid_ = getpid();
  bool first_ = true;
};

}  // namespace

void Profile::export_chrome_trace(const std::string& path) const {
  check_stopped("export_chrome_trace()");
  TraceWriter writer(path, threads_);
  std::unordered_map<std::uint64_t, const Event*> forward;
  for (const Event& e : events_) {
    writer.event(e, options_.profile_memory);
    if (e.kind == EventKind::Op && e.sequence != 0) forward.try_emplace(e.sequence, &e);
  }
  for (const Event& e : events_) {
    if (e.kind != EventKind::Backward) continue;
    if (const auto it = forward.find(e.sequence); it != forward.end()) writer.link(*it->second, e);
  }
  writer.finish();
}

}  // namespace athanor::profiler
