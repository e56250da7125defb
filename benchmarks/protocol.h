#pragma once
/// The protocol by which benchmarks/run.py drives a benchmark program, shared by Athanor's side and the C++ peers.
/// Needs only the standard library, since the peers are compiled without Athanor.
///
/// A program holds named rows. It greets with one JSON line that lists them, then answers lines on standard input:
///   run NAME SAMPLES MIN_SECONDS   times the row: SAMPLES figures, each over at least MIN_SECONDS and one call
///   memory NAME CALLS              calls the row CALLS times, then once more: how many bytes its tensors took at most
///   forget                         drops what the last row allocated
///   quit                           ends the program (as end of input does)
/// The answer to `run` is {"name", "unit", "items_per_iter", "seconds": [one per sample, for one call]} or
/// {"name", "error"}; to `memory` {"name", "live"} or an error. A row's data stays alive between runs of the same row,
/// so that rounds of several programs can be interleaved.

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {

using Body = std::function<void()>;

struct Row {
  std::string name;
  std::string unit;               ///< what an iteration counts: "B", "FLOP", "element", "image", "sample", "call"
  double items = 1;               ///< how many of them
  std::function<Body()> prepare;  ///< allocates the row's data and returns what is timed
};

class Program {
 public:
  Program(std::string side, std::string version, int threads)
      : side_(std::move(side)), version_(std::move(version)), threads_(threads) {}

  /// Bytes that tensors took at most since the last call of `reset`, for `memory`.
  void meter_memory(std::function<void()> reset, std::function<double()> peak) {
    reset_peak_ = std::move(reset);
    peak_ = std::move(peak);
  }

  void add(std::string name, std::string unit, double items, std::function<Body()> prepare) {
    rows_.push_back({std::move(name), std::move(unit), items, std::move(prepare)});
  }

  /// Serves requests until the end of input. Returns main's status.
  int serve() {
    greet();
    std::string line;
    while (std::getline(std::cin, line)) {
      std::istringstream words(line);
      std::string word, name;
      int samples = 3;
      double min_seconds = 0.02;
      words >> word;
      if (word == "quit") break;
      if (word == "forget") {
        prepared_name_.clear();
        body_ = nullptr;
        continue;
      }
      words >> name >> samples >> min_seconds;
      if (word == "run")
        answer(name, [=, this](const Row& row) { return timings(row, samples, min_seconds); });
      else if (word == "memory")
        answer(name, [=, this](const Row&) { return live_bytes(samples); });
      else
        print("{\"error\": \"unknown request " + word + "\"}");
    }
    return 0;
  }

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  static std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return out + "\"";
  }

  static std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", value);
    return text;
  }

  static void print(const std::string& line) {
    std::puts(line.c_str());
    std::fflush(stdout);
  }

  void greet() const {
    std::string names;
    for (const Row& row : rows_) names += (names.empty() ? "" : ", ") + quoted(row.name);
    print("{\"side\": " + quoted(side_) + ", \"version\": " + quoted(version_) +
          ", \"threads\": " + std::to_string(threads_) + ", \"rows\": [" + names + "]}");
  }

  /// What `fields` says of the row, whose body it finds prepared.
  void answer(const std::string& name, const std::function<std::string(const Row&)>& fields) {
    const Row* row = nullptr;
    for (const Row& candidate : rows_)
      if (candidate.name == name) row = &candidate;
    if (!row) return print("{\"name\": " + quoted(name) + ", \"error\": \"no such row\"}");
    try {
      if (prepared_name_ != name) {
        body_ = nullptr;
        prepared_name_.clear();
        body_ = row->prepare();
        prepared_name_ = name;
      }
      print("{\"name\": " + quoted(name) + ", " + fields(*row) + "}");
    } catch (const std::exception& error) {
      print("{\"name\": " + quoted(name) + ", \"error\": " + quoted(error.what()) + "}");
    }
  }

  std::string timings(const Row& row, int samples, double min_seconds) const {
    std::string list;
    for (const double s : measure(body_, samples, min_seconds)) list += (list.empty() ? "" : ", ") + number(s);
    return "\"unit\": " + quoted(row.unit) + ", \"items_per_iter\": " + number(row.items) + ", \"seconds\": [" + list +
           "]";
  }

  std::string live_bytes(int calls) const {
    if (!peak_) throw std::runtime_error("this program does not meter memory");
    for (int i = 0; i < calls; ++i) body_();
    reset_peak_();
    body_();
    return "\"live\": " + number(peak_());
  }

  static double time_calls(const Body& body, long calls) {
    const double start = now();
    for (long i = 0; i < calls; ++i) body();
    return now() - start;
  }

  /// Warms up for one call and about min_seconds, finding how many calls one sample takes, then samples.
  static std::vector<double> measure(const Body& body, int samples, double min_seconds) {
    body();
    long calls = 1;
    double took = time_calls(body, calls);
    while (took < min_seconds) {
      const double wanted = took > 0 ? min_seconds / took * 1.1 : 10.0;
      calls = static_cast<long>(static_cast<double>(calls) * (wanted < 1.5 ? 1.5 : wanted > 10 ? 10 : wanted)) + 1;
      took = time_calls(body, calls);
    }
    std::vector<double> seconds;
    for (int i = 0; i < samples; ++i) seconds.push_back(time_calls(body, calls) / static_cast<double>(calls));
    return seconds;
  }

  std::string side_, version_;
  int threads_;
  std::vector<Row> rows_;
  std::string prepared_name_;
  Body body_;
  std::function<void()> reset_peak_;
  std::function<double()> peak_;
};

}  // namespace bench
