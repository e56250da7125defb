#include "athanor/data/mnist.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include "athanor/base/error.h"
#include "athanor/data/synthetic_digits.h"
#include "athanor/io/download.h"
#include "athanor/io/idx.h"

namespace athanor::data {

namespace {

namespace fs = std::filesystem;
using athanor::detail::str;

// Generated halves come from far-apart stretches of one series.
constexpr std::uint64_t kGeneratorSeed = 28;
constexpr std::uint64_t kTestStretch = std::uint64_t{1} << 40;

struct FileSums {
  const char* md5;
  const char* sha256;
};
// Train images, train labels, test images, test labels.
using Sums = std::array<FileSums, 4>;

struct Family {
  const char* name;
  const char* folder;  // as torchvision names it
  const char* prefix;  // of file names
  const char* test;    // the test half's name in file names
  int classes;
  std::vector<const char*> mirrors;  // folders of files
  Sums sums;
  const char* labels = "idx1-ubyte";  // format in the labels' file names
};

const Family& family_of(const std::string& name) {
  static const std::vector<Family> families = {
      {"mnist",
       "MNIST",
       "",
       "t10k",
       10,
       {"https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist"},
       {{{"f68b3c2dcbeaaa9fbdd348bbdeb94873", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
         {"d53e105ee54ea40749a09fcbcd1e9432", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
         {"9fb629c4189551a2d022fa330f9573f3", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
         {"ec29112dd5afa0611ce80d1b7f02629c", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}}}},
      {"fashion-mnist",
       "FashionMNIST",
       "",
       "t10k",
       10,
       {"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"},
       {{{"8d4fb7e6c68d591d4c3dfef9ec88bf0d", ""},
         {"25c81989df183df01b3e8a0aad5dffbe", ""},
         {"bef4ecab320f06d8554ea6380940ec79", ""},
         {"bb300cfdad3c16e7a12a480ee83cd310", ""}}}},
      {"kmnist",
       "KMNIST",
       "",
       "t10k",
       10,
       {"http://codh.rois.ac.jp/kmnist/dataset/kmnist"},
       {{{"bdb82020997e1d708af4cf47b453dcf7", ""},
         {"e144d726b3acfaa3e44228e80efcd344", ""},
         {"5c965bf0a639b31b8f53240b1b52f4d7", ""},
         {"7320c461ea6c1c855c0b718fb2a4b134", ""}}}},
      {"emnist-balanced", "EMNIST", "emnist-balanced-", "test", 47, {}, {}},
      {"emnist-byclass", "EMNIST", "emnist-byclass-", "test", 62, {}, {}},
      {"emnist-bymerge", "EMNIST", "emnist-bymerge-", "test", 47, {}, {}},
      {"emnist-digits", "EMNIST", "emnist-digits-", "test", 10, {}, {}},
      {"emnist-letters", "EMNIST", "emnist-letters-", "test", 27, {}, {}},  // labels 1 to 26
      {"emnist-mnist", "EMNIST", "emnist-mnist-", "test", 10, {}, {}},
      {"qmnist", "QMNIST", "qmnist-", "test", 10, {}, {}, "idx2-int"},  // labels: the class, then where it comes from
  };
  std::string known;
  for (const Family& family : families) {
    if (family.name == name) return family;
    known += str(known.empty() ? "" : ", ", family.name);
  }
  ATHANOR_THROW(ValueError, "load_mnist: unknown data set '", name, "', expected one of ", known);
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// The folders to look into, with a word on where each comes from.
struct Base {
  std::string folder;
  bool chosen;  // by the user, for this data set
};

std::vector<Base> bases_of(const MnistOptions& options) {
  std::vector<Base> bases;
  const auto add_chosen = [&](const std::string& folder, const char* origin) {
    if (folder.empty()) return;
    std::error_code error;
    ATHANOR_CHECK_TYPE(IoError, fs::is_directory(folder, error), "load_mnist: the data folder '", folder, "' given by ",
                       origin, " does not exist");
    bases.push_back({folder, true});
  };
  add_chosen(options.root, "--data or root");
  if (options.root_only) {
    ATHANOR_CHECK_VALUE(!options.root.empty(), "load_mnist: root_only without a root");
    return bases;
  }
  add_chosen(environment("ATHANOR_DATA"), "$ATHANOR_DATA");
  bases.push_back({"data", false});
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty())
    bases.push_back({cache + "/athanor", false});
  else if (const std::string home = environment("HOME"); !home.empty())
    bases.push_back({home + "/.cache/athanor", false});
  return bases;
}

struct SplitFiles {
  std::string images;
  std::string labels;
};

std::string file_name(const Family& family, bool train, bool images, char separator) {
  return str(family.prefix, train ? "train" : family.test, images ? "-images" : "-labels", separator,
             images ? "idx3-ubyte" : family.labels);
}

std::string find_file(const Family& family, const std::string& folder, bool train, bool images) {
  for (const char separator : {'-', '.'}) {
    for (const char* packed : {"", ".gz"}) {
      std::string path = folder + "/" + file_name(family, train, images, separator) + packed;
      std::error_code error;
      if (fs::exists(path, error)) return path;
    }
  }
  return "";
}

// The files of one half, if both are there; `incomplete` learns of a file that lacks its partner.
std::optional<SplitFiles> find_split(const Family& family, const std::string& folder, bool train,
                                     std::string& incomplete) {
  SplitFiles files{find_file(family, folder, train, true), find_file(family, folder, train, false)};
  if (files.images.empty() && files.labels.empty()) return std::nullopt;
  if (!files.images.empty() && !files.labels.empty()) return files;
  const bool has_images = files.labels.empty();
  incomplete = str("found '", has_images ? files.images : files.labels, "' but no '",
                   file_name(family, train, !has_images, '-'), "' (plain or .gz) beside it");
  return std::nullopt;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

// Folders below `base` that may hold the files, the most telling names first.
std::vector<std::string> candidates(const Family& family, const Base& base) {
  const std::string own = base.folder + "/" + family.folder;
  const std::string small = base.folder + "/" + lower(family.folder);
  std::vector<std::string> folders{own + "/raw", own, small + "/raw", small, base.folder + "/" + family.name};
  // Other data sets use MNIST's file names: without a folder of that name, only the user can tell them apart.
  if (base.chosen || family.prefix[0] || std::string_view(family.name) == "mnist") {
    folders.push_back(base.folder + "/raw");
    folders.push_back(base.folder);
  }
  return folders;
}

// The labels; of a table of integers its first column, as bytes.
io::Array read_classes(const std::string& path) {
  io::Array table = io::read_idx(path);
  if (table.dtype != kInt || table.sizes.size() != 2 || table.sizes[1] == 0) return table;
  io::Array classes = io::empty_array(kByte, IntArrayRef(table.sizes[0]));
  const auto from = table.values<std::int32_t>();
  const auto to = classes.values<std::uint8_t>();
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::int32_t label = from[i * static_cast<std::size_t>(table.sizes[1])];
    ATHANOR_CHECK_TYPE(IoError, label >= 0 && label < 256, "load_mnist: '", path, "': label ", i, " is ", label,
                       ", expected a class");
    to[i] = static_cast<std::uint8_t>(label);
  }
  return classes;
}

MnistSplit read_split(const Family& family, const SplitFiles& files) {
  const io::Array images = io::read_idx(files.images);
  const io::Array labels = read_classes(files.labels);
  ATHANOR_CHECK_TYPE(IoError, images.dtype == kByte && images.sizes.size() == 3, "load_mnist: '", files.images,
                     "' holds ", images.dtype, " of sizes ", images.sizes, ", expected uint8 images");
  ATHANOR_CHECK_TYPE(IoError, images.sizes[1] == kDigitSide && images.sizes[2] == kDigitSide, "load_mnist: '",
                     files.images, "' holds images of ", images.sizes[1], "x", images.sizes[2], ", expected 28x28");
  ATHANOR_CHECK_TYPE(IoError, labels.dtype == kByte && labels.sizes.size() == 1, "load_mnist: '", files.labels,
                     "' holds ", labels.dtype, " of sizes ", labels.sizes, ", expected uint8 labels");
  ATHANOR_CHECK_TYPE(IoError, images.sizes[0] == labels.sizes[0], "load_mnist: '", files.images, "' holds ",
                     images.sizes[0], " images but '", files.labels, "' ", labels.sizes[0], " labels");
  ATHANOR_CHECK_TYPE(IoError, images.sizes[0] > 0, "load_mnist: '", files.images, "' holds no images");
  const auto pixels = images.values<std::uint8_t>();
  const auto values = labels.values<std::uint8_t>();
  for (std::size_t i = 0; i < values.size(); ++i)
    ATHANOR_CHECK_TYPE(IoError, values[i] < family.classes, "load_mnist: '", files.labels, "': label ", i, " is ",
                       static_cast<int>(values[i]), ", expected less than ", family.classes);
  return {{pixels.begin(), pixels.end()}, {values.begin(), values.end()}};
}

enum class Want { Both, Train, Test };

// The data from the files of one folder, if it has them all.
std::optional<MnistData> read_folder(const Family& family, const std::string& folder, Want want,
                                     std::string& incomplete) {
  std::optional<SplitFiles> train, test;
  if (want != Want::Test) train = find_split(family, folder, true, incomplete);
  if (want != Want::Train) test = find_split(family, folder, false, incomplete);
  if (!train && !test) return std::nullopt;
  if (want == Want::Both && !(train && test)) {
    if (incomplete.empty()) incomplete = str("'", folder, "' holds only the ", train ? "training" : "test", " half");
    return std::nullopt;
  }
  MnistData data;
  data.classes = family.classes;
  data.folder = folder;
  if (train) data.train = read_split(family, *train);
  if (test) data.test = read_split(family, *test);
  return data;
}

// True if a folder of that name is there or could be made, and could be written to.
bool is_writable(const std::string& folder) {
  std::error_code error;
  for (fs::path at = fs::absolute(folder, error); !at.empty(); at = at.parent_path()) {
    if (fs::exists(at, error)) return fs::is_directory(at, error) && ::access(at.c_str(), W_OK | X_OK) == 0;
    if (at == at.root_path()) break;
  }
  return false;
}

// Where a download goes: what the user chose, else the cache, which comes last.
std::string download_folder(const Family& family, const std::vector<Base>& bases) {
  for (const Base& base : bases)
    if (base.chosen && is_writable(base.folder)) return str(base.folder, "/", family.folder, "/raw");
  return str(is_writable(bases.back().folder) ? bases.back().folder : "data", "/", family.folder, "/raw");
}

void download_all(const Family& family, const MnistOptions& options, const std::string& folder) {
  std::vector<std::string> sources;
  const auto add_data_folder = [&](const std::string& address) {
    if (!address.empty()) sources.push_back(str(address, "/", family.folder, "/raw"));
  };
  add_data_folder(environment("ATHANOR_DATA_MIRROR"));
  for (const std::string& mirror : options.mirrors) add_data_folder(mirror);
  if (options.mirrors.empty()) sources.insert(sources.end(), family.mirrors.begin(), family.mirrors.end());
  for (std::size_t i = 0; i < family.sums.size(); ++i) {
    const std::string name = file_name(family, i < 2, i % 2 == 0, '-') + ".gz";
    io::Download what;
    for (const std::string& source : sources) what.urls.push_back(str(source, "/", name));
    what.path = str(folder, "/", name);
    what.md5 = family.sums[i].md5;
    what.sha256 = family.sums[i].sha256;
    what.max_bytes = std::uint64_t{1} << 28;
    what.log = options.log;
    io::download(what);
  }
}

MnistData generate(const MnistOptions& options, Want want) {
  MnistData data;
  data.source = MnistSource::Generator;
  const auto make = [](std::int64_t count, std::uint64_t first) {
    SyntheticDigits digits = synthetic_digits(count, kGeneratorSeed, first);
    return MnistSplit{std::move(digits.images), std::move(digits.labels)};
  };
  if (want != Want::Test) data.train = make(options.generated_train, 0);
  if (want != Want::Train) data.test = make(options.generated_test, kTestStretch);
  return data;
}

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

MnistData load(MnistOptions options, Want want) {
  const Family& family = family_of(options.name);
  if (!options.log) options.log = [](const std::string& line) { std::fputs((line + "\n").c_str(), stderr); };
  const std::vector<Base> bases = bases_of(options);
  std::string searched;
  std::string incomplete;
  for (const Base& base : bases) {
    for (const std::string& folder : candidates(family, base)) {
      if (auto data = read_folder(family, folder, want, incomplete)) {
        options.log(str(family.name, ": read from '", folder, "'"));
        return std::move(*data);
      }
    }
    searched += str(searched.empty() ? "'" : ", '", base.folder, "'");
  }

  const std::string offline = environment("ATHANOR_OFFLINE");
  std::string failure = "downloads are switched off";
  if (family.mirrors.empty()) {
    failure = "it cannot be downloaded file by file";
  } else if (options.download && !options.root_only && (offline.empty() || offline == "0")) {
    const std::string folder = download_folder(family, bases);
    try {
      download_all(family, options, folder);
      failure.clear();
    } catch (const Error& e) {
      failure = one_line(e.what());
    }
    if (failure.empty()) {
      MnistData data = read_folder(family, folder, want, incomplete).value();
      data.source = MnistSource::Download;
      options.log(str(family.name, ": downloaded to '", folder, "'"));
      return data;
    }
  }
  // Half a data set is somebody's mistake, which other digits would hide.
  ATHANOR_CHECK_TYPE(IoError, incomplete.empty(), "load_mnist: ", family.name, " is incomplete: ", incomplete, ", and ",
                     failure);
  const bool can_generate = options.generate && !options.root_only && std::string_view(family.name) == "mnist";
  ATHANOR_CHECK_TYPE(IoError, can_generate, "load_mnist: no ", family.name, " files in ", searched, ", and ", failure,
                     ". Put them into a folder and name it with --data or $ATHANOR_DATA");
  options.log(str("mnist: no files in ", searched, ", and ", failure,
                  "; using generated digits instead, whose accuracy says nothing about MNIST"));
  return generate(options, want);
}

}  // namespace

MnistData load_mnist(const MnistOptions& options) { return load(options, Want::Both); }

MnistSplit load_mnist_split(bool train, const MnistOptions& options) {
  MnistData data = load(options, train ? Want::Train : Want::Test);
  return std::move(train ? data.train : data.test);
}

}  // namespace athanor::data
