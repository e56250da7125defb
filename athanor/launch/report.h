#pragma once
/// What is said when a job fails: which rank failed first, how, and what it said last.

#include <string>
#include <vector>

#include "athanor/launch/process.h"

namespace athanor::launch {

/// A worker that failed.
struct Failure {
  int rank = 0, local_rank = 0;
  int pid = 0;
  Ending ending;
  std::string host;
  double after_seconds = 0;  ///< since the worker's start
  std::string when;          ///< local time
  std::string ranks;         ///< what the others were doing, a line each; empty if they did not say
  std::string message;       ///< from the worker's error file (PyTorch's @record), or empty
  std::string last_lines;    ///< of its stderr
  std::string log_file;      ///< where all of it is, or empty
  int attempt = 0;

  /// Of failures noticed at the same time the one with the lowest number was probably first: 0 for one killed by a
  /// signal, 1 for an error of its own, 2 for one whose words, not caught perhaps, blame another rank.
  int likely_consequence() const;

  std::string json() const;
  /// Throws Error if it is no such text.
  static Failure from_json(const std::string& text);
};

/// Which rank, how, where, when, and its last words: several lines, the last one ended.
std::string describe(const std::string& launcher, const Failure& first, int max_restarts);
/// What became of the others; may be empty.
std::string describe_rest(const Failure& first, const std::vector<Failure>& failures, const std::vector<int>& stopped);

/// The message in an error file as PyTorch's @record writes it (TORCHELASTIC_ERROR_FILE); empty if there is none.
std::string read_error_file(const std::string& path);

}  // namespace athanor::launch
