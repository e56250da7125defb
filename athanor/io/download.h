#pragma once
/// Downloads over HTTP(S) whose content is checked. libcurl is loaded when the first download starts and needed by
/// nothing else.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace athanor::io {

struct Download {
  /// Where the file can be had: http, https or file addresses, tried in this order.
  std::vector<std::string> urls;
  /// Where it goes; missing folders are made.
  std::string path;
  /// Lower-case hexadecimal checksums; at least one is needed, both are checked when both are given.
  std::string sha256;
  std::string md5;
  /// More than this is refused.
  std::uint64_t max_bytes = std::uint64_t{1} << 32;
  double connect_timeout = 10;  ///< seconds
  double stall_timeout = 30;    ///< seconds with less than 1 byte per second
  double lock_timeout = 1800;   ///< seconds to wait for another process that downloads the same file
  /// Told of the bytes had so far and of the whole size, 0 if unknown.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress;
  /// Receives lines worth showing, without a line feed.
  std::function<void(const std::string&)> log;
};

enum class DownloadResult {
  Present,  ///< the file was there with the right checksum
  Fetched,  ///< by this call
  Shared,   ///< by another process or thread, while this call waited
};

/// Makes `path` a file with the given checksum. Of any number of processes asking for one path, one fetches and the
/// rest wait; if it fails, those who waited fail with its error. A partial download ("PATH.part") is resumed, also by a
/// later run. The file appears under its name only when complete and checked. A file that is there with another
/// checksum is replaced. Thread-safe. Throws ValueError without address or checksum, IoError naming every address and
/// what went wrong there, and NotImplementedError if libcurl is not installed.
DownloadResult download(const Download& what);

}  // namespace athanor::io
