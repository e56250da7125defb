#pragma once
/// A small set of digits in MNIST's files, for programs that read a folder.

#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "athanor/data/synthetic_digits.h"
#include "athanor/io/tensor_io.h"

/// Generated digits as IDX files in a folder of its own, removed with the object.
class DigitsFolder {
 public:
  DigitsFolder(std::int64_t train, std::int64_t test) {
    std::string pattern = (std::filesystem::temp_directory_path() / "athanor_digits_XXXXXX").string();
    if (!mkdtemp(pattern.data())) std::abort();
    path_ = pattern;
    write("train", train, 0);
    write("t10k", test, 1 << 20);
  }
  ~DigitsFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  DigitsFolder(const DigitsFolder&) = delete;
  DigitsFolder& operator=(const DigitsFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  void write(const std::string& half, std::int64_t n, std::uint64_t first) const {
    auto digits = athanor::data::synthetic_digits(n, 5, first);
    athanor::io::save_idx(path_ + "/" + half + "-images-idx3-ubyte",
                          torch::from_blob(digits.images.data(), {n, 28, 28}, torch::kByte));
    athanor::io::save_idx(path_ + "/" + half + "-labels-idx1-ubyte",
                          torch::from_blob(digits.labels.data(), {n}, torch::kByte));
  }
  std::string path_;
};
