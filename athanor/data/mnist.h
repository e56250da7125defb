#pragma once
/// Finds, fetches and checks MNIST and data sets in its format. Pixels stay bytes; datasets and tensors are made of
/// them elsewhere.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace athanor::data {

/// One half of a data set.
struct MnistSplit {
  std::vector<std::uint8_t> images;  ///< count × 28 × 28, row by row, 0 paper to 255 ink
  std::vector<std::uint8_t> labels;  ///< count, each below MnistData::classes
  std::int64_t count() const { return static_cast<std::int64_t>(labels.size()); }
};

enum class MnistSource {
  Folder,     ///< files that were there
  Download,   ///< fetched by this call or by another process meanwhile
  Generator,  ///< synthetic_digits: neither files nor a download could be had
};

struct MnistData {
  MnistSplit train;
  MnistSplit test;
  int classes = 10;
  MnistSource source = MnistSource::Folder;
  std::string folder;  ///< of the files; empty for the generator
};

struct MnistOptions {
  /// "mnist", "fashion-mnist", "kmnist", "qmnist", or "emnist-" with balanced, byclass, bymerge, digits, letters or
  /// mnist.
  std::string name = "mnist";
  /// The data folder, as given to --data; it must exist. Empty: none was chosen.
  std::string root;
  /// Look nowhere but in `root`, which must be given: no other folder, no download, no generator.
  bool root_only = false;
  /// Fetch what no folder has? $ATHANOR_OFFLINE set to anything but 0 says no, too. EMNIST and QMNIST are never
  /// fetched.
  bool download = true;
  /// Generate digits for "mnist" if everything else failed?
  bool generate = true;
  std::int64_t generated_train = 60000;
  std::int64_t generated_test = 10000;
  /// Addresses of data folders laid out as below, instead of the built-in ones.
  std::vector<std::string> mirrors;
  /// Receives one line saying where the data came from (and one per file downloaded); default: standard error.
  std::function<void(const std::string&)> log;
};

/// Both halves, from the first of: `root`, $ATHANOR_DATA, ./data and the user's cache folder ($XDG_CACHE_HOME/athanor
/// or
/// ~/.cache/athanor); a download; the generator. In a folder the files may lie directly, in "raw", in the data set's
/// own folder or in its "raw" ("MNIST/raw", as torchvision has it), packed with gzip or not. A download goes to
/// "MNIST/raw" (or "FashionMNIST/raw" …) of the first of those folders that can be written, checked by published
/// checksums; $ATHANOR_DATA_MIRROR, the address of a folder laid out so, is asked before the built-in ones. Of several
/// processes one downloads.
/// Files are checked: format, sizes, equal counts, labels within range. Throws IoError naming the file for anything
/// wrong with files that are there, for a missing `root` or $ATHANOR_DATA, and, where no generator can help, for data
/// that cannot be had; ValueError for an unknown name. Thread-safe.
MnistData load_mnist(const MnistOptions& options = {});

/// One half only; the other need not exist in a folder.
MnistSplit load_mnist_split(bool train, const MnistOptions& options = {});

}  // namespace athanor::data
